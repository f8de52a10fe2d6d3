/* score.cu - scores of entries, as defined by the parts of methods (engine/method/score_*.c). Lane
 * i of head blockIdx.y has slot i. */
#include "engine/cuda/score.cuh"

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
    LAUNCH(position_kernel, grid_of(h), LANES, 0, g, a, out);
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
    LAUNCH(column_kernel, grid_of(h), LANES, 0, g, a, column, sign, out);
}

__global__ void retention_kernel(struct asked a, const float *log_beta, int32_t from, int lookahead,
                                 float *out)
{
    int at, slot;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    double b = (double)log_beta[place], c = formula_retention_sum(b, lookahead);
    int32_t age = from + now_of(a) - a.h.cache.pos[place];
    out[place] = formula_retention(age, b, c);
}

void gpu_score_retention(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                         const float *log_beta, int32_t from, int lookahead, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(retention_kernel, grid_of(h), LANES, 0, g, a, log_beta, from, lookahead, out);
}

/* Block (page, head). */
template <class KV>
__global__ void __launch_bounds__(PAGE_SLOTS)
    keydiff_kernel(struct asked a, const float *norms, const double *anchor, float *out)
{
    SHARED_DYNAMIC(float, mean); /* [D] normalised */
    int at = (int)blockIdx.y, page = (int)blockIdx.x, s = (int)threadIdx.x, D = a.h.cache.D;
    int slot = page * PAGE_SLOTS + s;
    if (!a.due[at] || page * PAGE_SLOTS >= a.h.n[at])
        return;
    const double *sum = anchor + (size_t)at * (size_t)D;
    double square = 0;
    for (int d = 0; d < D; d++)
        square += sum[d] * sum[d];
    for (int d = s; d < D; d += PAGE_SLOTS)
        mean[d] = (float)(sum[d] * formula_unit_scale(square));
    __syncthreads();
    if (slot >= a.h.n[at])
        return;
    const KV *keys = page_keys<KV>(a.h.cache, at, page);
    float dot = 0;
    for (int d = 0; d < D; d++)
        dot = fmaf(mean[d], kv_value(keys, (size_t)(d * PAGE_SLOTS + s)), dot);
    size_t place = (size_t)at * (size_t)a.h.cache.ld_slot + (size_t)slot;
    out[place] = formula_keydiff(dot, norms[place]);
}

void gpu_score_keydiff(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const float *norms, const double *anchor, float *out)
{
    auto kernel = h->cache.type == KV_F16 ? keydiff_kernel<uint16_t> : keydiff_kernel<float>;
    struct asked a = {*h, due};
    dim3 grid(blocks_for((size_t)h->cache.most, PAGE_SLOTS), (unsigned)h->cache.heads);
    LAUNCH(kernel, grid, PAGE_SLOTS, (size_t)h->cache.D * sizeof(float), g, a, norms, anchor, out);
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
    LAUNCH(received_kernel, grid_of(h), LANES, 0, g, a, x, sum, out);
}

__global__ void divide_kernel(struct asked a, float by, float *out)
{
    int at, slot;
    size_t place;
    if (entry_of(a, &at, &slot, &place))
        out[place] /= by;
}

void gpu_score_divide(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, float by,
                      float *out)
{
    struct asked a = {*h, due};
    LAUNCH(divide_kernel, grid_of(h), LANES, 0, g, a, by, out);
}

__global__ void random_kernel(struct asked a, uint64_t seed, int heads_of_layer, float *drawn,
                              float *out)
{
    int at, slot;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    if (drawn[place] != drawn[place])
        drawn[place] = formula_random_number(seed, at / heads_of_layer, at % heads_of_layer,
                                             a.h.cache.pos[place]);
    out[place] = drawn[place];
}

void gpu_score_random(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      uint64_t seed, int heads_of_layer, float *drawn, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(random_kernel, grid_of(h), LANES, 0, g, a, seed, heads_of_layer, drawn, out);
}

/* Block (head). */
__global__ void __launch_bounds__(LANES)
    history_kernel(struct asked a, struct gpu_history x, int32_t sinks, int32_t recent_from,
                   float *out)
{
    int at = (int)blockIdx.x, n = a.h.n[at];
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    const int32_t *pos = a.h.cache.pos + first;
    float top = -INFINITY, *past = x.history + first, *own = out + first;
    if (!a.due[at])
        return;
    recent_from += now_of(a);
    for (int i = (int)threadIdx.x; x.normalise && i < n; i += LANES)
        top = candidate(pos[i], sinks, recent_from) ? fmaxf(top, own[i]) : top;
    top = block_max(top);
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        float v = top > 0 ? own[i] / top : own[i];
        if (x.alpha > 0 && past[i] == past[i])
            v = formula_fold(x.fold, x.alpha, past[i], v);
        if (x.alpha > 0 && candidate(pos[i], sinks, recent_from))
            past[i] = v;
        own[i] = v;
    }
}

void gpu_score_history(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                       const struct gpu_history *history, int32_t sinks, int32_t recent_from,
                       float *out)
{
    struct asked a = {*h, due};
    struct gpu_history x = *history;
    LAUNCH(history_kernel, (unsigned)h->cache.heads, LANES, 0, g, a, x, sinks, recent_from, out);
}
