/* chart.c - collects lines from a table and draws them with intervals, points and keys. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "render/chart.h"
#include "render/marks.h"
#include "render/palette.h"

enum { KEY_MM = 5 };

static bool kept(const struct table *t, const struct chart_columns *k, int64_t r)
{
    return !k->keep || k->keep(t, r, k->ctx);
}

static const char *name_of(const struct table *t, const struct chart_columns *k, int64_t r)
{
    return k->key < 0 ? "" : table_str(t, k->key, r);
}

static int find(const struct chart *h, const char *name)
{
    for (int i = h->n - 1; i >= 0; i--) /* rows of a line are mostly adjacent */
        if (strcmp(h->line[i].name, name) == 0)
            return i;
    return -1;
}

static int count(const struct table *t, const struct chart_columns *k, struct chart *h,
                 struct kvf_diag *d)
{
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (!kept(t, k, r))
            continue;
        const char *name = name_of(t, k, r);
        int i = find(h, name);
        if (i < 0 && h->n == CHART_LINES)
            return kvf_fail(d, KVF_E_ARG,
                            "more than %d lines to draw; choose fewer with the "
                            "options of the analysis",
                            CHART_LINES);
        if (i < 0) {
            i = h->n++;
            h->line[i] = (struct chart_line){.name = name};
        }
        h->line[i].n++;
    }
    return KVF_OK;
}

static int reserve(const struct chart_columns *k, struct chart *h)
{
    for (int i = 0; i < h->n; i++) {
        struct chart_line *l = &h->line[i];
        size_t n = (size_t)l->n;
        l->n = 0;
        l->x = MEM_NEW(double, n);
        l->y = MEM_NEW(double, n);
        l->low = k->low < 0 ? NULL : MEM_NEW(double, n);
        l->high = k->high < 0 ? NULL : MEM_NEW(double, n);
        if (!l->x || !l->y || (k->low >= 0 && !l->low) || (k->high >= 0 && !l->high))
            return KVF_E_NOMEM;
    }
    return KVF_OK;
}

static void widen(double *lo, double *hi, double v)
{
    if (!isfinite(v))
        return;
    *lo = isnan(*lo) || v < *lo ? v : *lo;
    *hi = isnan(*hi) || v > *hi ? v : *hi;
}

static void add(const struct table *t, const struct chart_columns *k, struct chart *h, int64_t r)
{
    struct chart_line *l = &h->line[find(h, name_of(t, k, r))];
    int i = l->n++;
    l->x[i] = table_real(t, k->x, r);
    l->y[i] = table_real(t, k->y, r);
    if (isfinite(l->y[i]))
        widen(&h->x0, &h->x1, l->x[i]);
    widen(&h->y0, &h->y1, l->y[i]);
    if (l->low)
        widen(&h->y0, &h->y1, l->low[i] = table_real(t, k->low, r));
    if (l->high)
        widen(&h->y0, &h->y1, l->high[i] = table_real(t, k->high, r));
}

int chart_collect(const struct table *t, const struct chart_columns *k, struct chart *ret,
                  struct kvf_diag *d)
{
    *ret = (struct chart){.x0 = NAN, .x1 = NAN, .y0 = NAN, .y1 = NAN};
    ret->line = MEM_NEW(struct chart_line, CHART_LINES);
    int err = ret->line ? count(t, k, ret, d) : KVF_E_NOMEM;
    if (!err)
        err = reserve(k, ret);
    for (int64_t r = 0; !err && r < table_rows(t); r++)
        if (kept(t, k, r))
            add(t, k, ret, r);
    return err;
}

void chart_destroy(struct chart *h)
{
    for (int i = 0; h->line && i < h->n; i++) {
        mem_free_all(h->line[i].x, h->line[i].y, h->line[i].low, h->line[i].high);
    }
    mem_free(h->line);
    *h = (struct chart){0};
}

static bool is_finite_at(const double *xy, int i)
{
    return isfinite(xy[2 * i]) && isfinite(xy[2 * i + 1]);
}

static int keep_point(double *out, int n, const double *xy, int i)
{
    double x = xy[2 * i], y = xy[2 * i + 1]; /* out may be xy */
    out[2 * n] = x;
    out[2 * n + 1] = y;
    return n + 1;
}

/* Adds at most four of the points from .. to - 1, which lie in one pixel column: the first, lowest,
 * highest and last, in order.  Returns the number of points so far. */
static int thin_column(const double *xy, int from, int to, double *out, int n)
{
    int low = from, high = from, last = -1;
    for (int i = from; i < to; i++) {
        low = xy[2 * i + 1] < xy[2 * low + 1] ? i : low;
        high = xy[2 * i + 1] > xy[2 * high + 1] ? i : high;
    }
    int pick[4] = {from, low < high ? low : high, low < high ? high : low, to - 1};
    for (int k = 0; k < 4; k++)
        if (pick[k] > last)
            n = keep_point(out, n, xy, last = pick[k]);
    return n;
}

int chart_thin(const double *xy, int n, double column, double *out)
{
    int m = 0, to;
    for (int from = 0; from < n; from = to) {
        bool whole = is_finite_at(xy, from);
        double at = floor(xy[2 * from] / column);
        for (to = from + 1; to < n && is_finite_at(xy, to) == whole
                            && (!whole || floor(xy[2 * to] / column) == at);
             to++)
            ;
        if (whole)
            m = thin_column(xy, from, to, out, m);
        else {
            out[2 * m] = out[2 * m + 1] = NAN;
            m++;
        }
    }
    return m;
}

/* Computes where a point is drawn.  Points far outside the axes move closer, because file formats
 * limit coordinates. */
static void place(const struct axis_box *a, double x, double y, double *out)
{
    double at = axis_x(a, x), up = axis_y(a, y);
    bool known = isfinite(at) && isfinite(up);
    out[0] = known ? fmax(a->x - 20 * a->w, fmin(at, a->x + 21 * a->w)) : NAN;
    out[1] = known ? fmax(a->y - 20 * a->h, fmin(up, a->y + 21 * a->h)) : NAN;
}

/* Draws the band of the points from .. to - 1: along the upper ends and back along the lower
 * ends. */
static void band_part(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                      int from, int to, const struct chart_look *look, double *xy)
{
    double *back = xy + 2 * (size_t)(to - from), pixel = canvas_pixel(c);
    for (int i = from; i < to; i++) {
        place(a, l->x[i], l->high[i], xy + 2 * (i - from));
        place(a, l->x[i], l->low[i], back + 2 * (i - from));
    }
    int n = chart_thin(xy, to - from, pixel, xy), m = chart_thin(back, to - from, pixel, back);
    for (int i = 0; i < m / 2; i++) /* reverse the lower ends */
        for (int k = 0; k < 2; k++) {
            double v = back[2 * i + k];
            back[2 * i + k] = back[2 * (m - 1 - i) + k];
            back[2 * (m - 1 - i) + k] = v;
        }
    memmove(xy + 2 * n, back, 2 * sizeof *xy * (size_t)m);
    canvas_area(c, xy, n + m, look->colour, look->fill > 0 ? look->fill : 0.22);
}

static bool band_at(const struct axis_box *a, const struct chart_line *l, int i)
{
    return isfinite(axis_x(a, l->x[i])) && isfinite(axis_y(a, l->low[i]))
           && isfinite(axis_y(a, l->high[i]));
}

static void band(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                 const struct chart_look *look)
{
    double *xy = MEM_NEW(double, 4 * (size_t)l->n);
    int from = 0;
    for (int i = 0; xy && i <= l->n; i++) {
        if (i < l->n && band_at(a, l, i))
            continue;
        if (i - from > 1)
            band_part(c, a, l, from, i, look, xy);
        from = i + 1;
    }
    mem_free(xy);
}

/* Draws intervals as bars, for points without a line and for a single point. */
static void bars(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                 struct rgb colour)
{
    for (int i = 0; i < l->n; i++) {
        double xy[4];
        bool open = a->log_y && l->low[i] <= 0; /* ends below the axis */
        place(a, l->x[i], open ? a->y0 : l->low[i], xy);
        place(a, l->x[i], l->high[i], xy + 2);
        canvas_line(c, xy, 2, 0.25, colour);
    }
}

/* Draws dots at all points of a line, or only at isolated ones.  Coinciding points get one dot. */
static void dots(struct canvas *c, const struct axis_box *a, const double *xy, int n,
                 const struct chart_look *look)
{
    double x = -INFINITY, y = 0, radius = look->points ? 0.6 : fmax(0.3, 0.75 * look->width);
    /* do not cut dots at the edge */
    canvas_clip(c, a->x - 0.8, a->y - 0.8, a->w + 1.6, a->h + 1.6);
    for (int i = 0; i < n; i++) {
        bool joined = (i > 0 && is_finite_at(xy, i - 1)) || (i + 1 < n && is_finite_at(xy, i + 1));
        if (!is_finite_at(xy, i) || (joined && !look->points))
            continue;
        if (xy[2 * i + 1] < a->y - .01 || xy[2 * i + 1] > a->y + a->h + .01)
            continue; /* outside the axis */
        if (fabs(xy[2 * i] - x) < 0.1 && fabs(xy[2 * i + 1] - y) < 0.1)
            continue;
        x = xy[2 * i];
        y = xy[2 * i + 1];
        canvas_disc(c, x, y, n == 1 ? 0.6 : radius, 0, look->colour);
    }
    canvas_unclip(c);
}

static void sign(struct canvas *c, double x, double y, const struct chart_look *look)
{
    mark_draw(c, (enum mark)(look->sign - 1), x, y, 1.75, (struct rgb){1, 1, 1});
    mark_draw(c, (enum mark)(look->sign - 1), x, y, 1.4, look->colour);
}

/* Draws signs at some points of the line, or at every point with space if points are marked.  Lines
 * with different signs have them at different places.  Each line has at least one. */
static void signs(struct canvas *c, const struct axis_box *a, const double *xy, int n,
                  const struct chart_look *look)
{
    const double step = look->points ? 1.4 : 9;
    double next = a->x + (look->points ? 0 : step * fmod(0.3 + 0.382 * look->sign, 1));
    int first = -1, drawn = 0;
    for (int i = 0; i < n; i++) {
        double x = xy[2 * i], y = xy[2 * i + 1];
        if (!is_finite_at(xy, i) || x < a->x || x > a->x + a->w || y < a->y || y > a->y + a->h)
            continue;
        first = first < 0 ? i : first;
        if (x < next)
            continue;
        sign(c, x, y, look);
        drawn++;
        next = look->points ? x : next;
        while (next <= x)
            next += step;
    }
    if (first >= 0 && !drawn)
        sign(c, xy[2 * first], xy[2 * first + 1], look);
}

static void draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                      const struct chart_look *look)
{
    double *xy = l->n > 0 ? MEM_NEW(double, 2 * (size_t)l->n) : NULL;
    if (!xy && l->n > 0)
        canvas_fail(c, KVF_E_NOMEM);
    if (!xy)
        return;
    double rim = 0.5 * look->width; /* a line along the frame keeps its width */
    canvas_clip(c, a->x - rim, a->y - rim, a->w + 2 * rim, a->h + 2 * rim);
    if (l->low && l->high && (l->n == 1 || look->bars))
        bars(c, a, l, look->colour);
    else if (l->low && l->high)
        band(c, a, l, look);
    for (int i = 0; i < l->n; i++)
        place(a, l->x[i], l->y[i], xy + 2 * i);
    int n = chart_thin(xy, l->n, canvas_pixel(c), xy);
    if (look->width > 0) {
        canvas_dash(c, look->dash, look->gap > 0 ? look->gap : 0.6);
        canvas_line(c, xy, n, look->width, look->colour);
        canvas_dash(c, 0, 0);
    }
    canvas_unclip(c);
    if (look->width > 0)
        dots(c, a, xy, n, look);
    if (look->sign > 0)
        signs(c, a, xy, n, look);
    mem_free(xy);
}

/* Returns the points from .. to - 1 of a line. */
static struct chart_line part(const struct chart_line *l, int from, int to)
{
    return (struct chart_line){.name = l->name,
                               .n = to - from,
                               .x = l->x + from,
                               .y = l->y + from,
                               .low = l->low ? l->low + from : NULL,
                               .high = l->high ? l->high + from : NULL};
}

int chart_few(const struct chart_line *l)
{
    for (int i = l->few; l->few > 0 && i < l->n; i++)
        if (isfinite(l->y[i]))
            return l->few;
    return 0;
}

void chart_draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                     const struct chart_look *look)
{
    int first = chart_few(l);
    if (!first) {
        draw_line(c, a, l, look);
        return;
    }
    struct chart_line many = part(l, 0, first), few = part(l, first - 1, l->n);
    struct chart_look pale = *look;
    pale.colour = tint(look->colour, 0.4);
    pale.width = 0.75 * look->width;
    pale.fill = 0.12;
    draw_line(c, a, &few, &pale);
    draw_line(c, a, &many, look);
}

double chart_key(struct canvas *c, double x, double y, const char *name,
                 const struct chart_look *look)
{
    double xy[] = {x, y, x + KEY_MM, y};
    if (look->width > 0 && !look->alone) {
        canvas_dash(c, look->dash, look->gap > 0 ? look->gap : 0.6);
        canvas_line(c, xy, 2, look->width, look->colour);
        canvas_dash(c, 0, 0);
    } else if (!look->alone) { /* an area */
        canvas_rect(c, x, y - 1, KEY_MM, 2, look->colour);
    }
    if (look->points)
        canvas_disc(c, x + KEY_MM / 2.0, y, 0.6, 0, look->colour);
    if (look->sign > 0)
        sign(c, x + KEY_MM / 2.0, y, look);
    canvas_text(c, x + KEY_MM + 1, y, name, PT_TICK, ALIGN_LEFT, ink, 0);
    return y + 3.9;
}

void chart_empty(struct canvas *c, const struct axis_box *a, const char *what)
{
    canvas_text(c, a->x + a->w / 2, a->y + a->h / 2, what, PT_LABEL, ALIGN_CENTER, quiet, 0);
}
