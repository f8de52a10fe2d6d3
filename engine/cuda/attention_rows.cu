/* attention_rows.cu - attention that stores its weights in memory: scores, softmax and values, each
 * in the order of the C reference. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

/* A row is a query of a query head. A block has one page and ROWS rows of the heads that share its
 * keys. A set of lanes has MINE of them; each lane has four slots of the page. Keys are copied to
 * shared memory CHANNELS at a time, during the use of the preceding ones. */
enum {
    LANES = 128,
    SLOT_LANES = PAGE_SLOTS / FOUR,
    SETS = LANES / SLOT_LANES,
    MINE = 2,
    ROWS = SETS * MINE,
    CHANNELS = 64,
    STAGES = 2,
};

/* Pieces of a stage. */
template <class KV> struct stage {
    enum { PIECES = CHANNELS * PAGE_SLOTS * (int)sizeof(KV) / 16 };
};

/* The rows of a KV head, query by query. */
struct head_rows {
    int h, group, first, all;
};

DEVICE int query_of_row(const struct head_rows &b, int i)
{
    return (b.first + i) / b.group;
}
DEVICE int head_of_row(const struct head_rows &b, int i)
{
    return b.h * b.group + (b.first + i) % b.group;
}

/* Returns query r of query head g. */
DEVICE const float *query(const struct gpu_attention &a, int g, int r)
{
    int layer = a.layer_heads ? g / a.layer_heads : 0;
    return a.q + (size_t)layer * a.ld_layer + (size_t)r * a.ld_q
           + (size_t)((g - layer * a.layer_heads) * a.cache.D);
}

template <class KV>
DEVICE void begin_stage(const KV *keys, int D, int number, in_shared<uint4> stages)
{
    enum { PIECES = stage<KV>::PIECES, OF_CHANNEL = PIECES / CHANNELS };
    const char *from = (const char *)(keys + number * CHANNELS * PAGE_SLOTS);
    int left = (D - number * CHANNELS) * OF_CHANNEL, id = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < PIECES; i += LANES)
        if (i + id < left)
            copy_piece(stages + (size_t)(number % STAGES * PIECES + i + id),
                       from + (size_t)(i + id) * 16, true);
    copies_group();
}

/* sum += products of the set's rows and four slots over the channels of a stage, in channel
 * order. */
template <class KV>
DEVICE void add_channels(in_shared<uint4> keys, in_shared<float> q, int D, int channels,
                         float sum[MINE][FOUR])
{
    int set = (int)threadIdx.x / SLOT_LANES;
    unsigned at = threadIdx.x % SLOT_LANES;
#pragma unroll 4
    for (int c = 0; c < channels; c++) {
        float k[FOUR];
        four_of(keys, (unsigned)(c * SLOT_LANES) + at, k, KV());
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            float x = q[(set + j * SETS) * D + c];
#pragma unroll
            for (int i = 0; i < FOUR; i++)
                sum[j][i] = fmaf(x, k[i], sum[j][i]);
        }
    }
}

/* Stores the logits of row i in the lane's slots, from products. */
DEVICE void put_logits(const struct gpu_attention &a, const struct head_rows &b, int i, int slot,
                       const float sum[FOUR], float *p, size_t ld)
{
    int r = query_of_row(b, i), g = head_of_row(b, i);
    float x[FOUR];
#pragma unroll
    for (int k = 0; k < FOUR; k++)
        x[k] = sees(a, g, b.h, r, slot + k) ? logit(a, b.h, r, slot + k, sum[k]) : -INFINITY;
    float *row = p + ((size_t)g * (size_t)a.T + (size_t)r) * ld;
    *(float4 *)(void *)(row + slot) = {x[0], x[1], x[2], x[3]};
}

/* Kernel arguments of N sequences. */
template <int N> struct all_rows {
    struct gpu_seen_rows of[N];
};

/* Block (page, KV head counted over all sequences, ROWS of its rows). */
template <class KV, int N>
__global__ void __launch_bounds__(LANES) scores_kernel(GIVEN struct all_rows<N> all)
{
    SHARED(uint4, stages, STAGES * stage<KV>::PIECES);
    SHARED_DYNAMIC(float, q); /* [ROWS][D] */
    int heads = all.of[0].a.cache.heads, sequence = N > 1 ? (int)blockIdx.y / heads : 0;
    const struct gpu_attention &a = all.of[sequence].a;
    int D = a.cache.D, page = (int)blockIdx.x, group = a.n_heads / heads;
    struct head_rows b = {(int)blockIdx.y - sequence * heads, group, (int)blockIdx.z * ROWS,
                          a.T * group};
    if (page * PAGE_SLOTS >= a.cache.n[b.h])
        return;
    const KV *keys = page_keys<KV>(a.cache, b.h, page);
    for (int i = 0; i < STAGES; i++)
        begin_stage(keys, D, i, stages);
    for (int i = (int)threadIdx.x; i < ROWS * D; i += LANES)
        q[i] = b.first + i / D < b.all
                   ? query(a, head_of_row(b, i / D), query_of_row(b, i / D))[i % D]
                   : 0;
    float sum[MINE][FOUR] = {};
    for (int i = 0; i * CHANNELS < D; i++) {
        int left = D - i * CHANNELS;
        copies_wait<STAGES - 1>();
        __syncthreads();
        add_channels<KV>(stages + (size_t)(i % STAGES * stage<KV>::PIECES), q + i * CHANNELS, D,
                         left < CHANNELS ? left : CHANNELS, sum);
        __syncthreads(); /* all lanes have finished with the stage */
        begin_stage(keys, D, i + STAGES, stages);
    }
    int set = (int)threadIdx.x / SLOT_LANES, slot = (int)threadIdx.x % SLOT_LANES * FOUR;
#pragma unroll
    for (int j = 0; j < MINE; j++)
        if (b.first + set + j * SETS < b.all)
            put_logits(a, b, set + j * SETS, page * PAGE_SLOTS + slot, sum[j], all.of[sequence].p,
                       all.of[sequence].ld);
}

enum { SOFTMAX_LANES = 256 };

/* Block (query, query head, sequence). */
template <int N>
__global__ void __launch_bounds__(SOFTMAX_LANES) softmax_kernel(GIVEN struct all_rows<N> all)
{
    const struct gpu_seen_rows &out = all.of[N > 1 ? blockIdx.z : 0];
    const struct gpu_attention &a = out.a;
    int g = (int)blockIdx.y, h = kv_head(a, g), r = (int)blockIdx.x, id = (int)threadIdx.x;
    int n = slots_of(a, h, r);
    size_t at = (size_t)g * (size_t)a.T + (size_t)r;
    float *row = out.p + at * out.ld, top = -INFINITY;
    double sum = 0, moment = 0;
    int seen = 0;
    for (int i = id; i < n; i += SOFTMAX_LANES)
        top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = id; i < n; i += SOFTMAX_LANES) {
        float d = row[i] - top, w = expf(d);
        seen += row[i] > -INFINITY;
        row[i] = w;
        sum += (double)w;
        moment -= w > 0 ? (double)w * (double)d : 0;
    }
    sum = block_sum(sum);
    moment = block_sum(moment);
    seen = block_sum(seen);
    float inverse = (float)(1.0 / sum), lse = top + (float)log(sum);
    double more = a.sinks ? exp((double)a.sinks[g] - (double)lse) : 0, kept = 1 / (1 + more);
    for (int i = id; i < (int)out.ld; i += SOFTMAX_LANES)
        row[i] = i < n ? (float)((double)(row[i] * inverse) * kept) : 0;
    if (id != 0)
        return;
    if (out.lse)
        out.lse[at] = (float)((double)lse + log1p(more));
    float entropy = (float)(log(sum) + moment / sum);
    if (out.entropy)
        out.entropy[at] = (float)(kept > 0 ? kept * ((double)entropy - log(kept)) : 0);
    if (out.seen)
        out.seen[at] = seen;
}

template <int N> static void make_rows(struct gpu *g, const struct gpu_seen_rows *rows, int n)
{
    const struct gpu_attention *a = &rows->a;
    auto kernel = a->cache.type == KV_F16 ? scores_kernel<uint16_t, N> : scores_kernel<float, N>;
    all_rows<N> all = {};
    int most = 0;
    for (int i = 0; i < n; i++) {
        all.of[i] = rows[i];
        most = rows[i].a.cache.most > most ? rows[i].a.cache.most : most;
    }
    dim3 grid(blocks_for((size_t)most, PAGE_SLOTS), (unsigned)(n * a->cache.heads),
              blocks_for((size_t)(a->T * (a->n_heads / a->cache.heads)), ROWS));
    size_t bytes = (size_t)(ROWS * a->cache.D) * sizeof(float);
    LAUNCH(kernel, grid, LANES, bytes, g, all);
    dim3 each((unsigned)a->T, (unsigned)a->n_heads, (unsigned)n);
    LAUNCH(softmax_kernel<N>, each, SOFTMAX_LANES, 0, g, all);
}

void gpu_rows_together(struct gpu *g, const struct gpu_seen_rows *rows, int n)
{
    if (n > 1)
        make_rows<GPU_TOGETHER>(g, rows, n);
    else
        make_rows<1>(g, rows, n);
}

void gpu_rows(struct gpu *g, const struct gpu_attention *a, float *p, size_t ld, float *lse,
              float *entropy, int32_t *seen)
{
    const struct gpu_seen_rows rows = {*a, p, ld, lse, entropy, seen};
    make_rows<1>(g, &rows, 1);
}

/* Block (query, query head): lane d sums channel d over the slots, in slot order. */
template <class KV> __global__ void values_kernel(struct gpu_attention a, const float *p, size_t ld)
{
    SHARED(float, w, PAGE_SLOTS);
    int D = a.cache.D, g = (int)blockIdx.y, h = kv_head(a, g), r = (int)blockIdx.x;
    int d = (int)threadIdx.x, n = slots_of(a, h, r);
    const float *row = p + ((size_t)g * (size_t)a.T + (size_t)r) * ld;
    float sum = 0;
    for (int page = 0; page * PAGE_SLOTS < n; page++) {
        int left = n - page * PAGE_SLOTS < PAGE_SLOTS ? n - page * PAGE_SLOTS : PAGE_SLOTS;
        for (int s = d; s < left; s += (int)blockDim.x)
            w[s] = row[page * PAGE_SLOTS + s];
        __syncthreads();
        const KV *values = page_keys<KV>(a.cache, h, page) + D * PAGE_SLOTS;
#pragma unroll 8
        for (int s = 0; s < left && d < D; s++)
            sum = fmaf(w[s], kv_value(values, (size_t)(s * D + d)), sum);
        __syncthreads();
    }
    if (d < D)
        a.out[(size_t)r * a.ld_out + (size_t)(g * D + d)] = sum;
}

void gpu_rows_values(struct gpu *g, const struct gpu_attention *a, const float *p, size_t ld)
{
    struct gpu_attention in = *a;
    auto kernel = a->cache.type == KV_F16 ? values_kernel<uint16_t> : values_kernel<float>;
    dim3 grid((unsigned)a->T, (unsigned)a->n_heads);
    LAUNCH(kernel, grid, blocks_for((size_t)a->cache.D, WARP) * WARP, 0, g, in, p, ld);
}
