/* canvas.c - draws shapes, text and images on the surface of a canvas (canvas_file.c). */
#include <cairo.h>
#include <math.h>
#include <pango/pangocairo.h>

#include "render/canvas_impl.h"

static const double LETTER = 0.12; /* half the letter height at 1 pt, mm */

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

void canvas_cut(struct canvas *c)
{
    c->cut |= !is_ansi(c);
}

bool canvas_is_cut(const struct canvas *c)
{
    return c->cut;
}

/* Records a text that crosses the canvas edges.  (across, down) is its centre; wide and high are
 * half its size. */
static void record_edge_cut(struct canvas *c, double across, double down, double wide, double high)
{
    const double SLACK = 0.4;
    c->cut |= across - wide < -SLACK || across + wide > c->w + SLACK || down - high < -SLACK
              || down + high > c->h + SLACK;
}

void canvas_reserve_top(struct canvas *c, double mm)
{
    cairo_translate(c->cr, 0, mm);
    c->svg.dy += mm;
    c->h -= mm;
}

void canvas_panel(struct canvas *c, double x, double y, double w, double h)
{
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    c->page = (struct canvas_page){c->w, c->h, c->svg.dx, c->svg.dy, true};
    c->svg.dx += x;
    c->svg.dy += y;
    c->w = w;
    c->h = h;
}

void canvas_panel_end(struct canvas *c)
{
    cairo_restore(c->cr);
    c->w = c->page.w;
    c->h = c->page.h;
    c->svg.dx = c->page.dx;
    c->svg.dy = c->page.dy;
    c->page.divided = false;
}

static void colour_of(struct canvas *c, struct rgb v)
{
    cairo_set_source_rgb(c->cr, v.r, v.g, v.b);
}

/* Sets the colour of a line.  Black lines become grey on terminals, whose background may be
 * black. */
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
    /* white: the terminal's own background */
    if (is_ansi(c) && fmin(fill.r, fmin(fill.g, fill.b)) > 0.99)
        cairo_set_operator(c->cr, CAIRO_OPERATOR_CLEAR);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_fill(c->cr);
    cairo_set_operator(c->cr, CAIRO_OPERATOR_OVER);
}

void canvas_cell(struct canvas *c, double x, double y, double w, double h, struct rgb fill)
{
    /* vector viewers show hairlines between cells */
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
        ansi_frame(&c->ansi, (x + c->svg.dx) / c->pixel, (y + c->svg.dy) / c->pixel, w / c->pixel,
                   h / c->pixel);
        return;
    }
    colour_of(c, colour);
    cairo_set_line_width(c->cr, width);
    cairo_rectangle(c->cr, x, y, w, h);
    cairo_stroke(c->cr);
}

void canvas_line(struct canvas *c, const double *xy, int n, double width, struct rgb colour)
{
    bool open = false;
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
        bool place = !isnan(xy[2 * i]) && !isnan(xy[2 * i + 1]);
        if (place && open)
            cairo_line_to(c->cr, xy[2 * i], xy[2 * i + 1]);
        else if (place)
            cairo_move_to(c->cr, xy[2 * i], xy[2 * i + 1]);
        open = place;
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
    cairo_new_path(c->cr); /* text leaves a current point */
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
    canvas_clean(&shown, s);
    /* user units are mm: 1 pt = 25.4 / 72 mm */
    pango_font_description_set_absolute_size(c->font, pt * 25.4 / 72 * PANGO_SCALE);
    pango_font_description_set_weight(c->font, bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
    pango_layout_set_font_description(c->layout, c->font);
    pango_layout_set_text(c->layout, shown.data ? shown.data : "", -1);
    if (c->boxes && pango_layout_get_unknown_glyphs_count(c->layout) > 0)
        *c->boxes = true;
    c->err = c->err ? c->err : shown.err;
    buf_finish(&shown);
}

/* Fraction of a text that is before its anchor, by enum text_align. */
static const double part_before[] = {0, 0.5, 1};

static void text_ansi(struct canvas *c, double x, double y, const char *s, enum text_align align,
                      struct rgb colour, int turn)
{
    struct buf shown = {0};
    canvas_clean(&shown, s);
    const char *text = shown.data ? shown.data : "";
    double n = ansi_width(text), px = c->pixel;
    double back = n * part_before[align];
    double col = (x + c->svg.dx) / px, row = (y + c->svg.dy) / (2 * px);
    if (turn)
        ansi_text(&c->ansi, (int)floor(col), (int)floor(row - back + 0.5), text, colour, true);
    else
        ansi_text(&c->ansi, (int)floor(col - back + 0.5), (int)floor(row), text, colour, false);
    c->err = c->err ? c->err : shown.err;
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
    double left = -part_before[align] * w;
    struct svg_place at = {x, y, turn, left / PANGO_SCALE, 0};
    at.dy = (pango_layout_get_baseline(c->layout) - 0.5 * h) / PANGO_SCALE;
    double wide = 0.5 * w / PANGO_SCALE, along = left / PANGO_SCALE + wide, high = LETTER * pt;
    record_edge_cut(c, turn ? x : x + along, turn ? y - along : y, turn ? high : wide,
                    turn ? wide : high);
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
    int w;
    if (is_ansi(c)) { /* the baseline is above the middle of the line's lower half */
        c->ansi.words = true;
        text_ansi(c, x, y - 0.35 * pt * 25.4 / 72, s, ALIGN_LEFT, colour, 0);
        c->ansi.words = false;
        return;
    }
    lay_out(c, s, pt, bold);
    pango_layout_get_size(c->layout, &w, NULL);
    record_edge_cut(c, x + 0.5 * w / PANGO_SCALE, y - LETTER * pt, 0.5 * w / PANGO_SCALE,
                    LETTER * pt);
    if (is_svg(c)) {
        svg_text(&c->svg, c->cr, c->layout, &at, pt, colour);
        return;
    }
    colour_of(c, colour);
    cairo_move_to(c->cr, x, y - (double)pango_layout_get_baseline(c->layout) / PANGO_SCALE);
    pango_cairo_show_layout(c->cr, c->layout);
}

/* Aligns an image of n pixels to device pixels, so that no row or column is drawn twice.  top: mm
 * of the page before x = 0. */
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
                   2 * c->ansi.rows, cairo_image_surface_get_stride(c->surface) / 4,
                   (x + c->svg.dx) / c->pixel, (y + c->svg.dy) / c->pixel, w_mm / c->pixel,
                   h_mm / c->pixel, argb, w, h);
        cairo_surface_mark_dirty(c->surface);
        return;
    }
    /* read only; a later user (PDF) copies the surface when it is finished */
    cairo_surface_t *img = cairo_image_surface_create_for_data((unsigned char *)(uintptr_t)argb,
                                                               CAIRO_FORMAT_ARGB32, w, h, 4 * w);
    if (cairo_surface_status(img) != CAIRO_STATUS_SUCCESS) {
        c->err = KVF_E_NOMEM;
        return;
    }
    snap(c, &x, c->svg.dx, &w_mm, w);
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
