/* fig_survival.c - survival curves pooled over heads, one per criterion (DBTrimKV,
 * figures 2a and 9); horizon 0 is drawn at 1 on the logarithmic axis's left. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"

enum { MAX_POINTS = 1024, MAX_CURVES = 16 };

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)t, (void)s;
    *w = 120;
    *h = 72;
}

static double largest_horizon(const struct table *t)
{
    double hi = 2;
    int col = table_find(t, "horizon"), frac = table_find(t, "fraction");
    for (int64_t r = 0; r < table_rows(t); r++)
        if (!isnan(table_real(t, frac, r)))
            hi = fmax(hi, table_real(t, col, r));
    return hi;
}

static void legend(struct canvas *c, const struct axis_box *a, int i, const char *name)
{
    double y = a->y + 3 + 4.2 * i, xy[] = {a->x + a->w + 3, y, a->x + a->w + 8, y};
    canvas_line(c, xy, 2, 0.5, palette_line(i));
    canvas_text(c, a->x + a->w + 9.2, y, name, 6.5, ALIGN_LEFT, (struct rgb){0.15, 0.15, 0.15}, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    int head = table_find(t, "head"), crit = table_find(t, "criterion");
    int hor = table_find(t, "horizon"), frac = table_find(t, "fraction"), n = 0, curves = 0;
    struct axis_box a = {16, 6, canvas_width(c) - 16 - 28, canvas_height(c) - 6 - 12, 1,
                         largest_horizon(t), 0, 1, 1, "horizon (steps)", "tokens still selected"};
    double xy[2 * MAX_POINTS];
    const char *current = NULL;
    (void)s, (void)d;
    axis_draw(c, &a, 6);
    for (int64_t r = 0; r <= table_rows(t); r++) {
        bool end = r == table_rows(t);
        if (!end && strcmp(table_str(t, head, r), "all") != 0)
            continue;
        const char *name = end ? NULL : table_str(t, crit, r);
        if (current && (end || strcmp(name, current) != 0)) {
            canvas_line(c, xy, n, 0.45, palette_line(curves));
            legend(c, &a, curves++, current);
            n = 0;
        }
        current = name;
        if (!end && n < MAX_POINTS && table_real(t, hor, r) >= 1) {
            xy[2 * n] = axis_x(&a, table_real(t, hor, r));
            xy[2 * n++ + 1] = axis_y(&a, table_real(t, frac, r));
        }
    }
    const char *note = table_meta(t, "denominator");
    if (note)
        canvas_text(c, a.x + a.w - 1, a.y + 2.5, note, 5.5, ALIGN_RIGHT,
                    (struct rgb){0.35, 0.35, 0.35}, 0);
    return KVF_OK;
}

static const char *const needs[] = {"head", "criterion", "horizon", "fraction", NULL};

const struct figure fig_survival = {
    .name = "survival",
    .table = "survival",
    .summary = "survival curves pooled over heads, one per criterion",
    .needs = needs,
    .size = size,
    .draw = draw,
};
