#include "studies/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/records.h"
#include "base/mem.h"
#include "base/stats.h"
#include "studies/predict_judge.h"

struct row {
    const char *candidate, *reduce;
    struct predict_judged x;
    double q, depth_q;
};

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

/* q of all rows by one of their two p. */
static int correct(struct row *row, size_t n, double *p, bool depth)
{
    for (size_t k = 0; k < n; k++)
        p[k] = depth ? row[k].x.depth_p : row[k].x.p;
    int err = stats_fdr(p, n, p);
    for (size_t k = 0; !err && k < n; k++)
        *(depth ? &row[k].depth_q : &row[k].q) = p[k];
    return err;
}

static int fill(const struct predict_values *v, struct row *row)
{
    struct predict_sample *s = predict_sample_create(v);
    double *p = MEM_NEW(double, (size_t)v->n);
    int err = p && s ? KVF_OK : KVF_E_NOMEM;
    for (int k = 0; !err && k < v->n; k++) {
        const struct candidate *c = &v->c[k];
        row[k].candidate = c->name;
        row[k].reduce = predict_reduce_names[c->reduce];
        err = predict_judge(s, v, c, &row[k].x);
    }
    if (!err)
        err = correct(row, (size_t)v->n, p, false);
    if (!err)
        err = correct(row, (size_t)v->n, p, true);
    mem_free(p);
    predict_sample_destroy(s);
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
    table_meta_str(out, "partial", v->entries ? "given the position" : "given the layer");
    table_meta_str(out, "p",
                   v->entries ? "circular shifts of the entries"
                              : "permutations of heads within their layers");
    table_meta_str(out, "depth_p", "circular shifts of the layers");
    bool several = v->args->n_pairs > 1;
    char interval[96];
    snprintf(interval, sizeof interval, "95 %%, bootstrap over %s%s, 2000 replicates",
             several ? "documents and " : "", v->entries ? "blocks of entries" : "layers");
    table_meta_str(out, "interval", interval);
    table_meta_num(out, "traces_of_another_prompt_length", v->prompts_differ);
}

struct unit_row {
    const char *candidate, *reduce;
    int64_t pair, layer, index, token;
    double statistic, effect, rho, partial, low, high, q;
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
    {"partial", "", TABLE_REAL, UNIT_AT(partial)},
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
            if (!predict_both(v, c, p, u))
                continue;
            to[n++] = (struct unit_row){r->candidate,
                                        r->reduce,
                                        p,
                                        v->entries ? -1 : u / v->heads,
                                        v->entries ? -1 : u % v->heads,
                                        v->entries ? u : -1,
                                        c->v[at],
                                        v->effect[at],
                                        r->x.rho,
                                        r->x.partial,
                                        r->x.low,
                                        r->x.high,
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
    {"n", "", TABLE_INT, AT(x.n)},
    {"documents", "", TABLE_INT, AT(x.documents)},
    {"rho", "", TABLE_REAL, AT(x.rho)},
    {"partial", "", TABLE_REAL, AT(x.partial)},
    {"low", "", TABLE_REAL, AT(x.low)},
    {"high", "", TABLE_REAL, AT(x.high)},
    {"p", "", TABLE_REAL, AT(x.p)},
    {"q", "", TABLE_REAL, AT(q)},
    {"depth_rho", "", TABLE_REAL, AT(x.depth_rho)},
    {"depth_p", "", TABLE_REAL, AT(x.depth_p)},
    {"depth_q", "", TABLE_REAL, AT(depth_q)},
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

/* The largest first by the partial correlation, then those without one by rho. */
static struct place *sort_rows(const struct table *t)
{
    int64_t n = table_rows(t);
    struct place *order = MEM_NEW(struct place, (size_t)n);
    for (int64_t r = 0; order && r < n; r++) {
        double partial = table_real(t, table_find(t, "partial"), r);
        double rho = table_real(t, table_find(t, "rho"), r);
        double size = isnan(partial) ? fabs(rho) - 2 : fabs(partial);
        order[r] = (struct place){isnan(size) ? -3 : size, r};
    }
    if (order)
        qsort(order, (size_t)n, sizeof *order, by_size);
    return order;
}

static void describe_number(struct buf *out, const char *format, int width, double v)
{
    if (isnan(v))
        buf_printf(out, " %*s", width - 1, "-");
    else
        buf_printf(out, format, width, v);
}

static void describe_row(const struct table *t, int64_t r, struct buf *out)
{
    static const char *const names[] = {"rho", "partial", "low",       "high",
                                        "p",   "q",       "depth_rho", "depth_p"};
    double v[8];
    for (int c = 0; c < 8; c++)
        v[c] = table_real(t, table_find(t, names[c]), r);
    buf_printf(out, "%-28s %-6s %5lld ", table_str(t, table_find(t, "candidate"), r),
               table_str(t, table_find(t, "reduce"), r),
               (long long)table_int(t, table_find(t, "n"), r));
    if (isnan(v[0])) {
        buf_printf(out, "not defined: it does not vary, or is not known\n");
        return;
    }
    describe_number(out, "%+*.3f", 7, v[0]);
    describe_number(out, "%+*.3f", 8, v[1]);
    if (isnan(v[2]))
        buf_printf(out, "  %-16s", "-");
    else
        buf_printf(out, "  %+6.3f .. %+6.3f", v[2], v[3]);
    describe_number(out, "%*.4f", 8, v[4]);
    describe_number(out, "%*.4f", 8, v[5]);
    describe_number(out, "%+*.3f", 8, v[6]);
    describe_number(out, "%*.3f", 7, v[7]);
    buf_char(out, '\n');
}

int predict_describe(const struct table *t, struct buf *out)
{
    int64_t n = table_rows(t);
    if (strcmp(table_name(t), "predict-units") == 0) {
        buf_printf(out, "%lld pairs of a statistic and the effect of %s\n", (long long)n,
                   table_meta(t, "units"));
        return out->err;
    }
    struct place *order = sort_rows(t);
    if (!order)
        return KVF_E_NOMEM;
    buf_printf(out,
               "rank correlation with %s of %s, %s pair%s; partial, its interval, p and q: %s "
               "(p: %s)\n%-28s %-6s %5s %7s %7s  %-16s %7s %7s %7s %6s\n",
               table_meta(t, "value"), table_meta(t, "units"), table_meta(t, "pairs"),
               table_meta_real(t, "pairs", 1) > 1 ? "s" : "", table_meta(t, "partial"),
               table_meta(t, "p"), "candidate", "reduce", "n", "rho", "partial", "95 %", "p", "q",
               "depth", "p");
    for (int64_t k = 0; k < n; k++)
        describe_row(t, order[k].row, out);
    if (table_meta_real(t, "traces_of_another_prompt_length", 0) > 0)
        buf_printf(out, "warning: %s traces have a prompt of another length than their effect\n",
                   table_meta(t, "traces_of_another_prompt_length"));
    mem_free(order);
    return KVF_OK;
}
