/* score.cu - the scores of entries, as the parts of methods have them (engine/method/score_*.c):
 * lane i of head blockIdx.y has slot i. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"

enum { LANES = 256 };

/* The entries that are scored. */
struct asked {
    struct gpu_heads h;
    const unsigned char *due;
};

/* What lane i of a head has to do; false: nothing. */
DEVICE bool entry_of(const struct asked &a, int *at, int *slot, size_t *place)
{
    *at = (int)blockIdx.y;
    *slot = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    *place = (size_t)*at * (size_t)a.h.cache.ld_slot + (size_t)*slot;
    return a.due[*at] && *slot < a.h.n[*at];
}

static dim3 grid_of(const struct gpu_heads *h)
{
    return dim3(blocks_for((size_t)h->cache.most, LANES), (unsigned)h->cache.heads);
}

__global__ void position_kernel(struct asked a, float *out)
{
    int at, slot;
    size_t place;
    if (entry_of(a, &at, &slot, &place))
        out[place] = (float)a.h.cache.pos[place];
}

void gpu_score_position(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        float *out)
{
    struct asked a = {*h, due};
    LAUNCH(position_kernel, grid_of(h), LANES, 0, g->stream, a, out);
}

__global__ void column_kernel(struct asked a, const float *column, float sign, float *out)
{
    int at, slot;
    size_t place;
    if (entry_of(a, &at, &slot, &place))
        out[place] = sign * column[place];
}

void gpu_score_column(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const float *column, float sign, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(column_kernel, grid_of(h), LANES, 0, g->stream, a, column, sign, out);
}

/* log of the sum over k < N of beta^k, b = log beta. */
DEVICE double retention_sum(double b, int N)
{
    if (N == 1)
        return b != b ? b : 0;
    if (b > -1e-12)
        return log((double)N);
    return log(expm1((double)N * b) / expm1(b));
}

__global__ void retention_kernel(struct asked a, const float *log_beta, int32_t from, int lookahead,
                                 float *out)
{
    int at, slot;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    double b = (double)log_beta[place], c = retention_sum(b, lookahead);
    int32_t age = from - a.h.cache.pos[place];
    out[place] = (float)(age == 0 ? c : (double)age * b + c);
}

void gpu_score_retention(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                         const float *log_beta, int32_t from, int lookahead, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(retention_kernel, grid_of(h), LANES, 0, g->stream, a, log_beta, from, lookahead, out);
}

/* Block (page, head). */
template <class KV>
__global__ void __launch_bounds__(PAGE_SLOTS)
    keydiff_kernel(struct asked a, const float *norms, const double *anchor, float *out)
{
    SHARED_DYNAMIC(float, mean); /* [D] of length 1 */
    int at = (int)blockIdx.y, page = (int)blockIdx.x, s = (int)threadIdx.x, D = a.h.cache.D;
    int slot = page * PAGE_SLOTS + s;
    if (!a.due[at] || page * PAGE_SLOTS >= a.h.n[at])
        return;
    const double *sum = anchor + (size_t)at * (size_t)D;
    double square = 0;
    for (int d = 0; d < D; d++)
        square += sum[d] * sum[d];
    for (int d = s; d < D; d += PAGE_SLOTS)
        mean[d] = (float)(sum[d] * (square > 0 ? 1.0 / sqrt(square) : 0));
    __syncthreads();
    if (slot >= a.h.n[at])
        return;
    const KV *keys = page_keys<KV>(a.h.cache, at, page);
    float dot = 0;
    for (int d = 0; d < D; d++)
        dot = fmaf(mean[d], kv_value(keys, (size_t)(d * PAGE_SLOTS + s)), dot);
    size_t place = (size_t)at * (size_t)a.h.cache.ld_slot + (size_t)slot;
    out[place] = norms[place] > 0 ? -dot / norms[place] : 0;
}

void gpu_score_keydiff(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const float *norms, const double *anchor, float *out)
{
    auto kernel = h->cache.type == KV_F16 ? keydiff_kernel<uint16_t> : keydiff_kernel<float>;
    struct asked a = {*h, due};
    dim3 grid(blocks_for((size_t)h->cache.most, PAGE_SLOTS), (unsigned)h->cache.heads);
    LAUNCH(kernel, grid, PAGE_SLOTS, (size_t)h->cache.D * sizeof(float), g->stream, a, norms,
           anchor, out);
}

/* Query heads [*q0, end) that decide for head `at`. */
DEVICE int group_of(const struct gpu_group &x, int at, int *q0)
{
    int first = x.layer ? at - at % x.heads_of_layer : at;
    *q0 = first * x.per;
    return *q0 + (x.layer ? x.heads_of_layer : 1) * x.per;
}

__global__ void received_kernel(struct asked a, struct gpu_group x, const double *sum, float *out)
{
    int at, slot, q;
    size_t place, ld = (size_t)a.h.cache.ld_slot;
    if (!entry_of(a, &at, &slot, &place))
        return;
    int end = group_of(x, at, &q), n = end - q;
    double s = sum[(size_t)q * ld + (size_t)slot];
    for (q++; q < end; q++) {
        double v = sum[(size_t)q * ld + (size_t)slot];
        if (!x.max)
            s += v;
        else if (v > s)
            s = v;
    }
    out[place] = (float)(x.mean ? s / n : s);
}

void gpu_score_received(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                        const struct gpu_group *group, const double *sum, float *out)
{
    struct asked a = {*h, due};
    struct gpu_group x = *group;
    LAUNCH(received_kernel, grid_of(h), LANES, 0, g->stream, a, x, sum, out);
}

/* Where the row lies that is `age` queries old. */
DEVICE int row_at(const struct gpu_window &w, int age)
{
    return (w.newest + w.ring - age) % w.ring;
}

/* The weight that query head q gave the entry of a slot at position pos: 0 to one that came later.
 */
DEVICE float weight_at(const struct gpu_heads &h, const struct gpu_window &w, int q, int row,
                       int slot, int32_t pos)
{
    if (pos > w.row_t[row])
        return 0;
    return w
        .rows[((size_t)q * (size_t)w.ring + (size_t)row) * (size_t)h.cache.ld_slot + (size_t)slot];
}

/* Rounded to whole units, of which sums are exact (window.c). */
DEVICE double in_units(float x, double magic)
{
    return ((double)x + magic) - magic;
}

__global__ void window_kernel(struct asked a, struct gpu_group x, struct gpu_window w, double magic,
                              float *out)
{
    int at, slot, q0;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    int end = group_of(x, at, &q0);
    int32_t pos = a.h.cache.pos[place];
    double sum = 0;
    for (int age = 0; age < w.held; age++) {
        int row = row_at(w, age);
        float most = 0;
        for (int q = q0; q < end; q++) {
            float p = weight_at(a.h, w, q, row, slot, pos);
            most = p > most ? p : most;
            sum += x.max ? 0 : in_units(p, magic);
        }
        sum += x.max ? in_units(most, magic) : 0;
    }
    double scale = 1.0 / (w.held ? w.held : 1);
    out[place] = (float)(sum * (x.mean ? scale / (end - q0) : scale));
}

void gpu_score_window(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double magic,
                      float *out)
{
    struct asked a = {*h, due};
    struct gpu_group x = *group;
    struct gpu_window window = *w;
    LAUNCH(window_kernel, grid_of(h), LANES, 0, g->stream, a, x, window, magic, out);
}

enum { PARTS = 16 }; /* of a sum of weights, as sum_between of kernels.h has them */

/* Block (query head, age): 1 over what the query gave to the candidates. */
__global__ void __launch_bounds__(WARP)
    share_kernel(struct asked a, struct gpu_group x, struct gpu_window w, int32_t sinks,
                 int32_t recent_from, float *share)
{
    int q = (int)blockIdx.x, row = row_at(w, (int)blockIdx.y), at = q / x.per, id = lane_of_warp();
    at = x.layer ? at - at % x.heads_of_layer : at;
    if (!a.due[at])
        return;
    const int32_t *pos = a.h.cache.pos + (size_t)at * (size_t)a.h.cache.ld_slot;
    int32_t to = w.row_t[row] < recent_from ? w.row_t[row] + 1 : recent_from;
    const float *p = w.rows
                     + ((size_t)q * (size_t)w.ring + (size_t)row) * (size_t)a.h.cache.ld_slot;
    double sum = 0;
    for (int i = id; id < PARTS && i < a.h.n[at]; i += PARTS)
        sum += (double)(pos[i] >= sinks && pos[i] < to ? p[i] : 0);
    sum += __shfl_sync(ALL_LANES, sum, id + 8); /* 0 to 7: both halves */
    sum += __shfl_sync(ALL_LANES, sum, id + 4);
    sum += __shfl_sync(ALL_LANES, sum, id + 2);
    sum += __shfl_sync(ALL_LANES, sum, id + 1);
    if (id == 0)
        share[(size_t)q * (size_t)w.ring + (size_t)row] = sum > 0 ? (float)(1.0 / sum) : 0;
}

/* What the query heads gave in one row, each in its share. */
DEVICE float row_of_group(const struct asked &a, const struct gpu_group &x,
                          const struct gpu_window &w, const float *share, int q0, int end, int row,
                          int slot, int32_t pos)
{
    float sum = 0;
    for (int q = q0; q < end; q++) {
        float s = share ? share[(size_t)q * (size_t)w.ring + (size_t)row] : 1;
        float v = weight_at(a.h, w, q, row, slot, pos) * s;
        if (q == q0)
            sum = v;
        else if (!x.max)
            sum += v;
        else
            sum = v > sum ? v : sum;
    }
    return sum;
}

__global__ void rows_kernel(struct asked a, struct gpu_group x, struct gpu_window w, bool most,
                            const float *share, float *out)
{
    int at, slot, q0;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    int end = group_of(x, at, &q0);
    int32_t pos = a.h.cache.pos[place];
    float sum = 0, scale = most || w.held == 0 ? 1 : 1.0f / (float)w.held;
    for (int age = w.held - 1; age >= 0; age--) { /* the oldest query first */
        float v = row_of_group(a, x, w, share, q0, end, row_at(w, age), slot, pos);
        if (most)
            sum = v > sum ? v : sum;
        else
            sum += v;
    }
    out[place] = sum * (x.mean ? scale / (float)(end - q0) : scale);
}

void gpu_score_rows(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    const struct gpu_group *group, const struct gpu_window *w, bool most,
                    int32_t sinks, int32_t recent_from, float *share, float *out)
{
    struct asked a = {*h, due};
    struct gpu_group x = *group;
    struct gpu_window window = *w;
    dim3 rows((unsigned)(h->cache.heads * group->per), (unsigned)w->held);
    if (share && w->held > 0)
        LAUNCH(share_kernel, rows, WARP, 0, g->stream, a, x, window, sinks, recent_from, share);
    LAUNCH(rows_kernel, grid_of(h), LANES, 0, g->stream, a, x, window, most, share, out);
}

/* The largest, or the mean, of copy[i - half .. i + half] as far as they exist, of n. */
DEVICE float pooled(const float *copy, int i, int n, int width, bool max)
{
    int half = width / 2, lo = i > half ? i - half : 0, hi = i + half < n ? i + half : n - 1;
    float v = copy[lo];
    for (int j = lo + 1; j <= hi; j++)
        if (!max)
            v += copy[j];
        else if (copy[j] > v)
            v = copy[j];
    return max ? v : v / (float)width;
}

/* Block (head): candidates adjoin in order of time. */
__global__ void __launch_bounds__(LANES)
    pool_kernel(struct asked a, int width, bool max, int32_t sinks, int32_t recent_from,
                float *copy, float *out)
{
    int at = (int)blockIdx.x, n = a.h.n[at], before = 0, m = 0;
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    const int32_t *pos = a.h.cache.pos + first, *order = a.h.order + first;
    if (!a.due[at])
        return;
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        before += pos[i] < sinks;
        m += pos[i] >= sinks && pos[i] < recent_from;
    }
    order += block_sum(before);
    m = block_sum(m);
    for (int i = (int)threadIdx.x; i < m; i += LANES)
        copy[first + (size_t)i] = out[first + (size_t)order[i]];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < m; i += LANES)
        out[first + (size_t)order[i]] = pooled(copy + first, i, m, width, max);
}

void gpu_pool(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, int width,
              bool max, int32_t sinks, int32_t recent_from, float *copy, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(pool_kernel, (unsigned)h->cache.heads, LANES, 0, g->stream, a, width, max, sinks,
           recent_from, copy, out);
}
