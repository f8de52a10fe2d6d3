#include "studies/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/records.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/stats.h"
#include "studies/predict_values.h"

/* One candidate against the effects of those pairs in which both vary.  Heads are the same in
 * all pairs: value k of each is of one head.  Entries of one text are not those of another. */
struct sample {
    bool crossed;
    int pairs;
    double *x[PREDICT_MOST], *y[PREDICT_MOST]; /* [n] of a pair */
    int64_t n[PREDICT_MOST];
    double *rx, *ry;            /* [most] ranks */
    int64_t *pick;              /* [most] */
    double *z[2][PREDICT_MOST]; /* [n] ranks less their mean, of length 1: dot = correlation */
    double *draw;               /* [replicates] */
};

struct row {
    const char *candidate, *reduce;
    int64_t n, documents;
    double rho, low, high, p, q;
};

static int sample_alloc(struct sample *s, const struct predict_values *v)
{
    size_t n = (size_t)v->units;
    bool all = true;
    s->crossed = !v->entries;
    for (int p = 0; p < v->args->n_pairs; p++) {
        double **const to[] = {&s->x[p], &s->y[p], &s->z[0][p], &s->z[1][p]};
        for (int k = 0; k < 4; k++)
            all = (*to[k] = MEM_NEW(double, n)) != NULL && all;
    }
    s->rx = MEM_NEW(double, n);
    s->ry = MEM_NEW(double, n);
    s->pick = MEM_NEW(int64_t, n);
    s->draw = MEM_NEW(double, PREDICT_REPLICATES);
    return all && s->rx && s->ry && s->pick && s->draw ? KVF_OK : KVF_E_NOMEM;
}

static void sample_free(struct sample *s)
{
    for (int p = 0; p < PREDICT_MOST; p++) {
        mem_free(s->x[p]);
        mem_free(s->y[p]);
        mem_free(s->z[0][p]);
        mem_free(s->z[1][p]);
    }
    mem_free(s->rx);
    mem_free(s->ry);
    mem_free(s->pick);
    mem_free(s->draw);
}

/* ---- which values take part */

static bool varies(const double *v, int64_t n)
{
    for (int64_t k = 1; k < n; k++)
        if (v[k] != v[0])
            return true;
    return false;
}

static bool both(const struct predict_values *v, const struct candidate *c, int pair, int64_t u)
{
    int64_t at = (int64_t)pair * v->units + u;
    return !isnan(c->v[at]) && !isnan(v->effect[at]);
}

static bool any(const struct predict_values *v, const struct candidate *c, int pair)
{
    for (int64_t u = 0; u < v->units; u++)
        if (both(v, c, pair, u))
            return true;
    return false;
}

/* Of heads those with both numbers in each pair that has them at all. */
static bool counts(const struct sample *s, const struct predict_values *v,
                   const struct candidate *c, const bool *present, int pair, int64_t u)
{
    if (!s->crossed)
        return both(v, c, pair, u);
    for (int p = 0; p < v->args->n_pairs; p++)
        if (present[p] && !both(v, c, p, u))
            return false;
    return true;
}

static void gather(struct sample *s, const struct predict_values *v, const struct candidate *c)
{
    bool present[PREDICT_MOST];
    s->pairs = 0;
    for (int p = 0; p < v->args->n_pairs; p++)
        present[p] = any(v, c, p);
    for (int p = 0; p < v->args->n_pairs; p++) {
        int to = s->pairs;
        int64_t n = 0;
        for (int64_t u = 0; present[p] && u < v->units; u++)
            if (counts(s, v, c, present, p, u)) {
                s->x[to][n] = c->v[(int64_t)p * v->units + u];
                s->y[to][n++] = v->effect[(int64_t)p * v->units + u];
            }
        s->n[to] = n;
        s->pairs += varies(s->x[to], n) && varies(s->y[to], n);
    }
}

/* ---- rho, its interval and its p */

static int spearman(struct sample *s, const double *x, const double *y, int64_t n, double *ret)
{
    int err = ranks_average(x, (size_t)n, s->rx);
    if (err)
        return err;
    err = ranks_average(y, (size_t)n, s->ry);
    if (err)
        return err;
    *ret = ranks_correlation(s->rx, s->ry, (size_t)n);
    return KVF_OK;
}

/* Mean over the pairs. */
static int correlate(struct sample *s, double *ret)
{
    struct sum sum = {0};
    for (int p = 0; p < s->pairs; p++) {
        double rho = NAN;
        int err = spearman(s, s->x[p], s->y[p], s->n[p], &rho);
        if (err)
            return err;
        sum_add(&sum, rho);
    }
    *ret = s->pairs ? sum_get(&sum) / s->pairs : NAN;
    return KVF_OK;
}

static void pick(struct sample *s, int64_t n, struct rng *r)
{
    for (int64_t k = 0; k < n; k++)
        s->pick[k] = (int64_t)rng_below(r, (uint64_t)n);
}

/* rho of one pair with the units picked. */
static int redraw(struct sample *s, int pair, double *ret)
{
    double *x = s->z[0][pair], *y = s->z[1][pair]; /* not in use yet */
    for (int64_t k = 0; k < s->n[pair]; k++) {
        x[k] = s->x[pair][s->pick[k]];
        y[k] = s->y[pair][s->pick[k]];
    }
    return spearman(s, x, y, s->n[pair], ret);
}

/* Documents are drawn with replacement, and units too: heads once for all documents (Owen
 * 2007), entries anew for each that was drawn.  Draws of equal values have no rho. */
static int bootstrap(struct sample *s, double *low, double *high)
{
    struct rng r;
    int n = 0;
    rng_init(&r, 0);
    *low = *high = NAN;
    if (!s->pairs)
        return KVF_OK;
    for (int k = 0; k < PREDICT_REPLICATES; k++) {
        double sum = 0;
        if (s->crossed)
            pick(s, s->n[0], &r);
        for (int j = 0; j < s->pairs; j++) {
            int pair = s->pairs > 1 ? (int)rng_below(&r, (uint64_t)s->pairs) : 0;
            double rho = NAN;
            if (!s->crossed)
                pick(s, s->n[pair], &r);
            int err = redraw(s, pair, &rho);
            if (err)
                return err;
            sum += rho;
        }
        if (!isnan(sum))
            s->draw[n++] = sum / s->pairs;
    }
    if (n) {
        *low = stats_quantile(s->draw, (size_t)n, 0.025);
        *high = stats_quantile(s->draw, (size_t)n, 0.975);
    }
    return KVF_OK;
}

static int normalise(const double *v, int64_t n, double *out)
{
    double square = 0, mean = ((double)n + 1) / 2;
    int err = ranks_average(v, (size_t)n, out);
    if (err)
        return err;
    for (int64_t k = 0; k < n; k++) {
        out[k] -= mean;
        square += out[k] * out[k];
    }
    for (int64_t k = 0; k < n; k++)
        out[k] /= sqrt(square);
    return KVF_OK;
}

/* Another order of the units' statistics, each as likely. */
static void shuffle(struct sample *s, int64_t n, struct rng *r)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t at = (int64_t)rng_below(r, (uint64_t)k + 1);
        s->pick[k] = s->pick[at];
        s->pick[at] = k;
    }
}

/* (1 + as far) / (1 + permutations), two-sided (Phipson and Smyth 2010); heads are permuted
 * alike in all documents. */
static int permute(struct sample *s, double rho, double *ret)
{
    struct rng r;
    int as_far = 1;
    rng_init(&r, 1);
    *ret = NAN;
    for (int p = 0; p < s->pairs; p++) {
        int err = normalise(s->x[p], s->n[p], s->z[0][p]);
        if (err)
            return err;
        err = normalise(s->y[p], s->n[p], s->z[1][p]);
        if (err)
            return err;
    }
    if (isnan(rho))
        return KVF_OK;
    for (int k = 0; k < PREDICT_PERMUTATIONS; k++) {
        double sum = 0;
        for (int p = 0; p < s->pairs; p++) {
            if (p == 0 || !s->crossed)
                shuffle(s, s->n[p], &r);
            for (int64_t u = 0; u < s->n[p]; u++)
                sum += s->z[0][p][s->pick[u]] * s->z[1][p][u];
        }
        as_far += fabs(sum / s->pairs) >= fabs(rho) - 1e-12;
    }
    *ret = (double)as_far / (1 + PREDICT_PERMUTATIONS);
    return KVF_OK;
}

static int judge(struct sample *s, const struct predict_values *v, const struct candidate *c,
                 struct row *row)
{
    *row = (struct row){.candidate = c->name, .reduce = predict_reduce_names[c->reduce], .p = NAN};
    gather(s, v, c);
    for (int p = 0; p < s->pairs; p++)
        row->n = s->crossed ? s->n[p] : row->n + s->n[p];
    row->documents = s->pairs;
    int err = correlate(s, &row->rho);
    if (err)
        return err;
    err = bootstrap(s, &row->low, &row->high);
    if (err)
        return err;
    return permute(s, row->rho, &row->p);
}

/* ---- the table */

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',')
        if (strcspn(s, ",") == n && memcmp(s, name, n) == 0)
            return true;
    return false;
}

/* Candidates that were asked for, in place. */
static int choose(struct predict_values *v, struct kvf_diag *d)
{
    const char *only = v->args->only;
    int n = 0;
    for (const char *s = only ? only : ""; *s; s += strcspn(s, ","), s += *s == ',') {
        bool there = false;
        for (int k = 0; k < v->n && !there; k++)
            there = strlen(v->c[k].name) == strcspn(s, ",")
                    && memcmp(v->c[k].name, s, strcspn(s, ",")) == 0;
        if (!there)
            return kvf_fail(d, KVF_E_ARG, "--only: none of the files has '%.*s'",
                            (int)strcspn(s, ","), s);
    }
    for (int k = 0; only && k < v->n; k++) {
        struct candidate c = v->c[k];
        if (in_list(only, c.name)) {
            v->c[k] = v->c[n];
            v->c[n++] = c;
        }
    }
    for (int k = n; only && k < v->n; k++)
        mem_free(v->c[k].v);
    v->n = only ? n : v->n;
    return KVF_OK;
}

static int fill(const struct predict_values *v, struct row *row)
{
    struct sample s = {0};
    double *p = MEM_NEW(double, (size_t)v->n);
    int err = p ? sample_alloc(&s, v) : KVF_E_NOMEM;
    if (err)
        goto done;
    for (int k = 0; k < v->n; k++) {
        err = judge(&s, v, &v->c[k], &row[k]);
        if (err)
            goto done;
        p[k] = row[k].p;
    }
    err = stats_fdr(p, (size_t)v->n, p);
    if (err)
        goto done;
    for (int k = 0; k < v->n; k++)
        row[k].q = p[k];

done:
    mem_free(p);
    sample_free(&s);
    return err;
}

static void put_meta(const struct predict_values *v, struct table *out)
{
    const struct table *effect = v->args->pair[0].effect;
    static const char *const same[] = {"model", "model_hash", "held", "removed"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++)
        if (table_meta(effect, same[k]))
            table_meta_str(out, same[k], table_meta(effect, same[k]));
    table_meta_str(out, "units", v->entries ? "entries" : "KV heads");
    table_meta_str(out, "value", v->args->value);
    table_meta_num(out, "pairs", v->args->n_pairs);
    table_meta_num(out, "horizon", (double)v->horizon);
    table_meta_num(out, "sinks", (double)v->sinks);
    table_meta_num(out, "permutations", PREDICT_PERMUTATIONS);
    table_meta_str(out, "interval",
                   v->args->n_pairs == 1
                       ? "95 %, bootstrap over units, 2000 "
                         "replicates"
                       : "95 %, bootstrap over documents and units, 2000 replicates");
    table_meta_num(out, "traces_of_another_prompt_length", v->prompts_differ);
}

struct unit_row {
    const char *candidate, *reduce;
    int64_t pair, layer, index, token;
    double statistic, effect, rho, low, high, q;
};

#define UNIT_AT(member) offsetof(struct unit_row, member)
static const struct record_member unit_members[] = {
    {"candidate", "", TABLE_STR, UNIT_AT(candidate)},
    {"reduce", "", TABLE_STR, UNIT_AT(reduce)},
    {"pair", "", TABLE_INT, UNIT_AT(pair)},
    {"layer", "", TABLE_INT, UNIT_AT(layer)},
    {"index", "", TABLE_INT, UNIT_AT(index)},
    {"token", "", TABLE_INT, UNIT_AT(token)},
    {"statistic", "", TABLE_REAL, UNIT_AT(statistic)},
    {"effect", "", TABLE_REAL, UNIT_AT(effect)},
    {"rho", "", TABLE_REAL, UNIT_AT(rho)},
    {"low", "", TABLE_REAL, UNIT_AT(low)},
    {"high", "", TABLE_REAL, UNIT_AT(high)},
    {"q", "", TABLE_REAL, UNIT_AT(q)},
};

/* Rows of one candidate; only those with both numbers. */
static int64_t fill_units(const struct predict_values *v, const struct candidate *c,
                          const struct row *r, struct unit_row *to)
{
    int64_t n = 0;
    for (int p = 0; p < v->args->n_pairs; p++)
        for (int64_t u = 0; u < v->units; u++) {
            int64_t at = (int64_t)p * v->units + u;
            if (!both(v, c, p, u))
                continue;
            to[n++] = (struct unit_row){r->candidate,
                                        r->reduce,
                                        p,
                                        v->entries ? -1 : u / v->heads,
                                        v->entries ? -1 : u % v->heads,
                                        v->entries ? u : -1,
                                        c->v[at],
                                        v->effect[at],
                                        r->rho,
                                        r->low,
                                        r->high,
                                        r->q};
        }
    return n;
}

static int units_table(const struct predict_values *v, const struct row *row, struct table **ret)
{
    size_t most = (size_t)v->n * (size_t)v->args->n_pairs * (size_t)v->units;
    struct unit_row *unit = mem_alloc(most + 1, sizeof *unit);
    int64_t n = 0;
    for (int k = 0; unit && k < v->n; k++)
        n += fill_units(v, &v->c[k], &row[k], unit + n);
    *ret = unit ? table_create("predict-units", n) : NULL;
    int err = *ret ? records_put(*ret, unit, sizeof *unit, unit_members,
                                 sizeof unit_members / sizeof *unit_members)
                   : KVF_E_NOMEM;
    mem_free(unit);
    return err;
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"candidate", "", TABLE_STR, AT(candidate)},
    {"reduce", "", TABLE_STR, AT(reduce)},
    {"n", "", TABLE_INT, AT(n)},
    {"documents", "", TABLE_INT, AT(documents)},
    {"rho", "", TABLE_REAL, AT(rho)},
    {"low", "", TABLE_REAL, AT(low)},
    {"high", "", TABLE_REAL, AT(high)},
    {"p", "", TABLE_REAL, AT(p)},
    {"q", "", TABLE_REAL, AT(q)},
};

static int rows_table(const struct predict_values *v, const struct row *row, struct table **ret)
{
    *ret = table_create("predict", v->n);
    if (!*ret)
        return KVF_E_NOMEM;
    return records_put(*ret, row, sizeof *row, members, sizeof members / sizeof *members);
}

int predict_run(const struct predict_args *args, struct table **ret, struct kvf_diag *d)
{
    struct predict_values v;
    struct table *out = NULL;
    struct row *row = NULL;
    int err = predict_values_read(args, &v, d);
    if (err)
        goto done;
    err = choose(&v, d);
    if (err)
        goto done;
    row = MEM_NEW(struct row, (size_t)v.n);
    err = row ? fill(&v, row) : KVF_E_NOMEM;
    if (err)
        goto done;
    err = args->units ? units_table(&v, row, &out) : rows_table(&v, row, &out);
    if (err)
        goto done;
    put_meta(&v, out);
    err = table_err(out);
    if (err)
        goto done;
    *ret = out;
    out = NULL;

done:
    table_destroy(out);
    mem_free(row);
    predict_values_free(&v);
    return err;
}

/* ---- for people */

struct place {
    double size;
    int64_t row;
};

static int by_size(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
                              : (x->row > y->row) - (x->row < y->row);
}

int predict_describe(const struct table *t, struct buf *out)
{
    static const char *const names[] = {"rho", "low", "high", "p", "q"};
    int64_t n = table_rows(t);
    if (strcmp(table_name(t), "predict-units") == 0) {
        buf_printf(out, "%lld pairs of a statistic and the effect of %s\n", (long long)n,
                   table_meta(t, "units"));
        return out->err;
    }
    struct place *order = MEM_NEW(struct place, (size_t)n);
    if (!order)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < n; r++) {
        double rho = table_real(t, table_find(t, "rho"), r);
        order[r] = (struct place){isnan(rho) ? -1 : fabs(rho), r};
    }
    qsort(order, (size_t)n, sizeof *order, by_size);
    buf_printf(out,
               "rank correlation with %s of %s, %s pair%s\n"
               "%-28s %-6s %5s %7s  %-18s %8s %8s\n",
               table_meta(t, "value"), table_meta(t, "units"), table_meta(t, "pairs"),
               table_meta_real(t, "pairs", 1) > 1 ? "s" : "", "candidate", "reduce", "n", "rho",
               "95 %", "p", "q");
    for (int64_t k = 0; k < n; k++) {
        int64_t r = order[k].row;
        double v[5];
        for (int c = 0; c < 5; c++)
            v[c] = table_real(t, table_find(t, names[c]), r);
        buf_printf(out, "%-28s %-6s %5lld ", table_str(t, table_find(t, "candidate"), r),
                   table_str(t, table_find(t, "reduce"), r),
                   (long long)table_int(t, table_find(t, "n"), r));
        if (order[k].size < 0)
            buf_printf(out, "not defined: it does not vary, or is not known\n");
        else
            buf_printf(out, "%+7.3f  %+6.3f .. %+6.3f %9.4f %8.4f\n", v[0], v[1], v[2], v[3], v[4]);
    }
    if (table_meta_real(t, "traces_of_another_prompt_length", 0) > 0)
        buf_printf(out, "warning: %s traces have a prompt of another length than their effect\n",
                   table_meta(t, "traces_of_another_prompt_length"));
    mem_free(order);
    return KVF_OK;
}
