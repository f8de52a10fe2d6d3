/* canvas_file.c - creates a canvas and finishes its file: surface, fonts, pages and metadata.
 * canvas.c draws on it. */
#include <cairo-pdf.h>
#include <cairo.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "render/canvas_impl.h"
#include "render/canvas_text.h"
#include "render/png_out.h"

/* Each character uses the first of these fonts that is installed and has it.  All digits of Lato,
 * and of DejaVu Sans, have one width, so numbers below each other line up. */
#define FONTS "Lato, DejaVu Sans, Noto Sans CJK SC"

void canvas_clean(struct buf *b, const char *s)
{
    if (utf8_valid(s, strlen(s)))
        buf_str(b, s);
    else
        utf8_show(b, s, strlen(s));
}

static cairo_status_t collect(void *ctx, const unsigned char *data, unsigned n)
{
    struct canvas *c = ctx;
    buf_add(&c->bytes, data, n);
    return c->bytes.err ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

/* Creates a layout that places text equally at every resolution: without hinting, and without
 * rounding advances to whole units, which are millimetres here. */
static int create_layout(struct canvas *c)
{
    cairo_font_options_t *opt = cairo_font_options_create();
    cairo_font_options_set_hint_style(opt, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(opt, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(opt, CAIRO_ANTIALIAS_GRAY);
    /* A ligature is not a character: searchable and editable text has no ligatures. */
    PangoAttrList *plain = pango_attr_list_new();
    pango_attr_list_insert(plain, pango_attr_font_features_new("liga=0,clig=0,dlig=0"));
    /* Do not name colour fonts: they would draw the digits.  Pango finds them for emoji. */
    c->font = pango_font_description_from_string(FONTS);
    c->layout = pango_cairo_create_layout(c->cr);
    if (c->layout && c->font) {
        PangoContext *ctx = pango_layout_get_context(c->layout);
        pango_cairo_context_set_font_options(ctx, opt);
        pango_context_set_round_glyph_positions(ctx, FALSE);
        pango_layout_set_single_paragraph_mode(c->layout, TRUE);
        pango_layout_set_attributes(c->layout, plain);
    }
    pango_attr_list_unref(plain);
    cairo_font_options_destroy(opt);
    return c->layout && c->font ? KVF_OK : KVF_E_NOMEM;
}

void canvas_prepare(void)
{
    (void)pango_cairo_font_map_get_default();
}

/* Creates the surface of the format.  The surface for SVG is unbounded, because cairo drops glyph
 * paths outside a bounded surface. */
static cairo_surface_t *surface_of(struct canvas *c, int dpi)
{
    double pt = 72 / 25.4;
    switch (c->format) {
    case CANVAS_ANSI:
        return cairo_image_surface_create(CAIRO_FORMAT_ARGB32, c->ansi.cols, 2 * c->ansi.rows);
    case CANVAS_PNG:
        return cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(c->w / 25.4 * dpi),
                                          (int)ceil(c->h / 25.4 * dpi));
    case CANVAS_SVG:
        return cairo_recording_surface_create(CAIRO_CONTENT_COLOR, NULL);
    default:
        return cairo_pdf_surface_create_for_stream(collect, c, c->w * pt, c->h * pt);
    }
}

/* Returns the device units per mm. */
static double scale_of(const struct canvas *c, int dpi)
{
    if (is_ansi(c))
        return 1 / ANSI_PIXEL;
    return c->format == CANVAS_PNG ? dpi / 25.4 : 72 / 25.4;
}

int canvas_create(enum canvas_format f, double w_mm, double h_mm, int dpi, struct canvas **ret,
                  struct kvf_diag *d)
{
    if (!(w_mm > 0 && h_mm > 0 && w_mm <= 5000 && h_mm <= 5000) || dpi < 20 || dpi > 2400
        || ceil(w_mm / 25.4 * dpi) > 20000 || ceil(h_mm / 25.4 * dpi) > 20000)
        return kvf_fail(d, KVF_E_ARG,
                        "a figure of %.0f x %.0f mm at %d dpi is too large or too small: it has at "
                        "most 5000 mm and 20000 pixels a side; choose another --size or --dpi, or "
                        "show less",
                        w_mm, h_mm, dpi);
    struct canvas *c = MEM_NEW(struct canvas, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->format = f;
    c->w = c->svg.w = w_mm;
    c->h = c->svg.h = h_mm;
    c->pixel = is_ansi(c) ? ANSI_PIXEL : 25.4 / dpi;
    if (is_ansi(c))
        c->err = ansi_init(&c->ansi, w_mm, h_mm);
    c->surface = surface_of(c, dpi);
    c->cr = cairo_create(c->surface);
    cairo_scale(c->cr, scale_of(c, dpi), scale_of(c, dpi));
    if (cairo_status(c->cr) != CAIRO_STATUS_SUCCESS || create_layout(c) != KVF_OK) {
        canvas_destroy(c);
        return KVF_E_NOMEM;
    }
    cairo_set_source_rgb(c->cr, 1, 1, 1);
    if (is_ansi(c))
        cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE); /* not blended with earlier pixels */
    else
        cairo_paint(c->cr);
    *ret = c;
    return KVF_OK;
}

void canvas_destroy(struct canvas *c)
{
    if (!c)
        return;
    if (c->font)
        pango_font_description_free(c->font);
    if (c->layout)
        g_object_unref(c->layout);
    cairo_destroy(c->cr);
    cairo_surface_destroy(c->surface);
    g_free(c->title);
    g_free(c->keywords);
    buf_finish(&c->bytes);
    svg_finish(&c->svg);
    ansi_finish(&c->ansi);
    mem_free(c);
}

static bool installed(PangoFontMap *map, const char *family)
{
    PangoFontFamily **list = NULL;
    bool found = false;
    int n = 0;
    pango_font_map_list_families(map, &list, &n);
    for (int i = 0; i < n && !found; i++)
        found = strcasecmp(pango_font_family_get_name(list[i]), family) == 0;
    g_free(list);
    return found;
}

/* Writes to out the family that fontconfig substitutes for a missing one. */
static void substitute_of(PangoContext *ctx, const char *family, char *out, size_t cap)
{
    PangoFontDescription *want = pango_font_description_new(), *got = NULL;
    pango_font_description_set_family(want, family);
    PangoFont *font = pango_context_load_font(ctx, want);
    if (font)
        got = pango_font_describe(font);
    snprintf(out, cap, "%s", got ? pango_font_description_get_family(got) : "nothing");
    pango_font_description_free(got);
    pango_font_description_free(want);
    if (font)
        g_object_unref(font);
}

int canvas_font(struct canvas *c, const char *family, struct kvf_diag *d)
{
    struct buf list = {0};
    char other[96];
    PangoContext *ctx = pango_layout_get_context(c->layout);
    if (!installed(pango_context_get_font_map(ctx), family)) {
        substitute_of(ctx, family, other, sizeof other);
        return kvf_fail(d, KVF_E_ARG,
                        "--font: no font family '%.80s' is installed; fontconfig "
                        "would take '%s'",
                        family, other);
    }
    buf_printf(&list, "%s, " FONTS, family);
    if (!list.err)
        pango_font_description_set_family(c->font, list.data);
    int err = list.err;
    buf_finish(&list);
    return err;
}

void canvas_boxes(struct canvas *c, bool *ret)
{
    c->boxes = ret;
}

void canvas_threads(struct canvas *c, int most)
{
    c->threads = most;
}

void canvas_shades(struct canvas *c)
{
    c->ansi.shades = true;
}

void canvas_about(struct canvas *c, const char *title, const char *keywords)
{
    g_free(c->title);
    g_free(c->keywords);
    struct buf a = {0}, b = {0};
    canvas_clean(&a, title);
    canvas_clean(&b, keywords);
    c->title = g_strdup(a.data);
    c->keywords = g_strdup(b.data);
    canvas_fail(c, a.err ? a.err : b.err);
    buf_finish(&a);
    buf_finish(&b);
}

/* Writes the metadata of a PDF. Its dates are fixed, so that equal figures give equal bytes. */
static void describe_pdf(struct canvas *c, const char *title, const char *provenance)
{
    cairo_surface_t *s = c->surface;
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_MOD_DATE, "2000-01-01T00:00:00Z");
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_CREATOR, "kvfate");
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_AUTHOR, "kvfate");
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_TITLE, title);
    if (c->keywords)
        cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_KEYWORDS, c->keywords);
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_SUBJECT, provenance);
}

static int finish(struct canvas *c, const char *title, const char *provenance, struct buf *out)
{
    if (c->format == CANVAS_PDF)
        describe_pdf(c, title, provenance);
    cairo_status_t drawn = cairo_status(c->cr);
    cairo_surface_flush(c->surface);
    if (c->format == CANVAS_PDF)
        cairo_surface_finish(c->surface);
    if (drawn != CAIRO_STATUS_SUCCESS)
        c->err = c->err ? c->err : KVF_E_NOMEM;
    if (c->err || c->bytes.err)
        return c->err ? c->err : c->bytes.err;
    if (c->format == CANVAS_PNG)
        return png_encode((const uint32_t *)(void *)cairo_image_surface_get_data(c->surface),
                          cairo_image_surface_get_width(c->surface),
                          cairo_image_surface_get_height(c->surface),
                          cairo_image_surface_get_stride(c->surface) / 4, 1 / c->pixel * 1000,
                          title, provenance, c->threads, out);
    if (is_ansi(c)) {
        ansi_write(&c->ansi, (const uint32_t *)(void *)cairo_image_surface_get_data(c->surface),
                   cairo_image_surface_get_stride(c->surface) / 4, out);
        return out->err;
    }
    if (is_svg(c))
        return svg_write(&c->svg, title, provenance, out);
    buf_add(out, c->bytes.data, c->bytes.len);
    return out->err;
}

int canvas_finish(struct canvas *c, const char *provenance, struct buf *out)
{
    const char *title = c->title ? c->title : "kvfate figure";
    struct buf about = {0};
    canvas_clean(&about, provenance);
    int err = about.err;
    if (!err)
        err = finish(c, title, about.data ? about.data : "", out);
    buf_finish(&about);
    return err;
}

struct canvas_inner canvas_inner(struct canvas *c)
{
    return (struct canvas_inner){c->cr,      pango_layout_get_context(c->layout),
                                 c->font,    is_svg(c) ? &c->svg : NULL,
                                 is_ansi(c), c->boxes};
}

void canvas_fail(struct canvas *c, int err)
{
    c->err = c->err ? c->err : err;
}

bool canvas_has_pages(const struct canvas *c)
{
    return c->format == CANVAS_PDF && !c->page.divided;
}

bool canvas_new_page(struct canvas *c)
{
    if (!canvas_has_pages(c))
        return false;
    cairo_show_page(c->cr);
    cairo_set_source_rgb(c->cr, 1, 1, 1);
    cairo_paint(c->cr);
    return true;
}
