#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "render/canvas.h"
#include "render/png_out.h"

struct canvas {
    enum canvas_format format;
    double w, h, pixel;
    cairo_surface_t *surface;
    cairo_t *cr;
    PangoFontDescription *font;
    PangoLayout *layout; /* of the text at hand */
    struct buf bytes; /* of vector output */
    int err;
};

static cairo_status_t collect(void *ctx, const unsigned char *data, unsigned n)
{
    struct canvas *c = ctx;
    buf_add(&c->bytes, data, n);
    return c->bytes.err ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

/* Text is placed alike at every resolution: no hinting, no rounding of advances to
 * whole units, which here are millimetres. */
static int create_layout(struct canvas *c)
{
    cairo_font_options_t *opt = cairo_font_options_create();
    cairo_font_options_set_hint_style(opt, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(opt, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(opt, CAIRO_ANTIALIAS_GRAY);
    /* Colour fonts must not be named: they would take the digits.  Emoji find theirs. */
    c->font = pango_font_description_from_string("DejaVu Sans, Noto Sans CJK SC");
    c->layout = pango_cairo_create_layout(c->cr);
    if (c->layout && c->font) {
        PangoContext *ctx = pango_layout_get_context(c->layout);
        pango_cairo_context_set_font_options(ctx, opt);
        pango_context_set_round_glyph_positions(ctx, FALSE);
        pango_layout_set_single_paragraph_mode(c->layout, TRUE);
    }
    cairo_font_options_destroy(opt);
    return c->layout && c->font ? KVF_OK : KVF_E_NOMEM;
}

int canvas_create(enum canvas_format f, double w_mm, double h_mm, int dpi, struct canvas **ret,
                  struct kvf_diag *d)
{
    double px_w = ceil(w_mm / 25.4 * dpi), px_h = ceil(h_mm / 25.4 * dpi), pt = 72 / 25.4;
    if (!(w_mm > 0 && h_mm > 0 && w_mm <= 5000 && h_mm <= 5000) || dpi < 20 || dpi > 2400
        || px_w > 20000 || px_h > 20000)
        return kvf_fail(d, KVF_E_ARG,
                        "a figure of %.0f x %.0f mm at %d dpi is too large or too small", w_mm,
                        h_mm, dpi);
    struct canvas *c = MEM_NEW(struct canvas, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->format = f;
    c->w = w_mm;
    c->h = h_mm;
    c->pixel = 25.4 / dpi;
    c->surface =
        f == CANVAS_PNG   ? cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)px_w, (int)px_h)
        : f == CANVAS_SVG ? cairo_svg_surface_create_for_stream(collect, c, w_mm * pt, h_mm * pt)
                          : cairo_pdf_surface_create_for_stream(collect, c, w_mm * pt, h_mm * pt);
    c->cr = cairo_create(c->surface);
    double scale = f == CANVAS_PNG ? dpi / 25.4 : pt;
    cairo_scale(c->cr, scale, scale);
    if (cairo_status(c->cr) != CAIRO_STATUS_SUCCESS || create_layout(c) != KVF_OK) {
        canvas_destroy(c);
        return KVF_E_NOMEM;
    }
    cairo_set_source_rgb(c->cr, 1, 1, 1);
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
    buf_finish(&c->bytes);
    mem_free(c);
}

double canvas_width(const struct canvas *c) { return c->w; }
double canvas_height(const struct canvas *c) { return c->h; }
double canvas_pixel(const struct canvas *c) { return c->pixel; }

void canvas_reserve_top(struct canvas *c, double mm)
{
    cairo_translate(c->cr, 0, mm);
    c->h -= mm;
}

static void colour_of(struct canvas *c, struct rgb v)
{
    cairo_set_source_rgb(c->cr, v.r, v.g, v.b);
}

void canvas_rect(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    colour_of(c, fill);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_fill(c->cr);
}

void canvas_cell(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    double lap = c->format == CANVAS_PNG ? 0 : 0.04; /* viewers show hairlines between cells */
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE);
    canvas_rect(c, x, y, w + lap, h + lap, fill);
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_DEFAULT);
}

void canvas_dash(struct canvas *c, double on, double off)
{
    const double dash[2] = {on, off};
    cairo_set_dash(c->cr, dash, on > 0 ? 2 : 0, 0);
}

void canvas_frame(struct canvas *c, double x, double y, double w, double h, double width,
                  struct rgb colour)
{
    colour_of(c, colour);
    cairo_set_line_width(c->cr, width);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_stroke(c->cr);
}

void canvas_line(struct canvas *c, const double *xy, int n, double width, struct rgb colour)
{
    int open = 0;
    colour_of(c, colour);
    cairo_set_line_width(c->cr, width);
    cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
    for (int i = 0; i < n; i++) {
        if (isnan(xy[2 * i]) || isnan(xy[2 * i + 1]))
            open = 0;
        else if (open)
            cairo_line_to(c->cr, xy[2 * i], xy[2 * i + 1]);
        else
            cairo_move_to(c->cr, xy[2 * i], xy[2 * i + 1]), open = 1;
    }
    cairo_stroke(c->cr);
}

void canvas_area(struct canvas *c, const double *xy, int n, struct rgb fill, double alpha)
{
    int k = 0;
    while (k < n && !isnan(xy[2 * k]) && !isnan(xy[2 * k + 1])) {
        cairo_line_to(c->cr, xy[2 * k], xy[2 * k + 1]);
        k++;
    }
    cairo_set_source_rgba(c->cr, fill.r, fill.g, fill.b, alpha);
    cairo_fill(c->cr);
}

void canvas_disc(struct canvas *c, double x, double y, double radius, double width,
                 struct rgb colour)
{
    colour_of(c, colour);
    cairo_new_sub_path(c->cr);
    cairo_arc(c->cr, x, y, radius, 0, 2 * 3.141592653589793);
    cairo_set_line_width(c->cr, width);
    if (width > 0)
        cairo_stroke(c->cr);
    else
        cairo_fill(c->cr);
}

void canvas_clip(struct canvas *c, double x, double y, double w, double h)
{
    cairo_save(c->cr);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_clip(c->cr);
}

void canvas_unclip(struct canvas *c)
{
    cairo_restore(c->cr);
}

/* Bytes that are no UTF-8 become visible marks. */
static void lay_out(struct canvas *c, const char *s, double pt, int bold)
{
    struct buf clean = {0};
    if (utf8_valid(s, strlen(s)))
        buf_str(&clean, s);
    else
        utf8_show(&clean, s, strlen(s));
    /* user units are mm: 1 pt = 25.4 / 72 mm */
    pango_font_description_set_absolute_size(c->font, pt * 25.4 / 72 * PANGO_SCALE);
    pango_font_description_set_weight(c->font, bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
    pango_layout_set_font_description(c->layout, c->font);
    pango_layout_set_text(c->layout, clean.data ? clean.data : "", -1);
    buf_finish(&clean);
}

void canvas_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn)
{
    int w, h;
    lay_out(c, s, pt, 0);
    pango_layout_get_size(c->layout, &w, &h);
    double left = align == ALIGN_LEFT ? 0 : align == ALIGN_CENTER ? -0.5 * w : -(double)w;
    cairo_save(c->cr);
    colour_of(c, colour);
    cairo_translate(c->cr, x, y);
    cairo_rotate(c->cr, -turn * 1.5707963267948966);
    cairo_move_to(c->cr, left / PANGO_SCALE, -0.5 * h / PANGO_SCALE);
    pango_cairo_show_layout(c->cr, c->layout);
    cairo_restore(c->cr);
}

double canvas_text_width(struct canvas *c, const char *s, double pt, int bold)
{
    int w;
    lay_out(c, s, pt, bold);
    pango_layout_get_size(c->layout, &w, NULL);
    return (double)w / PANGO_SCALE;
}

void canvas_word(struct canvas *c, double x, double y, const char *s, double pt, int bold,
                 struct rgb colour)
{
    lay_out(c, s, pt, bold);
    colour_of(c, colour);
    cairo_move_to(c->cr, x, y - (double)pango_layout_get_baseline(c->layout) / PANGO_SCALE);
    pango_cairo_show_layout(c->cr, c->layout);
}

/* Whole device pixels, so that no row or column of an image is drawn twice. */
static void snap(const struct canvas *c, double *x, double *w, int n)
{
    if (c->format != CANVAS_PNG)
        return;
    *x = floor(*x / c->pixel + 0.5) * c->pixel;
    if (fabs(*w / c->pixel - n) < 0.75)
        *w = n * c->pixel;
}

void canvas_image(struct canvas *c, double x, double y, double w_mm, double h_mm,
                  const uint32_t *argb, int w, int h)
{
    cairo_surface_t *img = cairo_image_surface_create(CAIRO_FORMAT_ARGB32, w, h);
    if (cairo_surface_status(img) != CAIRO_STATUS_SUCCESS) {
        c->err = KVF_E_NOMEM;
        return;
    }
    unsigned char *data = cairo_image_surface_get_data(img);
    int stride = cairo_image_surface_get_stride(img);
    for (int r = 0; r < h; r++)
        memcpy(data + (size_t)r * (size_t)stride, argb + (size_t)r * (size_t)w, (size_t)w * 4);
    cairo_surface_mark_dirty(img);
    snap(c, &x, &w_mm, w);
    snap(c, &y, &h_mm, h);
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    cairo_scale(c->cr, w_mm / w, h_mm / h);
    cairo_set_source_surface(c->cr, img, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(c->cr), CAIRO_FILTER_NEAREST);
    cairo_paint(c->cr);
    cairo_restore(c->cr);
    cairo_surface_destroy(img);
}

/* Puts <desc> behind the opening svg tag. */
static void finish_svg(struct canvas *c, const char *provenance, struct buf *out)
{
    const char *data = c->bytes.data ? c->bytes.data : "";
    const char *tag = strstr(data, "<svg"), *end = tag ? strchr(tag, '>') : NULL;
    size_t head = end ? (size_t)(end - data) + 1 : 0;
    buf_add(out, data, head);
    buf_str(out, "\n<desc>");
    for (const char *p = provenance; *p; p++) {
        if (*p == '<' || *p == '>' || *p == '&')
            buf_str(out, *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : "&amp;");
        else if ((unsigned char)*p >= 32 || *p == '\n')
            buf_char(out, *p);
    }
    buf_str(out, "</desc>");
    buf_add(out, data + head, c->bytes.len - head);
}

int canvas_finish(struct canvas *c, const char *provenance, struct buf *out)
{
    if (c->format == CANVAS_PDF) { /* fixed dates: equal figures give equal bytes */
        cairo_pdf_surface_set_metadata(c->surface, CAIRO_PDF_METADATA_CREATE_DATE,
                                       "2000-01-01T00:00:00Z");
        cairo_pdf_surface_set_metadata(c->surface, CAIRO_PDF_METADATA_CREATOR, "kvfate");
        cairo_pdf_surface_set_metadata(c->surface, CAIRO_PDF_METADATA_SUBJECT, provenance);
    }
    cairo_status_t drawn = cairo_status(c->cr);
    cairo_surface_flush(c->surface);
    if (c->format != CANVAS_PNG)
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
                          provenance, out);
    if (c->format == CANVAS_SVG)
        finish_svg(c, provenance, out);
    else
        buf_add(out, c->bytes.data, c->bytes.len);
    return out->err;
}
