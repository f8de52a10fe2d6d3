/* kv_page.c - sizes of pages of cached entries, and copies of entries between pages. */
#include <string.h>

#include "engine/kernels/kv_page.h"

static const struct kind {
    const char *name;
    size_t width; /* bytes of an element */
    size_t scale; /* bytes of a scale */
} kinds[KV_TYPES] = {[KV_F32] = {"f32", 4, 0},
                     [KV_F16] = {"f16", 2, 0},
                     [KV_Q8_0] = {"q8_0", 1, sizeof(uint16_t)},
                     [KV_I16] = {"i16", 2, sizeof(float)}};

const char *kv_type_name(enum kv_type type)
{
    return kinds[type].name;
}

/* Returns the number of scales of an entry. */
static size_t scales_of(enum kv_type type, int D)
{
    if (type == KV_Q8_0)
        return kv_blocks(D);
    return type == KV_I16;
}

/* Returns the bytes of the elements of a half page. */
static size_t element_bytes(enum kv_type type, int D)
{
    return kv_channels(type, D) * kinds[type].width * PAGE_SLOTS;
}

size_t kv_half_bytes(enum kv_type type, int D)
{
    return element_bytes(type, D) + scales_of(type, D) * kinds[type].scale * PAGE_SLOTS;
}

/* Copies the value of a slot; its numbers are kv_beside(type) elements apart. */
static void copy_value(const unsigned char *a, int from, unsigned char *b, int to,
                       enum kv_type type, int D)
{
    size_t w = kinds[type].width, n = kv_beside(type);
    const unsigned char *x = a + kv_value_place(type, D, from, 0) * w;
    unsigned char *y = b + kv_value_place(type, D, to, 0) * w;
    if (n == 1)
        memcpy(y, x, (size_t)D * w);
    for (size_t d = 0; type == KV_Q8_0 && d < (size_t)D; d++) /* widths known at compile time */
        y[d * n] = x[d * n];
    for (size_t d = 0; type == KV_I16 && d < (size_t)D; d++)
        memcpy(y + d * n * 2, x + d * n * 2, 2);
}

/* Moves n elements in each of `rows` rows of a page. */
static void move_columns(const unsigned char *a, size_t from, unsigned char *b, size_t to, size_t n,
                         size_t rows, size_t width)
{
    size_t ld = PAGE_SLOTS * width;
    for (size_t r = 0; r < rows; r++)
        memmove(b + r * ld + to * width, a + r * ld + from * width, n * width);
}

static void move_scales(const unsigned char *a, int from, unsigned char *b, int to, int n,
                        enum kv_type type, int D)
{
    size_t half = kv_half_bytes(type, D), at = element_bytes(type, D);
    for (size_t i = at; i <= half + at; i += half)
        move_columns(a + i, (size_t)from, b + i, (size_t)to, (size_t)n, scales_of(type, D),
                     kinds[type].scale);
}

void kv_copy(const void *a, int from, void *b, int to, enum kv_type type, int D)
{
    const unsigned char *x = a;
    unsigned char *y = b;
    size_t n = kv_beside(type), w = n * kinds[type].width, groups = kv_channels(type, D) / n;
    size_t i = (size_t)from, o = (size_t)to, half = kv_half_bytes(type, D);
    for (size_t d = 0; w == 2 && d < groups; d++) /* widths known at compile time */
        memcpy(y + (d * PAGE_SLOTS + o) * 2, x + (d * PAGE_SLOTS + i) * 2, 2);
    for (size_t d = 0; w == 4 && d < groups; d++)
        memcpy(y + (d * PAGE_SLOTS + o) * 4, x + (d * PAGE_SLOTS + i) * 4, 4);
    copy_value(x + half, from, y + half, to, type, D);
    move_scales(x, from, y, to, 1, type, D);
}

void kv_move(const void *a, int from, void *b, int to, int n, enum kv_type type, int D)
{
    const unsigned char *x = a;
    unsigned char *y = b;
    size_t beside = kv_beside(type), w = kinds[type].width, half = kv_half_bytes(type, D);
    size_t row = (size_t)D * w;
    move_columns(x, (size_t)from, y, (size_t)to, (size_t)n, kv_channels(type, D) / beside,
                 beside * w);
    if (beside == 1)
        memmove(y + half + (size_t)to * row, x + half + (size_t)from * row, (size_t)n * row);
    for (int j = 0; beside > 1 && j < n; j++) {
        int s = to <= from ? j : n - 1 - j;
        copy_value(x + half, from + s, y + half, to + s, type, D);
    }
    move_scales(x, from, y, to, n, type, D);
}
