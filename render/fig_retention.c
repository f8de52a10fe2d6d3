/* fig_retention.c - draws the retention beta_i^(t - i) of every entry i at query t, if the run has
 * gates (TRIM-KV, figures 4 and 11).  Otherwise it draws each token from its creation to the last
 * query that selected it. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/caption.h"
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

static struct grid grid_of(const struct table *t, const struct figure_style *s, char label[96])
{
    bool gate = strcmp(table_row_str(t, 0, "source"), "gate") == 0;
    const char *criterion = table_meta(t, "criterion");
    struct grid g = {.t = t, .label = label, .fill = log_beta_of, .raster = heat_decay};
    snprintf(label, 96, "retention \xce\xb2^{t\xe2\x88\x92i}");
    if (gate) {
        g.floor = floor_of(s);
    } else {
        snprintf(label, 96, "fraction before last use (%.40s)", criterion ? criterion : "?");
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
                   "auto", "linear", "log")),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
