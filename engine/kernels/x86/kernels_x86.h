/* kernels_x86.h - included by kernels.c only. */
#ifndef KVF_ENGINE_KERNELS_X86_H
#define KVF_ENGINE_KERNELS_X86_H

#include "engine/kernels/kernels.h"

DECL_QUANT_ROWS(quant_rows_avx512);
DECL_MATMUL_Q(matmul_q_avx512);
DECL_MATMUL_F(matmul_f_avx512);
DECL_SWIGLU(swiglu_avx512);
DECL_ATTN_QK(attn_qk_avx512);
DECL_ATTN_AV(attn_av_avx512);
DECL_SOFTMAX(softmax_avx512);
DECL_ROW_ENTROPY(row_entropy_avx512);
DECL_KV_STORE(kv_store_avx512);
DECL_MASS_ADD(mass_add_avx512);
DECL_ROW_CUTS(row_cuts_avx512);
DECL_MARK(mark_avx512);

static inline void kernels_init_x86(struct kernels *k, unsigned flags)
{
    if (!(flags & CPU_X86_AVX512))
        return;
    k->quant_rows = quant_rows_avx512;
    k->matmul_q = matmul_q_avx512;
    k->matmul_f = matmul_f_avx512;
    k->swiglu = swiglu_avx512;
    k->attn_qk = attn_qk_avx512;
    k->attn_av = attn_av_avx512;
    k->softmax = softmax_avx512;
    k->row_entropy = row_entropy_avx512;
    k->kv_store = kv_store_avx512;
    k->mass_add = mass_add_avx512;
    k->row_cuts = row_cuts_avx512;
    k->mark = mark_avx512;
}

#endif
