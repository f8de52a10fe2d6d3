/* fig_occupancy.c - entries held by every head over the steps (DBTrimKV, figure 6):
 * heads down in order of layer, steps across. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"

enum { LEFT = 15, TOP = 3, RIGHT = 22, BOTTOM = 10, NAMED_MOST = 14 };

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    int64_t per_head = rows_per_head(t), heads = table_rows(t) / per_head;
    (void)s;
    *w = 88;
    *h = TOP + BOTTOM + fmax(20, fmin(50, 4.0 * (double)heads));
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

/* Few heads by name; many by their layer, at its first head. */
static void head_names(struct canvas *c, const struct table *t, const struct axis_box *a,
                       int64_t heads, int64_t stride)
{
    int head = table_find(t, "head"), layer = table_find(t, "layer");
    double each = a->h / (double)heads, last = -INFINITY;
    bool named = heads <= NAMED_MOST;
    char text[24];
    for (int64_t i = 0; i < heads; i++) {
        int64_t l = table_int(t, layer, i * stride);
        double at = a->y + ((double)i + (named ? 0.5 : 0)) * each;
        bool first = i == 0 || table_int(t, layer, (i - 1) * stride) != l;
        if (at - last < 2.6 || (!named && (!first || l % 5 != 0)))
            continue;
        last = at;
        snprintf(text, sizeof text, "L%lld", (long long)l);
        if (!named) {
            double xy[] = {a->x - 0.9, at, a->x, at};
            canvas_line(c, xy, 2, 0.18, ink);
        }
        canvas_text(c, a->x - (named ? 1.2 : 1.5), at,
                    named ? table_str(t, head, i * stride) : text, PT_TICK, ALIGN_RIGHT, ink, 0);
    }
    canvas_text(c, a->x - 11.5, a->y + a->h / 2, named ? "KV head" : "KV heads by layer", PT_LABEL,
                ALIGN_CENTER, ink, 1);
}

static int64_t largest(const struct table *t, int64_t heads, int64_t per_head, int64_t n)
{
    int entries = table_find(t, "entries");
    int64_t top = 1;
    for (int64_t i = 0; i < heads; i++) /* class "all" comes first */
        for (int64_t k = 0; k < n; k++) {
            int64_t v = table_int(t, entries, i * per_head + k);
            top = v > top ? v : top;
        }
    return top;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    int64_t n = steps_of(t), per_head = rows_per_head(t), heads = table_rows(t) / per_head;
    int entries = table_find(t, "entries"), step = table_find(t, "step");
    if (n > 32000 || heads > 32000)
        return kvf_fail(d, KVF_E_LIMIT,
                        "occupancy: %lld steps x %lld heads are more than an image holds; "
                        "choose --every or --head",
                        (long long)n, (long long)heads);
    uint32_t *argb = MEM_NEW(uint32_t, (size_t)n * (size_t)heads);
    double *row = MEM_NEW(double, (size_t)n);
    struct colours k = colours_make(s, 0, (double)largest(t, heads, per_head, n));
    for (int64_t i = 0; argb && row && i < heads; i++) {
        table_get(t, entries, i * per_head, n, row);
        for (int64_t j = 0; j < n; j++)
            argb[i * n + j] = palette_argb(k.map, colours_at(&k, row[j]));
    }
    double every = n > 1 ? table_real(t, step, 1) - table_real(t, step, 0) : 1;
    double x0 = table_real(t, step, 0) - 0.5 * every; /* a value is drawn around its step */
    struct axis_box a = {.x = LEFT, .y = TOP, .w = canvas_width(c) - LEFT - RIGHT,
                         .h = canvas_height(c) - TOP - BOTTOM, .x0 = x0,
                         .x1 = x0 + every * (double)n, .y1 = 1};
    if (argb && row) {
        canvas_image(c, a.x, a.y, a.w, a.h, argb, (int)n, (int)heads);
        axis_ticks_x(c, &a);
        canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, "query step t", PT_LABEL, ALIGN_CENTER, ink,
                    0);
        head_names(c, t, &a, heads, per_head);
        colours_bar(c, &k, a.x + a.w + 2.5, a.y, a.h, "entries held");
    }
    int err = argb && row ? KVF_OK : KVF_E_NOMEM;
    mem_free(argb);
    mem_free(row);
    return err;
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
