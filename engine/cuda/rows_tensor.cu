/* rows_tensor.cu - attention rows of many queries with f16 keys on tensor cores, without a fixed
 * order of sums.
 *
 * A row is one query of one query head. A block has 64 rows of the query heads of one KV head,
 * query by query; a warp has 16 of them. The block processes a split, PAGES pages of keys, and
 * copies the next page meanwhile. Products are cheaper than writing and reading a row once more, so
 * they are computed twice. The first pass computes the sums of each split of a row, which are
 * combined in split order. The second pass computes the weights. Splits begin at fixed slots and
 * hidden entries add 0, so the bits of a row do not depend on other queries. */
#include <string.h>

#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

enum {
    WARPS = 4,
    LANES = WARPS * WARP,
    ROWS = WARPS * 16,
    MINE = 2, /* rows of a lane */
    MAX_D = 128,
    KEY_LD = PAGE_SLOTS / 8 + 1, /* pieces of a channel, an odd number: see attention_tensor.cu */
    COLUMNS = PAGE_SLOTS / 8,    /* tiles of eight entries */
    PAGES = 8,                   /* pages of a split */
};
#define LOG2_E 1.44269504f
#define LN_2 0.6931471805599453

/* Partial result of a split for a row, or of a lane so far. Logits are in units of ln 2 and
 * relative to the largest one. */
struct part {
    float top, sum, moment; /* moment: sum of (logit - top) weights */
    int seen;
};

/* Parameters of the weights of a row: 2^(logit - top) unit. */
struct row_unit {
    float top, unit;
};

/* Scratch memory: the parts and the unit of each row. */
struct row_room {
    struct part *part; /* [n_heads][T][splits] */
    struct row_unit *unit;
    int splits;
};

struct row_numbers { /* [n_heads][T] or NULL */
    float *lse, *entropy;
    int32_t *seen;
};

/* Rows of a block: row i is query (first + i) / group of query head h group + (first + i) %
 * group. */
struct block_rows {
    int h, group, first, all;
};

/* Rows of a lane. */
struct lane_rows {
    int r[MINE], g[MINE];
    bool there[MINE];
    int least; /* slots that all rows of the warp may see */
};

DEVICE struct block_rows rows_of_block(const struct gpu_attention &a)
{
    int group = a.n_heads / a.cache.heads;
    return {(int)blockIdx.y, group, (int)blockIdx.z * ROWS, a.T * group};
}

DEVICE struct lane_rows rows_of_lane(const struct gpu_attention &a, const struct block_rows &b)
{
    struct lane_rows l;
    int first = b.first + warp_of_block() * 16;
    for (int i = 0; i < MINE; i++) {
        int row = first + lane_of_warp() / 4 + i * 8;
        l.r[i] = row / b.group;
        l.g[i] = b.h * b.group + row % b.group;
        l.there[i] = row < b.all;
    }
    l.least = a.cache.until || a.page ? 0 : slots_of(a, b.h, first / b.group);
    return l;
}

/* Returns the end of the pages that a row of the block sees. */
DEVICE int end_of_pages(const struct gpu_attention &a, const struct block_rows &b)
{
    int last = b.first + ROWS < b.all ? b.first + ROWS : b.all;
    return (slots_of(a, b.h, (last - 1) / b.group) + PAGE_SLOTS - 1) / PAGE_SLOTS;
}

/* Loads the queries of a block, rounded to f16; zeros after the last channel and the last row. */
template <int WIDE>
DEVICE void load_rows(const struct gpu_attention &a, const struct block_rows &b,
                      in_shared<uint4> to)
{
    enum { PIECES = WIDE / 8 };
    int D = a.cache.D;
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += LANES) {
        int row = b.first + i / PIECES, part = i % PIECES;
        uint4 piece = {0, 0, 0, 0};
        if (row < b.all && part * 8 < D) {
            const float *q = a.q + (size_t)(row / b.group) * a.ld_q
                             + (size_t)((b.h * b.group + row % b.group) * D + part * 8);
            piece = {two_halves(q[0], q[1]), two_halves(q[2], q[3]), two_halves(q[4], q[5]),
                     two_halves(q[6], q[7])};
        }
        to[(size_t)(i / PIECES * (PIECES + 1) + part)] = piece;
    }
}

/* Starts to copy the keys of a page; always forms one group. */
template <int WIDE>
DEVICE void load_keys(const struct gpu_attention &a, const struct block_rows &b, int page, int end,
                      in_shared<uint4> to)
{
    if (page < end) {
        const uint16_t *keys = page_keys<uint16_t>(a.cache, b.h, page);
#pragma unroll
        for (int i = (int)threadIdx.x; i < WIDE * (PAGE_SLOTS / 8); i += LANES) {
            int d = i / (PAGE_SLOTS / 8), part = i % (PAGE_SLOTS / 8);
            bool there = d < a.cache.D;
            copy_piece(to + (size_t)(d * KEY_LD + part), keys + (there ? (size_t)i * 8 : 0), there);
        }
    }
    copies_group();
}

/* Multiplies the warp's rows by the keys of a page. */
template <int WIDE>
DEVICE void multiply_page(const uint32_t x[WIDE / 16][4], in_shared<uint4> keys,
                          float s[COLUMNS][4])
{
    int lane = lane_of_warp();
    in_shared<uint4> k = keys + (size_t)(lane % 16 * KEY_LD + lane / 16);
#pragma unroll
    for (int d = 0; d < WIDE / 16; d++)
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) {
            uint32_t w[4];
            load_matrices_turned(w, k + (size_t)(d * 16 * KEY_LD + j * 2));
            multiply(s[j * 2], x[d], w[0], w[1]);
            multiply(s[j * 2 + 1], x[d], w[2], w[3]);
        }
}

/* Completes logits with a soft cap or gates, and sets hidden entries to -INFINITY. It processes one
 * column at a time, because this is much code for few pages. */
DEVICE void odd_logits(const struct gpu_attention &a, const struct block_rows &b,
                       const struct lane_rows &l, int page, bool plain, float s[COLUMNS][4])
{
    float x[COLUMNS][4];
    memcpy(x, s, sizeof x);
#pragma unroll 1
    for (int at = 0; at < COLUMNS * 4; at++) {
        int i = at % 4 / 2, slot = page * PAGE_SLOTS + at / 4 * 8 + lane_of_warp() % 4 * 2 + at % 2;
        float *to = &x[at / 4][at % 4];
        if (!l.there[i] || !sees(a, l.g[i], b.h, l.r[i], slot))
            *to = -INFINITY;
        else if (!plain)
            *to = logit(a, b.h, l.r[i], slot, *to) * LOG2_E;
    }
    memcpy(s, x, sizeof x);
}

/* Converts the products to logits; -INFINITY for hidden entries. Returns true if each row of the
 * warp sees all of the page. */
DEVICE bool logits(const struct gpu_attention &a, const struct block_rows &b,
                   const struct lane_rows &l, int page, float s[COLUMNS][4])
{
    bool plain = a.cap == 0 && !a.log_beta, whole = (page + 1) * PAGE_SLOTS <= l.least;
    float unit = plain ? a.scale * LOG2_E : 1;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            s[j][k] *= unit;
    if (plain && whole)
        return true;
    odd_logits(a, b, l, page, plain, s);
    return false;
}

/* Calls f(page, logits, whole) for the pages of the block's split, with all lanes. */
template <int WIDE, class F>
DEVICE void each_page(const struct gpu_attention &a, const struct block_rows &b,
                      const struct lane_rows &l, F f)
{
    enum { STAGE = WIDE * KEY_LD, LD = WIDE / 8 + 1 };
    SHARED(uint4, stages, 2 * STAGE);
    in_shared<uint4> even = stages, odd = stages + (size_t)STAGE;
    int page = (int)blockIdx.x * PAGES, all = end_of_pages(a, b);
    int end = all < page + PAGES ? all : page + PAGES;
    uint32_t x[WIDE / 16][4];
    load_keys<WIDE>(a, b, page, end, even);
    load_rows<WIDE>(a, b, odd);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < WIDE / 16; d++)
        load_matrices(x[d], odd
                                + (size_t)((warp_of_block() * 16 + lane_of_warp() % 16) * LD
                                           + lane_of_warp() / 16 + d * 2));
    for (int i = 0; page < end; page++, i++) {
        float s[COLUMNS][4] = {};
        __syncthreads(); /* all lanes have finished with the stage of the next page */
        load_keys<WIDE>(a, b, page + 1, end, i % 2 ? even : odd);
        copies_wait<1>();
        __syncthreads();
        multiply_page<WIDE>(x, i % 2 ? odd : even, s);
        bool whole = logits(a, b, l, page, s);
        f(page, s, whole);
    }
    copies_wait<0>();
}

/* Combines x into y; both are relative to their own largest logit. */
DEVICE void join(struct part &y, const struct part &x)
{
    float top = fmaxf(y.top, x.top);
    float down = y.seen ? y.top - top : 0, other = x.seen ? x.top - top : 0;
    float fade = y.seen ? power_of_two(down) : 0, take = x.seen ? power_of_two(other) : 0;
    y.moment = fade * fmaf(down, y.sum, y.moment) + take * fmaf(other, x.sum, x.moment);
    y.sum = fade * y.sum + take * x.sum;
    y.top = top;
    y.seen += x.seen;
}

/* Adds a lane's logits of one of its rows to y. */
DEVICE void take_page(struct part &y, const float s[COLUMNS][4], int i, bool whole)
{
    float top = y.top;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
        top = fmaxf(top, fmaxf(s[j][i * 2], s[j][i * 2 + 1]));
    if (top > y.top) {
        float down = y.seen ? y.top - top : 0, fade = y.seen ? power_of_two(down) : 0;
        y.moment = fade * fmaf(down, y.sum, y.moment);
        y.sum *= fade;
        y.top = top;
    }
    float base = top == -INFINITY ? 0 : top;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float d = fmaxf(s[j][i * 2 + k] - base, -200), w = power_of_two(d); /* 2^-200 is 0 */
            y.sum += w;
            y.moment = fmaf(w, d, y.moment);
            y.seen += whole || s[j][i * 2 + k] != -INFINITY;
        }
}

/* Block (split, KV head, ROWS of its rows): computes sums. */
template <int WIDE>
__global__ void __launch_bounds__(LANES)
    row_parts_kernel(struct gpu_attention a, struct row_room room)
{
    struct block_rows b = rows_of_block(a);
    if ((int)blockIdx.x * PAGES >= end_of_pages(a, b))
        return;
    struct lane_rows l = rows_of_lane(a, b);
    struct part y[MINE] = {{-INFINITY, 0, 0, 0}, {-INFINITY, 0, 0, 0}};
    each_page<WIDE>(a, b, l, [&](int, const float s[COLUMNS][4], bool whole) {
#pragma unroll
        for (int i = 0; i < MINE; i++)
            take_page(y[i], s, i, whole);
    });
#pragma unroll
    for (int i = 0; i < MINE; i++) {
#pragma unroll
        for (int turn = 1; turn <= 2; turn *= 2) {
            struct part x = {__shfl_xor_sync(ALL_LANES, y[i].top, turn),
                             __shfl_xor_sync(ALL_LANES, y[i].sum, turn),
                             __shfl_xor_sync(ALL_LANES, y[i].moment, turn),
                             __shfl_xor_sync(ALL_LANES, y[i].seen, turn)};
            join(y[i], x);
        }
        size_t row = (size_t)l.g[i] * (size_t)a.T + (size_t)l.r[i];
        if (l.there[i] && lane_of_warp() % 4 == 0)
            room.part[row * (size_t)room.splits + (size_t)blockIdx.x] = y[i];
    }
}

/* A warp combines the parts of a row; rows of all heads, one per warp. */
__global__ void __launch_bounds__(LANES)
    row_units_kernel(struct gpu_attention a, struct row_room room, struct row_numbers out)
{
    int at = (int)blockIdx.x * WARPS + warp_of_block(), g = at / a.T, r = at % a.T;
    if (g >= a.n_heads)
        return;
    enum { SLOTS = PAGES * PAGE_SLOTS };
    int n = (slots_of(a, kv_head(a, g), r) + SLOTS - 1) / SLOTS, seen = 0;
    const struct part *part = room.part + (size_t)at * (size_t)room.splits;
    float top = -INFINITY;
    for (int i = lane_of_warp(); i < n; i += WARP)
        top = fmaxf(top, part[i].top);
    top = warp_max(top);
    double sum = 0, moment = 0;
    for (int i = lane_of_warp(); i < n; i += WARP) {
        float down = part[i].seen ? part[i].top - top : 0;
        double fade = part[i].seen ? power_of_two(down) : 0;
        sum += fade * (double)part[i].sum;
        moment += fade * ((double)part[i].moment + (double)down * (double)part[i].sum);
        seen += part[i].seen;
    }
    sum = warp_sum(sum);
    moment = warp_sum(moment);
    seen = warp_sum(seen);
    if (lane_of_warp() != 0)
        return;
    double lse = (double)top * LN_2 + log(sum);
    double more = a.sinks ? exp((double)a.sinks[g] - lse) : 0, kept = 1 / (1 + more);
    room.unit[at] = {seen ? top : 0, seen ? (float)(kept / sum) : 0};
    if (out.lse)
        out.lse[at] = (float)(lse + log1p(more));
    if (out.entropy)
        out.entropy[at] = (float)(kept * (log(sum) - moment * LN_2 / sum - log(kept)));
    if (out.seen)
        out.seen[at] = seen;
}

/* Block (split, KV head, ROWS of its rows): computes weights. */
template <int WIDE>
__global__ void __launch_bounds__(LANES)
    row_weights_kernel(struct gpu_attention a, struct row_room room, float *p, size_t ld)
{
    struct block_rows b = rows_of_block(a);
    if ((int)blockIdx.x * PAGES >= end_of_pages(a, b))
        return;
    struct lane_rows l = rows_of_lane(a, b);
    struct row_unit unit[MINE] = {};
    float *to[MINE];
    for (int i = 0; i < MINE; i++) {
        size_t row = (size_t)l.g[i] * (size_t)a.T + (size_t)l.r[i];
        if (l.there[i])
            unit[i] = room.unit[row];
        to[i] = p + row * ld + (size_t)(lane_of_warp() % 4 * 2);
    }
    each_page<WIDE>(a, b, l, [&](int page, const float s[COLUMNS][4], bool) {
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            float top = unit[i].top, one = unit[i].unit;
#pragma unroll
            for (int j = 0; j < COLUMNS && l.there[i]; j++)
                *(float2 *)(void *)(to[i] + page * PAGE_SLOTS
                                    + j * 8) = {power_of_two(s[j][i * 2] - top) * one,
                                                power_of_two(s[j][i * 2 + 1] - top) * one};
        }
    });
}

template <int WIDE>
static void rows_by_tensor(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld,
                           const struct row_room &room, const struct row_numbers &out)
{
    struct gpu_attention in = *a;
    size_t rows = (size_t)(a->T * (a->n_heads / a->cache.heads));
    dim3 grid((unsigned)room.splits, (unsigned)a->cache.heads, blocks_for(rows, ROWS));
    LAUNCH(row_parts_kernel<WIDE>, grid, LANES, 0, g, in, room);
    LAUNCH(row_units_kernel, blocks_for((size_t)(a->T * a->n_heads), WARPS), LANES, 0, g, in, room,
           out);
    LAUNCH(row_weights_kernel<WIDE>, grid, LANES, 0, g, in, room, p, ld);
}

void gpu_rows_approx(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
                     float *entropy, int32_t *seen)
{
    int D = a->cache.D;
    size_t splits = blocks_for((size_t)a->cache.most, PAGES * PAGE_SLOTS);
    size_t rows = (size_t)(a->T * a->n_heads), parts = rows * splits * sizeof(struct part);
    if (a->T == 1 || a->layer_heads || a->cache.type != KV_F16 || D % 16 != 0 || D > MAX_D
        || !gpu_hold(g, &g->rows, &g->rows_bytes, parts + rows * sizeof(struct row_unit))) {
        gpu_rows(g, a, p, ld, lse, entropy, seen);
        return;
    }
    struct row_room room = {(struct part *)g->rows,
                            (struct row_unit *)(void *)((char *)g->rows + parts), (int)splits};
    struct row_numbers out = {lse, entropy, seen};
    if (D <= MAX_D / 2)
        rows_by_tensor<MAX_D / 2>(g, a, p, ld, room, out);
    else
        rows_by_tensor<MAX_D>(g, a, p, ld, room, out);
}
