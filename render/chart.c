#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "render/chart.h"
#include "render/palette.h"

enum { KEY_MM = 5, COLOURS = 8 };

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
    for (int i = h->n - 1; i >= 0; i--) /* the rows of a line mostly follow each other */
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
            return kvf_fail(d, KVF_E_ARG, "more than %d lines to draw; choose fewer with the "
                            "options of the analysis", CHART_LINES);
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
        mem_free(h->line[i].x);
        mem_free(h->line[i].y);
        mem_free(h->line[i].low);
        mem_free(h->line[i].high);
    }
    mem_free(h->line);
    *h = (struct chart){0};
}

struct chart_look chart_look_of(int i)
{
    return (struct chart_look){palette_line(i % COLOURS), i / COLOURS % 2 ? 1.3 : 0, 0.4, false};
}

/* The band of points from .. to, along the high ends and back along the low ones. */
static int band_part(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                     int from, int to, struct rgb colour)
{
    int n = to - from;
    double *xy = MEM_NEW(double, 4 * (size_t)n);
    if (!xy)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++) {
        double x = axis_x(a, l->x[from + i]);
        int back = 2 * n - 1 - i;
        xy[2 * i] = xy[2 * back] = x;
        xy[2 * i + 1] = axis_y(a, l->high[from + i]);
        xy[2 * back + 1] = axis_y(a, l->low[from + i]);
    }
    canvas_area(c, xy, 2 * n, colour, 0.22);
    mem_free(xy);
    return KVF_OK;
}

static void band(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                 struct rgb colour)
{
    int from = 0, err = KVF_OK;
    for (int i = 0; !err && i <= l->n; i++) {
        bool gap = i == l->n || !isfinite(l->low[i]) || !isfinite(l->high[i]);
        if (gap && i - from > 1)
            err = band_part(c, a, l, from, i, colour);
        if (gap)
            from = i + 1;
    }
}

static void bar(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                struct rgb colour)
{
    double x = axis_x(a, l->x[0]), xy[] = {x, axis_y(a, l->low[0]), x, axis_y(a, l->high[0])};
    canvas_line(c, xy, 2, 0.25, colour);
}

void chart_draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                     const struct chart_look *look)
{
    double *xy = l->n > 0 ? MEM_NEW(double, 2 * (size_t)l->n) : NULL;
    if (!xy)
        return;
    bool interval = l->low && l->high;
    canvas_clip(c, a->x - 0.8, a->y - 0.8, a->w + 1.6, a->h + 1.6); /* points at the rim */
    if (interval && l->n == 1)
        bar(c, a, l, look->colour);
    else if (interval)
        band(c, a, l, look->colour);
    for (int i = 0; i < l->n; i++) {
        xy[2 * i] = axis_x(a, l->x[i]);
        xy[2 * i + 1] = axis_y(a, l->y[i]);
        if ((look->points || l->n == 1) && isfinite(l->y[i]))
            canvas_disc(c, xy[2 * i], xy[2 * i + 1], 0.6, 0, look->colour);
    }
    canvas_dash(c, look->dash, 0.6);
    canvas_line(c, xy, l->n, look->width, look->colour);
    canvas_dash(c, 0, 0);
    canvas_unclip(c);
    mem_free(xy);
}

void chart_draw(struct canvas *c, const struct axis_box *a, const struct chart *h)
{
    for (int i = 0; i < h->n; i++) {
        struct chart_look look = chart_look_of(i);
        chart_draw_line(c, a, &h->line[i], &look);
    }
}

double chart_key(struct canvas *c, double x, double y, const char *name,
                 const struct chart_look *look)
{
    double xy[] = {x, y, x + KEY_MM, y};
    canvas_dash(c, look->dash, 0.6);
    canvas_line(c, xy, 2, look->width, look->colour);
    canvas_dash(c, 0, 0);
    if (look->points)
        canvas_disc(c, x + KEY_MM / 2.0, y, 0.6, 0, look->colour);
    canvas_text(c, x + KEY_MM + 1, y, name, PT_TICK, ALIGN_LEFT, ink, 0);
    return y + 3.9;
}

double chart_keys(struct canvas *c, double x, double y, const struct chart *h)
{
    for (int i = 0; i < h->n; i++) {
        struct chart_look look = chart_look_of(i);
        y = chart_key(c, x, y, h->line[i].name, &look);
    }
    return y;
}

double chart_keys_width(struct canvas *c, const struct chart *h)
{
    double widest = 0;
    for (int i = 0; i < h->n; i++)
        widest = fmax(widest, canvas_text_width(c, h->line[i].name, PT_TICK, 0));
    return KEY_MM + 1 + widest;
}

void chart_empty(struct canvas *c, const struct axis_box *a, const char *what)
{
    canvas_text(c, a->x + a->w / 2, a->y + a->h / 2, what, PT_LABEL, ALIGN_CENTER,
                (struct rgb){0.5, 0.5, 0.5}, 0);
}
