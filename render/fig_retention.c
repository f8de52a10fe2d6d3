/* fig_retention.c - draws the retention beta_i^(t - i) of every entry i at query t, if the run has
 * gates (TRIM-KV, figures 4 and 11).  Above a map, a strip has the half-life of each entry, on a
 * logarithmic axis that all figures share.  Otherwise it draws each token from its creation to the
 * last query that selected it. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/caption.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/plot.h"

static void end_of(const struct table *t, int64_t row0, int64_t n, double *end)
{
    table_get(t, table_find(t, "last_use_age"), row0, n, end);
    for (int64_t i = 0; i < n; i++)
        end[i] = end[i] < 0 ? (double)i : (double)i + end[i] + 1;
}

static void log_beta_of(const struct table *t, int64_t row0, int64_t n, double *log_beta)
{
    table_get(t, table_find(t, "log_beta"), row0, n, log_beta);
}

enum { SCALE_AUTO, SCALE_LINEAR, SCALE_LOG };

/* Returns the colours' floor on a logarithmic scale, or 0 for a linear one.  Maps of all runs have
 * the logarithmic scale, so that their colours are comparable. */
static double floor_of(const struct figure_style *s)
{
    const struct grid_style *o = s->own;
    bool linear = o->scale == SCALE_LINEAR
                  || (o->scale == SCALE_AUTO && !(isnan(s->vmin) && isnan(s->vmax)));
    return linear ? 0 : 1e-3;
}

enum { COLUMNS = 480 }; /* maximum columns of a strip */

/* Draws the half-life of each entry as a column, from 1 to 1,000 steps.  Entries that share a
 * column are drawn as their largest half-life. */
static void draw_strip(struct canvas *c, const struct table *t, int64_t row0, struct axis_box a,
                       int names)
{
    double xy[4 * COLUMNS + 4], number[1];
    int64_t n = (int64_t)(a.x1 - a.x0);
    int log_beta = table_find(t, "log_beta"), columns = n < COLUMNS ? (int)n : COLUMNS, k = 0;
    a.y0 = 1;
    a.y1 = 1e3;
    a.log_y = 1;
    a.whole_y = 0;
    xy[k++] = a.x;
    xy[k++] = a.y + a.h;
    for (int i = 0; i < columns; i++) {
        double longest = a.y0;
        for (int64_t r = n * i / columns; r < n * (i + 1) / columns; r++) {
            table_get(t, log_beta, row0 + r, 1, number);
            longest = fmax(longest, half_life(exp(number[0])));
        }
        for (int end = 0; end < 2; end++) {
            xy[k++] = a.x + a.w * (i + end) / columns;
            xy[k++] = axis_y(&a, fmin(longest, a.y1));
        }
    }
    xy[k++] = a.x + a.w;
    xy[k++] = a.y + a.h;
    canvas_area(c, xy, k / 2, rgb_of(0x3490c8), 1);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.1, (struct rgb){0.45, 0.45, 0.45});
    for (int i = 1; names > 0 && i < 3; i++) { /* at 10 and 100 */
        double y = axis_y(&a, pow(10, i)), line[] = {a.x - 1, y, a.x, y};
        canvas_line(c, line, 2, 0.18, ink);
        canvas_text(c, a.x - 1.5, y, i == 1 ? "10" : "100", PT_TICK, ALIGN_RIGHT, ink, 0);
    }
    if (names > 1)
        canvas_text(c, 1, a.y - 1.9, "half-life, steps", PT_SMALL, ALIGN_LEFT, quiet, 0);
}

static struct grid grid_of(const struct table *t, const struct figure_style *s, char label[96])
{
    bool gate = strcmp(table_row_str(t, 0, "source"), "gate") == 0;
    const char *criterion = table_meta(t, "criterion");
    struct grid g = {.t = t, .label = label, .fill = log_beta_of, .raster = heat_decay};
    snprintf(label, 96, "retention \xce\xb2^{t\xe2\x88\x92i}");
    if (gate) {
        g.floor = floor_of(s);
        g.strip = ((const struct grid_style *)s->own)->strip == 0 ? draw_strip : NULL;
        g.above = 7;
    } else {
        char plain[PLOT_NAME];
        criterion_name(criterion ? criterion : "?", plain);
        snprintf(label, 96, "fraction selected later (%.40s)", plain);
        g.fill = end_of;
        g.raster = heat_alpha;
    }
    return g;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    char label[96];
    struct grid g = grid_of(t, s, label);
    grid_size(&g, s, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    char label[96];
    struct grid g = grid_of(t, s, label);
    return grid_draw(c, &g, s, d);
}

const struct figure fig_retention = {
    .name = "retention",
    .caption = caption_retention,
    .table = "retention",
    .summary = "retention of gates, or until when each token was selected, one map per head",
    .needs = "source:text head:text layer index token log_beta last_use_age",
    STYLE(struct grid_style, GRID_STEPS("tokens of the row"),
          WORD_KEY(struct grid_style, scale, "auto",
                   "colours of gates' retention; auto is log, or linear with --vmin or --vmax",
                   "auto", "linear", "log"),
          WORD_KEY(struct grid_style, strip, "yes",
                   "above each map: half-lives of its tokens in steps, if maps are 18 mm or wider",
                   "yes", "no")),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
