/* blas.cuh - the products that cuBLAS computes.  blas.cu has it; where kernels are emulated the
 * tests have one of their own. */
#ifndef KVF_ENGINE_CUDA_BLAS_CUH
#define KVF_ENGINE_CUDA_BLAS_CUH

#include "engine/cuda/device.cuh"

struct blas;

/* NULL: there is no cuBLAS on this machine.  Its work goes to the stream. */
struct blas *blas_open(cudaStream_t stream);
void blas_close(struct blas *b); /* accepts NULL */

/* c[t][n] = the sum over k of w[n][k] x[t][k] in f32, for n < N, t < T.  w: [N][K] and x: [T][K],
 * both f32 or both bf16 (type); rows of c are ld apart.  false: it failed. */
bool blas_product(struct blas *b, enum weight_type type, const void *w, const void *x, float *c,
                  size_t ld, int N, int T, int K);

/* A matrix of bf16 whose rows lie ld apart, or with `across` its columns. */
struct blas_operand {
    const void *p;
    size_t ld;
    bool across;
};
/* c (m x n, rows ld_c apart) = or += x (m x k) y (k x n), sums in f32.  false: it failed. */
bool blas_multiply(struct blas *b, struct blas_operand x, struct blas_operand y, float *c,
                   size_t ld_c, int m, int n, int k, bool add);

#endif
