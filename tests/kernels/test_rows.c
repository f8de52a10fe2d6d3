/* test_rows.c - softmax, entropy, accumulated attention mass and marks of rows compared with their
 * definitions. */
#include "variants.h"

static const int lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 100, 128, 129, 1000, 4097};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, MAX_N = 4097 };

/* Computes p and the log-sum-exp in double precision. */
static double softmax_double(const float *s, int n, double *p)
{
    double max = (double)s[0], sum = 0;
    for (int i = 1; i < n; i++)
        max = fmax(max, (double)s[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)s[i] - max);
    for (int i = 0; i < n; i++)
        p[i] = exp((double)s[i] - max) / sum;
    return max + log(sum);
}

/* Scores of magnitude up to 100 have a rounding error of at most 100 * 2^-24 after the subtraction
 * of the maximum, plus some ulp of exp and the sum. */
static void check_softmax(const struct variant *v, const float *s, int n, double spread)
{
    static double want[MAX_N];
    float *p = guard((size_t)n * sizeof *p);
    memcpy(p, s, (size_t)n * sizeof *p);
    float lse = v->k.softmax(p, n, NULL);
    double right = softmax_double(s, n, want), bound = 1e-6 + spread * 0x1p-23, bad = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        bad = worst(fabs((double)p[i] - want[i]) / (want[i] * bound + 0x1p-148), bad);
        sum += (double)p[i];
    }
    cr_expect(bad <= 1, "%s: n %d, spread %g: %g times the bound", v->name, n, spread, bad);
    cr_expect(fabs(sum - 1) <= 1e-6, "%s: n %d sums to %.9f", v->name, n, sum);
    cr_expect(fabs((double)lse - right) <= 1e-6 + fabs(right) * 0x1p-23, "%s: n %d: %.9g, not %.9g",
              v->name, n, (double)lse, right);
    cr_expect(intact(p), "%s wrote outside", v->name);
}

Test(softmax, equals_double)
{
    VARIANTS(v, n);
    static float s[MAX_N];
    struct rng r = rng_seeded(1);
    for (int i = 0; i < n; i++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (double spread = 0.5; spread < 100; spread *= 4) {
                fill_normal(&r, s, (size_t)lengths[l], spread);
                s[0] += 50;
                check_softmax(&v[i], s, lengths[l], spread * 4 + 50);
            }
}

Test(softmax, far_and_equal_scores)
{
    VARIANTS(v, n);
    for (int i = 0; i < n; i++) {
        float s[19];
        for (int j = 0; j < 19; j++)
            s[j] = -1e4f;
        float lse = v[i].k.softmax(s, 19, NULL);
        for (int j = 0; j < 19; j++)
            cr_expect(fabsf(s[j] - 1.0f / 19) <= 1e-7f, "%s", v[i].name);
        cr_expect(fabs((double)lse - (log(19) - 1e4)) <= 1e-3);
        float far[3] = {0, -95, -1e9f}; /* e^-95 is subnormal, e^-1e9 is 0 */
        v[i].k.softmax(far, 3, NULL);
        cr_expect(eq(flt, far[0], 1), "%s", v[i].name);
        cr_expect(fabs((double)far[1] / exp(-95) - 1) <= 1e-3, "%s: %g", v[i].name, (double)far[1]);
        cr_expect(eq(flt, far[2], 0), "%s", v[i].name);
    }
}

/* Data after a row must not change its results. */
Test(softmax, does_not_depend_on_what_follows)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(2);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < 70; len++) {
            float a[100], b[100];
            fill_normal(&r, a, 100, 3);
            memcpy(b, a, sizeof a);
            for (int j = len; j < 100; j++)
                b[j] = j % 2 ? NAN : 1e30f;
            float ha, hb;
            cr_expect(eq(flt, v[i].k.log_sum_exp(a, len), v[i].k.log_sum_exp(b, len)), "%s: n %d",
                      v[i].name, len);
            float x = v[i].k.softmax(a, len, &ha), y = v[i].k.softmax(b, len, &hb);
            cr_expect(eq(flt, x, y), "%s: n %d", v[i].name, len);
            cr_expect(eq(flt, ha, hb), "%s: n %d", v[i].name, len);
            cr_expect(zero(int, memcmp(a, b, (size_t)len * sizeof *a)), "%s: n %d", v[i].name, len);
        }
}

/* Requesting the entropy or keeping the scores does not change other bits. */
Test(softmax, same_bits_with_the_entropy_and_without)
{
    VARIANTS(v, n);
    static float s[MAX_N], a[MAX_N], b[MAX_N];
    struct rng r = rng_seeded(6);
    for (int i = 0; i < n; i++)
        for (int l = 0; l < N_LENGTHS; l++) {
            size_t bytes = (size_t)lengths[l] * sizeof *s;
            fill_normal(&r, s, (size_t)lengths[l], 4);
            memcpy(a, s, bytes);
            memcpy(b, s, bytes);
            float entropy, lse = v[i].k.log_sum_exp(s, lengths[l]);
            cr_expect(zero(int, memcmp(a, s, bytes)), "%s: n %d", v[i].name, lengths[l]);
            cr_expect(eq(flt, lse, v[i].k.softmax(a, lengths[l], NULL)), "%s", v[i].name);
            cr_expect(eq(flt, lse, v[i].k.softmax(b, lengths[l], &entropy)), "%s", v[i].name);
            cr_expect(zero(int, memcmp(a, b, bytes)), "%s: n %d", v[i].name, lengths[l]);
        }
}

/* Computes the definition, -sum p ln p, in double precision. */
static double entropy_double(const float *s, int n)
{
    static double p[MAX_N];
    double h = 0;
    softmax_double(s, n, p);
    for (int i = 0; i < n; i++)
        h -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    return h;
}

Test(entropy, equals_double)
{
    VARIANTS(v, n);
    static float s[MAX_N], p[MAX_N];
    struct rng r = rng_seeded(3);
    for (int l = 0; l < N_LENGTHS; l++)
        for (int kind = 0; kind < 6; kind++) {
            int len = lengths[l];
            fill_normal(&r, s, (size_t)len, kind == 4 ? 30 : 1.5 * kind);
            s[len - 1] += kind == 5 ? 20 : 0; /* nearly all of the mass */
            for (int j = 0; kind == 3 && j < len; j += 2)
                s[j] = -1e5f; /* 0 ln 0 counts as 0 */
            double want = entropy_double(s, len);
            for (int i = 0; i < n; i++) {
                float got;
                memcpy(p, s, (size_t)len * sizeof *p);
                v[i].k.softmax(p, len, &got);
                cr_expect(fabs((double)got - want) <= 1e-6 * (1 + want),
                          "%s: n %d, kind %d: %.9g, not %.9g", v[i].name, len, kind, (double)got,
                          want);
            }
        }
}

Test(entropy, of_one_and_of_equal_entries)
{
    VARIANTS(v, n);
    for (int i = 0; i < n; i++) {
        float got, one[20], even[64], alone = -3;
        for (int j = 0; j < 20; j++)
            one[j] = j == 11 ? 5 : -INFINITY;
        v[i].k.softmax(one, 20, &got);
        cr_expect(eq(flt, got, 0), "%s", v[i].name);
        v[i].k.softmax(&alone, 1, &got);
        cr_expect(eq(flt, got, 0), "%s", v[i].name);
        for (int j = 0; j < 64; j++)
            even[j] = -7;
        v[i].k.softmax(even, 64, &got);
        cr_expect(fabs((double)got - log(64)) <= 5e-7, "%s", v[i].name);
    }
}

Test(mass_add, adds_and_keeps_the_maximum)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(4);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < 70; len++) {
            double *sum = guard((size_t)len * sizeof *sum), want[70] = {0}, alone[70] = {0};
            float *max = guard((size_t)len * sizeof *max), p[70], top[70] = {0};
            memset(sum, 0, (size_t)len * sizeof *sum);
            memset(max, 0, (size_t)len * sizeof *max);
            for (int round = 0; round < 5; round++) {
                for (int j = 0; j < len; j++) {
                    p[j] = rng_below(&r, 20) ? (float)rng_uniform(&r) : NAN; /* NaN is no maximum */
                    want[j] += (double)p[j];
                    top[j] = p[j] > top[j] ? p[j] : top[j];
                }
                v[i].k.mass_add(sum, max, p, len);
                v[i].k.mass_add(alone, NULL, p, len);
            }
            cr_expect(zero(int, memcmp(alone, want, (size_t)len * sizeof *sum)), "%s", v[i].name);
            cr_expect(zero(int, memcmp(sum, want, (size_t)len * sizeof *sum)), "%s", v[i].name);
            cr_expect(zero(int, memcmp(max, top, (size_t)len * sizeof *max)), "%s", v[i].name);
            cr_expect(intact(sum) && intact(max), "%s wrote outside", v[i].name);
        }
}

/* Makes consecutive rows with a gap; all rows but the last are padded with 0. */
static struct weight_rows some_rows(struct rng *r, float *p, size_t ld, int n, int n_rows)
{
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < n + n_rows - 1; j++)
            p[(size_t)i * ld + (size_t)j] = j < n + i ? (float)rng_below(r, 512) / 512 : 0;
    return (struct weight_rows){p, ld, n, n_rows};
}

Test(mass_add_rows, is_mass_add_row_by_row)
{
    enum { LD = 170 };
    VARIANTS(v, n_var);
    static float p[16 * LD];
    struct rng r = rng_seeded(6);
    for (int i = 0; i < n_var; i++)
        for (int n = 1; n < 150; n++) {
            struct weight_rows w = some_rows(&r, p, LD, n, 1 + n % 16);
            size_t all = (size_t)(n + w.n_rows - 1);
            p[rng_below(&r, (unsigned)w.n_rows) * LD + rng_below(&r, (unsigned)n)] = NAN;
            double *sum = guard(all * sizeof *sum), want[LD];
            float *max = guard(all * sizeof *max), top[LD];
            for (size_t j = 0; j < all; j++) {
                sum[j] = want[j] = rng_uniform(&r);
                max[j] = top[j] = (float)rng_uniform(&r);
            }
            v[i].k.mass_add_rows(sum, max, &w);
            for (int k = 0; k < w.n_rows; k++)
                for (int j = 0; j < n + k; j++) {
                    want[j] += (double)p[k * LD + j];
                    top[j] = p[k * LD + j] > top[j] ? p[k * LD + j] : top[j];
                }
            cr_expect(zero(int, memcmp(sum, want, all * sizeof *sum)), "%s", v[i].name);
            cr_expect(zero(int, memcmp(max, top, all * sizeof *max)), "%s", v[i].name);
            cr_expect(intact(sum) && intact(max), "%s wrote outside", v[i].name);
        }
}

/* Checks that a member is 7 and that other elements keep their initial value. */
static bool marked_right(const void *last, int width, int i, bool member)
{
    if (width == 2)
        return ((const uint16_t *)last)[i] == (member ? 7 : 0xa5a5);
    return ((const uint32_t *)last)[i] == (member ? 7 : 0xa5a5a5a5);
}

Test(mark, writes_the_step_of_members_only)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(5);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < 150; len++)
            for (int tie = 0; tie <= len; tie += 1 + len / 9)
                for (int width = 2; width <= 4; width += 2) {
                    float p[150], threshold = len % 5 ? 0.5f : 0;
                    for (int j = 0; j < len; j++)
                        p[j] = (float)rng_below(&r, 4) / 4;
                    struct row_cut cut = {threshold, tie, 0};
                    void *last = guard((size_t)(len * width));
                    bool ok = true;
                    v[i].k.mark(last, width, p, len, &cut, 7);
                    for (int j = 0; j < len; j++)
                        ok = ok
                             && marked_right(last, width, j,
                                             p[j] > threshold || (p[j] == threshold && j >= tie));
                    cr_expect(ok, "%s: n %d, ties from %d, width %d", v[i].name, len, tie, width);
                    cr_expect(intact(last), "%s wrote outside", v[i].name);
                }
}

/* Fills a row with few distinct weights, so that many equal a threshold. */
static void fill_ties(struct rng *r, float *p, int n)
{
    for (int j = 0; j < n; j++)
        p[j] = (float)rng_below(r, 4) / 4;
}

Test(member_bits, sets_the_bits_of_members_only)
{
    enum { MOST = 330, CUTS = 3, LD = MOST / 64 + 2 };
    VARIANTS(v, n);
    struct rng r = rng_seeded(8);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++) {
            float *p = guard((size_t)len * sizeof *p);
            size_t words = ((size_t)len + 63) / 64;
            uint64_t *bits = guard(((CUTS - 1) * LD + words) * sizeof *bits);
            struct row_cut cut[CUTS];
            bool ok = true;
            fill_ties(&r, p, len);
            for (int c = 0; c < CUTS; c++)
                cut[c] = (struct row_cut){(float)rng_below(&r, 4) / 4,
                                          c ? (int)rng_below(&r, (uint64_t)len + 1) : 0, 1};
            v[i].k.member_bits(bits, LD, p, len, cut, CUTS);
            for (int c = 0; c < CUTS; c++)
                for (int j = 0; j < (int)words * 64; j++) {
                    bool bit = bits[c * LD + j / 64] >> j % 64 & 1;
                    bool tie = j < len && p[j] == cut[c].threshold && j >= cut[c].first_tie;
                    ok = ok && bit == (tie || (j < len && p[j] > cut[c].threshold));
                }
            cr_expect(ok, "%s: n %d", v[i].name, len);
            cr_expect(intact(bits), "%s wrote outside", v[i].name);
        }
}

Test(count_below, counts_smaller_weights)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(9);
    for (int i = 0; i < n; i++)
        for (int len = 0; len < 150; len++) {
            float p[150], bar = (float)rng_below(&r, 5) / 4;
            int want = 0;
            fill_ties(&r, p, len);
            for (int j = 0; j < len; j++)
                want += p[j] < bar;
            for (int j = len; j < 150; j++)
                p[j] = -1;
            cr_expect(eq(int, v[i].k.count_below(p, len, bar), want), "%s: n %d", v[i].name, len);
        }
}

/* Returns the last step, counted from 100, at which column j is in the c-th set of a row, or
 * 0xa5a5.. if there is none. */
static uint32_t last_of(const struct weight_rows *w, const struct row_cut *cut, int n_cuts, int c,
                        int j, int width)
{
    uint32_t last = width == 2 ? 0xa5a5 : 0xa5a5a5a5;
    for (int k = 0; k < w->n_rows; k++)
        if (j < w->n + k
            && row_cut_has(&cut[k * n_cuts + c], w->p[(size_t)k * w->ld + (size_t)j], j))
            last = 100 + (uint32_t)k;
    return last;
}

static void check_mark_rows(const struct variant *v, const struct weight_rows *w,
                            const struct row_cut *cut, int n_cuts, int width)
{
    enum { MOST = 9 };
    void *last[MOST];
    int all = w->n + w->n_rows - 1;
    bool ok = true;
    for (int c = 0; c < n_cuts; c++)
        last[c] = guard((size_t)(all * width));
    v->k.mark_rows(last, width, w, cut, n_cuts, 100);
    for (int c = 0; c < n_cuts; c++) {
        for (int j = 0; j < all; j++) {
            const void *at = (char *)last[c] + j * width;
            uint32_t got = width == 2 ? *(const uint16_t *)at : *(const uint32_t *)at;
            ok = ok && got == last_of(w, cut, n_cuts, c, j, width);
        }
        cr_expect(intact(last[c]), "%s wrote outside", v->name);
    }
    cr_expect(ok, "%s: n %d, %d rows, %d cuts, width %d", v->name, w->n, w->n_rows, n_cuts, width);
}

Test(mark_rows, is_mark_row_by_row)
{
    enum { LD = 170, CUTS = 9 };
    VARIANTS(v, n_var);
    static float p[16 * LD];
    struct row_cut cut[16 * CUTS];
    struct rng r = rng_seeded(7);
    for (int n = 1; n < 150; n++) {
        struct weight_rows w = some_rows(&r, p, LD, n, 1 + n % 16);
        for (int k = 0; k < 16 * CUTS; k++) { /* few rows split ties; some contain all entries */
            int tie = n % 5 == 0 && rng_below(&r, 9) == 0 ? 1 + (int)rng_below(&r, (uint64_t)n) : 0;
            cut[k] = (struct row_cut){(float)rng_below(&r, 512) / 512, tie, 1};
            if (rng_below(&r, 9) == 0)
                cut[k] = (struct row_cut){0, 0, n};
        }
        for (int i = 0; i < n_var; i++)
            check_mark_rows(&v[i], &w, cut, n % 3 ? 7 : CUTS, n % 2 ? 2 : 4);
    }
}
