/* watch_useful.cu - fraction of a query's attention on useful entries, for several sets of entries.
 *
 * Sums in double are in rising position, one entry after another, as on the CPU. So a warp has a
 * row: it loads 32 entries at once and determines the sets of each. Then each lane has a separate
 * sum and adds the entries that belong to it. Sets of largest weights are nested. Their sums are
 * computed for the parts between them, and for the inside and the outside of every other set. */
#include "engine/cuda/watch.cuh"

enum {
    ROWS = 4, /* rows of a block */
    LANES = ROWS * WARP,
    PARTS = GPU_PREFIXES + 1, /* lanes from 0 on; then two lanes per fixed set, inside and
                               * outside */
    NEARS = 1 + GPU_MAX_FIXED,
    SORTERS = 256,
};

/* A row, and the requested sets. */
struct useful_row {
    row_view v;
    int32_t t;
    bool all;             /* it sees all entries */
    int n_fixed;          /* number of sets */
    const int32_t *order; /* slots by rising position; NULL: slot order */
    const uint32_t *plan; /* of the head; may be NULL */
    const float *log_beta;
};

/* Shared memory of a warp. */
struct useful_room {
    in_shared<struct row_cut> cut;  /* [GPU_PREFIXES] */
    in_shared<int> set;             /* [GPU_PREFIXES] sets by rising size */
    in_shared<float> limit;         /* [NEARS][GPU_NEAR] */
    in_shared<unsigned> count;      /* [NEARS][GPU_NEAR] */
    in_shared<double> weight, aged; /* [WARP] */
};

DEVICE useful_row useful_row_of(const struct gpu_seen_rows &in, const struct gpu_useful &x, int i)
{
    int g = i / in.a.T, per = in.a.n_heads / in.a.cache.heads;
    useful_row row;
    row.v = view_of(in, g, i % in.a.T);
    row.t = query_at(in.a, row.v.r);
    row.all = in.seen[i] > row.t;
    row.n_fixed = x.n_spans + (x.plan != nullptr);
    /* slots are positions if no entry was evicted */
    bool moved = row.v.pos && in.a.cache.n[row.v.h] <= query_at(in.a, in.a.T - 1);
    row.order = moved && x.order ? x.order + (size_t)row.v.h * (size_t)x.ld_order : nullptr;
    row.plan = x.plan;
    if (x.plan)
        row.plan += (size_t)((x.head + g) / x.plan_per) * (size_t)x.plan_tokens;
    row.log_beta = x.log_beta;
    if (x.log_beta)
        row.log_beta += (size_t)((x.head + g) / per) * (size_t)x.cap;
    return row;
}

/* Returns the mask of the fixed sets that contain the token at pos. */
DEVICE unsigned fixed_of(const struct gpu_useful &x, const useful_row &row, int32_t pos)
{
    unsigned sets = x.n_spans > 0 ? x.spans[pos] : 0;
    bool kept = row.plan && (pos >= x.plan_tokens || row.plan[pos] > (uint32_t)row.t);
    return sets | (unsigned)kept << x.n_spans;
}

/* Values of a row: the maximum weight of all and of each fixed set, HIDDEN if it is empty; the
 * number of entries with weight at least bar[j]. */
struct row_facts {
    float top[NEARS];
    int slack[GPU_SLACKS];
};

DEVICE row_facts facts_of(const struct gpu_seen_rows &in, const struct gpu_useful &x,
                          const useful_row &row, const float bar[GPU_SLACKS])
{
    row_facts f = {{HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN}, {0, 0, 0}};
#pragma unroll 4
    for (int slot = lane_of_warp(); slot < row.v.n; slot += WARP) {
        float w = weight_at(in, row.v, slot);
        unsigned sets = w >= 0 && row.all ? fixed_of(x, row, position_at(row.v, slot)) : 0;
        f.top[0] = fmaxf(f.top[0], w);
#pragma unroll
        for (int k = 0; k < GPU_MAX_FIXED; k++)
            f.top[1 + k] = fmaxf(f.top[1 + k], sets >> k & 1 ? w : HIDDEN);
#pragma unroll
        for (int j = 0; j < GPU_SLACKS; j++)
            f.slack[j] += w >= bar[j];
    }
#pragma unroll
    for (int k = 0; k < NEARS; k++)
        f.top[k] = warp_max(f.top[k]);
#pragma unroll
    for (int j = 0; j < GPU_SLACKS; j++)
        f.slack[j] = warp_sum(f.slack[j]);
    return f;
}

/* Sets all prefixes, and their order by size. */
DEVICE void order_cuts(const struct gpu_useful &x, const row_facts &f, const struct row_cut *given,
                       const float bar[GPU_SLACKS], const useful_room &to)
{
    int lane = lane_of_warp(), before = 0;
    struct row_cut c = given[lane < GPU_USEFUL_CUTS ? lane : 0];
#pragma unroll
    for (int j = 0; j < GPU_SLACKS; j++)
        if (lane == GPU_USEFUL_CUTS + j)
            c = {bar[j], 0, f.slack[j]};
    for (int k = 0; k < GPU_PREFIXES; k++) {
        int count = __shfl_sync(ALL_LANES, c.count, k);
        before += count < c.count || (count == c.count && k < lane);
    }
    if (lane < GPU_PREFIXES) {
        to.cut[lane] = c;
        to.set[before] = lane;
    }
#pragma unroll
    for (int k = 0; k < NEARS; k++)
        if (lane < GPU_NEAR) {
            bool none = f.top[k] < 0;
            to.limit[k * GPU_NEAR + lane] = none ? INFINITY
                                                 : not_under((double)f.top[k] * x.near[lane]);
            to.count[k * GPU_NEAR + lane] = 0;
        }
    __syncwarp();
}

/* Counts an entry at the first limit that it reaches; weights of 0 are not counted. */
DEVICE void count_near(const useful_room &to, int which, float w)
{
    int at = which * GPU_NEAR, k = 0;
    if (w < to.limit[at + GPU_NEAR - 1] || w == 0)
        return;
    while (w < to.limit[at + k])
        k++;
    atomicAdd(&to.count[at + k], 1u);
}

/* The entry of a lane; w is HIDDEN if there is no visible entry. */
struct useful_entry {
    float w;
    int32_t pos;
    unsigned sets; /* fixed sets that contain it */
};

DEVICE useful_entry entry_at(const struct gpu_seen_rows &in, const struct gpu_useful &x,
                             const useful_row &row, int i)
{
    useful_entry e = {HIDDEN, 0, 0};
    if (i >= row.v.n)
        return e;
    int slot = row.order ? row.order[i] : i;
    e.w = weight_at(in, row.v, slot);
    e.pos = position_at(row.v, slot);
    e.sets = fixed_of(x, row, e.pos);
    return e;
}

/* Returns the part of an entry: each prefix contains the preceding ones. */
DEVICE int part_of(const useful_room &from, const useful_entry &e)
{
    int part = GPU_PREFIXES;
#pragma unroll
    for (int j = 0; j < GPU_PREFIXES; j++)
        part -= in_cut(from.cut[j], e.w, e.pos);
    return part;
}

/* Returns the mask of the 32 entries that belong to this lane's sum. */
DEVICE unsigned own_entries(const useful_row &row, const useful_entry &e, int part)
{
    int lane = lane_of_warp();
    unsigned seen = __ballot_sync(ALL_LANES, e.w >= 0), own = 0;
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        unsigned here = __ballot_sync(ALL_LANES, part == j);
        own = lane == j ? here : own;
    }
    for (int k = 0; k < row.n_fixed; k++) {
        unsigned here = __ballot_sync(ALL_LANES, e.sets >> k & 1);
        own = lane == PARTS + 2 * k ? here : own;
        own = lane == PARTS + 2 * k + 1 ? ~here : own;
    }
    return own & seen;
}

/* Sums of w, of w beta^(t - i), and a number of entries. */
struct useful_sum {
    double w, aged;
    int n;
};

DEVICE void add_up(const useful_room &from, unsigned own, bool aged, useful_sum *s)
{
    s->n += __popc(own);
#pragma unroll
    for (int i = 0; i < WARP; i++)
        if (own >> i & 1)
            s->w += from.weight[i];
    for (int i = 0; aged && i < WARP; i++)
        if (own >> i & 1)
            s->aged += from.aged[i];
}

/* Returns the sum of this lane. */
DEVICE useful_sum sum_of(const struct gpu_seen_rows &in, const struct gpu_useful &x,
                         const useful_row &row, const useful_room &room)
{
    useful_sum s = {0, 0, 0};
    bool aged = row.log_beta && row.all;
    useful_entry next = entry_at(in, x, row, lane_of_warp());
    for (int first = 0; first < row.v.n; first += WARP) {
        useful_entry e = next; /* the next entry is loaded during this sum */
        next = entry_at(in, x, row, first + WARP + lane_of_warp());
        room.weight[lane_of_warp()] = (double)e.w;
        if (aged && e.w >= 0) {
            float age = (float)(row.t - e.pos);
            float left = age > 0 ? expf(age * row.log_beta[e.pos]) : 1;
            room.aged[lane_of_warp()] = (double)e.w * (double)left;
        }
        if (row.all && e.w >= 0) {
            count_near(room, 0, e.w);
            for (int k = 0; k < row.n_fixed; k++)
                if (!(e.sets >> k & 1))
                    count_near(room, 1 + k, e.w);
        }
        unsigned own = own_entries(row, e, part_of(room, e));
        __syncwarp();
        add_up(room, own, aged, &s);
        __syncwarp();
    }
    return s;
}

/* Sums inside and outside the set of this lane: the set at place `lane` of the order of prefixes,
 * then the fixed sets. all: sum over the full row. */
struct useful_share {
    useful_sum in, out;
    double all;
};

/* Returns the sum of another lane; lane numbers are modulo a warp. */
DEVICE useful_sum sum_at(const useful_sum &own, int lane)
{
    useful_sum s;
    s.w = __shfl_sync(ALL_LANES, own.w, lane & (WARP - 1));
    s.aged = __shfl_sync(ALL_LANES, own.aged, lane & (WARP - 1));
    s.n = __shfl_sync(ALL_LANES, own.n, lane & (WARP - 1));
    return s;
}

DEVICE useful_share share_of(const useful_sum &own)
{
    useful_share y = {{0, 0, 0}, {0, 0, 0}, 0};
    int lane = lane_of_warp(), at = PARTS + 2 * (lane - GPU_PREFIXES);
    for (int j = 0; j < PARTS; j++) {
        double w = __shfl_sync(ALL_LANES, own.w, j), aged = __shfl_sync(ALL_LANES, own.aged, j);
        int n = __shfl_sync(ALL_LANES, own.n, j);
        bool in = j <= lane;
        y.all += w;
        y.in.w += in ? w : 0;
        y.in.aged += in ? aged : 0;
        y.in.n += in ? n : 0;
        y.out.w += in ? 0 : w;
        y.out.aged += in ? 0 : aged;
    }
    useful_sum in = sum_at(own, at), out = sum_at(own, at + 1);
    if (lane >= GPU_PREFIXES) {
        y.in = in;
        y.out = out;
    }
    return y;
}

DEVICE void put_real(float *column, size_t at, double v)
{
    if (column)
        column[at] = (float)v;
}

/* Stores the results of a set for a row that sees all entries. */
DEVICE void put_set(const struct gpu_useful &x, int set, size_t at, const useful_share &y)
{
    const struct gpu_useful_columns *to = x.columns;
    put_step(to->size[set], x.wide, at, (uint32_t)y.in.n);
    if (y.in.n == 0)
        return;
    put_real(to->useful[set], at, y.in.w / (y.in.w + y.out.w));
    put_real(to->dilution[set], at, y.out.w / (y.in.w + y.out.w));
    put_real(to->kept[set], at, y.in.w / (y.in.w + y.out.w));
    put_real(to->aged_kept[set], at, y.in.aged / (y.in.aged + y.out.aged));
    put_real(to->aged_in[set], at, y.in.aged / y.in.w);
    put_real(to->aged_out[set], at, y.out.aged / y.out.w);
}

/* Stores the numbers of entries near the maximum; no value for a set without entries. */
DEVICE void put_near(const struct gpu_useful &x, const useful_row &row, size_t at,
                     const useful_room &from)
{
    int lane = lane_of_warp();
    for (int k = 0; k <= row.n_fixed; k++) {
        uint32_t count = 0;
        if (lane >= GPU_NEAR || from.limit[k * GPU_NEAR] == INFINITY)
            continue;
        for (int j = 0; j <= lane; j++)
            count += from.count[k * GPU_NEAR + j];
        put_step(x.columns->near[k][lane], x.wide, at, count);
    }
}

DEVICE void put_row(const struct gpu_useful &x, const useful_row &row, const useful_share &y,
                    const useful_room &room)
{
    int lane = lane_of_warp(), set = lane < GPU_PREFIXES ? (int)room.set[lane] : lane;
    size_t at = (size_t)(x.head + row.v.g) * (size_t)x.cap + (size_t)row.t;
    bool span = lane >= GPU_PREFIXES && lane < GPU_PREFIXES + x.n_spans;
    if (row.all)
        put_near(x, row, at, room);
    if (lane >= GPU_PREFIXES + row.n_fixed)
        return;
    if (row.all)
        put_set(x, set, at, y);
    else if (!span || x.first[lane - GPU_PREFIXES] <= row.t)
        put_real(x.columns->kept[set], at, y.in.w / y.all);
}

/* A warp has row i of all rows. */
__global__ void __launch_bounds__(LANES)
    useful_kernel(struct gpu_seen_rows in, const struct row_cut *cuts, GIVEN struct gpu_useful x)
{
    SHARED(struct row_cut, cut, ROWS * GPU_PREFIXES);
    SHARED(int, set, ROWS *GPU_PREFIXES);
    SHARED(float, limit, ROWS *NEARS *GPU_NEAR);
    SHARED(unsigned, count, ROWS *NEARS *GPU_NEAR);
    SHARED(double, weight, ROWS *WARP);
    SHARED(double, aged, ROWS *WARP);
    int warp = warp_of_block(), i = (int)blockIdx.x * ROWS + warp, n_near = NEARS * GPU_NEAR;
    if (i >= in.a.n_heads * in.a.T)
        return;
    useful_row row = useful_row_of(in, x, i);
    if (!row.all && !x.order)
        return;
    useful_room room = {cut + warp * GPU_PREFIXES, set + warp * GPU_PREFIXES, limit + warp * n_near,
                        count + warp * n_near,     weight + warp * WARP,      aged + warp * WARP};
    const struct row_cut *given = cuts + (size_t)i * GPU_USEFUL_CUTS;
    float bar[GPU_SLACKS];
    for (int j = 0; j < GPU_SLACKS; j++)
        bar[j] = not_under((double)given[0].threshold * x.slack[j]);
    row_facts facts = facts_of(in, x, row, bar);
    order_cuts(x, facts, given, bar, room);
    useful_sum own = sum_of(in, x, row, room);
    put_row(x, row, share_of(own), room);
}

/* Orders the slots of a KV head by position, after evictions. A block has a KV head. Each position
 * is a bit, and the rank of an entry is the number of lower bits. */
__global__ void __launch_bounds__(SORTERS)
    order_kernel(struct gpu_attention a, int32_t *order, int ld_order, uint32_t *bits, int ld_bits)
{
    SHARED(int, sum, SORTERS);
    int h = (int)blockIdx.x, n = a.cache.n[h], t = query_at(a, a.T - 1), id = (int)threadIdx.x;
    int words = t / WARP + 1, each = (words + SORTERS - 1) / SORTERS, before = 0, mine = 0;
    const int32_t *pos = a.cache.pos + (size_t)h * (size_t)a.cache.ld_slot;
    uint32_t *there = bits + (size_t)h * 2 * (size_t)ld_bits, *less = there + ld_bits;
    if (n > t)
        return;
    for (int w = id; w < words; w += SORTERS)
        there[w] = 0;
    __syncthreads();
    for (int i = id; i < n; i += SORTERS)
        atomicAdd(&there[pos[i] / WARP], 1u << pos[i] % WARP);
    __syncthreads();
    for (int w = id * each; w < (id + 1) * each && w < words; w++)
        mine += __popc(there[w]);
    sum[id] = mine;
    __syncthreads();
    for (int k = 0; k < id; k++)
        before += sum[k];
    for (int w = id * each; w < (id + 1) * each && w < words; w++) {
        less[w] = (uint32_t)before;
        before += __popc(there[w]);
    }
    __syncthreads();
    for (int i = id; i < n; i += SORTERS) {
        int w = pos[i] / WARP;
        int rank = (int)less[w] + __popc(there[w] & ((1u << pos[i] % WARP) - 1));
        order[(size_t)h * (size_t)ld_order + (size_t)rank] = i;
    }
}

void gpu_watch_useful(struct gpu *g, const struct gpu_seen_rows *r, const struct row_cut *cuts,
                      const struct gpu_useful *x)
{
    struct gpu_seen_rows in = *r;
    struct gpu_useful how = *x;
    unsigned heads = (unsigned)r->a.cache.heads;
    if (r->a.cache.pos && x->order)
        LAUNCH(order_kernel, heads, SORTERS, 0, g, in.a, how.order, how.ld_order, how.bits,
               how.ld_bits);
    LAUNCH(useful_kernel, blocks_for((size_t)r->a.n_heads * (size_t)r->a.T, ROWS), LANES, 0, g, in,
           cuts, how);
}

/* Lane (token and head). */
__global__ void __launch_bounds__(SORTERS)
    log_beta_kernel(const float *numbers, int heads, int T, int pos0, float *log_beta, int cap)
{
    int i = (int)(blockIdx.x * SORTERS + threadIdx.x);
    if (i < T * heads)
        log_beta[(size_t)(i % heads) * (size_t)cap + (size_t)(pos0 + i / heads)] = numbers[i];
}

void gpu_watch_numbers(struct gpu *g, const float *numbers, int heads, int T, int pos0,
                       float *log_beta, int cap)
{
    LAUNCH(log_beta_kernel, blocks_for((size_t)T * (size_t)heads, SORTERS), SORTERS, 0, g, numbers,
           heads, T, pos0, log_beta, cap);
}
