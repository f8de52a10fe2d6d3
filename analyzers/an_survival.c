/* an_survival.c - survival at horizon n (DBTrimKV, figures 2 and 9): the share of
 * tokens that are still selected at age n or later, among those at risk (a query
 * at i + n exists), or among all tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/analyzers.h"
#include "analyzers/common.h"
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
            if (n != p->horizon[p->n_horizons - 1])
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

/* Tokens i < T - n at risk (or all T), and how many are alive at n. */
static void count(const double *age, int64_t T, const struct plan *p, int64_t *alive)
{
    for (int k = 0; k < p->n_horizons; k++) {
        int64_t n = p->horizon[k], c = 0;
        for (int64_t i = 0; i + n < T; i++) /* an age above T - 1 - i cannot occur */
            c += age[i] >= (double)n;
        alive[k] = c;
    }
}

struct rows { /* one row per (head or all, criterion, horizon) */
    int64_t n, *layer, *index, *horizon, *at_risk, *alive;
    const char **head, **criterion;
    double *fraction;
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
    return r->layer && r->index && r->horizon && r->at_risk && r->alive && r->head && r->criterion
           && r->fraction ? KVF_OK : KVF_E_NOMEM;
}

static void free_rows(struct rows *r)
{
    void *const all[] = {r->layer, r->index, r->horizon, r->at_risk, r->alive, (void *)r->head,
                         (void *)r->criterion, r->fraction};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static void add_rows(struct rows *r, const struct plan *p, const char *criterion, const char *head,
                     int layer, int index, int64_t T, int n_heads, const int64_t *alive)
{
    for (int k = 0; k < p->n_horizons; k++, r->n++) {
        int64_t n = p->horizon[k], risk = p->all ? T : T > n ? T - n : 0;
        r->head[r->n] = head;
        r->layer[r->n] = layer;
        r->index[r->n] = index;
        r->criterion[r->n] = criterion;
        r->horizon[r->n] = n;
        r->at_risk[r->n] = risk * n_heads;
        r->alive[r->n] = alive[k];
        r->fraction[r->n] = risk ? (double)alive[k] / ((double)risk * n_heads) : NAN;
    }
}

static int fill(struct kvf_trace *t, const struct head_list *heads, const struct plan *p, int64_t T,
                double *age, struct rows *r, struct kvf_diag *d)
{
    for (int c = 0; c < p->n_criteria; c++) {
        int64_t pooled[MAX_HORIZONS] = {0}, alive[MAX_HORIZONS];
        for (int h = 0; h < heads->n; h++) {
            const struct head *x = &heads->head[h];
            int err = T ? kvf_read_f64(t, p->column[c], x->layer, x->index, 0, (uint32_t)T, age, d)
                        : KVF_OK;
            if (err)
                return err;
            count(age, T, p, alive);
            for (int k = 0; k < p->n_horizons; k++)
                pooled[k] += alive[k];
            add_rows(r, p, p->criterion[c], x->name, x->layer, x->index, T, 1, alive);
        }
        add_rows(r, p, p->criterion[c], "all", -1, -1, T, heads->n, pooled);
    }
    return KVF_OK;
}

static struct table *build(const struct kvf_trace *t, const struct plan *p, const struct rows *r)
{
    struct table *out = table_create("survival", r->n);
    if (!out)
        return NULL;
    put_provenance(out, t);
    table_meta_str(out, "denominator", p->all ? "all tokens" : "tokens at risk (i + horizon < T)");
    table_meta_str(out, "space", "query");
    table_dense_str(out, "head", "", r->head);
    table_dense_int(out, "layer", "", r->layer);
    table_dense_int(out, "index", "", r->index);
    table_dense_str(out, "criterion", "", r->criterion);
    table_dense_int(out, "horizon", "step", r->horizon);
    table_dense_int(out, "at_risk", "", r->at_risk);
    table_dense_int(out, "alive", "", r->alive);
    table_dense_real(out, "fraction", "", r->fraction);
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
    int64_t T = kvf_n_steps(t);
    (void)n_traces;
    p.all = strcmp(denominator, "all") == 0;
    if (!p.all && strcmp(denominator, "at-risk") != 0)
        return kvf_fail(d, KVF_E_ARG, "--denominator is at-risk or all, not '%s'", denominator);
    int err = choose_criteria(t, option_text(&an_survival, args, OPT_CRITERION), &p, d);
    if (!err)
        err = choose_horizons(option_text(&an_survival, args, OPT_HORIZONS), T, &p, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    double *age = MEM_NEW(double, (size_t)T);
    err = alloc_rows(&r, (size_t)(heads.n + 1) * (size_t)p.n_criteria * (size_t)p.n_horizons);
    if (!err)
        err = age ? fill(t, &heads, &p, T, age, &r, d) : KVF_E_NOMEM;
    struct table *out = err ? NULL : build(t, &p, &r);
    if (!err)
        err = out ? table_err(out) : KVF_E_NOMEM;
    mem_free(age);
    free_rows(&r);
    heads_free(&heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

/* First horizon with less than half alive, from the pooled rows; -1: none. */
static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), crit = table_find(t, "criterion");
    int hor = table_find(t, "horizon"), frac = table_find(t, "fraction");
    const char *current = "";
    bool found = true;
    buf_printf(out, "survival over %s tokens, denominator: %s\n", table_meta(t, "T"),
               table_meta(t, "denominator"));
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (strcmp(table_str(t, head, r), "all") != 0)
            continue;
        if (strcmp(current, table_str(t, crit, r)) != 0) {
            if (!found)
                buf_printf(out, "  %-8s more than half at every horizon\n", current);
            current = table_str(t, crit, r);
            found = false;
        }
        if (!found && table_real(t, frac, r) < 0.5) {
            buf_printf(out, "  %-8s half-life: under half from horizon %lld on (%.3f)\n", current,
                       (long long)table_int(t, hor, r), table_real(t, frac, r));
            found = true;
        }
    }
    if (!found)
        buf_printf(out, "  %-8s more than half at every horizon\n", current);
}

const struct analyzer an_survival = {
    .name = "survival",
    .summary = "share of tokens still selected at a horizon",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
};
