/* attention_step.cu - attention of one token. The pages of a KV head are divided between blocks.
 * Each block serves up to MOST_ROWS of the query heads (rows) and reads its pages once. The last
 * block of a KV head to finish combines the partial results.
 *
 * A block processes its pages as a sequence of tiles: the keys of some channels or the values of
 * some slots. Copies to shared memory run STAGES tiles ahead. The lanes are divided into sets of
 * QUERIES rows. For keys a lane has four slots of a strided subset of the channels; for values it
 * has four channels of a strided subset of the slots. */
#include "engine/cuda/step.cuh"

size_t gpu_step_work(const struct gpu_attention *a)
{
    struct cut c = cut_of(a);
    size_t state = 2 * (size_t)a->n_heads * (size_t)c.splits;
    return at_values(a->cache.heads, c.passes) + at_state(a->n_heads, c.splits, a->cache.D)
           + (state + FOUR - 1) / FOUR * FOUR; /* aligns a following array */
}

/* Returns true if a row of the block reads an entry of the page. */
DEVICE bool page_read(const struct gpu_attention &a, const struct place &b, int page)
{
    int per = a.page ? a.page[b.h] : 0;
    if (per == 0)
        return true;
    int from = page * PAGE_SLOTS, to = from + slots_left(b, page) - 1;
    for (int r = 0; r < b.n_rows; r++)
        for (int i = from / per; i <= to / per; i++)
            if (a.chosen[(size_t)(b.g0 + r) * (size_t)a.ld_chosen + (size_t)i])
                return true;
    return false;
}

/* Lists pages split, split + splits, ... that a row reads, and their pool numbers. Each lane of the
 * warp checks one page. It reads the number before it knows if the page exists. */
DEVICE void list_pages(const struct gpu_attention &a, const struct place &b,
                       in_shared<int32_t> list, in_shared<int32_t> n_listed)
{
    const int32_t *table = a.cache.table + (size_t)b.h * (size_t)a.cache.ld_table;
    int lane = lane_of_warp(), pages = (b.n + PAGE_SLOTS - 1) / PAGE_SLOTS, n = 0;
    for (int first = b.split;; first += WARP * b.c.splits) {
        int page = first + lane * b.c.splits;
        int32_t lies = page < a.cache.ld_table ? table[page] : 0;
        if (first >= pages)
            break;
        bool read = page < pages && page_read(a, b, page);
        unsigned all = __ballot_sync(ALL_LANES, read);
        int at = n + __popc(all & ((1u << lane) - 1));
        if (read) {
            list[2 * at] = page;
            list[2 * at + 1] = lies;
        }
        n += __popc(all);
    }
    if (lane == 0)
        n_listed[0] = n;
}

/* Prefetches the first page of a block if all pages are read, before the queries are available. */
template <class KV> DEVICE void ask_for_page(const struct gpu_attention &a, const struct place &b)
{
    size_t bytes = 2 * PAGE_SLOTS * (size_t)b.D * sizeof(KV);
    if (b.split * PAGE_SLOTS >= b.n)
        return;
    const char *page = (const char *)page_keys<KV>(a.cache, b.h, b.split);
    for (size_t at = threadIdx.x * LINE; at < bytes; at += LANES * LINE)
        ask_for_line(page + at);
}

/* Loads the queries of a set in groups of four, padded with zeros. The weights of the padding are
 * also set to zero and stay zero. */
template <int QUERIES>
DEVICE void load_queries(const struct gpu_attention &a, const struct place &b, in_shared<float> q,
                         in_shared<float> p)
{
    for (int i = warp_of_block(); i < b.c.sets * FOUR; i += WARPS) {
        int set = i / FOUR, j = i % FOUR, r = set * QUERIES + j;
        bool there = j < QUERIES && r < b.n_rows;
        for (int d = lane_of_warp(); d < b.D; d += WARP)
            q[(set * b.D + d) * FOUR + j] = there ? a.q[(b.g0 + r) * b.D + d] : 0;
    }
    for (int i = (int)threadIdx.x; i < b.c.sets * FOUR * (PAGE_SLOTS + 1); i += LANES)
        p[i] = 0;
}

/* Layout of a block's shared memory. */
struct memory {
    in_shared<uint4> tiles; /* [STAGES][PIECES] */
    in_shared<float> part, p, fade, q;
    in_shared<int32_t> list;
    int n_pages; /* length of the list */
};

/* State of the tiles: the current one, and the ones that are being copied. */
struct supply {
    int now, begun;
    int page, part; /* next tile: its page in the list, and its index within the page */
};

template <class KV>
DEVICE void begin_tile(const struct gpu_attention &a, const struct place &b, const struct memory &m,
                       const struct supply &s)
{
    in_shared<uint4> to = m.tiles + s.begun % STAGES * PIECES;
    size_t row = PAGE_SLOTS * sizeof(KV), page = (size_t)m.list[2 * s.page + 1] * 2 * row;
    const char *from = (const char *)a.cache.pool + page * (size_t)b.D;
    int bytes;
    if (s.part < b.c.key_tiles) {
        int channels = channels_of(sizeof(KV)), c = s.part * channels, left = b.D - c;
        from += (size_t)c * row;
        bytes = (left < channels ? left : channels) * (int)row;
    } else {
        int slot = (s.part - b.c.key_tiles) * b.c.slots;
        int left = slots_left(b, m.list[2 * s.page]) - slot;
        row = (size_t)b.D * sizeof(KV);
        from += (size_t)(PAGE_SLOTS + slot) * row;
        bytes = (left < b.c.slots ? left : b.c.slots) * (int)row;
    }
    int id = (int)threadIdx.x;
    to = to + id;
    from += (size_t)id * 16;
#pragma unroll
    for (int i = 0; i < PIECES; i += LANES)
        if ((id + i) * 16 < bytes)
            copy_piece(to + i, from + (size_t)i * 16, true);
}

/* Starts copies into the places of tiles below `free`, which all lanes have used. */
template <class KV>
DEVICE void supply_tiles(const struct gpu_attention &a, const struct place &b,
                         const struct memory &m, struct supply &s, int free)
{
    while (s.begun < free + STAGES) {
        if (s.page < m.n_pages)
            begin_tile<KV>(a, b, m, s);
        copies_group();
        s.begun++;
        if (++s.part == b.c.tiles) {
            s.part = 0;
            s.page++;
        }
    }
}

/* Waits until the current tile is available to all lanes. */
template <class KV>
DEVICE in_shared<uint4> next_tile(const struct gpu_attention &a, const struct place &b,
                                  const struct memory &m, struct supply &s)
{
    if (s.begun - s.now > 2)
        copies_wait<2>();
    else if (s.begun - s.now > 1)
        copies_wait<1>();
    else
        copies_wait<0>();
    __syncthreads();
    supply_tiles<KV>(a, b, m, s, s.now);
    return m.tiles + s.now++ % STAGES * PIECES;
}

/* Loads numbers at, at + 1, ... of a row; zeros from the n-th on. */
template <class KV> DEVICE void some_of(in_shared<uint4> tile, unsigned at, int n, float *x)
{
    for (unsigned c = 0; c < FOUR; c++) {
        float y[FOUR] = {0};
        if ((int)c < n)
            four_of(tile, (at + c) / FOUR, y, KV());
        x[c] = y[0];
        for (unsigned k = 1; k < FOUR; k++)
            x[c] = (at + c) % FOUR == k ? y[k] : x[c];
    }
}

template <int QUERIES> DEVICE void add_products(const float *w, const float *x, float (*sum)[FOUR])
{
#pragma unroll
    for (int j = 0; j < QUERIES; j++)
#pragma unroll
        for (int i = 0; i < FOUR; i++)
            sum[j][i] = fmaf(w[j], x[i], sum[j][i]);
}

enum { AT_ONCE = 2 }; /* iterations with numbers that are loaded before they are used */

/* sum += products of the set's queries with four slots of the lane's channels of a tile. */
template <class KV, int QUERIES>
DEVICE void key_products(const struct place &b, in_shared<uint4> tile, in_shared<float> q,
                         int channels, float (*sum)[FOUR])
{
    unsigned step = (unsigned)b.c.lanes / KEY_LANES, c = (unsigned)b.lane / KEY_LANES;
    unsigned at = (unsigned)b.lane; /* a channel has KEY_LANES groups of four */
    for (; c + (AT_ONCE - 1) * step < (unsigned)channels; c += AT_ONCE * step) {
        float k[AT_ONCE][FOUR], w[AT_ONCE][FOUR];
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; i++) {
            four_of(tile, at + i * step * KEY_LANES, k[i], KV());
            shared_four(q, (c + i * step) * FOUR, w[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            add_products<QUERIES>(w[i], k[i], sum);
        at += AT_ONCE * step * KEY_LANES;
    }
#pragma unroll 1
    for (; c < (unsigned)channels; c += step) {
        float k[FOUR], w[FOUR];
        four_of(tile, at, k, KV());
        shared_four(q, c * FOUR, w);
        add_products<QUERIES>(w, k, sum);
        at += step * KEY_LANES;
    }
}

/* out += weights times values of the lane's slots of a tile. */
template <class KV, int QUERIES>
DEVICE void value_sums(const struct place &b, in_shared<uint4> tile, in_shared<float> p, int slots,
                       float (*out)[FOUR])
{
    bool whole = b.D % FOUR == 0; /* rows are aligned to groups of four */
    unsigned step = (unsigned)b.c.step, fours = (unsigned)b.c.fours, D = (unsigned)b.D;
    unsigned end = b.slot < b.c.step && slots > 0 ? (unsigned)slots : 0;
    unsigned s = (unsigned)b.slot, at = (unsigned)b.lane;
    for (; whole && s + (AT_ONCE - 1) * step < end; s += AT_ONCE * step) {
        float v[AT_ONCE][FOUR], w[AT_ONCE][FOUR];
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; i++) {
            four_of(tile, at + i * step * fours, v[i], KV());
            shared_four(p, (s + i * step) * FOUR, w[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            add_products<QUERIES>(w[i], v[i], out);
        at += AT_ONCE * step * fours;
    }
#pragma unroll 1
    for (; s < end; s += step) {
        float v[FOUR], w[FOUR];
        if (whole)
            four_of(tile, at, v, KV());
        else
            some_of<KV>(tile, s * D + (unsigned)b.channel, b.D - b.channel, v);
        shared_four(p, s * FOUR, w);
        add_products<QUERIES>(w, v, out);
        at += step * fours;
    }
}

/* State of the rows of a warp: row warp + k WARPS. sum is the lane's partial sum. */
struct rows {
    float top[ROWS_OF_WARP], sum[ROWS_OF_WARP];
};

/* Returns the lane's visible slots of the page for the rows of its warp: bit 2 k + i is slot lane +
 * 32 i of row k. */
DEVICE unsigned seen_of(const struct gpu_attention &a, const struct place &b, int page)
{
    unsigned seen = 0;
#pragma unroll
    for (int k = 0; k < ROWS_OF_WARP; k++)
        for (int i = 0; i < 2; i++) {
            int r = warp_of_block() + k * WARPS;
            int slot = page * PAGE_SLOTS + i * WARP + lane_of_warp();
            bool sees = r < b.n_rows && slot < b.n && shown(a, b.g0 + r, b.h, 0, slot);
            seen |= (unsigned)sees << (2 * k + i);
        }
    return seen;
}

/* Returns the logit of slot s of a page in row r: the sum over all lanes that have a part of it. */
template <int QUERIES>
DEVICE float logit_of(const struct gpu_attention &a, const struct place &b, int r, int page, int s,
                      in_shared<float> part)
{
    int shares = b.c.lanes / KEY_LANES, first = r / QUERIES * shares;
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < shares; i++)
        sum += part[((first + i) * QUERIES + r % QUERIES) * PAGE_SLOTS + s];
    return logit(a, b.h, 0, page * PAGE_SLOTS + s, sum);
}

/* Computes the weights of a page and updates the rows of the warp. */
template <int QUERIES>
DEVICE void weigh(const struct gpu_attention &a, const struct place &b, const struct memory &m,
                  int page, unsigned seen, struct rows &rows)
{
    int lane = lane_of_warp();
#pragma unroll
    for (int k = 0; k < ROWS_OF_WARP; k++) {
        int r = warp_of_block() + k * WARPS, set = r / QUERIES, j = r % QUERIES;
        if (r >= b.n_rows)
            break;
        float x[2];
        for (int i = 0; i < 2; i++)
            x[i] = seen >> (2 * k + i) & 1
                       ? logit_of<QUERIES>(a, b, r, page, lane + i * WARP, m.part)
                       : -INFINITY;
        float now = fmaxf(rows.top[k], warp_max(fmaxf(x[0], x[1])));
        float old = weight_of(rows.top[k], now), more = 0;
        for (int i = 0; i < 2; i++) {
            float w = weight_of(x[i], now);
            m.p[(set * PAGE_SLOTS + lane + i * WARP) * FOUR + j] = w;
            more += w;
        }
        rows.sum[k] = fmaf(rows.sum[k], old, more);
        rows.top[k] = now;
        if (lane == 0)
            m.fade[set * FOUR + j] = old;
    }
}

/* Computes the weights of a page from its keys. */
template <class KV, int QUERIES>
DEVICE void read_keys(const struct gpu_attention &a, const struct place &b, const struct memory &m,
                      struct supply &s, int page, struct rows &rows)
{
    int most = channels_of(sizeof(KV));
    unsigned seen = seen_of(a, b, page);
    float sum[QUERIES][FOUR] = {{0}};
    for (int c = 0; c < b.D; c += most) {
        int left = b.D - c, channels = left < most ? left : most;
        in_shared<uint4> tile = next_tile<KV>(a, b, m, s);
        key_products<KV, QUERIES>(b, tile, m.q + (b.set * b.D + c) * FOUR, channels, sum);
    }
    int share = (int)threadIdx.x / KEY_LANES * QUERIES, slot = b.lane % KEY_LANES * FOUR;
#pragma unroll
    for (int j = 0; j < QUERIES; j++)
        shared_set_four(m.part, (share + j) * PAGE_SLOTS + slot, sum[j]);
    __syncthreads();
    supply_tiles<KV>(a, b, m, s, s.now);
    weigh<QUERIES>(a, b, m, page, seen, rows);
}

/* out = out fade + sum of p v over the lane's slots of a page. */
template <class KV, int QUERIES>
DEVICE void read_values(const struct gpu_attention &a, const struct place &b,
                        const struct memory &m, struct supply &s, int page, float (*out)[FOUR])
{
    for (int first = 0; first < PAGE_SLOTS; first += b.c.slots) {
        int left = slots_left(b, page) - first, slots = left < b.c.slots ? left : b.c.slots;
        in_shared<uint4> tile = next_tile<KV>(a, b, m, s);
        if (first == 0) {
            float fade[FOUR];
            shared_four(m.fade, b.set * FOUR, fade);
#pragma unroll
            for (int j = 0; j < QUERIES; j++)
#pragma unroll
                for (int c = 0; c < FOUR; c++)
                    out[j][c] *= fade[j];
        }
        value_sums<KV, QUERIES>(b, tile, m.p + (b.set * PAGE_SLOTS + first) * FOUR, slots, out);
    }
}

/* Stores the block's result: sums of values over its lanes, and the state of its rows. */
template <int QUERIES>
DEVICE void give_part(const struct place &b, struct parts to, in_shared<float> part,
                      float (*out)[FOUR], const struct rows &rows)
{
    int id = (int)threadIdx.x, fours = b.c.fours;
#pragma unroll
    for (int j = 0; j < QUERIES; j++)
        shared_set_four(part, (j * LANES + id) * FOUR, out[j]);
    __syncthreads();
    for (int i = id; i < b.n_rows * fours; i += LANES) {
        int r = i / fours, first = r % QUERIES * LANES + r / QUERIES * b.c.lanes + i % fours;
        float sum[FOUR] = {0}, x[FOUR];
#pragma unroll 4
        for (int k = 0; k < b.c.step; k++) {
            shared_four(part, (first + k * fours) * FOUR, x);
            for (int c = 0; c < FOUR; c++)
                sum[c] += x[c];
        }
        size_t at = (size_t)(b.g0 + r) * (size_t)b.c.splits + (size_t)b.split;
        float4 *values = (float4 *)to.values + at * (size_t)fours + i % fours;
        *values = {sum[0], sum[1], sum[2], sum[3]};
    }
#pragma unroll
    for (int k = 0; k < ROWS_OF_WARP; k++) {
        int r = warp_of_block() + k * WARPS;
        float sum = warp_sum(rows.sum[k]);
        size_t at = (size_t)(b.g0 + r) * (size_t)b.c.splits + (size_t)b.split;
        if (r < b.n_rows && lane_of_warp() == 0) {
            to.state[2 * at] = rows.top[k];
            to.state[2 * at + 1] = sum;
        }
    }
}

/* Kernel arguments of N sequences. */
template <int N> struct steps {
    struct gpu_attention a[N];
    struct cut cut[N];
    float *work[N];
};

/* Block (KV head, split, some of its query heads, counted over all sequences). The preceding kernel
 * can be a kernel that selects pages or stores newcomers. The pool numbers of other entries were
 * known before it. */
template <class KV, int QUERIES, int N>
__global__ void __launch_bounds__(LANES, sizeof(KV) == 2 ? 3 : 2)
    step_kernel(GIVEN struct steps<N> all)
{
    SHARED_DYNAMIC(uint4, tiles);
    SHARED_DYNAMIC(float, floats);
    SHARED_DYNAMIC(int32_t, ints);
    SHARED(int32_t, told, 1);
    SHARED(int32_t, n_listed, 1);
    int sequence = N > 1 ? (int)blockIdx.z / all.cut[0].passes : 0;
    int pass = N > 1 ? (int)blockIdx.z % all.cut[0].passes : (int)blockIdx.z;
    const struct gpu_attention &a = all.a[sequence];
    const struct cut &cut = all.cut[sequence];
    float *work = all.work[sequence];
    bool more = N > 1 && (int)blockIdx.y >= cut.splits; /* this sequence has fewer splits */
    if (more || a.page)
        earlier_done();
    if (more)
        return;
    const struct place b = place_of(a, cut, pass);
    int set = cut.sets * FOUR, at_fade = AT_WEIGHTS + set * PAGE_SLOTS, at_q = at_fade + set;
    struct memory m = {tiles,
                       floats + AT_PART,
                       floats + AT_WEIGHTS,
                       floats + at_fade,
                       floats + at_q,
                       ints + (at_q + set * b.D),
                       0};
    if (!a.page)
        ask_for_page<KV>(a, b);
    if (warp_of_block() == WARPS - 1)
        list_pages(a, b, m.list, n_listed);
    if (!a.page)
        earlier_done();
    load_queries<QUERIES>(a, b, m.q, m.p);
    __syncthreads();
    m.n_pages = n_listed[0];
    struct rows rows = {{-INFINITY, -INFINITY}, {0, 0}};
    struct supply supply = {0, 0, 0, 0};
    float out[QUERIES][FOUR] = {{0}};
    supply_tiles<KV>(a, b, m, supply, 0);
    for (int i = 0; i < m.n_pages; i++) {
        read_keys<KV, QUERIES>(a, b, m, supply, m.list[2 * i], rows);
        read_values<KV, QUERIES>(a, b, m, supply, m.list[2 * i], out);
    }
    struct parts parts = {(int *)work, work + at_values(a.cache.heads, cut.passes), NULL};
    parts.state = parts.values + at_state(a.n_heads, b.c.splits, b.D);
    give_part<QUERIES>(b, parts, m.part, out, rows);
    int *ended = parts.ended + pass * a.cache.heads + b.h;
    if (!is_last(ended, b.c.splits, told))
        return;
    join_parts(a, b, parts, m.part);
    if (threadIdx.x == 0)
        *ended = 0; /* reset for the next launch */
}

template <class KV, int QUERIES, int N>
static void launch_step(struct gpu *g, const struct gpu_attention *a, float *const *work, int n)
{
    auto kernel = step_kernel<KV, QUERIES, N>;
    struct steps<N> all = {
    };
    size_t bytes = 0;
    int splits = 0;
    for (int i = 0; i < n; i++) {
        all.a[i] = a[i];
        all.cut[i] = cut_of(&a[i]);
        all.work[i] = work[i];
        size_t own = shared_bytes(&all.cut[i], a[i].cache.D);
        bytes = own > bytes ? own : bytes;
        splits = all.cut[i].splits > splits ? all.cut[i].splits : splits;
    }
    size_t &room = g->step_room[N > 1][a->cache.type == KV_F16][QUERIES - 1];
    if (bytes > room) {
        gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)bytes));
        room = bytes;
    }
    dim3 grid((unsigned)a->cache.heads, (unsigned)splits, (unsigned)(n * all.cut[0].passes));
    LAUNCH_EARLY(kernel, grid, LANES, bytes, g, all);
}

template <class KV, int N>
static void step_of(struct gpu *g, const struct gpu_attention *a, float *const *work, int n)
{
    int queries = queries_of_set(a);
    if (queries <= 1)
        launch_step<KV, 1, N>(g, a, work, n);
    else if (queries == 2)
        launch_step<KV, 2, N>(g, a, work, n);
    else if (queries == 3)
        launch_step<KV, 3, N>(g, a, work, n);
    else
        launch_step<KV, 4, N>(g, a, work, n);
}

template <class KV>
static void steps_of(struct gpu *g, const struct gpu_attention *a, float *const *work, int n)
{
    for (; n > 1; n -= GPU_TOGETHER, a += GPU_TOGETHER, work += GPU_TOGETHER)
        step_of<KV, GPU_TOGETHER>(g, a, work, n < GPU_TOGETHER ? n : GPU_TOGETHER);
    if (n == 1)
        step_of<KV, 1>(g, a, work, 1);
}

void gpu_attend_step(struct gpu *g, const struct gpu_attention *a, float *const *work, int n)
{
    if (a->cache.type == KV_F16)
        steps_of<uint16_t>(g, a, work, n);
    else
        steps_of<float>(g, a, work, n);
}
