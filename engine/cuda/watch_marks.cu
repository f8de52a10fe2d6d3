/* watch_marks.cu - last query of many with an entry in a set, if no other result per entry is
 * requested.
 *
 * Marks of different queries can be computed in any order, because only the newest one is kept. So
 * a block has few entries and divides the queries between its warps. A lane has four entries and
 * keeps their marks in registers until its queries are done. */
#include "engine/cuda/tensor.cuh"
#include "engine/cuda/watch.cuh"

enum {
    WARPS = 8,
    LANES = WARPS * WARP,
    ENTRIES = WARP * FOUR,
    QUERIES = 128, /* queries with cuts in shared memory at the same time */
    EACH = QUERIES / WARPS,
    BATCH = 4, /* queries of which weights are loaded before one is used */
    CUTS = GPU_MAX_CUTS,
};

/* The queries of a lane's entries: from begin on, before end. */
struct lane_entries {
    int slot, begin[FOUR], end[FOUR];
    bool any, whole; /* all queries see all of the entries */
};

DEVICE struct lane_entries entries_of_lane(const struct gpu_attention &a, int g, int h)
{
    struct lane_entries e;
    int n = a.cache.n[h], page = a.page ? a.page[h] : 0;
    e.slot = (int)blockIdx.x * ENTRIES + lane_of_warp() * FOUR;
    e.any = e.slot < n;
    e.whole = true;
    for (int k = 0; k < FOUR; k++) {
        int slot = e.slot + k;
        e.begin[k] = slot - n + a.T;
        e.end[k] = slot < n ? a.T : 0;
        if (slot < n && a.cache.until) {
            int leaves = a.cache.until[(size_t)h * (size_t)a.cache.ld_slot + (size_t)slot]
                         - query_at(a, 0);
            e.end[k] = leaves < a.T ? leaves : a.T;
        }
        if (slot < n && page && !a.chosen[(size_t)g * (size_t)a.ld_chosen + (size_t)(slot / page)])
            e.end[k] = 0;
        e.whole = e.whole && e.begin[k] <= 0 && e.end[k] == a.T;
    }
    return e;
}

/* Loads the weights of BATCH queries from r on, HIDDEN if not visible. */
DEVICE void load_batch(const struct gpu_seen_rows &in, const struct lane_entries &e, int g, int r,
                       int end, float w[BATCH][FOUR])
{
    const float *p = in.p + ((size_t)g * (size_t)in.a.T + (size_t)r) * in.ld + (size_t)e.slot;
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
        float4 x = {HIDDEN, HIDDEN, HIDDEN, HIDDEN};
        if (e.any && r + j < end)
            x = *(const float4 *)(const void *)(p + (size_t)j * in.ld);
        w[j][0] = x.x;
        w[j][1] = x.y;
        w[j][2] = x.z;
        w[j][3] = x.w;
    }
    if (e.whole)
        return;
#pragma unroll
    for (int j = 0; j < BATCH; j++)
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            if (r + j < e.begin[k] || r + j >= e.end[k])
                w[j][k] = HIDDEN;
}

/* Thresholds of queries, bar[query][CUTS], and a flag per query: some cut has only part of the
 * entries at its threshold. */
struct bars {
    in_shared<float> bar;
    in_shared<int> split;
};

/* Loads the thresholds of queries [r0, end); synchronises before and after. */
DEVICE void load_bars(const struct row_cut *cuts, int r0, int end, int n_cuts,
                      const struct bars &to)
{
    __syncthreads(); /* all lanes have finished with the preceding ones */
    for (int i = (int)threadIdx.x; i < QUERIES; i += LANES) {
        const struct row_cut *cut = cuts + (size_t)((r0 + i) * n_cuts);
        int split = 0;
        for (int c = 0; c < CUTS; c++) {
            bool there = r0 + i < end && c < n_cuts;
            to.bar[i * CUTS + c] = there ? cut[c].threshold : 2; /* no weight reaches it */
            split |= there && cut[c].first_tie > 0;
        }
        to.split[i] = split;
    }
    __syncthreads();
}

/* Updates the marks for a query with thresholds at bar. */
template <int N>
DEVICE void mark(const float w[FOUR], in_shared<float> bar, int query, int r, int mine[FOUR][N])
{
    float b[CUTS];
#pragma unroll
    for (int c = 0; c < CUTS; c += FOUR)
        shared_four(bar, (unsigned)(query * CUTS + c), b + c);
#pragma unroll
    for (int k = 0; k < FOUR; k++)
#pragma unroll
        for (int c = 0; c < N; c++)
            mine[k][c] = w[k] >= b[c] ? r : mine[k][c];
}

/* Updates the marks for a query with a cut that has only part of its ties. */
template <int N>
DEVICE void mark_split(const float w[FOUR], const struct row_cut *cut, int n_cuts, int r,
                       const int32_t pos[FOUR], int mine[FOUR][N])
{
#pragma unroll
    for (int c = 0; c < N; c++) {
        struct row_cut at = c < n_cuts ? cut[c] : cut[0];
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            if (w[k] >= 0 && in_cut(at, w[k], pos[k]))
                mine[k][c] = r;
    }
}

/* Block (ENTRIES slots, query head); no other block writes their cells. */
template <int N>
__global__ void __launch_bounds__(LANES)
    watch_marks_kernel(struct gpu_seen_rows in, const struct row_cut *cuts,
                       struct gpu_entry_cells x)
{
    SHARED_FOURS(float, bar, QUERIES *CUTS);
    SHARED(int, split, QUERIES);
    SHARED(int, newest, N *ENTRIES);
    const struct bars to = {bar, split};
    int g = (int)blockIdx.y, h = kv_head(in.a, g), n_cuts = x.n_cuts, mine[FOUR][N];
    struct lane_entries e = entries_of_lane(in.a, g, h);
    int32_t pos[FOUR];
    for (int k = 0; k < FOUR; k++) {
        bool moved = in.a.cache.pos && e.end[k] > 0;
        pos[k] = moved
                     ? in.a.cache.pos[(size_t)h * (size_t)in.a.cache.ld_slot + (size_t)(e.slot + k)]
                     : e.slot + k;
        for (int c = 0; c < N; c++)
            mine[k][c] = -1;
    }
    for (int i = (int)threadIdx.x; i < N * ENTRIES; i += LANES)
        newest[i] = -1;
    cuts += (size_t)g * (size_t)in.a.T * (size_t)n_cuts;
    for (int r0 = 0; r0 < in.a.T; r0 += QUERIES) {
        int all = in.a.T - r0 < QUERIES ? in.a.T : r0 + QUERIES;
        int from = r0 + warp_of_block() * EACH, end = from + EACH < all ? from + EACH : all;
        load_bars(cuts, r0, all, n_cuts, to);
        for (int r = from; r < end; r += BATCH) {
            float w[BATCH][FOUR];
            load_batch(in, e, g, r, end, w);
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int query = r + j - r0;
                if (to.split[query])
                    mark_split<N>(w[j], cuts + (size_t)((r + j) * n_cuts), n_cuts, r + j, pos,
                                  mine);
                else
                    mark<N>(w[j], to.bar, query, r + j, mine);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < N; c++)
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            if (mine[k][c] >= 0)
                atomicMax(&newest[(size_t)(c * ENTRIES + k * WARP + lane_of_warp())], mine[k][c]);
    __syncthreads();
    int c = warp_of_block();
    if (c >= N || c >= n_cuts || !x.last[c])
        return;
    for (int k = 0; k < FOUR; k++) {
        int r = newest[c * ENTRIES + k * WARP + lane_of_warp()];
        if (r >= 0)
            put_step(x.last[c], x.wide, (size_t)g * (size_t)x.cap + (size_t)pos[k],
                     (uint32_t)query_at(in.a, r));
    }
}

bool gpu_watch_marks(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                     const struct gpu_entry_cells *cells)
{
    struct gpu_seen_rows in = *r;
    struct gpu_entry_cells x = *cells;
    bool more = x.sum || x.max || x.read || x.n_visits > 0;
    for (int c = 0; c < x.n_cuts; c++)
        more = more || x.at[c] || x.first[c];
    if (more || x.n_cuts == 0 || in.a.T < WARPS)
        return false;
    dim3 grid(blocks_for((size_t)in.a.cache.most, ENTRIES), (unsigned)in.a.n_heads);
    if (x.n_cuts < CUTS)
        LAUNCH(watch_marks_kernel<CUTS - 1>, grid, LANES, 0, g, in, cuts, x);
    else
        LAUNCH(watch_marks_kernel<CUTS>, grid, LANES, 0, g, in, cuts, x);
    return true;
}
