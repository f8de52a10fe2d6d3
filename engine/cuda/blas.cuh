/* blas.cuh - products computed by cuBLAS. blas.cu implements it; the tests have their own version
 * for emulated kernels. */
#ifndef KVF_ENGINE_CUDA_BLAS_CUH
#define KVF_ENGINE_CUDA_BLAS_CUH

#include "engine/cuda/device.cuh"

struct blas;

/* Opens cuBLAS for work on the stream; NULL: this machine has no cuBLAS. */
struct blas *blas_open(cudaStream_t stream);
void blas_close(struct blas *b); /* accepts NULL */

/* c[t][n] = sum over k of w[n][k] x[t][k] in f32, for n < N, t < T. w: [N][K] and x: [T][K], both
 * f32 or both bf16 (type). Rows of c are ld apart. Returns false on failure. */
bool blas_product(struct blas *b, enum weight_type type, const void *w, const void *x, float *c,
                  size_t ld, int N, int T, int K);

/* A bf16 matrix with rows ld apart or, with `across`, with columns ld apart. */
struct blas_operand {
    const void *p;
    size_t ld;
    bool across;
};
/* c (m x n, rows ld_c apart) = or += x (m x k) y (k x n), sums in f32. Returns false on failure. */
bool blas_multiply(struct blas *b, struct blas_operand x, struct blas_operand y, float *c,
                   size_t ld_c, int m, int n, int k, bool add);

#endif
