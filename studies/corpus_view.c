/* corpus_view.c - values of a corpus and their intervals over documents. */
#include <math.h>
#include <string.h>

#include "base/stats.h"
#include "studies/corpus_view.h"

static double real_sum(int64_t whole, int64_t fraction)
{
    return (double)whole + ldexp((double)fraction, -CORPUS_FRACTION_BITS);
}

static double value_of(const struct analyzer_measure *m, int64_t a, int64_t b, int64_t c)
{
    if (measure_kind(m) == MEASURE_QUOTIENT)
        return b > 0 ? (double)a / (double)b : NAN;
    return c > 0 ? real_sum(a, b) / (double)c : NAN;
}

struct view corpus_view(const struct corpus *c, uint32_t row, int m)
{
    const struct analyzer_measure *list = c->a->pool->measures;
    const struct row *r = &c->rows.row[row];
    struct view v = {.m = &list[m],
                     .sum = rows_sum(&c->rows, row) + (size_t)m * N_WORDS,
                     .few = r->few ? r->few + (size_t)m * FEW_WORDS : NULL,
                     .replicate = r->replicate,
                     .n_replicates = (size_t)c->set.replicates};
    for (int k = 0; v.replicate && k < m; k++)
        v.replicate += (size_t)measure_words(&list[k]) * v.n_replicates;
    return v;
}

double view_value(const struct view *v)
{
    return value_of(v->m, v->sum[WORD_A], v->sum[WORD_B], v->sum[WORD_C]);
}

double view_real_sum(const struct view *v)
{
    return real_sum(v->sum[WORD_A], v->sum[WORD_B]);
}

/* The radius for n documents, each of which is left out once. */
static double jackknife(const struct view *v, size_t n)
{
    double left_out[STATS_FEW];
    for (size_t i = 0; i < n; i++) {
        const int64_t *x = v->few + i * N_WORDS;
        left_out[i] = value_of(v->m, v->sum[WORD_A] - x[WORD_A], v->sum[WORD_B] - x[WORD_B],
                               v->sum[WORD_C] - x[WORD_C]);
    }
    return stats_jackknife(left_out, n);
}

int64_t view_interval(const struct view *v, double *scratch, double *ret_low, double *ret_high)
{
    size_t n = 0, R = v->n_replicates;
    int64_t documents = v->sum[WORD_N];
    bool quotient = measure_kind(v->m) == MEASURE_QUOTIENT;
    *ret_low = *ret_high = NAN;
    if (!v->replicate || documents < STATS_LEAST)
        return 0;
    if (documents < STATS_FEW) {
        double value = view_value(v), radius = jackknife(v, (size_t)documents);
        *ret_low = quotient && value < radius ? 0 : value - radius; /* counts are not below 0 */
        *ret_high = value + radius;
        return 0;
    }
    for (size_t k = 0; k < R; k++) {
        const int64_t *r = v->replicate + k;
        double x = value_of(v->m, r[0], r[R], quotient ? 0 : r[2 * R]);
        if (!isnan(x))
            scratch[n++] = x;
    }
    if (n) {
        double tail = stats_tail((size_t)documents);
        *ret_low = stats_quantile(scratch, n, tail);
        *ret_high = stats_quantile(scratch, n, 1 - tail);
    }
    return (int64_t)(R - n);
}

const char *corpus_field(const struct corpus *c, uint32_t row, int k)
{
    const char *s = c->rows.key.data + c->rows.row[row].key_at;
    while (k-- > 0)
        s += strlen(s) + 1;
    return s;
}
