/* blas.cu - cuBLAS, loaded at first use, so that the program starts without it. */
#include <dlfcn.h>
#include <stdio.h>

#include "engine/cuda/blas.cuh"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>

/* The header overloads the name, so the function type is written out. */
typedef cublasStatus_t (*gemm_fn)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,
                                  int, const void *, const void *, cudaDataType, int, const void *,
                                  cudaDataType, int, const void *, void *, cudaDataType, int,
                                  cublasComputeType_t, cublasGemmAlgo_t);

struct blas {
    void *library;
    cublasHandle_t handle;
    decltype(&cublasCreate_v2) create;
    decltype(&cublasDestroy_v2) destroy;
    decltype(&cublasSetStream_v2) set_stream;
    decltype(&cublasSetMathMode) set_math;
    gemm_fn gemm;
};

template <class F> static bool find(struct blas *b, F *ret, const char *name)
{
    *ret = (F)dlsym(b->library, name);
    return *ret != NULL;
}

struct blas *blas_open(cudaStream_t stream)
{
    char name[32];
    struct blas *b = (struct blas *)mem_alloc(1, sizeof *b);
    if (!b)
        return NULL;
    snprintf(name, sizeof name, "libcublas.so.%d", CUBLAS_VER_MAJOR);
    b->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (b->library && find(b, &b->create, "cublasCreate_v2")
        && find(b, &b->destroy, "cublasDestroy_v2") && find(b, &b->set_stream, "cublasSetStream_v2")
        && find(b, &b->set_math, "cublasSetMathMode") && find(b, &b->gemm, "cublasGemmEx")
        && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS
        && b->set_stream(b->handle, stream) == CUBLAS_STATUS_SUCCESS
        && b->set_math(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)
               == CUBLAS_STATUS_SUCCESS)
        return b;
    blas_close(b);
    return NULL;
}

void blas_close(struct blas *b)
{
    if (!b)
        return;
    if (b->handle)
        b->destroy(b->handle);
    if (b->library)
        dlclose(b->library);
    mem_free(b);
}

/* cuBLAS is column-major: the rows of w and x are its columns, and c is [T] columns of N. */
bool blas_product(struct blas *b, enum weight_type type, const void *w, const void *x, float *c,
                  size_t ld, int N, int T, int K)
{
    const float one = 1, zero = 0;
    cudaDataType_t t = type == WEIGHT_F32 ? CUDA_R_32F : CUDA_R_16BF;
    return b->gemm(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, N, T, K, &one, w, t, K, x, t, K, &zero, c,
                   CUDA_R_32F, (int)ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)
           == CUBLAS_STATUS_SUCCESS;
}

/* In column-major order c is y^T x^T, and a row-major matrix is already transposed. */
bool blas_multiply(struct blas *b, struct blas_operand x, struct blas_operand y, float *c,
                   size_t ld_c, int m, int n, int k, bool add)
{
    const float one = 1, old = add ? 1 : 0;
    return b->gemm(b->handle, y.across ? CUBLAS_OP_T : CUBLAS_OP_N,
                   x.across ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, y.p, CUDA_R_16BF, (int)y.ld,
                   x.p, CUDA_R_16BF, (int)x.ld, &old, c, CUDA_R_32F, (int)ld_c, CUBLAS_COMPUTE_32F,
                   CUBLAS_GEMM_DEFAULT)
           == CUBLAS_STATUS_SUCCESS;
}
#else
struct blas *blas_open(cudaStream_t stream)
{
    (void)stream;
    return NULL;
}

void blas_close(struct blas *b)
{
    (void)b;
}

bool blas_product(struct blas *, enum weight_type, const void *, const void *, float *, size_t, int,
                  int, int)
{
    return false;
}

bool blas_multiply(struct blas *, struct blas_operand, struct blas_operand, float *, size_t, int,
                   int, int, bool)
{
    return false;
}
#endif
