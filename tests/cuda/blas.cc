/* blas.cc - emulates the cuBLAS calls that the program uses, with sequential sums in f32.
 * KVF_EMULATED="blas=0" emulates a machine without cuBLAS. */
#include "engine/cuda/blas.cuh"

#include <algorithm>
#include <cstdlib>

struct blas {
    int unused;
};

struct blas *blas_open(cudaStream_t)
{
    const char *device = getenv("KVF_EMULATED");
    return device && strstr(device, "blas=0") ? nullptr : new blas();
}

void blas_close(struct blas *b)
{
    delete b;
}

static void product(enum weight_type type, const void *w, const void *x, float *c, size_t ld, int N,
                    int T, int K)
{
    size_t n = (size_t)N * (size_t)K, m = (size_t)T * (size_t)K;
    std::vector<float> a(n), b(m);
    weight_dequant(a.data(), w, type, n);
    weight_dequant(b.data(), x, type, m);
    for (int t = 0; t < T; t++) {
        const float *row = b.data() + (size_t)t * (size_t)K;
        bool nothing = std::all_of(row, row + K, [](float v) { return v == 0; });
        for (int i = 0; i < N; i++) {
            float sum = 0;
            for (int k = 0; k < K && !nothing; k++) /* many rows are padding of the chunk */
                sum += a[(size_t)i * (size_t)K + (size_t)k] * row[k];
            c[(size_t)t * ld + (size_t)i] = sum;
        }
    }
}

bool blas_product(struct blas *, enum weight_type type, const void *w, const void *x, float *c,
                  size_t ld, int N, int T, int K)
{
    emulated::later([=] { product(type, w, x, c, ld, N, T, K); });
    return true;
}

static float element(struct blas_operand o, int i, int j)
{
    size_t at = o.across ? (size_t)j * o.ld + (size_t)i : (size_t)i * o.ld + (size_t)j;
    float v;
    weight_dequant(&v, (const uint16_t *)o.p + at, WEIGHT_BF16, 1);
    return v;
}

static void multiply(struct blas_operand x, struct blas_operand y, float *c, size_t ld_c, int m,
                     int n, int k, bool add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float *to = &c[(size_t)i * ld_c + (size_t)j], sum = add ? *to : 0;
            for (int l = 0; l < k; l++)
                sum += element(x, i, l) * element(y, l, j);
            *to = sum;
        }
}

bool blas_multiply(struct blas *, struct blas_operand x, struct blas_operand y, float *c,
                   size_t ld_c, int m, int n, int k, bool add)
{
    emulated::later([=] { multiply(x, y, c, ld_c, m, n, k, add); });
    return true;
}
