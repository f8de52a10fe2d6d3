/* choose.cu - selects the k worst entries of heads that share a budget, in exactly the order of
 * engine/kernels/ranking.h.
 *
 * An entry has a key of three words: its score, its position, its head. A smaller key is worse. All
 * keys are different. A block finds the smallest key of its pool directly. It finds any other k-th
 * key byte by byte, from the first byte on: it counts the keys with the known prefix by their next
 * byte. In a pool of many heads, each head has a block and they count together. The last block to
 * finish selects the byte. */
#include "engine/cuda/device.cuh"

enum {
    LANES = 256,
    BINS = 256,
    KEY_BYTES = 4 * RANK_WORDS,
    WIDE = 5, /* minimum heads of a pool for one block per head */
};

DEVICE struct rank_key key_of(const struct gpu_choice &c, int head, int slot)
{
    size_t at = (size_t)head * (size_t)c.ld + (size_t)slot;
    return rank_key(c.score[at], c.pos[at], head, c.older ? TIE_OLDER : TIE_NEWER);
}

DEVICE unsigned byte_of(const struct rank_key &k, int i)
{
    return k.word[i / 4] >> (24 - i % 4 * 8) & 255;
}

/* Returns true if the first n bytes are equal. */
DEVICE bool begins(const struct rank_key &a, const struct rank_key &b, int n)
{
    for (int w = 0; w < n / 4; w++)
        if (a.word[w] != b.word[w])
            return false;
    return n % 4 == 0 || (a.word[n / 4] ^ b.word[n / 4]) >> (32 - n % 4 * 8) == 0;
}

/* Calls f(head, slot) for the candidates, lane by lane. */
template <class F> DEVICE void each_candidate(const struct gpu_choice &c, int first, int end, F f)
{
    for (int h = first; h < end; h++)
        for (int i = (int)threadIdx.x; i < c.n[h]; i += LANES)
            if (c.mark[(size_t)h * (size_t)c.ld + (size_t)i] == c.from)
                f(h, i);
}

/* Returns the byte of the k-th key, at which the cumulative counts reach k. Lane i has the count of
 * byte i. *k becomes the rank within the keys with this byte. */
DEVICE unsigned find_bin(int mine, long long *k)
{
    SHARED(int, sums, LANES / WARP);
    SHARED(unsigned, found, 1);
    SHARED(long long, rank, 1);
    int upto = mine;
    for (int d = 1; d < WARP; d *= 2) {
        int before = __shfl_up_sync(ALL_LANES, upto, d);
        upto += lane_of_warp() >= d ? before : 0;
    }
    if (lane_of_warp() == WARP - 1)
        sums[warp_of_block()] = upto;
    __syncthreads();
    for (int w = 0; w < warp_of_block(); w++)
        upto += sums[w];
    if (upto - mine < *k && *k <= upto) {
        found[0] = threadIdx.x;
        rank[0] = *k - (upto - mine);
    }
    __syncthreads();
    *k = rank[0];
    return found[0];
}

/* Returns the smallest of the lanes' keys in every lane. */
DEVICE struct rank_key min_key(struct rank_key mine)
{
    SHARED(unsigned, part, LANES / WARP * RANK_WORDS);
    for (int d = WARP / 2; d > 0; d /= 2) {
        struct rank_key other;
        for (int w = 0; w < RANK_WORDS; w++)
            other.word[w] = __shfl_xor_sync(ALL_LANES, mine.word[w], d);
        mine = rank_key_at_most(&other, &mine) ? other : mine;
    }
    for (int w = 0; w < RANK_WORDS && lane_of_warp() == 0; w++)
        part[warp_of_block() * RANK_WORDS + w] = mine.word[w];
    __syncthreads();
    for (int i = 0; i < LANES / WARP; i++) {
        struct rank_key other;
        for (int w = 0; w < RANK_WORDS; w++)
            other.word[w] = part[i * RANK_WORDS + w];
        mine = rank_key_at_most(&other, &mine) ? other : mine;
    }
    return mine;
}

/* Marks the entries of a head up to the last key, if there is one, and counts them. */
DEVICE void mark_head(const struct gpu_choice &c, int h, const struct rank_key &last, bool marks)
{
    int count = 0;
    if (marks)
        each_candidate(c, h, h + 1, [&](int head, int i) {
            struct rank_key own = key_of(c, head, i);
            if (!rank_key_at_most(&own, &last))
                return;
            c.mark[(size_t)head * (size_t)c.ld + (size_t)i] = c.to;
            count++;
        });
    count = block_sum(count);
    if (threadIdx.x == 0)
        c.count[h] = count;
}

/* Returns the k-th key of heads [first, end), k > 1. */
DEVICE struct rank_key find_key(const struct gpu_choice &c, int first, int end, long long k)
{
    SHARED(int, bin, BINS);
    struct rank_key last = {{0, 0, 0}};
    for (int byte = 0; byte < KEY_BYTES; byte++) {
        bin[threadIdx.x] = 0;
        __syncthreads();
        each_candidate(c, first, end, [&](int h, int i) {
            struct rank_key x = key_of(c, h, i);
            if (begins(x, last, byte))
                atomicAdd(&bin[byte_of(x, byte)], 1);
        });
        __syncthreads();
        last.word[byte / 4] |= find_bin(bin[threadIdx.x], &k) << (24 - byte % 4 * 8);
    }
    return last;
}

/* A step usually evicts one entry of each head. */
__global__ void __launch_bounds__(LANES)
    choose_kernel(struct gpu_choice c, int heads, const int64_t *wanted)
{
    int first = (int)blockIdx.x * heads, end = first + heads, mine = 0;
    long long k = wanted[blockIdx.x];
    struct rank_key last = {{~0u, ~0u, ~0u}};
    if (k > 0)
        each_candidate(c, first, end, [&](int h, int i) {
            struct rank_key x = key_of(c, h, i);
            last = rank_key_at_most(&x, &last) ? x : last;
            mine++;
        });
    int total = block_sum(mine);
    k = k < total ? k : total;
    if (k == 1)
        last = min_key(last);
    else if (k > 1)
        last = find_key(c, first, end, k);
    for (int h = first; h < end; h++)
        mark_head(c, h, last, k > 0);
}

/* ---- pools of many heads */

/* State shared by the blocks of a pool; zero at first. */
struct together {
    struct rank_key last;
    long long left; /* rank of the k-th key within the keys with the known prefix */
    int total, done;
    int bin[BINS];
};

/* Returns true if this block is the last of its pool to get here; it then sees all writes of the
 * other blocks. */
DEVICE bool last_of_pool(struct together *s)
{
    SHARED(int, last, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last[0] = atomicAdd(&s->done, 1) == (int)gridDim.x - 1;
        __threadfence();
        if (last[0])
            s->done = 0;
    }
    __syncthreads();
    return last[0];
}

/* Block (head of a pool, pool). */
__global__ void __launch_bounds__(LANES)
    wide_count_kernel(struct gpu_choice c, struct together *all, const int64_t *wanted)
{
    int h = (int)(blockIdx.y * gridDim.x + blockIdx.x), mine = 0;
    struct together *s = all + blockIdx.y;
    each_candidate(c, h, h + 1, [&](int, int) { mine++; });
    int total = block_sum(mine);
    if (threadIdx.x == 0)
        atomicAdd(&s->total, total);
    if (last_of_pool(s) && threadIdx.x == 0) {
        long long k = wanted[blockIdx.y];
        s->left = k < s->total ? k : s->total;
    }
}

__global__ void __launch_bounds__(LANES)
    wide_byte_kernel(struct gpu_choice c, struct together *all, int byte)
{
    SHARED(int, bin, BINS);
    int h = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    struct together *s = all + blockIdx.y;
    if (s->left <= 0)
        return;
    struct rank_key last = s->last;
    bin[threadIdx.x] = 0;
    __syncthreads();
    each_candidate(c, h, h + 1, [&](int head, int i) {
        struct rank_key x = key_of(c, head, i);
        if (begins(x, last, byte))
            atomicAdd(&bin[byte_of(x, byte)], 1);
    });
    __syncthreads();
    if (bin[threadIdx.x] > 0)
        atomicAdd(&s->bin[threadIdx.x], (int)bin[threadIdx.x]);
    if (!last_of_pool(s))
        return;
    int mine = s->bin[threadIdx.x];
    long long left = s->left;
    s->bin[threadIdx.x] = 0;
    unsigned found = find_bin(mine, &left);
    if (threadIdx.x > 0)
        return;
    s->last.word[byte / 4] |= found << (24 - byte % 4 * 8);
    s->left = left;
}

__global__ void __launch_bounds__(LANES) wide_mark_kernel(struct gpu_choice c, struct together *all)
{
    const struct together *s = all + blockIdx.y;
    mark_head(c, (int)(blockIdx.y * gridDim.x + blockIdx.x), s->last, s->left > 0);
}

size_t gpu_choice_bytes(int pools, int heads_of_pool)
{
    return heads_of_pool >= WIDE ? (size_t)pools * sizeof(struct together) : 0;
}

static void choose_wide(struct gpu *g, const struct gpu_choice *c, int pools, int heads,
                        const int64_t *k)
{
    struct gpu_choice in = *c;
    struct together *all = (struct together *)c->scratch;
    dim3 grid((unsigned)heads, (unsigned)pools);
    gpu_zero(g, all, gpu_choice_bytes(pools, heads));
    LAUNCH(wide_count_kernel, grid, LANES, 0, g, in, all, k);
    for (int byte = 0; byte < KEY_BYTES; byte++)
        LAUNCH(wide_byte_kernel, grid, LANES, 0, g, in, all, byte);
    LAUNCH(wide_mark_kernel, grid, LANES, 0, g, in, all);
}

void gpu_choose(struct gpu *g, const struct gpu_choice *c, int pools, int heads_of_pool,
                const int64_t *k)
{
    struct gpu_choice in = *c;
    if (gpu_choice_bytes(pools, heads_of_pool) > 0)
        choose_wide(g, c, pools, heads_of_pool, k);
    else
        LAUNCH(choose_kernel, (unsigned)pools, LANES, 0, g, in, heads_of_pool, k);
}
