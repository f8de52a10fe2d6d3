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

/* Eight entries; what the set lacks the compiler makes of narrower vectors. */
typedef float window_f8 __attribute__((vector_size(32)));
typedef int32_t window_i8 __attribute__((vector_size(32)));
typedef double window_d8 __attribute__((vector_size(64)));
typedef int64_t window_l8 __attribute__((vector_size(64)));

/* Eight weights of entries that the query saw; 0 for those that came later. */
static inline void window_seen(window_d8 *x, const float *a, const int32_t *pos, int32_t t)
{
    window_i8 p, bits;
    window_f8 f;
    memcpy(&p, pos, sizeof p);
    memcpy(&bits, a, sizeof bits);
    bits &= p <= t; /* 0 or all bits */
    memcpy(&f, &bits, sizeof f);
    *x = __builtin_convertvector(f, window_d8);
}

static inline double window_seen_one(float a, int32_t pos, int32_t t)
{
    return pos <= t ? (double)a : 0;
}

void WINDOW(slide)(double *restrict sum, const struct window_pair *restrict p,
                   const int32_t *restrict pos, int n, double magic)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        window_d8 a, b, s;
        window_seen(&a, p->in + i, pos + i, p->t_in);
        window_seen(&b, p->out + i, pos + i, p->t_out);
        memcpy(&s, sum + i, sizeof s);
        s += ((a + magic) - magic) - ((b + magic) - magic);
        memcpy(sum + i, &s, sizeof s);
    }
    for (; i < n; i++) {
        double a = window_seen_one(p->in[i], pos[i], p->t_in);
        double b = window_seen_one(p->out[i], pos[i], p->t_out);
        sum[i] += ((a + magic) - magic) - ((b + magic) - magic);
    }
}

/* sum += the units of a - those of b: 2 + x has x in units of 2^-51 in its last bits.  Vectors are
 * passed by pointer, since how they are passed by value depends on the instruction set. */
static inline void window_count(int64_t *sum, const window_d8 *a, const window_d8 *b)
{
    window_l8 s, x, y;
    window_d8 more = *a + 2.0, less = *b + 2.0;
    memcpy(&s, sum, sizeof s);
    memcpy(&x, &more, sizeof x);
    memcpy(&y, &less, sizeof y);
    s += x - y;
    memcpy(sum, &s, sizeof s);
}

void WINDOW(slide_spread)(int64_t *restrict sum, int64_t *restrict square,
                          const struct window_pair *restrict p, const int32_t *restrict pos, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        window_d8 a, b;
        window_seen(&a, p->in + i, pos + i, p->t_in);
        window_seen(&b, p->out + i, pos + i, p->t_out);
        window_count(sum + i, &a, &b);
        a *= a;
        b *= b;
        window_count(square + i, &a, &b);
    }
    for (; i < n; i++) {
        double a = window_seen_one(p->in[i], pos[i], p->t_in);
        double b = window_seen_one(p->out[i], pos[i], p->t_out);
        sum[i] += spread_units(a) - spread_units(b);
        square[i] += spread_units(a * a) - spread_units(b * b);
    }
}

void WINDOW(spread)(float *restrict v, const int64_t *restrict sum, const int64_t *restrict square,
                    int n, int rows, double gamma)
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
    window_d8 part[2] = {{0}, {0}};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        /* a hint that no address can spoil: the next row lies about n weights on */
        __builtin_prefetch((const void *)((uintptr_t)(a + i) + (size_t)n * sizeof *a));
        for (int j = 0; j < 2; j++) {
            window_i8 p, x;
            window_f8 f;
            memcpy(&p, pos + i + 8 * j, sizeof p);
            memcpy(&x, a + i + 8 * j, sizeof x);
            x &= (p >= from) & (p < to);
            memcpy(&f, &x, sizeof f);
            part[j] += __builtin_convertvector(f, window_d8);
        }
    }
    for (; i < n; i++)
        part[i % 16 / 8][i % 8] += (double)(pos[i] >= from && pos[i] < to ? a[i] : 0);
    window_d8 sum = part[0] + part[1];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
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
