/* fig_occupancy.c - entries held by every head over the steps (DBTrimKV, figure 6):
 * heads down in order of layer, steps across. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"

enum { LEFT = 18, TOP = 6, RIGHT = 20, BOTTOM = 12 };

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)t, (void)s;
    *w = 150;
    *h = 90;
}

/* Steps in the table: rows until the step falls back. */
static int64_t steps_of(const struct table *t)
{
    int col = table_find(t, "step");
    int64_t n = 1;
    while (n < table_rows(t) && table_real(t, col, n) > table_real(t, col, n - 1))
        n++;
    return n;
}

static void labels(struct canvas *c, const struct table *t, double x, double y, double w, double h,
                   int64_t heads, int64_t stride)
{
    const struct rgb ink = {0.15, 0.15, 0.15};
    int head = table_find(t, "head");
    int64_t every = heads > 24 ? (heads + 11) / 12 : 1;
    for (int64_t i = 0; i < heads; i += every)
        canvas_text(c, x - 1.2, y + ((double)i + 0.5) * h / (double)heads,
                    table_str(t, head, i * stride), 5, ALIGN_RIGHT, ink, 0);
    canvas_frame(c, x, y, w, h, 0.2, ink);
    canvas_text(c, x - 13.5, y + h / 2, "KV head", 7.5, ALIGN_CENTER, ink, 1);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct rgb ink = {0.15, 0.15, 0.15};
    int64_t n = steps_of(t), per_head = rows_per_head(t), heads = table_rows(t) / per_head;
    int entries = table_find(t, "entries"), step = table_find(t, "step");
    double x = LEFT, y = TOP, w = canvas_width(c) - LEFT - RIGHT,
           h = canvas_height(c) - TOP - BOTTOM;
    double top = isnan(s->vmax) ? 1 : s->vmax, *row = MEM_NEW(double, (size_t)n), v[16];
    uint32_t *argb = MEM_NEW(uint32_t, (size_t)n * (size_t)heads);
    char text[24];
    (void)d;
    if (!row || !argb || n > 32000 || heads > 32000) {
        mem_free(row), mem_free(argb);
        return KVF_E_NOMEM;
    }
    for (int64_t i = 0; i < heads && isnan(s->vmax); i++) { /* class "all" comes first */
        table_get(t, entries, i * per_head, n, row);
        for (int64_t k = 0; k < n; k++)
            top = fmax(top, row[k]);
    }
    for (int64_t i = 0; i < heads; i++) {
        table_get(t, entries, i * per_head, n, row);
        for (int64_t k = 0; k < n; k++)
            argb[i * n + k] = palette_argb(s->cmap, row[k] / top);
    }
    canvas_image(c, x, y, w, h, argb, (int)n, (int)heads);
    labels(c, t, x, y, w, h, heads, per_head);
    double last = table_real(t, step, n - 1);
    int ticks = ticks_linear(0, last, 6, v, 16);
    for (int i = 0; i < ticks && last > 0; i++) {
        tick_text(v[i], text);
        canvas_text(c, x + v[i] / last * w, y + h + 2.4, text, 6, ALIGN_CENTER, ink, 0);
    }
    canvas_text(c, x + w / 2, y + h + 6.4, "query step t", 7.5, ALIGN_CENTER, ink, 0);
    colour_bar(c, x + w + 3, y, 3, h, s->cmap, 0, top, "entries held", NULL, 6);
    mem_free(row);
    mem_free(argb);
    return KVF_OK;
}

static const char *const needs[] = {"step", "head", "layer", "entries", NULL};

const struct figure fig_occupancy = {
    .name = "occupancy",
    .table = "occupancy",
    .summary = "entries held by every KV head over time",
    .needs = needs,
    .size = size,
    .draw = draw,
};
