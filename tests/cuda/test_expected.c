/* test_expected.c - the attention that expected future queries give, compared with explicit
 * matrices: R mu and R Sigma R^T, where mu and Sigma are the moments of the past queries. */
#include "tests/cuda/heads_of.h"

enum { LAYER = 1, H = 2, G = H * PER, L = HEADS / H, N = 9, PAIRS = 7, SINKS = 6 };
static const int lengths[HEADS] = {130, 3, 90, 67};
static const double epsilon = 0.02, scale = 1.3;

struct expected {
    struct bed b;
    double sum[L * G * D], outer[L * G * D * D], turns[2 * PAIRS];
    float q[N][L * G * D], values[HEADS * 256];
    struct gpu_expected x;
};

/* Adds N queries of all heads, and a new entry in each slot, as decode steps do. */
static void take(struct expected *e, struct gpu *g, struct rng *r)
{
    size_t all = (size_t)(HEADS * e->b.ld);
    double *sum = device_copy(g, e->sum, sizeof e->sum);
    double *outer = device_copy(g, e->outer, sizeof e->outer);
    float *values = device_copy(g, e->b.number, all * 4);
    for (int t = 0; t < N; t++) {
        fill(r, e->q[t], L * G * D, 1);
        float *q = device_copy(g, e->q[t], sizeof e->q[t]);
        for (int l = 0; l < L; l++)
            gpu_take_moments(g, q + l * G * D, G, D, sum + l * G * D, outer + l * G * D * D);
        device_check(g, "moments");
    }
    for (int s = 0; s < 130; s++) {
        int32_t slot[HEADS];
        for (int h = 0; h < HEADS; h++)
            slot[h] = s < lengths[h] ? s : lengths[h] - 1;
        gpu_put(g, e->b.h.slot, slot, sizeof slot);
        gpu_take_values(g, &e->b.h, 0, 1, values);
        gpu_take_values(g, &e->b.h, 1, HEADS - 1, values);
    }
    for (int p = 0; p < PAIRS; p++) {
        e->turns[2 * p] = cos(0.3 * p + 1) * 0.9;
        e->turns[2 * p + 1] = sin(0.3 * p + 1) * 0.9;
    }
    e->x = (struct gpu_expected){
        sum,     outer,  device_copy(g, e->turns, sizeof e->turns),
        N,       PAIRS,  scale,
        epsilon, values, device_alloc(g, gpu_expected_bytes(G, e->b.ld, D), 1)};
}

/* Returns channel i of R x. */
static double turned(const struct expected *e, const double *x, size_t stride, int i)
{
    int p = i / 2;
    if (p >= PAIRS)
        return x[(size_t)i * stride];
    double c = e->turns[2 * p], s = e->turns[2 * p + 1], a = x[(size_t)(2 * p) * stride],
           b = x[(size_t)(2 * p + 1) * stride];
    return i % 2 ? s * a + c * b : c * a - s * b;
}

/* Computes the expected logits z of all slots of head h for query head g of its layer. */
static void logits(const struct expected *e, int h, int g, double *z)
{
    double mean[D] = {0}, cov[D * D], half[D * D];
    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++)
            mean[i] += (double)e->q[t][(LAYER * G + g) * D + i] / N;
    for (int i = 0; i < D * D; i++) {
        cov[i] = -mean[i / D] * mean[i % D];
        for (int t = 0; t < N; t++)
            cov[i] += (double)e->q[t][(LAYER * G + g) * D + i / D]
                      * (double)e->q[t][(LAYER * G + g) * D + i % D] / N;
    }
    for (int i = 0; i < D * D; i++)
        half[i] = turned(e, cov + i % D, D, i / D);
    for (int s = 0; s < e->b.n[h]; s++) {
        double dot = 0, square = 0;
        for (int i = 0; i < D; i++) {
            double k = (double)cache_of_get(&e->b.k, h, s, i, false);
            dot += turned(e, mean, 1, i) * k;
            for (int j = 0; j < D; j++)
                square += k * turned(e, half + i * D, 1, j)
                          * (double)cache_of_get(&e->b.k, h, s, j, false);
        }
        z[s] = scale * dot / sqrt(D) + scale * scale * square / (2 * D);
    }
}

static double length_of_value(const struct expected *e, int h, int s)
{
    double square = 0;
    for (int d = 0; d < D; d++)
        square += pow((double)cache_of_get(&e->b.k, h, s, d, true), 2);
    return sqrt(square);
}

static void expect_head(const struct expected *e, int h, int g0, int n_group, const float *got)
{
    double share[130] = {0}, z[130];
    const int32_t *pos = e->b.k.pos + h * e->b.ld;
    for (int g = g0; g < g0 + n_group; g++) {
        double all = 0;
        logits(e, h, g, z);
        for (int s = 0; s < e->b.n[h]; s++)
            all += pos[s] >= SINKS ? exp(z[s]) : 0;
        for (int s = 0; s < e->b.n[h]; s++)
            share[s] += pos[s] >= SINKS ? exp(z[s]) / all / n_group : 0;
    }
    for (int s = 0; s < e->b.n[h]; s++) {
        double want = (share[s] + epsilon) * length_of_value(e, h, s);
        cr_expect(epsilon_eq(dbl, (double)got[h * e->b.ld + s], want, 1e-5 * (1 + want)),
                  "head %d, slot %d: %g, not %g", h, s, (double)got[h * e->b.ld + s], want);
    }
}

Test(expected, scores_follow_from_moments)
{
    static const unsigned char due[HEADS] = {1, 1, 1, 1};
    static struct expected e;
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(61);
    for (int i = 0; i < 4; i++) {
        bool layer = i / 2;
        memset(&e, 0, sizeof e);
        e.b = bed_of(g, &r, lengths, i % 2 ? KV_F16 : KV_F32);
        take(&e, g, &r);
        const struct gpu_group group = {PER, H, layer, false, false, false};
        unsigned char *d_due = device_copy(g, due, sizeof due);
        float *out = device_copy(g, e.b.number, (size_t)(HEADS * e.b.ld) * 4);
        emulation_seed((unsigned long long)i);
        gpu_score_expected(g, &e.b.h, d_due, &group, &e.x, LAYER, SINKS, out);
        float *got = host_copy(g, out, (size_t)(HEADS * e.b.ld) * 4);
        device_check(g, "expected");
        for (int h = 0; h < (layer ? 1 : H); h++)
            expect_head(&e, LAYER * H + h, layer ? 0 : h * PER, layer ? G : PER, got);
    }
}
