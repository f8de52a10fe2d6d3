/* svg_text.c - writes text elements at Pango's glyph positions, and other glyphs as outlines or
 * pictures. */
#include <hb-ot.h>
#include <hb.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "render/svg_fonts.h"
#include "render/svg_text.h"

enum { SLACK = 3 }; /* units of Pango, 1/1024 mm */

struct run {
    const char *text; /* of the run */
    size_t n;
    const PangoItem *item;
    PangoGlyphString *glyphs;
    double x; /* of its left end, mm from the left end of the line */
    struct svg_face *face;
    bool kerned; /* advances differ from those of the font */
};

/* Returns true if a run is plain: one glyph per character, from left to right, at the font's own
 * positions except for kerning.  A viewer draws such a run correctly from its characters. */
static bool is_plain(struct run *r, double pt)
{
    double unit = pt * 25.4 / 72 * PANGO_SCALE / hb_face_get_upem(r->face->face);
    size_t at = 0;
    r->kerned = false;
    if (!r->face->embeds || r->item->analysis.level % 2)
        return false;
    for (int i = 0; i < r->glyphs->num_glyphs; i++) {
        const PangoGlyphInfo *g = &r->glyphs->glyphs[i];
        uint32_t cp = 0;
        hb_codepoint_t nominal;
        size_t len = utf8_decode(r->text + at, r->n - at, &cp);
        if (!len || cp < 32 || cp > 0xfffd || (size_t)r->glyphs->log_clusters[i] != at
            || !hb_font_get_nominal_glyph(r->face->font, cp, &nominal) || nominal != g->glyph
            || g->geometry.x_offset || g->geometry.y_offset)
            return false;
        double natural = unit * hb_font_get_glyph_h_advance(r->face->font, nominal);
        r->kerned = r->kerned || fabs(natural - g->geometry.width) > SLACK;
        at += len;
    }
    return at == r->n;
}

/* Writes the x of a run, and of each of its characters if they are kerned. */
static void write_x(struct buf *b, const struct run *r, double x0)
{
    double x = x0 + r->x;
    buf_printf(b, " x=\"%.4f", x * SVG_PT);
    for (int i = 0; r->kerned && i + 1 < r->glyphs->num_glyphs; i++) {
        x += (double)r->glyphs->glyphs[i].geometry.width / PANGO_SCALE;
        buf_printf(b, " %.4f", x * SVG_PT);
    }
    buf_str(b, "\"");
}

static void write_run(struct svg *s, const struct run *r, double x, double y)
{
    struct buf *b = &s->body;
    buf_str(b, "<tspan");
    write_x(b, r, x);
    buf_printf(b, " y=\"%.4f\" font-family=\"'%s'\"", y * SVG_PT, r->face->family);
    if (r->face->weight != 400)
        buf_printf(b, " font-weight=\"%d\"", r->face->weight);
    if (r->face->italic)
        buf_str(b, " font-style=\"italic\"");
    for (size_t at = 0, len = 1; at < r->n && len; at += len) {
        uint32_t cp;
        len = utf8_decode(r->text + at, r->n - at, &cp);
        if (len)
            hb_set_add(r->face->chars, cp);
    }
    buf_char(b, '>');
    svg_escape(b, r->text, r->n);
    buf_str(b, "</tspan>");
}

static void write_outline(struct svg *s, cairo_t *cr, const struct run *r, double x, double y)
{
    struct buf *b = &s->body;
    cairo_new_path(cr);
    pango_cairo_glyph_string_path(cr, r->item->analysis.font, r->glyphs);
    cairo_path_t *p = cairo_copy_path(cr);
    buf_str(b, "<path d=\"");
    for (int i = 0; i < p->num_data; i += p->data[i].header.length) {
        const cairo_path_data_t *d = &p->data[i];
        buf_char(b, "MLCZ"[d->header.type]);
        for (int k = 1; k < d->header.length; k++)
            buf_printf(b, " %.4f %.4f", (x + r->x + d[k].point.x) * SVG_PT,
                       (y + d[k].point.y) * SVG_PT);
        buf_char(b, ' ');
    }
    buf_str(b, "\"/>\n");
    cairo_path_destroy(p);
    cairo_new_path(cr);
}

static cairo_status_t collect(void *ctx, const unsigned char *data, unsigned n)
{
    buf_add(ctx, data, n);
    return CAIRO_STATUS_SUCCESS;
}

/* Draws bitmap glyphs as a picture at 600 dpi. */
static void write_picture(struct svg *s, const struct run *r, double x, double y)
{
    const double px = 600 / 25.4;
    PangoRectangle ink;
    struct buf png = {0};
    pango_glyph_string_extents(r->glyphs, r->item->analysis.font, &ink, NULL);
    double left = (double)ink.x / PANGO_SCALE, top = (double)ink.y / PANGO_SCALE;
    int w = (int)ceil((double)ink.width / PANGO_SCALE * px);
    int h = (int)ceil((double)ink.height / PANGO_SCALE * px);
    if (w < 1 || h < 1 || w > 20000 || h > 2000)
        return;
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_ARGB32, w, h);
    cairo_t *cr = cairo_create(surface);
    cairo_scale(cr, px, px);
    cairo_move_to(cr, -left, -top);
    pango_cairo_show_glyph_string(cr, r->item->analysis.font, r->glyphs);
    cairo_surface_write_to_png_stream(surface, collect, &png);
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    if (!png.err && png.len)
        svg_image(s, x + r->x + left - s->dx, y + top - s->dy, w / px, h / px, w, h, &png);
    s->body.err = s->body.err ? s->body.err : png.err;
    buf_finish(&png);
}

/* ---- a line of runs */

static void write_open(struct svg *s, const char *tag, const char *turn, double pt,
                       struct rgb colour)
{
    buf_printf(&s->body, "<%s%s font-size=\"%.6g\" xml:space=\"preserve\" style=\"", tag, turn, pt);
    svg_colour(&s->body, "fill", colour, 1);
    buf_str(&s->body, "\">");
}

static void write_drawn(struct svg *s, cairo_t *cr, const struct run *r, double x, double y)
{
    hb_face_t *face = r->face ? r->face->face : NULL;
    bool picture = face
                   && (hb_ot_color_has_png(face) || hb_ot_color_has_layers(face)
                       || hb_ot_color_has_svg(face));
    if (picture)
        write_picture(s, r, x, y);
    else
        write_outline(s, cr, r, x, y);
}

void svg_text(struct svg *s, cairo_t *cr, PangoLayout *layout, const struct svg_place *at,
              double pt, struct rgb colour)
{
    double x = (at->turn ? 0 : at->x + s->dx) + at->dx, y = (at->turn ? 0 : at->y + s->dy) + at->dy;
    char turn[96] = "";
    bool open = false;
    struct buf *b = &s->body;
    PangoLayoutIter *iter = pango_layout_get_iter(layout);
    if (at->turn)
        snprintf(turn, sizeof turn, " transform=\"translate(%.4f,%.4f) rotate(%d)\"",
                 (at->x + s->dx) * SVG_PT, (at->y + s->dy) * SVG_PT, -90 * at->turn);
    do {
        PangoLayoutRun *run = pango_layout_iter_get_run_readonly(iter);
        PangoRectangle box;
        if (!run)
            continue;
        pango_layout_iter_get_run_extents(iter, NULL, &box);
        struct run r = {pango_layout_get_text(layout) + run->item->offset,
                        (size_t)run->item->length,
                        run->item,
                        run->glyphs,
                        (double)box.x / PANGO_SCALE,
                        svg_font_of(&s->fonts, run->item->analysis.font),
                        false};
        if (!s->fonts && !b->err)
            b->err = KVF_E_NOMEM;
        bool as_text = r.face && is_plain(&r, pt);
        if (as_text != open && open)
            buf_str(b, "</text>\n");
        if (as_text && !open)
            write_open(s, "text", turn, pt, colour);
        if (!as_text)
            write_open(s, "g", turn, pt, colour);
        open = as_text;
        if (as_text)
            write_run(s, &r, x, y);
        else
            write_drawn(s, cr, &r, x, y), buf_str(b, "</g>\n");
    } while (pango_layout_iter_next_run(iter));
    buf_str(b, open ? "</text>\n" : "");
    pango_layout_iter_free(iter);
}

void svg_glyphs(struct svg *s, cairo_t *cr, const char *text, const PangoGlyphItem *item, double x,
                double y, double pt, struct rgb colour)
{
    struct run r = {text + item->item->offset,
                    (size_t)item->item->length,
                    item->item,
                    item->glyphs,
                    0,
                    svg_font_of(&s->fonts, item->item->analysis.font),
                    false};
    bool as_text = r.face && is_plain(&r, pt);
    write_open(s, as_text ? "text" : "g", "", pt, colour);
    if (as_text)
        write_run(s, &r, x + s->dx, y + s->dy);
    else
        write_drawn(s, cr, &r, x + s->dx, y + s->dy);
    buf_str(&s->body, as_text ? "</text>\n" : "</g>\n");
}
