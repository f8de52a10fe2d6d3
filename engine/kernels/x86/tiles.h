/* tiles.h - AMX instructions for products of bytes. tests/kernels/tiles_emulated.h defines the same
 * names for machines without AMX.
 *
 * Tile numbers are constants. The compiler does not know that a tile load depends on earlier stores
 * to memory, so tile_load adds a barrier. */
#ifndef KVF_ENGINE_TILES_H /* no #pragma once: the emulation defines this name */
#define KVF_ENGINE_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* Operand of LDTILECFG. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Before GCC 14 the intrinsic declares a read of only eight bytes, so stores to the other bytes
 * could be delayed or removed. */
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
