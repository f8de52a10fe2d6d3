/* unroll.h - loops over register tiles must vanish, else the tile lives in memory.  A loop around
 * such loops stays one: GCC else keeps what its rounds read, for which there are no registers. */
#ifndef KVF_ENGINE_UNROLL_H
#define KVF_ENGINE_UNROLL_H

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif
/* What was read at p is read again, and not kept where registers are needed for other things. */
#define READ_AGAIN(p) __asm__("" : "+r"(p))

#endif
