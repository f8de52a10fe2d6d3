/* attention_bytes.c - attention over pages of q8_0 with integer products. Sums of products of four
 * bytes are exact, so every instruction set gives the bits of the reference. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/page_weights.h"
#include "engine/kernels/vector/sets.h"

/* Tile sizes as for 16-bit products (attention_ints.c). */
enum {
    TILE_ROWS = KERNELS_AVX512 ? 8 : 4,
    TILE_VECS = 2,
    FEW_ROWS = 4,
    FEW_VECS = KERNELS_AVX512 ? 4 : 2,
    VECS = 4,
    QUADS = KV_BLOCK / 4 /* channels of a block / 4 */
};

void ISA(attn_queries_bytes)(const struct kv_queries *out, const float *q, size_t ld_q, int T,
                             int D)
{
    size_t blocks = kv_blocks(D);
    if (D % KV_BLOCK) {
        attn_queries_ref(out, q, ld_q, T, D);
        return;
    }
    for (size_t i = 0; i < (size_t)T * blocks; i++) {
        const float *x = q + i / blocks * ld_q + i % blocks * KV_BLOCK;
        const struct row_unit u = unit_of(x, KV_BLOCK, KV_Q8_MOST);
        int8_t *to = (int8_t *)out->q + i * KV_BLOCK;
        int16_t h[KV_BLOCK] = {0};
        int32_t sum = 0;
        for (size_t c = 0; u.inverse > 0 && c < KV_BLOCK; c += 2 * W)
            v_store_words(h + c, v_mul(v_load(x + c), v_set(u.inverse)),
                          v_mul(v_load(x + c + W), v_set(u.inverse)));
        for (int c = 0; c < KV_BLOCK; c++) {
            to[c] = (int8_t)h[c];
            sum += h[c];
        }
        out->scale[i] = u.scale;
        out->sum[i] = sum;
    }
}

/* Scores of rows of queries for one block of channels of a page. */
struct scores {
    float *out;
    size_t ld;
    const int8_t *q; /* first query */
    size_t ld_q, blocks;
    const float *q_scale; /* `blocks` elements apart */
    const int32_t *q_sum;
    const int32_t *keys, *next;
    int quads; /* groups of four channels of the block */
    bool first;
    float scale;
    _Alignas(64) float key_scale[PAGE_SLOTS];
};

INLINE void add_keys(ints sum[FEW_ROWS][VECS], const struct scores *x, size_t row, size_t s0,
                     const int R, const int N)
{
    const int8_t *q = x->q + row * x->ld_q;
    UNROLL
    for (int i = 0; i < R * N; i++)
        sum[i / N][i % N] = i_begin_keys(x->q_sum[(row + (size_t)(i / N)) * x->blocks]);
    for (int k = 0; k < x->quads; k++) {
        const int32_t *keys = x->keys + k * PAGE_SLOTS + s0;
        quads y[VECS];
        UNROLL
        for (int v = 0; v < N; v++)
            y[v] = quads_of_keys(keys + v * W);
        for (int i = 0; x->next && row == 0 && i < N * W; i += 16)
            __builtin_prefetch(x->next + k * PAGE_SLOTS + s0 + i, 0, 2);
        UNROLL
        for (int r = 0; r < R; r++) {
            quads b = quads_of_query(q + (size_t)r * x->ld_q + 4 * k);
            UNROLL
            for (int v = 0; v < N; v++)
                sum[r][v] = i_dot_quads(sum[r][v], y[v], b);
        }
    }
}

INLINE void scores_tile(const struct scores *x, size_t row, size_t s0, const int R, const int N)
{
    ints sum[FEW_ROWS][VECS];
    add_keys(sum, x, row, s0, R, N);
    UNROLL
    for (int i = 0; i < R * N; i++) {
        size_t r = row + (size_t)(i / N), s = s0 + (size_t)(i % N * W);
        float *out = x->out + r * x->ld + s;
        vec part = v_mul(i_to_vec(sum[i / N][i % N]), v_load(x->key_scale + s));
        vec of_query = v_set(x->q_scale[r * x->blocks] * x->scale);
        v_store(out, x->first ? v_mul(part, of_query) : v_fma(part, of_query, v_load(out)));
    }
}

INLINE void scores_rows(const struct scores *x, size_t row, const int R, const int N)
{
    for (size_t s0 = 0; s0 < PAGE_SLOTS; s0 += (size_t)(N * W))
        scores_tile(x, row, s0, R, N);
}

static void scores_block(const struct scores *x, size_t rows)
{
    size_t R;
    for (size_t row = 0; row < rows; row += R) {
        R = rows - row < FEW_ROWS ? rows - row : FEW_ROWS;
        if (R == FEW_ROWS)
            scores_rows(x, row, FEW_ROWS, FEW_VECS);
        else if (R == 3)
            scores_rows(x, row, 3, FEW_VECS);
        else if (R == 2)
            scores_rows(x, row, 2, FEW_VECS);
        else
            scores_rows(x, row, 1, VECS);
    }
}

/* Prefetches scales. They follow the elements, but sums need them first. */
INLINE void ask_for_scales(const void *next, int D)
{
    const char *scales = next ? (const char *)kv_q8_scales(next, D) : NULL;
    for (size_t i = 0; scales && i < kv_blocks(D) * PAGE_SLOTS * 2; i += 64)
        __builtin_prefetch(scales + i, 0, 2);
}

/* Loads the scales of block b of the entries of a half page. */
INLINE void block_scales(float *to, const void *half, int D, size_t b)
{
    const uint16_t *scales = kv_q8_scales(half, D) + b * PAGE_SLOTS;
    for (int s = 0; s < PAGE_SLOTS; s += W)
        v_store(to + s, v_load_half(scales + s));
}

void ISA(attn_scores_bytes)(float *scores, size_t ld_s, const struct kv_queries *q, int T, int D,
                            const struct kv_keys *k, float scale)
{
    struct scores x;
    int left = (int)kv_channels(KV_Q8_0, D) / 4;
    x.out = scores;
    x.ld = ld_s;
    x.q = q->q;
    x.ld_q = kv_channels(KV_Q8_0, D);
    x.blocks = kv_blocks(D);
    x.q_scale = q->scale;
    x.q_sum = q->sum;
    x.keys = k->page;
    x.next = k->next;
    x.scale = scale;
    ask_for_scales(k->next, D);
    for (size_t b = 0; b < x.blocks; b++, left -= QUADS) {
        x.first = b == 0;
        x.quads = left < QUADS ? left : QUADS;
        block_scales(x.key_scale, k->page, D, b);
        scores_block(&x, (size_t)T);
        x.q += KV_BLOCK;
        x.q_scale++;
        x.q_sum++;
        x.keys += QUADS * PAGE_SLOTS;
        x.next = x.next ? x.next + QUADS * PAGE_SLOTS : NULL;
    }
}

/* Weights of some rows times the scales of values, for two blocks of channels, and the output
 * sums. */
struct sums {
    float *out;
    size_t ld, D;
    const int32_t *values, *next;
    size_t quads; /* groups of four slots */
    int block;    /* which of the two blocks */
    const float *keep;
    float scale[WEIGHT_ROWS], inverse[WEIGHT_ROWS];
    _Alignas(64) uint8_t w[2][WEIGHT_ROWS][PAGE_SLOTS];
};

/* Rows from r0 on times N vectors of W channels from channel d on. */
INLINE void sums_tile(const struct sums *x, size_t r0, size_t d, const int R, const int N)
{
    ints sum[TILE_ROWS][VECS];
    const uint8_t *weights = x->w[x->block][r0];
    UNROLL
    for (int i = 0; i < R * N; i++)
        sum[i / N][i % N] = i_zero();
    for (size_t k = 0; k < x->quads; k++, weights += 4) {
        const int32_t *values = x->values + k * x->D + d;
        quads y[VECS];
        UNROLL
        for (int v = 0; v < N; v++)
            y[v] = quads_of_values(values + v * W);
        for (int i = 0; x->next && r0 == 0 && i < N * W; i += 16)
            __builtin_prefetch(x->next + k * x->D + d + (size_t)i, 0, 2);
        UNROLL
        for (int r = 0; r < R; r++) {
            quads w = quads_of_weights(weights + r * PAGE_SLOTS);
            UNROLL
            for (int v = 0; v < N; v++)
                sum[r][v] = i_dot_quads(sum[r][v], w, y[v]);
        }
    }
    UNROLL
    for (int i = 0; i < R * N; i++) {
        size_t r = r0 + (size_t)(i / N);
        float *out = x->out + r * x->ld + d + (size_t)(i % N * W);
        vec before = v_mul(v_load(out), v_set(x->keep[r]));
        v_store(out, v_fma(i_to_vec(sum[i / N][i % N]), v_set(x->scale[r]), before));
    }
}

INLINE void sums_rows(const struct sums *x, size_t r0, size_t d0, size_t d1, const int R,
                      const int N)
{
    size_t d = d0, span = (size_t)(N * W);
    for (; d + span <= d1; d += span)
        sums_tile(x, r0, d, R, N);
    for (; d < d1; d += W)
        sums_tile(x, r0, d, R, 1);
}

static void sums_block(const struct sums *x, size_t rows, size_t d0, size_t d1)
{
    size_t R;
    for (size_t r = 0; r < rows; r += R) {
        R = rows - r < FEW_ROWS ? rows - r : FEW_ROWS;
        R = rows - r < TILE_ROWS ? R : TILE_ROWS;
        if (R > FEW_ROWS)
            sums_rows(x, r, d0, d1, TILE_ROWS, TILE_VECS);
        else if (R == FEW_ROWS)
            sums_rows(x, r, d0, d1, FEW_ROWS, TILE_VECS);
        else if (R == 3)
            sums_rows(x, r, d0, d1, 3, TILE_VECS);
        else if (R == 2)
            sums_rows(x, r, d0, d1, 2, TILE_VECS);
        else
            sums_rows(x, r, d0, d1, 1, TILE_VECS);
    }
}

/* Quantises the weights of row r times the scales of n slots, for `blocks` blocks. */
INLINE void bytes_of_row(struct sums *x, const struct page_rows *p, int r,
                         float scales[2][PAGE_SLOTS], const int n, const int blocks)
{
    const vec inverse = v_set(x->inverse[r]);
    UNROLL
    for (int i = 0; i < PAGE_VECS; i += 4) {
        vec e[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            e[j] = v_mul(v_load(p->x[r] + (i + j) * W), inverse);
        for (int b = 0; b < blocks; b++)
            v_store_bytes(x->w[b][r] + i * W, v_mul(e[0], scales_seen(scales[b], i, n)),
                          v_mul(e[1], scales_seen(scales[b], i + 1, n)),
                          v_mul(e[2], scales_seen(scales[b], i + 2, n)),
                          v_mul(e[3], scales_seen(scales[b], i + 3, n)));
    }
}

static void bytes_of_rows(struct sums *x, const struct page_rows *p, float scales[2][PAGE_SLOTS],
                          int blocks)
{
    for (int r = 0; r < p->rows; r++) {
        int n = slots_seen(p, r);
        if (n < PAGE_SLOTS)
            bytes_of_row(x, p, r, scales, n, blocks);
        else if (blocks == 2)
            bytes_of_row(x, p, r, scales, PAGE_SLOTS, 2);
        else
            bytes_of_row(x, p, r, scales, PAGE_SLOTS, 1);
    }
}

/* Computes weights of rows and the units of their products with scales. */
static void weigh_rows(struct sums *x, struct page_rows *p, float *sum, float *top,
                       const float *scales)
{
    weigh_all(p, sum, top, scales, true);
    for (int r = p->rows; r % W; r++)
        p->size[r] = p->part[r] = 0;
    for (int r = 0; r < p->rows; r += W) {
        vec size = v_max(v_load(p->size + r), v_set(KV_I16_TINY));
        vec unit = v_fma(size, v_set(BYTE_UNIT), v_sub(size, size)); /* NaN for infinity */
        v_store(x->scale + r, v_mul(unit, v_load(p->part + r)));
        v_store(x->inverse + r, v_div(v_set(BYTE_WEIGHT), size));
    }
}

/* Sets the largest scale of each entry. */
static void largest_scales(float *to, const void *half, int D)
{
    float one[PAGE_SLOTS];
    block_scales(to, half, D, 0);
    for (size_t b = 1; b < kv_blocks(D); b++) {
        block_scales(one, half, D, b);
        for (int s = 0; s < PAGE_SLOTS; s += W)
            v_store(to + s, v_max(v_load(one + s), v_load(to + s)));
    }
}

/* Processes two blocks of channels at a time. */
static void add_blocks(struct sums *x, const struct page_rows *p, const struct kv_values *v)
{
    _Alignas(64) float scales[2][PAGE_SLOTS];
    for (int d = v->d0, end; d < v->d1; d = end) {
        int blocks = v->d1 - d > KV_BLOCK ? 2 : 1;
        for (int b = 0; b < blocks; b++)
            block_scales(scales[b], v->page, v->D, (size_t)(d / KV_BLOCK + b));
        bytes_of_rows(x, p, scales, blocks);
        for (x->block = 0; x->block < blocks; x->block++, d = end) {
            end = v->d1 - d < KV_BLOCK ? v->d1 : d + KV_BLOCK;
            sums_block(x, (size_t)p->rows, (size_t)d, (size_t)end);
        }
    }
}

void ISA(attn_add_bytes)(const struct attn_sums *to, const float *scores, size_t ld_s, int T,
                         int grow, const struct kv_values *v)
{
    struct sums x; /* most members need no initialisation */
    struct page_rows p;
    _Alignas(64) float scales[PAGE_SLOTS];
    ask_for_scales(v->next, v->D);
    largest_scales(scales, v->page, v->D);
    x.ld = to->ld;
    x.D = (size_t)v->D;
    x.values = v->page;
    x.next = v->next;
    x.keep = p.keep;
    p.ld = ld_s;
    p.grow = grow;
    for (int t = 0; t < T; t += WEIGHT_ROWS) {
        p.scores = scores + (size_t)t * ld_s;
        p.rows = T - t < WEIGHT_ROWS ? T - t : WEIGHT_ROWS;
        p.first = v->n_slots + t * grow;
        weigh_rows(&x, &p, to->sum + t * ATTN_LANES, to->top + t, scales);
        x.out = to->out + (size_t)t * to->ld;
        x.quads = ((size_t)slots_seen(&p, p.rows - 1) + 3) / 4;
        add_blocks(&x, &p, v);
    }
}
