/* The rasters of alpha maps and of retention against an average over all T x T cells, and
 * what the figures are built from: ticks, tick texts, palettes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "render/axis.h"
#include "render/heat.h"
#include "render/palette.h"

/* Length of the overlap of [a, b) and [c, d). */
static double overlap(double a, double b, double c, double d)
{
    double n = fmin(b, d) - fmax(a, c);
    return n > 0 ? n : 0;
}

/* Cell (t, i) is the unit square [t, t+1) x [i, i+1); alpha_ti = i <= t < end_i. */
static void box_mean(const double *end, long T, int w, int h, int r, int c, double *mean,
                     double *cover)
{
    double x0 = (double)T * c / w, x1 = (double)T * (c + 1) / w;
    double y0 = (double)T * r / h, y1 = (double)T * (r + 1) / h, seen = 0, all = 0;
    for (long i = (long)x0 > 0 ? (long)x0 - 1 : 0; i < T && (double)i < x1; i++)
        for (long t = i; t < T && (double)t < y1; t++) {
            double area = overlap(x0, x1, (double)i, (double)(i + 1))
                        * overlap(y0, y1, (double)t, (double)(t + 1));
            all += area;
            seen += (double)t < end[i] ? area : 0;
        }
    *cover = all / ((x1 - x0) * (y1 - y0));
    *mean = *cover > 1e-7 ? seen / all : NAN;
}

static void compare(const double *end, long T, int w, int h)
{
    size_t n = (size_t)w * (size_t)h;
    double *out = calloc(n, sizeof *out), *cover = calloc(n, sizeof *cover), want, part;
    double *scratch = calloc((size_t)heat_scratch(h), sizeof *scratch);
    heat_alpha(end, T, w, h, out, cover, scratch);
    for (int r = 0; r < h; r++)
        for (int c = 0; c < w; c++) {
            size_t at = (size_t)r * (size_t)w + (size_t)c;
            box_mean(end, T, w, h, r, c, &want, &part);
            cr_assert_lt(fabs(cover[at] - part), 1e-9,
                         "T %ld, %d x %d, box %d %d: cover %.12g, want %.12g", T, w, h, r, c,
                         cover[at], part);
            if (isnan(want))
                cr_assert(isnan(out[at]) || part > 0,
                          "T %ld, %d x %d, box %d %d: %g above the diagonal", T, w, h, r, c,
                          out[at]);
            else
                cr_assert_lt(fabs(out[at] - want), 1e-6,
                             "T %ld, %d x %d, box %d %d: %.12g, want %.12g", T, w, h, r, c, out[at],
                             want);
        }
    free(out);
    free(cover);
    free(scratch);
}

/* The same for exp((t - i) x_i), cell by cell. */
static double box_decay(const double *x, long T, int w, int h, int r, int c)
{
    double x0 = (double)T * c / w, x1 = (double)T * (c + 1) / w;
    double y0 = (double)T * r / h, y1 = (double)T * (r + 1) / h, sum = 0, all = 0;
    for (long i = (long)x0 > 0 ? (long)x0 - 1 : 0; i < T && (double)i < x1; i++)
        for (long t = i; t < T && (double)t < y1; t++) {
            double area = overlap(x0, x1, (double)i, (double)(i + 1))
                        * overlap(y0, y1, (double)t, (double)(t + 1));
            all += area;
            sum += area > 0 ? area * (t > i ? exp((double)(t - i) * x[i]) : 1) : 0;
        }
    return all > 1e-7 * (x1 - x0) * (y1 - y0) ? sum / all : NAN;
}

static void compare_decay(const double *x, long T, int w, int h)
{
    size_t n = (size_t)w * (size_t)h;
    double *out = calloc(n, sizeof *out), *cover = calloc(n, sizeof *cover);
    double *scratch = calloc((size_t)heat_scratch(h), sizeof *scratch);
    heat_decay(x, T, w, h, out, cover, scratch);
    for (int r = 0; r < h; r++)
        for (int c = 0; c < w; c++) {
            double want = box_decay(x, T, w, h, r, c), got = out[(long)r * w + c];
            cr_assert(isnan(want) ? isnan(got) || cover[(long)r * w + c] > 0
                                  : fabs(got - want) <= 1e-6,
                      "T %ld, %d x %d, box %d %d: %.12g, want %.12g", T, w, h, r, c, got, want);
        }
    free(out);
    free(cover);
    free(scratch);
}

Test(heat, decay_is_the_area_average)
{
    static const long lengths[] = {1, 2, 3, 7, 16, 33, 61, 97};
    static const int sides[] = {1, 2, 3, 5, 8, 16, 31, 33, 64, 97, 130};
    static const double kinds[] = {0, -1e-12, -1.5e-8, -1e-3, -0.03, -0.4, -3, -90, -INFINITY};
    unsigned seed = 5;
    for (size_t a = 0; a < sizeof lengths / sizeof *lengths; a++) {
        double x[97];
        for (long i = 0; i < lengths[a]; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = kinds[seed / 7 % 9];
        }
        for (size_t b = 0; b < sizeof sides / sizeof *sides; b++) {
            compare_decay(x, lengths[a], sides[b], sides[b]);
            compare_decay(x, lengths[a], sides[b], sides[(b + 4) % 11]);
        }
    }
}

/* Rounding does not grow along the rows: 20,000 tokens, the last row in closed form. */
Test(heat, decay_of_many_rows_stays_exact)
{
    enum { T = 20000, H = 700 };
    static double x[T], out[H], scratch[4 * (H + 2)];
    for (int i = 0; i < T; i++)
        x[i] = i == 0 ? -1e-4 : -INFINITY;
    heat_decay(x, T, 1, H, out, NULL, scratch);
    double from = (double)T * (H - 1) / H, want = 0, area = 0;
    for (int t = (int)from; t < T; t++) {
        double part = overlap(from, T, t, t + 1);
        want += part * exp(-1e-4 * t);
        area += part * (t + 1);
    }
    for (int t = (int)from; t < T; t++) /* the others count on the diagonal alone */
        want += overlap(from, T, t, t + 1);
    cr_assert_float_eq(out[H - 1] / (want / area), 1, 1e-9);
}

Test(heat, decay_without_a_number_is_none)
{
    const double x[] = {0, NAN, -INFINITY};
    double v[9], scratch[24];
    cr_assert_leq(heat_scratch(3), 24);
    heat_decay(x, 3, 3, 3, v, NULL, scratch);
    cr_assert(v[0] == 1 && v[3] == 1 && v[6] == 1 && isnan(v[4]) && isnan(v[7]) && v[8] == 1);
}

/* Ends of every kind: alive, cut at once after birth, at T, in between. */
static double end_of(unsigned *seed, long i, long T)
{
    *seed = *seed * 1664525u + 1013904223u;
    unsigned k = *seed >> 28;
    *seed = *seed * 1664525u + 1013904223u;
    double u = (*seed >> 8) / 16777216.0;
    return k < 3 ? INFINITY : k < 4 ? (double)T : k < 6 ? (double)(i + 1) : k < 7 ? (double)i
         : floor((double)(i + 1) + u * (double)(T - i));
}

Test(heat, raster_is_the_area_average)
{
    static const long lengths[] = {1, 2, 3, 7, 16, 33, 61, 97};
    static const int sides[] = {1, 2, 3, 5, 8, 16, 31, 33, 64, 97, 130};
    unsigned seed = 1;
    for (size_t a = 0; a < sizeof lengths / sizeof *lengths; a++) {
        double end[97];
        for (long i = 0; i < lengths[a]; i++)
            end[i] = end_of(&seed, i, lengths[a]);
        for (size_t b = 0; b < sizeof sides / sizeof *sides; b++) {
            compare(end, lengths[a], sides[b], sides[b]);
            compare(end, lengths[a], sides[b], sides[(b + 4) % 11]);
        }
    }
}

Test(heat, one_pixel_is_one_minus_sparsity)
{
    /* evict at 2, 3, 3, alive: cells 2 + 2 + 1 + 1 of 4 * 5 / 2 */
    const double end[] = {2, 3, 3, INFINITY};
    double v, scratch[16];
    cr_assert_leq(heat_scratch(1), 16);
    heat_alpha(end, 4, 1, 1, &v, NULL, scratch);
    cr_assert_float_eq(v, 0.6, 1e-12);
}

Test(heat, a_pixel_a_cell_is_alpha_itself)
{
    const double end[] = {2, 3, 3, INFINITY};
    double v[16], scratch[64];
    heat_alpha(end, 4, 4, 4, v, NULL, scratch);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++) {
            if (i > t)
                cr_assert(isnan(v[t * 4 + i]));
            else
                cr_assert_float_eq(v[t * 4 + i], t < end[i] ? 1 : 0, 1e-12);
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
    } cases[] = {
        {0, "0"},         {-1e-15, "0"},     {0.2, "0.2"},        {0.30000000000000004, "0.3"},
        {1000, "1000"},   {20000, "20,000"}, {131072, "131,072"}, {2e6, "2e6"},
        {2.5e6, "2.5e6"}, {-5, "\xe2\x88\x92" "5"}};
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
    cr_assert(palette_known(NULL) && palette_known("magma") && !palette_known("jet"));
}
