/* test_stats.c - paired permutation tests, false discovery rates, bootstrap weights, and confidence
 * intervals for few values. */
#include "base/stats.h"
#include "tests/suite.h"

/* 1, 2, 3: of the 8 sums, only 6 and -6 are as far from 0 as 6: p = 2 / 8. 1, -2, 3: the sum is 2;
 * |s| >= 2 for 6, 4, -4, -6, 2, -2, and not for 0, twice: 6 / 8. 1, 1, 1, 1: the sum is 4: 2 / 16.
 * A single difference is always as far as itself. */
Test(sign_flips, by_hand)
{
    static const double a[] = {1, 2, 3}, b[] = {1, -2, 3}, c[] = {1, 1, 1, 1}, d[] = {0, 0};
    cr_expect(eq(dbl, stats_sign_flips(a, 3, 10, 0), 0.25));
    cr_expect(eq(dbl, stats_sign_flips(b, 3, 10, 0), 0.75));
    cr_expect(eq(dbl, stats_sign_flips(c, 4, 10, 0), 0.125));
    cr_expect(eq(dbl, stats_sign_flips(a, 1, 10, 0), 1));
    cr_expect(eq(dbl, stats_sign_flips(d, 2, 10, 0), 1));
    cr_expect(isnan(stats_sign_flips(a, 0, 10, 0)));
    static const double none[] = {1, NAN}, far[] = {1, INFINITY};
    cr_expect(isnan(stats_sign_flips(none, 2, 10, 0)));
    cr_expect(isnan(stats_sign_flips(far, 2, 10, 0)));
}

/* With integers, sums are exact, and so is the count over all patterns in a plain loop. */
Test(sign_flips, all_patterns_against_a_plain_loop)
{
    struct rng r = rng_seeded(3);
    for (size_t n = 1; n <= STATS_ALL_SIGNS; n++) {
        double v[STATS_ALL_SIGNS], seen = 0;
        int as_far = 0;
        for (size_t i = 0; i < n; i++)
            seen += v[i] = (double)rng_below(&r, 21) - 8;
        for (uint32_t minus = 0; minus < 1u << n; minus++) {
            double s = 0;
            for (size_t i = 0; i < n; i++)
                s += minus >> i & 1 ? -v[i] : v[i];
            as_far += fabs(s) >= fabs(seen);
        }
        cr_expect(eq(dbl, stats_sign_flips(v, n, 10, 0), as_far / ldexp(1, (int)n)), "%zu", n);
    }
}

/* Tenths are not exact in binary, but patterns with equal sums must count as equal: with n
 * differences of 0.1, only the two patterns of equal signs are as far from 0. */
Test(sign_flips, rounding_does_not_part_what_is_equal)
{
    double v[STATS_ALL_SIGNS];
    for (size_t n = 0; n < STATS_ALL_SIGNS; n++)
        v[n] = 0.1;
    cr_expect(eq(dbl, stats_sign_flips(v, STATS_ALL_SIGNS, 10, 0), ldexp(2, -STATS_ALL_SIGNS)));
}

/* 20 differences of 1: only 2 of 2^20 patterns, with equal signs, are as far from 0. Random
 * patterns give 1 / (1 + samples) unless one is hit. For 30 signs, P(|sum| >= 10) follows from
 * binomials. */
Test(sign_flips, random_patterns)
{
    double v[30];
    for (int i = 0; i < 30; i++)
        v[i] = 1;
    cr_expect(eq(dbl, stats_sign_flips(v, 20, 999, 5), 0.001));
    for (int i = 0; i < 10; i++)
        v[i] = -1; /* the sum is 10 */
    double p = 0, log_all = 30 * log(2);
    for (int k = 0; k <= 30; k++) /* k minus signs: the sum is 30 - 2 k */
        if (abs(30 - 2 * k) >= 10)
            p += exp(lgamma(31) - lgamma(k + 1) - lgamma(31 - k) - log_all);
    double got = stats_sign_flips(v, 30, 40000, 5);
    cr_expect(fabs(got - p) < 5 * sqrt(p * (1 - p) / 40000), "%g, not %g", got, p);
    cr_expect(eq(dbl, stats_sign_flips(v, 30, 40000, 5), got));
}

/* The table of Benjamini and Hochberg (1995, section 3.1) has 15 p values. By their rule the first
 * four are rejected at 0.05: q_4 <= 0.05 < q_5. By hand: q_15 = 1, q_4 = min(15 x 0.0095 / 4, ...)
 * = 0.035625, q_1 = 15 x 0.0001. */
Test(fdr, published_example)
{
    static const double p[15] = {0.0459, 0.0001, 0.0004, 1.0000, 0.0019, 0.0095, 0.0201, 0.0278,
                                 0.0298, 0.0344, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590};
    double q[15];
    int rejected = 0;
    cr_assert(eq(int, stats_fdr(p, 15, q), KVF_OK));
    for (int i = 0; i < 15; i++)
        rejected += q[i] <= 0.05;
    cr_expect(eq(int, rejected, 4));
    cr_expect(fabs(q[5] - 0.035625) < 1e-15);
    cr_expect(fabs(q[1] - 0.0015) < 1e-15);
    cr_expect(fabs(q[2] - 0.003) < 1e-15);
    cr_expect(eq(dbl, q[3], 1));
    cr_expect(fabs(q[7] - q[8]) < 1e-15, "15 x 0.0298 / 7 is less than 15 x 0.0278 / 6");
}

/* Compares with the definition: q_i is the lowest level at which the step-up rule rejects i. */
Test(fdr, brute_force_with_ties_and_nan)
{
    struct rng r = rng_seeded(8);
    for (int round = 0; round < 200; round++) {
        double p[12], q[12];
        int n = (int)rng_below(&r, 13), m = 0;
        for (int i = 0; i < n; i++) {
            p[i] = rng_below(&r, 5) ? (double)rng_below(&r, 11) / 10 : NAN;
            m += !isnan(p[i]);
        }
        cr_assert(eq(int, stats_fdr(p, (size_t)n, q), KVF_OK));
        for (int i = 0; i < n; i++) {
            double least = 1;
            for (int j = 0; j < n; j++) {
                int rank = 0; /* number of p values <= p[j] */
                for (int k = 0; k < n; k++)
                    rank += p[k] <= p[j];
                if (p[j] >= p[i] && p[j] * m / rank < least)
                    least = p[j] * m / rank;
            }
            cr_expect(isnan(p[i]) ? isnan(q[i]) : fabs(q[i] - least) < 1e-15);
        }
        cr_assert(eq(int, stats_fdr(p, (size_t)n, p), KVF_OK));
        cr_expect(eq(int, n ? memcmp(p, q, (size_t)n * sizeof *p) : 0, 0), "in place");
    }
}

/* The expected values e^-1 / k! start from e^-1 in long double. */
Test(poisson, distribution_and_ends)
{
    enum { N = 400000, MOST = 8 };
    int count[MOST] = {0};
    long double term = 0.367879441171442321595523770161460867L, below = 0;
    for (uint64_t i = 0; i < N; i++) {
        int k = rng_poisson1(rng_hash(1, 2, i, 0));
        count[k < MOST - 1 ? k : MOST - 1]++;
    }
    for (int k = 0; k < MOST - 1; k++) {
        double p = (double)term;
        cr_expect(fabs(count[k] / (double)N - p) < 5 * sqrt(p * (1 - p) / N), "%d", k);
        below += term;
        uint64_t limit = (uint64_t)(below * 18446744073709551616.0L);
        cr_expect(eq(int, rng_poisson1(limit - 64), k), "just below the limit of %d", k);
        cr_expect(eq(int, rng_poisson1(limit + 64), k + 1), "just above the limit of %d", k);
        term /= k + 1;
    }
    cr_expect(eq(int, rng_poisson1(0), 0));
    cr_expect(eq(int, rng_poisson1(UINT64_MAX), 20));
}

Test(hash_bytes, every_byte_and_the_length_count)
{
    unsigned char v[40] = {0};
    uint64_t seen[41 + 40];
    int n = 0;
    for (size_t len = 0; len <= 40; len++)
        seen[n++] = rng_hash_bytes(9, v, len);
    for (int i = 0; i < 40; i++, v[i - 1] = 0) {
        v[i] = 1;
        seen[n++] = rng_hash_bytes(9, v, 40);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            cr_expect(ne(u64, seen[i], seen[j]));
}

/* A plain implementation: only the continued fraction in DLMF 8.17.22, with sequential Newton
 * steps. */
static double plain_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), h, delta;
    h = d = 1 / (fabs(d) < tiny ? tiny : d);
    for (int m = 1; m < 100000; m++) {
        double term[] = {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                         -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))};
        for (int k = 0; k < 2; k++) {
            d = 1 + term[k] * d;
            c = 1 + term[k] / c;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            delta = d * (fabs(c) < tiny ? tiny : c);
            h *= delta;
        }
        if (fabs(delta - 1) < 1e-15)
            break;
    }
    return h;
}

static double plain_quantile(double q, double a, double b)
{
    double lo = 0, hi = 1, x = a / (a + b), scale = lgamma(a + b) - lgamma(a) - lgamma(b);
    for (int i = 0; i < 200 && hi - lo > 1e-16 * hi; i++) {
        double front = exp(scale + a * log(x) + b * log1p(-x));
        double below = !(x > 0)                    ? 0
                       : x >= 1                    ? 1
                       : x < (a + 1) / (a + b + 2) ? front * plain_fraction(x, a, b) / a
                                                   : 1 - front * plain_fraction(1 - x, b, a) / b;
        double slope = exp(scale + (a - 1) * log(x) + (b - 1) * log1p(-x));
        *(below < q ? &lo : &hi) = x;
        double next = x - (below - q) / slope;
        if (!(next > lo && next < hi))
            next = lo + (hi - lo) / 2;
        if (fabs(next - x) <= 1e-15 * x)
            return next;
        x = next;
    }
    return x;
}

/* Quantiles computed in parallel equal single ones bit for bit. Covers few and many observations,
 * rates near 0 and 1, integers (where terms are 0), and counts that leave some lanes unused. */
Test(beta, many_quantiles_are_those_of_one)
{
    enum { N = 3001 };
    static double q[N], a[N], b[N], x[N];
    struct rng r = rng_seeded(8);
    for (int i = 0; i < N; i++) {
        q[i] = i % 5 == 0 ? rng_uniform(&r) : i % 2 ? .025 : .975;
        a[i] = i % 3 == 1 ? a[i - 1] : exp(18 * rng_uniform(&r) - (i % 7 ? 3 : 9));
        b[i] = i % 3 == 1 ? b[i - 1] : exp(16 * rng_uniform(&r) - 3);
        if (i % 11 == 0)
            a[i] = 1 + (double)rng_below(&r, 6), b[i] = 1 + (double)rng_below(&r, 6);
    }
    for (size_t n = 0, from = 0; from < N; from += n, n = n % 90 + 1) {
        n = n < N - from ? n : N - from;
        stats_beta_quantiles(q + from, a + from, b + from, n, x + from);
    }
    for (int i = 0; i < N; i++) {
        cr_assert(x[i] == plain_quantile(q[i], a[i], b[i]), "%g of %g, %g: %a, not %a", q[i], a[i],
                  b[i], x[i], plain_quantile(q[i], a[i], b[i]));
        cr_assert(i % 50 || x[i] == stats_beta_quantile(q[i], a[i], b[i]));
    }
}

/* Checks quantiles with the closed forms for a or b of 1: x^a and 1 - (1 - x)^b. */
Test(beta, quantiles_of_powers)
{
    for (int k = 1; k < 40; k++) {
        double p = k / 40., n = 1 + k * k;
        cr_expect(fabs(stats_beta_quantile(p, n, 1) - pow(p, 1 / n)) < 1e-13);
        cr_expect(fabs(stats_beta_quantile(p, 1, n) + expm1(log1p(-p) / n)) < 1e-13);
        cr_expect(fabs(stats_beta_cdf(p, n, 1) - pow(p, n)) < 1e-13);
        cr_expect(stats_beta_cdf(-p, n, 1) == 0 && stats_beta_cdf(1 + p, n, 1) == 1);
    }
    cr_expect(stats_beta_cdf(0, 2, 3) == 0 && stats_beta_cdf(1, 2, 3) == 1);
    cr_expect(isnan(stats_beta_cdf(NAN, 2, 3)));
}

/* Quantiles of Student's t come from tables, the tail from its equation. */
Test(stats, tails_of_expanded_percentiles)
{
    static const struct {
        size_t n;
        double t;
    } row[] = {{4, 3.182446305284263}, {10, 2.2621571628540993}, {30, 2.045229642132703}};
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        double n = (double)row[k].n, z = row[k].t * sqrt(n / (n - 1));
        cr_expect(fabs(stats_t(n - 1) - row[k].t) < 1e-9, "%g", stats_t(n - 1));
        cr_expect(fabs(stats_tail(row[k].n) - .5 * erfc(z / sqrt(2))) < 1e-9);
    }
    cr_expect(fabs(stats_tail(1000000) - .025) < 1e-6, "%g", stats_tail(1000000));
}

/* For means, the jackknife interval is Student's t interval. */
Test(stats, jackknife_of_means_is_t)
{
    double v[6] = {1, 4, 2, 8, 5, 7}, left_out[6], low, high, all = 27;
    for (int i = 0; i < 6; i++)
        left_out[i] = (all - v[i]) / 5;
    stats_t_interval(v, 6, &low, &high);
    cr_expect(fabs(stats_jackknife(left_out, 6) - (high - low) / 2) < 1e-12);
    cr_expect(isnan(stats_jackknife(left_out, 1)));
}

Test(stats, mean_interval_of_few)
{
    double v[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, low, high, least, most;
    for (size_t n = 0; n < 10; n++) {
        cr_assert(stats_mean_interval(v, n, 2000, 1, &low, &high) == KVF_OK);
        stats_t_interval(v, n, &least, &most);
        cr_expect(n < 4 ? isnan(low) && isnan(high) : low == least && high == most, "%zu", n);
    }
    cr_assert(stats_mean_interval(v, 10, 2000, 1, &low, &high) == KVF_OK);
    stats_t_interval(v, 10, &least, &most);
    cr_expect(low > least && low > 0 && high > low, "%g %g", low, high); /* low: of the bootstrap */
}
