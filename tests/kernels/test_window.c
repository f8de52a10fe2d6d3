/* test_window.c - sums over the rows of a window, and how entries are chosen, compared with plain
 * loops. */
#include "variants.h"

enum { MOST = 70, ROWS = 12 };

/* Fills ROWS rows with random weights, some of them tiny. Some entries are younger than some
 * queries (query w has t = w). */
static void fill(struct rng *r, float a[ROWS][MOST], int32_t *pos)
{
    for (int w = 0; w < ROWS; w++)
        for (int j = 0; j < MOST; j++)
            a[w][j] = (float)(rng_uniform(r) * pow(10, -9 * rng_uniform(r)));
    for (int j = 0; j < MOST; j++)
        pos[j] = (int32_t)(rng_uniform(r) * 2 * ROWS) - ROWS;
    a[0][0] = a[5][0] = 1;
    pos[0] = 0;
}

/* Returns x in units of 2^-bits, ties to even. */
static int64_t units(double x, int bits)
{
    return (int64_t)nearbyint(ldexp(x, bits));
}

/* Two query heads with rows w and ROWS - 1 - w; those of the last four queries stay. */
static void slide_all(const struct kernels *k, float a[ROWS][MOST], const int32_t *pos, int len,
                      double *sum, float *out)
{
    enum { WINDOW = 4 };
    for (int w = 0; w < ROWS; w++) {
        int left = w >= WINDOW ? w - WINDOW : w;
        int32_t t = w >= WINDOW ? w - WINDOW : INT32_MIN;
        const struct window_pair p[2] = {{a[w], a[left], w, t},
                                         {a[ROWS - 1 - w], a[ROWS - 1 - left], w, t}};
        const struct window_slide x = {.sum = sum,
                                       .out = w == ROWS - 1 ? out : NULL,
                                       .pair = p,
                                       .pos = pos,
                                       .n_pairs = 2,
                                       .n = len,
                                       .magic = 12, /* units of 2^-49 */
                                       .scale = 0.3};
        k->slide(&x);
    }
}

Test(window, slide_counts_whole_units_and_forgets_what_leaves)
{
    VARIANTS(v, n);
    float a[ROWS][MOST];
    int32_t pos[MOST];
    struct rng r = rng_seeded(5);
    fill(&r, a, pos);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++) {
            double *sum = guard((size_t)len * sizeof *sum);
            float *out = guard((size_t)len * sizeof *out);
            memset(sum, 0, (size_t)len * sizeof *sum);
            slide_all(&v[i].k, a, pos, len, sum, out);
            for (int j = 0; j < len; j++) {
                int64_t want = 0;
                for (int w = ROWS - 4; w < ROWS; w++)
                    want += pos[j] <= w
                                ? units((double)a[w][j], 49) + units((double)a[ROWS - 1 - w][j], 49)
                                : 0;
                cr_expect(eq(dbl, sum[j], ldexp((double)want, -49)), "%s", v[i].name);
                cr_expect(eq(flt, out[j], (float)(ldexp((double)want, -49) * 0.3)), "%s",
                          v[i].name);
            }
            cr_expect(intact(sum) && intact(out), "%s wrote outside", v[i].name);
        }
}

static void expect_spread(const char *name, float got, float a[ROWS][MOST], int32_t pos, int j,
                          int first)
{
    long double mean = 0, var = 0;
    int rows = ROWS - first;
    for (int w = first; w < ROWS; w++)
        mean += pos <= w ? (long double)a[w][j] / rows : 0;
    for (int w = first; w < ROWS; w++) {
        long double d = (pos <= w ? (long double)a[w][j] : 0) - mean;
        var += d * d / (rows - 1);
    }
    double want = (double)(mean + 200 * var);
    cr_expect(fabs((double)got - want) <= 3e-6 * want + 0x1p-50, "%s: %g, not %g", name,
              (double)got, want);
}

Test(window, spread_is_the_mean_and_the_variance_of_the_rows_that_stay)
{
    struct variant v[MAX_VARIANTS];
    float a[ROWS][MOST], out[MOST];
    int32_t pos[MOST];
    struct rng r = rng_seeded(6);
    fill(&r, a, pos);
    int n = variants(v), window = 4;
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++) {
            int64_t sum[MOST + 1] = {0}, square[MOST + 1] = {0};
            for (int w = 0; w < ROWS; w++) {
                struct window_pair p = {a[w], w >= window ? a[w - window] : a[w], w,
                                        w >= window ? w - window : INT32_MIN};
                v[i].k.slide_spread(sum, square, &p, pos, len, 0, 0);
            }
            memset(out, 0, sizeof out);
            v[i].k.spread(out, sum, square, len, window, 200);
            for (int j = 0; j < len; j++) {
                int64_t s = 0, q = 0;
                for (int w = ROWS - window; w < ROWS; w++) {
                    double x = pos[j] <= w ? (double)a[w][j] : 0;
                    s += units(x, 51);
                    q += units(x * x, 51);
                }
                cr_expect(all(eq(i64, sum[j], s), eq(i64, square[j], q)), "%s", v[i].name);
                expect_spread(v[i].name, out[j], a, pos[j], j, ROWS - window);
            }
            cr_expect(all(zero(i64, sum[len]), zero(i64, square[len])), "%s", v[i].name);
        }
}

Test(window, pooling_takes_the_largest_neighbour)
{
    VARIANTS(v, n);
    float x[MOST];
    struct rng r = rng_seeded(8);
    for (int j = 0; j < MOST; j++)
        x[j] = (float)rng_normal(&r);
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++)
            for (int half = 0; half < 5; half++) {
                float out[MOST + 1];
                for (int j = 0; j <= MOST; j++)
                    out[j] = -9;
                v[i].k.pool_max(out, x, len, half);
                for (int j = 0; j <= MOST; j++) {
                    float want = -9;
                    for (int k = j - half; j >= half && j < len - half && k <= j + half; k++)
                        want = x[k] > want ? x[k] : want;
                    cr_expect(eq(flt, out[j], want), "%s: %d of %d", v[i].name, j, len);
                }
            }
}

/* Returns the weight that the queries of ages 1 and 2 gave entry j, over three heads with rings of
 * four rows. */
static float share_by_hand(float a[ROWS][MOST], const int32_t *pos, const float *scale,
                           const int32_t *t, bool max, int j)
{
    enum { RING = 4 };
    float most = 0;
    for (int row = 3; row <= 4; row++) { /* ages 2 and 1; newest is 1 */
        float sum = 0;
        for (int g = 0; g < 3; g++) {
            int at = g * RING + row % RING;
            float x = (!t || pos[j] <= t[at] ? a[at][j] : 0) * scale[2 * at];
            if (max)
                sum = x > sum ? x : sum;
            else
                sum = g == 0 ? x : sum + x;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

Test(window, shares_are_reduced_over_heads_and_then_the_largest)
{
    VARIANTS(v, n);
    float a[ROWS][MOST], scale[2 * ROWS];
    int32_t pos[MOST], t[ROWS];
    struct rng r = rng_seeded(9);
    fill(&r, a, pos);
    for (int i = 0; i < ROWS; i++) {
        scale[2 * i] = (float)rng_uniform(&r);
        scale[2 * i + 1] = -1;
        t[i] = i % 4;
    }
    struct window_shares x = {
        .weight = a[0], .ld_head = 4 * MOST, .ld = MOST, .scale = scale, .n_heads = 3, .ring = 4};
    x.newest = 1;
    x.first = 1;
    x.end = 3;
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++)
            for (int way = 0; way < 4; way++) {
                float out[MOST + 1] = {0};
                x.max = way % 2;
                x.t = way / 2 ? t : NULL;
                v[i].k.most_shares(out, &x, pos, len);
                for (int j = 0; j < len; j++)
                    cr_expect(eq(flt, out[j], share_by_hand(a, pos, scale, x.t, x.max, j)), "%s",
                              v[i].name);
                cr_expect(zero(flt, out[len]), "%s", v[i].name);
            }
}

Test(window, sums_and_shares_count_those_that_were_seen)
{
    VARIANTS(v, n);
    float a[ROWS][MOST];
    int32_t pos[MOST];
    struct rng r = rng_seeded(7);
    fill(&r, a, pos);
    for (int len = 1; len < MOST; len++) {
        double first = 0;
        for (int i = 0; i < n; i++) {
            float row[MOST + 1] = {0}, most[MOST + 1] = {0};
            double sum = v[i].k.sum_between(a[3], pos, len, -3, 6);
            v[i].k.take_share(row, a[3], pos, len, 5, 0.5f, TAKE_FIRST);
            v[i].k.take_share(row, a[4], pos, len, 6, 2, TAKE_SUM);
            v[i].k.take_share(most, a[3], pos, len, 5, 0.5f, TAKE_FIRST);
            v[i].k.take_share(most, a[4], pos, len, 6, 2, TAKE_MAX);
            long double want = 0;
            for (int j = 0; j < len; j++) {
                float x = pos[j] <= 5 ? a[3][j] * 0.5f : 0, y = pos[j] <= 6 ? a[4][j] * 2 : 0;
                want += pos[j] >= -3 && pos[j] < 6 ? (long double)a[3][j] : 0;
                cr_expect(eq(flt, row[j], x + y), "%s", v[i].name);
                cr_expect(eq(flt, most[j], x > y ? x : y), "%s", v[i].name);
            }
            first = i == 0 ? sum : first;
            cr_expect(eq(dbl, sum, first), "%s: other bits than the reference", v[i].name);
            cr_expect(fabs(sum - (double)want) <= 1e-14 * (double)want, "%s", v[i].name);
            cr_expect(all(zero(flt, row[len]), zero(flt, most[len])), "%s", v[i].name);
        }
    }
}

/* Small integer scores with ties, some of them NaN. */
Test(choice, next_low_finds_each_low_slot_in_turn)
{
    VARIANTS(v, n);
    struct rng r = rng_seeded(8);
    for (int len = 1; len < MOST; len++) {
        float score[MOST];
        int32_t pos[MOST];
        for (int j = 0; j < len; j++) {
            score[j] = rng_uniform(&r) < 0.1 ? NAN : (float)(int)(rng_uniform(&r) * 8);
            pos[j] = (int32_t)(rng_uniform(&r) * 20);
        }
        for (int i = 0; i < n; i++)
            for (int with = 0; with < 2; with++) {
                int got = -1;
                for (int j = 0; j <= len; j++) {
                    bool open = j == len || !with || (pos[j] >= 3 && pos[j] <= 16);
                    bool low = j == len || isnan(score[j]) || score[j] <= 2;
                    if (!open || !low)
                        continue;
                    got = v[i].k.next_low(score, with ? pos : NULL, got + 1, len, 3, 17, 2);
                    cr_expect(eq(int, got, j), "%s, %d slots", v[i].name, len);
                }
            }
    }
}

Test(choice, sums_are_reduced_and_newest_rows_count_whole_units)
{
    VARIANTS(v, n);
    float a[ROWS][MOST];
    double sum[ROWS][MOST];
    int32_t pos[MOST];
    struct rng r = rng_seeded(9);
    fill(&r, a, pos);
    for (int w = 0; w < ROWS; w++)
        for (int j = 0; j < MOST; j++)
            sum[w][j] = (double)a[w][j] * 3;
    for (int i = 0; i < n; i++)
        for (int len = 1; len < MOST; len++) {
            float mean[MOST + 1] = {0}, most[MOST + 1] = {0}, rows[MOST + 1] = {0};
            v[i].k.reduce_sums(mean, sum[0], MOST, 3, len, false, 3);
            v[i].k.reduce_sums(most, sum[0], MOST, 3, len, true, 1);
            v[i].k.sum_rows(rows, a[0], MOST, 3, pos, 5, len, 6, 0.25); /* units of 2^-50 */
            for (int j = 0; j < len; j++) {
                int64_t want = 0;
                for (int w = 0; w < 3; w++)
                    want += pos[j] <= 5 ? units((double)a[w][j], 50) : 0;
                cr_expect(eq(flt, mean[j], (float)((sum[0][j] + sum[1][j] + sum[2][j]) / 3)));
                cr_expect(eq(flt, most[j], (float)fmax(fmax(sum[0][j], sum[1][j]), sum[2][j])));
                cr_expect(eq(flt, rows[j], (float)(ldexp((double)want, -50) * 0.25)), "%s",
                          v[i].name);
            }
            cr_expect(all(zero(flt, mean[len]), zero(flt, most[len]), zero(flt, rows[len])), "%s",
                      v[i].name);
        }
}
