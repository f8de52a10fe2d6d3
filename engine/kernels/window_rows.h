/* window_rows.h - kernels over attention rows of an observation window, entry by entry. Each
 * instruction set includes it once and defines WINDOW(name), which names its functions. Entries are
 * independent and sums have a fixed order, so all sets give the same bits and compiler-generated
 * vectors are enough. */
#include <string.h>

#include "engine/kernels/kernels.h"

/* Returns x, 0 <= x < 2, in units of 2^-51, rounded half to even: 2 + x has that precision. */
static inline int64_t spread_units(double x)
{
    const double two = 2;
    double y = x + two;
    int64_t bits, base;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&base, &two, sizeof base);
    return bits - base;
}

/* Vectors of eight entries. The compiler splits vectors that are wider than the set supports. */
typedef float window_f8 __attribute__((vector_size(32)));
typedef int32_t window_i8 __attribute__((vector_size(32)));
typedef double window_d8 __attribute__((vector_size(64)));
typedef int64_t window_l8 __attribute__((vector_size(64)));

/* Loads the weights of eight entries; 0 for entries later than the query. */
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

/* Prefetches the line at p + bytes; any address is allowed. */
static inline void window_ask(const void *p, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)p + bytes), 0, 2);
}

/* Updates eight sums. a + magic is a multiple of the unit, and so is the difference of two of
 * them. */
static inline void window_slide_some(const struct window_slide *x, int i)
{
    window_d8 a, b, s;
    window_f8 f;
    memcpy(&s, x->sum + i, sizeof s);
    for (const struct window_pair *p = x->pair; p < x->pair + x->n_pairs; p++) {
        window_seen(&a, p->in + i, x->pos + i, p->t_in);
        window_seen(&b, p->out + i, x->pos + i, p->t_out);
        s += (a + x->magic) - (b + x->magic);
    }
    memcpy(x->sum + i, &s, sizeof s);
    if (!x->out)
        return;
    f = __builtin_convertvector(s * x->scale, window_f8);
    memcpy(x->out + i, &f, sizeof f);
}

/* Prefetches the data of 16 entries that is read next. */
static inline void window_slide_ask(const struct window_slide *x, int i)
{
    window_ask(x->sum + i, x->next_sum * sizeof *x->sum);
    window_ask(x->sum + i + 8, x->next_sum * sizeof *x->sum);
    for (const struct window_pair *p = x->pair; p < x->pair + x->n_pairs; p++) {
        window_ask(p->in + i, x->next_row * sizeof *p->in);
        window_ask(p->out + i, x->next_row * sizeof *p->out);
    }
}

void WINDOW(slide)(const struct window_slide *x)
{
    int i = 0;
    for (; i + 16 <= x->n; i += 16) {
        window_slide_ask(x, i);
        window_slide_some(x, i);
        window_slide_some(x, i + 8);
    }
    for (; i < x->n; i++) {
        double s = x->sum[i];
        for (const struct window_pair *p = x->pair; p < x->pair + x->n_pairs; p++)
            s += (window_seen_one(p->in[i], x->pos[i], p->t_in) + x->magic)
                 - (window_seen_one(p->out[i], x->pos[i], p->t_out) + x->magic);
        x->sum[i] = s;
        if (x->out)
            x->out[i] = (float)(s * x->scale);
    }
}

/* sum += units of a - units of b. The low bits of 2 + x are x in units of 2^-51. Vectors are passed
 * by pointer, because passing by value depends on the instruction set. */
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
                          const struct window_pair *restrict p, const int32_t *restrict pos, int n,
                          size_t next_row, size_t next_sum)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        window_d8 a, b;
        window_ask(sum + i, next_sum * sizeof *sum);
        window_ask(square + i, next_sum * sizeof *square);
        if (i % 16 == 0) {
            window_ask(p->in + i, next_row * sizeof *p->in);
            window_ask(p->out + i, next_row * sizeof *p->out);
        }
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
        /* prefetch accepts any address; the next row is about n weights further */
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
