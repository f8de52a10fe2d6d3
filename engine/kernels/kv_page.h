/* kv_page.h - memory layout of a page of cached entries of one (layer, KV head).
 *
 * A page has two halves, keys and values, of PAGE_SLOTS entries each, both 64-byte aligned. Keys
 * are channel-major [D][PAGE_SLOTS], so that a query is multiplied with all slots at once. Values
 * are slot-major [PAGE_SLOTS][D], so that a weight is multiplied with all channels at once. The
 * elements are f32, f16, 8-bit integers (q8_0) or 16-bit integers (i16). Integers that one
 * instruction multiplies and adds are adjacent: n = kv_beside(type) of them. Keys are [ceil(D /
 * n)][PAGE_SLOTS][n], n channels of a slot, padded with 0. Values are [PAGE_SLOTS / n][D][n], n
 * slots of a channel. Scales follow the elements in rows of PAGE_SLOTS.
 *
 * q8_0 divides every key and value along its channels into blocks of KV_BLOCK (the last can be
 * shorter). Each block has one f16 scale d; an element is q d with -127 <= q <= 127. Blocks run
 * over the channels of one entry, not over the slots of one channel, because entries arrive singly
 * and in any order. A larger entry would change a scale that slots share, and with it the entries
 * already stored.
 *
 * d is the block's largest magnitude / 127, rounded to f16. q is x / d rounded to the nearest
 * integer, ties to even. So |x - q d| <= d / 2, with two exceptions: rounding d downwards can cut
 * off the largest of a block by 127 d 2^-11, and f16 does not distinguish blocks below 127 * 2^-24.
 * The product q d is exact in f32 (8 + 11 bits). Hence attn_qk and attn_av give the same bits for a
 * q8_0 page as for an f32 page of the same values.
 *
 * i16 has one f32 scale per entry: its largest magnitude / KV_I16_MOST. Magnitudes below
 * KV_I16_TINY count as 0.
 *
 * An i16 entry or q8_0 block that contains a non-finite number, or needs a scale that is not
 * finite, is stored with scale infinity and zeros, so that every use of it gives NaN. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/packed.h"

/* Element type of a page. */
enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_I16 };
enum { KV_TYPES = KV_I16 + 1 };
enum { PAGE_SLOTS = 64, KV_BLOCK = 32 };
enum { KV_I16_MOST = 4095, KV_Q8_MOST = 127 };
#define KV_I16_TINY 1e-30f

/* Returns "f32", "f16", "q8_0" or "i16", as in options, headers and tables. */
const char *kv_type_name(enum kv_type type);

/* Returns true if attention over pages of the type uses integer products (attn_scores,
 * attn_add). */
static inline bool kv_whole(enum kv_type type)
{
    return type == KV_Q8_0 || type == KV_I16;
}

/* Returns the number of q8_0 blocks of D channels. */
static inline size_t kv_blocks(int D)
{
    return ((size_t)D + KV_BLOCK - 1) / KV_BLOCK;
}

/* Returns how many numbers of a type are adjacent in a page. */
static inline size_t kv_beside(enum kv_type type)
{
    if (type == KV_I16)
        return 2;
    return type == KV_Q8_0 ? 4 : 1;
}

/* Returns the channels of a key including padding. */
static inline size_t kv_channels(enum kv_type type, int D)
{
    size_t n = kv_beside(type);
    return ((size_t)D + n - 1) / n * n;
}

/* Returns the bytes of a half page: its elements and, for q8_0 and i16, the scales. */
size_t kv_half_bytes(enum kv_type type, int D);

/* Returns the scales of half a q8_0 page: [kv_blocks(D)][PAGE_SLOTS]. */
static inline uint16_t *kv_q8_scales(const void *half, int D)
{
    return (uint16_t *)(void *)((unsigned char *)half + kv_channels(KV_Q8_0, D) * PAGE_SLOTS);
}

/* Returns the scales of half an i16 page: [PAGE_SLOTS]. */
static inline float *kv_i16_scales(const void *half, int D)
{
    return (float *)(void *)((unsigned char *)half + kv_channels(KV_I16, D) * 2 * PAGE_SLOTS);
}

/* Returns the index of a key element in its half. */
static inline size_t kv_key_place(enum kv_type type, int slot, int d)
{
    size_t n = kv_beside(type), c = (size_t)d;
    return n * (c / n * PAGE_SLOTS + (size_t)slot) + c % n;
}

/* Returns the index of a value element in its half. */
static inline size_t kv_value_place(enum kv_type type, int D, int slot, int d)
{
    size_t n = kv_beside(type), s = (size_t)slot;
    return n * (s / n * (size_t)D + (size_t)d) + s % n;
}

/* Returns the element at index `place` of a half as a float; it belongs to channel d of `slot`. */
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

/* Returns channel d of the key of a slot. */
static inline float kv_key_at(const void *keys, enum kv_type type, int D, int slot, int d)
{
    return kv_element(keys, type, D, kv_key_place(type, slot, d), slot, d);
}

/* Returns channel d of the value of a slot. */
static inline float kv_value_at(const void *values, enum kv_type type, int D, int slot, int d)
{
    return kv_element(values, type, D, kv_value_place(type, D, slot, d), slot, d);
}

/* Copies the entry of slot `from` of page a over slot `to` of page b, bit for bit. The values are
 * kv_half_bytes after the keys in both pages. */
void kv_copy(const void *a, int from, void *b, int to, enum kv_type type, int D);
/* Copies n entries from slot `from` of page a to slot `to` of page b. The pages can be the same and
 * the ranges can overlap. */
void kv_move(const void *a, int from, void *b, int to, int n, enum kv_type type, int D);
