#include <cairo-pdf.h>
#include <cairo.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "render/ansi.h"
#include "render/canvas_impl.h"
#include "render/canvas_text.h"
#include "render/png_out.h"
#include "render/svg_text.h"

#define FONTS "DejaVu Sans, Noto Sans CJK SC"

struct canvas {
    enum canvas_format format;
    double w, h, pixel;
    cairo_surface_t *surface;
    cairo_t *cr;
    PangoFontDescription *font;
    PangoLayout *layout; /* of the text at hand */
    struct buf bytes;    /* of PDF */
    struct ansi ansi;    /* text, for terminals; the surface has the pixels */
    struct svg svg;      /* what is drawn, for SVG; the surface then measures text alone */
    char *title, *keywords;
    int threads; /* of the writing of PNG */
    int err;
};

static bool is_svg(const struct canvas *c)
{
    return c->format == CANVAS_SVG;
}

static bool is_ansi(const struct canvas *c)
{
    return c->format == CANVAS_ANSI;
}

static cairo_status_t collect(void *ctx, const unsigned char *data, unsigned n)
{
    struct canvas *c = ctx;
    buf_add(&c->bytes, data, n);
    return c->bytes.err ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

/* Bytes that are no UTF-8 become visible marks. */
static void clean(struct buf *b, const char *s)
{
    if (utf8_valid(s, strlen(s)))
        buf_str(b, s);
    else
        utf8_show(b, s, strlen(s));
}

/* Text is placed alike at every resolution: no hinting, no rounding of advances to
 * whole units, which here are millimetres. */
static int create_layout(struct canvas *c)
{
    cairo_font_options_t *opt = cairo_font_options_create();
    cairo_font_options_set_hint_style(opt, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(opt, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(opt, CAIRO_ANTIALIAS_GRAY);
    /* A ligature is no character: text that is searched or edited is set without. */
    PangoAttrList *plain = pango_attr_list_new();
    pango_attr_list_insert(plain, pango_attr_font_features_new("liga=0,clig=0,dlig=0"));
    /* Colour fonts must not be named: they would take the digits.  Emoji find theirs. */
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
    if (f == CANVAS_ANSI) {
        c->pixel = ANSI_PIXEL;
        c->err = ansi_init(&c->ansi, w_mm, h_mm);
    }
    /* For SVG without bounds: of a path of glyphs, those outside of a surface are left out. */
    c->surface = f == CANVAS_ANSI ? cairo_image_surface_create(CAIRO_FORMAT_ARGB32, c->ansi.cols,
                                                               2 * c->ansi.rows)
                 : f == CANVAS_PNG
                     ? cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)px_w, (int)px_h)
                 : f == CANVAS_SVG
                     ? cairo_recording_surface_create(CAIRO_CONTENT_COLOR, NULL)
                     : cairo_pdf_surface_create_for_stream(collect, c, w_mm * pt, h_mm * pt);
    c->svg.w = w_mm;
    c->svg.h = h_mm;
    c->cr = cairo_create(c->surface);
    double scale = f == CANVAS_ANSI ? 1 / ANSI_PIXEL : f == CANVAS_PNG ? dpi / 25.4 : pt;
    cairo_scale(c->cr, scale, scale);
    if (cairo_status(c->cr) != CAIRO_STATUS_SUCCESS || create_layout(c) != KVF_OK) {
        canvas_destroy(c);
        return KVF_E_NOMEM;
    }
    cairo_set_source_rgb(c->cr, 1, 1, 1);
    if (f == CANVAS_ANSI)
        cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE); /* on what is there already */
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

/* What fontconfig takes for a family that is not there. */
static void stand_in(PangoContext *ctx, const char *family, char *out, size_t cap)
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
        stand_in(ctx, family, other, sizeof other);
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
    clean(&a, title);
    clean(&b, keywords);
    c->title = g_strdup(a.data);
    c->keywords = g_strdup(b.data);
    buf_finish(&a);
    buf_finish(&b);
}

double canvas_width(const struct canvas *c)
{
    return c->w;
}
double canvas_height(const struct canvas *c)
{
    return c->h;
}
double canvas_pixel(const struct canvas *c)
{
    return c->pixel;
}

void canvas_reserve_top(struct canvas *c, double mm)
{
    cairo_translate(c->cr, 0, mm);
    c->svg.dy += mm;
    c->h -= mm;
}

static void colour_of(struct canvas *c, struct rgb v)
{
    cairo_set_source_rgb(c->cr, v.r, v.g, v.b);
}

/* Black lines are grey on terminals, which may be black themselves. */
static void colour_of_line(struct canvas *c, struct rgb v)
{
    bool dark = is_ansi(c) && fmax(v.r, fmax(v.g, v.b)) < 0.2;
    colour_of(c, dark ? (struct rgb){0.5, 0.5, 0.5} : v);
}

void canvas_rect(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    const double xy[] = {x, y, x + w, y, x + w, y + h, x, y + h};
    if (is_svg(c)) {
        svg_area(&c->svg, xy, 4, fill, 1);
        return;
    }
    colour_of(c, fill);
    if (is_ansi(c) && fmin(fill.r, fmin(fill.g, fill.b)) > 0.99) /* paper: the terminal's */
        cairo_set_operator(c->cr, CAIRO_OPERATOR_CLEAR);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_fill(c->cr);
    cairo_set_operator(c->cr, CAIRO_OPERATOR_OVER);
}

void canvas_cell(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    /* viewers of vectors show hairlines between cells */
    double lap = c->format == CANVAS_PNG || is_ansi(c) ? 0 : 0.04;
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE);
    c->svg.crisp = 1;
    canvas_rect(c, x, y, w + lap, h + lap, fill);
    c->svg.crisp = 0;
    cairo_set_antialias(c->cr, is_ansi(c) ? CAIRO_ANTIALIAS_NONE : CAIRO_ANTIALIAS_DEFAULT);
}

void canvas_dash(struct canvas *c, double on, double off)
{
    const double dash[2] = {on, off};
    c->svg.dash[0] = on;
    c->svg.dash[1] = off;
    cairo_set_dash(c->cr, dash, on > 0 ? 2 : 0, 0);
}

void canvas_frame(struct canvas *c, double x, double y, double w, double h, double width,
                  struct rgb colour)
{
    if (is_svg(c)) {
        svg_frame(&c->svg, x, y, w, h, width, colour);
        return;
    }
    if (is_ansi(c)) {
        ansi_frame(&c->ansi, x / c->pixel, (y + c->svg.dy) / c->pixel, w / c->pixel, h / c->pixel);
        return;
    }
    colour_of(c, colour);
    cairo_set_line_width(c->cr, width);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_stroke(c->cr);
}

void canvas_line(struct canvas *c, const double *xy, int n, double width, struct rgb colour)
{
    int open = 0;
    if (is_svg(c)) {
        svg_line(&c->svg, xy, n, width, colour);
        return;
    }
    if (is_ansi(c) && n == 2 && hypot(xy[2] - xy[0], xy[3] - xy[1]) < c->pixel)
        return; /* a tick */
    colour_of_line(c, colour);
    cairo_set_line_width(c->cr, is_ansi(c) ? fmax(width, c->pixel) : width);
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
    if (is_svg(c)) {
        svg_area(&c->svg, xy, n, fill, alpha);
        return;
    }
    cairo_new_path(c->cr); /* text leaves a point behind */
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
    if (is_svg(c)) {
        svg_disc(&c->svg, x, y, radius, width, colour);
        return;
    }
    colour_of_line(c, colour);
    cairo_new_sub_path(c->cr);
    radius = is_ansi(c) ? fmax(radius, 0.6 * c->pixel) : radius;
    cairo_arc(c->cr, x, y, radius, 0, 2 * 3.141592653589793);
    cairo_set_line_width(c->cr, width);
    if (width > 0)
        cairo_stroke(c->cr);
    else
        cairo_fill(c->cr);
}

void canvas_clip(struct canvas *c, double x, double y, double w, double h)
{
    if (is_svg(c)) {
        svg_clip(&c->svg, x, y, w, h);
        return;
    }
    cairo_save(c->cr);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_clip(c->cr);
}

void canvas_unclip(struct canvas *c)
{
    if (is_svg(c))
        svg_unclip(&c->svg);
    else
        cairo_restore(c->cr);
}

static void lay_out(struct canvas *c, const char *s, double pt, int bold)
{
    struct buf shown = {0};
    clean(&shown, s);
    /* user units are mm: 1 pt = 25.4 / 72 mm */
    pango_font_description_set_absolute_size(c->font, pt * 25.4 / 72 * PANGO_SCALE);
    pango_font_description_set_weight(c->font, bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
    pango_layout_set_font_description(c->layout, c->font);
    pango_layout_set_text(c->layout, shown.data ? shown.data : "", -1);
    buf_finish(&shown);
}

static void text_ansi(struct canvas *c, double x, double y, const char *s, enum text_align align,
                      struct rgb colour, int turn)
{
    struct buf shown = {0};
    clean(&shown, s);
    const char *text = shown.data ? shown.data : "";
    double n = ansi_width(text), px = c->pixel;
    double back = align == ALIGN_LEFT ? 0 : align == ALIGN_CENTER ? n / 2 : n;
    double col = x / px, row = (y + c->svg.dy) / (2 * px);
    if (turn)
        ansi_text(&c->ansi, (int)floor(col), (int)floor(row - back + 0.5), text, colour, true);
    else
        ansi_text(&c->ansi, (int)floor(col - back + 0.5), (int)floor(row), text, colour, false);
    buf_finish(&shown);
}

void canvas_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn)
{
    int w, h;
    if (is_ansi(c)) {
        text_ansi(c, x, y, s, align, colour, turn);
        return;
    }
    lay_out(c, s, pt, 0);
    pango_layout_get_size(c->layout, &w, &h);
    double left = align == ALIGN_LEFT ? 0 : align == ALIGN_CENTER ? -0.5 * w : -(double)w;
    struct svg_place at = {x, y, turn, left / PANGO_SCALE, 0};
    at.dy = (pango_layout_get_baseline(c->layout) - 0.5 * h) / PANGO_SCALE;
    if (is_svg(c)) {
        svg_text(&c->svg, c->cr, c->layout, &at, pt, colour);
        return;
    }
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
    if (is_ansi(c))
        return ansi_width(s) * c->pixel;
    lay_out(c, s, pt, bold);
    pango_layout_get_size(c->layout, &w, NULL);
    return (double)w / PANGO_SCALE;
}

void canvas_word(struct canvas *c, double x, double y, const char *s, double pt, int bold,
                 struct rgb colour)
{
    const struct svg_place at = {x, y, 0, 0, 0};
    if (is_ansi(c)) { /* the baseline is above the middle of the line's lower half */
        text_ansi(c, x, y - 0.35 * pt * 25.4 / 72, s, ALIGN_LEFT, colour, 0);
        return;
    }
    lay_out(c, s, pt, bold);
    if (is_svg(c)) {
        svg_text(&c->svg, c->cr, c->layout, &at, pt, colour);
        return;
    }
    colour_of(c, colour);
    cairo_move_to(c->cr, x, y - (double)pango_layout_get_baseline(c->layout) / PANGO_SCALE);
    pango_cairo_show_layout(c->cr, c->layout);
}

/* Whole device pixels, so that no row or column of an image is drawn twice; top: mm that lie
 * before x = 0. */
static void snap(const struct canvas *c, double *x, double top, double *w, int n)
{
    *x = floor((*x + top) / c->pixel + 0.5) * c->pixel - top;
    if (fabs(*w / c->pixel - n) < 0.75)
        *w = n * c->pixel;
}

static cairo_status_t collect_png(void *ctx, const unsigned char *data, unsigned n)
{
    struct buf *b = ctx;
    buf_add(b, data, n);
    return b->err ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

static void image_svg(struct canvas *c, double x, double y, double w_mm, double h_mm,
                      cairo_surface_t *img)
{
    struct buf png = {0};
    if (cairo_surface_write_to_png_stream(img, collect_png, &png) != CAIRO_STATUS_SUCCESS)
        c->err = KVF_E_NOMEM;
    else
        svg_image(&c->svg, x, y, w_mm, h_mm, cairo_image_surface_get_width(img),
                  cairo_image_surface_get_height(img), &png);
    buf_finish(&png);
}

void canvas_image(struct canvas *c, double x, double y, double w_mm, double h_mm,
                  const uint32_t *argb, int w, int h)
{
    if (is_ansi(c)) {
        cairo_surface_flush(c->surface);
        ansi_image((uint32_t *)(void *)cairo_image_surface_get_data(c->surface), c->ansi.cols,
                   2 * c->ansi.rows, cairo_image_surface_get_stride(c->surface) / 4, x / c->pixel,
                   (y + c->svg.dy) / c->pixel, w_mm / c->pixel, h_mm / c->pixel, argb, w, h);
        cairo_surface_mark_dirty(c->surface);
        return;
    }
    /* read only; what refers to it later (PDF) takes a copy when it is finished */
    cairo_surface_t *img = cairo_image_surface_create_for_data((unsigned char *)(uintptr_t)argb,
                                                               CAIRO_FORMAT_ARGB32, w, h, 4 * w);
    if (cairo_surface_status(img) != CAIRO_STATUS_SUCCESS) {
        c->err = KVF_E_NOMEM;
        return;
    }
    snap(c, &x, 0, &w_mm, w);
    snap(c, &y, c->svg.dy, &h_mm, h);
    if (is_svg(c)) {
        image_svg(c, x, y, w_mm, h_mm, img);
        cairo_surface_finish(img);
        cairo_surface_destroy(img);
        return;
    }
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    cairo_scale(c->cr, w_mm / w, h_mm / h);
    cairo_set_source_surface(c->cr, img, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(c->cr), CAIRO_FILTER_NEAREST);
    cairo_paint(c->cr);
    cairo_restore(c->cr);
    cairo_surface_finish(img);
    cairo_surface_destroy(img);
}

/* Fixed dates: equal figures give equal bytes. */
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
    clean(&about, provenance);
    int err = about.err ? about.err : finish(c, title, about.data ? about.data : "", out);
    buf_finish(&about);
    return err;
}

/* ---- for canvas_text.c */

struct canvas_inner canvas_inner(struct canvas *c)
{
    return (struct canvas_inner){c->cr, pango_layout_get_context(c->layout), c->font,
                                 is_svg(c) ? &c->svg : NULL, is_ansi(c)};
}

void canvas_fail(struct canvas *c, int err)
{
    c->err = c->err ? c->err : err;
}

bool canvas_has_pages(const struct canvas *c)
{
    return c->format == CANVAS_PDF;
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
