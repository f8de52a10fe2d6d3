/* svg_fonts.c - collects the fonts of SVG text, subsets them and embeds them. */
#include "render/svg_fonts.h"

#include <hb-ot.h>
#include <hb-subset.h>
#include <hb.h>
#include <pango/pangocairo.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_FACES = 16 };

struct svg_fonts {
    int n;
    struct svg_face face[MAX_FACES];
};

void svg_fonts_destroy(struct svg_fonts *f)
{
    for (int i = 0; f && i < f->n; i++) {
        hb_face_destroy(f->face[i].face);
        hb_font_destroy(f->face[i].font);
        hb_set_destroy(f->face[i].chars);
        g_free(f->face[i].family);
    }
    mem_free(f);
}

/* Returns a subset of a face for these characters, without shaping tables, because glyph positions
 * are fixed. */
static hb_face_t *subset(hb_face_t *face, const hb_set_t *chars)
{
    static const hb_tag_t drop[] = {HB_TAG('G', 'S', 'U', 'B'), HB_TAG('G', 'P', 'O', 'S'),
                                    HB_TAG('G', 'D', 'E', 'F'), HB_TAG('k', 'e', 'r', 'n'),
                                    HB_TAG('M', 'A', 'T', 'H'), HB_TAG('B', 'A', 'S', 'E')};
    hb_subset_input_t *in = hb_subset_input_create_or_fail();
    if (!in)
        return NULL;
    hb_set_union(hb_subset_input_unicode_set(in), chars);
    for (size_t i = 0; i < sizeof drop / sizeof *drop; i++)
        hb_set_add(hb_subset_input_set(in, HB_SUBSET_SETS_DROP_TABLE_TAG), drop[i]);
    hb_subset_input_set_flags(in, HB_SUBSET_FLAGS_NO_HINTING);
    hb_face_t *part = hb_subset_or_fail(face, in);
    hb_subset_input_destroy(in);
    return part;
}

/* Returns true if a face can be embedded: its outlines do not vary, and its licence allows it
 * (fsType of OS/2). */
static bool can_embed(hb_face_t *face)
{
    unsigned n = 0;
    hb_blob_t *os2 = hb_face_reference_table(face, HB_TAG('O', 'S', '/', '2'));
    const char *p = hb_blob_get_data(os2, &n);
    bool restricted = n >= 10 && (p[9] & 0x0f) == 0x02;
    hb_blob_destroy(os2);
    if (restricted || hb_ot_var_has_data(face) || hb_ot_color_has_png(face)
        || hb_ot_color_has_layers(face) || hb_ot_color_has_svg(face))
        return false;
    hb_set_t *one = hb_set_create();
    hb_set_add(one, ' ');
    hb_face_t *part = subset(face, one);
    hb_set_destroy(one);
    hb_face_destroy(part);
    return part != NULL;
}

struct svg_face *svg_font_of(struct svg_fonts **fonts, struct _PangoFont *font)
{
    hb_face_t *face = hb_font_get_face(pango_font_get_hb_font(font));
    if (!*fonts)
        *fonts = MEM_NEW(struct svg_fonts, 1);
    if (!*fonts)
        return NULL;
    for (int i = 0; i < (*fonts)->n; i++)
        if ((*fonts)->face[i].face == face)
            return &(*fonts)->face[i];
    if ((*fonts)->n == MAX_FACES)
        return NULL;
    struct svg_face *f = &(*fonts)->face[(*fonts)->n++];
    PangoFontDescription *about = pango_font_describe(font);
    f->face = hb_face_reference(face);
    f->font = hb_font_create(face);
    f->chars = hb_set_create();
    f->family = g_strdup(pango_font_description_get_family(about));
    f->family = g_strdelimit(f->family, "'\"\\<>&", ' '); /* it is quoted below */
    f->weight = (int)pango_font_description_get_weight(about);
    f->italic = pango_font_description_get_style(about) != PANGO_STYLE_NORMAL;
    f->embeds = can_embed(face);
    pango_font_description_free(about);
    return f;
}

static void write_ranges(const hb_set_t *chars, struct buf *out)
{
    hb_codepoint_t a = HB_SET_VALUE_INVALID, b = HB_SET_VALUE_INVALID;
    for (const char *gap = ""; hb_set_next_range(chars, &a, &b); gap = ",")
        buf_printf(out, a == b ? "%sU+%X" : "%sU+%X-%X", gap, a, b);
}

static int write_face(const struct svg_face *f, struct buf *out)
{
    hb_face_t *part = subset(f->face, f->chars);
    hb_blob_t *blob = part ? hb_face_reference_blob(part) : NULL;
    unsigned n = 0;
    const char *data = blob ? hb_blob_get_data(blob, &n) : NULL;
    if (n > 4) {
        bool cff = memcmp(data, "OTTO", 4) == 0;
        buf_printf(out, "@font-face{font-family:'%s';font-weight:%d;font-style:%s;unicode-range:",
                   f->family, f->weight, f->italic ? "italic" : "normal");
        write_ranges(f->chars, out);
        buf_printf(out, ";src:url(data:font/%s;base64,", cff ? "otf" : "ttf");
        buf_base64(out, data, n);
        buf_printf(out, ") format('%s')}\n", cff ? "opentype" : "truetype");
    }
    hb_blob_destroy(blob);
    hb_face_destroy(part);
    return n > 4 ? out->err : KVF_E_NOMEM;
}

int svg_fonts_write(const struct svg_fonts *f, struct buf *out)
{
    int err = KVF_OK;
    if (!f)
        return KVF_OK;
    buf_str(out, "<style>\ntext{font-kerning:none;font-variant-ligatures:none;"
                 "text-rendering:geometricPrecision}\n");
    for (int i = 0; !err && i < f->n; i++)
        if (!hb_set_is_empty(f->face[i].chars))
            err = write_face(&f->face[i], out);
    buf_str(out, "</style>\n");
    return err;
}
