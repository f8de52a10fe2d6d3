/* score_expected.cu - attention expected from Gaussian future queries
 * (engine/method/score_expected.c): moments of queries, their rotation, and the logits of entries.
 */
#include "engine/cuda/score.cuh"

enum { CHANNELS = 128 };

/* Block (channel i, query head): row i of the sums of products, lower triangle. */
__global__ void __launch_bounds__(CHANNELS)
    moments_kernel(const float *q, int D, double *sum, double *outer)
{
    int i = (int)blockIdx.x, g = (int)blockIdx.y;
    double x = (double)q[g * D + i];
    double *row = outer + ((size_t)g * (size_t)D + (size_t)i) * (size_t)D;
    if (threadIdx.x == 0)
        sum[g * D + i] += x;
    for (int j = (int)threadIdx.x; j <= i; j += CHANNELS)
        row[j] += x * (double)q[g * D + j];
}

void gpu_take_moments(struct gpu *g, const float *q, int n_heads, int D, double *sum, double *outer)
{
    dim3 grid((unsigned)D, (unsigned)n_heads);
    LAUNCH(moments_kernel, grid, CHANNELS, 0, g, q, D, sum, outer);
}

/* The queries of a layer, and derived values. */
struct expected {
    struct gpu_expected in;
    struct gpu_group group;
    int layer, n_heads, D; /* query heads */
    double *cov, *mu;      /* [n_heads][D][D], [n_heads][D] */
    float *z;              /* [n_heads][ld_slot] */
};

size_t gpu_expected_bytes(int n_heads, int ld_slot, int D)
{
    return (size_t)n_heads
           * ((size_t)D * (size_t)(D + 1) * sizeof(double) + (size_t)ld_slot * sizeof(float));
}

DEVICE double mean_of(const struct expected &x, int g, int i)
{
    return x.in.sum[(size_t)(x.layer * x.n_heads + g) * (size_t)x.D + (size_t)i] / (double)x.in.n;
}

DEVICE double covariance(const struct expected &x, int g, int i, int j)
{
    int a = i > j ? i : j, b = i > j ? j : i;
    size_t row = (size_t)(x.layer * x.n_heads + g) * (size_t)x.D + (size_t)a;
    return x.in.outer[row * (size_t)x.D + (size_t)b] / (double)x.in.n
           - mean_of(x, g, a) * mean_of(x, g, b);
}

/* Rotates (a, b) by the mean rotation of a pair of channels; pairs from `pairs` on are not
 * rotated. */
DEVICE void turn(const struct expected &x, int pair, double *a, double *b)
{
    if (pair >= x.in.pairs)
        return;
    formula_rotate(a, b, x.in.turns[2 * pair], x.in.turns[2 * pair + 1]);
}

/* Block (pair of rows, query head), lane: a pair of columns. Pairs are rotated in their order.
 * Within a pair, the numbers of each row are rotated first, then the numbers of each column.
 * Rotations of two pairs share only these four numbers. */
__global__ void __launch_bounds__(CHANNELS) turn_kernel(struct expected x)
{
    int p = (int)blockIdx.x, g = (int)blockIdx.y, D = x.D;
    double *mu = x.mu + (size_t)g * (size_t)D;
    double *cov = x.cov + (size_t)g * (size_t)D * (size_t)D;
    for (int q = (int)threadIdx.x; 2 * q < D; q += CHANNELS) {
        double v[2][2];
        for (int i = 0; i < 4; i++)
            v[i / 2][i % 2] = covariance(x, g, 2 * p + i / 2, 2 * q + i % 2);
        for (int step = 0; step < 2; step++) {
            bool columns = (step == 0) == (q <= p); /* rotate the numbers of each row */
            for (int i = 0; i < 2; i++) {
                if (columns)
                    turn(x, q, &v[i][0], &v[i][1]);
                else
                    turn(x, p, &v[0][i], &v[1][i]);
            }
        }
        for (int i = 0; i < 4; i++)
            cov[(size_t)(2 * p + i / 2) * (size_t)D + (size_t)(2 * q + i % 2)] = v[i / 2][i % 2];
        if (q != p)
            continue;
        double a = mean_of(x, g, 2 * p), b = mean_of(x, g, 2 * p + 1);
        turn(x, p, &a, &b);
        mu[2 * p] = a;
        mu[2 * p + 1] = b;
    }
}

/* Returns the index over all heads of the head that query head g scores. */
DEVICE int judged(const struct expected &x, int g)
{
    int heads = x.group.heads_of_layer;
    return x.layer * heads + (x.group.layer ? 0 : g / x.group.per);
}

/* Lane (slot); blockIdx.y: a query head of the layer. */
template <class KV>
__global__ void __launch_bounds__(PAGE_SLOTS) logit_kernel(struct asked a, struct expected x)
{
    int g = (int)blockIdx.y, at = judged(x, g), page = (int)blockIdx.x, s = (int)threadIdx.x;
    int slot = page * PAGE_SLOTS + s, D = x.D;
    if (!a.due[at] || slot >= a.h.n[at])
        return;
    const KV *keys = page_keys<KV>(a.h.cache, at, page);
    const double *cov = x.cov + (size_t)g * (size_t)D * (size_t)D, *mu = x.mu + g * D;
    double dot = 0, square = 0, scale = x.in.scale;
    for (int i = 0; i < D; i++) {
        double row = 0, k = (double)kv_value(keys, (size_t)(i * PAGE_SLOTS + s));
        for (int j = 0; j < D; j++)
            row += cov[i * D + j] * (double)kv_value(keys, (size_t)(j * PAGE_SLOTS + s));
        dot += mu[i] * k;
        square += row * k;
    }
    x.z[(size_t)g * (size_t)a.h.cache.ld_slot + (size_t)slot] = formula_expected_logit(scale, dot,
                                                                                       square, D);
}

/* Block (head of the layer): weights of the entries after the sinks, and the score. */
__global__ void __launch_bounds__(LANES)
    expected_kernel(struct asked a, struct expected x, int32_t sinks, float *scores)
{
    int at = x.layer * x.group.heads_of_layer + (int)blockIdx.x, n = a.h.n[at], q0;
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    const int32_t *pos = a.h.cache.pos + first;
    float *out = scores + first;
    if (!a.due[at])
        return;
    int end = group_of(x.group, at, &q0);
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        out[i] = 0;
    for (int q = q0; q < end; q++) {
        const float *z = x.z + (size_t)(q - x.layer * x.n_heads) * (size_t)a.h.cache.ld_slot;
        float top = -INFINITY;
        for (int i = (int)threadIdx.x; i < n; i += LANES)
            top = pos[i] >= sinks ? fmaxf(top, z[i]) : top;
        top = block_max(top);
        double sum = sum_of_exp(n, (double)top,
                                [&](int i) { return pos[i] >= sinks ? z[i] : -INFINITY; });
        for (int i = (int)threadIdx.x; i < n; i += LANES)
            if (pos[i] >= sinks)
                out[i] += (float)(exp((double)z[i] - (double)top) / sum);
    }
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        out[i] = formula_expected(out[i], end - q0, x.in.epsilon, x.in.values[first + (size_t)i]);
}

void gpu_score_expected(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        const struct gpu_group *group, const struct gpu_expected *in, int layer,
                        int32_t sinks, float *out)
{
    auto logits = h->cache.type == KV_F16 ? logit_kernel<uint16_t> : logit_kernel<float>;
    struct asked a = {*h, due};
    int n_heads = group->per * group->heads_of_layer, D = h->cache.D;
    struct expected x = {*in, *group, layer, n_heads, D, (double *)in->scratch, nullptr, nullptr};
    x.mu = x.cov + (size_t)n_heads * (size_t)D * (size_t)D;
    x.z = (float *)(x.mu + (size_t)n_heads * (size_t)D);
    dim3 turns((unsigned)(D / 2), (unsigned)n_heads);
    dim3 pages(blocks_for((size_t)h->cache.most, PAGE_SLOTS), (unsigned)n_heads);
    LAUNCH(turn_kernel, turns, CHANNELS, 0, g, x);
    LAUNCH(logits, pages, PAGE_SLOTS, 0, g, a, x);
    LAUNCH(expected_kernel, (unsigned)group->heads_of_layer, LANES, 0, g, a, x, sinks, out);
}
