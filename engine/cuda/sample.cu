/* sample.cu - draws the next token from logits, and computes the likelihood of given tokens,
 * without copies to host. */
#include "engine/cuda/device.cuh"

#include "engine/kernels/draw.h"

enum { LANES = 256, BINS = 256, DIGIT_BITS = 8, PIECE = LANES };

/* State shared by the kernels of a draw; zero at first. */
struct draw {
    unsigned long long best; /* key of the largest logit: its order, then ~id */
    unsigned long long total, least, left, bin[BINS];
    int done, id;
};

/* A piece of PIECE tokens: the sum of weights above the smallest candidate weight, and the number
 * of tokens with exactly that weight. */
struct piece {
    unsigned long long above, ties;
};

static size_t pieces_of(int n)
{
    return blocks_for((size_t)n, PIECE);
}

size_t gpu_draw_bytes(int n)
{
    return sizeof(struct draw) + pieces_of(n) * sizeof(struct piece) + (size_t)n * sizeof(uint64_t);
}

/* Layout of the scratch memory. */
struct desk {
    struct draw *d;
    struct piece *piece;
    unsigned long long *weight;
    int n, n_pieces;
};

static struct desk desk_of(void *scratch, int n)
{
    struct desk x = {(struct draw *)scratch, NULL, NULL, n, (int)pieces_of(n)};
    x.piece = (struct piece *)(x.d + 1);
    x.weight = (unsigned long long *)(x.piece + x.n_pieces);
    return x;
}

DEVICE unsigned long long warp_max(unsigned long long v)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        unsigned long long o = __shfl_xor_sync(ALL_LANES, v, d);
        v = o > v ? o : v;
    }
    return v;
}

/* Lane (token). */
__global__ void __launch_bounds__(LANES) best_kernel(struct desk x, const float *logits)
{
    int i = (int)(blockIdx.x * LANES + threadIdx.x);
    unsigned long long key = 0;
    if (i < x.n)
        key = (unsigned long long)rank_of_score(logits[i]) << 32 | ~(unsigned)i;
    key = warp_max(key);
    if (lane_of_warp() == 0)
        atomicMax(&x.d->best, key);
}

/* One block: returns the token with the largest logit. */
__global__ void greedy_kernel(struct desk x, int32_t *id)
{
    if (threadIdx.x == 0)
        id[0] = (int32_t) ~(unsigned)x.d->best;
}

__global__ void __launch_bounds__(LANES)
    weights_kernel(struct desk x, const float *logits, double scale)
{
    int i = (int)(blockIdx.x * LANES + threadIdx.x);
    float top = logits[~(unsigned)x.d->best];
    unsigned long long w = i < x.n ? draw_weight(logits[i], top, scale) : 0, sum = block_sum(w);
    if (i < x.n)
        x.weight[i] = w;
    if (threadIdx.x == 0 && sum > 0)
        atomicAdd(&x.d->total, sum);
}

/* All tokens with at least one unit are candidates. */
__global__ void all_kernel(struct desk x)
{
    if (threadIdx.x > 0)
        return;
    x.d->least = 1;
    x.d->left = x.d->total; /* larger than the number of tokens with one unit */
}

/* Called by one lane of the last block: selects the digit at which the wanted sum is reached. */
DEVICE void take_digit(struct draw *d, in_shared<unsigned long long> sum, int at)
{
    unsigned long long left = d->left;
    int digit = BINS - 1;
    for (; digit > 0 && sum[digit] < left; digit--)
        left -= sum[digit];
    d->left = left;
    d->least |= (unsigned long long)digit << at;
}

/* Sums the weights with the known prefix by their next digit. */
__global__ void __launch_bounds__(LANES) digit_kernel(struct desk x, double top_p, int at)
{
    SHARED(unsigned long long, sum, BINS);
    SHARED(int, last, 1);
    struct draw *d = x.d;
    int i = (int)(blockIdx.x * LANES + threadIdx.x);
    unsigned long long w = i < x.n ? x.weight[i] : 0;
    sum[threadIdx.x] = 0;
    __syncthreads();
    if (w > 0 && (w ^ d->least) >> (at + DIGIT_BITS) == 0)
        atomicAdd(&sum[w >> at & (BINS - 1)], w);
    __syncthreads();
    if (sum[threadIdx.x] > 0)
        atomicAdd(&d->bin[threadIdx.x], (unsigned long long)sum[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last[0] = atomicAdd(&d->done, 1) == (int)gridDim.x - 1;
        __threadfence(); /* writes of the other blocks are read after it */
    }
    __syncthreads();
    if (!last[0])
        return;
    sum[threadIdx.x] = d->bin[threadIdx.x];
    d->bin[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    d->done = 0;
    if (at == DRAW_BITS)
        d->left = draw_wanted(d->total, top_p);
    take_digit(d, sum, at);
}

/* Block (piece). */
__global__ void __launch_bounds__(LANES) piece_kernel(struct desk x)
{
    int i = (int)(blockIdx.x * PIECE + threadIdx.x);
    unsigned long long w = i < x.n ? x.weight[i] : 0, least = x.d->least;
    unsigned long long above = block_sum(w > least ? w : 0),
                       ties = block_sum(w == least ? 1ull : 0);
    if (threadIdx.x == 0)
        x.piece[blockIdx.x] = {above, ties};
}

/* Returns the sum over the lanes before this one; *all: the sum over all lanes. */
DEVICE unsigned long long sum_before(unsigned long long v, unsigned long long *all)
{
    SHARED(unsigned long long, each, LANES);
    unsigned long long before = 0, total = 0;
    each[threadIdx.x] = v;
    __syncthreads();
    for (int l = 0; l < LANES; l++) {
        total += each[l];
        before += l < (int)threadIdx.x ? (unsigned long long)each[l] : 0;
    }
    __syncthreads();
    *all = total;
    return before;
}

/* Returns the candidate weight of a piece: weights above the smallest, and ties, of which `earlier`
 * are in preceding pieces. */
DEVICE unsigned long long kept_of(const struct piece &p, unsigned long long earlier,
                                  unsigned long long most, unsigned long long least)
{
    unsigned long long room = earlier < most ? most - earlier : 0;
    return p.above + (p.ties < room ? p.ties : room) * least;
}

/* One block. Each lane has consecutive pieces and the lane in which the rank falls selects one of
 * them. Then each lane has a token of that piece. */
__global__ void __launch_bounds__(LANES) pick_kernel(struct desk x, const double *u, int32_t *id)
{
    SHARED(int, found, 1);
    SHARED(unsigned long long, rest, 2); /* rank within the piece; ties before it */
    const struct draw *d = x.d;
    unsigned long long least = d->least, most = draw_ties(d->left, least), all, kept;
    int each = (x.n_pieces + LANES - 1) / LANES, from = (int)threadIdx.x * each;
    int to = from + each < x.n_pieces ? from + each : x.n_pieces;
    struct piece mine = {0, 0};
    for (int p = from; p < to; p++)
        mine = {mine.above + x.piece[p].above, mine.ties + x.piece[p].ties};
    unsigned long long earlier = sum_before(mine.ties, &all),
                       own = kept_of(mine, earlier, most, least);
    unsigned long long before = sum_before(own, &kept), rank = draw_rank(kept, u[0]);
    if (rank >= before && rank < before + own) {
        int p = from;
        for (rank -= before;; p++) {
            own = kept_of(x.piece[p], earlier, most, least);
            if (rank < own)
                break;
            rank -= own;
            earlier += x.piece[p].ties;
        }
        found[0] = p;
        rest[0] = rank;
        rest[1] = earlier;
    }
    __syncthreads();
    int i = found[0] * PIECE + (int)threadIdx.x;
    unsigned long long w = i < x.n ? x.weight[i] : 0;
    mine = {w > least ? w : 0, w == least};
    earlier = rest[1] + sum_before(mine.ties, &all);
    own = kept_of(mine, earlier, most, least);
    before = sum_before(own, &all);
    rank = rest[0];
    if (rank >= before && rank < before + own)
        id[0] = i;
}

void gpu_draw(struct gpu *g, int32_t *id, const float *logits, int n, const struct gpu_draw *how)
{
    struct desk x = desk_of(how->scratch, n);
    unsigned blocks = blocks_for((size_t)n, LANES);
    gpu_zero(g, x.d, sizeof *x.d);
    LAUNCH(best_kernel, blocks, LANES, 0, g, x, logits);
    if (!how->chance) {
        LAUNCH(greedy_kernel, 1, WARP, 0, g, x, id);
        return;
    }
    LAUNCH(weights_kernel, blocks, LANES, 0, g, x, logits, how->scale);
    for (int at = DRAW_BITS; how->top_p < 1 && at >= 0; at -= DIGIT_BITS)
        LAUNCH(digit_kernel, blocks, LANES, 0, g, x, how->top_p, at);
    if (how->top_p >= 1)
        LAUNCH(all_kernel, 1, WARP, 0, g, x);
    LAUNCH(piece_kernel, blocks, LANES, 0, g, x);
    LAUNCH(pick_kernel, 1, LANES, 0, g, x, how->chance, id);
}

/* Block (segment, row). */
__global__ void __launch_bounds__(LANES)
    segment_kernel(const float *logits, size_t ld, int n, int first, const int32_t *ids, float *lse,
                   size_t ld_lse, float *target)
{
    int r = (int)blockIdx.y, from = (int)blockIdx.x * GPU_SEGMENT;
    int left = n - from < GPU_SEGMENT ? n - from : GPU_SEGMENT, id = ids[r] - first - from;
    const float *row = logits + (size_t)r * ld + (size_t)from;
    float top = -INFINITY;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < left; i += LANES)
        top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = (int)threadIdx.x; i < left; i += LANES)
        sum += (double)expf(row[i] - top);
    sum = block_sum(sum);
    if (threadIdx.x > 0)
        return;
    lse[(size_t)blockIdx.x * ld_lse + (size_t)r] = top + (float)log(sum);
    if (id >= 0 && id < left)
        target[r] = row[id];
}

void gpu_segments(struct gpu *g, const float *logits, size_t ld, int n, int n_rows, int first,
                  const int32_t *ids, float *lse, size_t ld_lse, float *target)
{
    dim3 grid(blocks_for((size_t)n, GPU_SEGMENT), (unsigned)n_rows);
    LAUNCH(segment_kernel, grid, LANES, 0, g, logits, ld, n, first, ids, lse, ld_lse, target);
}
