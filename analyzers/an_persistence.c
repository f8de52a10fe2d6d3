/* an_persistence.c - empirical persistence: how often a token is selected at the ages 1, 2, 4,
 * ..., per head and class of tokens, each rate shrunk towards that of its head and those of
 * heads towards that of all heads.  One token says yes or no once at an age: a retention of
 * its own, its maximum-likelihood beta, would be 0 or 1; none is given.
 *
 * Of a cell with y of n tokens selected (docs/reference/analyzers.md derives it):
 *   p ~ Beta(M mu, M (1 - mu)),  y | p ~ Binomial(n, p)
 *   p | y ~ Beta(y + M mu, n - y + M (1 - mu)),  mean (y + M mu) / (n + M)
 * mu is the rate one level up; M = 1 / rho - 1 with rho from the moments of the cells
 * (Kleinman 1973), for each age and level. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/heads_par.h"
#include "analyzers/records.h"
#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/stats.h"

enum { OPT_CRITERION, OPT_GRACE, OPT_SPACE, OPT_BY, OPT_CLASSES, MOST_AGES = 32 };
static const struct analyzer_option options[] = {
    {"criterion", "LIST", "top64", "top64 ... top512, mass.90 ... mass.99, a list, or all"},
    {"grace", "W", "32", "leave out tokens with fewer later queries"},
    {"space", "S", "query", "heads: query, kv-union (any of the group) or kv-mean"},
    GROUPS_OPTIONS,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_persistence;

struct plan {
    enum selected_space space;
    struct token_groups groups;
    struct head_list heads;
    int criterion[N_CRITERION_TABLE], n_criteria, n_ages;
    int64_t T, a, b, grace;
    int threads;
};

struct cell {
    int64_t n, yes;
};

struct estimate {
    double prior, strength, shrunk, low, high; /* mu, M */
};

struct row {
    const char *head, *criterion, *class;
    int64_t layer, index, age, at_risk, selected;
    double rate;
    struct estimate e;
};

static int parse(struct kvf_trace *t, const struct analyzer_args *args, struct plan *p,
                 struct kvf_diag *d)
{
    const struct analyzer *me = &an_persistence;
    p->T = kvf_n_steps(t);
    p->threads = args->threads;
    while (p->n_ages < MOST_AGES && (int64_t)1 << p->n_ages < p->T)
        p->n_ages++;
    int err = space_parse(option_text(me, args, OPT_SPACE), false, &p->space, d);
    if (!err)
        err = criteria_choose(option_text(me, args, OPT_CRITERION), p->criterion, &p->n_criteria,
                              d);
    if (!err)
        err = number_parse("grace", option_text(me, args, OPT_GRACE), &p->grace, d);
    if (!err)
        err = tokens_select(t, args, &p->a, &p->b, d);
    if (!err)
        err = token_groups_make(t, option_text(me, args, OPT_BY),
                                option_text(me, args, OPT_CLASSES), &p->groups, d);
    return err ? err : space_heads(t, p->space, args->heads, &p->heads, d);
}

/* ---- counts: cells [heads + 1][groups][ages], the last head is all */

static struct cell *cell_at(const struct plan *p, struct cell *c, int head, int group, int age)
{
    return c + ((size_t)head * (size_t)p->groups.n + (size_t)group) * MOST_AGES + age;
}

static void count(const struct plan *p, const uint32_t *mask, int head, struct cell *c)
{
    int64_t end = p->T - p->grace < p->b ? p->T - p->grace : p->b;
    if (p->groups.n == 1) {
        for (int k = 0; k < p->n_ages; k++) {
            int64_t stop = p->T - ((int64_t)1 << k) < end ? p->T - ((int64_t)1 << k) : end;
            uint32_t yes = 0;
            for (int64_t i = p->a; i < stop; i++)
                yes += mask[i - p->a] >> k & 1;
            struct cell *x = cell_at(p, c, head, 0, k);
            x->n += stop > p->a ? stop - p->a : 0;
            x->yes += yes;
        }
        return;
    }
    for (int64_t i = p->a; i < end; i++) {
        int group = p->groups.of ? p->groups.of[i] : 0;
        for (int k = 0; k < p->n_ages && i + ((int64_t)1 << k) < p->T; k++)
            for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
                struct cell *x = cell_at(p, c, head, g, k);
                x->n++;
                x->yes += mask[i - p->a] >> k & 1;
            }
    }
}

struct crew {
    const struct plan *p;
    uint32_t *scratch;         /* [threads][2][T] */
    struct cell *cell;         /* [heads + 1][groups][ages] of the criterion at hand */
    struct estimate *estimate; /* [ages][heads + 1][groups] */
    double strength_heads[MOST_AGES], strength_classes[MOST_AGES];
    int column;
};

static int count_head(void *ctx, struct kvf_trace *t, int item, int h, int thread,
                      struct kvf_diag *d)
{
    const struct crew *c = ctx;
    const struct plan *p = c->p;
    uint32_t n = (uint32_t)(p->b - p->a), *any = c->scratch + 2 * thread * p->T, *one = any + p->T;
    struct unit u;
    (void)item;
    int err = unit_of(t, p->space, &p->heads.head[h], &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const void *view = any;
        int first = u.first + m * u.heads;
        if (u.heads == 1 && n)
            err = kvf_view(t, c->column, u.layer, first, (uint32_t)p->a, n, &view, d);
        else
            memset(any, 0, n * sizeof *any);
        for (int q = 0; !err && u.heads > 1 && q < u.heads && n; q++) {
            err = kvf_read(t, c->column, u.layer, first + q, (uint32_t)p->a, n, one, d);
            for (uint32_t i = 0; !err && i < n; i++)
                any[i] |= one[i];
        }
        if (!err)
            count(p, view, h, c->cell);
    }
    return err;
}

static void count_all(const struct plan *p, struct cell *c)
{
    for (int h = 0; h < p->heads.n; h++)
        for (int g = 0; g < p->groups.n; g++)
            for (int k = 0; k < p->n_ages; k++) {
                struct cell *all = cell_at(p, c, p->heads.n, g, k);
                const struct cell *mine = cell_at(p, c, h, g, k);
                all->n += mine->n;
                all->yes += mine->yes;
            }
}

/* ---- shrinkage */

/* Sums over cells around the rates one level up, with which
 *   E[spread] = base + rho * room,  spread = sum n (y / n - mu)^2:
 * of K cells around their own mean, base = v (K - 1) and room = v (N - sum n^2 / N - (K - 1)),
 * v = mu (1 - mu). */
struct moments {
    double spread, base, room;
    int64_t n;
};

/* Adds the cells c[0], c[stride], ... around the rate of `up`, their sum. */
static void add_moments(struct moments *m, const struct cell *up, const struct cell *c, int n_cells,
                        size_t stride)
{
    double N = (double)up->n, mu = (double)up->yes / N, squares = 0, K = 0, v = mu * (1 - mu);
    m->n += up->n;
    for (int i = 0; i < n_cells; i++, c += stride) {
        double n = (double)c->n, off = c->n ? (double)c->yes / n - mu : 0;
        m->spread += n * off * off;
        squares += n * n;
        K += c->n > 0;
    }
    if (up->n) {
        m->base += v * (K - 1);
        m->room += v * (N - squares / N - (K - 1));
    }
}

/* M: none (0) where there is nothing to tell it from, at most the number of tokens it rests on. */
static double strength(const struct moments *m)
{
    double rho = m->room > 0 ? (m->spread - m->base) / m->room : 1, most = (double)m->n;
    if (rho >= 1)
        return 0;
    return rho * (most + 1) > 1 ? 1 / rho - 1 : most;
}

/* Quantiles that are asked for: many at once are faster. */
enum { MOST_QUANTILES = 64 };
struct quantiles {
    int n;
    double q[MOST_QUANTILES], a[MOST_QUANTILES], b[MOST_QUANTILES], x[MOST_QUANTILES];
    double *to[MOST_QUANTILES];
};

static void find_quantiles(struct quantiles *v)
{
    stats_beta_quantiles(v->q, v->a, v->b, (size_t)v->n, v->x);
    for (int i = 0; i < v->n; i++)
        *v->to[i] = v->x[i];
    v->n = 0;
}

static void ask_quantile(struct quantiles *v, double q, double a, double b, double *to)
{
    if (v->n == MOST_QUANTILES)
        find_quantiles(v);
    v->q[v->n] = q;
    v->a[v->n] = a;
    v->b[v->n] = b;
    v->to[v->n++] = to;
}

static void shrink(const struct cell *c, double prior, double M, struct quantiles *v,
                   struct estimate *e)
{
    double a = (double)c->yes, b = (double)(c->n - c->yes);
    *e = (struct estimate){prior, M, NAN, NAN, NAN};
    if (M > 0 && !isnan(prior)) {
        a += M * prior;
        b += M * (1 - prior);
    }
    if (a + b > 0)
        e->shrunk = a / (a + b);
    if (M > 0 && a > 0 && b > 0) {
        ask_quantile(v, .025, a, b, &e->low);
        ask_quantile(v, .975, a, b, &e->high);
    } else if (c->n) {
        stats_wilson(c->yes, c->n, &e->low, &e->high);
    }
}

static double rate(const struct cell *c)
{
    return c->n ? (double)c->yes / (double)c->n : NAN;
}

/* How strong the rates of heads and of classes are at an age. */
static void find_strengths(struct crew *c, int k)
{
    const struct plan *p = c->p;
    struct moments between = {0}, within = {0};
    int H = p->heads.n, G = p->groups.n;
    const struct cell *all = cell_at(p, c->cell, H, 0, k);
    add_moments(&between, all, cell_at(p, c->cell, 0, 0, k), H, (size_t)G * MOST_AGES);
    for (int h = 0; h < H; h++)
        add_moments(&within, cell_at(p, c->cell, h, 0, k), cell_at(p, c->cell, h, G > 1, k), G - 1,
                    MOST_AGES);
    c->strength_heads[k] = strength(&between);
    c->strength_classes[k] = strength(&within);
}

/* Estimates of a head, or of all heads together (h the number of heads), at an age. */
static void shrink_head(const struct crew *c, int k, int h, struct quantiles *v)
{
    const struct plan *p = c->p;
    int H = p->heads.n, G = p->groups.n;
    struct estimate *x = c->estimate + ((size_t)k * (size_t)(H + 1) + (size_t)h) * (size_t)G;
    bool one = h < H;
    shrink(cell_at(p, c->cell, h, 0, k), one ? rate(cell_at(p, c->cell, H, 0, k)) : NAN,
           one ? c->strength_heads[k] : 0, v, x);
    for (int g = 1; g < G; g++)
        shrink(cell_at(p, c->cell, h, g, k), one ? x->shrunk : NAN,
               one ? c->strength_classes[k] : 0, v, x + g);
}

static void shrink_ages(const struct crew *c, int h)
{
    struct quantiles v = {.n = 0};
    for (int k = 0; k < c->p->n_ages; k++)
        shrink_head(c, k, h, &v);
    find_quantiles(&v);
}

static int shrink_task(void *ctx, struct kvf_trace *t, int item, int h, int thread,
                       struct kvf_diag *d)
{
    (void)t, (void)item, (void)thread, (void)d;
    shrink_ages(ctx, h);
    return KVF_OK;
}

/* ---- the table */

static void put_rows(const struct crew *c, int criterion, struct row *r)
{
    const struct plan *p = c->p;
    int H = p->heads.n, G = p->groups.n;
    const struct estimate *e = c->estimate;
    for (int k = 0; k < p->n_ages; k++)
        for (int h = 0; h <= H; h++)
            for (int g = 0; g < G; g++, e++) {
                const struct cell *x = cell_at(p, c->cell, h, g, k);
                const struct head *head = h < H ? &p->heads.head[h] : NULL;
                r[(h * G + g) * p->n_ages + k] = (struct row){head ? head->name : "all",
                                                              criterion_table[criterion].name,
                                                              p->groups.name[g],
                                                              head ? head->layer : -1,
                                                              head ? head->index : -1,
                                                              (int64_t)1 << k,
                                                              x->n,
                                                              x->yes,
                                                              rate(x),
                                                              *e};
            }
}

static int fill_criterion(struct kvf_trace *t, struct crew *c, struct heads_par *par, int criterion,
                          struct row *row, struct kvf_diag *d)
{
    const struct plan *p = c->p;
    size_t cells = (size_t)(p->heads.n + 1) * (size_t)p->groups.n;
    int err = criterion_column(t, "selected_at", criterion, "calibration", &c->column, d);
    memset(c->cell, 0, cells * MOST_AGES * sizeof *c->cell);
    if (!err)
        err = heads_par_run(par, &p->heads, 1, count_head, c, d);
    if (err)
        return err;
    count_all(p, c->cell);
    for (int k = 0; k < p->n_ages; k++)
        find_strengths(c, k);
    shrink_ages(c, p->heads.n);
    err = heads_par_run(par, &p->heads, 1, shrink_task, c, d);
    put_rows(c, criterion, row);
    return err;
}

static int fill(struct kvf_trace *t, const void *plan, void *rows, struct kvf_diag *d)
{
    const struct plan *p = plan;
    struct row *row = rows;
    struct heads_par *par = NULL;
    size_t cells = (size_t)(p->heads.n + 1) * (size_t)p->groups.n;
    struct crew c = {.p = p,
                     .cell = MEM_NEW(struct cell, cells * MOST_AGES),
                     .estimate = MEM_NEW(struct estimate, cells * MOST_AGES)};
    int err = heads_par_create(t, p->threads, p->T * p->heads.n, &par);
    if (!err)
        c.scratch = mem_alloc(2 * (size_t)heads_par_threads(par), (size_t)p->T * sizeof(uint32_t));
    if (!err && !(c.cell && c.estimate && c.scratch))
        err = KVF_E_NOMEM;
    for (int k = 0; !err && k < p->n_criteria; k++, row += (int64_t)cells * p->n_ages)
        err = fill_criterion(t, &c, par, p->criterion[k], row, d);
    heads_par_destroy(par);
    mem_free(c.cell);
    mem_free(c.estimate);
    mem_free(c.scratch);
    return err;
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"head", "", TABLE_STR, AT(head)},       {"layer", "", TABLE_INT, AT(layer)},
    {"index", "", TABLE_INT, AT(index)},     {"criterion", "", TABLE_STR, AT(criterion)},
    {"class", "", TABLE_STR, AT(class)},     {"age", "step", TABLE_INT, AT(age)},
    {"at_risk", "", TABLE_INT, AT(at_risk)}, {"selected", "", TABLE_INT, AT(selected)},
    {"rate", "", TABLE_REAL, AT(rate)},      {"shrunk", "", TABLE_REAL, AT(e.shrunk)},
    {"low", "", TABLE_REAL, AT(e.low)},      {"high", "", TABLE_REAL, AT(e.high)},
    {"prior", "", TABLE_REAL, AT(e.prior)},  {"strength", "", TABLE_REAL, AT(e.strength)},
};

static int build(struct kvf_trace *t, const struct plan *p, struct table **ret, struct kvf_diag *d)
{
    int64_t n = (int64_t)p->n_criteria * (p->heads.n + 1) * p->groups.n * p->n_ages;
    const struct selected_table table = {
        "persistence",
        n,
        sizeof(struct row),
        members,
        sizeof members / sizeof *members,
        fill,
        p,
        p->space,
        "grace",
        p->grace,
        p->a,
        p->b,
        p->T,
        &p->groups,
    };
    return selected_table(t, &table, ret, d);
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct kvf_trace *t = traces[0];
    struct plan p = {.n_ages = 0};
    int column;
    (void)n_traces;
    int err = parse(t, args, &p, d);
    for (int c = 0; !err && c < p.n_criteria; c++) {
        err = criterion_column(t, "selected_at", p.criterion[c], "calibration", &column, d);
        if (!err && kvf_column(t, column)->dtype != KVF_U32)
            err = kvf_fail(d, KVF_E_FORMAT, "the column %s must be of 32 bits",
                           kvf_column(t, column)->name);
    }
    if (!err)
        err = build(t, &p, ret_table, d);
    token_groups_free(&p.groups);
    heads_free(&p.heads);
    return err;
}

static void describe(const struct table *t, struct buf *out)
{
    const char *current = "";
    if (table_rows(t) == 0)
        buf_str(out, "no ages\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, table_find(t, "criterion"), r);
        if (strcmp(table_str(t, table_find(t, "head"), r), "all") != 0
            || strcmp(table_str(t, table_find(t, "class"), r), "all") != 0)
            continue;
        if (strcmp(current, name) != 0)
            buf_printf(out, "%s: share of tokens selected at an age\n", current = name);
        buf_printf(out, "  %-6lld %.4f of %lld\n", (long long)table_int(t, table_find(t, "age"), r),
                   table_real(t, table_find(t, "rate"), r),
                   (long long)table_int(t, table_find(t, "at_risk"), r));
    }
}

static const struct analyzer_measure measures[] = {
    {"rate", "selected", "at_risk"},
    {"shrunk", NULL, NULL},
    {NULL, NULL, NULL},
};
static const char *const keys[] = {"head", "layer", "index", "criterion", "class", "age", NULL};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_persistence = {
    .name = "persistence",
    .summary = "how often tokens are selected at ages 1, 2, 4, ..., with shrinkage",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};
