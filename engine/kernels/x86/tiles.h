/* tiles.h - the instructions of AMX that products of bytes take.  tests/kernels/tiles_emulated.h
 * has the same names for machines without them.
 *
 * Numbers of tiles are constants.  The compiler does not know that a tile is loaded from memory
 * that it wrote before: tile_load says so. */
#ifndef KVF_ENGINE_TILES_H
#define KVF_ENGINE_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* What LDTILECFG reads. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* The intrinsic of compilers before gcc 14 says that eight bytes are read, and what is stored to
 * the others may then come later, or never. */
#define tile_configure(shapes) __asm__ volatile("ldtilecfg %0" : : "m"(*(shapes)))
#define tile_release() _tile_release()
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, from, stride)                                                                 \
    do {                                                                                           \
        __asm__ volatile("" ::: "memory");                                                         \
        _tile_loadd(t, from, stride);                                                              \
    } while (0)
#define tile_store(t, to, stride) _tile_stored(t, to, stride)
/* c += signed bytes of a times unsigned bytes of b */
#define tile_dot(c, a, b) _tile_dpbsud(c, a, b)

#endif
