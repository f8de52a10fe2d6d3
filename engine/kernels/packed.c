#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/kernels/packed.h"

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023, bits;
    if (exp == 0) { /* zero and subnormals: man * 2^-24, exact in f32 */
        float f = (float)man * 0x1p-24f;
        return sign ? -f : f;
    }
    bits = sign | (exp == 31 ? 0x7f800000u : (exp + 112) << 23) | man << 13;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t float_to_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000u)
        return sign | 0x7e00; /* NaN */
    if (bits >= 0x477ff000u)
        return sign | 0x7c00; /* rounds to infinity */
    if (bits < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        float a;
        memcpy(&a, &bits, 4);
        a = (a + 0.5f) - 0.5f; /* ulp of [0.5, 1) is 2^-24: rounds half to even */
        return sign | (uint16_t)(a * 0x1p24f);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits >> 13) - (112 << 10));
}

static float bf16_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

struct type_info {
    unsigned type;
    const char *name;
    unsigned block, bytes;
};

/* Types that the engine reads have bytes > 0; the others are named only. */
static const struct type_info types[] = {
    {WEIGHT_F32, "F32", 1, 4},
    {WEIGHT_F16, "F16", 1, 2},
    {WEIGHT_BF16, "BF16", 1, 2},
    {WEIGHT_Q4_0, "Q4_0", 32, 18},
    {WEIGHT_Q4_1, "Q4_1", 32, 20},
    {WEIGHT_Q8_0, "Q8_0", 32, 34},
    {6, "Q5_0", 0, 0},
    {7, "Q5_1", 0, 0},
    {9, "Q8_1", 0, 0},
    {10, "Q2_K", 0, 0},
    {11, "Q3_K", 0, 0},
    {12, "Q4_K", 0, 0},
    {13, "Q5_K", 0, 0},
    {14, "Q6_K", 0, 0},
    {15, "Q8_K", 0, 0},
    {24, "I8", 0, 0},
    {25, "I16", 0, 0},
    {26, "I32", 0, 0},
    {27, "I64", 0, 0},
    {28, "F64", 0, 0},
};

static const struct type_info *find_type(unsigned type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

size_t weight_bytes(enum weight_type type, size_t n)
{
    const struct type_info *t = find_type((unsigned)type);
    size_t bytes;
    if (!t || !t->bytes || n % t->block || !mem_mul(n / t->block, t->bytes, &bytes))
        return 0;
    return bytes;
}

const char *weight_type_name(unsigned type)
{
    const struct type_info *t = find_type(type);
    return t ? t->name : "unknown";
}

void weight_dequant(float *out, const void *src, enum weight_type type, size_t n)
{
    const uint8_t *p = src;
    switch (type) {
    case WEIGHT_F32:
        memcpy(out, src, n * 4);
        return;
    case WEIGHT_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = half_to_float(load16(p + 2 * i));
        return;
    case WEIGHT_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = bf16_to_float(load16(p + 2 * i));
        return;
    case WEIGHT_Q8_0:
        for (size_t b = 0; b < n / QBLOCK; b++, p += 34)
            for (int i = 0; i < QBLOCK; i++)
                out[b * QBLOCK + (size_t)i] = half_to_float(load16(p)) * (float)(int8_t)p[2 + i];
        return;
    case WEIGHT_Q4_0:
    case WEIGHT_Q4_1:
        for (size_t b = 0; b < n / QBLOCK; b++) {
            float d = half_to_float(load16(p)), m = -8.0f * d;
            const uint8_t *q = p + 2;
            if (type == WEIGHT_Q4_1) {
                m = half_to_float(load16(p + 2));
                q += 2;
            }
            for (int i = 0; i < QBLOCK; i++) { /* low nibbles first, then high ones */
                int u = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
                out[b * QBLOCK + (size_t)i] = d * (float)u + m;
            }
            p = q + 16;
        }
        return;
    }
}

/* Unsigned values and f16 scale pair of one block of a quantised row. */
static void affine_block(const uint8_t *p, enum weight_type type, uint8_t u[QBLOCK], uint16_t *d,
                         uint16_t *m)
{
    *d = load16(p);
    if (type == WEIGHT_Q8_0) {
        for (int i = 0; i < QBLOCK; i++)
            u[i] = (uint8_t)((int8_t)p[2 + i] + 128);
        *m = float_to_half(-128.0f * half_to_float(*d));
        return;
    }
    const uint8_t *q = p + (type == WEIGHT_Q4_1 ? 4 : 2);
    *m = type == WEIGHT_Q4_1 ? load16(p + 2) : float_to_half(-8.0f * half_to_float(*d));
    for (int i = 0; i < 16; i++) {
        u[i] = q[i] & 15;
        u[i + 16] = q[i] >> 4;
    }
}

static void pack_block(struct packed *w, int row, int block, const uint8_t *src,
                       enum weight_type type)
{
    uint8_t u[QBLOCK];
    uint16_t d, m;
    int panel = row / PANEL, r = row % PANEL;
    size_t at = (size_t)panel * (size_t)w->n_blocks + (size_t)block;
    affine_block(src, type, u, &d, &m);
    w->scale[at * 2 * PANEL + (size_t)r] = d;
    w->scale[at * 2 * PANEL + PANEL + (size_t)r] = m;
    if (w->kind == PACK_Q8) {
        uint8_t *dst = w->data + at * 512;
        for (int k = 0; k < QBLOCK; k++)
            dst[k / 4 * 64 + r * 4 + k % 4] = u[k];
        return;
    }
    uint8_t *dst = w->data + at * 256;
    for (int g = 0; g < 4; g++)
        for (int c = 0; c < 4; c++)
            dst[g * 64 + r * 4 + c] = (uint8_t)(u[8 * g + c] | u[8 * g + 4 + c] << 4);
}

static enum packed_kind kind_of(enum weight_type t, int K)
{
    if (K % QBLOCK == 0 && (t == WEIGHT_Q4_0 || t == WEIGHT_Q4_1))
        return PACK_Q4;
    if (K % QBLOCK == 0 && t == WEIGHT_Q8_0)
        return PACK_Q8;
    if (t == WEIGHT_F16)
        return PACK_F16;
    return t == WEIGHT_BF16 ? PACK_BF16 : PACK_F32;
}

/* -8 d and -128 d must be exact in f16: true unless d is near its largest. */
static int scale_overflows(const struct pack_source *s, int K)
{
    size_t row = weight_bytes(s->type, (size_t)K), step = s->type == WEIGHT_Q8_0 ? 34 : 18;
    if (s->type != WEIGHT_Q8_0 && s->type != WEIGHT_Q4_0)
        return 0;
    float limit = s->type == WEIGHT_Q8_0 ? 511.0f : 8188.0f;
    const uint8_t *p = s->data;
    for (size_t at = 0; at < row * (size_t)s->n_rows; at += step) {
        float d = half_to_float(load16(p + at));
        if (!(d <= limit && d >= -limit))
            return 1;
    }
    return 0;
}

static int choose_kind(const struct pack_source *src, int n_src, int K, int exact, struct packed *w)
{
    w->kind = exact ? PACK_F32 : kind_of(src[0].type, K);
    w->K = K;
    w->N = 0;
    for (int i = 0; i < n_src; i++) {
        w->N += src[i].n_rows;
        if (!exact && (kind_of(src[i].type, K) != w->kind || scale_overflows(&src[i], K)))
            w->kind = PACK_F32;
    }
    w->n_panels = (w->N + PANEL - 1) / PANEL;
    w->n_blocks = w->kind == PACK_Q4 || w->kind == PACK_Q8 ? K / QBLOCK : 0;
    size_t cells = (size_t)w->n_panels * PANEL * (size_t)K;
    static const uint8_t half_bytes[] = {
        [PACK_Q4] = 1, [PACK_Q8] = 2, [PACK_F32] = 8, [PACK_F16] = 4, [PACK_BF16] = 4};
    size_t data = cells * half_bytes[w->kind] / 2;
    size_t scales = (size_t)w->n_panels * (size_t)w->n_blocks * 2 * PANEL;
    w->data = mem_alloc(data, 1);
    w->scale = scales ? mem_alloc(scales, 2) : NULL;
    w->bytes = data + 2 * scales;
    return w->data && (w->scale || !scales) ? KVF_OK : KVF_E_NOMEM;
}

static void pack_float_row(struct packed *w, int row, const uint8_t *src, enum weight_type type,
                           float *tmp)
{
    size_t at = (size_t)(row / PANEL) * (size_t)w->K * PANEL + (size_t)(row % PANEL);
    if (w->kind == PACK_F32)
        weight_dequant(tmp, src, type, (size_t)w->K);
    for (size_t k = 0; k < (size_t)w->K; k++, at += PANEL) {
        if (w->kind == PACK_F32)
            ((float *)(void *)w->data)[at] = tmp[k];
        else
            ((uint16_t *)(void *)w->data)[at] = load16(src + 2 * k);
    }
}

int packed_build(const struct pack_source *src, int n_src, int K, int exact, struct packed *ret)
{
    memset(ret, 0, sizeof *ret);
    float *tmp = mem_alloc((size_t)K, sizeof *tmp);
    int err = tmp ? choose_kind(src, n_src, K, exact, ret) : KVF_E_NOMEM;
    if (err) {
        mem_free(tmp);
        packed_finish(ret);
        return err;
    }
    int row = 0;
    for (int i = 0; i < n_src; i++) {
        size_t row_bytes = weight_bytes(src[i].type, (size_t)K);
        for (int r = 0; r < src[i].n_rows; r++, row++) {
            const uint8_t *p = (const uint8_t *)src[i].data + (size_t)r * row_bytes;
            if (!ret->n_blocks)
                pack_float_row(ret, row, p, src[i].type, tmp);
            for (int b = 0; b < ret->n_blocks; b++)
                pack_block(ret, row, b, p + (size_t)b * (row_bytes / (size_t)ret->n_blocks),
                           src[i].type);
        }
    }
    mem_free(tmp);
    return KVF_OK;
}

void packed_finish(struct packed *p)
{
    mem_free(p->data);
    mem_free(p->scale);
    memset(p, 0, sizeof *p);
}
