/* kv_page.h - how the entries of one (layer, KV head) lie in a page.
 *
 * A page is two halves, keys and values, of PAGE_SLOTS entries each, both 64-byte
 * aligned.  Keys are stored channel-major [D][PAGE_SLOTS], so that a query meets all
 * slots at once, and values slot-major [PAGE_SLOTS][D], so that a weight meets all
 * channels at once; the elements are f32, f16 or whole numbers of 8 (q8_0) or 16 bits
 * (i16).  Of these, what is multiplied and added at once lies side by side, kv_beside(type)
 * = n numbers: keys are [ceil(D / n)][PAGE_SLOTS][n], n channels of a slot (0 behind the last),
 * and values [PAGE_SLOTS / n][D][n], n slots of a channel.  Scales lie behind the elements, in rows
 * of PAGE_SLOTS.
 *
 * q8_0 cuts every key and every value along its channels into blocks of KV_BLOCK (the
 * last may be shorter) and stores for each block one scale d in f16: an element is
 * q d with -127 <= q <= 127.  Blocks run over the channels of one entry, never over the
 * slots of one channel, since entries come one at a time and in any order: a scale that
 * slots shared would change, and with it what is stored already, whenever a larger entry
 * came.
 *
 * d is the block's largest magnitude / 127, rounded to f16; q = x / d to the nearest,
 * ties to even.  So |x - q d| <= d / 2, but for the largest of a block, which rounding d
 * downwards may cut off by 127 d 2^-11, and for blocks below 127 * 2^-24, which f16 does
 * not tell from each other.  The product q d is a float without rounding (8 + 11 bits):
 * attn_qk and attn_av give for a q8_0 page, to the bit, what they give for an f32 page of the
 * same values.
 *
 * i16 has one scale in f32 for the entry: its largest magnitude / KV_I16_MOST.  One below
 * KV_I16_TINY is 0.
 *
 * An entry of i16 or a block of q8_0 that holds no finite number somewhere, or whose scale is none,
 * has the scale infinity and zeros, so that whatever reads it gets NaN. */
#ifndef KVF_ENGINE_KV_PAGE_H
#define KVF_ENGINE_KV_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/packed.h"

enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_I16 };
enum { KV_TYPES = KV_I16 + 1 };
enum { PAGE_SLOTS = 64, KV_BLOCK = 32 };
enum { KV_I16_MOST = 4095, KV_Q8_MOST = 127 };
#define KV_I16_TINY 1e-30f

/* "f32", "f16", "q8_0", "i16": as in options, headers and tables. */
const char *kv_type_name(enum kv_type type);

/* Whether attention over pages of the type multiplies whole numbers (attn_scores, attn_add). */
static inline bool kv_whole(enum kv_type type)
{
    return type == KV_Q8_0 || type == KV_I16;
}

static inline size_t kv_blocks(int D)
{
    return ((size_t)D + KV_BLOCK - 1) / KV_BLOCK;
}

/* Numbers that lie side by side. */
static inline size_t kv_beside(enum kv_type type)
{
    if (type == KV_I16)
        return 2;
    return type == KV_Q8_0 ? 4 : 1;
}

/* Channels of a key with those that are 0. */
static inline size_t kv_channels(enum kv_type type, int D)
{
    size_t n = kv_beside(type);
    return ((size_t)D + n - 1) / n * n;
}

/* Bytes of one half of a page: its elements and, of q8_0 and i16, the scales. */
size_t kv_half_bytes(enum kv_type type, int D);

/* The scales of a half of a q8_0 page: [kv_blocks(D)][PAGE_SLOTS]. */
static inline uint16_t *kv_q8_scales(const void *half, int D)
{
    return (uint16_t *)(void *)((unsigned char *)half + kv_channels(KV_Q8_0, D) * PAGE_SLOTS);
}

/* The scales of a half of an i16 page: [PAGE_SLOTS]. */
static inline float *kv_i16_scales(const void *half, int D)
{
    return (float *)(void *)((unsigned char *)half + kv_channels(KV_I16, D) * 2 * PAGE_SLOTS);
}

/* Where an element lies in its half. */
static inline size_t kv_key_place(enum kv_type type, int slot, int d)
{
    size_t n = kv_beside(type), c = (size_t)d;
    return n * (c / n * PAGE_SLOTS + (size_t)slot) + c % n;
}

static inline size_t kv_value_place(enum kv_type type, int D, int slot, int d)
{
    size_t n = kv_beside(type), s = (size_t)slot;
    return n * (s / n * (size_t)D + (size_t)d) + s % n;
}

/* The element at a place of a half, of channel d of a slot. */
static inline float kv_element(const void *half, enum kv_type type, int D, size_t place, int slot,
                               int d)
{
    if (type == KV_F16)
        return half_to_float(((const uint16_t *)half)[place]);
    if (type == KV_F32)
        return ((const float *)half)[place];
    if (type == KV_I16)
        return (float)((const int16_t *)half)[place] * kv_i16_scales(half, D)[slot];
    uint16_t scale = kv_q8_scales(half, D)[d / KV_BLOCK * PAGE_SLOTS + slot];
    return (float)((const int8_t *)half)[place] * half_to_float(scale);
}

/* One channel of the key, or of the value, of a slot. */
static inline float kv_key_at(const void *keys, enum kv_type type, int D, int slot, int d)
{
    return kv_element(keys, type, D, kv_key_place(type, slot, d), slot, d);
}

static inline float kv_value_at(const void *values, enum kv_type type, int D, int slot, int d)
{
    return kv_element(values, type, D, kv_value_place(type, D, slot, d), slot, d);
}

/* Copies the entry of slot `from` of page a over slot `to` of page b, bit for bit; values
 * lie kv_half_bytes behind the keys in both. */
void kv_copy(const void *a, int from, void *b, int to, enum kv_type type, int D);
/* The same of the n entries from slot `from` of page a on, to slot `to` of page b and on.  The two
 * may be one page: what is read is what was there before. */
void kv_move(const void *a, int from, void *b, int to, int n, enum kv_type type, int D);

#endif
