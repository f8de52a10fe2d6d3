/* kernels_ref.h - the C reference kernels. They are always built and define the correct results. */
#ifndef KVF_ENGINE_KERNELS_REF_H
#define KVF_ENGINE_KERNELS_REF_H

#include "engine/kernels/kernels.h"

DECL_RMSNORM(rmsnorm_ref);
DECL_QUANT_ROWS(quant_rows_ref);
DECL_MATMUL_Q(matmul_q_ref);
DECL_MATMUL_F(matmul_f_ref);
DECL_QUANT_WORDS(quant_words_ref);
DECL_MATMUL_WORDS(matmul_words_ref);
DECL_ROPE(rope_ref);
DECL_SWIGLU(swiglu_ref);
DECL_SWIGLU(geglu_ref);
DECL_SOFT_CAP(soft_cap_ref);
DECL_ADD(add_ref);
DECL_ATTN_QK(attn_qk_ref);
DECL_ATTN_QUERIES(attn_queries_ref);
DECL_ATTN_SCORES(attn_scores_ref);
DECL_ATTN_AV(attn_av_ref);
/* Kernels for pages of integers. */
DECL_ATTN_AV(attn_av_ints_ref);
DECL_ATTN_ADD(attn_add_ref);
DECL_KV_STORE(kv_store_ints_ref);
DECL_TILE_MUL(tile_mul_ref);
DECL_ADD_AGED(add_aged_ref);
DECL_EXP_AGED(exp_aged_ref);
DECL_EXP_ROW(exp_row_ref);
DECL_MAX_ROW(max_row_ref);
DECL_MUL(mul_ref);
DECL_SOFTMAX_GRAD(softmax_grad_ref);
DECL_SOFTMAX(softmax_ref);
DECL_LOG_SUM_EXP(log_sum_exp_ref);
DECL_KV_STORE(kv_store_ref);
DECL_MASS_ADD(mass_add_ref);
DECL_ROW_CUTS(row_cuts_ref);
DECL_MARK(mark_ref);
DECL_MASS_ADD_ROWS(mass_add_rows_ref);
DECL_MARK_ROWS(mark_rows_ref);
DECL_SLIDE(slide_ref);
DECL_SLIDE_SPREAD(slide_spread_ref);
DECL_SPREAD(spread_ref);
DECL_SUM_BETWEEN(sum_between_ref);
DECL_TAKE_SHARE(take_share_ref);
DECL_MOST_SHARES(most_shares_ref);
DECL_POOL_MAX(pool_max_ref);
DECL_NEXT_LOW(next_low_ref);
DECL_REDUCE_SUMS(reduce_sums_ref);
DECL_SUM_ROWS(sum_rows_ref);
DECL_SWIGLU_BACK(swiglu_back_ref);
DECL_RMSNORM_BACK(rmsnorm_back_ref);
DECL_CAPACITY_SUMS(capacity_sums_ref);
DECL_CAPACITY_BACK(capacity_back_ref);
DECL_KL_PART(kl_part_ref);
DECL_KL_BACK(kl_back_ref);

#endif
