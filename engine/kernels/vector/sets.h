/* sets.h - declares the kernels of each instruction set of the machine type (x86-64 or aarch64).
 * kernels.c and the files compiled for one set include it. */
#pragma once

#include "engine/kernels/kernels.h"

/* Kernels that are no members of the table. */
#define DECL_MORE(isa)                                                                             \
    DECL_ATTN_AV(attn_av_ints_##isa);                                                              \
    DECL_ATTN_QUERIES(attn_queries_bytes_##isa);                                                   \
    DECL_ATTN_SCORES(attn_scores_bytes_##isa);                                                     \
    DECL_ATTN_ADD(attn_add_bytes_##isa);                                                           \
    DECL_KV_STORE(kv_store_ints_##isa)

#if defined(__aarch64__)
#define KERNEL(name, DECL) DECL(name##_neon);
#include "engine/kernels/kernels.list"
#undef KERNEL
DECL_MORE(neon);
DECL_MATMUL_Q(matmul_q_neondot);

static inline void kernels_init_vectors(struct kernels *k, unsigned flags)
{
    static const struct kernels neon = {
#define KERNEL(name, DECL) .name = name##_neon,
#include "engine/kernels/kernels.list"
#undef KERNEL
    };
    if (flags & CPU_ARM_NEON)
        *k = neon;
    if (flags & CPU_ARM_DOT)
        k->matmul_q = matmul_q_neondot;
}
#else
#define KERNEL(name, DECL)                                                                         \
    DECL(name##_avx2);                                                                             \
    DECL(name##_avx512);
#include "engine/kernels/kernels.list"
#undef KERNEL
DECL_MORE(avx2);
DECL_MORE(avx512);
DECL_MATMUL_Q(matmul_q_avxvnni);
DECL_MATMUL_WORDS(matmul_words_avxvnni);
DECL_MATMUL_Q(matmul_q_amx);

static inline void kernels_init_vectors(struct kernels *k, unsigned flags)
{
    static const struct kernels avx2 = {
#define KERNEL(name, DECL) .name = name##_avx2,
#include "engine/kernels/kernels.list"
#undef KERNEL
    };
    static const struct kernels avx512 = {
#define KERNEL(name, DECL) .name = name##_avx512,
#include "engine/kernels/kernels.list"
#undef KERNEL
    };
    if (flags & CPU_X86_AVX2)
        *k = avx2;
#if defined HAVE_AVXVNNI && HAVE_AVXVNNI
    if (flags & CPU_X86_AVXVNNI) {
        k->matmul_q = matmul_q_avxvnni;
        k->matmul_words = matmul_words_avxvnni;
    }
#endif
    if (flags & CPU_X86_AVX512)
        *k = avx512;
#if defined HAVE_AMX && HAVE_AMX
    if (flags & CPU_X86_AMX)
        k->matmul_q = matmul_q_amx;
#endif
}
#endif
