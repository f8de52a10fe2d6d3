/* blocks.c - decoders of the quantised block formats.
 *
 * In every decoder i is the channel within a span of 32. Blocks of 256 channels ("K" formats) have
 * two f16 scales for the block and small integer scales for each 16 or 32 channels.
 * docs/reference/parity.md cites the pages that define the formats. */
#include <string.h>

#include "engine/kernels/blocks.h"

enum { HALF = QBLOCK / 2 };

static uint16_t load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* Returns number i of 32 packed in 16 bytes: the low nibbles of all bytes, then the high
 * nibbles. */
static int nibble(const uint8_t *q, int i)
{
    return i < HALF ? q[i] & 15 : q[i - HALF] >> 4;
}

/* Unpacks the 32 nibbles of 16 bytes and subtracts `zero` from each. */
static void nibbles(int8_t out[QBLOCK], const uint8_t *q, int zero)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (int8_t)((q[i] & 15) - zero);
        out[i + HALF] = (int8_t)((q[i] >> 4) - zero);
    }
}

/* Sets one scale d for 32 channels and, if m is not NULL, an offset m: w = d q + m. */
static void one_scale(struct span *out, const uint8_t *d, const uint8_t *m)
{
    out->d = load16(d);
    out->e = m ? load16(m) : 0;
    for (int h = 0; h < 2; h++) {
        out->s[h] = 1;
        out->n[h] = m ? -1 : 0;
    }
}

static void q4_0(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    one_scale(out, p, NULL);
    nibbles(out->q, p + 2, 8);
}

static void q4_1(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    one_scale(out, p, p + 2);
    nibbles(out->q, p + 4, 0);
}

/* A 32-bit word stores the fifth bits of all channels. */
static void q5_0(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    uint32_t high = load32(p + 2);
    one_scale(out, p, NULL);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)((nibble(p + 6, i) | (int)(high >> i & 1) << 4) - 16);
}

static void q5_1(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    uint32_t high = load32(p + 4);
    one_scale(out, p, p + 2);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)(nibble(p + 8, i) | (int)(high >> i & 1) << 4);
}

static void q8_0(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    one_scale(out, p, NULL);
    memcpy(out->q, p + 2, QBLOCK);
}

/* Block layout: 16 bytes of (scale, offset), 64 bytes of 2-bit numbers, d, e. A byte stores one
 * channel of each of four spans. */
static void q2_k(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *q = p + 16 + span / 4 * QBLOCK;
    out->d = load16(p + 80);
    out->e = load16(p + 82);
    for (int h = 0; h < 2; h++) {
        out->s[h] = (int8_t)(p[2 * span + h] & 15);
        out->n[h] = (int8_t)(p[2 * span + h] >> 4);
    }
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)(q[i] >> span % 4 * 2 & 3);
}

/* Block layout: 32 bytes of third bits, 64 bytes of 2-bit low parts, 12 bytes of 6-bit scales
 * (stored plus 32), d. Bit `span` of byte i is the third bit of channel i. A third bit of 0
 * subtracts 4. */
static void q3_k(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *q = p + 32 + span / 4 * QBLOCK, *scale = p + 96;
    one_scale(out, p + 108, NULL);
    for (int h = 0; h < 2; h++) {
        int j = 2 * span + h, low = j < 8 ? scale[j] & 15 : scale[j - 8] >> 4;
        out->s[h] = (int8_t)((low | (scale[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32);
    }
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)((q[i] >> span % 4 * 2 & 3) - (p[i] >> span & 1 ? 0 : 4));
}

/* Reads the start of a Q4_K or Q5_K block: d, e, and eight 6-bit pairs (scale, offset) in 12
 * bytes. */
static void k_scales(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *a = p + 4 + span % 4, *b = a + 4, *c = a + 8;
    int s = span < 4 ? *a & 63 : (*c & 15) | (*a >> 6) << 4;
    int n = span < 4 ? *b & 63 : *c >> 4 | (*b >> 6) << 4;
    out->d = load16(p);
    out->e = load16(p + 2);
    for (int h = 0; h < 2; h++) {
        out->s[h] = (int8_t)s;
        out->n[h] = (int8_t)n;
    }
}

static void q4_k(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *q = p + 16 + span / 2 * QBLOCK;
    k_scales(p, span, out);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)(q[i] >> span % 2 * 4 & 15);
}

static void q5_k(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *high = p + 16, *q = p + 48 + span / 2 * QBLOCK;
    k_scales(p, span, out);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = (int8_t)((q[i] >> span % 2 * 4 & 15) | (high[i] >> span & 1) << 4);
}

/* Block layout: 128 bytes of low nibbles, 64 bytes of 2-bit high parts, 16 signed scales, d. */
static void q6_k(const uint8_t *p, int span, struct span *out)
{
    const uint8_t *q = p + span / 4 * 64 + span % 2 * QBLOCK;
    const uint8_t *high = p + 128 + span / 4 * QBLOCK;
    one_scale(out, p + 208, NULL);
    memcpy(out->s, p + 192 + 2 * span, 2);
    for (int i = 0; i < QBLOCK; i++) {
        int low = q[i] >> span / 2 % 2 * 4 & 15;
        out->q[i] = (int8_t)((low | (high[i] >> span % 4 * 2 & 3) << 4) - 32);
    }
}

/* Values of the 16 nibble codes of IQ4_NL and IQ4_XS. */
static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static void iq4_nl(const uint8_t *p, int span, struct span *out)
{
    (void)span;
    one_scale(out, p, NULL);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = iq4[nibble(p + 2, i)];
}

/* Block layout: d, the 2-bit high parts of eight scales, their low nibbles, 128 bytes of
 * nibbles. */
static void iq4_xs(const uint8_t *p, int span, struct span *out)
{
    int low = p[4 + span / 2] >> span % 2 * 4 & 15, high = load16(p + 2) >> 2 * span & 3;
    one_scale(out, p, NULL);
    out->s[0] = out->s[1] = (int8_t)((low | high << 4) - 32);
    for (int i = 0; i < QBLOCK; i++)
        out->q[i] = iq4[nibble(p + 8 + 16 * span, i)];
}

static const struct block_format formats[] = {
    {WEIGHT_F32, "F32", 1, 4, NULL, 0, 0, PACK_F32, 0},
    {WEIGHT_F16, "F16", 1, 2, NULL, 0, 0, PACK_F16, 0},
    {WEIGHT_BF16, "BF16", 1, 2, NULL, 0, 0, PACK_BF16, 0},
    {WEIGHT_Q8_0, "Q8_0", 32, 34, q8_0, -128, 0, PACK_Q8, 0},
    {WEIGHT_Q4_0, "Q4_0", 32, 18, q4_0, -8, 0, PACK_Q4, 0},
    {WEIGHT_Q4_1, "Q4_1", 32, 20, q4_1, 0, 0, PACK_Q4, 0},
    {WEIGHT_Q5_0, "Q5_0", 32, 22, q5_0, -16, 0, PACK_Q5, 0},
    {WEIGHT_Q5_1, "Q5_1", 32, 24, q5_1, 0, 0, PACK_Q5, 0},
    {WEIGHT_Q2_K, "Q2_K", 256, 84, q2_k, 0, 80, PACK_Q4, 2},
    {WEIGHT_Q3_K, "Q3_K", 256, 110, q3_k, -4, 108, PACK_Q4, 2},
    {WEIGHT_Q4_K, "Q4_K", 256, 144, q4_k, 0, 0, PACK_Q4, 1},
    {WEIGHT_Q5_K, "Q5_K", 256, 176, q5_k, 0, 0, PACK_Q5, 1},
    {WEIGHT_Q6_K, "Q6_K", 256, 210, q6_k, -32, 208, PACK_Q6, 2},
    {WEIGHT_IQ4_NL, "IQ4_NL", 32, 18, iq4_nl, -128, 0, PACK_Q8, 0},
    {WEIGHT_IQ4_XS, "IQ4_XS", 256, 136, iq4_xs, -128, 0, PACK_Q8, 1},
    {.type = 9, .name = "Q8_1"},
    {.type = 15, .name = "Q8_K"},
    {.type = 16, .name = "IQ2_XXS"},
    {.type = 17, .name = "IQ2_XS"},
    {.type = 18, .name = "IQ3_XXS"},
    {.type = 19, .name = "IQ1_S"},
    {.type = 21, .name = "IQ3_S"},
    {.type = 22, .name = "IQ2_S"},
    {.type = 24, .name = "I8"},
    {.type = 25, .name = "I16"},
    {.type = 26, .name = "I32"},
    {.type = 27, .name = "I64"},
    {.type = 28, .name = "F64"},
    {.type = 29, .name = "IQ1_M"},
    {.type = 34, .name = "TQ1_0"},
    {.type = 35, .name = "TQ2_0"},
    {.type = 39, .name = "MXFP4"},
};

const struct block_format *block_format_at(size_t i)
{
    return i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}

const struct block_format *block_format(unsigned type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if ((unsigned)formats[i].type == type)
            return &formats[i];
    return NULL;
}
