/* test_palette.c - compares colour maps with their published tables and checks that they are fit
 * for print. */
#include "render/figures.h"
#include "render/identity.h"
#include "tests/suite.h"

static const char *const names[] = {"viridis", "cividis", "magma",   "inferno", "plasma",
                                    "blues",   "bluered", "redblue", "vik"};

/* Lines of _cm_listed.py (Matplotlib 3.11, colours of Smith, van der Walt and Nunez) and of vik.txt
 * in Scientific colour maps 8 (Crameri). For blues and bluered, the colours that palettes.py
 * interpolates. */
static const struct {
    const char *map;
    int i;
    double rgb[3];
} published[] = {
    {"viridis", 0, {0.267004, 0.004874, 0.329415}},
    {"viridis", 1, {0.26851, 0.009605, 0.335427}},
    {"viridis", 64, {0.229739, 0.322361, 0.545706}},
    {"viridis", 127, {0.128729, 0.563265, 0.551229}},
    {"viridis", 200, {0.440137, 0.811138, 0.340967}},
    {"viridis", 255, {0.993248, 0.906157, 0.143936}},
    {"cividis", 0, {0.0, 0.135112, 0.304751}},
    {"cividis", 64, {0.263738, 0.307831, 0.422789}},
    {"cividis", 127, {0.485141, 0.482451, 0.470384}},
    {"cividis", 200, {0.769353, 0.707035, 0.408516}},
    {"cividis", 255, {0.995737, 0.909344, 0.217772}},
    {"magma", 0, {0.001462, 0.000466, 0.013866}},
    {"magma", 64, {0.316654, 0.07169, 0.48538}},
    {"magma", 127, {0.709962, 0.212797, 0.477201}},
    {"magma", 200, {0.992785, 0.594891, 0.410283}},
    {"magma", 255, {0.987053, 0.991438, 0.749504}},
    {"inferno", 0, {0.001462, 0.000466, 0.013866}},
    {"inferno", 64, {0.3415, 0.062325, 0.429425}},
    {"inferno", 200, {0.985952, 0.61575, 0.025592}},
    {"inferno", 255, {0.988362, 0.998364, 0.644924}},
    {"plasma", 0, {0.050383, 0.029803, 0.527975}},
    {"plasma", 64, {0.494877, 0.01199, 0.657865}},
    {"plasma", 200, {0.984199, 0.629718, 0.224595}},
    {"plasma", 255, {0.940015, 0.975158, 0.131326}},
    {"blues", 0, {0xe3 / 255.0, 0xe6 / 255.0, 0xea / 255.0}},
    {"blues", 255, {0x08 / 255.0, 0x30 / 255.0, 0x6b / 255.0}},
    {"bluered", 0, {0x0d / 255.0, 0x2f / 255.0, 0x6c / 255.0}},
    {"bluered", 127, {1, 1, 1}},
    {"bluered", 128, {1, 1, 1}},
    {"bluered", 255, {0x69 / 255.0, 0x06 / 255.0, 0x13 / 255.0}},
    {"vik", 0, {0.001328, 0.069836, 0.379529}},
    {"vik", 64, {0.188606, 0.490191, 0.652599}},
    {"vik", 127, {0.922285, 0.900367, 0.886911}},
    {"vik", 200, {0.735899, 0.38306, 0.183852}},
    {"vik", 255, {0.350423, 6.1e-05, 0.030499}},
};

static uint32_t entry(const char *map, int i)
{
    return palette_argb(map, i / 255.0) & 0xffffff;
}

Test(palette, entries_are_the_published_ones)
{
    for (size_t k = 0; k < sizeof published / sizeof *published; k++) {
        const double *p = published[k].rgb;
        uint32_t want = (uint32_t)lround(p[0] * 255) << 16 | (uint32_t)lround(p[1] * 255) << 8
                        | (uint32_t)lround(p[2] * 255);
        cr_assert_eq(entry(published[k].map, published[k].i), want, "%s[%d]", published[k].map,
                     published[k].i);
    }
}

/* Sums of (i + 1) 0xRRGGBB over the rounded tables, modulo 2^32, computed with NumPy. */
Test(palette, no_entry_was_lost)
{
    static const struct {
        const char *map;
        uint32_t sum;
    } want[] = {{"viridis", 259793903},  {"cividis", 2340369967}, {"magma", 3057995907u},
                {"inferno", 430509974},  {"plasma", 512489349},   {"blues", 1680831308u},
                {"bluered", 1844084944}, {"vik", 3951357405u}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        uint32_t sum = 0;
        for (int i = 0; i < 256; i++)
            sum += (uint32_t)(i + 1) * entry(want[k].map, i);
        cr_assert_eq(sum, want[k].sum, "%s: %u", want[k].map, sum);
    }
    for (int i = 0; i < 256; i++)
        cr_assert_eq(entry("redblue", i), entry("bluered", 255 - i));
}

/* Returns the lightness CIE L* of an sRGB colour (IEC 61966-2-1; CIE 15). */
static double lightness(const char *map, int i)
{
    struct rgb c = palette_at(map, i / 255.0);
    double v[3] = {c.r, c.g, c.b}, y = 0;
    static const double weight[3] = {0.2126, 0.7152, 0.0722};
    for (int k = 0; k < 3; k++)
        y += weight[k] * (v[k] <= 0.04045 ? v[k] / 12.92 : pow((v[k] + 0.055) / 1.055, 2.4));
    return y > 0.008856 ? 116 * cbrt(y) - 16 : 903.3 * y;
}

/* Rounding to 8 bits moves L* by up to 0.3 between entries. */
Test(palette, lightness_rises_or_peaks_in_the_middle)
{
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        bool both = palette_diverging(names[m]);
        double way = strcmp(names[m], "blues") == 0 ? -1 : 1;
        for (int i = 1; i < 256; i++) {
            double step = way * (lightness(names[m], i) - lightness(names[m], i - 1));
            cr_assert_gt(both && i > 127 ? -step : step, i == 128 && both ? -1 : -0.3, "%s %d: %g",
                         names[m], i, step);
        }
        for (int i = 8; i < 256; i += 8) {
            double step = way * (lightness(names[m], i) - lightness(names[m], i - 8));
            if (i != 128 || !both)
                cr_assert_gt(both && i > 128 ? -step : step, 0.8, "%s %d: %g", names[m], i, step);
        }
    }
}

Test(palette, diverging_is_as_dark_on_either_side)
{
    for (int i = 0; i < 128; i++) /* design: L* 20 .. 100 .. 20 */
        cr_assert_lt(fabs(lightness("bluered", i) - lightness("bluered", 255 - i)), 0.5);
    /* vik is uniform for the eye, not in L*: the value of its table */
    for (int i = 0; i < 128; i++)
        cr_assert_lt(fabs(lightness("vik", i) - lightness("vik", 255 - i)), 9, "%d", i);
    /* the middle two are the lightest, and the centre is between them */
    for (int m = 6; m < 9; m++)
        cr_assert(fabs(lightness(names[m], 127) - lightness(names[m], 128)) < 0.5
                  && lightness(names[m], 127) > 90 && lightness(names[m], 0) < 21
                  && lightness(names[m], 255) < 21);
    cr_assert(palette_diverging("bluered") && palette_diverging("redblue")
              && palette_diverging("vik"));
    cr_assert(not(palette_diverging("viridis")));
    cr_assert(not(palette_diverging(NULL) || palette_diverging("jet")));
}

/* A straight line of CIELAB in equal steps of L* contains the colour in its middle. */
Test(palette, own_maps_have_equal_steps)
{
    for (int i = 1; i < 256; i++) {
        double each = (lightness("blues", 0) - lightness("blues", 255)) / 255;
        cr_assert_lt(fabs(lightness("blues", i - 1) - lightness("blues", i) - each), 0.35, "%d", i);
        each = (100 - lightness("bluered", 0)) / 127;
        cr_assert(i == 128
                      || fabs(fabs(lightness("bluered", i) - lightness("bluered", i - 1)) - each)
                             < 0.35,
                  "%d", i);
    }
    struct rgb middle = palette_at("bluered", 0.5);
    cr_assert(middle.r == 1 && middle.g == 1 && middle.b == 1);
}

Test(palette, list_of_names_is_complete)
{
    char list[256] = "";
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        cr_assert(palette_known(names[m]));
        strcat(strcat(list, m ? ", " : ""), names[m]);
    }
    cr_assert_str_eq(PALETTE_NAMES, list);
}

static void spans(const char *map, double vmin, double vmax, double lo, double hi, double want)
{
    struct figure_style s = {.cmap = map, .vmin = vmin, .vmax = vmax};
    struct colours a = colours_make(&s, lo, hi), b = colours_diverging(&s, fmax(-lo, hi));
    cr_assert(a.lo == -want && a.hi == want, "%g .. %g", a.lo, a.hi);
    cr_assert(b.lo == -want && b.hi == want, "%g .. %g", b.lo, b.hi);
    cr_assert_float_eq(colours_at(&a, 0), 0.5, 1e-15);
    cr_assert_str_eq(a.map, map);
}

Test(colours, diverging_maps_have_zero_in_the_middle)
{
    spans("vik", NAN, NAN, -1, 3, 3);
    spans("bluered", NAN, NAN, -4, 3, 4);
    spans("redblue", NAN, 2, -4, 3, 2);
    spans("vik", -0.5, NAN, -4, 3, 0.5);
    spans("vik", -0.5, 2, -4, 3, 2);
    spans("vik", NAN, NAN, 0, 0, 1);
    spans("vik", NAN, NAN, -INFINITY, INFINITY, 1);
    struct figure_style plain = {.vmin = NAN, .vmax = NAN};
    cr_assert_str_eq(colours_diverging(&plain, 1).map, "bluered");
}

Test(colours, clipped_values_are_counted)
{
    struct figure_style s = {.cmap = "vik", .vmin = NAN, .vmax = 1};
    struct colours k = colours_make(&s, -3, 3);
    const double v[] = {-3, -1, -0.5, NAN, 0, 1, 1.5};
    for (int i = 0; i < 7; i++)
        colours_at(&k, v[i]);
    cr_assert_eq(k.clipped, 2);
    char note[COLOURS_NOTE];
    colours_note(&k, note);
    cr_assert_str_eq(note, "2 values beyond this range");
    k.of = 8;
    colours_note(&k, note);
    cr_assert_str_eq(note, "25 % beyond this range");
    k.of = 2;
    colours_note(&k, note);
    cr_assert_str_eq(note, "100 % beyond this range");
    k.of = 2001;
    colours_note(&k, note);
    cr_assert_str_eq(note, "< 0.1 % beyond this range");
    k.clipped = 0;
    colours_note(&k, note);
    cr_assert_str_eq(note, "");
}

/* ---- looks of methods */

/* Kinds of sight.  Dichromats: the matrices of Machado, Oliveira and Fernandes (2009) for severity
 * 1, of linear sRGB.  Grey: the luminance of IEC 61966-2-1. */
enum { NORMAL, PROTAN, DEUTAN, TRITAN, GREY, SIGHTS };
static const double sights[SIGHTS][3][3] = {
    [NORMAL] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    [PROTAN] = {{0.152286, 1.052583, -0.204868},
                {0.114503, 0.786281, 0.099216},
                {-0.003882, -0.048116, 1.051998}},
    [DEUTAN] = {{0.367322, 0.860646, -0.227968},
                {0.280085, 0.672501, 0.047413},
                {-0.011820, 0.042940, 0.968881}},
    [TRITAN] = {{1.255528, -0.076749, -0.178779},
                {-0.078411, 0.930809, 0.147602},
                {0.004733, 0.691367, 0.303900}},
    [GREY] = {{0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}},
};

static double linear(double v)
{
    return v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

/* Computes 100 times the Oklab coordinates (Ottosson 2020) of a colour as one kind of sight sees
 * it. */
static void seen(struct rgb c, int sight, double out[3])
{
    static const double lms[3][3] = {{0.4122214708, 0.5363325363, 0.0514459929},
                                     {0.2119034982, 0.6806995451, 0.1073969566},
                                     {0.0883024619, 0.2817188376, 0.6299787005}},
                        lab[3][3] = {{0.2104542553, 0.7936177850, -0.0040720468},
                                     {1.9779984951, -2.4285922050, 0.4505937099},
                                     {0.0259040371, 0.7827717662, -0.8086757660}};
    double v[3] = {linear(c.r), linear(c.g), linear(c.b)}, w[3], k[3];
    for (int i = 0; i < 3; i++) {
        const double *m = sights[sight][i];
        w[i] = fmin(fmax(m[0] * v[0] + m[1] * v[1] + m[2] * v[2], 0), 1);
    }
    for (int i = 0; i < 3; i++)
        k[i] = cbrt(lms[i][0] * w[0] + lms[i][1] * w[1] + lms[i][2] * w[2]);
    for (int i = 0; i < 3; i++)
        out[i] = 100 * (lab[i][0] * k[0] + lab[i][1] * k[1] + lab[i][2] * k[2]);
}

/* Returns the distance of two colours in the Oklab space; a step of about 2 is just visible. */
static double distance(struct rgb a, struct rgb b, int sight)
{
    double p[3], q[3];
    seen(a, sight, p);
    seen(b, sight, q);
    return sqrt((p[0] - q[0]) * (p[0] - q[0]) + (p[1] - q[1]) * (p[1] - q[1])
                + (p[2] - q[2]) * (p[2] - q[2]));
}

static const char *const best_known[] = {
    "full",     "window", "h2o",   "tova",      "scissorhands",
    "morphkv",  "snapkv", "adakv", "pyramidkv", "expected-attention",
    "keydiff",  "knorm",  "rkv",   "gkv",       "trimkv",
    "dbtrimkv", "wgkv",   "quest", "duo"};
enum { BEST_KNOWN = sizeof best_known / sizeof *best_known };

/* No two hues are alike to normal sight or to dichromats, and none is near the black and the greys
 * of axes and evicted entries.  In grey, methods with one mark differ. */
Test(identity, methods_differ_for_every_sight)
{
    struct identity x[BEST_KNOWN];
    identity_of_methods(BEST_KNOWN, best_known, x);
    for (int i = 0; i < BEST_KNOWN; i++)
        for (int k = 0; k < i; k++) {
            cr_expect(ge(dbl, distance(x[i].colour, x[k].colour, NORMAL), 8.5), "%s %s %g",
                      best_known[i], best_known[k], distance(x[i].colour, x[k].colour, NORMAL));
            for (int s = 0; s < SIGHTS; s++)
                cr_expect(ge(dbl, distance(x[i].colour, x[k].colour, s),
                             x[i].mark == x[k].mark ? 18
                             : s == GREY            ? 0
                                                    : 5.5),
                          "%s %s sight %d: %g", best_known[i], best_known[k], s,
                          distance(x[i].colour, x[k].colour, s));
        }
    static const uint32_t reserved[] = {0x191919, 0x969696, 0xffffff};
    for (int i = 0; i < BEST_KNOWN; i++)
        for (int k = 0; k < 3; k++)
            cr_expect(ge(dbl, distance(x[i].colour, rgb_of(reserved[k]), NORMAL), 8.5), "%s",
                      best_known[i]);
}

/* The looks do not depend on the other methods of the figure. */
Test(identity, methods_keep_their_looks)
{
    struct identity all[BEST_KNOWN], one;
    identity_of_methods(BEST_KNOWN, best_known, all);
    for (int i = 0; i < BEST_KNOWN; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, budget 64", best_known[i]);
        const char *only = name;
        identity_of_methods(1, &only, &one);
        cr_expect(memcmp(&one.colour, &all[i].colour, sizeof one.colour) == 0
                      && one.mark == all[i].mark && one.dash == 0,
                  "%s", name);
    }
}

/* Methods without a hue of their own take a free one and a dash.  Names of one method share the hue
 * and differ in dashes. */
Test(identity, methods_of_a_figure_share_no_hue)
{
    const char *const name[] = {
        "locret", "trimkv",          "cake",  "pyramidkv, budget 64", "my-method",
        "snapkv", "trimkv:chunk=64", "other", "locret, budget 9"};
    enum { N = sizeof name / sizeof *name };
    struct identity x[N];
    identity_of_methods(N, name, x);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) {
            bool same = (i == 6 && k == 1) || (i == 8 && k == 0);
            double far = distance(x[i].colour, x[k].colour, NORMAL);
            cr_expect(same ? far == 0 && x[i].mark == x[k].mark && x[i].dash != x[k].dash
                           : far >= 8.5,
                      "%s %s", name[i], name[k]);
        }
    cr_expect(x[0].dash > 0 && x[2].dash > 0 && x[4].dash > 0 && x[1].dash == 0 && x[3].dash == 0);
    identity_of_methods(1, name, x);
    identity_of_methods(1, name + 1, x + 1);
    cr_expect(eq(dbl, distance(x[0].colour, x[1].colour, NORMAL), 0));
}
