/* attention_tensor.cu - attention of many queries with f16 keys and values on tensor cores.
 *
 * A row is one query of one query head. A block has 64 or 128 rows of the query heads of one KV
 * head, query by query, so that keys and values are read once for all of these heads. A warp has 16
 * or 32 of the rows, and all sums of a row. The block processes strips of 32 entries (half a page)
 * with a running softmax in registers, and copies the next strips meanwhile. A strip in which no
 * row of the block sees an entry is skipped. A strip is masked only if some row does not see all of
 * it. Hidden entries then have weight 0 and change no bit of the sums, so a row does not depend on
 * the other rows of the block.
 *
 * If the entries are divided into parts (attention_parts.cu), a block processes one part.
 *
 * Rows of matrices in shared memory are an odd number of pieces apart, so that eight rows that are
 * loaded together are in different banks. Channels after the last one are zeros. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

enum {
    WARPS = 4,
    LANES = WARPS * WARP,
    STRIP = 32,          /* entries; each lane of a warp checks one of them */
    COLUMNS = STRIP / 8, /* tiles of eight entries */
    KEY_LD = STRIP / 8 + 1,
};

/* Sizes for heads of up to WIDE channels; a warp has TILES times 16 rows. */
template <int WIDE, int TILES> struct shape {
    enum {
        ROWS = WARPS * TILES * 16,
        PIECES = WIDE / 8,
        LD = PIECES + 1,
        QUERIES = ROWS * LD, /* pieces of shared memory */
        KEYS = WIDE * KEY_LD,
        STAGE = KEYS + STRIP * LD,
        RING = WIDE * TILES > 128 ? 2 : 3, /* stages */
        BYTES = (QUERIES + RING * STAGE) * 16,
    };
};

/* The rows of a block: row i is query (first + i) / group of query head h group + (first + i) %
 * group. */
struct rows {
    int h, group, first, all;
    int from, to; /* queries */
    int n, at;    /* entries of the head; position of query 0 */
};

DEVICE struct rows rows_of_block(const struct gpu_attention &a, int n_rows)
{
    int heads = a.cache.heads, blocks = (int)gridDim.x / heads;
    struct rows b;
    b.h = (int)blockIdx.x % heads;
    b.group = a.n_heads / heads;
    b.first = (blocks - 1 - (int)blockIdx.x / heads) * n_rows; /* the longest blocks start first */
    b.all = a.T * b.group;
    b.from = b.first / b.group;
    b.to = (b.first + n_rows < b.all ? b.first + n_rows - 1 : b.all - 1) / b.group;
    b.n = a.cache.n[b.h];
    b.at = query_at(a, 0);
    return b;
}

/* first_query returns the first query that sees an entry; end_query returns the first query after
 * it that does not. Page selection is ignored, otherwise as in sees(). */
DEVICE int first_query(const struct gpu_attention &a, const struct rows &b, int slot)
{
    return slot - b.n + a.T;
}
DEVICE int end_query(const struct gpu_attention &a, const struct rows &b, int slot)
{
    if (slot >= b.n || !a.cache.until)
        return INT32_MAX;
    return a.cache.until[(size_t)b.h * (size_t)a.cache.ld_slot + (size_t)slot] - b.at;
}
DEVICE bool is_chosen(const struct gpu_attention &a, const struct rows &b, int head, int slot)
{
    int page = a.page ? a.page[b.h] : 0;
    size_t g = (size_t)(b.h * b.group + head);
    return page == 0 || a.chosen[g * (size_t)a.ld_chosen + (size_t)(slot / page)];
}

/* Strips to read, from first to last. Bits of `seen` are the 32 strips from `base` on; bits of
 * `whole` are the strips that every row of the block sees completely. */
struct strips {
    int base, end;
    unsigned seen, whole;
};

/* Returns true if it is known without a check that all rows of the block see all of the 32
 * strips. */
DEVICE bool is_old(const struct gpu_attention &a, const struct rows &b, const struct strips &s)
{
    int end = (s.base + WARP) * STRIP;
    bool stays = !a.cache.until || (a.cache.firm && end <= a.cache.firm[b.h]);
    return !a.page && stays && first_query(a, b, end - 1) <= b.from;
}

/* Checks the 32 strips from base on. Synchronises. */
DEVICE void look(const struct gpu_attention &a, const struct rows &b, struct strips *s)
{
    SHARED(unsigned, part, WARPS);
    unsigned seen = 0, whole = 0;
    if (is_old(a, b, *s)) {
        s->seen = s->whole = ALL_LANES;
        return;
    }
    for (int i = 0; i < WARP / WARPS; i++) {
        int slot = (s->base + warp_of_block() * (WARP / WARPS) + i) * STRIP + lane_of_warp();
        int begin = first_query(a, b, slot), end = end_query(a, b, slot);
        bool any = begin <= b.to && end > b.from && end > begin;
        bool all = begin <= b.from && end > b.to;
        if (any && a.page) {
            bool some = false;
#pragma unroll 1
            for (int head = 0; head < b.group; head++) {
                bool chosen = is_chosen(a, b, head, slot);
                some |= chosen;
                all &= chosen;
            }
            any = some;
        }
        seen |= (unsigned)(__ballot_sync(ALL_LANES, any) != 0) << i;
        whole |= (unsigned)(__ballot_sync(ALL_LANES, all) == ALL_LANES) << i;
    }
    __syncthreads(); /* all lanes have read the data that is overwritten now */
    if (lane_of_warp() == 0)
        part[warp_of_block()] = seen | whole << 16;
    __syncthreads();
    s->seen = s->whole = 0;
    for (int i = 0; i < WARPS; i++) {
        unsigned both = part[i];
        s->seen |= (both & 0xffff) << (i * (WARP / WARPS));
        s->whole |= both >> 16 << (i * (WARP / WARPS));
    }
}

/* Returns twice the next strip, plus 1 if all rows see all of it; -1 if there is no further
 * strip. */
DEVICE int next_strip(const struct gpu_attention &a, const struct rows &b, struct strips *s)
{
    while (s->seen == 0) {
        s->base += WARP;
        if (s->base >= s->end)
            return -1;
        look(a, b, s);
    }
    int bit = __ffs((int)s->seen) - 1;
    s->seen &= s->seen - 1;
    return (s->base + bit) * 2 + (int)(s->whole >> bit & 1);
}

/* Starts to copy the keys of half a page, 32 channels at a time. */
template <int WIDE> DEVICE void fetch_keys(const uint16_t *keys, int D, in_shared<uint4> stage)
{
    enum { CHANNELS = LANES / (STRIP / 8) };
    int d = (int)threadIdx.x / (STRIP / 8), part = (int)threadIdx.x % (STRIP / 8);
    in_shared<uint4> to = stage + (size_t)(d * KEY_LD + part);
    keys += d * PAGE_SLOTS + part * 8;
#pragma unroll
    for (int j = 0; j < WIDE / CHANNELS; j++)
        copy_piece(to + (size_t)(j * CHANNELS * KEY_LD), keys + j * CHANNELS * PAGE_SLOTS,
                   d + j * CHANNELS < D);
}

/* Starts to copy the values of half a page; slots from n on are zeros, because free slots contain
 * undefined data. */
template <int WIDE, int TILES>
DEVICE void fetch_values(const uint16_t *values, int D, int n, in_shared<uint4> stage)
{
    typedef shape<WIDE, TILES> S;
    enum { SLOTS = LANES / S::PIECES }; /* slots copied at a time */
    int s = (int)threadIdx.x / S::PIECES, part = (int)threadIdx.x % S::PIECES;
    in_shared<uint4> to = stage + (size_t)(S::KEYS + s * S::LD + part);
    values += s * D + part * 8;
#pragma unroll
    for (int j = 0; j < (STRIP + SLOTS - 1) / SLOTS; j++) {
        int slot = s + j * SLOTS;
        if (s < SLOTS && slot < STRIP)
            copy_piece(to + (size_t)(j * SLOTS * S::LD), values + j * SLOTS * D,
                       part * 8 < D && slot < n);
    }
}

/* Starts to copy a strip into a stage; always forms one group. */
template <int WIDE, int TILES>
DEVICE void fetch(const struct gpu_attention &a, const struct rows &b, int code,
                  in_shared<uint4> stage)
{
    if (code >= 0) {
        int slot = code / 2 * STRIP, D = a.cache.D, s0 = slot % PAGE_SLOTS;
        const uint16_t *keys = page_keys<uint16_t>(a.cache, b.h, slot / PAGE_SLOTS);
        fetch_keys<WIDE>(keys + s0, D, stage);
        fetch_values<WIDE, TILES>(keys + (PAGE_SLOTS + s0) * D, D, b.n - slot, stage);
    }
    copies_group();
}

/* Returns eight channels of a row's query, at q, rounded to f16; loads four at a time if
 * aligned. */
DEVICE uint4 query_piece(const float *q, bool fours)
{
    float x[8];
    if (fours) {
        float4 low = ((const float4 *)(const void *)q)[0];
        float4 high = ((const float4 *)(const void *)q)[1];
        return uint4{two_halves(low.x, low.y), two_halves(low.z, low.w), two_halves(high.x, high.y),
                     two_halves(high.z, high.w)};
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        x[k] = q[k];
    return uint4{two_halves(x[0], x[1]), two_halves(x[2], x[3]), two_halves(x[4], x[5]),
                 two_halves(x[6], x[7])};
}

/* Loads the queries of a block; zeros after the last channel and the last row. */
template <int WIDE, int TILES>
DEVICE void load_queries(const struct gpu_attention &a, const struct rows &b, in_shared<uint4> to)
{
    typedef shape<WIDE, TILES> S;
    int D = a.cache.D;
    bool fours = (uintptr_t)a.q % 16 == 0 && a.ld_q % 4 == 0;
#pragma unroll 4
    for (int j = 0; j < S::ROWS * S::PIECES / LANES; j++) {
        int i = (int)threadIdx.x + j * LANES, part = i % S::PIECES, row = b.first + i / S::PIECES;
        uint4 piece = {0, 0, 0, 0};
        if (row < b.all && part * 8 < D)
            piece = query_piece(a.q + (size_t)(row / b.group) * a.ld_q
                                    + (size_t)((b.h * b.group + row % b.group) * D + part * 8),
                                fours);
        to[(size_t)(i / S::PIECES * S::LD + part)] = piece;
    }
}

/* Multiplies the warp's queries by the keys of a strip. */
template <int WIDE, int TILES>
DEVICE void products(in_shared<uint4> queries, in_shared<uint4> stage, float s[TILES][COLUMNS][4])
{
    typedef shape<WIDE, TILES> S;
    int lane = lane_of_warp();
    in_shared<uint4> q = queries
                         + (size_t)((warp_of_block() * TILES * 16 + lane % 16) * S::LD + lane / 16);
    in_shared<uint4> keys = stage + (size_t)(lane % 16 * KEY_LD + lane / 16);
#pragma unroll
    for (int k = 0; k < WIDE / 16; k++) {
        uint32_t x[TILES][4], w[COLUMNS / 2][4];
#pragma unroll
        for (int t = 0; t < TILES; t++)
            load_matrices(x[t], q + (size_t)(t * 16 * S::LD + k * 2));
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++)
            load_matrices_turned(w[j], keys + (size_t)(k * 16 * KEY_LD + j * 2));
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
                multiply(s[t][j], x[t], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
    }
}

/* Row i of a lane, which has two rows of each tile: its query, and its head in the group. A row
 * after the last one maps to some query; its sums are discarded. */
struct row_of {
    int query, head;
};
template <int TILES> DEVICE struct row_of row_of_lane(const struct rows &b, int i)
{
    int row = b.first + warp_of_block() * TILES * 16 + lane_of_warp() / 4 + i * 8;
    struct row_of r = {row / b.group, row % b.group};
    return r;
}

/* Returns the entry of column j of a lane, which has two columns of each tile. */
DEVICE int slot_of_lane(int code, int j)
{
    return code / 2 * STRIP + lane_of_warp() % 4 * 2 + j / 2 * 8 + j % 2;
}

/* Converts the products of a strip to logits, in units of ln 2. */
template <int TILES>
DEVICE void logits(const struct gpu_attention &a, const struct rows &b, int code,
                   float s[TILES][COLUMNS][4])
{
#pragma unroll
    for (int j = 0; j < COLUMNS * 2; j++) {
        int slot = slot_of_lane(code, j);
        if (slot >= b.n)
            continue;
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            float *x = &s[i / 2][j / 2][i % 2 * 2 + j % 2];
            *x = logit(a, b.h, row_of_lane<TILES>(b, i).query, slot, *x) * LOG2_E;
        }
    }
}

/* Hides the entries that a row does not see. */
template <int TILES>
DEVICE void hide(const struct gpu_attention &a, const struct rows &b, int code,
                 float s[TILES][COLUMNS][4])
{
    struct row_of row[TILES * 2];
#pragma unroll
    for (int i = 0; i < TILES * 2; i++)
        row[i] = row_of_lane<TILES>(b, i);
#pragma unroll
    for (int j = 0; j < COLUMNS * 2; j++) {
        int slot = slot_of_lane(code, j);
        int begin = first_query(a, b, slot), end = end_query(a, b, slot);
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            float *x = &s[i / 2][j / 2][i % 2 * 2 + j % 2];
            *x = row[i].query >= begin && row[i].query < end ? *x : -INFINITY;
        }
    }
    if (!a.page)
        return;
#pragma unroll
    for (int j = 0; j < COLUMNS * 2; j++)
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            float *x = &s[i / 2][j / 2][i % 2 * 2 + j % 2];
            int slot = slot_of_lane(code, j);
            *x = slot < b.n && is_chosen(a, b, row[i].head, slot) ? *x : -INFINITY;
        }
}

/* State of the rows of a lane, which shares their columns with three other lanes. */
template <int WIDE, int TILES> struct sums {
    float out[TILES][WIDE / 8][4];
    float top[TILES * 2], sum[TILES * 2]; /* sum: over this lane's columns */
};

/* Converts the logits s / unit to weights and updates the sums. */
template <int WIDE, int TILES>
DEVICE void weigh(struct sums<WIDE, TILES> &y, float s[TILES][COLUMNS][4], float unit)
{
    float fade[TILES * 2];
    bool fades = false;
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
        float top = s[i / 2][0][i % 2 * 2];
#pragma unroll
        for (int j = 1; j < COLUMNS * 2; j++)
            top = fmaxf(top, s[i / 2][j / 2][i % 2 * 2 + j % 2]);
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        float old = y.top[i], now = fmaxf(old, top), sum = 0;
        float base = now == -INFINITY ? LARGEST : LARGEST - now * unit;
        fade[i] = old == now ? 1 : power_of_two((old - now) * unit);
        fades |= fade[i] != 1;
        y.top[i] = now;
#pragma unroll
        for (int j = 0; j < COLUMNS * 2; j++) {
            float *x = &s[i / 2][j / 2][i % 2 * 2 + j % 2];
            *x = power_of_two(fmaf(*x, unit, base));
            sum += *x;
        }
        y.sum[i] = fmaf(y.sum[i], fade[i], sum);
    }
    if (__ballot_sync(ALL_LANES, fades) == 0)
        return;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                y.out[t][j][k] *= fade[t * 2 + k / 2];
}

/* Adds the values of a strip with the weights p. */
template <int WIDE, int TILES>
DEVICE void add_values(struct sums<WIDE, TILES> &y, in_shared<uint4> stage,
                       const float p[TILES][COLUMNS][4])
{
    typedef shape<WIDE, TILES> S;
    int lane = lane_of_warp();
    in_shared<uint4> values = stage + (size_t)(S::KEYS + lane % 16 * S::LD + lane / 16);
#pragma unroll
    for (int k = 0; k < STRIP / 16; k++) {
        uint32_t x[TILES][4];
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *two = &p[t][k * 2 + i / 2][i % 2 * 2];
                x[t][i] = two_halves(two[0], two[1]);
            }
#pragma unroll
        for (int j = 0; j < WIDE / 16; j++) {
            uint32_t w[4];
            load_matrices_turned(w, values + (size_t)(k * 16 * S::LD + j * 2));
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                multiply(y.out[t][j * 2], x[t], w[0], w[1]);
                multiply(y.out[t][j * 2 + 1], x[t], w[2], w[3]);
            }
        }
    }
}

/* Stores two channels, with one access if aligned. */
DEVICE void put_two(float *out, bool twos, float x, float y)
{
    if (twos) {
        *(float2 *)(void *)out = float2{x, y};
    } else {
        out[0] = x;
        out[1] = y;
    }
}

template <int WIDE, int TILES>
DEVICE void store(const struct gpu_attention &a, const struct rows &b,
                  const struct attention_parts &p, const struct sums<WIDE, TILES> &y, float logit)
{
    size_t part = blockIdx.y, D = (size_t)a.cache.D;
    bool twos = p.out || ((uintptr_t)a.out % 8 == 0 && a.ld_out % 2 == 0);
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
        float sum = y.sum[i];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        struct row_of row = row_of_lane<TILES>(b, i);
        if (row.query >= a.T)
            continue;
        size_t head = (size_t)(b.h * b.group + row.head), t = (size_t)row.query;
        size_t at = (part * (size_t)a.T + t) * (size_t)a.n_heads + head;
        if (p.out && lane_of_warp() % 4 == 0) {
            p.top[at] = y.top[i];
            p.sum[at] = sum;
        }
        if (p.out && y.top[i] == -INFINITY)
            continue;
        float unit = p.out ? 1 : 1 / (sum + sink_power(a, (int)head, y.top[i] * logit));
        float *out = p.out ? p.out + at * D : a.out + t * a.ld_out + head * D;
        out += lane_of_warp() % 4 * 2;
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) {
            const float *two = &y.out[i / 2][j][i % 2 * 2];
            if (j * 8 < a.cache.D)
                put_two(out + j * 8, twos, two[0] * unit, two[1] * unit);
        }
    }
}

/* PLAIN: no cap, no log_beta and a scale above 0. */
template <int WIDE, int TILES, bool PLAIN>
__global__ void __launch_bounds__(LANES)
    tensor_kernel(struct gpu_attention a, struct attention_parts p)
{
    typedef shape<WIDE, TILES> S;
    enum { AHEAD = S::RING - 1 };
    SHARED_DYNAMIC(uint4, queries);
    struct rows b = rows_of_block(a, S::ROWS);
    in_shared<uint4> ring = queries + (size_t)S::QUERIES;
    struct strips strips = {-WARP, (b.n - (a.T - 1 - b.to) + STRIP - 1) / STRIP, 0, 0};
    if (p.out) {
        int first = (int)blockIdx.y * (ATTENTION_PART / STRIP),
            end = first + ATTENTION_PART / STRIP;
        strips.base += first;
        strips.end = end < strips.end ? end : strips.end;
    }
    struct sums<WIDE, TILES> y {
    };
    int code[AHEAD] = {}, stage = 1; /* stage of strip i, 0 modulo RING */
#pragma unroll
    for (int i = 0; i < TILES * 2; i++)
        y.top[i] = -INFINITY;
    load_queries<WIDE, TILES>(a, b, queries);
#pragma unroll 1
    for (int i = -AHEAD;; i++) { /* uses strip i and starts the copy of strip i + AHEAD */
        int now = code[0], free = stage == 0 ? AHEAD : stage - 1;
        if (i >= 0 && now < 0)
            break;
        if (i >= 0) {
            copies_wait<AHEAD - 1>();
            __syncthreads(); /* this strip is complete, the last one is used */
        }
        for (int k = 1; k < AHEAD; k++)
            code[k - 1] = code[k];
        code[AHEAD - 1] = next_strip(a, b, &strips);
        fetch<WIDE, TILES>(a, b, code[AHEAD - 1], ring + (size_t)(free * S::STAGE));
        if (i >= 0) {
            float s[TILES][COLUMNS][4] = {};
            in_shared<uint4> here = ring + (size_t)(stage * S::STAGE);
            products<WIDE, TILES>(queries, here, s);
            if (!PLAIN)
                logits<TILES>(a, b, now, s);
            if (now % 2 == 0)
                hide<TILES>(a, b, now, s);
            weigh<WIDE, TILES>(y, s, PLAIN ? a.scale * LOG2_E : 1);
            add_values<WIDE, TILES>(y, here, s);
        }
        stage = stage == AHEAD ? 0 : stage + 1;
    }
    store<WIDE, TILES>(a, b, p, y, PLAIN ? a.scale * LOG2_E : 1);
}

static unsigned blocks_of(const struct gpu_attention *a, int n_rows)
{
    size_t rows = (size_t)a->T * (size_t)(a->n_heads / a->cache.heads);
    return blocks_for(rows, (size_t)n_rows) * (unsigned)a->cache.heads;
}

/* Returns false if the device has too little memory for the stages. */
template <int WIDE, int TILES, bool PLAIN>
static bool attend(struct gpu *g, const struct gpu_attention *a)
{
    typedef shape<WIDE, TILES> S;
    auto kernel = tensor_kernel<WIDE, TILES, PLAIN>;
    unsigned n = attention_parts_of(a);
    struct attention_parts p;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES)
        != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    if (!attention_hold_parts(g, a, n, &p)) {
        gpu_note(g, cudaErrorMemoryAllocation);
        return true;
    }
    struct gpu_attention in = *a;
    LAUNCH(kernel, dim3(blocks_of(a, S::ROWS), n), LANES, S::BYTES, g, in, p);
    if (n > 1)
        attention_join(g, a, &p, n, PLAIN ? a->scale * LOG2_E : 1);
    return true;
}

/* Uses small blocks if large ones would not fill the multiprocessors. The bits of a row do not
 * depend on the block size. */
template <int WIDE> static bool attend_wide(struct gpu *g, const struct gpu_attention *a)
{
    enum { TILES = WIDE > 128 ? 1 : 2 };
    auto how = attend<WIDE, TILES, true>;
    if (a->cap > 0 || a->log_beta || !(a->scale > 0))
        how = attend<WIDE, 1, false>;
    else if (attention_parts_of(a) * blocks_of(a, shape<WIDE, TILES>::ROWS)
             < (unsigned)g->processors)
        how = attend<WIDE, 1, true>;
    return how(g, a);
}

bool gpu_attend_tensor(struct gpu *g, const struct gpu_attention *a)
{
    int D = a->cache.D;
    if (a->cache.type != KV_F16 || D % 16 != 0 || D > 256)
        return false;
    if (D <= 64)
        return attend_wide<64>(g, a);
    if (D <= 96)
        return attend_wide<96>(g, a);
    if (D <= 128)
        return attend_wide<128>(g, a);
    return attend_wide<256>(g, a);
}
