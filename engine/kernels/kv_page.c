#include <string.h>

#include "engine/kernels/kv_page.h"

static const struct kind {
    const char *name;
    size_t width; /* bytes of an element */
} kinds[KV_TYPES] = {
    [KV_F32] = {"f32", 4}, [KV_F16] = {"f16", 2}, [KV_Q8_0] = {"q8_0", 1}, [KV_I16] = {"i16", 2}};

const char *kv_type_name(enum kv_type type)
{
    return kinds[type].name;
}

size_t kv_half_bytes(enum kv_type type, int D)
{
    if (type == KV_I16)
        return (kv_pairs(D) + 1) * 4 * PAGE_SLOTS;
    size_t scales = type == KV_Q8_0 ? kv_blocks(D) * sizeof(uint16_t) : 0;
    return ((size_t)D * kinds[type].width + scales) * PAGE_SLOTS;
}

/* The value of a slot of an i16 page. */
static void copy_value(const void *a, int from, void *b, int to, int D)
{
    const int16_t *x = (const int16_t *)a + kv_i16_value(D, from, 0);
    int16_t *y = (int16_t *)b + kv_i16_value(D, to, 0);
    for (size_t d = 0; d < (size_t)D; d++)
        y[2 * d] = x[2 * d];
}

/* Entries of i16 pages: pairs of channels of a slot are elements of four bytes. */
static void move_ints(const unsigned char *a, int from, unsigned char *b, int to, int n, int D)
{
    size_t half = kv_half_bytes(KV_I16, D);
    for (size_t r = 0; r <= kv_pairs(D); r++) /* the last are the scales */
        memmove(b + (r * PAGE_SLOTS + (size_t)to) * 4, a + (r * PAGE_SLOTS + (size_t)from) * 4,
                (size_t)n * 4);
    for (int i = 0; i < n; i++) {
        int s = to <= from ? i : n - 1 - i;
        copy_value(a + half, from + s, b + half, to + s, D);
    }
    memmove(kv_i16_scales(b + half, D) + to, kv_i16_scales(a + half, D) + from, (size_t)n * 4);
}

void kv_copy(const void *a, int from, void *b, int to, enum kv_type type, int D)
{
    const unsigned char *x = a;
    unsigned char *y = b;
    size_t w = kinds[type].width, n = (size_t)D, i = (size_t)from, o = (size_t)to;
    size_t half = kv_half_bytes(type, D), row = n * w;
    if (type == KV_I16) {
        move_ints(x, from, y, to, 1, D);
        return;
    }
    for (size_t d = 0; w == 1 && d < n; d++) /* widths that the compiler knows */
        y[d * PAGE_SLOTS + o] = x[d * PAGE_SLOTS + i];
    for (size_t d = 0; w == 2 && d < n; d++)
        memcpy(y + (d * PAGE_SLOTS + o) * 2, x + (d * PAGE_SLOTS + i) * 2, 2);
    for (size_t d = 0; w == 4 && d < n; d++)
        memcpy(y + (d * PAGE_SLOTS + o) * 4, x + (d * PAGE_SLOTS + i) * 4, 4);
    memcpy(y + half + o * row, x + half + i * row, row);
    if (type != KV_Q8_0)
        return;
    size_t blocks = kv_blocks(D);
    const uint16_t *ks = kv_scales(x, D), *vs = kv_scales(x + half, D);
    for (size_t k = 0; k < blocks; k++)
        kv_scales(y, D)[k * PAGE_SLOTS + o] = ks[k * PAGE_SLOTS + i];
    memcpy(kv_scales(y + half, D) + o * blocks, vs + i * blocks, blocks * sizeof *vs);
}

/* n elements of each of `rows` rows of a page. */
static void move_columns(const unsigned char *a, size_t from, unsigned char *b, size_t to, size_t n,
                         size_t rows, size_t width)
{
    size_t ld = PAGE_SLOTS * width;
    for (size_t r = 0; r < rows; r++)
        memmove(b + r * ld + to * width, a + r * ld + from * width, n * width);
}

void kv_move(const void *a, int from, void *b, int to, int n, enum kv_type type, int D)
{
    const unsigned char *x = a;
    unsigned char *y = b;
    size_t w = kinds[type].width, half = kv_half_bytes(type, D), row = (size_t)D * w;
    size_t i = (size_t)from, o = (size_t)to, m = (size_t)n, blocks = kv_blocks(D);
    if (type == KV_I16) {
        move_ints(x, from, y, to, n, D);
        return;
    }
    move_columns(x, i, y, o, m, (size_t)D, w);
    memmove(y + half + o * row, x + half + i * row, m * row);
    if (type != KV_Q8_0)
        return;
    const uint16_t *ks = kv_scales(x, D), *vs = kv_scales(x + half, D);
    uint16_t *out = kv_scales(y, D);
    move_columns((const unsigned char *)ks, i, (unsigned char *)out, o, m, blocks, sizeof *ks);
    memmove(kv_scales(y + half, D) + o * blocks, vs + i * blocks, m * blocks * sizeof *vs);
}
