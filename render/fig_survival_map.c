/* fig_survival_map.c - layer x head map of survival at one horizon (DBTrimKV,
 * figure 2b).  Options: horizon=N (default: the one nearest to T / 4), criterion=C
 * (default: the first in the table). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "render/figures.h"

struct choice {
    int64_t horizon;
    char criterion[64];
};

static int chosen(const struct table *t, int64_t r, const void *ctx)
{
    const struct choice *c = ctx;
    int class = table_find(t, "class");
    return table_int(t, table_find(t, "horizon"), r) == c->horizon
           && (class < 0 || strcmp(table_str(t, class, r), "all") == 0)
           && strcmp(table_str(t, table_find(t, "criterion"), r), c->criterion) == 0
           && table_int(t, table_find(t, "layer"), r) >= 0;
}

static int choose(const struct table *t, const struct figure_style *s, struct choice *c,
                  struct kvf_diag *d)
{
    double want = table_meta_real(t, "T", 0) / 4, best = INFINITY;
    const char *rest = s->option ? s->option : "";
    char key[32], value[64];
    int more, hor = table_find(t, "horizon");
    snprintf(c->criterion, sizeof c->criterion, "%s", table_str(t, table_find(t, "criterion"), 0));
    while ((more = opt_pair(&rest, key, value, 32)) == 1) {
        if (strcmp(key, "horizon") == 0 && opt_real(value, &want))
            continue;
        if (strcmp(key, "criterion") != 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--style: survival-map knows horizon=N and criterion=C, not "
                            "'%s'",
                            key);
        snprintf(c->criterion, sizeof c->criterion, "%s", value);
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "--style: write key=value,key=value");
    for (int64_t r = 0; r < table_rows(t); r++) {
        double x = table_real(t, hor, r);
        if (fabs(x - want) < best) {
            best = fabs(x - want);
            c->horizon = (int64_t)x;
        }
    }
    return KVF_OK;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    layermap_size(t, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct choice x = {0};
    char label[128];
    int err = choose(t, s, &x, d);
    if (err)
        return err;
    snprintf(label, sizeof label, "survival (%.30s, n = %lld)", x.criterion, (long long)x.horizon);
    struct layermap m = {.t = t, .value = "fraction", .label = label, .chosen = chosen,
                         .ctx = &x};
    return layermap_draw(c, &m, s);
}

static const char *const needs[] = {"head",    "layer",    "index", "criterion",
                                    "horizon", "fraction", NULL};

const struct figure fig_survival_map = {
    .name = "survival-map",
    .table = "survival",
    .summary = "layer x head map of the survival at one horizon",
    .needs = needs,
    .size = size,
    .draw = draw,
};
