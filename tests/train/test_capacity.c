/* test_capacity.c - the capacity loss and its derivative compared with a brute force in double
 * precision. */
#include "engine/train/capacity.h"
#include "loss_tools.h"

enum { MAX_T = 700, MAX_HEADS = 3, MAX_CELLS = MAX_T * MAX_HEADS };

static int32_t first[MAX_T], reach[MAX_HEADS];
static float lb[MAX_CELLS], sums[MAX_CELLS], d_lb[MAX_CELLS];
static double wide[MAX_CELLS], want[MAX_CELLS];

/* Returns the first token that query i of a head sees. */
static int sees_from(const struct capacity *c, int head, int i)
{
    int window = c->reach ? c->reach[head] : 0, from = i - window + 1;
    return window && from > c->first[i] ? from : c->first[i];
}

/* Computes the loss by the equations in its header, in double precision, from log beta in double
 * precision. */
static double brute(const struct capacity *c, const double *log_beta)
{
    static double R[MAX_CELLS];
    double sum = 0, per = c->global ? c->heads : 1, M = c->M * per;
    int rows = c->global ? 1 : c->heads, active = 0;
    memset(R, 0, sizeof R);
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < c->T; i++)
            for (int j = sees_from(c, h, i); j <= i; j++)
                R[(c->global ? 0 : h) * c->T + i] += exp((i - j) * log_beta[h * c->T + j]);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < c->T; i++) {
            double p = i - c->first[i], over = R[r * c->T + i] - M, w = 1;
            w = c->norm == CAPACITY_CODE ? 1 / fmax(1, p * per - M) : w;
            w = c->norm == CAPACITY_T ? 1 / ((p + 1) * per) : w;
            w = c->norm == CAPACITY_FLAT ? 1 / fmax(1, c->T * per - M) : w;
            active += over > 0;
            sum += over > 0 ? over * w : 0;
        }
    if (c->norm == CAPACITY_CODE)
        return active ? sum / active : 0;
    return sum / rows / (c->norm == CAPACITY_SUM ? 1 : c->T);
}

/* Computes the derivative by definition: the derivative of the terms by R, times that of R. */
static void brute_back(const struct capacity *c, const float *R, double weight)
{
    double per = c->global ? c->heads : 1, M = c->M * per, norm = 0, active = 0;
    static double d_R[MAX_CELLS];
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < c->T; i++) {
            double p = i - c->first[i], w = 1, sum = 0;
            for (int g = 0; g < c->heads; g++)
                sum += c->global || g == h ? (double)R[g * c->T + i] : 0;
            w = c->norm == CAPACITY_CODE ? 1 / fmax(1, p * per - M) : w;
            w = c->norm == CAPACITY_T ? 1 / ((p + 1) * per) : w;
            w = c->norm == CAPACITY_FLAT ? 1 / fmax(1, c->T * per - M) : w;
            d_R[h * c->T + i] = sum > M ? w : 0;
            active += (sum > M) / per;
        }
    norm = c->norm == CAPACITY_CODE ? active : c->heads / per;
    norm *= c->norm == CAPACITY_T || c->norm == CAPACITY_FLAT ? c->T : 1;
    memset(want, 0, sizeof want);
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < c->T; i++)
            for (int j = sees_from(c, h, i); j <= i && d_R[h * c->T + i] > 0; j++)
                want[h * c->T + j] += weight * d_R[h * c->T + i] / norm * (i - j)
                                      * exp((i - j) * (double)lb[h * c->T + j]);
}

/* Fills rates of all magnitudes: some keys stay for good, some expire at once. */
static void fill_rates(int cells, uint64_t seed)
{
    struct rng r = rng_seeded(seed);
    for (int i = 0; i < cells; i++) {
        double size = -exp(12 * rng_uniform(&r) - 9);
        lb[i] = i % 11 == 3 ? 0 : i % 17 == 5 ? -1e-8f : i % 23 == 7 ? -1e30f : (float)size;
        wide[i] = (double)lb[i];
    }
}

struct shape {
    int T, heads, length[4], n_lengths;
    double M;
    int reach; /* window of the layers of heads 1, 2, ...; 0: none */
};

static const struct shape shapes[] = {
    {1, 1, {1}, 1, 0},
    {1, 2, {1}, 1, .5},
    {40, 3, {40}, 1, 3},
    {40, 2, {1, 2, 1, 36}, 4, 2.5}, /* documents of one token */
    {64, 2, {1}, 1, .25},           /* only such documents */
    {65, 2, {64, 1}, 2, 0},         /* the last document starts at the end of the pack */
    {300, 3, {17, 256, 27}, 3, 9},
    {300, 2, {300}, 1, 1000}, /* capacity for all keys */
    {700, 2, {700}, 1, 40},
    {700, 3, {130, 512, 58}, 3, 20},
    {300, 3, {17, 256, 27}, 3, 9, 40}, /* a window shorter than one of the documents */
    {300, 2, {300}, 1, 5, 299},
    {40, 2, {40}, 1, .5, 1},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct capacity set_up(const struct shape *s, const struct kernels *k, int norm, bool global)
{
    make_documents(first, s->T, s->length, s->n_lengths);
    fill_rates(s->T * s->heads, (uint64_t)(s->T + s->heads));
    for (int h = 1; h < s->heads; h++)
        reach[h] = s->reach;
    return (struct capacity){.kernels = k,
                             .T = s->T,
                             .heads = s->heads,
                             .log_beta = lb,
                             .first = first,
                             .M = s->M,
                             .global = global,
                             .norm = (enum capacity_norm)norm,
                             .reach = s->reach ? reach : NULL};
}

Test(capacity, values_and_derivatives_follow_the_definition)
{
    VARIANTS(v, n);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < N_SHAPES * 8; i++) {
            const struct shape *s = &shapes[i / 8];
            struct capacity c = set_up(s, &v[a].k, i % 4, i / 4 % 2);
            size_t cells = (size_t)(s->T * s->heads);
            double loss = capacity_loss(&c, 2.5, sums, d_lb, NULL), expect = brute(&c, wide);
            double tolerance = 1e-6 * fmax(expect, s->M * 1e-3);
            cr_expect(fabs(loss - expect) <= tolerance, "%s, shape %d, norm %d: %.12g, not %.12g",
                      v[a].name, i / 8, i % 8, loss, expect);
            brute_back(&c, sums, 2.5);
            double far = apart(d_lb, want, cells);
            cr_expect(far <= 1e-6, "%s, shape %d, norm %d: %g", v[a].name, i / 8, i % 8, far);
        }
}

/* Each derivative is compared with its own magnitude, not with the largest one, so that tiny ones
 * count too. */
Test(capacity, small_derivatives_are_right_too)
{
    VARIANTS(v, n);
    struct shape s = {512, 1, {512}, 1, 2};
    for (int a = 0; a < n; a++) {
        struct capacity c = set_up(&s, &v[a].k, CAPACITY_SUM, false);
        double off = 0;
        capacity_loss(&c, 1, sums, d_lb, NULL);
        brute_back(&c, sums, 1);
        for (int j = 0; j < s.T; j++)
            off = worst(want[j] < 1e-30 ? (double)d_lb[j] : fabs((double)d_lb[j] / want[j] - 1),
                        off);
        cr_expect(off <= 2e-5, "%s: %g", v[a].name, off);
    }
}

/* The derivative in brute_back() is that of the loss in brute(). */
Test(capacity, derivatives_are_those_of_the_loss)
{
    VARIANTS(v, n);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < 5 * 8; i++) {
            static const int which[] = {2, 3, 5, 6, 10};
            const struct shape *s = &shapes[which[i / 8]];
            struct capacity c = set_up(s, &v[a].k, i % 4, i / 4 % 2);
            struct rng r = rng_seeded(5);
            for (int at = 0; at < s->T * s->heads; at++)
                wide[at] = (double)(lb[at] = -(float)(.002 + .3 * rng_uniform(&r)));
            capacity_loss(&c, 1, sums, d_lb, NULL);
            double size = 0, off = 0;
            for (int at = 0; at < s->T * s->heads; at++)
                size = fmax(size, fabs((double)d_lb[at]));
            for (int at = 0; at < s->T * s->heads; at += 1 + s->T / 9) {
                const double h = 1e-6, x = wide[at];
                wide[at] = x + h;
                double up = brute(&c, wide);
                wide[at] = x - h;
                double slope = (up - brute(&c, wide)) / (2 * h);
                wide[at] = x;
                off = worst(fabs(slope - (double)d_lb[at]), off);
            }
            cr_expect(off <= 2e-6 * fmax(size, 1e-3), "%s, shape %d, norm %d: %g of %g", v[a].name,
                      which[i / 8], i % 8, off, size);
        }
}

/* With a constant rate, R_i = (1 - b^n) / (1 - b). */
Test(capacity, constant_rates_give_geometric_sums)
{
    static const float rate[] = {0, -1e-8f, -1e-4f, -.01f, -.4f, -5.5f, -40, -1e30f};
    VARIANTS(v, n);
    struct shape s = {700, 1, {33, 667}, 2, 0};
    for (int a = 0; a < n; a++)
        for (int i = 0; i < 8; i++) {
            struct capacity c = set_up(&s, &v[a].k, CAPACITY_SUM, false);
            double off = 0, x = (double)rate[i], total = 0;
            for (int j = 0; j < s.T; j++)
                lb[j] = rate[i];
            double loss = capacity_loss(&c, 1, sums, d_lb, NULL);
            for (int j = 0; j < s.T; j++) {
                double p = j - first[j], R = x == 0 ? p + 1 : expm1((p + 1) * x) / expm1(x);
                off = worst(fabs((double)sums[j] / R - 1), off);
                total += R;
            }
            cr_expect(off <= 1e-6, "%s, rate %g: %g", v[a].name, x, off);
            cr_expect(fabs(loss / total - 1) <= 1e-6, "%s, rate %g: %g", v[a].name, x,
                      loss / total);
        }
}

/* Without forgetting, R_i = i + 1. The term with R_i = M is not over the limit and does not count.
 * With M = 4 and 10 tokens, i = 4 .. 9 count, each with (i + 1 - M) / max(1, i - M). */
Test(capacity, a_term_at_the_limit_does_not_count)
{
    VARIANTS(v, n);
    struct shape s = {10, 2, {10}, 1, 4};
    for (int a = 0; a < n; a++)
        for (int global = 0; global < 2; global++) {
            struct capacity c = set_up(&s, &v[a].k, CAPACITY_CODE, global);
            memset(lb, 0, sizeof lb);
            double loss = capacity_loss(&c, 1, sums, d_lb, NULL), want_loss = 0;
            for (int i = 4; i < 10; i++) /* for both heads together, both sides double */
                want_loss += (i + 1 - 4) * (1 + global) / fmax(1, (i - 4) * (1 + global)) / 6;
            cr_expect(epsilon_eq(dbl, loss, want_loss, 1e-6), "%s", v[a].name);
        }
}

Test(capacity, no_active_term_is_no_loss)
{
    VARIANTS(v, n);
    struct shape s = {100, 2, {60, 40}, 2, 61};
    for (int a = 0; a < n; a++)
        for (int i = 0; i < 8; i++) {
            struct capacity c = set_up(&s, &v[a].k, i % 4, i / 4);
            cr_expect(capacity_loss(&c, 1, sums, d_lb, NULL) == 0);
            for (int j = 0; j < s.T * s.heads; j++)
                cr_expect(d_lb[j] == 0 && sums[j] >= 1);
        }
}

Test(capacity, number_of_threads_changes_no_bit)
{
    static float one[MAX_CELLS], R[MAX_CELLS];
    VARIANTS(v, n);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < 8; i++) {
            struct capacity c = set_up(&shapes[N_SHAPES - 1], &v[a].k, i % 4, i / 4);
            size_t bytes = (size_t)(c.T * c.heads) * sizeof(float);
            double loss = capacity_loss(&c, .7, R, one, NULL);
            for (int threads = 1; threads <= 3; threads++) {
                OWNED(par_destroy) struct par *pool = pool_of(threads);
                cr_expect(capacity_loss(&c, .7, sums, d_lb, pool) == loss);
                cr_expect(zero(int, memcmp(one, d_lb, bytes)), "%s, %d", v[a].name, threads);
                cr_expect(zero(int, memcmp(R, sums, bytes)), "%s, %d", v[a].name, threads);
            }
        }
}

/* More heads than one block of the summation. */
Test(capacity, many_heads)
{
    enum { HEADS = 150, T = 9 };
    struct shape s = {T, HEADS, {T}, 1, 1.5};
    struct kernels k;
    kernels_init(&k, cpu_flags_detect());
    for (int i = 0; i < 8; i++) {
        struct capacity c = set_up(&s, &k, i % 4, i / 4);
        double loss = capacity_loss(&c, 1, sums, d_lb, NULL), expect = brute(&c, wide);
        cr_expect(fabs(loss / expect - 1) <= 1e-6, "norm %d: %g, not %g", i, loss, expect);
    }
}

static double brute_sparsity(const struct sparsity *s, const double *g)
{
    double sum = 0;
    for (int h = 0; h < s->heads; h++)
        for (int i = 0; i < s->T; i++) {
            int n = end_of(s->first, s->T, i) - s->first[i], p = i - s->first[i];
            int seen = s->reach && s->reach[h] && s->reach[h] < n - p ? s->reach[h] : n - p;
            double o = s->offset ? fmin(1, (double)s->window / seen) : 0;
            double x = g[h * s->T + i];
            sum += o + (1 - o) * (1 - (1 - x) * (1 - x));
        }
    return sum / (s->heads * s->T);
}

Test(sparsity, values_and_derivatives_follow_the_definition)
{
    static float g[MAX_CELLS], d_g[MAX_CELLS], again[MAX_CELLS];
    static const int32_t reaches[13] = {0, 9, 3};
    const int length[] = {1, 7, 30};
    for (int i = 0; i < 8; i++) {
        struct sparsity s = {.T = i % 4 ? 50 : 1,
                             .heads = i == 7 ? 13 : 2,
                             .g = g,
                             .first = first,
                             .offset = i / 2 % 2,
                             .window = i < 4 ? 4 : 100,
                             .reach = i % 4 == 3 ? reaches : NULL};
        int cells = s.T * s.heads;
        struct rng r = rng_seeded((uint64_t)i);
        make_documents(first, s.T, length, 3);
        for (int j = 0; j < cells; j++)
            wide[j] = (double)(g[j] = j == 3 ? 0 : j == 5 ? 1 : (float)rng_uniform(&r));
        double loss = sparsity_loss(&s, 3, d_g, NULL), off = 0;
        cr_expect(fabs(loss - brute_sparsity(&s, wide)) <= 1e-12, "case %d: %g", i, loss);
        for (int j = 0; j < cells; j++) {
            const double h = 1e-4, x = wide[j];
            wide[j] = x + h;
            double up = brute_sparsity(&s, wide);
            wide[j] = x - h;
            double slope = 3 * (up - brute_sparsity(&s, wide)) / (2 * h);
            wide[j] = x;
            off = worst(fabs(slope - (double)d_g[j]), off);
        }
        cr_expect(off <= 4e-7 / cells + 1e-9, "case %d: %g", i, off);
        OWNED(par_destroy) struct par *pool = pool_of(3);
        cr_expect(sparsity_loss(&s, 3, again, pool) == loss);
        cr_expect(zero(int, memcmp(d_g, again, (size_t)cells * sizeof *g)));
    }
}
