/* unroll.h - loops over register tiles must vanish, else the tile lives in memory. */
#ifndef KVF_ENGINE_UNROLL_H
#define KVF_ENGINE_UNROLL_H

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
