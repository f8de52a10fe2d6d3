/* fig_survival.c - survival curves pooled over heads, one per criterion (DBTrimKV,
 * figures 2a and 9).  The axis is logarithmic: it starts at horizon 1. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"

enum { MAX_POINTS = 1024, LEFT = 14, TOP = 3, RIGHT = 20, BOTTOM = 12 };

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)t, (void)s;
    *w = 88;
    *h = 58;
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

/* "top64" as "top 64", "mass.90" as "mass .90"; other names as they are. */
static void pretty(const char *name, char out[64])
{
    size_t n = strcspn(name, ".0123456789");
    snprintf(out, 64, name[n] && n > 0 && n < 20 ? "%.*s %.30s" : "%.*s%.30s",
             (int)(n < 20 ? n : 20), name, name + (n < 20 ? n : 20));
}

/* Top-K sets are drawn solid and mass sets dashed, so that black and white print
 * tells the families apart. */
static void curve(struct canvas *c, const struct axis_box *a, int i, const char *name,
                  const double *xy, int n)
{
    char text[64];
    double y = a->y + 2 + 3.9 * i, key[] = {a->x + a->w + 2, y, a->x + a->w + 7.1, y};
    pretty(name, text);
    canvas_dash(c, strncmp(name, "mass", 4) == 0 ? 1.3 : 0, 0.6);
    canvas_line(c, xy, n, 0.4, palette_line(i));
    canvas_line(c, key, 2, 0.4, palette_line(i));
    canvas_dash(c, 0, 0);
    if (n == 1) { /* a single horizon is a point */
        const double dot[] = {xy[0] - 0.6, xy[1], xy[0] + 0.6, xy[1]};
        canvas_line(c, dot, 2, 1.2, palette_line(i));
    }
    canvas_text(c, a->x + a->w + 8, y, text, PT_TICK, ALIGN_LEFT, ink, 0);
}

/* Rows of all heads and tokens, gaps between criteria apart. */
static bool drawn(const struct table *t, int64_t r)
{
    int class = table_find(t, "class");
    return strcmp(table_str(t, table_find(t, "head"), r), "all") == 0
           && (class < 0 || strcmp(table_str(t, class, r), "all") == 0)
           && !strchr(table_str(t, table_find(t, "criterion"), r), '-');
}

/* Draws the curves; returns how many points they have. */
static int curves(struct canvas *c, const struct table *t, const struct axis_box *a)
{
    int crit = table_find(t, "criterion"), n = 0, done = 0, points = 0;
    int hor = table_find(t, "horizon"), frac = table_find(t, "fraction");
    double xy[2 * MAX_POINTS];
    const char *current = NULL;
    for (int64_t r = 0; r <= table_rows(t); r++) {
        bool end = r == table_rows(t);
        if (!end && !drawn(t, r))
            continue;
        const char *name = end ? NULL : table_str(t, crit, r);
        if (current && (end || strcmp(name, current) != 0)) {
            curve(c, a, done++, current, xy, n);
            points += n;
            n = 0;
        }
        current = name;
        if (!end && n < MAX_POINTS && table_real(t, hor, r) >= 1) {
            xy[2 * n] = axis_x(a, table_real(t, hor, r));
            xy[2 * n++ + 1] = axis_y(a, table_real(t, frac, r));
        }
    }
    return points;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const char *note = table_meta(t, "denominator");
    struct axis_box a = {LEFT,
                         TOP,
                         canvas_width(c) - LEFT - RIGHT,
                         canvas_height(c) - TOP - BOTTOM,
                         1,
                         largest_horizon(t),
                         0,
                         1,
                         1,
                         "horizon n (steps)",
                         "share selected at age \xe2\x89\xa5 n",
                         0};
    (void)s, (void)d;
    axis_draw(c, &a);
    if (curves(c, t, &a) == 0)
        canvas_text(c, a.x + a.w / 2, a.y + a.h / 2, "no horizon above 0", PT_LABEL, ALIGN_CENTER,
                    (struct rgb){0.5, 0.5, 0.5}, 0);
    if (note) {
        char text[96];
        snprintf(text, sizeof text, "among %.60s", note);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 9.6, text, PT_SMALL, ALIGN_CENTER,
                    (struct rgb){0.35, 0.35, 0.35}, 0);
    }
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
