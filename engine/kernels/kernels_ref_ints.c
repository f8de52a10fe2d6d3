/* kernels_ref_ints.c - attention over pages of i16, in whole numbers. */
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

void attn_queries_ref(const struct kv_queries *out, const float *q, size_t ld_q, int T, int D)
{
    size_t ld = 2 * kv_pairs(D);
    for (int t = 0; t < T; t++) {
        int16_t *row = out->q + (size_t)t * ld;
        row[ld - 1] = 0;
        const float *x = q + (size_t)t * ld_q;
        struct row_unit u = unit_of(x, D, KV_I16_MOST);
        for (int d = 0; d < D; d++)
            row[d] = whole(x[d], u);
        out->scale[t] = u.scale;
    }
}

static float score(const int16_t *q, float q_scale, const struct kv_keys *k, int slot, int D)
{
    const int16_t *keys = k->page;
    float total = 0;
    for (int d0 = 0; d0 < D; d0 += INT_CHANNELS) {
        int sum = 0, end = D - d0 < INT_CHANNELS ? D : d0 + INT_CHANNELS;
        for (int d = d0; d < end; d++)
            sum += q[d] * keys[kv_i16_key(slot, d)];
        float part = (float)sum * kv_i16_scales(keys, D)[slot] * q_scale;
        total = d0 > 0 ? total + part : part;
    }
    return total;
}

void attn_scores_ref(float *scores, size_t ld_s, const struct kv_queries *q, int T, int D,
                     const struct kv_keys *k, float scale)
{
    size_t ld = 2 * kv_pairs(D);
    for (int t = 0; t < T; t++)
        for (int s = 0; s < PAGE_SLOTS; s++)
            scores[(size_t)t * ld_s + (size_t)s] = score(q->q + (size_t)t * ld, q->scale[t] * scale,
                                                         k, s, D);
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
                sum += whole(x[s], u) * values[kv_i16_value(v->D, s, d)];
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

/* A page's scores of one row, of which n slots are seen. */
static float top_of(const float *scores, int n)
{
    float top = ATTN_LEAST;
    for (int s = 0; s < n; s++)
        top = scores[s] > top ? scores[s] : top;
    return top * LOG2_E;
}

/* The parts of the sum of a page's weights: of slots ATTN_LANES apart. */
static void add_weights(float *sum, const float *e, float keep, float part)
{
    for (int i = 0; i < ATTN_LANES; i++) {
        float a = e[i] + e[ATTN_LANES + i], b = e[2 * ATTN_LANES + i] + e[3 * ATTN_LANES + i];
        sum[i] = fmaf(a + b, part, sum[i] * keep);
    }
}

static void add_row(float *out, float *sum, float *top, const float *scores, int n,
                    const struct kv_values *v)
{
    const int16_t *values = v->page;
    float e[PAGE_SLOTS], x[PAGE_SLOTS];
    float of_page = top_of(scores, n), now = *top > of_page ? *top : of_page;
    float keep = exp2_of(*top - now), part = exp2_of(of_page - now);
    for (int s = 0; s < PAGE_SLOTS; s++) {
        e[s] = exp2_of(fmaf(s < n ? scores[s] : -INFINITY, LOG2_E, -of_page));
        x[s] = s < n ? e[s] * kv_i16_scales(values, v->D)[s] : 0;
    }
    add_weights(sum, e, keep, part);
    *top = now;
    float size = 0;
    for (int s = 0; s < n; s++)
        size = x[s] > size ? x[s] : size;
    struct row_unit u = weight_unit_of(size);
    for (int d = v->d0; d < v->d1; d++) {
        int whole_sum = 0;
        for (int s = 0; s < n; s++)
            whole_sum += whole(x[s], u) * values[kv_i16_value(v->D, s, d)];
        out[d] = fmaf((float)whole_sum, u.scale * part, out[d] * keep);
    }
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
    (void)type;
    keys[kv_i16_key(slot, 2 * (int)kv_pairs(D) - 1)] = 0; /* stays where D is odd */
    for (int d = 0; d < D; d++) {
        keys[kv_i16_key(slot, d)] = whole(k[d], of_key);
        values[kv_i16_value(D, slot, d)] = whole(v[d], of_value);
    }
    kv_i16_scales(kpage, D)[slot] = of_key.scale;
    kv_i16_scales(vpage, D)[slot] = of_value.scale;
}
