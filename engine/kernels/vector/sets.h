/* sets.h - declares the kernels of each instruction set of the machine type (x86-64 or aarch64).
 * kernels.c and the files compiled for one set include it. */
#ifndef KVF_ENGINE_SETS_H
#define KVF_ENGINE_SETS_H

#include "engine/kernels/kernels.h"

#define DECL_ALL(isa)                                                                              \
    DECL_RMSNORM(rmsnorm_##isa);                                                                   \
    DECL_QUANT_ROWS(quant_rows_##isa);                                                             \
    DECL_MATMUL_Q(matmul_q_##isa);                                                                 \
    DECL_MATMUL_F(matmul_f_##isa);                                                                 \
    DECL_QUANT_WORDS(quant_words_##isa);                                                           \
    DECL_MATMUL_WORDS(matmul_words_##isa);                                                         \
    DECL_ROPE(rope_##isa);                                                                         \
    DECL_SWIGLU(swiglu_##isa);                                                                     \
    DECL_SWIGLU(geglu_##isa);                                                                      \
    DECL_SOFT_CAP(soft_cap_##isa);                                                                 \
    DECL_ADD(add_##isa);                                                                           \
    DECL_ATTN_QK(attn_qk_##isa);                                                                   \
    DECL_ATTN_QUERIES(attn_queries_##isa);                                                         \
    DECL_ATTN_SCORES(attn_scores_##isa);                                                           \
    DECL_ATTN_AV(attn_av_##isa);                                                                   \
    DECL_ATTN_AV(attn_av_ints_##isa);                                                              \
    DECL_ATTN_ADD(attn_add_##isa);                                                                 \
    DECL_ATTN_QUERIES(attn_queries_bytes_##isa);                                                   \
    DECL_ATTN_SCORES(attn_scores_bytes_##isa);                                                     \
    DECL_ATTN_ADD(attn_add_bytes_##isa);                                                           \
    DECL_KV_STORE(kv_store_ints_##isa);                                                            \
    DECL_TILE_MUL(tile_mul_##isa);                                                                 \
    DECL_ADD_AGED(add_aged_##isa);                                                                 \
    DECL_EXP_AGED(exp_aged_##isa);                                                                 \
    DECL_EXP_ROW(exp_row_##isa);                                                                   \
    DECL_MAX_ROW(max_row_##isa);                                                                   \
    DECL_MUL(mul_##isa);                                                                           \
    DECL_SOFTMAX_GRAD(softmax_grad_##isa);                                                         \
    DECL_SOFTMAX(softmax_##isa);                                                                   \
    DECL_LOG_SUM_EXP(log_sum_exp_##isa);                                                           \
    DECL_KV_STORE(kv_store_##isa);                                                                 \
    DECL_MASS_ADD(mass_add_##isa);                                                                 \
    DECL_ROW_CUTS(row_cuts_##isa);                                                                 \
    DECL_MARK(mark_##isa);                                                                         \
    DECL_MASS_ADD_ROWS(mass_add_rows_##isa);                                                       \
    DECL_MARK_ROWS(mark_rows_##isa);                                                               \
    DECL_SLIDE(slide_##isa);                                                                       \
    DECL_SLIDE_SPREAD(slide_spread_##isa);                                                         \
    DECL_SPREAD(spread_##isa);                                                                     \
    DECL_SUM_BETWEEN(sum_between_##isa);                                                           \
    DECL_TAKE_SHARE(take_share_##isa);                                                             \
    DECL_MOST_SHARES(most_shares_##isa);                                                           \
    DECL_POOL_MAX(pool_max_##isa);                                                                 \
    DECL_NEXT_LOW(next_low_##isa);                                                                 \
    DECL_REDUCE_SUMS(reduce_sums_##isa);                                                           \
    DECL_SUM_ROWS(sum_rows_##isa);                                                                 \
    DECL_SWIGLU_BACK(swiglu_back_##isa);                                                           \
    DECL_RMSNORM_BACK(rmsnorm_back_##isa)

#define DECL_LOSS(isa)                                                                             \
    DECL_CAPACITY_SUMS(capacity_sums_##isa);                                                       \
    DECL_CAPACITY_BACK(capacity_back_##isa);                                                       \
    DECL_KL_PART(kl_part_##isa);                                                                   \
    DECL_KL_BACK(kl_back_##isa)

#define USE_LOSS(isa)                                                                              \
    .capacity_sums = capacity_sums_##isa, .capacity_back = capacity_back_##isa,                    \
    .kl_part = kl_part_##isa, .kl_back = kl_back_##isa
#define USE_ALL(isa)                                                                               \
    {                                                                                              \
        USE_LOSS(isa),                                                                             \
            .rmsnorm = rmsnorm_##isa, .quant_rows = quant_rows_##isa, .matmul_q = matmul_q_##isa,  \
            .matmul_f = matmul_f_##isa, .quant_words = quant_words_##isa,                          \
            .matmul_words = matmul_words_##isa, .rope = rope_##isa, .swiglu = swiglu_##isa,        \
            .geglu = geglu_##isa, .soft_cap = soft_cap_##isa, .add = add_##isa,                    \
            .attn_queries = attn_queries_##isa, .attn_scores = attn_scores_##isa,                  \
            .attn_qk = attn_qk_##isa, .attn_av = attn_av_##isa, .attn_add = attn_add_##isa,        \
            .softmax = softmax_##isa, .tile_mul = tile_mul_##isa, .add_aged = add_aged_##isa,      \
            .exp_aged = exp_aged_##isa, .exp_row = exp_row_##isa, .max_row = max_row_##isa,        \
            .mul = mul_##isa, .softmax_grad = softmax_grad_##isa,                                  \
            .log_sum_exp = log_sum_exp_##isa, .kv_store = kv_store_##isa,                          \
            .mass_add = mass_add_##isa, .row_cuts = row_cuts_##isa, .mark = mark_##isa,            \
            .mass_add_rows = mass_add_rows_##isa, .mark_rows = mark_rows_##isa,                    \
            .slide = slide_##isa, .slide_spread = slide_spread_##isa, .spread = spread_##isa,      \
            .sum_between = sum_between_##isa, .take_share = take_share_##isa,                      \
            .most_shares = most_shares_##isa, .pool_max = pool_max_##isa,                          \
            .next_low = next_low_##isa, .reduce_sums = reduce_sums_##isa,                          \
            .sum_rows = sum_rows_##isa, .swiglu_back = swiglu_back_##isa,                          \
            .rmsnorm_back = rmsnorm_back_##isa,                                                    \
    }

#if defined(__aarch64__)
DECL_LOSS(neon);
DECL_ALL(neon);
DECL_MATMUL_Q(matmul_q_neondot);

static inline void kernels_init_vectors(struct kernels *k, unsigned flags)
{
    if (flags & CPU_ARM_NEON)
        *k = (struct kernels)USE_ALL(neon);
    if (flags & CPU_ARM_DOT)
        k->matmul_q = matmul_q_neondot;
}
#else
DECL_LOSS(avx2);
DECL_LOSS(avx512);
DECL_ALL(avx2);
DECL_ALL(avx512);
DECL_MATMUL_Q(matmul_q_avxvnni);
DECL_MATMUL_WORDS(matmul_words_avxvnni);
DECL_MATMUL_Q(matmul_q_amx);

static inline void kernels_init_vectors(struct kernels *k, unsigned flags)
{
    if (flags & CPU_X86_AVX2)
        *k = (struct kernels)USE_ALL(avx2);
#if defined HAVE_AVXVNNI && HAVE_AVXVNNI
    if (flags & CPU_X86_AVXVNNI) {
        k->matmul_q = matmul_q_avxvnni;
        k->matmul_words = matmul_words_avxvnni;
    }
#endif
    if (flags & CPU_X86_AVX512)
        *k = (struct kernels)USE_ALL(avx512);
#if defined HAVE_AMX && HAVE_AMX
    if (flags & CPU_X86_AMX)
        k->matmul_q = matmul_q_amx;
#endif
}
#endif

#endif
