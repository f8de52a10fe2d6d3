/* fig_retention.c - of gates: beta_i^(t - i) of every entry i at query t (TRIM-KV, figures 4
 * and 11).  Without: the last-use map, bright from a token's birth to the last query that
 * selected it, which is an observation and no learned score. */
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

static struct grid grid_of(const struct table *t, char label[96])
{
    bool gate = strcmp(table_str(t, table_find(t, "source"), 0), "gate") == 0;
    const char *criterion = table_meta(t, "criterion");
    struct grid g = {.t = t, .label = label, .fill = log_beta_of, .raster = heat_decay};
    snprintf(label, 96, "retention, \xce\xb2 to the power t \xe2\x88\x92 i");
    if (!gate) {
        snprintf(label, 96, "share before last use (%.40s)", criterion ? criterion : "?");
        g.fill = end_of;
        g.raster = heat_alpha;
    }
    return g;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    char label[96];
    struct grid g = grid_of(t, label);
    grid_size(&g, s, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    char label[96];
    struct grid g = grid_of(t, label);
    return grid_draw(c, &g, s, d);
}

static const struct figure_column needs[] = {
    {"source", COLUMN_TEXT},         {"head", COLUMN_TEXT},    {"layer", COLUMN_NUMBER},
    {"index", COLUMN_NUMBER},        {"token", COLUMN_NUMBER}, {"log_beta", COLUMN_NUMBER},
    {"last_use_age", COLUMN_NUMBER}, {NULL, COLUMN_NUMBER}};

const struct figure fig_retention = {
    .name = "retention",
    .table = "retention",
    .summary = "retention of gates, or until when each token was selected, one map per head",
    .needs = needs,
    .style = grid_keys,
    .style_bytes = sizeof(struct grid_style),
    .cmap = "viridis",
    .size = size,
    .draw = draw,
};
