/* heads.cu - eviction rounds over the heads of all layers: candidates, reports of selected entries,
 * and the cut.
 *
 * In the kernels below a block serves a head, PAGE_SLOTS lanes at a time, one lane per slot. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"

enum { LANES = 256, KEEPERS = PAGE_SLOTS };

DEVICE size_t first_of(const struct gpu_heads &h, int at)
{
    return (size_t)at * (size_t)h.cache.ld_slot;
}

/* Returns the offset of row r of a head in a column. */
DEVICE size_t row_of(const struct gpu_heads &h, int column, int at, int r)
{
    return ((size_t)at * (size_t)h.column[column].rows + (size_t)r) * (size_t)h.cache.ld_slot;
}

/* Returns the base of relative positions. */
DEVICE int32_t now_of(const struct gpu_heads &h)
{
    return h.now ? h.now[0] : 0;
}

__global__ void candidates_kernel(struct gpu_heads h, const unsigned char *due, int32_t sinks,
                                  int32_t to)
{
    int at = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= h.n[at])
        return;
    int32_t pos = h.cache.pos[first_of(h, at) + (size_t)i];
    h.mark[first_of(h, at) + (size_t)i] = due[at] && pos >= sinks && pos < to + now_of(h)
                                              ? GPU_CANDIDATE
                                              : GPU_STAYS;
}

void gpu_candidates(struct gpu *g, const struct gpu_heads *h, const unsigned char *due,
                    int32_t sinks, int32_t to)
{
    struct gpu_heads in = *h;
    dim3 grid(blocks_for((size_t)h->cache.most, LANES), (unsigned)h->cache.heads);
    LAUNCH(candidates_kernel, grid, LANES, 0, g, in, due, sinks, to);
}

__global__ void gone_kernel(struct gpu_heads h, const int32_t *head, const int32_t *slot, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        h.mark[first_of(h, head[i]) + (size_t)slot[i]] = GPU_GONE;
}

void gpu_list_gone(struct gpu *g, const struct gpu_heads *h, const int32_t *head,
                   const int32_t *slot, int n)
{
    struct gpu_heads in = *h;
    gpu_zero(g, h->mark, (size_t)h->cache.heads * (size_t)h->cache.ld_slot);
    LAUNCH(gone_kernel, blocks_for((size_t)n, LANES), LANES, 0, g, in, head, slot, n);
}

/* The order of ranking.h within one head: a worse entry has a smaller key. */
DEVICE unsigned long long key_of(float score, int32_t pos, bool older)
{
    unsigned low = rank_of_position(pos, older ? TIE_OLDER : TIE_NEWER);
    return (unsigned long long)rank_of_score(score) << 32 | low;
}

DEVICE unsigned long long block_min(unsigned long long v)
{
    SHARED(unsigned long long, part, WARP);
    for (int d = WARP / 2; d > 0; d /= 2) {
        unsigned long long o = __shfl_xor_sync(ALL_LANES, v, d);
        v = o < v ? o : v;
    }
    if (lane_of_warp() == 0)
        part[warp_of_block()] = v;
    __syncthreads();
    unsigned long long least = ~0ull;
    for (int w = 0; w < (int)(blockDim.x / WARP); w++)
        least = part[w] < least ? (unsigned long long)part[w] : least;
    __syncthreads();
    return least;
}

/* Block (head): appends its evicted entries to the lists. */
__global__ void __launch_bounds__(LANES)
    report_kernel(struct gpu_heads h, const float *score, bool older, struct gpu_chosen *chosen,
                  int32_t *cursor, int32_t *slot, float *score_of)
{
    SHARED(int, next, 1);
    int at = (int)blockIdx.x, n = h.n[at], count = 0, kept = -1;
    const unsigned char *mark = h.mark + first_of(h, at);
    const int32_t *pos = h.cache.pos + first_of(h, at);
    const float *own = score + first_of(h, at);
    unsigned long long least = ~0ull;
    for (int i = (int)threadIdx.x; i < n; i += LANES) {
        count += mark[i] == GPU_GONE;
        if (mark[i] != GPU_CANDIDATE && mark[i] != GPU_LAST)
            continue;
        unsigned long long key = key_of(own[i], pos[i], older);
        kept = key < least ? i : kept;
        least = key < least ? key : least;
    }
    count = block_sum(count);
    unsigned long long worst = block_min(least);
    if (threadIdx.x == 0) {
        next[0] = atomicAdd(cursor, count);
        chosen[at] = {count, next[0], -1, 0};
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += LANES)
        if (mark[i] == GPU_GONE) {
            int to = atomicAdd(&next[0], 1);
            slot[to] = i;
            score_of[to] = own[i];
        }
    if (kept >= 0 && least == worst) {
        chosen[at].kept = kept;
        chosen[at].kept_score = own[kept] == own[kept] ? own[kept] : -INFINITY;
    }
}

void gpu_report(struct gpu *g, const struct gpu_heads *h, const float *score, bool older,
                struct gpu_chosen *chosen, int32_t *cursor, int32_t *slot, float *score_of)
{
    struct gpu_heads in = *h;
    gpu_zero(g, cursor, sizeof *cursor);
    LAUNCH(report_kernel, (unsigned)h->cache.heads, LANES, 0, g, in, score, older, chosen, cursor,
           slot, score_of);
}

/* Returns the number of lanes below this one with v, in a block of KEEPERS lanes; *all: number of
 * all lanes with v. */
DEVICE int rank_in_block(bool v, int *all)
{
    SHARED(int, part, KEEPERS / WARP);
    unsigned bits = __ballot_sync(ALL_LANES, v);
    int below = __popc(bits & ((1u << lane_of_warp()) - 1u)), total = 0;
    if (lane_of_warp() == 0)
        part[warp_of_block()] = __popc(bits);
    __syncthreads();
    for (int w = 0; w < KEEPERS / WARP; w++) {
        below += w < warp_of_block() ? (int)part[w] : 0;
        total += part[w];
    }
    __syncthreads();
    *all = total;
    return below;
}

/* Moves a column's value of an entry in each lane with `moves`. All lanes read before any lane
 * writes. */
template <class T> DEVICE void move_column(void *data, size_t row, bool moves, int from, int to)
{
    T *p = (T *)data + row;
    T v = moves ? p[from] : T(0);
    __syncthreads();
    if (moves)
        p[to] = v;
}

/* Each lane with `moves` moves its entry of head `at`. All lanes must call it, because it
 * synchronises. */
template <class KV>
DEVICE void move_entries(const struct gpu_heads &h, int at, bool moves, int from, int to)
{
    const struct gpu_cache &c = h.cache;
    const KV *src = moves ? page_keys<KV>(c, at, from / PAGE_SLOTS) : nullptr;
    KV *dst = moves ? page_keys<KV>(c, at, to / PAGE_SLOTS) : nullptr;
    size_t s = (size_t)(from % PAGE_SLOTS), t = (size_t)(to % PAGE_SLOTS);
    size_t half = (size_t)c.D * PAGE_SLOTS;
    for (int d = 0; d < c.D; d++) {
        KV key = moves ? src[(size_t)d * PAGE_SLOTS + s] : KV(0);
        KV value = moves ? src[half + s * (size_t)c.D + (size_t)d] : KV(0);
        __syncthreads();
        if (moves) {
            dst[(size_t)d * PAGE_SLOTS + t] = key;
            dst[half + t * (size_t)c.D + (size_t)d] = value;
        }
    }
    move_column<int32_t>(c.pos, first_of(h, at), moves, from, to);
    for (int k = 0; k < h.n_columns; k++)
        for (int r = 0; r < h.column[k].rows; r++) {
            size_t row = row_of(h, k, at, r);
            if (h.column[k].size == 8)
                move_column<double>(h.column[k].data, row, moves, from, to);
            else
                move_column<float>(h.column[k].data, row, moves, from, to);
        }
    __syncthreads();
}

/* Renames the n slots of order[]: each becomes rename(slot), and is removed if the result is <
 * 0. */
template <class F> DEVICE void rename_order(const struct gpu_heads &h, int at, int n, F rename)
{
    int32_t *order = h.order ? h.order + first_of(h, at) : nullptr;
    for (int i0 = 0, m = 0, all; order && i0 < n; i0 += KEEPERS, m += all) {
        int i = i0 + (int)threadIdx.x, to = i < n ? rename(order[i]) : -1;
        int rank = rank_in_block(to >= 0, &all); /* all reads precede writes */
        if (to >= 0)
            order[m + rank] = to;
    }
}

struct leave {
    int together;
    bool newcomer;
    int32_t t;
};

/* State of the block's head. */
struct ranks {
    int n, gap, hole;
};

/* Moves the entry of slot `from` to slot `to`; the lanes divide the channels. */
template <class KV> DEVICE void fill(const struct gpu_heads &h, int at, int n, int from, int to)
{
    const struct gpu_cache &c = h.cache;
    const KV *src = page_keys<KV>(c, at, from / PAGE_SLOTS);
    KV *dst = page_keys<KV>(c, at, to / PAGE_SLOTS);
    size_t s = (size_t)(from % PAGE_SLOTS), t = (size_t)(to % PAGE_SLOTS);
    size_t D = (size_t)c.D, half = D * PAGE_SLOTS;
    for (size_t d = threadIdx.x; d < D; d += KEEPERS) {
        dst[d * PAGE_SLOTS + t] = src[d * PAGE_SLOTS + s];
        dst[half + t * D + d] = src[half + s * D + d];
    }
    for (int k = 0; k < h.n_columns; k++)
        for (int r = (int)threadIdx.x; r < h.column[k].rows; r += KEEPERS) {
            size_t row = row_of(h, k, at, r);
            if (h.column[k].size == 8)
                ((double *)h.column[k].data)[row + to] = ((double *)h.column[k].data)[row + from];
            else
                ((float *)h.column[k].data)[row + to] = ((float *)h.column[k].data)[row + from];
        }
    if (threadIdx.x == 0)
        c.pos[first_of(h, at) + (size_t)to] = c.pos[first_of(h, at) + (size_t)from];
    __syncthreads();
    rename_order(h, at, n, [&](int s) { return s == from ? to : s; });
}

/* Compacts a head over `slots` slots; stays(slot) is true for kept slots. */
template <class KV, class F>
DEVICE int close_ranks(const struct gpu_heads &h, int at, int n, int slots, F stays)
{
    int32_t *renamed = h.renamed + first_of(h, at);
    int done = 0, all;
    for (int s0 = 0; s0 < slots; s0 += KEEPERS, done += all) {
        int s = s0 + (int)threadIdx.x;
        bool here = s < slots && stays(s);
        int to = done + rank_in_block(here, &all);
        bool moves = here && to != s;
        if (s < slots)
            renamed[s] = here ? to : -1;
        if (__syncthreads_or(moves))
            move_entries<KV>(h, at, moves, s, to);
    }
    __syncthreads();
    rename_order(h, at, n, [&](int s) { return renamed[s]; });
    return done;
}

/* Evicts the n_cut entries marked in mark[]; `victim` is one of them. */
template <class KV>
DEVICE void leave_head(const struct gpu_heads &h, int at, const unsigned char *mark, int n_cut,
                       int victim, struct ranks *r)
{
    if (n_cut == 1 && r->gap == GPU_GAP_NONE && !h.closes) {
        rename_order(h, at, r->n, [&](int s) { return s == victim ? -1 : s; });
        *r = {r->n - 1, GPU_GAP_OPEN, victim};
        return;
    }
    int n = r->n, hole = r->hole, slots = n;
    bool back = r->gap == GPU_GAP_FILLED && hole < n; /* undo the fill of the hole */
    if (back) {
        fill<KV>(h, at, n, hole, n);
        slots = n + 1;
    }
    r->n = close_ranks<KV>(h, at, n, slots, [&](int s) {
        if (back && s == hole)
            return false;
        return mark[back && s == n ? hole : s] != GPU_GONE;
    });
    r->gap = GPU_GAP_CLOSED;
}

/* Fills open slots. If a newcomer follows, reopens a filled slot for it instead. */
template <class KV>
DEVICE void end_round(const struct gpu_heads &h, int at, bool newcomer, struct ranks *r)
{
    if (!newcomer && r->gap == GPU_GAP_OPEN) {
        if (r->hole < r->n)
            fill<KV>(h, at, r->n, r->n, r->hole);
        r->gap = GPU_GAP_FILLED;
    }
    if (newcomer && r->gap == GPU_GAP_FILLED) {
        if (r->hole < r->n)
            fill<KV>(h, at, r->n, r->hole, r->n);
        r->gap = GPU_GAP_OPEN;
    }
}

/* Called by one lane. */
DEVICE void add_newcomer(const struct gpu_heads &h, int at, int32_t t, struct ranks *r)
{
    int slot = r->gap == GPU_GAP_OPEN ? r->hole : r->n;
    h.slot[at] = slot;
    h.cache.pos[first_of(h, at) + (size_t)slot] = t;
    if (h.order)
        h.order[first_of(h, at) + (size_t)r->n] = slot;
    *r = {r->n + 1, GPU_GAP_NONE, 0};
}

/* Initialises the columns of a newcomer; a lane has every KEEPERS-th row. */
DEVICE void start_columns(const struct gpu_heads &h, int at, int slot)
{
    for (int k = 0; k < h.n_columns; k++)
        for (int r = (int)threadIdx.x; h.column[k].start && r < h.column[k].rows; r += KEEPERS) {
            size_t p = row_of(h, k, at, r) + (size_t)slot;
            double v = h.column[k].start == GPU_STARTS_NAN ? (double)NAN : 0;
            if (h.column[k].size == 8)
                ((double *)h.column[k].data)[p] = v;
            else
                ((float *)h.column[k].data)[p] = (float)v;
        }
}

template <class KV>
__global__ void __launch_bounds__(KEEPERS) cut_kernel(struct gpu_heads h, struct leave w)
{
    int at = (int)blockIdx.x, n_cut = 0, victim = 0, least = h.cache.ld_slot;
    struct ranks r = {h.n[at], h.gap[at], h.hole[at]};
    int speaks = w.together ? at - at % w.together : at;
    const unsigned char *mark = h.mark + first_of(h, speaks);
    for (int i = (int)threadIdx.x; w.together && i < r.n; i += KEEPERS)
        if (mark[i] == GPU_GONE) {
            least = n_cut == 0 ? i : least;
            n_cut++;
            victim += i;
        }
    if (h.valid) /* slots change from the first evicted entry on */
        least = (int)block_min((unsigned long long)least);
    n_cut = block_sum(n_cut);
    victim = block_sum(victim); /* if exactly one entry is evicted, the sum is its slot */
    if (n_cut > 0)
        leave_head<KV>(h, at, mark, n_cut, victim, &r);
    end_round<KV>(h, at, w.newcomer, &r);
    if (w.newcomer)
        start_columns(h, at, r.gap == GPU_GAP_OPEN ? r.hole : r.n);
    if (threadIdx.x != 0)
        return;
    if (w.newcomer)
        add_newcomer(h, at, w.t + now_of(h), &r);
    h.n[at] = r.n;
    h.gap[at] = r.gap;
    h.hole[at] = r.hole;
    if (h.valid && least < h.valid[at])
        h.valid[at] = least;
}

void gpu_cut(struct gpu *g, const struct gpu_heads *h, int together, bool newcomer, int32_t t)
{
    auto kernel = h->cache.type == KV_F16 ? cut_kernel<uint16_t> : cut_kernel<float>;
    struct gpu_heads in = *h;
    struct leave w = {together, newcomer, t};
    LAUNCH(kernel, (unsigned)h->cache.heads, KEEPERS, 0, g, in, w);
}
