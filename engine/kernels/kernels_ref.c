/* kernels_ref.c - the C reference kernels of inference: norms, matrix products, attention and
 * selected sets. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/kernels_ref.h"
#include "engine/kernels/ranking.h"

void rmsnorm_ref(float *out, const float *x, const float *w, int T, int C, float eps)
{
    for (int t = 0; t < T; t++, x += C, out += C) {
        double square = 0;
        for (int c = 0; c < C; c++)
            square += (double)x[c] * (double)x[c];
        float scale = (float)(1.0 / sqrt(square / C + (double)eps));
        for (int c = 0; c < C; c++)
            out[c] = x[c] * scale * w[c];
    }
}

/* Quantises one block of x; returns the sums of its halves in sum[2]. */
static void quant_row_block(const struct qrows *out, size_t b, const float *x, int sum[2])
{
    const float most = out->hi_alone ? QROWS_MAX_8 : QROWS_MAX;
    float max = 0;
    for (int i = 0; i < QBLOCK; i++)
        max = fmaxf(max, fabsf(x[i]));
    if (max < QROWS_TINY)
        max = 0;
    float inverse = max > 0 ? most / max : 0;
    int8_t *hi = out->q + b * qrows_bytes(out), *lo = hi + QBLOCK;
    for (int i = 0; i < QBLOCK; i++) {
        int q = (int)fminf(fmaxf(nearbyintf(x[i] * inverse), -most), most);
        sum[i / (QBLOCK / 2)] += q;
        if (out->hi_alone) {
            hi[i] = (int8_t)q;
            continue;
        }
        lo[i] = (int8_t)(((q + 128) & 255) - 128);
        hi[i] = (int8_t)((q - lo[i]) / 256);
    }
    out->scale[b] = max / most;
}

void quant_rows_ref(struct qrows *out, const float *x, int T, int K)
{
    size_t n_blocks = (size_t)T * (size_t)K / QBLOCK;
    for (size_t b = 0; b < n_blocks; b++) {
        int sum[2] = {0, 0};
        quant_row_block(out, b, x + b * QBLOCK, sum);
        qrows_sums(out, b, sum[0], sum[1]);
    }
}

static int weight_u(const struct packed *w, size_t at, int r, int k)
{
    int bits = packed_bits(w->kind), n_high = bits - 4, g = k / 4;
    const uint8_t *from = w->data + at * 64 * (size_t)bits + r * 4 + k % 4;
    if (bits == 8)
        return from[g * 64];
    int low = from[g / 2 * 64] >> g % 2 * 4 & 15;
    int high = n_high ? from[256 + g * n_high / 8 * 64] >> g * n_high % 8 : 0;
    return low | (high & ((1 << n_high) - 1)) << 4;
}

/* Sets d and m of half h of a block. */
static void scales(const struct packed *w, size_t at, int h, int r, float *d, float *m)
{
    size_t step = w->lowest ? PANEL : 2 * PANEL;
    const uint16_t *scale = w->scale + at / (size_t)w->super * step + r;
    size_t part = (at * (size_t)w->n_fine + (size_t)h) * step + (size_t)r;
    *d = half_to_float(scale[0]);
    if (w->n_fine)
        *d *= (float)w->fine[part];
    *m = w->lowest ? (float)w->lowest * *d : half_to_float(scale[PANEL]);
    if (w->n_fine && !w->lowest)
        *m *= (float)w->fine[part + PANEL];
}

/* Returns the dot product of channels [k0, k1) of block `at` of output r with a quantised block of
 * x. */
static int dot_block(const struct packed *w, size_t at, int r, const int8_t *hi, bool hi_alone,
                     int k0, int k1)
{
    int sum = 0;
    for (int k = k0; k < k1; k++)
        sum += weight_u(w, at, r, k) * (hi_alone ? hi[k] : 256 * hi[k] + hi[QBLOCK + k]);
    return sum;
}

/* For each block, or each half of it: acc = fma(d * s_x, sum u q, acc); acc = fma(m, sum_x, acc).
 * With integer `low` sums it is one step: acc = fma(d * s_x, sum u q + low, acc). */
static float dot_q(const struct packed *w, int panel, int r, const struct qrows *x, int t)
{
    size_t nb = (size_t)w->n_blocks;
    int parts = w->n_fine == 2 ? 2 : 1, n = QBLOCK / parts;
    float acc = 0, d, m;
    for (size_t b = 0; b < nb; b++) {
        size_t at = (size_t)panel * nb + b, row = (size_t)t * nb + b;
        const int8_t *q = x->q + row * qrows_bytes(x);
        for (int h = 0; h < parts; h++) {
            size_t of_part = row * (size_t)parts + (size_t)h;
            int sum = dot_block(w, at, r, q, x->hi_alone, h * n, (h + 1) * n);
            scales(w, at, h, r, &d, &m);
            if (qrows_low(x))
                sum += (parts == 2 ? x->half_low : x->low)[of_part];
            acc = fmaf(d * x->scale[row], (float)sum, acc);
            if (!qrows_low(x))
                acc = fmaf(m, (parts == 2 ? x->half : x->sum)[of_part], acc);
        }
    }
    return acc;
}

void matmul_q_ref(float *out, size_t ld_out, const struct qrows *x, int T, const struct packed *w,
                  int panel0, int n_panels)
{
    for (int t = 0; t < T; t++)
        for (int p = panel0; p < panel0 + n_panels; p++)
            for (int r = 0; r < PANEL; r++)
                out[(size_t)t * ld_out + (size_t)(p * PANEL + r)] = dot_q(w, p, r, x, t);
}

static float weight_f(const struct packed *w, int panel, int k, int r)
{
    size_t at = ((size_t)panel * (size_t)w->K + (size_t)k) * PANEL + (size_t)r;
    if (w->kind == PACK_F32)
        return ((const float *)(const void *)w->data)[at];
    uint16_t h = ((const uint16_t *)(const void *)w->data)[at];
    if (w->kind == PACK_F16)
        return half_to_float(h);
    return brain_to_float(h);
}

void matmul_f_ref(float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                  const struct packed *w, int panel0, int n_panels)
{
    for (int t = 0; t < T; t++)
        for (int p = panel0; p < panel0 + n_panels; p++)
            for (int r = 0; r < PANEL; r++) {
                float acc = 0;
                for (int k = 0; k < w->K; k++)
                    acc = fmaf(x[(size_t)t * ld_x + (size_t)k], weight_f(w, p, k, r), acc);
                out[(size_t)t * ld_out + (size_t)(p * PANEL + r)] = acc;
            }
}

void rope_ref(float *x, const float *cos_sin, int n_heads, int D, int n_rot)
{
    for (int h = 0; h < n_heads; h++, x += D)
        for (int j = 0; j < n_rot / 2; j++) {
            float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], a = x[2 * j], b = x[2 * j + 1];
            x[2 * j] = a * c - b * s;
            x[2 * j + 1] = a * s + b * c;
        }
}

void swiglu_ref(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void geglu_ref(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) {
        float g = gate[i], u = 0.7978845608f * (g + 0.044715f * g * g * g);
        out[i] = 0.5f * g * (1.0f + tanhf(u)) * up[i];
    }
}

void soft_cap_ref(float *x, int n, float cap)
{
    for (int i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

void add_ref(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

void attn_qk_ref(float *scores, size_t ld_s, const float *q, size_t ld_q, int T, int D,
                 const struct kv_keys *k, float scale)
{
    for (int t = 0; t < T; t++)
        for (int s = 0; s < PAGE_SLOTS; s++) {
            float acc = 0;
            for (int d = 0; d < D; d++)
                acc = fmaf(q[(size_t)t * ld_q + (size_t)d], kv_key_at(k->page, k->type, D, s, d),
                           acc);
            scores[(size_t)t * ld_s + (size_t)s] = acc * scale;
        }
}

void attn_av_ref(float *out, size_t ld_out, const float *p, size_t ld_p, int T,
                 const struct kv_values *v)
{
    if (v->type == KV_I16) {
        attn_av_ints_ref(out, ld_out, p, ld_p, T, v);
        return;
    }
    for (int t = 0; t < T; t++)
        for (int s = 0; s < v->n_slots; s++)
            for (int d = v->d0; d < v->d1; d++) {
                float *o = &out[(size_t)t * ld_out + (size_t)d];
                float value = kv_value_at(v->page, v->type, v->D, s, d);
                *o = fmaf(p[(size_t)t * ld_p + (size_t)s], value, *o);
            }
}

static float row_max(const float *s, int n)
{
    float max = s[0];
    for (int i = 1; i < n; i++)
        max = fmaxf(max, s[i]);
    return max;
}

float softmax_ref(float *s, int n, float *entropy)
{
    float max = row_max(s, n);
    double sum = 0, moment = 0; /* sum of exp(d), of -exp(d) d */
    for (int i = 0; i < n; i++) {
        float d = s[i] - max;
        s[i] = expf(d);
        sum += (double)s[i];
        moment -= s[i] > 0 ? (double)s[i] * (double)d : 0;
    }
    float inverse = (float)(1.0 / sum);
    for (int i = 0; i < n; i++)
        s[i] *= inverse;
    if (entropy)
        *entropy = (float)(log(sum) + moment / sum);
    return max + (float)log(sum);
}

float log_sum_exp_ref(const float *s, int n)
{
    float max = row_max(s, n);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)expf(s[i] - max);
    return max + (float)log(sum);
}

/* Quantises a block of n numbers to the places place[0..n) of an entry and sets its f16 scale. */
static void quant_block(const float *x, int n, int8_t *q, const size_t *place, uint16_t *ret_scale)
{
    float max = 0;
    for (int i = 0; i < n; i++)
        max = isnan(x[i]) ? INFINITY : fmaxf(max, fabsf(x[i]));
    *ret_scale = float_to_half(max / 127);
    float scale = half_to_float(*ret_scale);
    for (int i = 0; i < n; i++) {
        float r = scale > 0 && scale < INFINITY ? nearbyintf(x[i] / scale) : 0;
        q[place[i]] = (int8_t)fmaxf(fminf(r, 127), -127);
    }
}

static void store_blocks(void *kpage, void *vpage, int slot, const float *k, const float *v, int D)
{
    int8_t *keys = kpage;
    for (int d = D; d < (int)kv_channels(KV_Q8_0, D); d++)
        keys[kv_key_place(KV_Q8_0, slot, d)] = 0;
    for (int d = 0; d < D; d += KV_BLOCK) {
        size_t key[KV_BLOCK], value[KV_BLOCK];
        int n = D - d < KV_BLOCK ? D - d : KV_BLOCK, at = d / KV_BLOCK * PAGE_SLOTS + slot;
        for (int i = 0; i < n; i++) {
            key[i] = kv_key_place(KV_Q8_0, slot, d + i);
            value[i] = kv_value_place(KV_Q8_0, D, slot, d + i);
        }
        quant_block(k + d, n, keys, key, &kv_q8_scales(kpage, D)[at]);
        quant_block(v + d, n, vpage, value, &kv_q8_scales(vpage, D)[at]);
    }
}

void kv_store_ref(void *kpage, void *vpage, enum kv_type type, int slot, const float *k,
                  const float *v, int D)
{
    if (type == KV_Q8_0) {
        store_blocks(kpage, vpage, slot, k, v, D);
        return;
    }
    if (type == KV_I16) {
        kv_store_ints_ref(kpage, vpage, type, slot, k, v, D);
        return;
    }
    for (int d = 0; d < D; d++) {
        size_t ka = (size_t)d * PAGE_SLOTS + (size_t)slot,
               va = (size_t)slot * (size_t)D + (size_t)d;
        if (type == KV_F16) {
            ((uint16_t *)kpage)[ka] = float_to_half(k[d]);
            ((uint16_t *)vpage)[va] = float_to_half(v[d]);
        } else {
            ((float *)kpage)[ka] = k[d];
            ((float *)vpage)[va] = v[d];
        }
    }
}

void mass_add_ref(double *sum, float *max, const float *p, int n)
{
    for (int i = 0; i < n; i++) {
        sum[i] += (double)p[i];
        if (max)
            max[i] = fmaxf(max[i], p[i]);
    }
}

struct weight_at {
    float p;
    int i;
};

static int heavier_first(const void *a, const void *b)
{
    const struct weight_at *x = a, *y = b;
    return weight_before(x->p, x->i, y->p, y->i) ? -1 : weight_before(y->p, y->i, x->p, x->i);
}

size_t row_cuts_scratch(int n)
{
    return ((size_t)n + 64) * 2 * sizeof(struct weight_at);
}

/* Returns the cut that selects the first m of the n sorted entries. */
static struct row_cut cut_after(const struct weight_at *w, int n, int m)
{
    if (m == n)
        return (struct row_cut){0, 0, n};
    bool splits_ties = w[m].p == w[m - 1].p;
    return (struct row_cut){w[m - 1].p, splits_ties ? w[m - 1].i : 0, m};
}

void row_cuts_ref(const float *p, int n, const int *top_k, int n_top, const double *tau, int n_tau,
                  struct row_cut *out, void *scratch)
{
    struct weight_at *w = scratch;
    int64_t total = 0, mass = 0;
    for (int i = 0; i < n; i++) {
        w[i] = (struct weight_at){p[i], i};
        total += mass_units(p[i]);
    }
    qsort(w, (size_t)n, sizeof *w, heavier_first);
    for (int c = 0; c < n_top; c++)
        out[c] = cut_after(w, n, top_k[c] < n ? top_k[c] : n);
    for (int c = 0, i = 0; c < n_tau; c++) {
        while (i < n && (total == 0 || (double)mass < tau[c] * (double)total))
            mass += mass_units(w[i++].p);
        out[n_top + c] = cut_after(w, n, i);
    }
}

void mark_ref(void *last, int width, const float *p, int n, const struct row_cut *cut, uint32_t t)
{
    for (int i = 0; i < n; i++) {
        if (p[i] < cut->threshold || (p[i] == cut->threshold && i < cut->first_tie))
            continue;
        if (width == 2)
            ((uint16_t *)last)[i] = (uint16_t)t;
        else
            ((uint32_t *)last)[i] = t;
    }
}

void member_bits_ref(uint64_t *bits, size_t ld, const float *p, int n, const struct row_cut *cut,
                     int n_cuts)
{
    for (int c = 0; c < n_cuts; c++, bits += ld) {
        memset(bits, 0, ((size_t)n + 63) / 64 * sizeof *bits);
        for (int i = 0; i < n; i++)
            bits[i / 64] |= (uint64_t)row_cut_has(&cut[c], p[i], i) << i % 64;
    }
}

int count_below_ref(const float *p, int n, float bar)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += p[i] < bar;
    return count;
}

void mass_add_rows_ref(double *sum, float *max, const struct weight_rows *rows)
{
    for (int r = 0; r < rows->n_rows; r++)
        mass_add_ref(sum, max, rows->p + (size_t)r * rows->ld, rows->n + r);
}

void mark_rows_ref(void *const *last, int width, const struct weight_rows *rows,
                   const struct row_cut *cut, int n_cuts, uint32_t t)
{
    for (int r = 0; r < rows->n_rows; r++)
        for (int c = 0; c < n_cuts; c++)
            mark_ref(last[c], width, rows->p + (size_t)r * rows->ld, rows->n + r,
                     &cut[r * n_cuts + c], t + (uint32_t)r);
}
