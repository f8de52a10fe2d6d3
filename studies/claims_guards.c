/* claims_guards.c - the clusters that units come from, and what tables a claim is about. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/table.h"
#include "studies/claims.h"

/* ---- clusters */

struct labelled {
    char name[128];
    double value, with;
    int64_t at; /* the order among equal names, so that sums do not depend on qsort */
};

static int by_label(const void *a, const void *b)
{
    const struct labelled *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static void name_of(const struct table *t, int col, int64_t row, char *out, size_t n)
{
    if (table_col_type(t, col) == TABLE_STR)
        snprintf(out, n, "%s", table_str(t, col, row));
    else
        snprintf(out, n, "%.17g", table_real(t, col, row));
}

/* The row of the table whose column holds the name; -1: none. */
static int64_t row_named(const struct table *t, int col, const char *name)
{
    char cell[128];
    for (int64_t r = 0; r < table_rows(t); r++) {
        name_of(t, col, r, cell, sizeof cell);
        if (strcmp(cell, name) == 0)
            return r;
    }
    return -1;
}

/* The cluster of each unit as x[i].name; false after r->why. */
static bool label(const struct claim *c, const struct table *t, const struct table *sources,
                  const struct claim_units *u, const int64_t *which, int64_t n, struct labelled *x,
                  struct claim_result *r)
{
    int own = table_find(t, c->cluster);
    int col = sources ? table_find(sources, c->cluster) : -1;
    int key = sources ? table_find(sources, c->unit[0]) : -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = u->row[which[i]];
        if (own < 0)
            row = col >= 0 && key >= 0 ? row_named(sources, key, u->name[which[i]]) : -1;
        if (row < 0) {
            r->verdict = CLAIM_NOT_RUN;
            snprintf(r->why, sizeof r->why,
                     "neither the table nor sources.tsv has the %.40s of %.80s", c->cluster,
                     u->name[which[i]]);
            return false;
        }
        name_of(own < 0 ? sources : t, own < 0 ? col : own, row, x[i].name, sizeof x[i].name);
    }
    return true;
}

/* How much of the variance of the clusters' means is not that of their units: 1 - 1/F of an
 * analysis of variance, at least 0, which is I^2 with the units' variance taken alike in all
 * clusters.  NaN where no cluster has two units. */
static double i_squared(const struct labelled *x, int64_t n, int64_t clusters)
{
    double all = 0, between = 0, within = 0;
    for (int64_t i = 0; i < n; i++)
        all += x[i].value / (double)n;
    for (int64_t i = 0, end; i < n; i = end) {
        double mean = 0;
        for (end = i; end < n && strcmp(x[end].name, x[i].name) == 0; end++)
            mean += x[end].value;
        mean /= (double)(end - i);
        between += (double)(end - i) * (mean - all) * (mean - all);
        for (int64_t k = i; k < end; k++)
            within += (x[k].value - mean) * (x[k].value - mean);
    }
    if (n == clusters || clusters < 2 || !(between > 0))
        return NAN;
    double f = between / (double)(clusters - 1) / (within / (double)(n - clusters));
    return fmax(0, 1 - 1 / f);
}

/* The means of the clusters, in the order of their names. */
static void average(struct labelled *x, struct claim_sample *s, double *ret_i2)
{
    int64_t n = 0, units = s->n;
    for (int64_t i = 0; i < s->n; i++) {
        x[i].value = s->value[i];
        x[i].with = s->with[i];
        x[i].at = i;
    }
    qsort(x, (size_t)s->n, sizeof *x, by_label);
    for (int64_t i = 0, end; i < s->n; i = end) {
        struct sum value = {0, 0}, with = {0, 0};
        for (end = i; end < s->n && strcmp(x[end].name, x[i].name) == 0; end++) {
            sum_add(&value, x[end].value);
            sum_add(&with, x[end].with);
        }
        s->value[n] = sum_get(&value) / (double)(end - i);
        s->with[n++] = sum_get(&with) / (double)(end - i);
    }
    s->n = n;
    *ret_i2 = i_squared(x, units, n);
}

int claims_clusters(const struct claim *c, struct claims_folder *f, const struct table *t,
                    const struct claim_units *u, const int64_t *which, struct claim_sample *s,
                    struct claim_result *r, struct kvf_diag *d)
{
    const struct claim_side side = {"sources", "", NULL};
    const struct table *sources = NULL;
    int err = table_find(t, c->cluster) < 0 ? claims_folder_table(f, &side, &sources, d) : KVF_OK;
    if (err)
        return err;
    struct labelled *x = MEM_NEW(struct labelled, (size_t)s->n);
    if (!x)
        return KVF_E_NOMEM;
    if (label(c, t, sources, u, which, s->n, x, r)) {
        average(x, s, &r->i2);
        r->by_cluster = true;
    }
    mem_free(x);
    return KVF_OK;
}

/* ---- what a claim needs of its tables */

/* K is the number of a criterion topK where the table's metadata have none. */
static double known(const struct claim_side *s, const struct table *t, const char *name, size_t n)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)n, name);
    double v = table_meta_real(t, key, NAN);
    const char *criterion = json_str(json_get(s->rows, "criterion"), "");
    if (isnan(v) && strcmp(key, "K") == 0 && strncmp(criterion, "top", 3) == 0)
        v = strtod(criterion + 3, NULL);
    return v;
}

bool claims_comparable(const struct claim *c, const struct claim_side *s, const struct table *t,
                       struct claim_result *r)
{
    for (const struct json *m = json_first(c->needs); m; m = json_next(m)) {
        const char *name = json_key(m), *slash = strchr(name, '/');
        double v = known(s, t, name, slash ? (size_t)(slash - name) : strlen(name));
        if (slash)
            v /= known(s, t, slash + 1, strlen(slash + 1));
        if (!isnan(v) && claims_number_holds(json_str(m, ""), v))
            continue;
        r->verdict = CLAIM_NOT_COMPARABLE;
        if (isnan(v))
            snprintf(r->why, sizeof r->why, "it needs %.40s %.40s, which the table does not say",
                     name, json_str(m, ""));
        else
            snprintf(r->why, sizeof r->why, "it needs %.40s %.40s, and here it is %.4g", name,
                     json_str(m, ""), v);
        return false;
    }
    return true;
}
