/* kernels_ref_ints.c - the reference of attention over pages of q8_0 and i16 with integer
 * products. */
#include "engine/kernels/ints.h"
#include "engine/kernels/kernels_ref.h"

static struct row_unit unit_of(const float *x, int n, float most)
{
    uint32_t size = 0, bits;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        size = bits > size ? bits : size;
    }
    return row_unit_of(size, most);
}

static int16_t whole(float x, struct row_unit u)
{
    return (int16_t)(u.inverse > 0 ? nearbyintf(x * u.inverse) : 0);
}

/* Quantises n numbers of a row to int16_t; returns their scale. */
static float whole_words(int16_t *out, const float *x, int n)
{
    struct row_unit u = unit_of(x, n, KV_I16_MOST);
    for (int i = 0; i < n; i++)
        out[i] = whole(x[i], u);
    return u.scale;
}

static float whole_bytes(int8_t *out, const float *x, int n, int32_t *ret_sum)
{
    struct row_unit u = unit_of(x, n, KV_Q8_MOST);
    *ret_sum = 0;
    for (int i = 0; i < n; i++) {
        out[i] = (int8_t)whole(x[i], u);
        *ret_sum += out[i];
    }
    return u.scale;
}

/* Returns the end of the block of channels that begins with d0. */
static int block_end(int d0, int block, int D)
{
    return D - d0 < block ? D : d0 + block;
}

static void queries_of_bytes(const struct kv_queries *out, size_t t, const float *x, int D)
{
    int8_t *row = (int8_t *)out->q + t * kv_channels(KV_Q8_0, D);
    size_t at = t * kv_blocks(D);
    memset(row, 0, kv_channels(KV_Q8_0, D));
    for (int d = 0; d < D; d += KV_BLOCK, at++)
        out->scale[at] = whole_bytes(row + d, x + d, block_end(d, KV_BLOCK, D) - d, out->sum + at);
}

void attn_queries_ref(const struct kv_queries *out, const float *q, size_t ld_q, int T, int D)
{
    size_t ld = kv_channels(KV_I16, D);
    for (size_t t = 0; t < (size_t)T; t++) {
        int16_t *row = (int16_t *)out->q + t * ld;
        if (out->type == KV_Q8_0) {
            queries_of_bytes(out, t, q + t * ld_q, D);
            continue;
        }
        row[ld - 1] = 0;
        out->scale[t] = whole_words(row, q + t * ld_q, D);
    }
}

static float score_of_words(const int16_t *q, float q_scale, const void *page, int slot, int D)
{
    const int16_t *keys = page;
    float total = 0;
    for (int d0 = 0, end; d0 < D; d0 = end) {
        int sum = 0;
        end = block_end(d0, INT_CHANNELS, D);
        for (int d = d0; d < end; d++)
            sum += q[d] * keys[kv_key_place(KV_I16, slot, d)];
        float part = (float)sum * kv_i16_scales(keys, D)[slot] * q_scale;
        total = d0 > 0 ? total + part : part;
    }
    return total;
}

static float score_of_bytes(const int8_t *q, const float *q_scales, float scale, const void *page,
                            int slot, int D)
{
    const int8_t *keys = page;
    float total = 0;
    for (int d0 = 0, end; d0 < D; d0 = end) {
        int sum = 0;
        end = block_end(d0, KV_BLOCK, D);
        for (int d = d0; d < end; d++)
            sum += q[d] * keys[kv_key_place(KV_Q8_0, slot, d)];
        int block = d0 / KV_BLOCK;
        float of_key = half_to_float(kv_q8_scales(page, D)[block * PAGE_SLOTS + slot]);
        float part = (float)sum * of_key, of_query = q_scales[block] * scale;
        total = d0 > 0 ? fmaf(part, of_query, total) : part * of_query;
    }
    return total;
}

void attn_scores_ref(float *scores, size_t ld_s, const struct kv_queries *q, int T, int D,
                     const struct kv_keys *k, float scale)
{
    size_t words = kv_channels(KV_I16, D), bytes = kv_channels(KV_Q8_0, D), blocks = kv_blocks(D);
    for (size_t t = 0; t < (size_t)T; t++)
        for (int s = 0; s < PAGE_SLOTS; s++)
            scores[t * ld_s + (size_t)s] = k->type == KV_I16
                                               ? score_of_words((const int16_t *)q->q + t * words,
                                                                q->scale[t] * scale, k->page, s, D)
                                               : score_of_bytes((const int8_t *)q->q + t * bytes,
                                                                q->scale + t * blocks, scale,
                                                                k->page, s, D);
}

void attn_av_ints_ref(float *out, size_t ld_out, const float *p, size_t ld_p, int T,
                      const struct kv_values *v)
{
    const int16_t *values = v->page;
    const float *scales = kv_i16_scales(values, v->D);
    for (int t = 0; t < T; t++) {
        float x[PAGE_SLOTS];
        for (int s = 0; s < v->n_slots; s++)
            x[s] = p[(size_t)t * ld_p + (size_t)s] * scales[s];
        struct row_unit u = unit_of(x, v->n_slots, INT_WEIGHT);
        for (int d = v->d0; d < v->d1; d++) {
            float *o = &out[(size_t)t * ld_out + (size_t)d];
            int sum = 0;
            for (int s = 0; s < v->n_slots; s++)
                sum += whole(x[s], u) * values[kv_value_place(KV_I16, v->D, s, d)];
            *o = fmaf((float)sum, u.scale, *o);
        }
    }
}

static float exp2_of(float t)
{
    t = t > EXP2_LEAST ? t : EXP2_LEAST;
    float n = floorf(t), r = t - n;
    float p = fmaf(fmaf(fmaf(EXP2_C4, r, EXP2_C3), r, EXP2_C2), r, EXP2_C1);
    return ldexpf(fmaf(p, r, 1), (int)n);
}

/* Returns the maximum of a row's scores over the first n slots of a page, times log2(e). */
static float top_of(const float *scores, int n)
{
    float top = ATTN_LEAST;
    for (int s = 0; s < n; s++)
        top = scores[s] > top ? scores[s] : top;
    return top * LOG2_E;
}

/* Adds the weights of a page to ATTN_LANES partial sums; lane i sums the slots i + k ATTN_LANES. */
static void add_weights(float *sum, const float *e, float keep, float part)
{
    for (int i = 0; i < ATTN_LANES; i++) {
        float a = e[i] + e[ATTN_LANES + i], b = e[2 * ATTN_LANES + i] + e[3 * ATTN_LANES + i];
        sum[i] = fmaf(a + b, part, sum[i] * keep);
    }
}

/* Weights e of n slots of a page, and the factors of the previous sums (keep) and of this page
 * (part). */
struct page_sums {
    float e[PAGE_SLOTS];
    int n;
    float keep, part;
};

static float largest(const float *x, int n)
{
    float size = 0;
    for (int s = 0; s < n; s++)
        size = x[s] > size ? x[s] : size;
    return size;
}

static void add_words(float *out, const struct page_sums *p, const struct kv_values *v)
{
    const int16_t *values = v->page;
    float x[PAGE_SLOTS];
    for (int s = 0; s < p->n; s++)
        x[s] = p->e[s] * kv_i16_scales(values, v->D)[s];
    struct row_unit u = weight_unit_of(largest(x, p->n));
    for (int d = v->d0; d < v->d1; d++) {
        int sum = 0;
        for (int s = 0; s < p->n; s++)
            sum += whole(x[s], u) * values[kv_value_place(KV_I16, v->D, s, d)];
        out[d] = fmaf((float)sum, u.scale * p->part, out[d] * p->keep);
    }
}

static float byte_scale(const void *half, int D, int slot, int block)
{
    return half_to_float(kv_q8_scales(half, D)[block * PAGE_SLOTS + slot]);
}

/* Returns one unit for all channels, so that subsets of channels give the same bits. If the maximum
 * is infinite, the scale is not finite. */
static struct row_unit unit_of_bytes(const struct page_sums *p, const struct kv_values *v)
{
    float x[PAGE_SLOTS];
    for (int s = 0; s < p->n; s++) {
        float scale = 0;
        for (int b = 0; b < (int)kv_blocks(v->D); b++)
            scale = fmaxf(scale, byte_scale(v->page, v->D, s, b));
        x[s] = p->e[s] * scale;
    }
    float size = fmaxf(largest(x, p->n), KV_I16_TINY);
    return (struct row_unit){fmaf(size, BYTE_UNIT, size - size), BYTE_WEIGHT / size};
}

/* Returns x rounded to an integer of 0 .. 255; 0 for NaN. */
static int byte_weight(float x)
{
    float w = nearbyintf(x);
    if (!(w > 0))
        return 0;
    return w < BYTE_WEIGHT ? (int)w : (int)BYTE_WEIGHT;
}

static void add_bytes(float *out, const struct page_sums *p, const struct kv_values *v)
{
    const int8_t *values = v->page;
    const struct row_unit u = unit_of_bytes(p, v);
    for (int d = v->d0; d < v->d1; d++) {
        int sum = 0;
        for (int s = 0; s < p->n; s++)
            sum += byte_weight(p->e[s] * u.inverse * byte_scale(values, v->D, s, d / KV_BLOCK))
                   * values[kv_value_place(KV_Q8_0, v->D, s, d)];
        out[d] = fmaf((float)sum, u.scale * p->part, out[d] * p->keep);
    }
}

static void add_row(float *out, float *sum, float *top, const float *scores, int n,
                    const struct kv_values *v)
{
    float of_page = top_of(scores, n), now = *top > of_page ? *top : of_page;
    struct page_sums p = {.n = n, .keep = exp2_of(*top - now), .part = exp2_of(of_page - now)};
    for (int s = 0; s < PAGE_SLOTS; s++)
        p.e[s] = exp2_of(fmaf(s < n ? scores[s] : -INFINITY, LOG2_E, -of_page));
    add_weights(sum, p.e, p.keep, p.part);
    *top = now;
    if (v->type == KV_Q8_0)
        add_bytes(out, &p, v);
    else
        add_words(out, &p, v);
}

void attn_add_ref(const struct attn_sums *to, const float *scores, size_t ld_s, int T, int grow,
                  const struct kv_values *v)
{
    for (int t = 0; t < T; t++) {
        int n = v->n_slots + t * grow;
        n = n < 0 ? 0 : n;
        n = n > PAGE_SLOTS ? PAGE_SLOTS : n;
        add_row(to->out + (size_t)t * to->ld, to->sum + t * ATTN_LANES, to->top + t,
                scores + (size_t)t * ld_s, n, v);
    }
}

void kv_store_ints_ref(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                       const float *v, int D)
{
    int16_t *keys = kpage, *values = vpage;
    struct row_unit of_key = unit_of(k, D, KV_I16_MOST), of_value = unit_of(v, D, KV_I16_MOST);
    keys[kv_key_place(type, slot, (int)kv_channels(type, D) - 1)] = 0; /* padding if D is odd */
    for (int d = 0; d < D; d++) {
        keys[kv_key_place(type, slot, d)] = whole(k[d], of_key);
        values[kv_value_place(type, D, slot, d)] = whole(v[d], of_value);
    }
    kv_i16_scales(kpage, D)[slot] = of_key.scale;
    kv_i16_scales(vpage, D)[slot] = of_value.scale;
}
