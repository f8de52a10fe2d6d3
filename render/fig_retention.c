/* fig_retention.c - last-use map: bright from a token's birth to the last query
 * that selected it.  An observation, not a learned score. */
#include <stdio.h>

#include "render/figures.h"

static void end_of(const struct table *t, int64_t row0, int64_t n, double *end)
{
    table_get(t, table_find(t, "last_use_age"), row0, n, end);
    for (int64_t i = 0; i < n; i++)
        end[i] = end[i] < 0 ? (double)i : (double)i + end[i] + 1;
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
    struct grid g = {t, label, end_of};
    return grid_draw(c, &g, s, d);
}

static const char *const needs[] = {"head", "layer", "index", "token", "last_use_age", NULL};

const struct figure fig_retention = {
    .name = "retention",
    .table = "retention",
    .summary = "last-use map: until when each token was selected, one map per head",
    .needs = needs,
    .size = size,
    .draw = draw,
};
