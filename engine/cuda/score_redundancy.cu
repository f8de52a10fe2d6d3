/* score_redundancy.cu - redundancy of a key: its similarity to the other keys of its head
 * (engine/method/score_redundancy.c). Entries are numbered in order of time, and keys are
 * normalised. */
#include "engine/cuda/score.cuh"
#include "engine/cuda/tensor.cuh"

enum {
    TILE = PAGE_SLOTS, /* rows, and columns, of cosines that a block computes at once */
    STEP = 16,         /* channels of keys in shared memory at a time */
    MINE = 4,          /* rows, and columns, of a lane: (TILE / MINE)^2 lanes */
    CHANNELS = 128,
};

/* Layout of the scratch memory. */
struct redundancy {
    double *scale; /* [heads][ld] by slot: 1 / length of the key */
    double *sum;   /* [heads][D] sum of all keys */
    int32_t *near; /* [heads][ld] newest similar neighbour of an entry; -1: no such entry */
    float *cosine; /* [heads][ld] cosine with the neighbour */
    float *r;      /* [heads][ld] */
};

size_t gpu_redundancy_bytes(int heads, int ld_slot, int D)
{
    size_t n = (size_t)heads * (size_t)ld_slot;
    return n * (sizeof(double) + sizeof(int32_t) + 2 * sizeof(float))
           + (size_t)heads * (size_t)D * sizeof(double);
}

static struct redundancy lay_out(const struct gpu_heads *h, void *scratch)
{
    struct redundancy x;
    size_t n = (size_t)h->cache.heads * (size_t)h->cache.ld_slot;
    x.scale = (double *)scratch;
    x.sum = x.scale + n;
    x.near = (int32_t *)(x.sum + (size_t)h->cache.heads * (size_t)h->cache.D);
    x.cosine = (float *)(x.near + n);
    x.r = x.cosine + n;
    return x;
}

template <class KV> __global__ void scale_kernel(struct asked a, struct redundancy x)
{
    int at, slot;
    size_t place;
    if (!entry_of(a, &at, &slot, &place))
        return;
    const KV *key = page_keys<KV>(a.h.cache, at, slot / PAGE_SLOTS) + slot % PAGE_SLOTS;
    double square = 0;
    for (int d = 0; d < a.h.cache.D; d++) {
        double v = (double)kv_value(key, (size_t)d * PAGE_SLOTS);
        square += v * v;
    }
    x.scale[place] = formula_unit_scale(square);
}

/* The key of an entry and the factor that normalises it; factor 0 and an arbitrary key if there is
 * no entry. */
template <class KV> struct unit_key {
    const KV *key; /* [D][PAGE_SLOTS] */
    double scale;
};

/* Returns the key of the entry of rank i in a nonempty head. */
template <class KV>
DEVICE unit_key<KV> key_of(const struct asked &a, const struct redundancy &x, int at, int i)
{
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    int n = a.h.n[at], slot = a.h.order[first + (size_t)(i < n ? i : n - 1)];
    return {page_keys<KV>(a.h.cache, at, slot / PAGE_SLOTS) + slot % PAGE_SLOTS,
            i < n ? x.scale[first + (size_t)slot] : 0};
}

/* Returns channel d of the normalised key; 0 from D on. */
template <class KV> DEVICE float unit_of(const unit_key<KV> &k, int d, int D)
{
    return d < D ? (float)((double)kv_value(k.key, (size_t)d * PAGE_SLOTS) * k.scale) : 0;
}

/* Computes cosines of MINE rows with MINE columns, for each lane of a tile. A lane loads channels
 * of one row key and one column key, given by its number modulo TILE. */
template <class KV>
DEVICE void cosines(const unit_key<KV> &row, const unit_key<KV> &column, int D, float (*sum)[MINE])
{
    SHARED_FOURS(float, rows, TILE *STEP);
    SHARED_FOURS(float, columns, TILE *STEP);
    int id = (int)threadIdx.x, r = id / (TILE / MINE) * MINE, c = id % (TILE / MINE) * MINE;
    for (int j = 0; j < MINE * MINE; j++)
        sum[j / MINE][j % MINE] = 0;
    for (int d0 = 0; d0 < D; d0 += STEP) {
#pragma unroll
        for (int k = 0; k < TILE * STEP / LANES; k++) {
            int i = k * LANES + id, d = d0 + i / TILE;
            rows[i] = unit_of(row, d, D);
            columns[i] = unit_of(column, d, D);
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < STEP; d++) {
            float u[MINE], v[MINE];
            shared_four(rows, (unsigned)(d * TILE + r), u);
            shared_four(columns, (unsigned)(d * TILE + c), v);
#pragma unroll
            for (int j = 0; j < MINE * MINE; j++)
                sum[j / MINE][j % MINE] = fmaf(u[j / MINE], v[j % MINE], sum[j / MINE][j % MINE]);
        }
        __syncthreads();
    }
}

/* Block (tile of rows, head): processes columns from the newest on, until each row has found its
 * neighbour. */
template <class KV>
__global__ void __launch_bounds__(LANES) near_kernel(struct asked a, struct redundancy x)
{
    SHARED(int, best, TILE);
    int at = (int)blockIdx.y, n = a.h.n[at], r0 = (int)blockIdx.x * TILE, id = (int)threadIdx.x;
    int r = id / (TILE / MINE) * MINE, c = id % (TILE / MINE) * MINE, open = 1;
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    if (!a.due[at] || r0 >= n)
        return;
    unit_key<KV> row = key_of<KV>(a, x, at, r0 + id % TILE);
    if (id < TILE)
        best[id] = -1;
    for (int c0 = (n - 1) / TILE * TILE; c0 >= 0 && open; c0 -= TILE) {
        float sum[MINE][MINE];
        bool waits[MINE];
        cosines(row, key_of<KV>(a, x, at, c0 + id % TILE), a.h.cache.D, sum);
        for (int j = 0; j < MINE; j++)
            waits[j] = r0 + r + j < n && best[r + j] < 0;
        __syncthreads(); /* all lanes know which rows are open */
        for (int j = 0; j < MINE * MINE; j++)
            if (waits[j / MINE] && sum[j / MINE][j % MINE] > SCORE_SIMILAR
                && r0 + r + j / MINE != c0 + c + j % MINE)
                atomicMax(&best[r + j / MINE], c0 + c + j % MINE);
        __syncthreads();
        open = 0;
        for (int j = 0; j < MINE * MINE; j++) {
            int row = r + j / MINE;
            open |= waits[j / MINE] && best[row] < 0;
            if (waits[j / MINE] && best[row] == c0 + c + j % MINE)
                x.cosine[first + (size_t)(r0 + row)] = sum[j / MINE][j % MINE];
        }
        open = __syncthreads_or(open);
    }
    __syncthreads();
    if (id < TILE && r0 + id < n)
        x.near[first + (size_t)(r0 + id)] = best[id];
}

/* Block (head): sums all keys in order of time. */
template <class KV>
__global__ void __launch_bounds__(CHANNELS) sum_kernel(struct asked a, struct redundancy x)
{
    int at = (int)blockIdx.x, D = a.h.cache.D;
    for (int d = (int)threadIdx.x; a.due[at] && d < D; d += CHANNELS) {
        double sum = 0;
        for (int i = 0; i < a.h.n[at]; i++)
            sum += (double)unit_of(key_of<KV>(a, x, at, i), d, D);
        x.sum[(size_t)at * (size_t)D + (size_t)d] = sum;
    }
}

/* Lane i of head blockIdx.y has the entry of rank i: computes its mean cosine, except exempt
 * pairs. */
template <class KV> __global__ void mean_kernel(struct asked a, struct redundancy x)
{
    int at, i, D = a.h.cache.D;
    size_t place;
    if (!entry_of(a, &at, &i, &place))
        return;
    size_t first = place - (size_t)i;
    const double *sum = x.sum + (size_t)at * (size_t)D;
    unit_key<KV> own = key_of<KV>(a, x, at, i);
    double all = 0, less = 0;
    for (int j = 0; j < a.h.n[at]; j++)
        less += x.near[first + (size_t)j] == i ? (double)x.cosine[first + (size_t)j] : 0;
    for (int d = 0; d < D; d++) {
        double u = (double)unit_of(own, d, D);
        all += u * (sum[d] - u);
    }
    x.r[place] = (float)((all - less) / a.h.n[at]);
}

/* Block (head): computes the softmax of r, and the score. */
__global__ void __launch_bounds__(LANES)
    redundancy_kernel(struct asked a, struct redundancy x, float lambda, bool normalise,
                      int32_t sinks, int32_t recent_from, float *out)
{
    int at = (int)blockIdx.x, n = a.h.n[at];
    size_t first = (size_t)at * (size_t)a.h.cache.ld_slot;
    const int32_t *pos = a.h.cache.pos + first, *order = a.h.order + first;
    float *r = x.r + first, top = -INFINITY, most = -INFINITY;
    if (!a.due[at])
        return;
    recent_from += now_of(a);
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        top = fmaxf(top, r[i]);
    top = block_max(top);
    double sum = sum_of_exp(n, (double)top, [&](int i) { return r[i]; });
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        r[i] = (float)(exp((double)r[i] - (double)top) / sum);
        if (candidate(pos[order[i]], sinks, recent_from))
            most = fmaxf(most, r[i]);
    }
    most = block_max(most);
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        float *v = out + first + (size_t)order[i];
        *v = formula_against_redundancy(lambda, *v, r[i], normalise ? most : 1.0f);
    }
}

template <class KV>
static void measure(struct gpu *g, const struct asked &a, const struct redundancy &x)
{
    struct asked in = a;
    struct redundancy to = x;
    unsigned heads = (unsigned)a.h.cache.heads;
    dim3 tiles(blocks_for((size_t)a.h.cache.most, TILE), heads);
    LAUNCH(scale_kernel<KV>, grid_of(&in.h), LANES, 0, g, in, to);
    LAUNCH(near_kernel<KV>, tiles, LANES, 0, g, in, to);
    LAUNCH(sum_kernel<KV>, heads, CHANNELS, 0, g, in, to);
    LAUNCH(mean_kernel<KV>, grid_of(&in.h), LANES, 0, g, in, to);
}

void gpu_score_redundancy(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                          const struct gpu_redundancy *how, int32_t sinks, int32_t recent_from,
                          float *out)
{
    struct asked a = {*h, due};
    struct redundancy x = lay_out(h, how->scratch);
    float lambda = how->lambda;
    bool normalise = how->normalise;
    if (h->cache.type == KV_F16)
        measure<uint16_t>(g, a, x);
    else
        measure<float>(g, a, x);
    LAUNCH(redundancy_kernel, (unsigned)h->cache.heads, LANES, 0, g, a, x, lambda, normalise, sinks,
           recent_from, out);
}
