/* watch.cu - probe results from rows of attention weights: marks of sets, sums, and values per
 * query. */
#include "engine/cuda/tensor.cuh"
#include "engine/cuda/watch.cuh"

enum { LANES = 256, CUTS = GPU_MAX_CUTS };

DEVICE uint32_t get_step(const void *cells, bool wide, size_t i)
{
    return wide ? ((const uint32_t *)cells)[i] : ((const uint16_t *)cells)[i];
}

DEVICE void take_visit(struct gpu_visits *v, int32_t t)
{
    int32_t gap = v->last < 0 ? 0 : t - v->last - 1;
    v->count[0]++;
    v->count[1] += gap > 0;
    v->count[2] = gap > v->count[2] ? gap : v->count[2];
    v->last = t;
}

/* An entry, and the first of QUERIES queries, t0: in bit masks, bit r is query t0 + r. */
enum { ENTRIES = 128, QUERIES = 16 };
struct entry {
    size_t at; /* index of its cells */
    int32_t pos, t0;
};

/* Records that the entry is in cut c of these queries. */
DEVICE void take_members(const struct gpu_entry_cells &x, int c, int g, const struct entry &e,
                         unsigned queries)
{
    if (x.last[c])
        put_step(x.last[c], x.wide, e.at, (uint32_t)(e.t0 + 31 - __clz((int)queries)));
    if (x.at[c]) {
        uint32_t ages = 0;
        for (unsigned left = queries; left; left &= left - 1) {
            uint32_t age = (uint32_t)(e.t0 + __ffs((int)left) - 1 - e.pos);
            ages |= age > 0 && (age & (age - 1)) == 0 ? age : 0;
        }
        if (ages)
            x.at[c][e.at] |= ages;
    }
    if (x.first[c]) {
        uint32_t first = get_step(x.first[c], x.wide, e.at), next = first;
        for (unsigned left = queries; left; left &= left - 1)
            next += next == (uint32_t)(e.t0 + __ffs((int)left) - 1 - e.pos);
        if (next != first)
            put_step(x.first[c], x.wide, e.at, next);
    }
    for (int k = 0; k < x.n_visits; k++) {
        struct gpu_visits *v =
            &x.visits[((size_t)(g * x.n_visits + k)) * (size_t)x.cap + (size_t)e.pos];
        for (unsigned left = x.visits_cut[k] == c ? queries : 0; left; left &= left - 1)
            take_visit(v, e.t0 + __ffs((int)left) - 1);
    }
}

/* Loads the weights that QUERIES queries from r0 on gave to an entry, HIDDEN if not visible. All
 * are loaded before one is used. */
DEVICE unsigned weights_of_entry(const struct gpu_seen_rows &in, int g, int h, int r0, int slot,
                                 float w[QUERIES])
{
    const struct gpu_attention &a = in.a;
    const float *p = in.p + ((size_t)g * (size_t)a.T + (size_t)r0) * in.ld + (size_t)slot;
    int n = a.cache.n[h], begin = slot - n + a.T, end = a.T; /* range of queries that see it */
    unsigned seen = 0;
    if (slot < n && a.cache.until) {
        int32_t until = a.cache.until[(size_t)h * (size_t)a.cache.ld_slot + (size_t)slot];
        int leaves = until - query_at(a, 0);
        end = leaves < end ? leaves : end;
    }
    int page = a.page ? a.page[h] : 0;
    if (slot >= n || (page && !a.chosen[(size_t)g * (size_t)a.ld_chosen + (size_t)(slot / page)]))
        end = 0;
#pragma unroll
    for (int r = 0; r < QUERIES; r++)
        w[r] = r0 + r >= begin && r0 + r < end ? p[(size_t)r * in.ld] : HIDDEN;
#pragma unroll
    for (int r = 0; r < QUERIES; r++)
        seen |= (unsigned)(w[r] >= 0) << r;
    return seen;
}

/* Cuts of QUERIES queries: cut[r][n_cuts], and their thresholds bar[c][QUERIES]. */
struct some_cuts {
    in_shared<struct row_cut> cut;
    in_shared<float> bar;
    bool split; /* some cut has only part of the entries at its threshold */
};

/* Loads cuts into shared memory; synchronises before and after. */
DEVICE bool load_cuts(const struct row_cut *from, int n_rows, int n_cuts,
                      const struct some_cuts &to)
{
    int split = 0;
    __syncthreads(); /* all lanes have finished with the preceding cuts */
    for (int i = (int)threadIdx.x; i < QUERIES * n_cuts; i += ENTRIES) {
        struct row_cut c = {2, 0, 0}; /* no weight reaches it */
        if (i / n_cuts < n_rows)
            c = from[i];
        to.cut[i] = c;
        to.bar[i % n_cuts * QUERIES + i / n_cuts] = c.threshold;
        split |= c.first_tie > 0;
    }
    return __syncthreads_or(split);
}

/* Returns the mask of queries with the entry in cut c. */
DEVICE unsigned members_of(const float w[QUERIES], const struct some_cuts &x, int c, int n_cuts,
                           int32_t pos)
{
    unsigned in = 0;
#pragma unroll
    for (int r = 0; r < QUERIES && !x.split; r += FOUR) {
        float bar[FOUR];
        shared_four(x.bar, c * QUERIES + r, bar);
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            in |= (unsigned)(w[r + k] >= bar[k]) << (r + k);
    }
#pragma unroll
    for (int r = 0; r < QUERIES && x.split; r++)
        in |= (unsigned)in_cut(x.cut[r * n_cuts + c], w[r], pos) << r;
    return in;
}

/* Updates the sums of an entry over the queries that saw it, in order. */
DEVICE void take_sums(const struct gpu_entry_cells &x, size_t at, const float w[QUERIES],
                      unsigned seen)
{
    double sum = x.sum[at];
    float most = x.max[at];
#pragma unroll
    for (int r = 0; r < QUERIES; r++)
        if (seen >> r & 1) {
            sum += (double)w[r];
            most = fmaxf(most, w[r]);
        }
    x.sum[at] = sum;
    x.max[at] = most;
}

/* Lane i of row blockIdx.y processes the entry of slot i; no other lane writes its cells. */
__global__ void __launch_bounds__(ENTRIES)
    watch_entries_kernel(struct gpu_seen_rows in, const struct row_cut *cuts,
                         struct gpu_entry_cells x)
{
    SHARED(struct row_cut, cut, QUERIES * CUTS);
    SHARED_FOURS(float, bar, QUERIES *CUTS);
    int g = (int)blockIdx.y, h = kv_head(in.a, g);
    int slot = (int)(blockIdx.x * ENTRIES + threadIdx.x), n_cuts = x.n_cuts;
    const int32_t *pos = in.a.cache.pos;
    pos = pos ? pos + (size_t)h * (size_t)in.a.cache.ld_slot : pos;
    for (int r0 = 0; r0 < in.a.T; r0 += QUERIES) {
        const struct row_cut *from = cuts
                                     + ((size_t)g * (size_t)in.a.T + (size_t)r0) * (size_t)n_cuts;
        float w[QUERIES];
        struct some_cuts some = {cut, bar, false};
        unsigned seen = weights_of_entry(in, g, h, r0, slot, w);
        some.split = load_cuts(from, in.a.T - r0, n_cuts, some);
        if (!seen)
            continue;
        struct entry e = {0, pos ? pos[slot] : slot, query_at(in.a, r0)};
        e.at = (size_t)g * (size_t)x.cap + (size_t)e.pos;
        if (x.sum)
            take_sums(x, e.at, w, seen);
        if (x.read)
            x.read[e.at] += (uint32_t)__popc(seen);
        for (int c = 0; c < n_cuts; c++) {
            unsigned queries = members_of(w, some, c, n_cuts, e.pos);
            if (queries)
                take_members(x, c, g, e, queries);
        }
    }
}

void gpu_watch_entries(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                       const struct gpu_entry_cells *cells)
{
    struct gpu_seen_rows in = *r;
    struct gpu_entry_cells x = *cells;
    if (gpu_watch_marks(g, r, cuts, cells))
        return;
    dim3 grid(blocks_for((size_t)r->a.cache.most, ENTRIES), (unsigned)r->a.n_heads);
    LAUNCH(watch_entries_kernel, grid, ENTRIES, 0, g, in, cuts, x);
}

DEVICE void count_under(const struct gpu_seen_rows &in, const row_view &v,
                        const struct gpu_query_cells &x, size_t at)
{
    float most = 0;
    for (int i = (int)threadIdx.x; i < v.n; i += LANES)
        most = fmaxf(most, weight_at(in, v, i));
    most = block_max(most);
    for (int k = 0; k < x.n_shares; k++) {
        float bar = not_under(x.share[k] * (double)most);
        int count = 0;
        for (int i = (int)threadIdx.x; i < v.n; i += LANES) {
            float p = weight_at(in, v, i);
            count += p >= 0 && p < bar;
        }
        count = block_sum(count);
        if (threadIdx.x == 0)
            put_step(x.under[k], x.wide, at, (uint32_t)count);
    }
}

/* Returns the first of the pairs [from, to) with a token at pos or later. */
DEVICE int pair_from(const int32_t *token, int from, int to, int32_t pos)
{
    while (from < to) {
        int mid = from + (to - from) / 2;
        if (token[mid] < pos)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

DEVICE void take_received(const struct gpu_seen_rows &in, const row_view &v,
                          const struct gpu_query_cells &x)
{
    int from = x.first[v.g], to = x.first[v.g + 1], t = query_at(in.a, v.r);
    for (int k = from + (int)threadIdx.x; k < to; k += LANES)
        if (x.token[k] <= t)
            x.received[(size_t)k * (size_t)x.cap + (size_t)t] = -1;
    __syncthreads();
    for (int i = (int)threadIdx.x; from < to && i < v.n; i += LANES) {
        float p = weight_at(in, v, i);
        int32_t pos = position_at(v, i);
        int k = p >= 0 ? pair_from(x.token, from, to, pos) : to;
        if (k < to && x.token[k] == pos)
            x.received[(size_t)k * (size_t)x.cap + (size_t)t] = p;
    }
}

/* Block (query, query head). */
__global__ void __launch_bounds__(LANES)
    watch_queries_kernel(struct gpu_seen_rows in, struct gpu_query_cells x)
{
    row_view v = view_of(in, (int)blockIdx.y, (int)blockIdx.x);
    size_t row = (size_t)v.g * (size_t)in.a.T + (size_t)v.r;
    size_t at = (size_t)v.g * (size_t)x.cap + (size_t)query_at(in.a, v.r);
    if (threadIdx.x == 0 && x.lse) {
        x.lse[at] = in.lse[row];
        x.entropy[at] = in.entropy[row];
    }
    if (threadIdx.x == 0 && x.seen)
        put_step(x.seen, x.wide, at, (uint32_t)in.seen[row]);
    if (x.n_shares > 0)
        count_under(in, v, x, at);
    if (x.received)
        take_received(in, v, x);
}

void gpu_watch_queries(struct gpu *g, const struct gpu_seen_rows *r,
                       const struct gpu_query_cells *cells)
{
    struct gpu_seen_rows in = *r;
    struct gpu_query_cells x = *cells;
    dim3 grid((unsigned)r->a.T, (unsigned)r->a.n_heads);
    LAUNCH(watch_queries_kernel, grid, LANES, 0, g, in, x);
}

/* Clears the sums of the blocks that begin with these queries. */
__global__ void __launch_bounds__(LANES)
    watch_begin_kernel(struct gpu_seen_rows in, float *sum, int cap, int block, int ring)
{
    int h = (int)blockIdx.y, i = (int)(blockIdx.x * LANES + threadIdx.x);
    for (int r = 0; r < in.a.T && i < cap; r++)
        if (query_at(in.a, r) % block == 0) {
            int b = query_at(in.a, r) / block % ring;
            sum[((size_t)h * (size_t)ring + (size_t)b) * (size_t)cap + (size_t)i] = 0;
        }
}

/* Lane i of KV head blockIdx.y processes the entry of slot i. */
__global__ void __launch_bounds__(LANES)
    watch_window_kernel(struct gpu_seen_rows in, float *sum, int cap, int block, int ring)
{
    int h = (int)blockIdx.y, slot = (int)(blockIdx.x * LANES + threadIdx.x);
    int per = in.a.n_heads / in.a.cache.heads;
    for (int r = 0; r < in.a.T; r++) {
        float most = HIDDEN;
        for (int g = h * per; g < (h + 1) * per; g++)
            most = fmaxf(most, weight_at(in, view_of(in, g, r), slot));
        if (most < 0)
            continue;
        int b = query_at(in.a, r) / block % ring;
        int32_t pos = position_at(view_of(in, h * per, r), slot);
        sum[((size_t)h * (size_t)ring + (size_t)b) * (size_t)cap + (size_t)pos] += most;
    }
}

void gpu_watch_window(struct gpu *g, const struct gpu_seen_rows *r, float *sum, int cap, int block,
                      int ring)
{
    struct gpu_seen_rows in = *r;
    unsigned heads = (unsigned)r->a.cache.heads;
    dim3 all(blocks_for((size_t)cap, LANES), heads);
    dim3 some(blocks_for((size_t)r->a.cache.most, LANES), heads);
    LAUNCH(watch_begin_kernel, all, LANES, 0, g, in, sum, cap, block, ring);
    LAUNCH(watch_window_kernel, some, LANES, 0, g, in, sum, cap, block, ring);
}
