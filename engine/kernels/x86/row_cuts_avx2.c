/* row_cuts_avx2.c - selected sets of a row.  AVX2 cannot compress a vector, so the
 * partition moves single entries, without branches. */
#include <stdbool.h>

#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/row_sums.h"
#include "engine/kernels/x86/vec.h"

enum { LEAF = 24 };

INLINE __m256i anchored(__m128 p)
{
    return _mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(p), _mm256_set1_pd(UNIT_ANCHOR)));
}

static int64_t sum_units(const int32_t *a, size_t n)
{
    const float *p = (const float *)(const void *)a;
    __m256i lo = _mm256_setzero_si256(), hi = lo;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        lo = _mm256_add_epi64(lo, anchored(_mm_loadu_ps(p + i)));
        hi = _mm256_add_epi64(hi, anchored(_mm_loadu_ps(p + i + 4)));
    }
    uint64_t lane[4], sum = 0 - i * UNIT_ANCHOR_BITS;
    _mm256_storeu_si256((__m256i *)(void *)lane, _mm256_add_epi64(lo, hi));
    for (; i < n; i++)
        sum += (uint64_t)mass_units(p[i]);
    return (int64_t)(sum + lane[0] + lane[1] + lane[2] + lane[3]);
}

static int64_t take_row(int32_t *a, const float *p, size_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 8) {
        int left = n - i < 8 ? (int)(n - i) : 8;
        __m256 x = _mm256_maskload_ps(p + i, first_lanes(left));
        x = _mm256_max_ps(_mm256_min_ps(x, one), zero); /* a NaN becomes 1 */
        _mm256_storeu_ps((float *)(void *)(a + i), x);
    }
    return sum_units(a, n);
}

/* Mean of 16 entries spread over n >= 16. */
static float sample_mean(const int32_t *a, size_t n)
{
    size_t step = n / 16;
    float sum = 0;
    for (size_t i = 0; i < 16; i++)
        sum += (float)a[i * step];
    return sum / 16;
}

static int partition(int32_t *a, int32_t *tmp, size_t n, int32_t pivot)
{
    size_t l = 0, r = 0;
    for (size_t i = 0; i < n; i++) { /* l <= i: overwrites only what is read already */
        int32_t v = a[i];
        a[l] = v;
        tmp[r] = v;
        l += v > pivot;
        r += v <= pivot;
    }
    memcpy(a + l, tmp, r * sizeof *a);
    return (int)l;
}

static void sort_leaf(int32_t *out, const int32_t *a, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t v = a[i];
        int at = i;
        for (; at > 0 && out[at - 1] < v; at--)
            out[at] = out[at - 1];
        out[at] = v;
    }
}

static int32_t sorted_at(const int32_t *sorted, int n, int rank)
{
    (void)n;
    return sorted[rank];
}

static int find_mass(const int32_t *sorted, int n, int64_t units)
{
    const float *p = (const float *)(const void *)sorted;
    int rank = 0;
    for (; rank < n - 1 && mass_units(p[rank]) < units; rank++)
        units -= mass_units(p[rank]);
    return rank;
}

#include "engine/kernels/x86/row_cuts.h"

void row_cuts_avx2(const float *p, int n, const int *top_k, int n_top, const double *tau, int n_tau,
                   struct row_cut *out, void *scratch)
{
    int32_t *a = scratch;
    cut_row(p, n, top_k, n_top, tau, n_tau, out, a, a + n + 32);
}
