/* tiles_emulated.h - engine/kernels/x86/tiles.h in plain C for any machine. It implements each AMX
 * instruction by its definition, and describes operations that a CPU would reject. */
#ifndef KVF_ENGINE_TILES_H
#define KVF_ENGINE_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TILES = 8, MOST_ROWS = 16, MOST_BYTES = 64 };

struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct emulated_tiles {
    bool configured;
    long products;
    const char *wrong; /* the first rejected operation; NULL: no such operation */
    struct tile_shapes shapes;
    uint8_t bytes[TILES][MOST_ROWS][MOST_BYTES];
};
static struct emulated_tiles emulated;

static inline bool tiles_expect(bool holds, const char *otherwise)
{
    if (!holds && !emulated.wrong)
        emulated.wrong = otherwise;
    return holds;
}

static inline bool tile_exists(int t)
{
    return tiles_expect(emulated.configured, "tiles have no shapes")
           && tiles_expect(t >= 0 && t < TILES && emulated.shapes.rows[t], "a tile has no shape");
}

static inline void tile_configure(const struct tile_shapes *shapes)
{
    static const uint8_t none[14];
    bool fits = shapes->palette == 1 && shapes->start_row == 0
                && memcmp(shapes->reserved, none, sizeof none) == 0;
    for (int t = 0; t < 16; t++) {
        bool room = shapes->rows[t] <= MOST_ROWS && shapes->row_bytes[t] <= MOST_BYTES;
        bool none_or_both = (shapes->rows[t] == 0) == (shapes->row_bytes[t] == 0);
        fits = fits && room && none_or_both && (t < TILES || !shapes->rows[t]);
    }
    tiles_expect(fits, "shapes of tiles that no processor has");
    tiles_expect(!emulated.configured, "tiles were not given back");
    memset(emulated.bytes, 0, sizeof emulated.bytes);
    emulated.configured = fits;
    emulated.shapes = *shapes;
}

static inline void tile_release(void)
{
    memset(emulated.bytes, 0, sizeof emulated.bytes);
    emulated.configured = false;
}

static inline void tile_zero(int t)
{
    if (tile_exists(t))
        memset(emulated.bytes[t], 0, sizeof emulated.bytes[t]);
}

/* Rows and bytes outside the shape become 0. */
static inline void tile_load(int t, const void *from, size_t stride)
{
    tile_zero(t);
    for (size_t r = 0; tile_exists(t) && r < emulated.shapes.rows[t]; r++)
        memcpy(emulated.bytes[t][r], (const uint8_t *)from + r * stride,
               emulated.shapes.row_bytes[t]);
}

static inline void tile_store(int t, void *to, size_t stride)
{
    for (size_t r = 0; tile_exists(t) && r < emulated.shapes.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, emulated.bytes[t][r], emulated.shapes.row_bytes[t]);
}

/* Returns true if the tiles exist and have the shapes of c += a b, in groups of 4 bytes. */
static inline bool tiles_match(int c, int a, int b)
{
    const struct tile_shapes *s = &emulated.shapes;
    return tile_exists(c) && tile_exists(a) && tile_exists(b)
           && tiles_expect(c != a && c != b && a != b, "a product names a tile twice")
           && tiles_expect(s->rows[c] == s->rows[a] && s->row_bytes[c] == s->row_bytes[b]
                               && s->row_bytes[a] == 4 * s->rows[b] && s->row_bytes[b] % 4 == 0,
                           "a product of tiles whose shapes do not fit");
}

static inline void tile_dot(int c, int a, int b)
{
    if (!tiles_match(c, a, b))
        return;
    emulated.products++;
    for (size_t r = 0; r < emulated.shapes.rows[c]; r++)
        for (size_t n = 0; n < emulated.shapes.row_bytes[c] / 4; n++) {
            int32_t sum;
            memcpy(&sum, emulated.bytes[c][r] + 4 * n, 4);
            for (size_t k = 0; k < emulated.shapes.row_bytes[a]; k++)
                sum += (int8_t)emulated.bytes[a][r][k] * emulated.bytes[b][k / 4][4 * n + k % 4];
            memcpy(emulated.bytes[c][r] + 4 * n, &sum, 4);
        }
}

#endif
