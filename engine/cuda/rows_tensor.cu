/* rows_tensor.cu - logits of many queries that stay in memory, with keys in f16, by tensor cores;
 * and softmax of rows where the order of sums is free.
 *
 * A row is one query of one query head.  A block has 64 rows of the query heads of one KV head,
 * query by query, a warp 16 of them, and goes through a few pages of keys. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

enum {
    WARPS = 4,
    LANES = WARPS * WARP,
    ROWS = WARPS * 16,
    MOST_D = 128,
    KEY_LD = PAGE_SLOTS / 8 + 1, /* pieces of a channel, an odd number: see attention_tensor.cu */
    QUERY_LD = MOST_D / 8 + 1,
    COLUMNS = PAGE_SLOTS / 8, /* tiles of eight entries */
    PAGES = 4,                /* that a block goes through */
};

/* Rows of a block: row i is query (first + i) / group of query head h group + (first + i) % group.
 */
struct block_rows {
    int h, group, first, all;
};

/* The queries of a block, rounded to f16; zeros behind the last row. */
DEVICE void load_rows(const struct gpu_attention &a, const struct block_rows &b,
                      in_shared<uint4> to)
{
    int D = a.cache.D, pieces = D / 8;
    for (int i = (int)threadIdx.x; i < ROWS * pieces; i += LANES) {
        int row = b.first + i / pieces, part = i % pieces;
        uint4 piece = {0, 0, 0, 0};
        if (row < b.all) {
            const float *q = a.q + (size_t)(row / b.group) * a.ld_q
                             + (size_t)((b.h * b.group + row % b.group) * D + part * 8);
            piece = {two_halves(q[0], q[1]), two_halves(q[2], q[3]), two_halves(q[4], q[5]),
                     two_halves(q[6], q[7])};
        }
        to[(size_t)(i / pieces * QUERY_LD + part)] = piece;
    }
}

DEVICE void load_keys(const uint16_t *keys, int D, in_shared<uint4> to)
{
    for (int i = (int)threadIdx.x; i < D * (PAGE_SLOTS / 8); i += LANES)
        copy_piece(to + (size_t)(i / (PAGE_SLOTS / 8) * KEY_LD + i % (PAGE_SLOTS / 8)),
                   keys + (size_t)i * 8, true);
    copies_group();
}

/* Products of the warp's rows and the keys of a page. */
DEVICE void multiply_page(int D, in_shared<uint4> queries, in_shared<uint4> keys,
                          float s[COLUMNS][4])
{
    int lane = lane_of_warp();
    in_shared<uint4> q = queries
                         + (size_t)((warp_of_block() * 16 + lane % 16) * QUERY_LD + lane / 16);
    in_shared<uint4> k = keys + (size_t)(lane % 16 * KEY_LD + lane / 16);
    for (int d = 0; d < D / 16; d++) {
        uint32_t x[4], w[4];
        load_matrices(x, q + (size_t)(d * 2));
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) {
            load_matrices_turned(w, k + (size_t)(d * 16 * KEY_LD + j * 2));
            multiply(s[j * 2], x, w[0], w[1]);
            multiply(s[j * 2 + 1], x, w[2], w[3]);
        }
    }
}

/* Logits of a page, of which a lane has two rows and two slots of each tile. */
DEVICE void store_page(const struct gpu_attention &a, const struct block_rows &b, int page,
                       const float s[COLUMNS][4], float *p, size_t ld)
{
    int first = b.first + warp_of_block() * 16 + lane_of_warp() / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = first + i * 8, r = row / b.group, g = b.h * b.group + row % b.group;
        if (row >= b.all)
            continue;
        float *to = p + ((size_t)g * (size_t)a.T + (size_t)r) * ld;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            int slot = page * PAGE_SLOTS + j * 8 + lane_of_warp() % 4 * 2;
            float x[2];
            for (int k = 0; k < 2; k++)
                x[k] = sees(a, g, b.h, r, slot + k) ? logit(a, b.h, r, slot + k, s[j][i * 2 + k])
                                                    : -INFINITY;
            *(float2 *)(void *)(to + slot) = {x[0], x[1]};
        }
    }
}

/* Block (PAGES pages, KV head, ROWS of its rows). */
__global__ void __launch_bounds__(LANES)
    tensor_scores_kernel(struct gpu_attention a, float *p, size_t ld)
{
    SHARED(uint4, queries, ROWS * QUERY_LD);
    SHARED(uint4, keys, MOST_D * KEY_LD);
    int group = a.n_heads / a.cache.heads, n = a.cache.n[blockIdx.y];
    struct block_rows b = {(int)blockIdx.y, group, (int)blockIdx.z * ROWS, a.T * group};
    int page = (int)blockIdx.x * PAGES, end = (n + PAGE_SLOTS - 1) / PAGE_SLOTS;
    end = end < page + PAGES ? end : page + PAGES;
    if (page >= end)
        return;
    load_rows(a, b, queries);
    for (; page < end; page++) {
        float s[COLUMNS][4] = {};
        load_keys(page_keys<uint16_t>(a.cache, b.h, page), a.cache.D, keys);
        copies_wait<0>();
        __syncthreads();
        multiply_page(a.cache.D, queries, keys, s);
        __syncthreads(); /* all have done with the keys */
        store_page(a, b, page, s, p, ld);
    }
}

enum { SOFTMAX_LANES = 256, FOUR_LANES = SOFTMAX_LANES * FOUR };

struct row_numbers { /* [n_heads][T] or NULL */
    float *lse, *entropy;
    int32_t *seen;
};

/* What a lane has seen of a row so far, relative to its largest logit. */
struct running {
    float top, sum, moment; /* moment: of (logit - top) weights */
    int seen;
};

DEVICE void take_logit(struct running &y, float x)
{
    if (x == -INFINITY)
        return;
    if (x > y.top) { /* first of all where there was none */
        float d = y.top == -INFINITY ? 0 : y.top - x, fade = y.seen ? expf(d) : 0;
        y.moment = fade * (y.moment + d * y.sum);
        y.sum *= fade;
        y.top = x;
    }
    float d = x - y.top, w = expf(d);
    y.sum += w;
    y.moment = fmaf(w, d, y.moment);
    y.seen++;
}

/* Block (query, query head).  Weights of the slots that the row may see. */
__global__ void __launch_bounds__(SOFTMAX_LANES)
    near_softmax_kernel(struct gpu_attention a, float *p, size_t ld, struct row_numbers out)
{
    int g = (int)blockIdx.y, h = kv_head(a, g), r = (int)blockIdx.x, id = (int)threadIdx.x;
    int n = slots_of(a, h, r);
    size_t at = (size_t)g * (size_t)a.T + (size_t)r;
    float *row = p + at * ld;
    struct running y = {-INFINITY, 0, 0, 0};
    for (int i = id * FOUR; i < n; i += FOUR_LANES) {
        float4 x = *(const float4 *)(const void *)(row + i);
        const float v[FOUR] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            take_logit(y, i + k < n ? v[k] : -INFINITY);
    }
    float top = block_max(y.top), d = y.seen ? y.top - top : 0, fade = y.seen ? expf(d) : 0;
    double sum = block_sum((double)(y.sum * fade));
    double moment = block_sum((double)(fade * (y.moment + d * y.sum)));
    int seen = block_sum(y.seen);
    float inverse = (float)(1.0 / sum);
    for (int i = id * FOUR; i < n; i += FOUR_LANES) {
        float4 x = *(const float4 *)(const void *)(row + i);
        *(float4 *)(void *)(row
                            + i) = {weight_of(x.x, top) * inverse, weight_of(x.y, top) * inverse,
                                    weight_of(x.z, top) * inverse, weight_of(x.w, top) * inverse};
    }
    if (id != 0)
        return;
    if (out.lse)
        out.lse[at] = top + (float)log(sum);
    if (out.entropy)
        out.entropy[at] = (float)(log(sum) - moment / sum);
    if (out.seen)
        out.seen[at] = seen;
}

void gpu_rows_near(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
                   float *entropy, int32_t *seen)
{
    int D = a->cache.D;
    if (a->T == 1 || a->layer_heads || a->cache.type != KV_F16 || D % 16 != 0 || D > MOST_D) {
        gpu_rows(g, a, p, ld, lse, entropy, seen);
        return;
    }
    struct gpu_attention in = *a;
    struct row_numbers out = {lse, entropy, seen};
    size_t rows = (size_t)(a->T * (a->n_heads / a->cache.heads));
    dim3 grid(blocks_for((size_t)a->cache.most, PAGES * PAGE_SLOTS), (unsigned)a->cache.heads,
              blocks_for(rows, ROWS));
    LAUNCH(tensor_scores_kernel, grid, LANES, 0, g, in, p, ld);
    dim3 all((unsigned)a->T, (unsigned)a->n_heads);
    LAUNCH(near_softmax_kernel, all, SOFTMAX_LANES, 0, g, in, p, ld, out);
}
