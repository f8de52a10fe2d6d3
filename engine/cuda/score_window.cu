/* score_window.cu - scores from the rows of the last queries (engine/method/window.c and the scores
 * that call it). Lane i of head blockIdx.y has slot i. */
#include "engine/cuda/score.cuh"

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
            sum += x.max ? 0 : formula_in_units((double)p, magic);
        }
        sum += x.max ? formula_in_units((double)most, magic) : 0;
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
    LAUNCH(window_kernel, grid_of(h), LANES, 0, g, a, x, window, magic, out);
}

enum { PARTS = 16 }; /* partial sums, as in sum_between of kernels.h */

/* Returns the largest logit of the group for one query of the window, as a weight: exp(z) relative
 * to the largest lse; z = ln p + lse. */
DEVICE float largest_logit(const struct asked &a, const struct gpu_window &w, int q0, int end,
                           int row, int slot, int32_t pos)
{
    float most = -INFINITY, top = 0;
    for (int q = q0; q < end; q++)
        most = fmaxf(most, w.row_lse[(size_t)q * (size_t)w.ring + (size_t)row]);
    for (int q = q0; q < end; q++) {
        float s = expf(w.row_lse[(size_t)q * (size_t)w.ring + (size_t)row] - most);
        float v = weight_at(a.h, w, q, row, slot, pos) * s;
        top = q == q0 || v > top ? v : top;
    }
    return top;
}

/* Block (query head, age): 1 / the weight that the query gave to the candidates. For largest
 * logits, the first query head has the value of the group. */
__global__ void __launch_bounds__(WARP)
    share_kernel(struct asked a, struct gpu_group x, struct gpu_window w, int32_t sinks,
                 int32_t recent_from, float *share)
{
    int q = (int)blockIdx.x, row = row_at(w, (int)blockIdx.y), at = q / x.per, id = lane_of_warp();
    at = x.layer ? at - at % x.heads_of_layer : at;
    int q0, end = group_of(x, at, &q0);
    if (!a.due[at] || (x.logits && q != q0))
        return;
    const int32_t *pos = a.h.cache.pos + (size_t)at * (size_t)a.h.cache.ld_slot;
    recent_from += now_of(a);
    int32_t to = w.row_t[row] < recent_from ? w.row_t[row] + 1 : recent_from;
    double sum = 0;
    for (int i = id; id < PARTS && i < a.h.n[at]; i += PARTS) {
        float v = 0;
        if (candidate(pos[i], sinks, to))
            v = x.logits ? largest_logit(a, w, q0, end, row, i, pos[i])
                         : weight_at(a.h, w, q, row, i, pos[i]);
        sum += (double)v;
    }
    sum += __shfl_sync(ALL_LANES, sum, id + 8); /* 0 to 7: both halves */
    sum += __shfl_sync(ALL_LANES, sum, id + 4);
    sum += __shfl_sync(ALL_LANES, sum, id + 2);
    sum += __shfl_sync(ALL_LANES, sum, id + 1);
    if (id == 0)
        share[(size_t)q * (size_t)w.ring + (size_t)row] = sum > 0 ? (float)(1.0 / sum) : 0;
}

/* Returns the weights of the query heads in one row, each times its share. */
DEVICE float row_of_group(const struct asked &a, const struct gpu_group &x,
                          const struct gpu_window &w, const float *share, int q0, int end, int row,
                          int slot, int32_t pos)
{
    float sum = 0;
    if (x.logits)
        return largest_logit(a, w, q0, end, row, slot, pos)
               * share[(size_t)q0 * (size_t)w.ring + (size_t)row];
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
        LAUNCH(share_kernel, rows, WARP, 0, g, a, x, window, sinks, recent_from, share);
    LAUNCH(rows_kernel, grid_of(h), LANES, 0, g, a, x, window, most, share, out);
}

/* Score: minus the number of rows in which the group gave less than a uniform share. */
__global__ void below_kernel(struct asked a, struct gpu_group x, struct gpu_window w, float *out)
{
    int at, slot, q0, count = 0;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    int end = group_of(x, at, &q0);
    int32_t pos = a.h.cache.pos[place];
    for (int age = 0; age < w.held; age++) {
        int row = row_at(w, age);
        float sum = row_of_group(a, x, w, nullptr, q0, end, row, slot, pos);
        int seen = w.row_n[(size_t)(end - 1) * (size_t)w.ring + (size_t)row];
        count += pos <= w.row_t[row] && formula_below_even(sum, end - q0, seen);
    }
    out[place] = (float)-count;
}

void gpu_score_below(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                     const struct gpu_group *group, const struct gpu_window *w, float *out)
{
    struct asked a = {*h, due};
    struct gpu_group x = *group;
    struct gpu_window window = *w;
    LAUNCH(below_kernel, grid_of(h), LANES, 0, g, a, x, window, out);
}

/* Returns the mean plus gamma times the variance of the weights of query head q, from sums in
 * integer units. */
DEVICE float spread_of(const struct asked &a, const struct gpu_window &w, int q, int slot,
                       int32_t pos, double gamma)
{
    long long sum = 0, square = 0;
    for (int age = 0; age < w.held; age++) {
        double p = (double)weight_at(a.h, w, q, row_at(w, age), slot, pos);
        sum += __double2ll_rn(p / SPREAD_UNIT);
        square += __double2ll_rn(p * p / SPREAD_UNIT);
    }
    double per = w.held > 0 ? 1.0 / w.held : 0, more = w.held > 1 ? gamma / (w.held - 1) : 0;
    return formula_spread(sum, square, per, more);
}

__global__ void spread_kernel(struct asked a, struct gpu_group x, struct gpu_window w, double gamma,
                              float *out)
{
    int at, slot, q0;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    int end = group_of(x, at, &q0);
    float sum = 0;
    for (int q = q0; q < end; q++)
        sum += spread_of(a, w, q, slot, a.h.cache.pos[place], gamma);
    out[place] = sum;
}

void gpu_score_spread(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                      const struct gpu_group *group, const struct gpu_window *w, double gamma,
                      float *out)
{
    struct asked a = {*h, due};
    struct gpu_group x = *group;
    struct gpu_window window = *w;
    LAUNCH(spread_kernel, grid_of(h), LANES, 0, g, a, x, window, gamma, out);
}

/* Block (head): candidates are contiguous in order of time. */
__global__ void __launch_bounds__(LANES)
    pool_kernel(struct asked a, int width, bool max, int32_t sinks, int32_t recent_from,
                float *copy, float *out)
{
    int at = (int)blockIdx.x, n = a.h.n[at], before = 0, m = 0;
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    const int32_t *pos = a.h.cache.pos + first, *order = a.h.order + first;
    if (!a.due[at])
        return;
    recent_from += now_of(a);
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        before += pos[i] < sinks;
        m += candidate(pos[i], sinks, recent_from);
    }
    order += block_sum(before);
    m = block_sum(m);
    for (int i = (int)threadIdx.x; i < m; i += LANES)
        copy[first + (size_t)i] = out[first + (size_t)order[i]];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < m; i += LANES) {
        float v = formula_pooled(copy + first, i, m, width / 2, max);
        out[first + (size_t)order[i]] = max ? v : v / (float)width;
    }
}

void gpu_pool(struct gpu *g, const struct gpu_heads *h, const unsigned char *due, int width,
              bool max, int32_t sinks, int32_t recent_from, float *copy, float *out)
{
    struct asked a = {*h, due};
    LAUNCH(pool_kernel, (unsigned)h->cache.heads, LANES, 0, g, a, width, max, sinks, recent_from,
           copy, out);
}
