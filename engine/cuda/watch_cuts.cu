/* watch_cuts.cu - the selected sets of rows of attention weights: the largest so many, or those
 * that make up a share of the mass.
 *
 * A row is read twice.  First its weights are counted, and their masses summed up, by BINS ranges
 * of their values: 64 for each power of two down to 2^-27, below which a weight is no whole number
 * of units of mass, then 16 for each down to 2^-63.  Of the mass of a weight a bin gets only what
 * it has above the bin's edge.  A scan from the largest bin down tells in which bin each cut lies.
 * Then what lies in one of these bins is gathered, about a hundredth of a row for each cut, and a
 * warp for each cut goes down its bits.  Counts and masses are whole numbers, so that no order of
 * lanes can be seen. */
#include "engine/cuda/tensor.cuh"
#include "engine/cuda/watch.cuh"

enum {
    LANES = 256,
    WARPS = LANES / WARP,
    EXACT = 100, /* exponent of 2^-27, from which on weights are whole units of mass */
    FINE = 17,   /* bits of a weight below those of its bin, from 2^-27 on */
    COARSE = 19, /* and below 2^-27 */
    OWN = 9,     /* bins of a lane */
    BINS = LANES * OWN,
    EDGE = BINS - 1 - 27 * 64, /* the bin that begins at 2^-27; the last one has the weight 1 */
    CHUNK = 16380,             /* weights whose sums in a bin fit in 32 bits */
    ROOM = 2048,               /* weights that are gathered */
    BATCH = 4,                 /* fours that a lane reads at once */
    CUTS = GPU_MOST_CUTS,
    MARKS = BINS / 32, /* words of bits, one for each bin */
};

/* A cut to be found: the `most` largest, or with most 0 what reaches tau of the mass. */
struct cut_wish {
    int most;
    double tau;
};
struct cut_wishes {
    struct cut_wish of[CUTS];
    int n;
};

/* The wish as a kernel compares with it. */
struct cut_goal {
    int count;
    double mass;
};
DEVICE struct cut_goal goal_of(const struct cut_wish &w, long long total)
{
    struct cut_goal goal = {w.most, w.tau * (double)total};
    return goal;
}
DEVICE bool reached(const struct cut_goal &w, int count, long long mass)
{
    return w.count > 0 ? count >= w.count : (double)mass >= w.mass;
}

/* Below 2^-63 all is in bin 0. */
DEVICE int bin_of(unsigned bits)
{
    int fine = (int)(bits >> FINE) - (EXACT << (23 - FINE));
    int coarse = (int)(bits >> COARSE) - (EXACT << (23 - COARSE)) + EDGE;
    return fine >= 0 ? fine + EDGE : coarse > 0 ? coarse : 0;
}

/* The bits of a weight below those of a bin. */
DEVICE int bits_below(int bin)
{
    return bin >= EDGE ? FINE : COARSE;
}

/* The least weight of a bin; of bin 0 the mass counts as none, which it is. */
DEVICE unsigned edge_of(int bin)
{
    int below = bits_below(bin);
    return bin > 0 ? (unsigned)(bin - EDGE + (EXACT << (23 - below))) << below : 0;
}

/* Units of mass that a unit of what is above the edge of a bin stands for: 1 << shift. */
DEVICE int shift_of(int bin)
{
    return bin >= EDGE ? (bin - EDGE) >> (23 - FINE) : 0;
}

/* What the mass of a weight has above that of the edge of its bin. */
DEVICE unsigned above_edge(unsigned bits)
{
    if (bits >> 23 >= EXACT)
        return bits & ((1u << FINE) - 1);
    unsigned edge = bits >> COARSE << COARSE;
    return (unsigned)(rintf(__uint_as_float(bits) * 0x1p50f)
                      - rintf(__uint_as_float(edge) * 0x1p50f));
}

/* The mass of so many weights of a bin that have so much above its edge. */
DEVICE long long mass_of(int bin, int count, unsigned long long above)
{
    return count * mass_units(__uint_as_float(edge_of(bin))) + (long long)(above << shift_of(bin));
}

/* Which of four slots from i on a row sees, of those below `to`. */
DEVICE unsigned four_seen(const struct gpu_seen_rows &in, const row_view &v, int i, int to)
{
    unsigned seen = (1u << (to - i < FOUR ? to - i : FOUR)) - 1;
    const int32_t *until = in.a.cache.until;
    if (until) {
        int t = query_at(in.a, v.r);
        int4 u = *(const int4 *)(const void *)(until + (size_t)v.h * (size_t)in.a.cache.ld_slot
                                               + (size_t)i);
        seen &= (unsigned)(u.x > t) | (unsigned)(u.y > t) << 1 | (unsigned)(u.z > t) << 2
                | (unsigned)(u.w > t) << 3;
    }
    for (int k = 0; k < FOUR && in.a.page; k++)
        if (seen >> k & 1 && !shown(in.a, v.g, v.h, v.r, i + k))
            seen &= ~(1u << k);
    return seen;
}

/* Four weights from slot i on. */
DEVICE void four_weights(const row_view &v, int i, float p[FOUR])
{
    float4 w = *(const float4 *)(const void *)(v.p + i);
    p[0] = w.x;
    p[1] = w.y;
    p[2] = w.z;
    p[3] = w.w;
}

/* Calls f(weight) for the lane's part of the weights of slots [from, to) that the row sees. */
template <class F>
DEVICE void each_weight(const struct gpu_seen_rows &in, const row_view &v, int from, int to,
                        int lane, int lanes, F f)
{
    int i = from + lane * FOUR, step = lanes * FOUR, batch = (BATCH - 1) * step + FOUR;
    if (in.a.cache.until || in.a.page)
        batch = to + 1;
    for (; i + batch <= to; i += BATCH * step) {
        float p[BATCH][FOUR];
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            four_weights(v, i + j * step, p[j]);
#pragma unroll
        for (int j = 0; j < BATCH; j++)
#pragma unroll
            for (int k = 0; k < FOUR; k++)
                if (p[j][k] >= 0)
                    f(__float_as_uint(p[j][k]));
    }
    for (; i < to; i += step) {
        float p[FOUR];
        four_weights(v, i, p);
        unsigned seen = four_seen(in, v, i, to);
#pragma unroll
        for (int k = 0; k < FOUR; k++)
            if (seen >> k & 1 && p[k] >= 0)
                f(__float_as_uint(p[k]));
    }
}

/* What a lane knows of its bins, from the largest down: bin BINS - 1 - (lane * OWN + k). */
struct own_bins {
    int count[OWN];
    long long mass[OWN];
    int seen; /* weights that the lane has read */
};
DEVICE int own_bin(int k)
{
    return BINS - 1 - ((int)threadIdx.x * OWN + k);
}

/* Reads the row once.  Bins are zeros afterwards, which other lanes see after a barrier. */
DEVICE struct own_bins count_row(const struct gpu_seen_rows &in, const row_view &v,
                                 in_shared<int> count, in_shared<unsigned> above)
{
    struct own_bins own = {};
    for (int k = 0; k < OWN; k++) {
        count[own_bin(k)] = 0;
        above[own_bin(k)] = 0;
    }
    __syncthreads();
    for (int from = 0; from < v.n; from += CHUNK) {
        int to = v.n - from < CHUNK ? v.n : from + CHUNK;
        each_weight(in, v, from, to, (int)threadIdx.x, LANES, [&](unsigned bits) {
            int b = bin_of(bits);
            own.seen++;
            if (b == 0)
                return; /* what is left over, and often most of a row */
            atomicAdd(&count[b], 1);
            atomicAdd(&above[b], above_edge(bits));
        });
        __syncthreads();
        for (int k = 0; k < OWN; k++) {
            int b = own_bin(k), n = count[b];
            own.count[k] += n;
            own.mass[k] += n > 0 ? mass_of(b, n, (unsigned)above[b]) : 0;
            count[b] = 0;
            above[b] = 0;
        }
        __syncthreads();
    }
    return own;
}

/* What is in the bins of the lanes before this one, and in all. */
struct scanned {
    int before, seen;
    long long mass_before, total;
};

DEVICE struct scanned scan(const struct own_bins &own)
{
    SHARED(int, warp_count, WARPS);
    SHARED(int, warp_seen, WARPS);
    SHARED(long long, warp_mass, WARPS);
    int count = 0, seen = warp_sum(own.seen), lane = lane_of_warp();
    long long mass = 0;
    for (int k = 0; k < OWN; k++) {
        count += own.count[k];
        mass += own.mass[k];
    }
    struct scanned s = {-count, 0, -mass, 0};
    for (int d = 1; d < WARP; d *= 2) {
        int c = __shfl_up_sync(ALL_LANES, count, (unsigned)d);
        long long m = __shfl_up_sync(ALL_LANES, mass, (unsigned)d);
        count += lane >= d ? c : 0;
        mass += lane >= d ? m : 0;
    }
    if (lane == WARP - 1) {
        warp_count[warp_of_block()] = count;
        warp_seen[warp_of_block()] = seen;
        warp_mass[warp_of_block()] = mass;
    }
    __syncthreads();
    s.before += count;
    s.mass_before += mass;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        bool earlier = w < warp_of_block();
        int c = warp_count[w];
        long long m = warp_mass[w];
        s.before += earlier ? c : 0;
        s.mass_before += earlier ? m : 0;
        s.total += m;
        s.seen += warp_seen[w];
    }
    return s;
}

/* The place of a cut: what is larger than its bin, and what its bin has. */
struct cut_place {
    int bin, above, within; /* bin -1: the whole row */
    long long mass;         /* of what is above */
};

/* The lane that has the bin of a cut tells its place. */
DEVICE void find_bins(const struct own_bins &own, const struct scanned &s,
                      const struct cut_wishes &wishes, in_shared<struct cut_place> place)
{
    int mine = 0;
    long long mass = 0;
    for (int k = 0; k < OWN; k++) {
        mine += own.count[k];
        mass += own.mass[k];
    }
    bool last = threadIdx.x == LANES - 1; /* whose last bin has what is left over */
    if (mine == 0 && !last)
        return;
    for (int c = 0; c < wishes.n; c++) {
        struct cut_goal goal = goal_of(wishes.of[c], s.total);
        int above = s.before;
        long long heavier = s.mass_before;
        bool whole = goal.count > 0 ? goal.count >= s.seen : s.total == 0;
        if (whole || reached(goal, above, heavier)
            || (!last && !reached(goal, above + mine, heavier + mass)))
            continue;
        for (int k = 0; k < OWN; k++) {
            bool rest = own_bin(k) == 0;
            int within = rest ? s.seen - above : own.count[k];
            if (rest || reached(goal, above + within, heavier + own.mass[k])) {
                place[c] = {own_bin(k), above, within, heavier};
                break;
            }
            above += within;
            heavier += own.mass[k];
        }
    }
}

/* Lane c of a warp has cut c: where what lies in its bin goes in the list; ROOM where it has no
 * room there. */
DEVICE int list_place(const struct cut_place &p, int n_cuts)
{
    int c = lane_of_warp(), first = c, at = 0;
    for (int j = n_cuts - 1; j >= 0; j--)
        if (__shfl_sync(ALL_LANES, p.bin, j) == p.bin && j < c)
            first = j;
    for (int j = 0; j < n_cuts; j++) {
        int within = __shfl_sync(ALL_LANES, p.within, j);
        bool heads = __shfl_sync(ALL_LANES, first, j) == j; /* the first one of its bin */
        at += heads && j < first ? within : 0;
    }
    return p.bin >= 0 && at + p.within <= ROOM ? at : ROOM;
}

/* A cut on its way down the bits, and the weights that it can be: of the list, or, where there is
 * none, those of the row that share its bin. */
struct descent {
    int bin, above, within;
    long long mass;
    unsigned prefix;
    in_shared<unsigned> list;
    bool listed;
};

/* Of the weights whose bits from `bit` on are those of `prefix`: how many there are, and what they
 * have above the edge. */
struct upper {
    int count;
    unsigned long long above;
};
DEVICE struct upper upper_half(const struct gpu_seen_rows &in, const row_view &v,
                               const struct descent &d, unsigned prefix, int bit, int length)
{
    struct upper lane = {0, 0};
    auto take = [&](unsigned bits) {
        bool hit = bits >> bit == prefix >> bit && bin_of(bits) == d.bin;
        lane.count += hit;
        lane.above += hit && d.bin > 0 ? above_edge(bits) : 0;
    };
    if (d.listed)
        for (int i = lane_of_warp(); i < length; i += WARP)
            take(d.list[i]);
    else
        each_weight(in, v, 0, v.n, lane_of_warp(), WARP, take);
    struct upper all;
    all.count = (int)__reduce_add_sync(ALL_LANES, (unsigned)lane.count);
    all.above = __reduce_add_sync(ALL_LANES, (unsigned)(lane.above & 0xffffff));
    all.above += (unsigned long long)__reduce_add_sync(ALL_LANES, (unsigned)(lane.above >> 24))
                 << 24;
    return all;
}

/* Goes down the bits of a bin to the weight of the cut. */
DEVICE void descend(const struct gpu_seen_rows &in, const row_view &v, const struct cut_goal &goal,
                    struct descent *d)
{
    int length = d->within;
    for (int bit = d->bin > 0 ? bits_below(d->bin) - 1 : 29; bit >= 0; bit--) {
        unsigned prefix = d->prefix | 1u << bit;
        struct upper up = upper_half(in, v, *d, prefix, bit, length);
        long long mass = mass_of(d->bin, up.count, up.above);
        if (up.count > 0 && reached(goal, d->above + up.count, d->mass + mass)) {
            d->prefix = prefix;
            d->within = up.count;
            continue;
        }
        d->above += up.count;
        d->mass += mass;
        d->within -= up.count;
    }
}

/* How many of the entries of weight v the set needs. */
DEVICE int of_ties(const struct descent &d, const struct cut_goal &goal, float v)
{
    if (goal.count > 0)
        return goal.count - d.above;
    int e = 1;
    long long unit = mass_units(v);
    if (unit > 0) { /* near the answer, then there */
        double left = (goal.mass - (double)d.mass) / (double)unit;
        e = left > 2 ? (int)left - 1 : 1;
    }
    while (e < d.within && !reached(goal, 0, d.mass + e * unit))
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

/* A warp marks the bins of cuts that have room in the list, and gives them the next place there for
 * `count`. */
DEVICE void place_lists(int n_cuts, in_shared<struct cut_place> place, in_shared<int> list_at,
                        in_shared<int> count, in_shared<unsigned> marks)
{
    int lane = lane_of_warp();
    struct cut_place mine = place[lane < n_cuts ? lane : 0];
    int at = list_place(mine, n_cuts);
    if (lane < n_cuts)
        list_at[lane] = at;
    for (int i = lane; i < MARKS; i += WARP)
        marks[i] = 0;
    __syncwarp();
    for (int j = 0; j < n_cuts; j++) {
        if (lane == j && at < ROOM) {
            marks[mine.bin / 32] = marks[mine.bin / 32] | 1u << mine.bin % 32;
            count[mine.bin] = at;
        }
        __syncwarp(); /* cuts with one bin write the same */
    }
}

/* What a cut comes to: the weight of ties of which it has `needed`, or HIDDEN where it has all. */
struct cut_end {
    struct row_cut cut;
    float tied;
    int needed;
};

/* A warp makes a cut of its place; the list begins at `list`, or has no room for it. */
DEVICE struct cut_end end_of(const struct gpu_seen_rows &in, const row_view &v,
                             const struct scanned &s, const struct cut_wish &wish,
                             const struct cut_place &p, in_shared<unsigned> list, bool listed)
{
    struct cut_goal goal = goal_of(wish, s.total);
    struct descent d = {p.bin, p.above, p.within, p.mass, edge_of(p.bin), list, listed};
    if (p.bin < 0)
        return {{0, 0, s.seen}, HIDDEN, 0};
    descend(in, v, goal, &d);
    float w = __uint_as_float(d.prefix);
    int e = of_ties(d, goal, w), all = d.above + e;
    return {{all == s.seen ? 0 : w, 0, all}, e < d.within ? w : HIDDEN, e};
}

/* Block (query, query head): warp c has cut c. */
__global__ void __launch_bounds__(LANES, 4)
    cuts_kernel(struct gpu_seen_rows in, struct cut_wishes wishes, struct row_cut *cuts)
{
    SHARED(int, count, BINS);
    SHARED(unsigned, above, BINS);
    SHARED(unsigned, list, ROOM);
    SHARED(unsigned, marks, MARKS);
    SHARED(struct cut_place, place, CUTS);
    SHARED(int, list_at, CUTS);
    SHARED(struct cut_end, end, CUTS);
    row_view v = view_of(in, (int)blockIdx.y, (int)blockIdx.x);
    int c = warp_of_block();
    struct row_cut *out = cuts + ((size_t)v.g * (size_t)in.a.T + (size_t)v.r) * (size_t)wishes.n;
    if ((int)threadIdx.x < CUTS)
        place[threadIdx.x] = {-1, 0, 0, 0};
    struct own_bins own = count_row(in, v, count, above);
    struct scanned s = scan(own);
    find_bins(own, s, wishes, place);
    __syncthreads();
    if (c == 0)
        place_lists(wishes.n, place, list_at, count, marks);
    __syncthreads();
    each_weight(in, v, 0, v.n, (int)threadIdx.x, LANES, [&](unsigned bits) {
        int b = bin_of(bits);
        if (marks[b / 32] >> b % 32 & 1)
            list[(size_t)atomicAdd(&count[b], 1)] = bits;
    });
    __syncthreads();
    if (c < wishes.n) {
        int at = list_at[c];
        struct cut_end mine = end_of(in, v, s, wishes.of[c], place[c],
                                     list + (size_t)(at < ROOM ? at : 0), at < ROOM);
        if (lane_of_warp() == 0)
            end[c] = mine;
    }
    __syncthreads();
    for (int k = 0; k < wishes.n; k++) {
        struct cut_end e = end[k];
        if (e.tied >= 0)
            e.cut.first_tie = tie_place(in, v, e.tied, e.needed);
        if (threadIdx.x == 0)
            out[k] = e.cut;
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
