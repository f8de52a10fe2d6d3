/* row_cuts_narrow.c - selects sets of a row for AVX2 and NEON. They cannot compress a vector, so
 * the partition moves single entries without branches. */

#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/row_sums.h"
#include "engine/kernels/vector/vec.h"

enum { LEAF = 24 };

static int64_t sum_units(const int32_t *a, size_t n)
{
    const float *p = (const float *)(const void *)a;
    const wide anchor = wide_set(UNIT_ANCHOR);
    wide_bits lo = bits_zero(), hi = lo;
    size_t i = 0;
    for (; i + W <= n; i += W) {
        vec x = v_load(p + i);
        lo = bits_add(lo, wide_sum(v_low(x), anchor));
        hi = bits_add(hi, wide_sum(v_high(x), anchor));
    }
    uint64_t sum = bits_total(lo) + bits_total(hi) - i * UNIT_ANCHOR_BITS;
    for (; i < n; i++)
        sum += (uint64_t)mass_units(p[i]);
    return (int64_t)sum;
}

static int64_t take_row(int32_t *a, const float *p, size_t n)
{
    const vec one = v_set(1.0f), zero = v_zero();
    for (size_t i = 0; i < n; i += W) {
        vec x = v_load_first(p + i, n - i < W ? (int)(n - i) : W);
        x = v_max(v_min(x, one), zero); /* a NaN becomes 1 */
        v_store((float *)(void *)(a + i), x);
    }
    return sum_units(a, n);
}

/* Returns the mean of 16 entries spread over n >= 16. */
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
    for (size_t i = 0; i < n; i++) { /* l <= i: overwrites only entries that are already read */
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

#include "engine/kernels/vector/row_cuts.h"

void ISA(row_cuts)(const float *p, int n, const int *top_k, int n_top, const double *tau, int n_tau,
                   struct row_cut *out, void *scratch)
{
    int32_t *a = scratch;
    struct search s = search_of(p, n, top_k, n_top, tau, n_tau, out);
    cut_row(&s, a, a + n + 32);
}
