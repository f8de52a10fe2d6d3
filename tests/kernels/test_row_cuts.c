/* test_row_cuts.c - the top-k and mass sets of rows compared with a full sort. */
#include "variants.h"

/* Brute force by the contract: sort positions by (descending weight, descending position), take the
 * first ones, and compare the members. */
static const float *sorting; /* the row that by_rank() compares */

static int by_rank(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (sorting[i] != sorting[j])
        return sorting[i] > sorting[j] ? -1 : 1;
    return j - i;
}

/* Converts to units of 2^-50, ties to even. Sums are exact in a 64-bit long double in any order. */
static long double mass(float p)
{
    return rintl((long double)p * 0x1p50L);
}

/* Returns how many of the sorted entries reach tau; all if the mass is zero. */
static int mass_count(const float *p, int n, const int *rank, double tau)
{
    long double total = 0, sum = 0;
    for (int i = 0; i < n; i++)
        total += mass(p[i]);
    int m = 0;
    while (total > 0 && (double)sum < tau * (double)total)
        sum += mass(p[rank[m++]]);
    return total > 0 ? m : n;
}

static bool is_member(const struct row_cut *c, const float *p, int i)
{
    return p[i] > c->threshold || (p[i] == c->threshold && i >= c->first_tie);
}

static bool right_set(const struct row_cut *c, const float *p, int n, const int *rank, int m)
{
    bool ok = c->count == m;
    for (int j = 0; j < n; j++)
        ok = ok && is_member(c, p, rank[j]) == (j < m);
    /* The result must also have the canonical form. */
    if (m == n)
        return ok && c->threshold == 0 && c->first_tie == 0;
    bool splits = p[rank[m]] == p[rank[m - 1]];
    return ok && c->threshold == p[rank[m - 1]] && c->first_tie == (splits ? rank[m - 1] : 0);
}

enum { N_TOP = 5, N_TAU = 4, N_CUTS = N_TOP + N_TAU };
static const int top_k[N_TOP] = {1, 8, 64, 65, 512};
static const double tau[N_TAU] = {.5, .9, .99, 1};

/* With these targets, only the largest weights count, unlike with a mass of 1, which needs the full
 * row. */
enum { N_LARGE = 4 };
static const int top_large[N_LARGE] = {64, 128, 256, 512};
static const double tau_large[N_LARGE] = {.5, .9, .95, .99};

static void check_large(const struct variant *v, const float *p, int n, const int *rank,
                        const char *what)
{
    struct row_cut cut[2 * N_LARGE];
    void *scratch = guard(row_cuts_scratch(n));
    v->k.row_cuts(p, n, top_large, N_LARGE, tau_large, N_LARGE, cut, scratch);
    for (int c = 0; c < N_LARGE; c++) {
        cr_expect(right_set(&cut[c], p, n, rank, top_large[c] < n ? top_large[c] : n),
                  "%s: %s, n %d: top %d of large ones", v->name, what, n, top_large[c]);
        cr_expect(right_set(&cut[N_LARGE + c], p, n, rank, mass_count(p, n, rank, tau_large[c])),
                  "%s: %s, n %d: mass %g of large ones", v->name, what, n, tau_large[c]);
    }
    cr_expect(intact(scratch), "%s wrote outside", v->name);
}

static void check_row(const struct variant *v, const float *p, int n, const char *what)
{
    OWNED(mem_free) int *rank = MEM_NEW(int, (size_t)n);
    void *scratch = guard(row_cuts_scratch(n));
    struct row_cut *cut = guard(N_CUTS * sizeof *cut);
    for (int i = 0; i < n; i++)
        rank[i] = i;
    sorting = p;
    qsort(rank, (size_t)n, sizeof *rank, by_rank);
    v->k.row_cuts(p, n, top_k, N_TOP, tau, N_TAU, cut, scratch);
    for (int c = 0; c < N_TOP; c++)
        cr_expect(right_set(&cut[c], p, n, rank, top_k[c] < n ? top_k[c] : n),
                  "%s: %s, n %d: top %d", v->name, what, n, top_k[c]);
    for (int c = 0; c < N_TAU; c++)
        cr_expect(right_set(&cut[N_TOP + c], p, n, rank, mass_count(p, n, rank, tau[c])),
                  "%s: %s, n %d: mass %g", v->name, what, n, tau[c]);
    cr_expect(intact(scratch) && intact(cut), "%s wrote outside", v->name);
    check_large(v, p, n, rank, what);
}

static void to_weights(float *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)p[i]);
    for (int i = 0; i < n; i++)
        p[i] = (float)(exp((double)p[i]) / sum);
}

enum { MAX_N = 6000 };
typedef void (*row_fn)(struct rng *r, float *p, int n);

static void flat(struct rng *r, float *p, int n)
{
    fill_normal(r, p, (size_t)n, 0.05);
    to_weights(p, n);
}

static void usual(struct rng *r, float *p, int n)
{
    fill_normal(r, p, (size_t)n, 2);
    p[0] += 6; /* a sink */
    to_weights(p, n);
}

static void peaked(struct rng *r, float *p, int n)
{
    fill_normal(r, p, (size_t)n, 15);
    to_weights(p, n);
}

static void few_values(struct rng *r, float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (float)rng_below(r, 3);
    to_weights(p, n);
}

static void with_zeros(struct rng *r, float *p, int n)
{
    usual(r, p, n);
    for (int i = 0; i < n; i++)
        p[i] = rng_below(r, 4) ? 0 : p[i];
}

static void equal(struct rng *r, float *p, int n)
{
    (void)r;
    for (int i = 0; i < n; i++)
        p[i] = 1.0f / (float)n;
}

static void zeros(struct rng *r, float *p, int n)
{
    (void)r;
    memset(p, 0, (size_t)n * sizeof *p);
}

/* Around and below one unit of mass, where rounding to units decides. */
static void tiny(struct rng *r, float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (float)ldexp(rng_uniform(r) * 2, -51 + (int)rng_below(r, 4));
}

static void subnormal(struct rng *r, float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (float)ldexp(rng_uniform(r), -130 - (int)rng_below(r, 15));
}

/* Exponents of all magnitudes, most weights far below the largest: pivots split badly. */
static void ladder(struct rng *r, float *p, int n)
{
    (void)r;
    for (int i = 0; i < n; i++)
        p[i] = (float)ldexp(1, -6 - i % 140);
}

/* One weight in nine is about eight times as large as the rest. Together the large ones have
 * exactly half of the mass, since every second one lacks what the previous one has in excess. */
static void halves(struct rng *r, float *p, int n)
{
    int large = n / 18 * 2;
    float off = 0;
    for (int i = 0; i < n; i++) {
        off = i % 2 ? -off : (float)rng_below(r, 1 << 12) * 0x1p-30f;
        p[i] = (i < large ? 0x1p-9f : 0x1p-12f) + off;
        p[i] = i < 9 * large ? p[i] : 0;
    }
}

static void one_large(struct rng *r, float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = 0x1p-20f;
    p[rng_below(r, (uint64_t)n)] = 0.5f;
}

static const struct {
    const char *name;
    row_fn make;
} rows[] = {
    {"flat", flat},
    {"usual", usual},
    {"peaked", peaked},
    {"few values", few_values},
    {"with zeros", with_zeros},
    {"equal", equal},
    {"zeros", zeros},
    {"tiny", tiny},
    {"subnormal", subnormal},
    {"ladder", ladder},
    {"halves", halves},
    {"one large", one_large},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

Test(row_cuts, sets_are_those_of_a_sorted_row)
{
    VARIANTS(v, n_var);
    static float p[MAX_N];
    struct rng r = rng_seeded(1);
    for (int k = 0; k < N_ROWS; k++)
        for (int round = 0; round < 60; round++) {
            int n = round < 20 ? round + 1 : 1 + (int)rng_below(&r, round < 50 ? 700 : MAX_N);
            rows[k].make(&r, p, n);
            for (int i = 0; i < n_var; i++)
                check_row(&v[i], p, n, rows[k].name);
        }
}

Test(row_cuts, lengths_around_registers_and_leaves)
{
    VARIANTS(v, n_var);
    static float p[600];
    struct rng r = rng_seeded(2);
    for (int n = 1; n <= 530; n++) {
        usual(&r, p, n);
        if (n % 3 == 0)
            few_values(&r, p, n);
        for (int i = 0; i < n_var; i++)
            check_row(&v[i], p, n, "lengths");
    }
}

/* Data after the row must not matter. */
Test(row_cuts, does_not_look_beyond_the_row)
{
    VARIANTS(v, n_var);
    static float p[700];
    struct rng r = rng_seeded(3);
    for (int n = 1; n < 600; n += 7) {
        usual(&r, p, n);
        for (int i = n; i < 700; i++)
            p[i] = 1;
        for (int i = 0; i < n_var; i++)
            check_row(&v[i], p, n, "followed by ones");
    }
}

/* By hand: 0.5 | 0.125 0.125 0.125 0.125. The three largest are 0.5 and the last two ties. 0.7 of
 * the mass needs two of the ties, 0.5 only the first entry. */
Test(row_cuts, ties_go_to_the_larger_position)
{
    VARIANTS(v, n_var);
    static const float p[5] = {.125f, .125f, .5f, .125f, .125f};
    static const int k = 3;
    static const double t[2] = {.5, .7};
    for (int i = 0; i < n_var; i++) {
        struct row_cut c[3];
        void *scratch = mem_alloc(row_cuts_scratch(5), 1);
        v[i].k.row_cuts(p, 5, &k, 1, t, 2, c, scratch);
        mem_free(scratch);
        cr_expect(eq(flt, c[0].threshold, .125f), "%s", v[i].name);
        cr_expect(eq(int, c[0].first_tie, 3), "%s", v[i].name);
        cr_expect(eq(int, c[0].count, 3), "%s", v[i].name);
        cr_expect(eq(flt, c[1].threshold, .5f), "%s", v[i].name);
        cr_expect(eq(int, c[1].count, 1), "%s", v[i].name);
        cr_expect(eq(int, c[2].first_tie, 3), "%s", v[i].name);
        cr_expect(eq(int, c[2].count, 3), "%s", v[i].name);
    }
}

/* NaN rows must not cause an endless loop or a stray write. */
Test(row_cuts, survives_not_a_number)
{
    VARIANTS(v, n_var);
    struct rng r = rng_seeded(4);
    for (int i = 0; i < n_var; i++)
        for (int n = 1; n < 900; n += 111) {
            float p[900];
            usual(&r, p, n);
            for (int j = 0; j < n; j += 1 + (int)rng_below(&r, 3))
                p[j] = j % 2 ? NAN : -NAN;
            void *scratch = guard(row_cuts_scratch(n));
            struct row_cut cut[N_CUTS];
            v[i].k.row_cuts(p, n, top_k, N_TOP, tau, N_TAU, cut, scratch);
            cr_expect(intact(scratch), "%s wrote outside", v[i].name);
        }
}
