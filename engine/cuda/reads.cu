/* reads.cu - selects the pages of a head that a step's query reads. */
#include "engine/cuda/device.cuh"

#include "engine/cuda/reads.h"

enum { LANES = 128 };
enum { LEFT_OUT, OPEN, ALWAYS }; /* state of a page in chosen[] */

/* Block (head): updates the bounds channel by channel, from the first changed page on. */
template <class KV>
__global__ void __launch_bounds__(LANES)
    bounds_kernel(struct gpu_heads h, struct gpu_reads r, int first, struct gpu_bounds b)
{
    int at = first + (int)blockIdx.x, n = h.n[at], D = h.cache.D;
    int valid = h.valid[at] / r.page * r.page;
    for (int d = (int)threadIdx.x; d < D; d += LANES) {
        size_t row = ((size_t)at * (size_t)D + (size_t)d) * (size_t)r.ld;
        float least = 0, most = 0;
        for (int s = valid; s < n; s++) {
            const KV *keys = page_keys<KV>(h.cache, at, s / PAGE_SLOTS);
            float k = kv_value(keys, (size_t)(d * PAGE_SLOTS + s % PAGE_SLOTS));
            least = s % r.page == 0 ? k : fminf(least, k);
            most = s % r.page == 0 ? k : fmaxf(most, k);
            b.least[row + (size_t)(s / r.page)] = least;
            b.most[row + (size_t)(s / r.page)] = most;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        h.valid[at] = n;
}

void gpu_take_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *reads,
                     int first, int n, const struct gpu_bounds *bounds)
{
    auto kernel = h->cache.type == KV_F16 ? bounds_kernel<uint16_t> : bounds_kernel<float>;
    struct gpu_heads in = *h;
    struct gpu_reads r = *reads;
    struct gpu_bounds b = *bounds;
    LAUNCH(kernel, (unsigned)n, LANES, 0, g, in, r, first, b);
}

/* Sets the page that a lane scores, blockIdx.x LANES + lane of query head blockIdx.y, and the query
 * heads [*g0, *end) that score it. Returns false if the lane has no page. */
DEVICE bool page_of(const struct gpu_reads &r, int *page, int *g0, int *end)
{
    int g = (int)blockIdx.y;
    *page = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    *g0 = r.together ? g - g % r.per : g;
    *end = r.together ? *g0 + r.per : g + 1;
    return *page < r.n_open[g];
}

__global__ void possible_kernel(struct gpu_reads r, int first, int D, struct gpu_bounds b,
                                const float *q)
{
    int page, g0, end;
    if (!page_of(r, &page, &g0, &end))
        return;
    size_t row = (size_t)(first + g0 / r.per) * (size_t)D * (size_t)r.ld + (size_t)page;
    float top = -INFINITY;
    for (int g = g0; g < end; g++) {
        float sum = 0;
        for (int d = 0; d < D; d++) {
            size_t at = row + (size_t)d * (size_t)r.ld;
            sum += formula_page_bound(q[g * D + d], b.least[at], b.most[at]);
        }
        top = fmaxf(top, sum);
    }
    r.score[(size_t)blockIdx.y * (size_t)r.ld + (size_t)page] = top;
}

__global__ void block_kernel(struct gpu_reads r, int first, const float *key, const float *q,
                             int dim)
{
    int page, g0, end;
    if (!page_of(r, &page, &g0, &end))
        return;
    int h = g0 / r.per;
    const float *k = key + ((size_t)(first + h) * (size_t)r.ld + (size_t)page) * (size_t)dim;
    double sum = 0;
    for (int i = 0; i < dim; i++)
        sum += (double)q[h * dim + i] * (double)k[i];
    r.score[(size_t)blockIdx.y * (size_t)r.ld + (size_t)page] = (float)(sum / sqrt((double)dim));
}

__global__ void largest_kernel(struct gpu_heads h, struct gpu_reads r, int first, const float *p,
                               size_t ld_p)
{
    int page, g0, end;
    if (!page_of(r, &page, &g0, &end))
        return;
    int n = h.n[first + g0 / r.per], to = (page + 1) * r.page;
    float top = 0;
    for (int g = g0; g < end; g++)
        for (int i = page * r.page; i < to && i < n; i++)
            top = fmaxf(top, p[(size_t)g * ld_p + (size_t)i]);
    r.score[(size_t)blockIdx.y * (size_t)r.ld + (size_t)page] = top;
}

static dim3 grid_of(const struct gpu_heads *h, const struct gpu_reads *r, int n_heads)
{
    return dim3(blocks_for((size_t)h->cache.most, (size_t)(LANES * r->page)),
                (unsigned)(n_heads * r->per));
}

void gpu_score_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *reads,
                      int first, int n_heads, const struct gpu_bounds *bounds, const float *q)
{
    struct gpu_reads r = *reads;
    struct gpu_bounds b = *bounds;
    int D = h->cache.D;
    LAUNCH(possible_kernel, grid_of(h, reads, n_heads), LANES, 0, g, r, first, D, b, q);
}

void gpu_score_blocks(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *reads,
                      int first, int n_heads, const float *key, const float *q, int dim)
{
    struct gpu_reads r = *reads;
    LAUNCH(block_kernel, grid_of(h, reads, n_heads), LANES, 0, g, r, first, key, q, dim);
}

void gpu_score_weights(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *reads,
                       int first, int n_heads, const float *p, size_t ld_p)
{
    struct gpu_heads in = *h;
    struct gpu_reads r = *reads;
    LAUNCH(largest_kernel, grid_of(h, reads, n_heads), LANES, 0, g, in, r, first, p, ld_p);
}

/* Block (query head). */
__global__ void __launch_bounds__(LANES)
    count_kernel(struct gpu_heads h, struct gpu_reads r, int first, int32_t *page,
                 unsigned char *chosen)
{
    int g = (int)blockIdx.x, n = h.n[first + g / r.per];
    int most = r.budget / r.page > 1 ? r.budget / r.page : 1;
    bool all = n <= r.budget || n <= (long long)most * r.page;
    int pages = (n + r.page - 1) / r.page, open = r.local < n ? (n - r.local) / r.page : 0;
    int more = most - (pages - open);
    for (int b = (int)threadIdx.x; b < pages; b += LANES)
        chosen[(size_t)g * (size_t)r.ld + (size_t)b] = b < open ? OPEN : ALWAYS;
    if (threadIdx.x != 0)
        return;
    r.n_open[g] = all ? 0 : open;
    r.lost[g] = open - more; /* can exceed the number of open pages, which means all of them */
    if (g % r.per == 0)
        page[g / r.per] = all ? 0 : r.page;
}

void gpu_count_pages(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *reads,
                     int first, int n_heads, int32_t *page, unsigned char *chosen)
{
    struct gpu_heads in = *h;
    struct gpu_reads r = *reads;
    LAUNCH(count_kernel, (unsigned)(n_heads * r.per), LANES, 0, g, in, r, first, page, chosen);
}

void gpu_choose_pages(struct gpu *g, const struct gpu_reads *r, int n_heads, unsigned char *chosen)
{
    struct gpu_choice c = {};
    c.score = r->score;
    c.pos = r->number;
    c.mark = chosen;
    c.n = r->n_open;
    c.count = r->count;
    c.ld = r->ld;
    c.from = OPEN;
    c.to = LEFT_OUT;
    gpu_choose(g, &c, n_heads * r->per, 1, r->lost);
}
