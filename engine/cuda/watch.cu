/* watch.cu - what probes take from rows of attention weights: sets, marks, sums and numbers of
 * queries. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/watch.h"

enum { LANES = 256, BINS = 256, CUTS = GPU_MOST_CUTS };

/* Row r of query head g; HIDDEN is less than any weight. */
struct row_view {
    int g, h, r, n;
    const float *p;
    const int32_t *pos;
};
#define HIDDEN (-1.0f)

DEVICE row_view view_of(const struct gpu_seen_rows &in, int g, int r)
{
    int h = kv_head(in.a, g);
    const int32_t *pos = in.a.cache.pos;
    return {g,
            h,
            r,
            slots_of(in.a, h, r),
            in.p + ((size_t)g * (size_t)in.a.T + (size_t)r) * in.ld,
            pos ? pos + (size_t)h * (size_t)in.a.cache.ld_slot : pos};
}

DEVICE float weight_at(const struct gpu_seen_rows &in, const row_view &v, int slot)
{
    return sees(in.a, v.g, v.h, v.r, slot) ? v.p[slot] : HIDDEN;
}

DEVICE int32_t position_at(const row_view &v, int slot)
{
    return v.pos ? v.pos[slot] : slot;
}

/* A cut to be found: the `most` largest, or with most 0 what reaches tau of the mass. */
struct cut_wish {
    int most;
    double tau;
};
struct cut_wishes {
    struct cut_wish of[CUTS];
    int n;
};

/* What is known of the place of a cut: the upper bytes of its weight, and what is larger. */
struct cut_state {
    unsigned prefix;
    int above;      /* entries whose weight is larger */
    long long mass; /* their mass */
    int within;     /* entries of the last bin */
    bool whole;     /* the whole row */
};

DEVICE bool reached(const struct cut_wish &w, int count, long long mass, long long total)
{
    return w.most > 0 ? count >= w.most : (double)mass >= w.tau * (double)total;
}

/* Counts, and sums up, the entries that share a cut's prefix by their next byte, for each prefix
 * once: bins[c] says whose bins are those of cut c. */
DEVICE void fill_bins(const struct gpu_seen_rows &in, const row_view &v, int n_cuts, int shift,
                      in_shared<unsigned> prefix, in_shared<int> bins, in_shared<int> count,
                      in_shared<unsigned long long> mass)
{
    for (int b = (int)threadIdx.x; b < n_cuts * BINS; b += LANES) {
        count[b] = 0;
        mass[b] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < v.n; i += LANES) {
        float p = weight_at(in, v, i);
        unsigned bits = __float_as_uint(p);
        for (int c = 0; p >= 0 && c < n_cuts; c++) {
            if (bins[c] != c || (shift < 24 && bits >> (shift + 8) != prefix[c]))
                continue;
            atomicAdd(&count[c * BINS + (int)(bits >> shift & 255)], 1);
            atomicAdd(&mass[c * BINS + (int)(bits >> shift & 255)],
                      (unsigned long long)mass_units(p));
        }
    }
    __syncthreads();
}

/* Goes down the bins to that in which the cut lies. */
DEVICE void take_bin(struct cut_state *c, const struct cut_wish &w, long long total,
                     in_shared<int> count, in_shared<unsigned long long> mass)
{
    int b = BINS - 1;
    for (; b > 0; b--) {
        int more = count[b];
        long long weight = (long long)(unsigned long long)mass[b];
        if (more > 0 && reached(w, c->above + more, c->mass + weight, total))
            break;
        c->above += more;
        c->mass += weight;
    }
    c->prefix = c->prefix << 8 | (unsigned)b;
    c->within = (int)count[b];
}

/* How many of the entries of weight v the set needs. */
DEVICE int of_ties(const struct cut_state &c, const struct cut_wish &w, float v, long long total)
{
    if (w.most > 0)
        return w.most - c.above;
    int e = 1;
    long long unit = mass_units(v);
    if (unit > 0) { /* near the answer, then there */
        double left = (w.tau * (double)total - (double)c.mass) / (double)unit;
        e = left > 2 ? (int)left - 1 : 1;
    }
    while (e < c.within && !reached(w, 0, c.mass + e * unit, total))
        e++;
    return e;
}

/* The position of the e-th entry of weight w, counted from the newest. */
DEVICE int tie_place(const struct gpu_seen_rows &in, const row_view &v, float w, int e)
{
    int lo = 0, hi = query_at(in.a, v.r); /* at least e of them lie at lo or later */
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2, count = 0;
        for (int i = (int)threadIdx.x; i < v.n; i += LANES)
            count += weight_at(in, v, i) == w && position_at(v, i) >= mid;
        if (block_sum(count) >= e)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* The bins of cut c are those of the first cut with the same prefix. */
DEVICE int same_bins(int c, in_shared<unsigned> prefix, in_shared<int> whole)
{
    int first = 0;
    while (first < c && (prefix[first] != prefix[c] || whole[first]))
        first++;
    return whole[c] ? CUTS : first;
}

/* Block (query, query head): lane c has the state of cut c. */
__global__ void __launch_bounds__(LANES)
    cuts_kernel(struct gpu_seen_rows in, struct cut_wishes wishes, struct row_cut *cuts)
{
    SHARED(int, count, CUTS *BINS);
    SHARED(unsigned long long, mass, CUTS *BINS);
    SHARED(unsigned, prefix, CUTS);
    SHARED(int, bins, CUTS);
    SHARED(int, whole, CUTS);
    SHARED(float, tied, CUTS); /* the weight of ties of which not all are in the set, or HIDDEN */
    SHARED(int, needed, CUTS);
    row_view v = view_of(in, (int)blockIdx.y, (int)blockIdx.x);
    int me = (int)threadIdx.x, seen = 0;
    struct row_cut *out = cuts + ((size_t)v.g * (size_t)in.a.T + (size_t)v.r) * (size_t)wishes.n;
    long long total = 0;
    for (int i = me; i < v.n; i += LANES) {
        float p = weight_at(in, v, i);
        seen += p >= 0;
        total += p >= 0 ? mass_units(p) : 0;
    }
    seen = block_sum(seen);
    total = block_sum(total);
    struct cut_wish w = wishes.of[me < wishes.n ? me : 0];
    struct cut_state c = {0, 0, 0, 0, w.most > 0 ? w.most >= seen : total == 0};
    if (me < wishes.n) {
        prefix[me] = 0;
        whole[me] = c.whole;
    }
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (me < wishes.n)
            bins[me] = same_bins(me, prefix, whole);
        __syncthreads();
        fill_bins(in, v, wishes.n, shift, prefix, bins, count, mass);
        if (me < wishes.n && !c.whole) {
            take_bin(&c, w, total, count + bins[me] * BINS, mass + bins[me] * BINS);
            prefix[me] = c.prefix;
        }
        __syncthreads();
    }
    if (me < wishes.n) {
        float at = __uint_as_float(c.prefix);
        int e = c.whole ? 0 : of_ties(c, w, at, total), all = c.whole ? seen : c.above + e;
        bool splits = !c.whole && e < c.within;
        out[me] = {all == seen ? 0 : at, 0, all};
        tied[me] = splits ? at : HIDDEN;
        needed[me] = e;
    }
    __syncthreads();
    for (int k = 0; k < wishes.n; k++) {
        if ((float)tied[k] < 0)
            continue;
        int place = tie_place(in, v, tied[k], needed[k]);
        if (me == 0)
            out[k].first_tie = place;
    }
}

void gpu_row_cuts(struct gpu *g, const struct gpu_seen_rows *r, const struct gpu_criteria *c,
                  struct row_cut *cuts)
{
    struct gpu_seen_rows in = *r;
    struct cut_wishes w = {{}, c->n_top + c->n_tau};
    for (int i = 0; i < c->n_top; i++)
        w.of[i] = {c->top_k[i], 0};
    for (int i = 0; i < c->n_tau; i++)
        w.of[c->n_top + i] = {0, c->tau[i]};
    dim3 grid((unsigned)r->a.T, (unsigned)r->a.n_heads);
    LAUNCH(cuts_kernel, grid, LANES, 0, g, in, w, cuts);
}

DEVICE void put_step(void *cells, bool wide, size_t i, uint32_t v)
{
    if (wide)
        ((uint32_t *)cells)[i] = v;
    else
        ((uint16_t *)cells)[i] = (uint16_t)v;
}

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

/* The entry at position pos is in cut c of query t of head g. */
DEVICE void take_member(const struct gpu_entry_cells &x, int c, int g, int32_t pos, int32_t t)
{
    size_t cap = (size_t)x.cap, i = (size_t)g * cap + (size_t)pos;
    uint32_t age = (uint32_t)(t - pos);
    if (x.last[c])
        put_step(x.last[c], x.wide, i, (uint32_t)t);
    if (x.at[c] && age > 0 && (age & (age - 1)) == 0)
        x.at[c][i] |= age;
    if (x.first[c] && get_step(x.first[c], x.wide, i) == age)
        put_step(x.first[c], x.wide, i, age + 1);
    for (int k = 0; k < x.n_visits; k++)
        if (x.visits_cut[k] == c)
            take_visit(&x.visits[((size_t)(g * x.n_visits + k)) * cap + (size_t)pos], t);
}

/* Lane i of row blockIdx.y takes the entry of slot i: nobody else has its cells. */
__global__ void __launch_bounds__(LANES)
    watch_entries_kernel(struct gpu_seen_rows in, const struct row_cut *cuts,
                         struct gpu_entry_cells x)
{
    int g = (int)blockIdx.y, slot = (int)(blockIdx.x * LANES + threadIdx.x);
    for (int r = 0; r < in.a.T; r++) {
        row_view v = view_of(in, g, r);
        float p = weight_at(in, v, slot);
        if (p < 0)
            continue;
        int32_t pos = position_at(v, slot);
        size_t i = (size_t)g * (size_t)x.cap + (size_t)pos;
        if (x.sum) {
            x.sum[i] += (double)p;
            x.max[i] = fmaxf(x.max[i], p);
        }
        if (x.read)
            x.read[i]++;
        const struct row_cut *cut = cuts
                                    + ((size_t)g * (size_t)in.a.T + (size_t)r) * (size_t)x.n_cuts;
        for (int c = 0; c < x.n_cuts; c++)
            if (in_cut(cut[c], p, pos))
                take_member(x, c, g, pos, query_at(in.a, r));
    }
}

void gpu_watch_entries(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                       const struct gpu_entry_cells *cells)
{
    struct gpu_seen_rows in = *r;
    struct gpu_entry_cells x = *cells;
    dim3 grid(blocks_for((size_t)r->a.cache.most, LANES), (unsigned)r->a.n_heads);
    LAUNCH(watch_entries_kernel, grid, LANES, 0, g, in, cuts, x);
}

/* The least float that is not under x. */
DEVICE float not_under(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
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

/* The first of the pairs [from, to) whose token is at pos or later. */
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

/* Lane i of KV head blockIdx.y takes the entry of slot i. */
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
