/* blas.cuh - the one product that cuBLAS computes.  blas.cu has it; where kernels are emulated the
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

#endif
