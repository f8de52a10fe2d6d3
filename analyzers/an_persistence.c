/* an_persistence.c - empirical persistence: how often a token is selected at the ages 1, 2, 4, ...,
 * for each head and class of tokens.  The rate of a class is shrunk towards the rate of its head,
 * and the rate of a head towards the rate of all heads.  One token is selected or not once at an
 * age, so its own maximum-likelihood beta would be 0 or 1.  The table has no such column.
 *
 * Of a cell with y of n tokens selected (docs/reference/analyses/persistence.md derives it):
 *   p ~ Beta(M mu, M (1 - mu)),  y | p ~ Binomial(n, p)
 *   p | y ~ Beta(y + M mu, n - y + M (1 - mu)),  mean (y + M mu) / (n + M)
 * mu is the rate one level up; M = 1 / rho - 1 with rho from the moments of the cells (Kleinman
 * 1973), for each age and level. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analyzers/life.h"
#include "base/stats.h"

enum { MOST_AGES = 32 };
struct plan {
    struct life life;
    int n_ages;
    int64_t T, a, b, grace;
    int n_heads;
    struct cell *cells; /* [criteria][heads + 1][groups][ages]; the last head is all */
    /* of the criterion at hand: */
    struct cell *cell;         /* [heads + 1][groups][ages] */
    struct estimate *estimate; /* [ages][heads + 1][groups] */
    double strength_heads[MOST_AGES], strength_classes[MOST_AGES];
};

struct scratch {         /* of one thread */
    uint32_t *any, *one; /* [T] */
};

struct cell {
    int64_t n, yes;
};

struct estimate {
    double prior, strength, shrunk, low, high; /* mu, M */
};

struct row {
    struct life_row of;
    int64_t age, at_risk, selected;
    double rate;
    struct estimate e;
};

static int choose(struct frame *f, struct kvf_diag *d)
{
    static const char *const family[] = {"selected_at"};
    struct plan *p = f->state;
    int err = life_choose(f, f->options, &p->life, d);
    p->T = f->T;
    p->a = f->a;
    p->b = f->b;
    p->grace = p->life.plan[0].grace;
    while (p->n_ages < MOST_AGES && (int64_t)1 << p->n_ages < p->T)
        p->n_ages++;
    if (!err)
        err = life_columns(f, &p->life, family, 1, NULL, d);
    for (int k = 0; !err && k < p->life.of.n_criteria; k++)
        if (kvf_column(f->t, p->life.column[k])->dtype != KVF_U32)
            err = kvf_fail(d, KVF_E_FORMAT, "the column %s must be of 32 bits",
                           kvf_column(f->t, p->life.column[k])->name);
    return err;
}

/* Cells of a criterion. */
static size_t cells_of(const struct plan *p)
{
    return (size_t)(p->n_heads + 1) * (size_t)p->life.of.groups.n * MOST_AGES;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    p->n_heads = f->heads.n;
    p->cells = FRAME_NEW(f, struct cell, cells_of(p) * (size_t)p->life.of.n_criteria);
    p->estimate = FRAME_NEW(f, struct estimate, cells_of(p));
    return life_prepare(f, p->n_ages ? p->life.of.n_criteria : 0, p->n_ages);
}

static void thread(struct frame *f, void *scratch)
{
    *(struct scratch *)scratch = (struct scratch){FRAME_NEW(f, uint32_t, (size_t)f->T),
                                                  FRAME_NEW(f, uint32_t, (size_t)f->T)};
}

/* ---- counts */

static struct cell *cell_at(const struct plan *p, struct cell *c, int head, int group, int age)
{
    return c + ((size_t)head * (size_t)p->life.of.groups.n + (size_t)group) * MOST_AGES + age;
}

/* The first token, and so all that follow, that is not at risk at the age 2^k. */
static int64_t end_at(const struct plan *p, int k)
{
    int64_t end = p->T - p->grace < p->b ? p->T - p->grace : p->b;
    int64_t stop = p->T - ((int64_t)1 << k);
    return stop < end ? stop : end;
}

static void count(const struct plan *p, const uint32_t *mask, int head, struct cell *c)
{
    int64_t end = p->T - p->grace < p->b ? p->T - p->grace : p->b;
    if (p->life.of.groups.n == 1) {
        for (int k = 0; k < p->n_ages; k++) {
            int64_t stop = end_at(p, k);
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
        int group = p->life.of.groups.of ? p->life.of.groups.of[i] : 0;
        for (int k = 0; k < p->n_ages && i + ((int64_t)1 << k) < p->T; k++)
            for (int g = 0; g <= group; g += group ? group : 1) { /* all, and its class */
                struct cell *x = cell_at(p, c, head, g, k);
                x->n++;
                x->yes += mask[i - p->a] >> k & 1;
            }
    }
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    const struct plan *p = f->state;
    const struct scratch *w = x->scratch;
    uint32_t a = (uint32_t)p->a, n = (uint32_t)(p->b - p->a);
    int column = p->life.column[x->item];
    struct unit u;
    int err = unit_of(x->t, p->life.of.space, x->head, &u, d);
    for (int m = 0; !err && m < u.members; m++) {
        const void *view = w->any;
        int first = u.first + m * u.heads;
        if (u.heads == 1 && n)
            err = kvf_view(x->t, column, u.layer, first, a, n, &view, d);
        else
            memset(w->any, 0, n * sizeof *w->any);
        for (int q = 0; !err && u.heads > 1 && q < u.heads && n; q++) {
            err = kvf_read(x->t, column, u.layer, first + q, a, n, w->one, d);
            for (uint32_t i = 0; !err && i < n; i++)
                w->any[i] |= w->one[i];
        }
        if (!err)
            count(p, view, x->h, p->cells + cells_of(p) * (size_t)x->item);
    }
    return err;
}

static void count_all(const struct plan *p, struct cell *c)
{
    for (int h = 0; h < p->n_heads; h++)
        for (int g = 0; g < p->life.of.groups.n; g++)
            for (int k = 0; k < p->n_ages; k++) {
                struct cell *all = cell_at(p, c, p->n_heads, g, k);
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

/* M: 0 if the data cannot determine it, and at most the number of tokens that it is estimated
 * from. */
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
static void find_strengths(struct plan *p, int k)
{
    struct moments between = {0}, within = {0};
    int H = p->n_heads, G = p->life.of.groups.n;
    const struct cell *all = cell_at(p, p->cell, H, 0, k);
    add_moments(&between, all, cell_at(p, p->cell, 0, 0, k), H, (size_t)G * MOST_AGES);
    for (int h = 0; h < H; h++)
        add_moments(&within, cell_at(p, p->cell, h, 0, k), cell_at(p, p->cell, h, G > 1, k), G - 1,
                    MOST_AGES);
    p->strength_heads[k] = strength(&between);
    p->strength_classes[k] = strength(&within);
}

/* Estimates of a head, or of all heads together (h the number of heads), at an age. */
static void shrink_head(const struct plan *p, int k, int h, struct quantiles *v)
{
    int H = p->n_heads, G = p->life.of.groups.n;
    struct estimate *x = p->estimate + ((size_t)k * (size_t)(H + 1) + (size_t)h) * (size_t)G;
    bool one = h < H;
    shrink(cell_at(p, p->cell, h, 0, k), one ? rate(cell_at(p, p->cell, H, 0, k)) : NAN,
           one ? p->strength_heads[k] : 0, v, x);
    for (int g = 1; g < G; g++)
        shrink(cell_at(p, p->cell, h, g, k), one ? x->shrunk : NAN,
               one ? p->strength_classes[k] : 0, v, x + g);
}

static void shrink_ages(const struct plan *p, int h)
{
    struct quantiles v = {.n = 0};
    for (int k = 0; k < p->n_ages; k++)
        shrink_head(p, k, h, &v);
    find_quantiles(&v);
}

static int shrink_one(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    (void)d;
    shrink_ages(f->state, x->h);
    return KVF_OK;
}

/* ---- the table */

static void put_rows(const struct frame *f, int item)
{
    const struct plan *p = f->state;
    static const struct estimate none = {NAN, NAN, NAN, NAN, NAN};
    int H = f->heads.n, G = p->life.of.groups.n;
    struct row *r = life_rows_at(f, item, 0);
    const struct estimate *e = p->estimate;
    for (int k = 0; k < p->n_ages; k++) {
        bool enough = end_at(p, k) - p->a >= p->life.at_least;
        for (int h = 0; h <= H; h++)
            for (int g = 0; g < G; g++, e++) {
                const struct cell *x = cell_at(p, p->cell, h, g, k);
                r[(h * G + g) * p->n_ages + k] = (struct row){
                    life_row_of(f, item, h, g), (int64_t)1 << k,   x->n, x->yes,
                    enough ? rate(x) : NAN,     enough ? *e : none};
            }
    }
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    int err = KVF_OK;
    for (int item = 0; !err && item < f->items; item++) {
        p->cell = p->cells + cells_of(p) * (size_t)item;
        count_all(p, p->cell);
        for (int k = 0; k < p->n_ages; k++)
            find_strengths(p, k);
        shrink_ages(p, f->heads.n);
        err = frame_pass(f, 1, shrink_one, d);
        put_rows(f, item);
    }
    return err;
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    LIFE_ROW_MEMBERS,
    {"age", "step", TABLE_INT, AT(age)},
    {"at_risk", "", TABLE_INT, AT(at_risk)},
    {"selected", "", TABLE_INT, AT(selected)},
    {"rate", "", TABLE_REAL, AT(rate)},
    {"shrunk", "", TABLE_REAL, AT(e.shrunk)},
    {"low", "", TABLE_REAL, AT(e.low)},
    {"high", "", TABLE_REAL, AT(e.high)},
    {"prior", "", TABLE_REAL, AT(e.prior)},
    {"strength", "", TABLE_REAL, AT(e.strength)},
};

static void describe(const struct table *t, struct buf *out)
{
    const char *current = "";
    if (table_rows(t) == 0)
        buf_str(out, "no ages\n");
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_row_str(t, r, "criterion");
        if (!life_row_is_all(t, r))
            continue;
        if (strcmp(current, name) != 0)
            buf_printf(out, "%s: share of tokens selected at an age\n", current = name);
        buf_printf(out, "  %-6lld %.4f of %lld\n", (long long)table_row_int(t, r, "age"),
                   table_row_real(t, r, "rate"), (long long)table_row_int(t, r, "at_risk"));
    }
}

const struct analyzer an_persistence = {
    .name = "persistence",
    .summary = "how often tokens are selected again at ages of powers of two",
    .example = "kvfate survival --as persistence run.kvf -o persistence.png",
    OPTIONS(LIFE_OPTION_CRITERION("top64 ... top512, mass.90 ... mass.99, a list, or all", "top64"),
            {OPT_INT, 0, "grace", offsetof(struct life_options, grace), "W",
             "omit tokens with fewer later queries", "32", .max = INT32_MAX},
            LIFE_OPTION_AT_LEAST("omit ages with fewer tokens at risk"), LIFE_OPTION_SPACE,
            LIFE_OPTION_GROUPS),
    COLUMNS(
        {"selected_at.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "always, of --criterion"}),
    HEADS(FRAME_TYPES(struct plan, struct scratch), FRAME_RECORDS(struct row), .choose = choose,
          .prepare = prepare, .thread = thread, .head = head, .finish = finish,
          .rows = life_put_metadata, .close = life_close),
    .describe = describe,
    POOL(KEYS(LIFE_KEYS, "age"), {"rate", "selected", "at_risk"}, {"shrunk"}),
};
