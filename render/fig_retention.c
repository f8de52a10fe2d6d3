/* fig_retention.c - of gates: beta_i^(t - i) of every entry i at query t (TRIM-KV, figures 4
 * and 11).  Without: the last-use map, blue from a token's birth to the last query that
 * selected it, which is an observation and no learned score. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"

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

/* The share of all cells (t, i) in which beta_i^(t - i) is at least `least`: ages up to
 * log least / log beta_i, of the T - i that entry i reaches. */
static double share_above(const struct table *t, double least)
{
    int token = table_find(t, "token"), col = table_find(t, "log_beta");
    double above = 0, all = 0, T = table_meta_real(t, "T", 0);
    for (int64_t r = 0; r < table_rows(t); r++) {
        double ages = fmax(1, T - table_real(t, token, r)), log_beta = table_real(t, col, r);
        if (isnan(log_beta))
            continue;
        all += ages;
        above += log_beta < 0 ? fmin(ages, 1 + floor(log(least) / log_beta)) : ages;
    }
    return all > 0 ? above / all : 1;
}

enum { SCALE_AUTO, SCALE_LINEAR, SCALE_LOG };

/* The colours' floor on a scale of logarithms, or 0 for a linear one.  Where little of the maps
 * reaches a tenth, a linear scale would show one colour. */
static double floor_of(const struct table *t, const struct figure_style *s)
{
    const struct grid_style *o = s->own;
    bool log_scale = o->scale == SCALE_LOG;
    if (o->scale == SCALE_AUTO)
        log_scale = isnan(s->vmin) && isnan(s->vmax) && share_above(t, 0.1) < 0.3;
    return log_scale ? 1e-3 : 0;
}

static struct grid grid_of(const struct table *t, const struct figure_style *s, char label[96])
{
    bool gate = strcmp(table_row_str(t, 0, "source"), "gate") == 0;
    const char *criterion = table_meta(t, "criterion");
    struct grid g = {.t = t, .label = label, .fill = log_beta_of, .raster = heat_decay};
    snprintf(label, 96, "retention \xce\xb2^{t\xe2\x88\x92i}");
    if (gate) {
        g.floor = floor_of(t, s);
    } else {
        snprintf(label, 96, "share before last use (%.40s)", criterion ? criterion : "?");
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
    .table = "retention",
    .summary = "retention of gates, or until when each token was selected, one map per head",
    .needs = "source:text head:text layer index token log_beta last_use_age",
    STYLE(struct grid_style, GRID_STEPS("tokens of the row"),
          WORD_KEY(struct grid_style, scale, "auto",
                   "colours of gates' retention; auto is log where little reaches a tenth", "auto",
                   "linear", "log")),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
