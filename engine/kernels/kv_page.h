/* kv_page.h - how the entries of one (layer, KV head) lie in a page.
 *
 * A page is two halves, keys and values, of PAGE_SLOTS entries each, both 64-byte
 * aligned.  Keys are stored channel-major [D][PAGE_SLOTS], so that a query meets all
 * slots at once, and values slot-major [PAGE_SLOTS][D], so that a weight meets all
 * channels at once; the elements are f32, f16 or, with q8_0, whole numbers of 8 bits.
 *
 * q8_0 cuts every key and every value along its channels into blocks of KV_BLOCK (the
 * last may be shorter) and stores for each block one scale d in f16: an element is
 * q d with -127 <= q <= 127.  Blocks run over the channels of one entry, never over the
 * slots of one channel, since entries come one at a time and in any order: a scale that
 * slots shared would change, and with it what is stored already, whenever a larger entry
 * came.  The scales lie apart behind the elements, in the order in which the kernels
 * want them: of keys [blocks][PAGE_SLOTS], one vector of scales for the KV_BLOCK
 * channels of a block; of values [PAGE_SLOTS][blocks].
 *
 * d is the block's largest magnitude / 127, rounded to f16; q = x / d to the nearest,
 * ties to even.  So |x - q d| <= d / 2, but for the largest of a block, which rounding d
 * downwards may cut off by 127 d 2^-11, and for blocks below 127 * 2^-24, which f16 does
 * not tell from each other.  The product q d is a float without rounding (8 + 11 bits):
 * attention over a q8_0 page gives, to the bit, what it gives over an f32 page of the
 * same values.
 *
 * i16 stores every key and every value as whole numbers of 16 bits, for products of whole
 * numbers, with one scale in f32 for the entry: its largest magnitude / KV_I16_MOST.  What is
 * multiplied and added first lies side by side: keys are [ceil(D / 2)][PAGE_SLOTS][2], two
 * channels of a slot (0 where D is odd), values [PAGE_SLOTS / 2][D][2], two slots of a channel.
 * The scales [PAGE_SLOTS] lie behind them.  An entry that holds no finite number somewhere has
 * the scale infinity and zeros, so that whatever reads it gets NaN; one below KV_I16_TINY is 0. */
#ifndef KVF_ENGINE_KV_PAGE_H
#define KVF_ENGINE_KV_PAGE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/packed.h"

enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_I16 };
enum { KV_TYPES = KV_I16 + 1 };
enum { PAGE_SLOTS = 64, KV_BLOCK = 32 };
enum { KV_I16_MOST = 4095 };
#define KV_I16_TINY 1e-30f

/* "f32", "f16", "q8_0", "i16": as in options, headers and tables. */
const char *kv_type_name(enum kv_type type);

static inline size_t kv_blocks(int D)
{
    return ((size_t)D + KV_BLOCK - 1) / KV_BLOCK;
}

/* Pairs of channels of an i16 page. */
static inline size_t kv_pairs(int D)
{
    return ((size_t)D + 1) / 2;
}

/* Bytes of one half of a page: its elements and, of q8_0 and i16, the scales. */
size_t kv_half_bytes(enum kv_type type, int D);

/* The scales of a half of a q8_0 page. */
static inline uint16_t *kv_scales(const void *half, int D)
{
    return (uint16_t *)(void *)((unsigned char *)half + (size_t)D * PAGE_SLOTS);
}

/* The scales of a half of an i16 page. */
static inline float *kv_i16_scales(const void *half, int D)
{
    return (float *)(void *)((unsigned char *)half + kv_pairs(D) * 4 * PAGE_SLOTS);
}

/* Where the elements of an i16 page lie. */
static inline size_t kv_i16_key(int slot, int d)
{
    return 2 * ((size_t)(d / 2) * PAGE_SLOTS + (size_t)slot) + (size_t)(d % 2);
}

static inline size_t kv_i16_value(int D, int slot, int d)
{
    return 2 * ((size_t)(slot / 2) * (size_t)D + (size_t)d) + (size_t)(slot % 2);
}

/* The element at place `at` of a half; scale: the place of its scale. */
static inline float kv_element(const void *half, enum kv_type type, int D, size_t at, size_t scale)
{
    if (type == KV_F16)
        return half_to_float(((const uint16_t *)half)[at]);
    if (type == KV_F32)
        return ((const float *)half)[at];
    if (type == KV_I16)
        return (float)((const int16_t *)half)[at] * kv_i16_scales(half, D)[scale];
    return (float)((const int8_t *)half)[at] * half_to_float(kv_scales(half, D)[scale]);
}

/* One channel of the key, or of the value, of a slot. */
static inline float kv_key_at(const void *keys, enum kv_type type, int D, int slot, int d)
{
    size_t at = (size_t)d * PAGE_SLOTS + (size_t)slot;
    size_t scale = (size_t)(d / KV_BLOCK) * PAGE_SLOTS + (size_t)slot;
    if (type == KV_I16)
        return kv_element(keys, type, D, kv_i16_key(slot, d), (size_t)slot);
    return kv_element(keys, type, D, at, scale);
}

static inline float kv_value_at(const void *values, enum kv_type type, int D, int slot, int d)
{
    size_t at = (size_t)slot * (size_t)D + (size_t)d;
    size_t scale = (size_t)slot * kv_blocks(D) + (size_t)(d / KV_BLOCK);
    if (type == KV_I16)
        return kv_element(values, type, D, kv_i16_value(D, slot, d), (size_t)slot);
    return kv_element(values, type, D, at, scale);
}

/* Copies the entry of slot `from` of page a over slot `to` of page b, bit for bit; values
 * lie kv_half_bytes behind the keys in both. */
void kv_copy(const void *a, int from, void *b, int to, enum kv_type type, int D);
/* The same of the n entries from slot `from` of page a on, to slot `to` of page b and on.  The two
 * may be one page: what is read is what was there before. */
void kv_move(const void *a, int from, void *b, int to, int n, enum kv_type type, int D);

#endif
