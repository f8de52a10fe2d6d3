/* blocks.cuh - decodes eight weights of a quantised row: an octet, channels 8 o to 8 o + 7, with
 * the bits of weight_dequant (packed.h).
 *
 * Four octets are a span of 32 channels. A nibble byte has a channel in its low half. Its high half
 * has the channel 16 (Q4_0, Q4_1), 32 (Q4_K) or 64 (Q6_K) later. So an octet is one of the halves
 * of consecutive bytes. */
#ifndef KVF_ENGINE_CUDA_BLOCKS_CUH
#define KVF_ENGINE_CUDA_BLOCKS_CUH

#include "engine/cuda/device.cuh"

enum { OCTET = 8 };

/* Reads 16 bits; blocks are aligned only to 2 bytes. */
DEVICE unsigned load16(const uint8_t *p)
{
    return *(const uint16_t *)(const void *)p;
}

/* Eight bytes, read as four 16-bit words; byte_of returns byte i. */
struct bytes8 {
    unsigned half[4];
};
DEVICE struct bytes8 load_bytes(const uint8_t *p)
{
    struct bytes8 b;
    for (int i = 0; i < 4; i++)
        b.half[i] = load16(p + 2 * i);
    return b;
}
DEVICE int byte_of(const struct bytes8 &b, int i)
{
    return (int)(b.half[i / 2] >> i % 2 * 8 & 255);
}

template <int TYPE> struct block;

template <> struct block<WEIGHT_F32> {
    enum { CHANNELS = 1, BYTES = 4 };
    DEVICE float one(const uint8_t *row, int k) { return ((const float *)(const void *)row)[k]; }
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const float4 *p = (const float4 *)(const void *)row + 2 * o;
        float4 a = p[0], b = p[1];
        w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
        w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
    }
};

/* 16-bit weights, read as one 16-byte word. */
template <bool BF16> struct block16 {
    enum { CHANNELS = 1, BYTES = 2 };
    DEVICE float value(uint16_t h) { return BF16 ? from_bf16(h) : from_half(h); }
    DEVICE float one(const uint8_t *row, int k)
    {
        return value(((const uint16_t *)(const void *)row)[k]);
    }
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        uint4 v = ((const uint4 *)(const void *)row)[o];
        unsigned word[4] = {v.x, v.y, v.z, v.w};
        for (int i = 0; i < OCTET; i++)
            w[i] = value((uint16_t)(word[i / 2] >> i % 2 * 16));
    }
};
template <> struct block<WEIGHT_F16> : block16<false> {
};
template <> struct block<WEIGHT_BF16> : block16<true> {
};

template <> struct block<WEIGHT_Q8_0> {
    enum { CHANNELS = 32, BYTES = 34 };
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const uint8_t *p = row + o / 4 * BYTES;
        float d = from_half((uint16_t)load16(p));
        struct bytes8 b = load_bytes(p + 2 + o % 4 * OCTET);
        for (int i = 0; i < OCTET; i++)
            w[i] = d * (float)(int8_t)byte_of(b, i);
    }
};

/* Decodes octet o; channels 16 to 31 of a block are the high halves of its 16 bytes. */
DEVICE void nibbles(const uint8_t *q, int o, int *w)
{
    struct bytes8 b = load_bytes(q + o % 2 * OCTET);
    for (int i = 0; i < OCTET; i++)
        w[i] = byte_of(b, i) >> o / 2 * 4 & 15;
}

template <> struct block<WEIGHT_Q4_0> {
    enum { CHANNELS = 32, BYTES = 18 };
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const uint8_t *p = row + o / 4 * BYTES;
        float d = from_half((uint16_t)load16(p));
        int q[OCTET];
        nibbles(p + 2, o % 4, q);
        for (int i = 0; i < OCTET; i++)
            w[i] = d * (float)(q[i] - 8);
    }
};

template <> struct block<WEIGHT_Q4_1> {
    enum { CHANNELS = 32, BYTES = 20 };
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const uint8_t *p = row + o / 4 * BYTES;
        float d = from_half((uint16_t)load16(p)), m = from_half((uint16_t)load16(p + 2));
        int q[OCTET];
        nibbles(p + 4, o % 4, q);
        for (int i = 0; i < OCTET; i++)
            w[i] = d * (float)q[i] + m;
    }
};

/* Q4_K stores eight 6-bit pairs (scale, offset) in 12 bytes; span j of 32 channels has pair j. */
template <> struct block<WEIGHT_Q4_K> {
    enum { CHANNELS = 256, BYTES = 144 };
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const uint8_t *p = row + o / 32 * BYTES;
        int span = o % 32 / 4;
        const uint8_t *a = p + 4 + span % 4, *b = a + 4, *c = a + 8;
        int s = span < 4 ? *a & 63 : (*c & 15) | (*a >> 6) << 4;
        int n = span < 4 ? *b & 63 : *c >> 4 | (*b >> 6) << 4;
        float d = from_half((uint16_t)load16(p)) * (float)s;
        float m = from_half((uint16_t)load16(p + 2)) * (float)n;
        struct bytes8 q = load_bytes(p + 16 + span / 2 * 32 + o % 4 * OCTET);
        for (int i = 0; i < OCTET; i++)
            w[i] = d * (float)(byte_of(q, i) >> span % 2 * 4 & 15) - m;
    }
};

/* Q6_K layout: 128 bytes of low nibbles, 64 bytes of 2-bit high parts, 16 signed scales, d. */
template <> struct block<WEIGHT_Q6_K> {
    enum { CHANNELS = 256, BYTES = 210 };
    DEVICE void eight(const uint8_t *row, int o, float *w)
    {
        const uint8_t *p = row + o / 32 * BYTES;
        int span = o % 32 / 4, at = o % 4 * OCTET;
        int8_t s = (int8_t)p[192 + o % 32 / 2];
        float d = from_half((uint16_t)load16(p + 208)) * (float)s;
        struct bytes8 low = load_bytes(p + span / 4 * 64 + span % 2 * 32 + at);
        struct bytes8 high = load_bytes(p + 128 + span / 4 * 32 + at);
        for (int i = 0; i < OCTET; i++) {
            int q = (byte_of(low, i) >> span / 2 % 2 * 4 & 15)
                    | (byte_of(high, i) >> span % 4 * 2 & 3) << 4;
            w[i] = d * (float)(q - 32);
        }
    }
};

/* Loads octet o of a row of K channels, padded with 0. Only float rows can end within an octet;
 * they are then read element by element. */
template <int TYPE> DEVICE void load_octet(const uint8_t *row, int o, int K, float *w)
{
    if constexpr (block<TYPE>::CHANNELS == 1) {
        if (K % OCTET != 0) {
            for (int i = 0; i < OCTET; i++)
                w[i] = o * OCTET + i < K ? block<TYPE>::one(row, o * OCTET + i) : 0;
            return;
        }
    }
    block<TYPE>::eight(row, o, w);
}

/* Calls f<TYPE>(...) for the type of a matrix. */
#define FOR_WEIGHT_TYPE(type, f, ...)                                                              \
    switch (type) {                                                                                \
    case WEIGHT_F32:                                                                               \
        f<WEIGHT_F32>(__VA_ARGS__);                                                                \
        break;                                                                                     \
    case WEIGHT_F16:                                                                               \
        f<WEIGHT_F16>(__VA_ARGS__);                                                                \
        break;                                                                                     \
    case WEIGHT_BF16:                                                                              \
        f<WEIGHT_BF16>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    case WEIGHT_Q8_0:                                                                              \
        f<WEIGHT_Q8_0>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    case WEIGHT_Q4_0:                                                                              \
        f<WEIGHT_Q4_0>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    case WEIGHT_Q4_1:                                                                              \
        f<WEIGHT_Q4_1>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    case WEIGHT_Q4_K:                                                                              \
        f<WEIGHT_Q4_K>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    case WEIGHT_Q6_K:                                                                              \
        f<WEIGHT_Q6_K>(__VA_ARGS__);                                                               \
        break;                                                                                     \
    default:                                                                                       \
        break;                                                                                     \
    }

#endif
