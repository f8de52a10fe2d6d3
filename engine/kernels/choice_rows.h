/* choice_rows.h - kernels that reduce scores of entries before a selection. Each instruction set
 * includes it once and defines CHOICE(name), which names its functions. All sets give the same
 * bits. */
#include <string.h>

#include "engine/kernels/kernels.h"

typedef double choice_d8 __attribute__((vector_size(64)));
typedef float choice_f8 __attribute__((vector_size(32)));
typedef int32_t choice_i8 __attribute__((vector_size(32)));

void CHOICE(reduce_sums)(float *restrict out, const double *restrict sum, size_t ld, int n_rows,
                         int n, bool max, double divisor)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        choice_d8 s, x;
        memcpy(&s, sum + i, sizeof s);
        for (int g = 0; g < n_rows; g++) /* prefetch accepts any address */
            __builtin_prefetch(
                (const void *)((uintptr_t)(sum + i) + (size_t)(n_rows + g) * ld * sizeof *sum), 0,
                2);
        for (int g = 1; g < n_rows; g++) {
            memcpy(&x, sum + (size_t)g * ld + i, sizeof x);
            if (max)
                for (int j = 0; j < 8; j++)
                    s[j] = x[j] > s[j] ? x[j] : s[j];
            else
                s += x;
        }
        if (divisor != 1)
            s /= divisor;
        choice_f8 f = __builtin_convertvector(s, choice_f8);
        memcpy(out + i, &f, sizeof f);
    }
    for (; i < n; i++) {
        double s = sum[i];
        for (int g = 1; g < n_rows; g++) {
            double x = sum[(size_t)g * ld + (size_t)i];
            if (!max)
                s += x;
            else if (x > s)
                s = x;
        }
        out[i] = (float)(s / divisor);
    }
}

void CHOICE(sum_rows)(float *restrict out, const float *restrict row, size_t ld, int n_rows,
                      const int32_t *restrict pos, int32_t t, int n, double magic, double scale)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        choice_d8 s = {0};
        choice_i8 seen, bits;
        choice_f8 f;
        memcpy(&seen, pos + i, sizeof seen);
        seen = seen <= t;
        for (int g = 0; g < n_rows; g++) {
            memcpy(&bits, row + (size_t)g * ld + i, sizeof bits);
            bits &= seen; /* 0 or all bits */
            memcpy(&f, &bits, sizeof f);
            s += (__builtin_convertvector(f, choice_d8) + magic) - magic;
        }
        f = __builtin_convertvector(s * scale, choice_f8);
        memcpy(out + i, &f, sizeof f);
    }
    for (; i < n; i++) {
        double s = 0;
        for (int g = 0; g < n_rows; g++)
            s += ((double)(pos[i] <= t ? row[(size_t)g * ld + (size_t)i] : 0) + magic) - magic;
        out[i] = (float)(s * scale);
    }
}
