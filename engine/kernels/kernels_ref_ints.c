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
