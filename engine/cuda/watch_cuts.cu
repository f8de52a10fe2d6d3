/* watch_cuts.cu - selected sets of rows of attention weights: the K largest, or the largest with a
 * given fraction of the mass.
 *
 * A block has a row and divides its weights into PARTS by size, with about equal numbers of
 * weights. A sample of the row determines the boundaries of the parts. The sample is counted in
 * BINS ranges of values: 64 for each power of two down to 2^-27, then 16 for each down to 2^-63.
 * Then the block reads the row twice. In the first pass each lane counts its weights and sums their
 * mass in integer units, part by part, in separate cells, so that lanes do not wait for each other.
 * The sums over all lanes give the part of each cut. In the second pass the weights of these parts,
 * some per cent of a row, are gathered. A warp per cut then searches them bit by bit. Counts and
 * masses are integers, so the result does not depend on the order of lanes or on the sample. */
#include <string.h>

#include "engine/cuda/tensor.cuh"
#include "engine/cuda/watch.cuh"

enum {
    LANES = 128,
    WARPS = LANES / WARP,
    EXACT = 100, /* exponent of 2^-27; from there on weights are multiples of the mass unit */
    FINE = 17,   /* bits of a weight below its bin number, from 2^-27 on */
    COARSE = 19, /* bits of a weight below its bin number, under 2^-27 */
    OWN = 18,    /* bins of a lane */
    BINS = LANES * OWN,
    EDGE = BINS - 1 - 27 * 64, /* the bin that begins at 2^-27; the last one has the weight 1 */
    PARTS = 32,
    TOP_PARTS = 12,           /* of the largest eighth, where cuts are close together */
    COUNT_BIT = 52,           /* a lane's cell: a mass below 4, and a count from this bit on */
    ROOM = 2 * PARTS * LANES, /* words: cells of all lanes, or gathered weights */
    HIGH = ROOM / 2,          /* start of the upper words of cells */
    PIECE = 32,               /* adjacent weights of a sample */
    APART = 8,                /* one of APART pieces is sampled */
    LONG = 2048,              /* in rows of at least this many weights */
    BATCH = 4,                /* groups of four that a lane loads at once */
    CUTS = GPU_MAX_CUTS,
};

/* A requested cut: the `most` largest, or if most is 0, the largest with tau of the mass. */
struct cut_wish {
    int most;
    double tau;
};
struct cut_wishes {
    struct cut_wish of[CUTS];
    int n;
    bool masses; /* some cut depends on the mass */
};

/* The target of a cut: a count, or a mass. */
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

/* Returns the bin of a weight; weights below 2^-63 are in bin 0. */
DEVICE int bin_of(unsigned bits)
{
    int fine = (int)(bits >> FINE) - (EXACT << (23 - FINE));
    int coarse = (int)(bits >> COARSE) - (EXACT << (23 - COARSE)) + EDGE;
    if (fine >= 0)
        return fine + EDGE;
    return coarse > 0 ? coarse : 0;
}

/* Returns the units of a weight, as mass_units. */
DEVICE unsigned long long units_of(unsigned bits)
{
    int shift = (int)(bits >> 23) - EXACT;
    if (shift >= 0)
        return (unsigned long long)((bits & 0x7fffff) | 0x800000) << shift;
    return (unsigned)rintf(__uint_as_float(bits) * 0x1p50f);
}

/* Returns the mask of the four slots from i on that a row sees, limited to slots below `to`. */
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

/* Loads four weights from slot i on. */
DEVICE void four_weights(const row_view &v, int i, float p[FOUR])
{
    float4 w = *(const float4 *)(const void *)(v.p + i);
    p[0] = w.x;
    p[1] = w.y;
    p[2] = w.z;
    p[3] = w.w;
}

/* MANY weights of a lane; `seen` is the mask of visible ones. Weight k is at slot first + k / FOUR
 * * apart + k % FOUR. */
enum { MANY = BATCH * FOUR };
struct some_weights {
    unsigned bits[MANY], seen;
    int first, apart;
};

/* Calls f(weights) for the lane's part of the weights of a row. */
template <class F>
DEVICE void each_batch(const struct gpu_seen_rows &in, const row_view &v, int lane, int lanes, F f)
{
    int step = lanes * FOUR;
    bool plain = !in.a.cache.until && !in.a.page;
    for (int i = lane * FOUR; i < v.n; i += BATCH * step) {
        float p[BATCH][FOUR];
        struct some_weights x;
        x.seen = 0;
        x.first = i;
        x.apart = step;
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            int at = i + j * step, left = at < v.n ? v.n - at : 0;
            four_weights(v, left > 0 ? at : i, p[j]);
            x.seen |= ((1u << (left < FOUR ? left : FOUR)) - 1) << (j * FOUR);
        }
#pragma unroll 1
        for (int j = 0; j < BATCH && !plain; j++)
            if (i + j * step < v.n)
                x.seen &= ~(15u << (j * FOUR)) | four_seen(in, v, i + j * step, v.n) << (j * FOUR);
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            x.bits[k] = __float_as_uint(p[k / FOUR][k % FOUR]);
            if (!(p[k / FOUR][k % FOUR] >= 0))
                x.seen &= ~(1u << k);
        }
        f(x);
    }
}

/* Calls f(slot, weight) for each visible weight. */
template <class F>
DEVICE void each_weight(const struct gpu_seen_rows &in, const row_view &v, int lane, int lanes, F f)
{
    each_batch(in, v, lane, lanes, [&](const struct some_weights &x) {
#pragma unroll
        for (int k = 0; k < MANY; k++)
            if (x.seen >> k & 1)
                f(x.first + k / FOUR * x.apart + k % FOUR, x.bits[k]);
    });
}

/* Returns the sum over the lanes before this one; *ret_all: the sum over all lanes. */
DEVICE int sum_before(int mine, int *ret_all)
{
    SHARED(int, part, WARPS);
    int sum = mine, lane = lane_of_warp(), before = 0, all = 0;
    for (int d = 1; d < WARP; d *= 2) {
        int x = __shfl_up_sync(ALL_LANES, sum, (unsigned)d);
        sum += lane >= d ? x : 0;
    }
    if (lane == WARP - 1)
        part[warp_of_block()] = sum;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        int x = part[w];
        before += w < warp_of_block() ? x : 0;
        all += x;
    }
    *ret_all = all;
    return before + sum - mine;
}

/* Counts the sample of a row by bins. */
DEVICE void count_sample(const struct gpu_seen_rows &in, const row_view &v,
                         in_shared<unsigned> count)
{
    int apart = v.n >= LONG ? APART : 1, id = (int)threadIdx.x;
    for (int b = id; b < BINS; b += LANES)
        count[b] = 0;
    __syncthreads();
    for (int k = id; k / (PIECE / FOUR) * apart * PIECE < v.n; k += LANES) {
        int i = k / (PIECE / FOUR) * apart * PIECE + k % (PIECE / FOUR) * FOUR;
        float p[FOUR];
        if (i >= v.n)
            continue;
        four_weights(v, i, p);
        unsigned seen = four_seen(in, v, i, v.n);
#pragma unroll
        for (int j = 0; j < FOUR; j++)
            if (seen >> j & 1 && p[j] >= 0)
                atomicAdd(&count[bin_of(__float_as_uint(p[j]))], 1u);
    }
    __syncthreads();
}

/* Returns the part of a bin from the number of larger weights in the sample, with which it
 * rises. */
DEVICE int part_of(int larger, float one)
{
    float share = (float)larger * one; /* fraction of the sample */
    float part = share < 0.125f ? share * 8 * TOP_PARTS
                                : TOP_PARTS + (share - 0.125f) * ((PARTS - TOP_PARTS) / 0.875f);
    return part < PARTS ? (int)part : PARTS - 1;
}

/* Sets the parts of all bins, falling with the bin. Synchronises. */
DEVICE void find_parts(in_shared<unsigned> count, in_shared<unsigned char> part)
{
    int first = BINS - 1 - (int)threadIdx.x * OWN, mine = 0, all; /* the largest bin of the lane */
    for (int k = 0; k < OWN; k++)
        mine += (int)count[first - k];
    int larger = sum_before(mine, &all);
    float one = 1 / (float)(all > 0 ? all : 1);
    for (int k = 0; k < OWN; k++) {
        part[first - k] = (unsigned char)part_of(larger, one);
        larger += (int)count[first - k];
    }
}

/* Sums the row in separate cells of each lane. */
DEVICE void count_row(const struct gpu_seen_rows &in, const row_view &v, bool masses,
                      in_shared<unsigned char> part, in_shared<unsigned> cells)
{
    int id = (int)threadIdx.x;
    for (int k = 0; k < PARTS; k++) {
        cells[k * LANES + id] = 0;
        cells[HIGH + k * LANES + id] = 0;
    }
    each_batch(in, v, id, LANES, [&](const struct some_weights &x) {
        int at[MANY];
#pragma unroll
        for (int k = 0; k < MANY; k++)
            at[k] = x.seen >> k & 1 ? (int)part[bin_of(x.bits[k])] * LANES + id : id;
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            unsigned long long sum = (unsigned long long)cells[HIGH + at[k]] << 32 | cells[at[k]];
            unsigned long long more = 1ull << COUNT_BIT;
            if (masses)
                more += units_of(x.bits[k]);
            sum += x.seen >> k & 1 ? more : 0;
            cells[at[k]] = (unsigned)sum;
            cells[HIGH + at[k]] = (unsigned)(sum >> 32);
        }
    });
}

/* Count and mass of a part, of the preceding parts, or of all parts. */
struct part_sum {
    int count;
    long long mass;
};

/* Four lanes sum the cells of a part. */
DEVICE void sum_parts(in_shared<unsigned> cells, in_shared<struct part_sum> sums)
{
    int k = (int)threadIdx.x / FOUR, quarter = (int)threadIdx.x % FOUR;
    struct part_sum y = {0, 0};
    for (int i = 0; i < LANES / FOUR; i++) {
        int at = k * LANES + quarter + (i + k) % (LANES / FOUR) * FOUR; /* avoids bank conflicts */
        unsigned long long sum = (unsigned long long)cells[HIGH + at] << 32 | cells[at];
        y.count += (int)(sum >> COUNT_BIT);
        y.mass += (long long)(sum & ((1ull << COUNT_BIT) - 1));
    }
#pragma unroll
    for (int turn = 1; turn < FOUR; turn *= 2) {
        y.count += __shfl_xor_sync(ALL_LANES, y.count, turn);
        y.mass += __shfl_xor_sync(ALL_LANES, y.mass, turn);
    }
    if (quarter == 0)
        sums[k] = y;
}

/* Position of a cut: weights larger than its part, size of the part, and offset of the part in the
 * list (ROOM if it does not fit). */
struct cut_place {
    int part, above, within; /* part -1: the full row */
    long long mass;          /* mass of the `above` weights */
    int at, like;            /* like: the first cut of the same part */
};

/* Totals of a row. */
struct row_sums {
    struct part_sum all;
    unsigned wanted; /* mask of the parts to gather */
};

/* A warp finds the positions of cuts; next: list offset of the first weight of a part. */
DEVICE struct row_sums find_places(const struct cut_wishes &wishes, in_shared<struct part_sum> sums,
                                   in_shared<struct cut_place> place, in_shared<int> next)
{
    int lane = lane_of_warp(), used = 0;
    struct part_sum own = sums[lane], upto = own;
    struct row_sums s = {{0, 0}, 0};
    for (int d = 1; d < WARP; d *= 2) {
        int count = __shfl_up_sync(ALL_LANES, upto.count, (unsigned)d);
        long long mass = __shfl_up_sync(ALL_LANES, upto.mass, (unsigned)d);
        upto.count += lane >= d ? count : 0;
        upto.mass += lane >= d ? mass : 0;
    }
    s.all = {__shfl_sync(ALL_LANES, upto.count, WARP - 1),
             __shfl_sync(ALL_LANES, upto.mass, WARP - 1)};
    for (int c = 0; c < wishes.n; c++) {
        struct cut_goal goal = goal_of(wishes.of[c], s.all.mass);
        bool whole = goal.count > 0 ? goal.count >= s.all.count : s.all.mass == 0;
        bool here = own.count > 0 && reached(goal, upto.count, upto.mass);
        unsigned from = __ballot_sync(ALL_LANES, here);
        int part = whole || !from ? -1 : __ffs((int)from) - 1;
        int within = part < 0 ? 0 : __shfl_sync(ALL_LANES, own.count, part);
        bool fits = part >= 0 && used + within <= ROOM;
        if (lane == (part < 0 ? 0 : part)) {
            bool first = fits && !(s.wanted >> lane & 1);
            place[c] = {part,
                        upto.count - own.count,
                        within,
                        upto.mass - own.mass,
                        fits ? used : ROOM,
                        first ? c : -1};
            if (first)
                next[part] = used;
        }
        used += fits ? within : 0;
        s.wanted |= fits ? 1u << part : 0;
    }
    return s;
}

/* Gathers the weights of the wanted parts. */
DEVICE void gather(const struct gpu_seen_rows &in, const row_view &v, unsigned wanted,
                   in_shared<unsigned char> part, in_shared<int> next, in_shared<unsigned> list)
{
    each_batch(in, v, (int)threadIdx.x, LANES, [&](const struct some_weights &x) {
        int to[MANY];
        unsigned hits = 0;
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            to[k] = x.seen >> k & 1 ? (int)part[bin_of(x.bits[k])] : 0;
            hits |= (x.seen >> k & wanted >> to[k] & 1) << k;
        }
#pragma unroll
        for (int k = 0; k < MANY; k++)
            if (hits >> k & 1)
                to[k] = atomicAdd(&next[to[k]], 1);
#pragma unroll
        for (int k = 0; k < MANY; k++)
            if (hits >> k & 1)
                list[to[k]] = x.bits[k];
    });
}

/* A warp copies the list of a cut from the first cut of the same part. */
DEVICE void copy_list(int c, in_shared<struct cut_place> place, in_shared<unsigned> list)
{
    struct cut_place p = place[c];
    if (p.part < 0 || p.at == ROOM || p.like == c)
        return;
    int from = 0;
    while (((struct cut_place)place[from]).part != p.part)
        from++;
    int at = ((struct cut_place)place[from]).at;
    for (int i = lane_of_warp(); i < p.within; i += WARP)
        list[p.at + i] = list[at + i];
}

/* Sums the count and mass of a set of weights over the lanes of a warp. */
DEVICE struct part_sum sum_of_warp(struct part_sum y, bool masses)
{
    y.count = (int)__reduce_add_sync(ALL_LANES, (unsigned)y.count);
    if (masses)
        y.mass = warp_sum(y.mass);
    return y;
}

/* State of the search for the weight of a cut. */
struct descent {
    int above, within; /* number of larger weights; number of remaining weights */
    long long mass;    /* mass of the larger weights */
    unsigned bits;     /* bits of the weight */
};

/* Decides the highest bit in which the weights of the list differ, until all are equal. Weights
 * above or below the cut are removed from the list. */
DEVICE void descend(const struct cut_goal &goal, in_shared<unsigned> list, struct descent *d)
{
    int lane = lane_of_warp();
    bool masses = goal.count == 0;
    unsigned ones = 0, zeros = 0;
    for (int i = lane; i < d->within; i += WARP) {
        ones |= list[i];
        zeros |= ~list[i];
    }
    for (;;) {
        unsigned differ = __reduce_or_sync(ALL_LANES, ones) & __reduce_or_sync(ALL_LANES, zeros);
        if (!differ)
            break;
        int bit = 31 - __clz((int)differ), kept = 0;
        struct part_sum up = {0, 0};
        for (int i = lane; i < d->within; i += WARP) {
            unsigned x = list[i];
            up.count += (int)(x >> bit & 1);
            up.mass += masses && x >> bit & 1 ? (long long)units_of(x) : 0;
        }
        up = sum_of_warp(up, masses);
        unsigned side = reached(goal, d->above + up.count, d->mass + up.mass);
        ones = zeros = 0;
        for (int i = lane; i < d->within + lane; i += WARP) {
            unsigned x = i < d->within ? list[i] : 0;
            bool keep = i < d->within && (x >> bit & 1) == side;
            unsigned votes = __ballot_sync(ALL_LANES, keep);
            __syncwarp(); /* all lanes have read the data that is overwritten now */
            if (keep) {
                list[kept + __popc(votes & ((1u << lane) - 1))] = x;
                ones |= x;
                zeros |= ~x;
            }
            kept += __popc(votes);
            __syncwarp();
        }
        d->above += side ? 0 : up.count;
        d->mass += side ? 0 : up.mass;
        d->within = kept;
    }
    d->bits = list[0];
}

/* descend for a part without a list: it decides bit by bit and reads the part from the row. */
DEVICE void descend_row(const struct gpu_seen_rows &in, const row_view &v,
                        const struct cut_goal &goal, int k, in_shared<unsigned char> part,
                        struct descent *d)
{
    bool masses = goal.count == 0;
    auto from = [&](unsigned least) {
        struct part_sum y = {0, 0};
        each_weight(in, v, lane_of_warp(), WARP, [&](int, unsigned bits) {
            bool hit = bits >= least && part[bin_of(bits)] == k;
            y.count += hit;
            y.mass += hit && masses ? (long long)units_of(bits) : 0;
        });
        return sum_of_warp(y, masses);
    };
    d->bits = 0;
    for (int bit = 29; bit >= 0; bit--) {
        struct part_sum up = from(d->bits | 1u << bit);
        if (reached(goal, d->above + up.count, d->mass + up.mass))
            d->bits |= 1u << bit;
    }
    struct part_sum equal = from(d->bits), up = from(d->bits + 1);
    d->within = equal.count - up.count;
    d->above += up.count;
    d->mass += up.mass;
}

/* Returns how many of the entries with weight v the set needs. */
DEVICE int of_ties(const struct descent &d, const struct cut_goal &goal, float v)
{
    if (goal.count > 0)
        return goal.count - d.above;
    int e = 1;
    long long unit = mass_units(v);
    if (unit > 0) { /* start near the answer, then search */
        double left = (goal.mass - (double)d.mass) / (double)unit;
        e = left > 2 ? (int)left - 1 : 1;
    }
    while (e < d.within && !reached(goal, 0, d.mass + e * unit))
        e++;
    return e;
}

/* Returns the position of the e-th entry of weight w, counted from the newest. Few weights are
 * equal. If they do not fit in the list, the row is read repeatedly. */
DEVICE int tie_place(const struct gpu_seen_rows &in, const row_view &v, float w, int e,
                     in_shared<unsigned> list)
{
    SHARED(int, found, 1);
    __syncthreads(); /* all lanes have finished with the list and with `found` */
    if (threadIdx.x == 0)
        found[0] = 0;
    __syncthreads();
    each_weight(in, v, (int)threadIdx.x, LANES, [&](int slot, unsigned bits) {
        if (bits != __float_as_uint(w))
            return;
        int at = atomicAdd(&found[0], 1);
        if (at < ROOM)
            list[at] = (unsigned)position_at(v, slot);
    });
    __syncthreads();
    int n = found[0], lo = 0, hi = query_at(in.a, v.r); /* at least e of them are at lo or later */
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2, count = 0;
        for (int i = (int)threadIdx.x; n <= ROOM && i < n; i += LANES)
            count += (int)list[i] >= mid;
        for (int i = (int)threadIdx.x; n > ROOM && i < v.n; i += LANES)
            count += weight_at(in, v, i) == w && position_at(v, i) >= mid;
        if (block_sum(count) >= e)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Result of a cut. tied: the weight of ties of which it includes `needed`; HIDDEN if it includes
 * all. */
struct cut_end {
    struct row_cut cut;
    float tied;
    int needed;
};

/* A warp computes a cut from its position. */
DEVICE struct cut_end end_of(const struct gpu_seen_rows &in, const row_view &v,
                             const struct part_sum &all, const struct cut_wish &wish,
                             const struct cut_place &p, in_shared<unsigned char> part,
                             in_shared<unsigned> list)
{
    struct cut_goal goal = goal_of(wish, all.mass);
    struct descent d = {p.above, p.within, p.mass, 0};
    if (p.part < 0)
        return {{0, 0, all.count}, HIDDEN, 0};
    if (p.at < ROOM)
        descend(goal, list + (size_t)p.at, &d);
    else
        descend_row(in, v, goal, p.part, part, &d);
    float w = __uint_as_float(d.bits);
    int e = of_ties(d, goal, w), n = d.above + e;
    return {{n == all.count ? 0 : w, 0, n}, e < d.within ? w : HIDDEN, e};
}

/* Block (query, query head). */
__global__ void __launch_bounds__(LANES)
    cuts_kernel(struct gpu_seen_rows in, struct cut_wishes wishes, struct row_cut *cuts)
{
    SHARED(unsigned, room, ROOM);
    SHARED(unsigned char, part, BINS);
    SHARED(struct part_sum, sums, PARTS);
    SHARED(struct cut_place, place, CUTS);
    SHARED(struct cut_end, end, CUTS);
    SHARED(struct row_sums, known, 1);
    SHARED(int, next, PARTS);
    row_view v = view_of(in, (int)blockIdx.y, (int)blockIdx.x);
    struct row_cut *out = cuts + ((size_t)v.g * (size_t)in.a.T + (size_t)v.r) * (size_t)wishes.n;
    count_sample(in, v, room);
    find_parts(room, part);
    __syncthreads();
    count_row(in, v, wishes.masses, part, room);
    __syncthreads();
    sum_parts(room, sums);
    __syncthreads();
    if (warp_of_block() == 0) {
        struct row_sums s = find_places(wishes, sums, place, next);
        if (lane_of_warp() == 0)
            known[0] = s;
    }
    __syncthreads();
    struct row_sums s = known[0];
    gather(in, v, s.wanted, part, next, room);
    __syncthreads();
    for (int c = warp_of_block(); c < wishes.n; c += WARPS)
        copy_list(c, place, room);
    __syncthreads();
    for (int c = warp_of_block(); c < wishes.n; c += WARPS) {
        struct cut_end mine = end_of(in, v, s.all, wishes.of[c], place[c], part, room);
        if (lane_of_warp() == 0)
            end[c] = mine;
    }
    __syncthreads();
    for (int k = 0; k < wishes.n; k++) {
        struct cut_end e = end[k];
        if (e.tied >= 0)
            e.cut.first_tie = tie_place(in, v, e.tied, e.needed, room);
        if (threadIdx.x == 0)
            out[k] = e.cut;
    }
}

void gpu_row_cuts(struct gpu *g, const struct gpu_seen_rows *r, const struct gpu_criteria *c,
                  struct row_cut *cuts)
{
    struct gpu_seen_rows in = *r;
    struct cut_wishes w;
    memset(&w, 0, sizeof w); /* graphs compare padding bytes, too */
    w.n = c->n_top + c->n_tau;
    w.masses = c->n_tau > 0;
    for (int i = 0; i < c->n_top; i++)
        w.of[i].most = c->top_k[i];
    for (int i = 0; i < c->n_tau; i++)
        w.of[c->n_top + i].tau = c->tau[i];
    dim3 grid((unsigned)r->a.T, (unsigned)r->a.n_heads);
    LAUNCH(cuts_kernel, grid, LANES, 0, g, in, w, cuts);
}
