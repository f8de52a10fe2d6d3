/* unroll.h - macros that control loop unrolling. Loops over register tiles must be unrolled fully;
 * otherwise the tile is kept in memory. The loop around them must not be unrolled, because GCC
 * would keep loaded values for which there are no registers. */
#pragma once

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif
/* Makes the compiler reload the data at p instead of keeping it in registers that are needed
 * elsewhere. */
#define READ_AGAIN(p) __asm__("" : "+r"(p))
