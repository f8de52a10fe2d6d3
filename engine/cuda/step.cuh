/* step.cuh - division of a decode step's attention into blocks, and combination of their partial
 * results (the rest is in attention_step.cu). */
#ifndef KVF_ENGINE_CUDA_STEP_CUH
#define KVF_ENGINE_CUDA_STEP_CUH

#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

enum {
    LANES = 256,
    WARPS = LANES / WARP,
    KEY_LANES = PAGE_SLOTS / FOUR, /* number of lanes that share a channel of a page */
    STAGES = 3,
    PIECES = 1024, /* pieces of 16 bytes of a tile */
    MOST_ROWS = 16,
    ROWS_OF_WARP = MOST_ROWS / WARPS,
    MAX_SPLITS = 128,
    FILL = 3 * 132, /* concurrent blocks of a launch on a device */
    PART = LANES * FOUR * FOUR,
};

/* Division of a launch. */
struct cut {
    int n_q, passes;   /* query heads of a KV head; blocks that share them */
    int splits, pages; /* blocks that share the pages; maximum pages of a block */
    int sets, lanes;   /* sets of a block; lanes of a set, 1 << log_lanes */
    int log_lanes;
    int fours, step;      /* channels / 4; slots of values that a set processes at once */
    int slots;            /* slots of a tile of values */
    int key_tiles, tiles; /* tiles of a page: of keys, of keys and values */
};

/* Returns the channels of a tile of keys with elements of `bytes` bytes. */
static __host__ __device__ inline int channels_of(size_t bytes)
{
    return PIECES * 16 / (int)bytes / PAGE_SLOTS;
}

/* Returns the number of lane sets for n_q query heads. */
static int sets_of(int n_q)
{
    return n_q > 2 * FOUR ? 4 : (n_q + FOUR - 1) / FOUR;
}

/* Returns the query heads of a set. */
static int queries_of_set(const struct gpu_attention *a)
{
    int n_q = a->n_heads / a->cache.heads;
    n_q = n_q < MOST_ROWS ? n_q : MOST_ROWS;
    return (n_q + sets_of(n_q) - 1) / sets_of(n_q);
}

/* Divides the query heads into passes and lane sets. */
static void cut_rows(struct cut *c, const struct gpu_attention *a)
{
    c->n_q = a->n_heads / a->cache.heads;
    c->passes = (c->n_q + MOST_ROWS - 1) / MOST_ROWS;
    c->sets = sets_of(c->n_q);
    c->log_lanes = c->sets == 4 ? 6 : 9 - c->sets;
    c->lanes = 1 << c->log_lanes;
}

/* Divides the pages between blocks. */
static void cut_pages(struct cut *c, const struct gpu_attention *a)
{
    int pages = (int)blocks_for((size_t)a->cache.most, PAGE_SLOTS);
    c->splits = FILL / (a->cache.heads * c->passes);
    c->splits = c->splits < MAX_SPLITS ? c->splits : MAX_SPLITS;
    c->splits = c->splits < pages ? c->splits : pages;
    c->splits = c->splits > 1 ? c->splits : 1;
    c->pages = (pages + c->splits - 1) / c->splits;
}

/* Divides a page into tiles. */
static void cut_tiles(struct cut *c, const struct gpu_attention *a)
{
    size_t bytes = a->cache.type == KV_F16 ? 2 : 4;
    int D = a->cache.D, channels = channels_of(bytes);
    c->fours = (D + FOUR - 1) / FOUR;
    c->step = c->lanes / c->fours;
    c->slots = PIECES * 16 / (int)bytes / D / 8 * 8;
    c->slots = c->slots < PAGE_SLOTS ? c->slots : PAGE_SLOTS;
    c->key_tiles = (D + channels - 1) / channels;
    c->tiles = c->key_tiles + (PAGE_SLOTS + c->slots - 1) / c->slots;
}

static struct cut cut_of(const struct gpu_attention *a)
{
    struct cut c;
    cut_rows(&c, a);
    cut_pages(&c, a);
    cut_tiles(&c, a);
    return c;
}

/* Shared memory, in floats: tiles, sums of lanes, weights [sets][PAGE_SLOTS][FOUR], factors of
 * previous sums [sets][FOUR], queries [sets][D][FOUR], then page numbers and addresses. */
enum { AT_PART = STAGES * PIECES * 4, AT_WEIGHTS = AT_PART + PART };

static size_t shared_bytes(const struct cut *c, int D)
{
    int floats = AT_WEIGHTS + c->sets * FOUR * (PAGE_SLOTS + 1 + D) + 2 * c->pages;
    return (size_t)floats * sizeof(float);
}

/* Device memory of partial results: the number of finished blocks of a head [heads][passes]; per
 * row, sums of values [n_heads][splits][D rounded up to fours], and maximum logit and sum of
 * weights [n_heads][splits][2]. */
struct parts {
    int *ended;
    float *values, *state;
};

static __host__ __device__ inline size_t at_values(int heads, int passes)
{
    return (size_t)(heads * passes + FOUR - 1) / FOUR * FOUR;
}

static __host__ __device__ inline size_t at_state(int n_heads, int splits, int D)
{
    return (size_t)n_heads * (size_t)splits * (size_t)((D + FOUR - 1) / FOUR * FOUR);
}

/* A block and the position of a lane in it. */
struct place {
    struct cut c;
    int h, g0, n_rows, split; /* KV head, first query head, number of query heads */
    int n, D;                 /* entries, channels */
    int set, lane;            /* lane of the set */
    int slot, channel; /* first slot and channel of values of the lane; slot >= step: no slot */
};

DEVICE struct place place_of(const struct gpu_attention &a, const struct cut &c, int pass)
{
    struct place b;
    int first = pass * MOST_ROWS;
    b.c = c;
    b.h = (int)blockIdx.x;
    b.n = a.cache.n[b.h];
    b.g0 = b.h * c.n_q + first;
    b.n_rows = c.n_q - first < MOST_ROWS ? c.n_q - first : MOST_ROWS;
    b.split = (int)blockIdx.y;
    b.D = a.cache.D;
    b.set = (int)threadIdx.x >> c.log_lanes;
    b.lane = (int)threadIdx.x & (c.lanes - 1);
    b.slot = b.lane / c.fours;
    b.channel = b.lane % c.fours * FOUR;
    return b;
}

DEVICE int slots_left(const struct place &b, int page)
{
    int left = b.n - page * PAGE_SLOTS;
    return left < PAGE_SLOTS ? left : PAGE_SLOTS;
}

/* Returns true if all other blocks of the KV head have finished. */
DEVICE bool is_last(int *ended, int splits, in_shared<int32_t> told)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        told[0] = atomicAdd(ended, 1) == splits - 1;
        __threadfence();
    }
    __syncthreads();
    return told[0];
}

/* share[r][i]: factor of part i in row r. */
DEVICE void part_weights(const struct gpu_attention &a, const struct place &b, const float *state,
                         in_shared<float> share)
{
    enum { MINE = MAX_SPLITS / WARP };
    for (int r = warp_of_block(); r < b.n_rows; r += WARPS) {
        const float *row = state + 2 * (size_t)(b.g0 + r) * (size_t)b.c.splits;
        float top[MINE], sum[MINE], most = -INFINITY, all = 0;
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            int i = lane_of_warp() + k * WARP;
            top[k] = i < b.c.splits ? __ldcg(row + 2 * i) : -INFINITY;
            sum[k] = i < b.c.splits ? __ldcg(row + 2 * i + 1) : 0;
            most = fmaxf(most, top[k]);
        }
        most = warp_max(most);
#pragma unroll
        for (int k = 0; k < MINE; k++)
            all = fmaf(weight_of(top[k], most), sum[k], all);
        all = warp_sum(all) + sink_weight(a, b.g0 + r, most);
#pragma unroll
        for (int k = 0; k < MINE; k++)
            if (lane_of_warp() + k * WARP < b.c.splits)
                share[r * b.c.splits + lane_of_warp() + k * WARP] = all > 0
                                                                        ? weight_of(top[k], most)
                                                                              / all
                                                                        : 0;
    }
}

/* Sums every n-th part, from `first` on, of four channels of row r. */
DEVICE void sum_parts(const struct place &b, const float *values, int r, int four, int first, int n,
                      in_shared<float> share, float *sum)
{
    const float4 *v = (const float4 *)values + (size_t)(b.g0 + r) * (size_t)(b.c.splits * b.c.fours)
                      + four;
#pragma unroll 8
    for (int i = first; i < b.c.splits; i += n) {
        float4 x = __ldcg(v + (size_t)(i * b.c.fours));
        float w = share[r * b.c.splits + i];
        sum[0] = fmaf(w, x.x, sum[0]);
        sum[1] = fmaf(w, x.y, sum[1]);
        sum[2] = fmaf(w, x.z, sum[2]);
        sum[3] = fmaf(w, x.w, sum[3]);
    }
}

/* Combines the parts in an order that depends only on their number. A lane has four channels of a
 * row, or a strided subset of their parts if there are enough lanes. */
DEVICE void join_parts(const struct gpu_attention &a, const struct place &b, struct parts from,
                       in_shared<float> share)
{
    in_shared<float> sums = share + MOST_ROWS * MAX_SPLITS;
    int id = (int)threadIdx.x, all = b.n_rows * b.c.fours;
    part_weights(a, b, from.state, share);
    __syncthreads();
    for (int first = 0; first < all; first += LANES) {
        int n = all - first < LANES ? all - first : LANES, shares = LANES / n;
        int unit = first + id % n, r = unit / b.c.fours, four = unit % b.c.fours;
        float sum[FOUR] = {0}, x[FOUR];
        if (id < n * shares)
            sum_parts(b, from.values, r, four, id / n, shares, share, sum);
        shared_set_four(sums, id * FOUR, sum);
        __syncthreads();
        for (int k = 1; k < shares && id < n; k++) {
            shared_four(sums, (k * n + id) * FOUR, x);
            for (int c = 0; c < FOUR; c++)
                sum[c] += x[c];
        }
        for (int c = 0; c < FOUR && id < n; c++)
            if (four * FOUR + c < b.D)
                a.out[(b.g0 + r) * b.D + four * FOUR + c] = sum[c];
        __syncthreads();
    }
}

#endif
