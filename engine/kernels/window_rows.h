/* window_rows.h - attention rows of a window, entry by entry; included once for each
 * instruction set with WINDOW(name) naming its functions.  What happens to an entry
 * happens to it alone and the sum has a fixed order, so all sets give the same bits and
 * the compiler's vectors serve. */
#include <string.h>

#include "engine/kernels/kernels.h"

/* Units of 2^-51 of 0 <= x < 2, rounded half to even: 2 + x has that many bits. */
static inline int64_t spread_units(double x)
{
    const double two = 2;
    double y = x + two;
    int64_t bits, base;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&base, &two, sizeof base);
    return bits - base;
}

void WINDOW(slide)(double *restrict sum, const struct window_pair *restrict p,
                   const int32_t *restrict pos, int n, double magic)
{
    const float *restrict in = p->in, *restrict out = p->out;
    int32_t t_in = p->t_in, t_out = p->t_out;
    for (int i = 0; i < n; i++) {
        float a = in[i], b = out[i]; /* read in any case: the loop has no branch */
        a = pos[i] <= t_in ? a : 0;
        b = pos[i] <= t_out ? b : 0;
        sum[i] += (((double)a + magic) - magic) - (((double)b + magic) - magic);
    }
}

void WINDOW(slide_spread)(int64_t *restrict sum, int64_t *restrict square,
                          const struct window_pair *restrict p, const int32_t *restrict pos, int n)
{
    const float *restrict in = p->in, *restrict out = p->out;
    int32_t t_in = p->t_in, t_out = p->t_out;
    for (int i = 0; i < n; i++) {
        float a = in[i], b = out[i];
        a = pos[i] <= t_in ? a : 0;
        b = pos[i] <= t_out ? b : 0;
        double x = (double)a, y = (double)b;
        sum[i] += spread_units(x) - spread_units(y);
        square[i] += spread_units(x * x) - spread_units(y * y);
    }
}

void WINDOW(spread)(float *restrict v, const int64_t *restrict sum,
                    const int64_t *restrict square, int n, int rows, double gamma)
{
    double per = rows > 0 ? 1.0 / rows : 0, more = rows > 1 ? gamma / (rows - 1) : 0;
    for (int i = 0; i < n; i++) {
        double s = (double)sum[i] * SPREAD_UNIT, mean = s * per;
        double var = (double)square[i] * SPREAD_UNIT - s * mean;
        v[i] += (float)(mean + more * (var > 0 ? var : 0));
    }
}

double WINDOW(sum_between)(const float *restrict a, const int32_t *restrict pos, int n,
                           int32_t from, int32_t to)
{
    double part[16] = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) {
            float x = a[i + j];
            part[j] += (double)((pos[i + j] >= from) & (pos[i + j] < to) ? x : 0);
        }
    for (; i < n; i++)
        part[i % 16] += (double)(pos[i] >= from && pos[i] < to ? a[i] : 0);
    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            part[j] += part[j + half];
    return part[0];
}

void WINDOW(take_share)(float *restrict row, const float *restrict a, const int32_t *restrict pos,
                        int n, int32_t t, float scale, enum take how)
{
    if (how == TAKE_FIRST)
        for (int i = 0; i < n; i++) {
            float x = a[i];
            row[i] = (pos[i] <= t ? x : 0) * scale;
        }
    else if (how == TAKE_SUM)
        for (int i = 0; i < n; i++) {
            float x = a[i];
            row[i] += (pos[i] <= t ? x : 0) * scale;
        }
    else
        for (int i = 0; i < n; i++) {
            float x = a[i];
            x = (pos[i] <= t ? x : 0) * scale;
            row[i] = x > row[i] ? x : row[i];
        }
}
