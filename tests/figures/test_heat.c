/* test_heat.c - compares the rasters of alpha and retention maps with an average over all T x T
 * cells, and checks ticks, tick texts and palettes. */
#include "render/axis.h"
#include "render/heat.h"
#include "render/palette.h"
#include "tests/suite.h"

/* Returns the length of the overlap of [a, b) and [c, d). */
static double overlap(double a, double b, double c, double d)
{
    double n = fmin(b, d) - fmax(a, c);
    return n > 0 ? n : 0;
}

/* A window: tokens 0 .. n - 1, steps from .. to - 1 over w x h boxes. */
struct map {
    long n, from, to;
    int w, h;
    double *mean, *cover; /* [h][w] */
};

static struct map map_make(heat_column_fn *f, const double *number, long n, long from, long to,
                           int w, int h)
{
    size_t area = (size_t)w * (size_t)h;
    struct map m = {n, from, to, w, h, calloc(area, 8), calloc(area, 8)};
    SCOPED(heat_finish) struct heat heat = {0};
    OWNED(free) double *mean = calloc((size_t)h, 8), *cover = calloc((size_t)h, 8);
    OWNED(mem_free) double *scratch = MEM_NEW(double, (size_t)heat_scratch(h));
    cr_assert_eq(heat_init(&heat, n, from, to, w, h), 0);
    memset(scratch, 0x55, (size_t)heat_scratch(h) * 8); /* any earlier content */
    for (int c = 0; c < w; c++) {
        f(&heat, number, c, mean, cover, scratch);
        for (int r = 0; r < h; r++) {
            m.mean[(size_t)r * (size_t)w + (size_t)c] = mean[r];
            m.cover[(size_t)r * (size_t)w + (size_t)c] = cover[r];
        }
    }
    return m;
}

static void map_free(struct map *m)
{
    free(m->mean);
    free(m->cover);
}

static double alpha_at(double end, long age, long t)
{
    (void)age;
    return (double)t < end ? 1 : 0;
}

static double decay_at(double log_beta, long age, long t)
{
    (void)t;
    return age > 0 ? exp((double)age * log_beta) : 1;
}

/* Computes the mean of a box by visiting every cell; cell (t, i) is the unit square [t, t+1) x [i,
 * i+1). */
static void box_mean(const struct map *m, const double *number, double (*at)(double, long, long),
                     int r, int c, double *mean, double *cover)
{
    double x0 = (double)m->n * c / m->w, x1 = (double)m->n * (c + 1) / m->w;
    double y0 = (double)m->from + (double)(m->to - m->from) * r / m->h;
    double y1 = (double)m->from + (double)(m->to - m->from) * (r + 1) / m->h, seen = 0, all = 0;
    for (long i = (long)x0 > 0 ? (long)x0 - 1 : 0; i < m->n && (double)i < x1; i++)
        for (long t = (long)y0 > i ? (long)y0 - 1 : i; t < m->to && (double)t < y1; t++) {
            double area = overlap(x0, x1, (double)i, (double)(i + 1))
                          * overlap(y0, y1, (double)t, (double)(t + 1));
            if (t < i || area <= 0)
                continue;
            all += area;
            seen += area * at(number[i], t - i, t);
        }
    *cover = all / ((x1 - x0) * (y1 - y0));
    *mean = *cover > 1e-7 ? seen / all : NAN;
}

static void compare_window(heat_column_fn *f, double (*at)(double, long, long),
                           const double *number, long n, long from, long to, int w, int h)
{
    SCOPED(map_free) struct map m = map_make(f, number, n, from, to, w, h);
    double want, part;
    for (int r = 0; r < h; r++)
        for (int c = 0; c < w; c++) {
            size_t k = (size_t)r * (size_t)w + (size_t)c;
            box_mean(&m, number, at, r, c, &want, &part);
            cr_assert_lt(fabs(m.cover[k] - part), 1e-9,
                         "n %ld, steps %ld:%ld, %d x %d, box %d %d: cover %.12g, want %.12g", n,
                         from, to, w, h, r, c, m.cover[k], part);
            cr_assert(isnan(want) ? isnan(m.mean[k]) || part > 0 : fabs(m.mean[k] - want) <= 1e-6,
                      "n %ld, steps %ld:%ld, %d x %d, box %d %d: %.12g, want %.12g", n, from, to, w,
                      h, r, c, m.mean[k], want);
        }
}

static const long lengths[] = {1, 2, 3, 7, 16, 33, 61, 97};
static const int sides[] = {1, 2, 3, 5, 8, 16, 31, 33, 64, 97, 130};

/* Compares the complete triangle, then parts: steps from the first token on, steps before any token
 * of the window ends, steps after the last token's creation, and steps beyond the tokens. */
static void compare_all(heat_column_fn *f, double (*at)(double, long, long), const double *number,
                        long n)
{
    const long steps[][2] = {{0, n},         {n / 3, n},        {0, n / 2 + 1}, {n / 4, n / 4 + 1},
                             {n, 3 * n + 2}, {n / 2, 2 * n + 5}};
    for (size_t b = 0; b < sizeof sides / sizeof *sides; b++) {
        compare_window(f, at, number, n, 0, n, sides[b], sides[b]);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
            compare_window(f, at, number, n, steps[k][0], steps[k][1], sides[b],
                           sides[(b + 4 + k) % 11]);
    }
}

Test(heat, decay_is_the_area_average)
{
    static const double kinds[] = {0, -1e-12, -1.5e-8, -1e-3, -0.03, -0.4, -3, -90, -INFINITY};
    unsigned seed = 5;
    for (size_t a = 0; a < sizeof lengths / sizeof *lengths; a++) {
        double x[97];
        for (long i = 0; i < lengths[a]; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = kinds[seed / 7 % 9];
        }
        compare_all(heat_decay, decay_at, x, lengths[a]);
    }
}

/* Rounding errors do not grow along the rows: 20,000 tokens, the last row in closed form. */
Test(heat, decay_of_many_rows_stays_exact)
{
    enum { T = 20000, H = 700 };
    static double x[T];
    for (int i = 0; i < T; i++)
        x[i] = i == 0 ? -1e-4 : -INFINITY;
    SCOPED(map_free) struct map m = map_make(heat_decay, x, T, 0, T, 1, H);
    double from = (double)T * (H - 1) / H, want = 0, area = 0;
    for (int t = (int)from; t < T; t++) {
        double part = overlap(from, T, t, t + 1);
        want += part * exp(-1e-4 * t);
        area += part * (t + 1);
    }
    for (int t = (int)from; t < T; t++) /* other tokens count only on the diagonal */
        want += overlap(from, T, t, t + 1);
    cr_assert_float_eq(m.mean[H - 1] / (want / area), 1, 1e-9);
}

/* A single pixel is the mean of means, in closed form, and is fast for 131,072 tokens. */
Test(heat, one_pixel_of_many_tokens)
{
    enum { T = 131072 };
    static double x[T];
    double want = 0;
    for (int i = 0; i < T; i++) {
        x[i] = -pow(10, -5.0 * (i % 1000) / 1000);
        want += expm1((T - i) * x[i]) / expm1(x[i]);
    }
    SCOPED(map_free) struct map m = map_make(heat_decay, x, T, 0, T, 1, 1);
    cr_assert_float_eq(m.mean[0] / (want / (0.5 * T * (T + 1.0))), 1, 1e-10);
}

/* Columns of a map of 20,000 x 20,000 pixels: a box inside one cell has the value of that cell. */
Test(heat, boxes_smaller_than_cells)
{
    enum { N = 7, SIDE = 20000 };
    const double end[N] = {1, 5, INFINITY, 4, 7, 6, 7};
    static double mean[SIDE], cover[SIDE];
    OWNED(mem_free) double *scratch = MEM_NEW(double, (size_t)heat_scratch(SIDE));
    SCOPED(heat_finish) struct heat m = {0};
    cr_assert_eq(heat_init(&m, N, 0, N, SIDE, SIDE), 0);
    for (int c = 0; c < SIDE; c += 1237) {
        int i = (int)((double)N * c / SIDE), next = (int)((double)N * (c + 1) / SIDE);
        heat_alpha(&m, end, c, mean, cover, scratch);
        for (int r = 0; r < SIDE && i == next; r++) {
            double t0 = (double)N * r / SIDE, t1 = (double)N * (r + 1) / SIDE;
            if (t1 <= i)
                cr_assert(isnan(mean[r]), "column %d, row %d: %g", c, r, mean[r]);
            else if ((int)t0 == (int)(t1 - 1e-9) && t0 >= i)
                cr_assert_float_eq(mean[r], (int)t0 < end[i], 1e-9, "column %d, row %d: %g", c, r,
                                   mean[r]);
        }
    }
}

Test(heat, decay_without_a_number_is_none)
{
    const double x[] = {0, NAN, -INFINITY};
    SCOPED(map_free) struct map m = map_make(heat_decay, x, 3, 0, 3, 3, 3);
    const double *v = m.mean;
    cr_assert(v[0] == 1 && v[3] == 1 && v[6] == 1 && isnan(v[4]) && isnan(v[7]) && v[8] == 1);
}

/* Returns an end of any kind: alive, evicted directly after creation, at T, between. */
static double end_of(unsigned *seed, long i, long T)
{
    *seed = *seed * 1664525u + 1013904223u;
    unsigned k = *seed >> 28;
    *seed = *seed * 1664525u + 1013904223u;
    double u = (*seed >> 8) / 16777216.0;
    return k < 3   ? INFINITY
           : k < 4 ? (double)T
           : k < 6 ? (double)(i + 1)
           : k < 7 ? (double)i
                   : floor((double)(i + 1) + u * (double)(T - i));
}

Test(heat, raster_is_the_area_average)
{
    unsigned seed = 1;
    for (size_t a = 0; a < sizeof lengths / sizeof *lengths; a++) {
        double end[97];
        for (long i = 0; i < lengths[a]; i++)
            end[i] = end_of(&seed, i, lengths[a]);
        compare_all(heat_alpha, alpha_at, end, lengths[a]);
    }
}

/* evicted at 2, 3, 3, alive: cells 2 + 2 + 1 + 1 of 4 * 5 / 2 */
static const double four[] = {2, 3, 3, INFINITY};

Test(heat, one_pixel_is_one_minus_sparsity)
{
    SCOPED(map_free) struct map m = map_make(heat_alpha, four, 4, 0, 4, 1, 1);
    cr_assert_float_eq(m.mean[0], 0.6, 1e-12);
}

Test(heat, a_pixel_a_cell_is_alpha_itself)
{
    SCOPED(map_free) struct map m = map_make(heat_alpha, four, 4, 0, 4, 4, 4);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++) {
            double v = m.mean[t * 4 + i];
            if (i > t)
                cr_assert(isnan(v));
            else
                cr_assert_float_eq(v, t < four[i] ? 1 : 0, 1e-12);
        }
}

Test(axis, ticks_are_round_and_inside)
{
    static const double range[][2] = {{0, 1},    {0, 7},      {-3, 4},      {0.083, 0.91},
                                      {0, 1322}, {5, 131072}, {1e-7, 3e-6}, {99, 101}};
    for (size_t k = 0; k < sizeof range / sizeof *range; k++)
        for (int want = 1; want <= 6; want++) {
            double v[16];
            int n = ticks_linear(range[k][0], range[k][1], want, v, 16);
            cr_assert_leq(n, want + 2);
            for (int i = 0; i < n; i++) {
                cr_assert_geq(v[i], range[k][0] - 1e-6 * (range[k][1] - range[k][0]));
                cr_assert_leq(v[i], range[k][1] + 1e-6 * (range[k][1] - range[k][0]));
            }
            for (int i = 1; i < n; i++) { /* the step is 1, 2 or 5 times a power of ten */
                double step = v[i] - v[i - 1], f = step / pow(10, floor(log10(step) + 1e-9));
                cr_assert(fabs(f - 1) < 1e-6 || fabs(f - 2) < 1e-6 || fabs(f - 5) < 1e-6, "step %g",
                          step);
            }
        }
    double v[16];
    cr_assert_eq(ticks_linear(0, 1, 5, v, 16), 6); /* 0, 0.2, ... 1 */
    cr_assert_eq(ticks_linear(3, 3, 5, v, 16), 0);
    cr_assert_eq(ticks_linear(NAN, 1, 5, v, 16), 0);
    cr_assert_eq(ticks_linear(0, INFINITY, 5, v, 16), 0);
}

Test(axis, tick_texts_are_short_with_true_minus_signs)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0, "0"},
                 {-1e-15, "0"},
                 {0.2, "0.2"},
                 {0.30000000000000004, "0.3"},
                 {1000, "1000"},
                 {20000, "20,000"},
                 {131072, "131,072"},
                 {2e6, "2\xc2\xb7"
                       "10\xe2\x81\xb6"},
                 {2.5e6, "2.5\xc2\xb7"
                         "10\xe2\x81\xb6"},
                 {1e7, "10\xe2\x81\xb7"},
                 {0.0001, "0.0001"},
                 {1e-5, "10\xe2\x81\xbb\xe2\x81\xb5"},
                 {-1e300, "\xe2\x88\x92"
                          "10\xc2\xb3\xe2\x81\xb0\xe2\x81\xb0"},
                 {INFINITY, "inf"},
                 {-INFINITY, "\xe2\x88\x92"
                             "inf"},
                 {-5, "\xe2\x88\x92"
                      "5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[24];
        tick_text(cases[i].v, out);
        cr_assert_str_eq(out, cases[i].text);
    }
}

Test(palette, nan_is_grey_and_the_ends_hold)
{
    struct rgb nan = palette_at(NULL, NAN);
    cr_assert(nan.r == nan.g && nan.g == nan.b);
    cr_assert_eq(palette_argb(NULL, 7), palette_argb("viridis", 1));
    cr_assert_eq(palette_argb(NULL, -7), palette_argb("viridis", 0));
    cr_assert_eq(palette_argb_at(NULL, 1, 0), 0);
    cr_assert_eq(palette_argb_at(NULL, 1, 1), palette_argb(NULL, 1));
    static uint32_t table[PALETTE_STEPS + 1];
    palette_table("magma", table);
    for (int i = 0; i <= PALETTE_STEPS; i += 64)
        cr_assert_eq(table[i], palette_argb("magma", (double)i / PALETTE_STEPS));
    cr_assert(palette_known(NULL) && palette_known("magma") && !palette_known("jet"));
}
