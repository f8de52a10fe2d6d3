/* an_dilution.c - attention to irrelevant entries (dilution) (Nguyen et al. 2026,
 * section 3.1).  Of query t, its weights w over all entries 0 .. t and the useful ones U:
 *   dilution           1 - sum_U w                                           (eq. 7)
 *   rho_u, rho_d       fraction of the mass in U and outside that retention keeps
 *   dilution_retained  the same under retention, from the weights themselves
 *   bound              largest over Delta of x / (1 + x), x = e^-Delta |D'(Delta)| / |U|
 *                      (proposition 3.1)
 * and from corollary 3.2, to be compared with dilution_retained,
 *   rho_d delta / (rho_u (1 - delta) + rho_d delta).
 * Rows of a head `all` are means over heads. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/frame.h"
#include "libtrace/run_header.h"
#include "base/stats.h"

/* ---- proposition 3.1 of Nguyen et al.  2026: the largest for each query of x = e^-Delta
 * |D'(Delta)| / |U| over Delta = 0, 1/2, ..., with D'(Delta) the entries outside U that have a
 * score within Delta of the largest. */

enum { N_NEAR = 16 };

struct near {
    const int *column;  /* [N_NEAR] entries within Delta = j / 2 of the largest score */
    int64_t a, n;       /* steps a .. a + n - 1 */
    bool prefix;        /* U is a prefix of the order of scores: as many of those near are its own
                           as it has; else columns count entries outside U */
    const double *size; /* [n] |U| */
    double *x, *delta;  /* [n] results: 0 and NaN if no entry is near */
    double *scratch;    /* [n] */
};

/* The larger of most[k] and e^-Delta |D'(Delta)| at each of n steps, and the first Delta that
 * has it; both times |U|, which is taken out at the end.  Where U is empty it is infinite as soon
 * as anything is near.  In a prefix of the order of weights, as many of the entries near the
 * largest as it has are its own. */
#define RAISE_BOUNDS(type)                                                                         \
    const type *restrict near = from;                                                              \
    for (int64_t k = 0; k < n; k++) {                                                              \
        double here = (double)near[k], some = here > 0 ? 1 : 0;                                    \
        double x = scale * (here - own * size[k]), y = most[k], z = delta[k];                      \
        x = size[k] == 0 ? some : x;                                                               \
        most[k] = x > y ? x : y;                                                                   \
        delta[k] = x > y ? at : z;                                                                 \
    }
typedef void (*raise_fn)(const void *restrict from, int64_t n, double own, double at, double scale,
                         const double *restrict size, double *restrict most,
                         double *restrict delta);
#define RAISE(name, type, attribute)                                                               \
    attribute static void name(const void *restrict from, int64_t n, double own, double at,        \
                               double scale, const double *restrict size, double *restrict most,   \
                               double *restrict delta)                                             \
    {                                                                                              \
        RAISE_BOUNDS(type)                                                                         \
    }
RAISE(raise_reals, double, )
RAISE(raise_counts, uint16_t, )
#if defined(__x86_64__)
RAISE(raise_counts_avx2, uint16_t, __attribute__((target("avx2"))))
#endif
#undef RAISE
#undef RAISE_BOUNDS

static raise_fn raise_of(bool narrow)
{
#if defined(__x86_64__)
    if (narrow && __builtin_cpu_supports("avx2"))
        return raise_counts_avx2;
#endif
    return narrow ? raise_counts : raise_reals;
}

/* This many columns are read before they are used, in parts of this many steps.  So the results
 * pass through the CPU caches once for all columns. */
enum { TOGETHER = 4, PART = 512 };

static bool is_narrow(const struct kvf_trace *t, const struct near *w, int j)
{
    const struct kvf_column *c = kvf_column(t, w->column[j]);
    return c->dtype == KVF_U16 && !(c->flags & KVF_COL_AGE);
}

/* The columns j .. j + TOGETHER - 1, of 16 bits. */
static int raise_together(struct kvf_trace *t, const struct head *h, const struct near *w, int j,
                          struct kvf_diag *d)
{
    const uint16_t *near[TOGETHER];
    raise_fn raise = raise_of(true);
    for (int i = 0; i < TOGETHER; i++) {
        uint16_t *copy = (uint16_t *)w->scratch + i * w->n;
        const void *raw;
        int err = kvf_view(t, w->column[j + i], h->layer, h->index, (uint32_t)w->a, (uint32_t)w->n,
                           &raw, d);
        if (err)
            return err;
        near[i] = i + 1 < TOGETHER ? memcpy(copy, raw, (size_t)w->n * sizeof *copy) : raw;
    }
    for (int64_t k = 0; k < w->n; k += PART)
        for (int i = 0; i < TOGETHER; i++) {
            double at = 0.5 * (j + i);
            raise(near[i] + k, w->n - k < PART ? w->n - k : PART, w->prefix ? 1 : 0, at, exp(-at),
                  w->size + k, w->x + k, w->delta + k);
        }
    return KVF_OK;
}

static int raise_one(struct kvf_trace *t, const struct head *h, const struct near *w, int j,
                     struct kvf_diag *d)
{
    const void *near = w->scratch;
    double at = 0.5 * j;
    bool narrow = is_narrow(t, w, j);
    uint32_t a = (uint32_t)w->a, n = (uint32_t)w->n;
    int err = narrow ? kvf_view(t, w->column[j], h->layer, h->index, a, n, &near, d)
                     : kvf_read_f64(t, w->column[j], h->layer, h->index, a, n, w->scratch, d);
    if (!err)
        raise_of(narrow)(near, w->n, w->prefix ? 1 : 0, at, exp(-at), w->size, w->x, w->delta);
    return err;
}

static int near_bounds(struct kvf_trace *t, const struct head *h, const struct near *w,
                       struct kvf_diag *d)
{
    int err = KVF_OK;
    bool narrow = true;
    for (int64_t k = 0; k < w->n; k++) {
        w->x[k] = 0;
        w->delta[k] = NAN;
    }
    for (int j = 0; j < N_NEAR; j++)
        narrow &= is_narrow(t, w, j);
    for (int j = 0; !err && j < N_NEAR; j += narrow ? TOGETHER : 1)
        err = narrow ? raise_together(t, h, w, j, d) : raise_one(t, h, w, j, d);
    for (int64_t k = 0; k < w->n; k++) {
        double share = w->x[k] / w->size[k];
        w->x[k] = w->x[k] > 0 ? share : w->x[k];
    }
    return err;
}

/* ---- which entries count as useful in an analysis of dilution. */

struct useful_set {
    char set[KVF_NAME_MAX / 2]; /* in names: "top64", "mass.90", "slack.1", "span", "plan" */
    char text[KVF_NAME_MAX];    /* the same as the option has it */
    bool prefix;                /* U is a prefix of the order of weights */
    int top;                    /* K of topk:K; 0: sizes are recorded */
};

/* Sets *ret to true if a name is the only useful span of the run: its set is then `span`. */
static int is_all_spans(const struct kvf_trace *t, const char *name, bool *ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    int useful = 0;
    bool mine = false;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    for (const struct json *s = json_first(json_get(root, "spans")); s; s = json_next(s))
        if (json_bool(json_get(s, "useful"), true)) {
            useful++;
            mine |= strcmp(json_str(json_get(s, "name"), ""), name) == 0;
        }
    json_free(root);
    *ret = mine && useful == 1;
    return KVF_OK;
}

/* The number of text in the recorded list, or -1. */
static int recorded(const char *text, const double *numbers, int n)
{
    char *end;
    double v = strtod(text, &end);
    for (int i = 0; i < n; i++)
        if (end != text && !*end && v == numbers[i])
            return i;
    return -1;
}

static int useful_parse(const struct kvf_trace *t, const char *text, struct useful_set *p,
                        struct kvf_diag *d)
{
    static const double tops[] = {64, 128, 256, 512}, masses[] = {.90, .95, .99},
                        slacks[] = {1, 2, 4};
    int i = -1;
    if (!text)
        text = kvf_find(t, "useful.span") >= 0 ? "span" : "topk:64";
    snprintf(p->text, sizeof p->text, "%s", text);
    bool span = strncmp(text, "span:", 5) == 0 && text[5] && strlen(text) <= 21;
    if (strcmp(text, "span") == 0 || span) {
        bool all = true;
        int err = span ? is_all_spans(t, text + 5, &all, d) : KVF_OK;
        snprintf(p->set, sizeof p->set, "span%s%s", all ? "" : ".", all ? "" : text + 5);
        return err;
    }
    if (strcmp(text, "plan") == 0) {
        snprintf(p->set, sizeof p->set, "plan");
        return KVF_OK;
    }
    p->prefix = true;
    if (strncmp(text, "topk:", 5) == 0) {
        i = recorded(text + 5, tops, 4);
        p->top = i < 0 ? 0 : (int)tops[i];
        snprintf(p->set, sizeof p->set, "top%d", p->top);
    } else if (strncmp(text, "mass:", 5) == 0) {
        i = recorded(text + 5, masses, 3);
        snprintf(p->set, sizeof p->set, "mass.%d", i < 0 ? 0 : (int)(100 * masses[i] + .5));
    } else if (strncmp(text, "topk-slack:", 11) == 0) {
        i = recorded(text + 11, slacks, 3);
        snprintf(p->set, sizeof p->set, "slack.%d", i < 0 ? 0 : (int)slacks[i]);
    }
    if (i < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--useful: '%s' is unknown; use span, span:NAME, plan, "
                        "topk:64|128|256|512, mass:0.90|0.95|0.99 or topk-slack:1|2|4",
                        text);
    return KVF_OK;
}

static const char *const weight_words[] = {"run", "beta", NULL};
struct options {
    const char *useful;
    int weights;
    int64_t every; /* 0: not given */
    bool mean, after_prompt;
};

enum value { DILUTION, USEFUL, RHO_U, RHO_D, RETAINED, BOUND, ORACLE, SIZE, DELTA, N_VALUES };
static const char *const value_names[N_VALUES] = {
    "dilution", "useful_mass",     "rho_u",          "rho_d",      "dilution_retained",
    "bound",    "dilution_oracle", "useful_entries", "bound_delta"};

/* Columns of one head; -1: the trace lacks it. */
enum {
    IN_USEFUL,
    IN_DILUTION,
    IN_KEPT,
    IN_RHO_U,
    IN_RHO_D,
    IN_SIZE,
    IN_ORACLE,
    IN_NEAR,
    N_IN = IN_NEAR + N_NEAR,
    BOUND_X = IN_NEAR,
    BOUND_DELTA,
    BOUND_SIZE,
    ONE_NEAR,
    N_ARRAYS
}; /* and the results */

struct means {
    struct sum sum[N_VALUES];
    int64_t n[N_VALUES];
    int64_t compared, preferential; /* steps with both rho, and steps with rho_d <= rho_u */
};

struct plan {
    struct useful_set useful;
    bool beta, mean;
    int column[N_IN];
    int64_t a, b;            /* steps [a, b) */
    int64_t every, n;        /* every how many steps; rows per head */
    int64_t sampled;         /* only steps that it divides are recorded */
    int64_t prompt;          /* first step after the prompt; -1: not known */
    double *value[N_VALUES]; /* [(heads + 1) * n]; block `all` is the last */
    int64_t *count[3];       /* the same: n, compared, preferential */
    struct means *head;      /* [heads + 1] over all steps, shown or not */
    struct means *later;     /* [heads] over the steps after the prompt */
    struct means after;      /* the same of all heads */
    bool idle;               /* every query shown saw all entries */
    double identity;         /* largest difference of the two ways to dilution_retained */
    int64_t above;           /* (head, step) pairs with a bound above the dilution */
};

static void add(struct means *m, const double *v)
{
    for (int k = 0; k < N_VALUES; k++)
        if (!isnan(v[k])) {
            sum_add(&m->sum[k], v[k]);
            m->n[k]++;
        }
    if (!isnan(v[RHO_U]) && !isnan(v[RHO_D])) {
        m->compared++;
        m->preferential += v[RHO_D] <= v[RHO_U];
    }
}

static double mean_of(const struct means *m, int k)
{
    return m->n[k] && k != DELTA ? sum_get(&m->sum[k]) / (double)m->n[k] : NAN;
}

/* |U| at step a + k. */
static double size_at(const struct plan *p, double *const *in, int64_t k)
{
    double steps = (double)(p->a + k + 1);
    if (!p->useful.top)
        return in[IN_SIZE][k];
    return steps < p->useful.top ? steps : p->useful.top;
}

/* Proposition 3.1: the largest x and its Delta at each step. */
static int find_bounds(struct kvf_trace *t, const struct head *h, const struct plan *p,
                       double *const *in, struct kvf_diag *d)
{
    for (int64_t k = 0; k < p->b - p->a; k++)
        in[BOUND_SIZE][k] = size_at(p, in, k);
    const struct near near = {p->column + IN_NEAR, p->a,        p->b - p->a,     p->useful.prefix,
                              in[BOUND_SIZE],      in[BOUND_X], in[BOUND_DELTA], in[ONE_NEAR]};
    return near_bounds(t, h, &near, d);
}

enum { BLOCK = 512 };

struct work {             /* of one thread */
    double *in[N_ARRAYS]; /* [b - a] each */
    double v[N_VALUES][BLOCK];
    double identity;
    int64_t above;
};

/* Values of n steps from a + k0 on, n up to BLOCK. */
static void values(const struct plan *p, struct work *w, int64_t k0, int64_t n)
{
    const double *restrict useful = w->in[IN_USEFUL] + k0, *restrict x = w->in[BOUND_X] + k0;
    const double *restrict best = w->in[IN_ORACLE] + k0;
    const int of[] = {DILUTION, RHO_U, RHO_D, SIZE, DELTA};
    const int from[] = {IN_DILUTION, IN_RHO_U, IN_RHO_D, BOUND_SIZE, BOUND_DELTA};
    bool own = p->column[IN_KEPT] >= 0, oracle = p->useful.prefix;
    for (int c = 0; c < 5; c++) {
        double *restrict to = w->v[of[c]];
        const double *restrict in = w->in[from[c]] + k0;
        bool one = !own && (of[c] == RHO_U || of[c] == RHO_D);
        for (int64_t i = 0; i < n; i++) {
            double v = one ? 1 : in[i];
            to[i] = isnan(useful[i]) ? NAN : v;
        }
    }
    double *restrict retained = w->v[RETAINED], *restrict bound = w->v[BOUND];
    double *restrict apart = w->v[ORACLE];
    const double *restrict rest = own ? w->in[IN_KEPT] + k0 : w->v[DILUTION];
    for (int64_t i = 0; i < n; i++) {
        double share = useful[i] / best[i], far = 1 - (share < 1 ? share : 1);
        retained[i] = own ? 1 - rest[i] : rest[i];
        bound[i] = isnan(useful[i]) ? NAN : x[i] / (1 + x[i]);
        apart[i] = oracle && !isnan(useful[i]) && !isnan(best[i]) ? far : NAN;
    }
    memcpy(w->v[USEFUL], useful, (size_t)n * sizeof *useful);
}

/* The two ways to dilution_retained, and the bound; NaN gives no result. */
static void check_values(struct work *w, int64_t n)
{
    const double *restrict rho_u = w->v[RHO_U], *restrict rho_d = w->v[RHO_D];
    const double *restrict useful = w->v[USEFUL], *restrict rest = w->v[DILUTION];
    const double *restrict retained = w->v[RETAINED], *restrict bound = w->v[BOUND];
    double most = w->identity;
    int32_t above = 0;
    for (int32_t i = 0; i < (int32_t)n; i++) {
        double top = rho_d[i] * rest[i], all = rho_u[i] * useful[i] + top;
        double off = fabs(retained[i] - top / all);
        most = off > most ? off : most;
        above += bound[i] > rest[i] + 1e-6;
    }
    w->identity = most;
    w->above += above;
}

static void add_block(struct means *m, double (*v)[BLOCK], int64_t n)
{
    for (int k = 0; k < N_VALUES; k++)
        m->n[k] += sum_add_known(&m->sum[k], v[k], n);
    int32_t compared = 0, preferential = 0;
    for (int32_t i = 0; i < (int32_t)n; i++) {
        compared += !isnan(v[RHO_U][i]) & !isnan(v[RHO_D][i]);
        preferential += v[RHO_D][i] <= v[RHO_U][i];
    }
    m->compared += compared;
    m->preferential += preferential;
}

static void merge(struct means *to, const struct means *m)
{
    for (int k = 0; k < N_VALUES; k++) {
        sum_merge(&to->sum[k], &m->sum[k]);
        to->n[k] += m->n[k];
    }
    to->compared += m->compared;
    to->preferential += m->preferential;
}

/* Fills the rows of head h for the steps that are shown, of n steps from a + k0 on. */
static void put_steps(struct plan *p, int h, const struct work *w, int64_t k0, int64_t n)
{
    for (int64_t r = (k0 + p->every - 1) / p->every; r * p->every < k0 + n; r++) {
        struct means one = {0};
        double v[N_VALUES];
        int64_t row = h * p->n + r;
        for (int i = 0; i < N_VALUES; i++)
            p->value[i][row] = v[i] = w->v[i][r * p->every - k0];
        add(&one, v);
        p->count[0][row] = one.n[DILUTION];
        p->count[1][row] = one.compared;
        p->count[2][row] = one.preferential;
    }
}

static void take_head(struct plan *p, int h, struct work *w)
{
    int64_t n = p->b - p->a, prompt = p->prompt < 0 || p->prompt > p->b ? n : p->prompt - p->a;
    prompt = prompt < 0 ? 0 : prompt;
    for (int64_t k = 0, end; k < n; k = end) {
        int64_t stop = k < prompt ? prompt : n;
        end = k + BLOCK < stop ? k + BLOCK : stop;
        values(p, w, k, end - k);
        check_values(w, end - k);
        add_block(k < prompt ? &p->head[h] : &p->later[h], w->v, end - k);
        if (!p->mean)
            put_steps(p, h, w, k, end - k);
    }
    merge(&p->head[h], &p->later[h]);
}

static void put_means(struct plan *p, int64_t row, const struct means *m)
{
    for (int i = 0; i < N_VALUES; i++)
        p->value[i][row] = mean_of(m, i);
    p->count[0][row] = m->n[DILUTION];
    p->count[1][row] = m->compared;
    p->count[2][row] = m->preferential;
}

static int read_head(struct kvf_trace *t, const struct head *h, const struct plan *p,
                     double *const *in, struct kvf_diag *d)
{
    int err = KVF_OK;
    uint32_t n = (uint32_t)(p->b - p->a);
    for (int c = 0; !err && c < IN_NEAR; c++)
        if (p->column[c] >= 0)
            err = kvf_read_f64(t, p->column[c], h->layer, h->index, (uint32_t)p->a, n, in[c], d);
    return err ? err : find_bounds(t, h, p, in, d);
}

static void thread(struct frame *f, void *scratch)
{
    struct work *w = scratch;
    size_t n = (size_t)(f->b - f->a);
    for (int k = 0; k < N_ARRAYS; k++) {
        w->in[k] = FRAME_NEW(f, double, n);
        for (size_t i = 0; w->in[k] && k < IN_NEAR && i < n; i++)
            w->in[k][i] = NAN; /* so it stays where the trace has no column */
    }
}

static int head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d)
{
    struct work *w = x->scratch;
    int err = read_head(x->t, x->head, f->state, w->in, d);
    if (!err)
        take_head(f->state, x->h, w);
    return err;
}

/* Over the heads, in their order: at each step shown, and over all steps. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    int n = f->heads.n;
    (void)d;
    for (int h = 0; h < n; h++) {
        merge(&p->head[n], &p->head[h]);
        merge(&p->after, &p->later[h]);
    }
    for (int i = 0; i < f->n_threads; i++) {
        const struct work *w = frame_scratch(f, i);
        p->above += w->above;
        p->identity = w->identity > p->identity ? w->identity : p->identity;
    }
    for (int h = 0; p->mean && p->n && h <= n; h++)
        put_means(p, h, &p->head[h]);
    for (int64_t r = 0; !p->mean && r < p->n; r++) {
        struct means step = {0};
        for (int h = 0; h < n; h++) {
            double v[N_VALUES];
            for (int i = 0; i < N_VALUES; i++)
                v[i] = p->value[i][h * p->n + r];
            add(&step, v);
        }
        put_means(p, n * p->n + r, &step);
    }
    return KVF_OK;
}

static void put_summary(struct table *out, const struct head_list *heads, const struct plan *p)
{
    const struct means *all = &p->head[heads->n];
    int64_t pairs = heads->n * (p->b - p->a);
    char key[64];
    int worst = -1;
    for (int k = 0; k < N_VALUES; k++) {
        snprintf(key, sizeof key, "mean_%s", value_names[k]);
        if (!isnan(mean_of(all, k)))
            table_meta_num(out, key, mean_of(all, k));
        snprintf(key, sizeof key, "mean_%s_after_prompt", value_names[k]);
        if (!isnan(mean_of(&p->after, k)))
            table_meta_num(out, key, mean_of(&p->after, k));
    }
    for (int h = 0; h < heads->n; h++)
        if (p->head[h].n[DILUTION]
            && (worst < 0 || mean_of(&p->head[h], DILUTION) > mean_of(&p->head[worst], DILUTION)))
            worst = h;
    if (worst >= 0) {
        table_meta_str(out, "worst_head", heads->name[worst]);
        table_meta_num(out, "worst_dilution", mean_of(&p->head[worst], DILUTION));
    }
    table_meta_num(out, "pairs", (double)pairs);
    table_meta_num(out, "undefined", (double)(pairs - all->n[DILUTION]));
    table_meta_num(out, "undefined_retained", (double)(pairs - all->n[RETAINED]));
    table_meta_num(out, "compared", (double)all->compared);
    table_meta_num(out, "preferential", (double)all->preferential);
    if (p->prompt >= 0) {
        table_meta_num(out, "compared_after_prompt", (double)p->after.compared);
        table_meta_num(out, "preferential_after_prompt", (double)p->after.preferential);
    }
    table_meta_num(out, "identity_difference", p->identity);
    table_meta_num(out, "bound_above_dilution", (double)p->above);
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    static const char *const counts[3] = {"defined", "compared", "preferential"};
    const struct plan *p = f->state;
    int err = put_heads_all(out, &f->heads);
    if (!err && p->sampled > 1)
        err = put_sampled(out, f->t, "dilution", d);
    put_tokens(out, p->a, p->b, f->T);
    table_meta_str(out, "useful", p->useful.text);
    table_meta_str(out, "weights", p->beta ? "beta" : "run");
    if (p->idle)
        table_meta_str(out, "retention", "never acted");
    if (!p->mean)
        table_meta_num(out, "every", (double)p->every);
    put_summary(out, &f->heads, p);
    table_affine(out, "step", "step", p->mean ? -1 : p->a, p->mean ? 0 : p->every, p->n);
    for (int k = 0; k < N_VALUES; k++)
        table_dense_real(out, value_names[k], "", p->value[k]);
    for (int k = 0; k < 3; k++)
        table_dense_int(out, counts[k], "", p->count[k]);
    return err;
}

static void of_length(void *asked, int64_t T)
{
    struct options *o = asked;
    if (!o->mean)
        o->every = steps_every(o->every, T);
}

/* Selects the steps after the prompt among the steps [f->a, f->b). */
static int skip_prompt(struct frame *f, struct kvf_diag *d)
{
    int64_t prompt;
    int err = prompt_tokens(f->t, &prompt, d);
    if (err)
        return err;
    if (prompt < 0 || prompt >= f->b)
        return kvf_fail(d, KVF_E_ARG, "--after-prompt: the trace %s",
                        prompt < 0 ? "does not record the length of its prompt"
                                   : "has no selected steps after its prompt");
    f->a = f->a > prompt ? f->a : prompt;
    return KVF_OK;
}

static int parse(struct frame *f, struct plan *p, struct kvf_diag *d)
{
    const struct options *o = f->options;
    int skipped = o->after_prompt ? skip_prompt(f, d) : KVF_OK;
    if (skipped)
        return skipped;
    int64_t T = f->b - f->a;
    if (o->every && o->mean)
        return kvf_fail(d, KVF_E_ARG,
                        "--every and --mean exclude each other: a mean is over all "
                        "steps");
    *p = (struct plan){.beta = o->weights == 1,
                       .mean = o->mean,
                       .a = f->a,
                       .b = f->b,
                       .every = steps_every(o->every, T)};
    int err = prompt_tokens(f->t, &p->prompt, d);
    if (!err)
        err = trace_number(f->t, "run", "dilution_every", 1, &p->sampled, d);
    if (!err && p->sampled < 1)
        err = kvf_fail(d, KVF_E_FORMAT, "run.dilution_every of the run header must be 1 or more");
    if (err)
        return err;
    if (!o->every && p->a % p->sampled == 0) /* rows of recorded steps only */
        p->every = (p->every + p->sampled - 1) / p->sampled * p->sampled;
    p->n = p->mean ? T > 0 : T / p->every + (T % p->every != 0);
    return useful_parse(f->t, o->useful, &p->useful, d);
}

/* A column of query heads and steps; l: of the columns that are needed, or NULL. */
static int find(const struct kvf_trace *t, const struct plan *p, const char *kind, struct lacks *l,
                int *ret, struct kvf_diag *d)
{
    char name[2 * KVF_NAME_MAX];
    snprintf(name, sizeof name, kind, p->useful.set);
    return columns_find(t, name, KVF_SPACE_QUERY, KVF_AXIS_STEP, l, ret, d);
}

static int find_columns(const struct kvf_trace *t, struct plan *p, struct kvf_diag *d)
{
    const struct {
        const char *kind;
        int place;
        bool needed;
    } wanted[] = {{"useful.%s", IN_USEFUL, true},
                  {"dilution.%s", IN_DILUTION, true},
                  {"size.%s", IN_SIZE, true},
                  {p->beta ? "beta.kept.%s" : "kept.%s", IN_KEPT, p->beta},
                  {p->beta ? "beta.rho_u.%s" : "rho_u.%s", IN_RHO_U, false},
                  {p->beta ? "beta.rho_d.%s" : "rho_d.%s", IN_RHO_D, false},
                  {"shadow.oracle_mass", IN_ORACLE, false}};
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    for (size_t i = 0; !err && i < sizeof wanted / sizeof *wanted; i++)
        err = find(t, p, wanted[i].kind, wanted[i].needed ? &l : NULL, &p->column[wanted[i].place],
                   d);
    bool near = true;
    for (int k = 0; !err && k < N_NEAR; k++) {
        char name[KVF_NAME_MAX];
        snprintf(name, sizeof name, p->useful.prefix ? "near.all.%d" : "near.%%s.%d", k);
        err = find(t, p, name, NULL, &p->column[IN_NEAR + k], d);
        near &= p->column[IN_NEAR + k] >= 0;
    }
    if (!err && !near)
        lacks_add(&l, t, p->useful.prefix ? "near.all.*" : "near.span.*");
    return columns_refuse(&l, NULL, err, d);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    int err = parse(f, p, d);
    if (!err)
        err = find_columns(f->t, p, d);
    if (!err && !p->beta && p->column[IN_KEPT] >= 0)
        p->idle = saw_everything(f->t, (uint32_t)p->b);
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *p = f->state;
    (void)d;
    f->items = p->b > p->a;
    f->n_rows = (f->heads.n + 1) * p->n;
    p->head = FRAME_NEW(f, struct means, (size_t)f->heads.n + 1);
    p->later = FRAME_NEW(f, struct means, (size_t)f->heads.n);
    for (int k = 0; k < N_VALUES; k++)
        p->value[k] = FRAME_NEW(f, double, (size_t)f->n_rows);
    for (int k = 0; k < 3; k++)
        p->count[k] = FRAME_NEW(f, int64_t, (size_t)f->n_rows);
    return KVF_OK;
}

static double number(const struct table *t, const char *key)
{
    return table_meta_real(t, key, NAN);
}

/* rho and their comparison; kind "" or "_after_prompt". */
static void describe_rho(const struct table *t, const char *kind, struct buf *out)
{
    char u[48], d[48], yes[48], of[48];
    snprintf(u, sizeof u, "mean_rho_u%s", kind);
    snprintf(d, sizeof d, "mean_rho_d%s", kind);
    snprintf(yes, sizeof yes, "preferential%s", kind);
    snprintf(of, sizeof of, "compared%s", kind);
    if (number(t, of) > 0)
        buf_printf(out,
                   "%srho_u %.4f, rho_d %.4f; rho_d <= rho_u in %.0f of %.0f head-step "
                   "pairs\n",
                   kind[0] ? "after the prompt " : "", number(t, u), number(t, d), number(t, yes),
                   number(t, of));
}

static void describe_retention(const struct table *t, struct buf *out)
{
    if (number(t, "mean_rho_u") == 1 && number(t, "mean_rho_d") == 1) {
        buf_str(out, "nothing was evicted: retention has no effect\n");
        return;
    }
    if (isnan(number(t, "mean_dilution_retained")))
        return;
    if (table_meta(t, "retention")) {
        buf_str(out, "retention had no effect in this run: no query attended to an evicted entry, "
                     "so that the values with and without it are equal\n");
        return;
    }
    buf_printf(out, "under retention (%s) %.4f", table_meta(t, "weights"),
               number(t, "mean_dilution_retained"));
    if (!isnan(number(t, "mean_dilution_retained_after_prompt")))
        buf_printf(out, ", after the prompt %.4f",
                   number(t, "mean_dilution_retained_after_prompt"));
    if (!isnan(number(t, "mean_dilution_oracle")))
        buf_printf(out, "; with the largest weights of as many entries %.4f",
                   number(t, "mean_dilution_oracle"));
    buf_str(out, "\n");
    describe_rho(t, "", out);
    describe_rho(t, "_after_prompt", out);
    if (number(t, "compared") > 0)
        buf_printf(out, "the error of corollary 3.2 is at most %.1e\n",
                   number(t, "identity_difference"));
}

static void describe(const struct table *t, struct buf *out)
{
    double pairs = number(t, "pairs"), undefined = number(t, "undefined");
    buf_printf(out, "useful: %s; %.0f head-step pairs\n", table_meta(t, "useful"), pairs);
    if (undefined < pairs) {
        buf_printf(out, "dilution %.4f", number(t, "mean_dilution"));
        if (!isnan(number(t, "mean_dilution_after_prompt")))
            buf_printf(out, ", after the prompt %.4f", number(t, "mean_dilution_after_prompt"));
        buf_printf(out, "; lower bound from near-ties: %.4f", number(t, "mean_bound"));
        if (undefined > 0)
            buf_printf(out, " (means over the %.0f where it is defined)", pairs - undefined);
        buf_str(out, "\n");
    }
    describe_retention(t, out);
    if (table_meta(t, "worst_head"))
        buf_printf(out, "worst head %s: dilution %.4f\n", table_meta(t, "worst_head"),
                   number(t, "worst_dilution"));
    if (undefined > 0)
        buf_printf(out,
                   "undefined in %.0f pairs: no useful entry yet, or entries that the query "
                   "did not see and no --shadow entries%s\n",
                   undefined, table_meta(t, "sampled") ? ", or a query outside the sample" : "");
}

const struct analyzer an_dilution = {
    .name = "dilution",
    .summary = "attention dilution: attention to irrelevant entries",
    .example = "kvfate dilution run.kvf --useful topk:64 --mean -o dilution.tsv",
    OPTIONS({OPT_STR, 0, "useful", offsetof(struct options, useful), "U",
             "span[:NAME], plan, topk:K, mass:TAU, topk-slack:D", .absent = "span, else topk:64"},
            {OPT_WORD, 0, "weights", offsetof(struct options, weights), "W",
             "retention: entries that queries saw, or gates that were not applied", "run",
             .words = weight_words},
            {OPT_INT, 0, "every", offsetof(struct options, every), "N", "every N-th step",
             .absent = "at most 512 steps", .min = 1, .max = KVF_MAX_STEPS},
            {OPT_FLAG, 0, "mean", offsetof(struct options, mean), NULL,
             "one row per head: its mean over the steps"},
            {OPT_FLAG, 0, "after-prompt", offsetof(struct options, after_prompt), NULL,
             "only steps after the prompt"}),
    COLUMNS({"useful.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "always, of --useful"},
            {"dilution.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "always, of --useful"},
            {"size.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "always, of --useful"},
            {"near.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "always"},
            {"kept.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, "kept, rho"},
            {"rho_u.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, "rho_u"},
            {"rho_d.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, "rho_d"},
            {"beta.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "--weights beta"},
            {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS,
             "whether queries saw everything"},
            {"read.count", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_HELPS,
             "whether queries chose pages"},
            {"shadow.oracle_mass", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS,
             "the best that the budget allowed"}),
    HEADS(.space = KVF_SPACE_QUERY, FRAME_USUAL(struct plan, struct work), .finish = finish),
    .describe = describe,
    .of_length = of_length,
    POOL(KEYS("head", "step"), {"dilution"}, {"useful_mass"}, {"rho_u"}, {"rho_d"},
         {"dilution_retained"}, {"bound"}, {"dilution_oracle"},
         {"preferential_share", "preferential", "compared"}),
};
