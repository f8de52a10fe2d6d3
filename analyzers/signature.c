/* signature.c - the numbers of a query head.  Equations: signature.h and
 * docs/reference/analyses/compare.md. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvf/schema.h>

#include "analyzers/classes.h"
#include "analyzers/signature.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/stats.h"

/* ---- attention by retention only: the rows of a head with equal logits, w_ti = beta_i^(t - i) /
 * sum over j <= t of beta_j^(t - j). */

static void retention_rows(const double *log_beta, int64_t T, double *sum, double *most,
                           double *last, double *entropy, double *scratch)
{
    for (int64_t i = 0; i < T; i++) {
        sum[i] = most[i] = 0;
        last[i] = -1;
    }
    for (int64_t t = 0; t < T; t++) {
        double all = 0, logs = 0; /* of r = beta^age; ln r = age log_beta */
        for (int64_t i = 0; i <= t; i++) {
            double ln = i < t ? (double)(t - i) * log_beta[i] : 0; /* beta 0 has 1 at birth */
            scratch[i] = exp(ln);
            all += scratch[i];
            logs += scratch[i] > 0 ? scratch[i] * ln : 0;
        }
        entropy[t] = log(all) - logs / all;
        for (int64_t i = 0; i <= t; i++) {
            double w = scratch[i] / all;
            sum[i] += w;
            most[i] = w > most[i] ? w : most[i];
            if (scratch[i] * (double)(t + 1) >= all)
                last[i] = (double)(t - i);
        }
    }
}

enum { S = SIGNATURE_FIRST, GROUP_NONE = N_GROUPS };

static const struct {
    const char *name, *unit;
    double scale;
} features[N_SIGNATURE] = {
#define X(id, name, unit, scale) [SIGNATURE_##id] = {name, unit, scale},
    SIGNATURE_MAP(X)
#undef X
};

struct signature_source {
    struct kvf_trace *t;
    struct head_list heads;
    int sum, max, last, entropy, lse, evict; /* columns; the last two may be -1 */
    int beta;                                /* log_beta, which replaces the first five; or -1 */
    int64_t T, a, b, prompt;                 /* prompt: its tokens, or -1 */
    uint8_t *group;                          /* [T] of the token's class */
    double *m, *x, *l, *h, *z, *e;           /* [T] of one head, in the order of the columns */
    double *work, *other;                    /* [T] */
    struct analyzer_args told;               /* who watches */
};

const char *signature_name(int feature)
{
    return features[feature].name;
}

const char *signature_unit(int feature)
{
    return features[feature].unit;
}

/* ---- distances */

bool signature_counts(int feature)
{
    return features[feature].scale > 0;
}

double signature_on_scale(int f, double v)
{
    if (f == SIGNATURE_WINDOW || f == SIGNATURE_LAST_USE)
        v = log2(1 + v);
    else if (f == SIGNATURE_UNEVEN)
        v = fmin(v, 4);
    else if (f == SIGNATURE_RISES) /* one edge in a text is enough for any value */
        v = fmin(fmax(v, -2), 2);
    else if (f == SIGNATURE_RECENT || f == SIGNATURE_PROMPT || f == SIGNATURE_NUMBER
             || f == SIGNATURE_GIST || f == SIGNATURE_FILLER)
        v = fmin(fmax(v, -1), 1);
    return v / features[f].scale;
}

double signature_distance(const struct signature *a, const struct signature *b, int *ret_largest)
{
    double squares = 0, most = 0;
    int n = 0, largest = -1;
    for (int f = 0; f < N_SIGNATURE; f++) {
        if (features[f].scale == 0 || isnan(a->f[f]) || isnan(b->f[f]))
            continue;
        double x = signature_on_scale(f, a->f[f]) - signature_on_scale(f, b->f[f]);
        squares += x * x;
        n++;
        if (fabs(x) > most) {
            most = fabs(x);
            largest = f;
        }
    }
    if (ret_largest)
        *ret_largest = largest;
    return n ? sqrt(squares / n) : NAN;
}

void signature_mean(const struct signature *s, size_t n, struct signature *ret)
{
    *ret = (struct signature){.tokens = 0};
    for (int f = 0; f < N_SIGNATURE; f++) {
        struct sum v = {0, 0};
        int64_t known = 0;
        for (size_t k = 0; k < n; k++) {
            if (isnan(s[k].f[f]))
                continue;
            sum_add(&v, s[k].f[f]);
            known++;
        }
        ret->f[f] = known ? sum_get(&v) / (double)known : NAN;
    }
    for (size_t k = 0; k < n; k++)
        ret->tokens += s[k].tokens;
}

/* ---- opening */

static uint8_t group_of(int class)
{
    switch (class) {
    case CLASS_NUMBER:
    case CLASS_OPERATOR:
    case CLASS_LATEX:
        return 0;
    case CLASS_PUNCTUATION:
    case CLASS_SPACE:
        return 1;
    case CLASS_FUNCTION:
    case CLASS_WAIT:
        return 2;
    default:
        return GROUP_NONE;
    }
}

static int read_classes(struct signature_source *s, const char *path, struct kvf_diag *d)
{
    struct classes *c = NULL;
    int err = classes_open(path, &c, d);
    if (!err && s->T)
        err = classes_of_trace(c, s->t, s->group, d);
    for (int64_t i = 0; !err && i < s->T; i++)
        s->group[i] = group_of(s->group[i]);
    classes_close(c);
    return err;
}

/* The prompt is the text before the first token of another role. */
static int read_roles(struct signature_source *s, struct kvf_diag *d)
{
    int c = kvf_find(s->t, "tokens.role"), err = KVF_OK;
    s->prompt = -1;
    if (c < 0 || s->T == 0)
        return KVF_OK;
    err = kvf_read_f64(s->t, c, 0, 0, 0, (uint32_t)s->T, s->work, d);
    for (s->prompt = 0; !err && s->prompt < s->T && KVF_IN_PROMPT(s->work[s->prompt]);)
        s->prompt++;
    return err;
}

/* criterion NULL: of log_beta. */
static int find_columns(struct signature_source *s, const char *criterion, struct kvf_diag *d)
{
    char name[KVF_NAME_MAX + 16];
    s->evict = kvf_find(s->t, "evict_step");
    s->lse = s->beta = -1;
    if (!criterion) {
        int none = log_beta_need(s->t, &s->beta, d);
        return none ? none : column_of_heads(s->t, s->beta, KVF_SPACE_KV, d);
    }
    snprintf(name, sizeof name, "last_selected.%.40s", criterion);
    s->lse = kvf_find(s->t, "lse");
    const struct {
        const char *name;
        enum kvf_axis axis;
        int *column;
    } wanted[] = {{"mass.sum", KVF_AXIS_TOKEN, &s->sum},
                  {"mass.max", KVF_AXIS_TOKEN, &s->max},
                  {name, KVF_AXIS_TOKEN, &s->last},
                  {"entropy", KVF_AXIS_STEP, &s->entropy}};
    struct lacks l = {.n = 0};
    int err = KVF_OK;
    for (size_t i = 0; !err && i < sizeof wanted / sizeof *wanted; i++)
        err = columns_find(s->t, wanted[i].name, KVF_SPACE_QUERY, wanted[i].axis, &l,
                           wanted[i].column, d);
    return columns_refuse(&l, NULL, err, d);
}

static int allocate(struct signature_source *s)
{
    double **const all[] = {&s->m, &s->x, &s->l, &s->h, &s->z, &s->e, &s->work, &s->other};
    s->group = MEM_NEW(uint8_t, (size_t)s->T);
    int err = s->group ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i] = MEM_NEW(double, (size_t)s->T);
        err = *all[i] ? err : KVF_E_NOMEM;
    }
    return err;
}

int signature_open(struct kvf_trace *t, const struct analyzer_args *args, const char *criterion,
                   const char *classes, struct signature_source **ret, struct kvf_diag *d)
{
    struct signature_source *s = MEM_NEW(struct signature_source, 1);
    if (!s)
        return KVF_E_NOMEM;
    s->t = t;
    s->T = kvf_n_steps(t);
    s->told = *args;
    int err = find_columns(s, criterion, d);
    if (!err)
        err = tokens_select(t, args, &s->a, &s->b, d);
    if (!err)
        err = heads_select(t, criterion ? KVF_SPACE_QUERY : KVF_SPACE_KV, args->heads, &s->heads,
                           d);
    if (!err)
        err = allocate(s);
    if (!err)
        err = read_classes(s, classes, d);
    if (!err)
        err = read_roles(s, d);
    if (err)
        signature_close(s);
    else
        *ret = s;
    return err;
}

void signature_close(struct signature_source *s)
{
    if (!s)
        return;
    void *const all[] = {s->group, s->m, s->x, s->l, s->h, s->z, s->e, s->work, s->other};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    heads_free(&s->heads);
    mem_free(s);
}

const struct head_list *signature_heads(const struct signature_source *s)
{
    return &s->heads;
}

/* ---- one head */

/* half: -1 for all tokens, 0 or 1 */
static bool in_half(int64_t i, int half)
{
    return half < 0 || i / SIGNATURE_BLOCK % 2 == half;
}

static bool counts(const struct signature_source *s, int64_t i, int half)
{
    return i >= S && i >= s->a && i < s->b && in_half(i, half);
}

/* share(P) (T - P) = the sum of u_i - 1 over S <= i < P. */
static double crossing(const struct signature_source *s, int64_t P, double mean, int half)
{
    struct sum u = {0, 0};
    int64_t n = 0;
    for (int64_t i = S; i < P; i++) {
        if (!in_half(i, half))
            continue;
        sum_add(&u, s->m[i] / mean - 1);
        n++;
    }
    return n ? sum_get(&u) * (double)(P - S) / (double)n : NAN;
}

/* The same of heads that attend evenly to all but the first S tokens. */
static double crossing_even(const struct signature_source *s, int64_t P)
{
    double even = 0;
    for (int64_t t = P; t < s->T; t++)
        even += 1 / (double)(t + 1 - S);
    return even * (double)(P - S);
}

static void whole_text(const struct signature_source *s, int half, struct signature *ret)
{
    struct sum m = {0, 0};
    int64_t n = 0, T = s->T, P = s->prompt;
    double seen = 0, even = 0;
    for (int64_t i = S; i < T; i++) {
        if (!in_half(i, half))
            continue;
        sum_add(&m, s->m[i]);
        n++;
    }
    double mean = sum_get(&m) / (double)n;
    ret->f[SIGNATURE_SINK] = 1 - mean;
    for (int k = 1; k <= 3; k++) {
        seen += crossing(s, k * T / 4, mean, half);
        even += crossing_even(s, k * T / 4);
    }
    ret->f[SIGNATURE_RECENT] = 1 - seen / even;
    if (P - S < 16 || T - P < 16)
        return;
    double share = crossing(s, P, mean, half) / (double)(T - P);
    double base = crossing_even(s, P) / (double)(T - P);
    ret->f[SIGNATURE_PROMPT] = (share - base) / (1 - base);
}

/* Splits n rising values in two so that the sum of squares between the means is largest. */
static void two_modes(const double *v, int64_t n, struct signature *ret)
{
    double total = 0, below = 0, best = -1, squares = 0;
    for (int64_t k = 0; k < n; k++)
        total += v[k];
    for (int64_t k = 0; k < n; k++)
        squares += (v[k] - total / (double)n) * (v[k] - total / (double)n);
    for (int64_t k = 1; k < n; k++) {
        below += v[k - 1];
        double low = below / (double)k, high = (total - below) / (double)(n - k);
        double between = (double)k * (double)(n - k) * (high - low) * (high - low);
        if (between <= best)
            continue;
        best = between;
        ret->f[SIGNATURE_LOW] = exp2(low);
        ret->f[SIGNATURE_HIGH] = exp2(high);
        ret->f[SIGNATURE_APART] = high - low;
        ret->f[SIGNATURE_LESSER] = (double)(k < n - k ? k : n - k) / (double)n;
        ret->f[SIGNATURE_TWO] = squares > 0 ? between / (double)n / squares : NAN;
    }
}

/* Ages: of tokens of the text's first half, which at least T / 2 queries could use. */
static void ages(struct signature_source *s, int half, struct signature *ret)
{
    double *width = s->work, *last = s->other;
    int64_t n = 0;
    for (int64_t i = S; i < s->T / 2; i++) {
        if (!counts(s, i, half) || s->x[i] == 0) /* no attention, in single precision */
            continue;
        width[n] = log2(s->m[i] / s->x[i]);
        last[n++] = s->l[i] + 1;
    }
    if (n < 2)
        return;
    double quarter = stats_quantile(width, (size_t)n, .25); /* sorts */
    ret->f[SIGNATURE_SPREAD] = stats_quantile(width, (size_t)n, .75) - quarter;
    ret->f[SIGNATURE_WINDOW] = exp2(stats_quantile(width, (size_t)n, .5));
    ret->f[SIGNATURE_LAST_USE] = stats_quantile(last, (size_t)n, .5);
    two_modes(width, n, ret);
}

static void survival(const struct signature_source *s, int half, struct signature *ret)
{
    static const int parts[N_HORIZONS] = {64, 16, 4, 2};
    int64_t cells = 0, used = 0, T = s->T;
    for (int64_t i = S; i < T; i++) {
        if (!counts(s, i, half))
            continue;
        ret->tokens++;
        ret->never += s->l[i] < 0;
        cells += T - i;
        used += (int64_t)s->l[i] + 1;
        for (int k = 0; k < N_HORIZONS; k++) {
            int64_t n = (T + parts[k] - 1) / parts[k];
            ret->at_risk[k] += i + n < T;
            ret->alive[k] += i + n < T && s->l[i] >= (double)n;
        }
    }
    for (int k = 0; k < N_HORIZONS; k++)
        if (ret->at_risk[k])
            ret->f[SIGNATURE_SURVIVAL_64 + k] = (double)ret->alive[k] / (double)ret->at_risk[k];
    if (ret->tokens) {
        ret->f[SIGNATURE_NEVER] = (double)ret->never / (double)ret->tokens;
        ret->f[SIGNATURE_SPARSITY] = 1 - (double)used / (double)cells;
    }
}

/* Share of the mass beyond that of as many arbitrary tokens. */
static void classes(const struct signature_source *s, int half, struct signature *ret)
{
    double all = 0, mass[N_GROUPS + 1] = {0};
    int64_t n = 0, in[N_GROUPS + 1] = {0};
    for (int64_t i = S; i < s->T; i++) {
        if (!counts(s, i, half))
            continue;
        all += s->m[i];
        mass[s->group[i]] += s->m[i];
        n++;
        in[s->group[i]]++;
    }
    for (int g = 0; g < N_GROUPS; g++) {
        double base = n ? (double)in[g] / (double)n : 0;
        ret->in_group[g] = in[g];
        if (in[g] >= SIGNATURE_GROUP && n - in[g] >= SIGNATURE_GROUP && all > 0)
            ret->f[SIGNATURE_NUMBER + g] = (mass[g] / all - base) / (1 - base);
    }
}

/* The distribution of the mass over tokens: the last eighth, of which too little was asked, is left
 * out. */
static void profile(struct signature_source *s, int half, struct signature *ret)
{
    double *v = s->work, mean = 0, squares = 0, top = 0;
    int64_t n = 0, end = s->T - s->T / 8;
    for (int64_t i = S; i < end; i++)
        if (counts(s, i, half))
            mean += v[n++] = s->m[i];
    if (n < 10 || !(mean > 0))
        return;
    mean /= (double)n;
    for (int64_t k = 0; k < n; k++)
        squares += (v[k] - mean) * (v[k] - mean);
    ret->f[SIGNATURE_UNEVEN] = sqrt(squares / (double)n) / mean;
    qsort(v, (size_t)n, sizeof *v, order_double);
    for (int64_t k = n - (n + 9) / 10; k < n; k++)
        top += v[k];
    ret->f[SIGNATURE_TOP] = top / (mean * (double)n);
}

/* log M_i from token to token: correlation of neighbours, and skewness of the steps.  Where
 * contexts are dropped at once, mass falls slowly within each and rises where the next begins. */
static void course(struct signature_source *s, int half, struct signature *ret)
{
    double mean = 0, second = 0, third = 0;
    int64_t n = 0, end = s->T - s->T / 8;
    for (int64_t i = S + 1; i < end; i++)
        if (counts(s, i - 1, half) && counts(s, i, half) && s->m[i - 1] != 0 && s->m[i] != 0) {
            s->work[n] = log(s->m[i - 1]);
            s->other[n++] = log(s->m[i]);
        }
    for (int64_t k = 0; k < n; k++)
        mean += (s->other[k] - s->work[k]) / (double)n;
    for (int64_t k = 0; k < n; k++) {
        double step = s->other[k] - s->work[k] - mean;
        second += step * step / (double)n;
        third += step * step * step / (double)n;
    }
    ret->f[SIGNATURE_RUNS] = ranks_correlation(s->work, s->other, (size_t)n);
    if (second > 0)
        ret->f[SIGNATURE_RISES] = third / (second * sqrt(second));
}

/* Of steps t: entropy relative to t + 1 even weights; lse; and the share of the steps that entries
 * were cached. */
static void steps(const struct signature_source *s, int half, struct signature *ret)
{
    double h = 0, z = 0, held = 0, could = 0;
    int64_t n = 0;
    for (int64_t t = S; t < s->T; t++) {
        if (!counts(s, t, half))
            continue;
        h += s->h[t] / log((double)t + 1);
        z += s->z[t];
        held += fmin(s->e[t], (double)s->T) - (double)t;
        could += (double)(s->T - t);
        n++;
    }
    if (n == 0)
        return;
    ret->f[SIGNATURE_ENTROPY] = h / (double)n;
    ret->f[SIGNATURE_LSE] = s->lse < 0 ? NAN : z / (double)n;
    ret->f[SIGNATURE_RESIDENCE] = s->evict < 0 ? NAN : held / could;
}

static void compute(struct signature_source *s, int half, struct signature *ret)
{
    *ret = (struct signature){.tokens = 0};
    for (int f = 0; f < N_SIGNATURE; f++)
        ret->f[f] = NAN;
    survival(s, half, ret);
    if (ret->tokens < SIGNATURE_LEAST / (half < 0 ? 1 : 2)) {
        for (int f = 0; f < N_SIGNATURE; f++)
            ret->f[f] = NAN;
        return;
    }
    whole_text(s, half, ret);
    ages(s, half, ret);
    classes(s, half, ret);
    profile(s, half, ret);
    course(s, half, ret);
    steps(s, half, ret);
    for (int f = 0; f < N_SIGNATURE; f++)
        if (isinf(ret->f[f])) /* of logs and quotients of zeros */
            ret->f[f] = NAN;
}

static int read_columns(struct signature_source *s, const struct head *h, struct kvf_diag *d)
{
    const struct {
        int column;
        double *to;
    } all[] = {{s->sum, s->m}, {s->max, s->x}, {s->last, s->l}, {s->entropy, s->h}, {s->lse, s->z}};
    int G = kvf_n_heads(s->t, h->layer, KVF_SPACE_QUERY);
    int H = kvf_n_heads(s->t, h->layer, KVF_SPACE_KV), err = KVF_OK;
    uint32_t T = (uint32_t)s->T;
    for (size_t c = 0; !err && c < sizeof all / sizeof *all; c++)
        if (all[c].column >= 0)
            err = kvf_read_f64(s->t, all[c].column, h->layer, h->index, 0, T, all[c].to, d);
    for (int64_t i = 0; !err && i < s->T; i++)
        s->l[i] = s->l[i] >= 0 ? fmin(s->l[i], (double)(s->T - 1 - i)) : -1;
    struct head kv = {.layer = h->layer, .index = H && G >= H ? h->index / (G / H) : 0};
    if (!err && s->evict >= 0)
        err = read_evict(s->t, s->evict, &kv, T, s->e, d);
    return err;
}

/* The same from the gate values of the entries of a KV head. */
static int read_beta(struct signature_source *s, const struct head *h, struct kvf_diag *d)
{
    int err = kvf_read_f64(s->t, s->beta, h->layer, h->index, 0, (uint32_t)s->T, s->z, d);
    if (!err && s->evict >= 0)
        err = read_evict(s->t, s->evict, h, (uint32_t)s->T, s->e, d);
    if (!err)
        retention_rows(s->z, s->T, s->m, s->x, s->l, s->h, s->work);
    return err;
}

static int read_head(struct signature_source *s, const struct head *h, struct kvf_diag *d)
{
    return s->beta >= 0 ? read_beta(s, h, d) : read_columns(s, h, d);
}

int signature_read(struct signature_source *s, int h, struct signature ret[3], struct kvf_diag *d)
{
    int err = s->T ? read_head(s, &s->heads.head[h], d) : KVF_OK;
    for (int half = -1; !err && half < 2; half++)
        compute(s, half, &ret[half + 1]);
    analyzer_tell(&s->told, h + 1, s->heads.n);
    return err;
}

int signature_read_all(struct signature_source *s, struct signature **ret, struct kvf_diag *d)
{
    struct signature *all = mem_alloc((size_t)s->heads.n, 3 * sizeof *all);
    int err = all ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && h < s->heads.n; h++)
        err = signature_read(s, h, all + 3 * (size_t)h, d);
    if (err)
        mem_free(all);
    else
        *ret = all;
    return err;
}
