/* attention_ints.c - attention over pages of i16 with integer products. Sums of products of 16-bit
 * pairs are exact, so every instruction set gives the bits of the reference. */
#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/vector/page_weights.h"
#include "engine/kernels/vector/sets.h"

/* Tile sizes as for float products (attention.c). Scores use all slots of a page and few rows,
 * because their tiles are shorter. */
enum {
    TILE_ROWS = KERNELS_AVX512 ? 8 : 4,
    TILE_VECS = 2,
    FEW_ROWS = 4,
    FEW_VECS = KERNELS_AVX512 ? 4 : 2, /* for two to four rows */
    VECS = 4
};

/* Quantises a row of n floats, n a multiple of 2 W; returns its scale. */
INLINE float whole_row(int16_t *out, const float *x, size_t n, float most)
{
    const struct row_unit u = unit_of(x, n, most);
    const vec inverse = v_set(u.inverse);
    for (size_t i = 0; i < n; i += 2 * W)
        v_store_words(out + i, v_mul(v_load(x + i), inverse), v_mul(v_load(x + i + W), inverse));
    if (!(u.inverse > 0))
        memset(out, 0, n * sizeof *out);
    return u.scale;
}

void ISA(attn_queries)(const struct kv_queries *out, const float *q, size_t ld_q, int T, int D)
{
    size_t n = (size_t)D;
    if (out->type == KV_Q8_0) {
        ISA(attn_queries_bytes)(out, q, ld_q, T, D);
        return;
    }
    if (n % (2 * W)) {
        attn_queries_ref(out, q, ld_q, T, D);
        return;
    }
    for (size_t t = 0; t < (size_t)T; t++)
        out->scale[t] = whole_row((int16_t *)out->q + t * n, q + t * ld_q, n, KV_I16_MOST);
}

/* Products of R rows with N vectors of pairs from y on, summed over pairs [from, end). Pairs are 2
 * numbers apart in x and ld_y pairs apart in y. next: data to prefetch with the layout of y, or
 * NULL. */
struct pairs {
    const int16_t *x;
    size_t ld_x;
    const int32_t *y;
    size_t ld_y, from, end;
    const int32_t *next;
};

INLINE void add_pairs(ints sum[TILE_ROWS][VECS], const struct pairs *p, const int R, const int N)
{
    UNROLL
    for (int i = 0; i < R * N; i++)
        sum[i / N][i % N] = i_zero();
    for (size_t k = p->from; k < p->end; k++) {
        ints y[VECS];
        UNROLL
        for (int v = 0; v < N; v++)
            y[v] = i_load(p->y + k * p->ld_y + v * W);
        for (int i = 0; p->next && i < N * W; i += 16)
            __builtin_prefetch(p->next + k * p->ld_y + i, 0, 2);
        UNROLL
        for (int r = 0; r < R; r++) {
            ints x = i_pair(p->x + (size_t)r * p->ld_x + 2 * k);
            UNROLL
            for (int v = 0; v < N; v++)
                sum[r][v] = i_dot(sum[r][v], x, y[v]);
        }
    }
}

/* Scores of R queries and N vectors of slots for some pairs of channels. */
struct scores {
    float *out;
    size_t ld;
    const struct kv_queries *q;
    const int32_t *keys, *next;
    const float *key_scales;
    size_t row; /* index of the first query; then: pairs of a row, and the range to sum */
    size_t pairs, from, end;
    float scale;
};

INLINE void scores_tile(const struct scores *x, size_t s0, const int R, const int N)
{
    ints sum[TILE_ROWS][VECS];
    const struct pairs p = {.x = (const int16_t *)x->q->q + x->row * 2 * x->pairs,
                            .ld_x = 2 * x->pairs,
                            .y = x->keys + s0,
                            .ld_y = PAGE_SLOTS,
                            .from = x->from,
                            .end = x->end,
                            .next = x->next && x->row == 0 ? x->next + s0 : NULL};
    add_pairs(sum, &p, R, N);
    UNROLL
    for (int i = 0; i < R * N; i++) {
        size_t r = x->row + (size_t)(i / N), s = s0 + (size_t)(i % N * W);
        float *out = x->out + r * x->ld + s;
        vec part = v_mul(v_mul(i_to_vec(sum[i / N][i % N]), v_load(x->key_scales + s)),
                         v_set(x->q->scale[r] * x->scale));
        v_store(out, x->from > 0 ? v_add(v_load(out), part) : part);
    }
}

INLINE void scores_rows(const struct scores *x, const int R, const int N)
{
    for (size_t s0 = 0; s0 < PAGE_SLOTS; s0 += (size_t)(N * W))
        scores_tile(x, s0, R, N);
}

/* Prefetches scales. They follow the elements, but sums need them first. */
INLINE void ask_for_scales(const void *next, int D)
{
    for (int i = 0; next && i < PAGE_SLOTS; i += 16)
        __builtin_prefetch(kv_i16_scales(next, D) + i, 0, 2);
}

static void scores_part(struct scores *x, size_t rows)
{
    size_t R;
    for (x->row = 0; x->row < rows; x->row += R) {
        R = rows - x->row < FEW_ROWS ? rows - x->row : FEW_ROWS;
        if (R == FEW_ROWS)
            scores_rows(x, FEW_ROWS, FEW_VECS);
        else if (R == 3)
            scores_rows(x, 3, FEW_VECS);
        else if (R == 2)
            scores_rows(x, 2, FEW_VECS);
        else
            scores_rows(x, 1, VECS);
    }
}

void ISA(attn_scores)(float *scores, size_t ld_s, const struct kv_queries *q, int T, int D,
                      const struct kv_keys *k, float scale)
{
    struct scores x = {.out = scores,
                       .ld = ld_s,
                       .q = q,
                       .keys = k->page,
                       .next = k->next,
                       .key_scales = kv_i16_scales(k->page, D),
                       .pairs = kv_channels(KV_I16, D) / 2,
                       .scale = scale};
    if (k->type == KV_Q8_0) {
        ISA(attn_scores_bytes)(scores, ld_s, q, T, D, k, scale);
        return;
    }
    ask_for_scales(k->next, D);
    for (; x.from < x.pairs; x.from = x.end) {
        x.end = x.pairs - x.from < INT_CHANNELS / 2 ? x.pairs : x.from + INT_CHANNELS / 2;
        scores_part(&x, (size_t)T);
    }
}

/* Quantises the weights of one row times the scales of n slots, padded with 0; returns the
 * scale. */
INLINE float whole_weights(int16_t *out, const float *p, const float *scales, const int n)
{
    vec x[PAGE_SLOTS / W];
    ints size = i_zero();
    UNROLL
    for (int i = 0; i < PAGE_SLOTS / W; i++) {
        int left = n > i * W ? n - i * W : 0;
        if (n == PAGE_SLOTS)
            x[i] = v_mul(v_load(p + i * W), v_load(scales + i * W));
        else
            x[i] = v_mul(v_load_in(first_lanes(left), p + i * W),
                         v_load_in(first_lanes(left), scales + i * W));
        size = i_max(size, v_size(x[i]));
    }
    const struct row_unit u = row_unit_of((uint32_t)i_top(size), INT_WEIGHT);
    const vec inverse = v_set(u.inverse);
    UNROLL
    for (int i = 0; i < PAGE_SLOTS / W; i += 2)
        v_store_words(out + i * W, v_mul(x[i], inverse), v_mul(x[i + 1], inverse));
    if (!(u.inverse > 0))
        memset(out, 0, PAGE_SLOTS * sizeof *out);
    return u.scale;
}

/* Quantised weights of some rows: weight = w * scale. `keep` is the factor of the previous sums. */
struct weights {
    _Alignas(64) int16_t w[WEIGHT_ROWS][PAGE_SLOTS];
    float scale[WEIGHT_ROWS], keep[WEIGHT_ROWS];
};

/* Quantised weights of some rows, and the output sums. */
struct sums {
    float *out;
    size_t ld;
    const struct kv_values *v;
    size_t pairs; /* pairs of slots */
    const struct weights *of;
};

/* Rows from r0 on times N vectors of W channels from channel d on. */
INLINE void sums_tile(const struct sums *x, size_t r0, size_t d, const int R, const int N)
{
    ints sum[TILE_ROWS][VECS];
    const int32_t *next = x->v->next;
    const struct pairs p = {.x = x->of->w[r0],
                            .ld_x = PAGE_SLOTS,
                            .y = (const int32_t *)x->v->page + d,
                            .ld_y = (size_t)x->v->D,
                            .end = x->pairs,
                            .next = next && r0 == 0 ? next + d : NULL};
    float *row = x->out + r0 * x->ld + d;
    const float *scale = x->of->scale + r0, *keep = x->of->keep + r0;
    const size_t ld = x->ld;
    add_pairs(sum, &p, R, N);
    UNROLL
    for (int i = 0; i < R * N; i++) {
        float *out = row + (size_t)(i / N) * ld + (size_t)(i % N * W);
        vec before = v_mul(v_load(out), v_set(keep[i / N]));
        v_store(out, v_fma(i_to_vec(sum[i / N][i % N]), v_set(scale[i / N]), before));
    }
}

INLINE void sums_rows(const struct sums *x, size_t r0, const int R, const int N)
{
    size_t d = (size_t)x->v->d0, end = (size_t)x->v->d1, span = (size_t)(N * W);
    for (; d + span <= end; d += span)
        sums_tile(x, r0, d, R, N);
    for (; N > 2 && d + 2 * W <= end; d += 2 * W)
        sums_tile(x, r0, d, R, 2);
    for (; d < end; d += W)
        sums_tile(x, r0, d, R, 1);
}

static void sums_of(const struct sums *x, size_t rows)
{
    size_t R;
    for (size_t r = 0; r < rows; r += R) {
        R = rows - r < FEW_ROWS ? rows - r : FEW_ROWS;
        R = rows - r < TILE_ROWS ? R : TILE_ROWS;
        if (R > FEW_ROWS)
            sums_rows(x, r, TILE_ROWS, TILE_VECS);
        else if (R == FEW_ROWS)
            sums_rows(x, r, FEW_ROWS, FEW_VECS);
        else if (R == 3)
            sums_rows(x, r, 3, FEW_VECS);
        else if (R == 2)
            sums_rows(x, r, 2, FEW_VECS);
        else
            sums_rows(x, r, 1, VECS);
    }
}

void ISA(attn_av_ints)(float *out, size_t ld_out, const float *p, size_t ld_p, int T,
                       const struct kv_values *v)
{
    const float *scales = kv_i16_scales(v->page, v->D);
    struct weights w;
    struct sums x = {
        .out = out, .ld = ld_out, .v = v, .pairs = ((size_t)v->n_slots + 1) / 2, .of = &w};
    ask_for_scales(v->next, v->D);
    for (size_t rows = (size_t)T, n; rows > 0; rows -= n) {
        n = rows < WEIGHT_ROWS ? rows : WEIGHT_ROWS;
        for (size_t r = 0; r < n; r++, p += ld_p) {
            w.keep[r] = 1;
            w.scale[r] = v->n_slots == PAGE_SLOTS ? whole_weights(w.w[r], p, scales, PAGE_SLOTS)
                                                  : whole_weights(w.w[r], p, scales, v->n_slots);
        }
        sums_of(&x, n);
        x.out += n * ld_out;
    }
}

INLINE void whole_row_of(int16_t *out, const float *x, float inverse)
{
    UNROLL
    for (int i = 0; i < PAGE_VECS; i += 2)
        v_store_words(out + i * W, v_mul(v_load(x + i * W), v_set(inverse)),
                      v_mul(v_load(x + (i + 1) * W), v_set(inverse)));
    if (!(inverse > 0))
        memset(out, 0, PAGE_SLOTS * sizeof *out);
}

static void page_weights(struct weights *ret, struct page_rows *p, float *sum, float *top,
                         const float *scales)
{
    weigh_all(p, sum, top, scales, false);
    for (int r = 0; r < p->rows; r++) {
        const struct row_unit u = weight_unit_of(p->size[r]);
        ret->keep[r] = p->keep[r];
        ret->scale[r] = u.scale * p->part[r];
        whole_row_of(ret->w[r], p->x[r], u.inverse);
    }
}

void ISA(attn_add)(const struct attn_sums *to, const float *scores, size_t ld_s, int T, int grow,
                   const struct kv_values *v)
{
    struct weights w;
    struct page_rows p; /* most members need no initialisation */
    struct sums x = {.ld = to->ld, .v = v, .of = &w};
    if (v->D % W || (v->d1 - v->d0) % W) {
        attn_add_ref(to, scores, ld_s, T, grow, v);
        return;
    }
    if (v->type == KV_Q8_0) {
        ISA(attn_add_bytes)(to, scores, ld_s, T, grow, v);
        return;
    }
    ask_for_scales(v->next, v->D);
    p.ld = ld_s;
    p.grow = grow;
    for (int t = 0; t < T; t += WEIGHT_ROWS) {
        p.scores = scores + (size_t)t * ld_s;
        p.rows = T - t < WEIGHT_ROWS ? T - t : WEIGHT_ROWS;
        p.first = v->n_slots + t * grow;
        page_weights(&w, &p, to->sum + t * ATTN_LANES, to->top + t, kv_i16_scales(v->page, v->D));
        x.out = to->out + (size_t)t * to->ld;
        x.pairs = ((size_t)slots_seen(&p, p.rows - 1) + 1) / 2;
        sums_of(&x, (size_t)p.rows);
    }
}

/* Quantises and stores a row, either to every other place (as values are laid out) or pair by pair;
 * returns its scale. */
INLINE float store_row(int16_t *to, size_t ld_pair, size_t step, const float *x, size_t n)
{
    const struct row_unit u = unit_of(x, n, KV_I16_MOST);
    const vec inverse = v_set(u.inverse);
    for (size_t i = 0; i < n; i += 2 * W) {
        int16_t h[2 * W] = {0};
        if (u.inverse > 0)
            v_store_words(h, v_mul(v_load(x + i), inverse), v_mul(v_load(x + i + W), inverse));
        for (size_t j = 0; j < 2 * W; j += 2) {
            int16_t *pair = to + (i + j) / 2 * ld_pair;
            pair[0] = h[j];
            pair[step] = h[j + 1];
        }
    }
    return u.scale;
}

void ISA(kv_store_ints)(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                        const float *v, int D)
{
    int16_t *keys = kpage, *values = vpage;
    size_t n = (size_t)D;
    if (n % (2 * W)) {
        kv_store_ints_ref(kpage, vpage, type, slot, k, v, D);
        return;
    }
    kv_i16_scales(kpage, D)[slot] = store_row(keys + kv_key_place(type, slot, 0), 2 * PAGE_SLOTS, 1,
                                              k, n);
    kv_i16_scales(vpage, D)[slot] = store_row(values + kv_value_place(type, D, slot, 0), 4, 2, v,
                                              n);
}
