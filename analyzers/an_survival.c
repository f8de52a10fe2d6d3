/* an_survival.c - survival at horizon n (DBTrimKV, figures 2 and 9): the share of
 * tokens that are still selected at age n or later, among those at risk (a query
 * at i + n exists), or among all tokens.  half_life: the first n of all whose
 * share is under one half, whatever horizons are listed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
#include "analyzers/pools.h"
#include "base/mem.h"

enum { OPT_CRITERION, OPT_HORIZONS, OPT_DENOMINATOR, MAX_HORIZONS = 256 };
static const struct analyzer_option options[] = {
    {"criterion", "LIST", "all", "top64 ... top512, mass.90 ... mass.99, a list, or all"},
    {"horizons", "LIST", NULL, "ages in steps, separated by commas (default: about 40 up to T)"},
    {"denominator", "D", "at-risk", "at-risk or all"},
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_survival;

struct plan {
    const char *criterion[KVF_N_CRITERIA];
    int column[KVF_N_CRITERIA], n_criteria;
    int64_t horizon[MAX_HORIZONS];
    int n_horizons;
    int64_t T, a, b; /* steps; tokens [a, b) */
    bool all; /* denominator */
};

static bool listed(const char *list, const char *item)
{
    size_t n = strlen(item);
    if (strcmp(list, "all") == 0)
        return true;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && memcmp(p, item, n) == 0)
            return true;
    return false;
}

static int choose_criteria(const struct kvf_trace *t, const char *list, struct plan *p,
                           struct kvf_diag *d)
{
#define X(name) #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    for (int c = 0; c < KVF_N_CRITERIA; c++) {
        char column[KVF_NAME_MAX];
        if (!listed(list, names[c]))
            continue;
        snprintf(column, sizeof column, "last_selected.%s", names[c]);
        int err = column_need(t, column, "survival", &p->column[p->n_criteria], d);
        if (err)
            return err;
        p->criterion[p->n_criteria++] = names[c];
    }
    return p->n_criteria ? KVF_OK
                         : kvf_fail(d, KVF_E_ARG, "--criterion: no criterion in '%s'", list);
}

static int choose_horizons(const char *list, int64_t T, struct plan *p, struct kvf_diag *d)
{
    if (!list) { /* 0, then about ten per decade, rounded, each once */
        p->horizon[p->n_horizons++] = 0;
        for (double x = 1; x < (double)T && p->n_horizons < MAX_HORIZONS; x *= 1.2589254117941673) {
            int64_t n = (int64_t)(x + 0.5);
            if (n < T && n != p->horizon[p->n_horizons - 1])
                p->horizon[p->n_horizons++] = n;
        }
        return KVF_OK;
    }
    for (const char *s = list; *s;) {
        char *end;
        long long n = strtoll(s, &end, 10);
        if (end == s || (*end && *end != ',') || n < 0 || p->n_horizons == MAX_HORIZONS)
            return kvf_fail(d, KVF_E_ARG, "--horizons: '%s' is not a list of up to %d ages", list,
                            MAX_HORIZONS);
        p->horizon[p->n_horizons++] = n;
        s = end + (*end == ',');
    }
    return KVF_OK;
}

/* Tokens at risk at n (a query at i + n exists), or all that were asked for. */
static int64_t at_risk(const struct plan *p, int64_t n)
{
    int64_t end = p->T - n < p->b ? p->T - n : p->b;
    return p->all ? p->b - p->a : end > p->a ? end - p->a : 0;
}

/* alive[n] = tokens whose largest age is n or more, n = 0 .. T - 1. */
static void count(const double *age, const struct plan *p, int64_t *alive)
{
    memset(alive, 0, (size_t)p->T * sizeof *alive);
    for (int64_t i = 0; i < p->b - p->a; i++)
        if (age[i] >= 0 && age[i] < (double)p->T)
            alive[(int64_t)age[i]]++;
    for (int64_t n = p->T - 2; n >= 0; n--)
        alive[n] += alive[n + 1];
}

static double share(const struct plan *p, int64_t n, int n_heads, const int64_t *alive)
{
    int64_t risk = at_risk(p, n) * n_heads;
    return risk ? (double)(n < p->T ? alive[n] : 0) / (double)risk : NAN;
}

static double half_life(const struct plan *p, int n_heads, const int64_t *alive)
{
    for (int64_t n = 0; n < p->T; n++)
        if (share(p, n, n_heads, alive) < 0.5) /* false for NaN: nobody at risk */
            return (double)n;
    return NAN;
}

struct rows { /* one row per (head or all, criterion, horizon) */
    int64_t n, *layer, *index, *horizon, *at_risk, *alive;
    const char **head, **criterion;
    double *fraction, *half_life;
};

static int alloc_rows(struct rows *r, size_t n)
{
    r->layer = MEM_NEW(int64_t, n);
    r->index = MEM_NEW(int64_t, n);
    r->horizon = MEM_NEW(int64_t, n);
    r->at_risk = MEM_NEW(int64_t, n);
    r->alive = MEM_NEW(int64_t, n);
    r->head = MEM_NEW(const char *, n);
    r->criterion = MEM_NEW(const char *, n);
    r->fraction = MEM_NEW(double, n);
    r->half_life = MEM_NEW(double, n);
    return r->layer && r->index && r->horizon && r->at_risk && r->alive && r->head && r->criterion
           && r->fraction && r->half_life ? KVF_OK : KVF_E_NOMEM;
}

static void free_rows(struct rows *r)
{
    void *const all[] = {r->layer, r->index, r->horizon, r->at_risk, r->alive, (void *)r->head,
                         (void *)r->criterion, r->fraction, r->half_life};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

/* Rows of one head, or of all n_heads together (head NULL). */
static void add_rows(struct rows *r, const struct plan *p, const char *criterion,
                     const struct head *head, int n_heads, const int64_t *alive)
{
    double half = half_life(p, n_heads, alive);
    for (int k = 0; k < p->n_horizons; k++, r->n++) {
        int64_t n = p->horizon[k];
        r->head[r->n] = head ? head->name : "all";
        r->layer[r->n] = head ? head->layer : -1;
        r->index[r->n] = head ? head->index : -1;
        r->criterion[r->n] = criterion;
        r->horizon[r->n] = n;
        r->at_risk[r->n] = at_risk(p, n) * n_heads;
        r->alive[r->n] = n < p->T ? alive[n] : 0;
        r->fraction[r->n] = share(p, n, n_heads, alive);
        r->half_life[r->n] = half;
    }
}

static int fill(struct kvf_trace *t, const struct head_list *heads, const struct plan *p,
                struct rows *r, struct kvf_diag *d)
{
    size_t T = (size_t)p->T;
    double *age = MEM_NEW(double, T);
    int64_t *alive = MEM_NEW(int64_t, T), *pooled = MEM_NEW(int64_t, T);
    int err = age && alive && pooled ? KVF_OK : KVF_E_NOMEM;
    for (int c = 0; !err && c < p->n_criteria; c++) {
        memset(pooled, 0, T * sizeof *pooled);
        for (int h = 0; !err && h < heads->n; h++) {
            const struct head *x = &heads->head[h];
            if (p->b > p->a)
                err = kvf_read_f64(t, p->column[c], x->layer, x->index, (uint32_t)p->a,
                                   (uint32_t)(p->b - p->a), age, d);
            if (err)
                break;
            count(age, p, alive);
            for (size_t n = 0; n < T; n++)
                pooled[n] += alive[n];
            add_rows(r, p, p->criterion[c], x, 1, alive);
        }
        if (!err)
            add_rows(r, p, p->criterion[c], NULL, heads->n, pooled);
    }
    mem_free(age);
    mem_free(alive);
    mem_free(pooled);
    return err;
}

static struct table *build(const struct kvf_trace *t, const struct plan *p, const struct rows *r)
{
    struct table *out = table_create("survival", r->n);
    if (!out)
        return NULL;
    put_provenance(out, t);
    table_meta_str(out, "denominator", p->all ? "all tokens" : "tokens at risk (i + horizon < T)");
    table_meta_str(out, "space", "query");
    put_tokens(out, p->a, p->b, p->T);
    table_dense_str(out, "head", "", r->head);
    table_dense_int(out, "layer", "", r->layer);
    table_dense_int(out, "index", "", r->index);
    table_dense_str(out, "criterion", "", r->criterion);
    table_dense_int(out, "horizon", "step", r->horizon);
    table_dense_int(out, "at_risk", "", r->at_risk);
    table_dense_int(out, "alive", "", r->alive);
    table_dense_real(out, "fraction", "", r->fraction);
    table_dense_real(out, "half_life", "step", r->half_life);
    return out;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct plan p = {.n_criteria = 0};
    struct head_list heads;
    struct rows r = {0};
    const char *denominator = option_text(&an_survival, args, OPT_DENOMINATOR);
    (void)n_traces;
    p.T = kvf_n_steps(t);
    p.all = strcmp(denominator, "all") == 0;
    if (!p.all && strcmp(denominator, "at-risk") != 0)
        return kvf_fail(d, KVF_E_ARG, "--denominator is at-risk or all, not '%s'", denominator);
    int err = choose_criteria(t, option_text(&an_survival, args, OPT_CRITERION), &p, d);
    if (!err)
        err = choose_horizons(option_text(&an_survival, args, OPT_HORIZONS), p.T, &p, d);
    if (!err)
        err = tokens_select(t, args, &p.a, &p.b, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    err = alloc_rows(&r, (size_t)(heads.n + 1) * (size_t)p.n_criteria * (size_t)p.n_horizons);
    if (!err)
        err = fill(t, &heads, &p, &r, d);
    struct table *out = err ? NULL : build(t, &p, &r);
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    free_rows(&r);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), crit = table_find(t, "criterion");
    int half = table_find(t, "half_life");
    const char *current = "";
    buf_printf(out, "survival over %s tokens, denominator: %s\n", table_meta(t, "T"),
               table_meta(t, "denominator"));
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (strcmp(table_str(t, head, r), "all") != 0 ||
            strcmp(current, table_str(t, crit, r)) == 0)
            continue;
        current = table_str(t, crit, r);
        double n = table_real(t, half, r);
        if (isnan(n))
            buf_printf(out, "  %-8s at least half at every horizon\n", current);
        else
            buf_printf(out, "  %-8s half-life %.0f steps\n", current, n);
    }
}

const struct analyzer an_survival = {
    .name = "survival",
    .summary = "share of tokens still selected at a horizon",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool_survival,
};
