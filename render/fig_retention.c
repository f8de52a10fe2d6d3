/* fig_retention.c - of gates: beta_i^(t - i) of every entry i at query t (TRIM-KV, figures 4
 * and 11).  Without: the last-use map, bright from a token's birth to the last query that
 * selected it, which is an observation and no learned score. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/heat.h"

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

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    grid_size(t, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const char *criterion = table_meta(t, "criterion");
    char label[96];
    snprintf(label, sizeof label, "share before last use (%.40s)", criterion ? criterion : "?");
    bool gate = strcmp(table_str(t, table_find(t, "source"), 0), "gate") == 0;
    struct grid last_use = {t, label, end_of, heat_alpha};
    struct grid decay = {t, "retention, \xce\xb2 to the power t \xe2\x88\x92 i", log_beta_of,
                         heat_decay};
    return grid_draw(c, gate ? &decay : &last_use, s, d);
}

static const char *const needs[] = {"source", "head", "layer", "index", "token", "log_beta",
                                    "last_use_age", NULL};

const struct figure fig_retention = {
    .name = "retention",
    .table = "retention",
    .summary = "retention of gates, or until when each token was selected, one map per head",
    .needs = needs,
    .size = size,
    .draw = draw,
};
