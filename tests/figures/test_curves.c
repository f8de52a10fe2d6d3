/* test_curves.c - draws figures of lines from tables made here as SVG. Each line of a table must be
 * a path of the file, point for point, at the place that the axes of its frame give. */
#include "base/table_read.h"
#include "render/plot.h"
#include "tests/figures/picture.h"
#include "tests/suite.h"

TestSuite(curves, .timeout = 60);

/* Rows of two heads and `all`, of two criteria, at three horizons. */
enum { HEADS = 3, CRITERIA = 2, AGES = 3 };
static const char *const head_names[] = {"L0H0", "L0H1", "all"};
static const char *const criteria[] = {"top64", "mass.90"};
static const double ages[] = {1, 10, 100};

static double fraction(int head, int criterion, int age)
{
    return .9 - .2 * age - .1 * criterion - .05 * head * age;
}

static void keys(struct table *t, const char *inner, const double *value)
{
    enum { ROWS = HEADS * CRITERIA * AGES };
    const char *head[ROWS], *criterion[ROWS];
    double x[ROWS];
    for (int r = 0; r < ROWS; r++) {
        head[r] = head_names[r / (CRITERIA * AGES)];
        criterion[r] = criteria[r / AGES % CRITERIA];
        x[r] = value[r % AGES];
    }
    table_dense_str(t, "head", "", head);
    table_dense_str(t, "criterion", "", criterion);
    table_dense_real(t, inner, "", x);
}

static void value_column(struct table *t, const char *name, double add)
{
    double y[HEADS * CRITERIA * AGES];
    for (int r = 0; r < HEADS * CRITERIA * AGES; r++)
        y[r] = fraction(r / (CRITERIA * AGES), r / AGES % CRITERIA, r % AGES) + add;
    table_dense_real(t, name, "", y);
}

static struct table *survival_table(bool corpus)
{
    struct table *t = table_create("survival", HEADS * CRITERIA * AGES);
    double half[HEADS * CRITERIA * AGES];
    for (int r = 0; r < HEADS * CRITERIA * AGES; r++)
        half[r] = r / AGES % CRITERIA ? 20 : NAN;
    keys(t, "horizon", ages);
    value_column(t, "fraction", 0);
    table_dense_real(t, "half_life", "", half);
    if (corpus) {
        value_column(t, "low", -.05);
        value_column(t, "high", .04);
    }
    return t;
}

static const struct axes shares = {1, 100, 0, 1, true, false};

Test(curves, survival)
{
    OWNED(table_destroy) struct table *t = survival_table(false);
    const double top[] = {.9, .6, .3}, mass[] = {.8, .5, .2};     /* of all heads */
    const double one[] = {.9, .7, .5}, one_mass[] = {.8, .6, .4}; /* of L0H0 */
    draw("survival", t, NULL);
    cr_assert(eq(int, pic.n_frames, 1));
    LINE(0, &shares, ages, top);
    LINE(0, &shares, ages, mass);
    NO_LINE(0, &shares, ages, one);
    cr_expect(has_ring(0, &shares, 20, .5, .75));
    cr_expect(0 == has_ring(0, &shares, 21, .5, .75));
    draw("survival", t, "by=head");
    cr_assert(eq(int, pic.n_frames, 2));
    LINE(0, &shares, ages, one);
    LINE(0, &shares, ages, one_mass);
    NO_LINE(1, &shares, ages, one_mass);
    draw("survival", t, "heads=thin,criterion=mass.90");
    LINE(0, &shares, ages, mass);
    LINE(0, &shares, ages, one_mass);
    NO_LINE(0, &shares, ages, top);
    double floor_y = .2 / pow(1 / .2, .04), top_y = 1;
    struct axes log_y = {1, 100, floor_y, top_y, true, true};
    draw("survival", t, "criterion=mass.90,y=log");
    LINE(0, &log_y, ages, mass);
}

Test(curves, survival_has_bands_of_a_corpus)
{
    OWNED(table_destroy) struct table *t = survival_table(true);
    const double x[] = {1, 10, 100, 100, 10, 1}, y[] = {.94, .64, .34, .25, .55, .85};
    draw("survival", t, NULL);
    cr_expect(has(0, &shares, x, y, 6, false), "no band");
}

Test(curves, notes_tell_how_many_documents)
{
    static const char *const given[] = {NULL, "1", "24", "24"};
    static const char *const want[] = {"bands: 95 % CI over documents", "1 document: no intervals",
                                       "24 documents, no intervals",
                                       "bands: 95 % CI over 24 documents"};
    SCOPED(plot_free) struct plot p;
    plot_init(&p);
    plot_add(&p, "", "a", 1, .5, NAN, NAN);
    for (int i = 0; i < 4; i++) {
        char text[48];
        OWNED(table_destroy) struct table *t = survival_table(true);
        if (i == 3)
            plot_add(&p, "", "a", 2, .5, .4, .6);
        if (given[i])
            table_meta_str(t, "documents", given[i]);
        cr_expect_str_eq(bands_text(t, &p, text), want[i]);
    }
}

/* Makes a table from lines of words: the names of the columns, then the rows. */
static struct table *table_of(const char *name, const char *lines)
{
    SCOPED(buf_finish) struct buf b = {0};
    struct table *t = NULL;
    buf_printf(&b, "# table: %s\n", name);
    for (const char *c = lines; *c; c++)
        buf_char(&b, *c == ' ' ? '\t' : *c);
    succeeds(table_parse_tsv(b.data, b.len, NULL, &t, &d));
    return t;
}

Test(curves, survival_keeps_gaps_apart)
{
    OWNED(table_destroy)
    struct table *t = table_of("survival", "head criterion class horizon fraction\n"
                                           "all top64 all 1 .9\n"
                                           "all top64 all 100 .4\n"
                                           "all mass.95-top64 all 1 -.1\n"
                                           "all mass.95-top64 all 100 .3\n");
    const double x[] = {1, 100}, share[] = {.9, .4}, gap[] = {-.1, .3};
    struct axes a = {1, 100, -.1 - .04 * .4, .3 + .04 * .4, true, false};
    draw("survival", t, NULL);
    LINE(0, &shares, x, share);
    NO_LINE(0, &shares, x, gap);
    draw("survival", t, "by=gap");
    LINE(0, &a, x, gap);
}

/* Returns axes of ages with a margin of 2 % of the logarithms, so that the frame cuts no point. */
static struct axes padded(double y0)
{
    double more = pow(100, .02);
    return (struct axes){1 / more, 100 * more, y0, 1, true, false};
}

Test(curves, persistence)
{
    OWNED(table_destroy) struct table *t = table_create("persistence", HEADS * CRITERIA * AGES);
    const double top[] = {.9, .6, .3};
    const struct axes a = padded(0);
    keys(t, "age", ages);
    value_column(t, "rate", .5);
    value_column(t, "shrunk", 0);
    value_column(t, "prior", 0);
    draw("persistence", t, NULL);
    LINE(0, &a, ages, top);
    cr_expect(has_ring(0, &a, 10, .6, .6), "no dot");
}

/* The first tokens of a text, which are often selected, must not look like a rise with age. */
Test(curves, persistence_ends_with_a_tenth_of_the_tokens)
{
    OWNED(table_destroy)
    struct table *t = table_of("persistence", "head criterion age rate at_risk\n"
                                              "all top64 1 .9 1000\n"
                                              "all top64 100 .4 100\n"
                                              "all top64 1000 .8 99\n");
    const double x[] = {1, 100}, y[] = {.9, .4};
    const struct axes a = padded(0);
    draw("persistence", t, NULL);
    LINE(0, &a, x, y);
}

Test(curves, block_exit_has_straight_axes)
{
    OWNED(table_destroy)
    struct table *t = table_of("block-exit", "head criterion block epsilon\n"
                                             "all top64 1 .1\n"
                                             "all top64 51 .6\n"
                                             "all top64 101 .9\n");
    const double x[] = {1, 51, 101}, y[] = {.1, .6, .9};
    const struct axes a = {-1, 103, 0, .9 + .04 * .9, false, false};
    draw("block-exit", t, NULL);
    LINE(0, &a, x, y);
}

/* log(events / exposure) has the variance 1 / events; 0 events have no interval. */
Test(curves, hazard_has_the_interval_of_a_rate)
{
    OWNED(table_destroy)
    struct table *t = table_of("hazard", "head criterion low high events hazard\n"
                                         "all top64 1 10 25 .5\n"
                                         "all top64 10 100 0 0\n");
    double f = exp(1.959963984540054 / 5), low = .5 / f, high = .5 * f, pad = pow(high / low, .04);
    const double x[] = {1, 10, 10, 1}, y[] = {high, high, low, low};
    const struct axes a = {1, 100, low / pad, high * pad, true, true};
    draw("hazard", t, NULL);
    cr_expect(has(0, &a, x, y, 4, false), "no band");
}

Test(curves, hazard_is_level_within_bins)
{
    OWNED(table_destroy) struct table *t = table_create("hazard", HEADS * CRITERIA * AGES);
    const double low[] = {1, 4, 16}, high[] = {4, 16, -1};
    const double x[] = {1, 4, 4, 16, 16, 64}, y[] = {.9, .9, .6, .6, .3, .3};
    double least = .2, most = .9, f = pow(most / least, .04);
    struct axes a = {1, 64, least / f, most * f, true, true};
    double ends[HEADS * CRITERIA * AGES];
    keys(t, "low", low);
    for (int r = 0; r < HEADS * CRITERIA * AGES; r++)
        ends[r] = high[r % AGES];
    table_dense_real(t, "high", "", ends);
    value_column(t, "hazard", 0);
    table_meta_num(t, "T", 64);
    draw("hazard", t, NULL);
    LINE(0, &a, x, y);
}

Test(curves, intermittency)
{
    OWNED(table_destroy) struct table *t = table_create("intermittency", HEADS * CRITERIA * AGES);
    static const char *const quantity[] = {"returns"};
    const double above[] = {0, 9, 99}, mass[] = {.8, .5, .2};
    const struct axes a = padded(-.02);
    keys(t, "above", above);
    table_cycle_str(t, "quantity", "", quantity, 1);
    value_column(t, "share", 0);
    draw("intermittency", t, NULL);
    LINE(0, &a, ages, mass); /* more than 9 means at least 10 */
}

static struct table *overlap_table(void)
{
    return table_of("overlap", "head window layer p overlap expected kappa\n"
                               "L0K0 0 0 10 .1 .11 0\n"
                               "L0K0 0 0 50 .2 .21 .1\n"
                               "L0K* 0 0 10 .3 .31 .2\n"
                               "L0K* 0 0 50 .4 .41 .3\n"
                               "all 0 -1 10 .5 .12 .4\n"
                               "all 0 -1 50 .6 .55 .35\n"
                               "all union -1 10 .7 .3 .6\n"
                               "all union -1 50 .8 .9 -7\n");
}

Test(curves, overlap_has_chance_beside)
{
    OWNED(table_destroy) struct table *t = overlap_table();
    const double p[] = {10, 50}, window[] = {.5, .6}, chance[] = {.12, .55}, both[] = {.7, .8};
    const double by_layer[] = {.3, .4}, kappa[] = {.4, .35}, one[] = {.1, .2};
    const struct axes a = {0, 50, 0, 1, false, false}, k = {0, 50, -1, 1, false, false};
    draw("overlap", t, NULL);
    LINE(0, &a, p, window);
    LINE(0, &a, p, chance);
    LINE(0, &a, p, both);
    NO_LINE(0, &a, p, by_layer);
    draw("overlap", t, "by=layer");
    LINE(0, &a, p, by_layer);
    NO_LINE(0, &a, p, one);
    draw("overlap", t, "y=kappa");
    LINE(0, &k, p, kappa); /* the union crosses the end of the axis at -1 */
}

/* Tables of a corpus have intervals of all heads, but not of a layer. */
Test(curves, overlap_has_bands_of_a_corpus)
{
    static const double low[] = {NAN, NAN, NAN, NAN, .45, .5, .6, .75};
    static const double high[] = {NAN, NAN, NAN, NAN, .52, .7, .9, .82};
    static const double kappa_low[] = {NAN, NAN, NAN, NAN, .3, .1, .5, -9};
    static const double kappa_high[] = {NAN, NAN, NAN, NAN, .45, .5, .8, -5};
    const double x[] = {10, 50, 50, 10}, ends[] = {.52, .7, .5, .45}, both[] = {.9, .82, .75, .6};
    const double of_kappa[] = {.45, .5, .1, .3};
    const struct axes a = {0, 50, 0, 1, false, false}, k = {0, 50, -1, 1, false, false};
    OWNED(table_destroy) struct table *t = overlap_table();
    table_dense_real(t, "low", "", low);
    table_dense_real(t, "high", "", high);
    table_dense_real(t, "kappa_low", "", kappa_low);
    table_dense_real(t, "kappa_high", "", kappa_high);
    table_meta_num(t, "documents", 5);
    draw("overlap", t, NULL);
    cr_expect(has(0, &a, x, ends, 4, false), "no band of a window");
    cr_expect(has(0, &a, x, both, 4, false), "no band of the union");
    draw("overlap", t, "y=kappa");
    cr_expect(has(0, &k, x, of_kappa, 4, false), "no band of kappa");
    cr_expect(0 == has(0, &k, x, ends, 4, false));
}

Test(curves, attention_sparsity)
{
    const double x[] = {.001, .1}, all[] = {.7, .8}, deep[] = {.5, .6}, one[] = {.1, .2};
    const struct axes a = {.001, .1, 0, 1, true, false};
    OWNED(table_destroy)
    struct table *t = table_of("attention-sparsity", "head layer p sparsity\n"
                                                     "L0H0 0 .001 .1\n"
                                                     "L0H0 0 .1 .2\n"
                                                     "L0H* 0 .001 .3\n"
                                                     "L0H* 0 .1 .4\n"
                                                     "L1H* 1 .001 .5\n"
                                                     "L1H* 1 .1 .6\n"
                                                     "all -1 .001 .7\n"
                                                     "all -1 .1 .8\n");
    draw("attention-sparsity", t, NULL);
    LINE(0, &a, x, all);
    LINE(0, &a, x, deep);
    NO_LINE(0, &a, x, one);
    draw("attention-sparsity", t, "by=all");
    NO_LINE(0, &a, x, deep);
    draw("attention-sparsity", t, "by=head");
    LINE(0, &a, x, one);
}

static struct table *steps_table(const char *name, int n, const char *head)
{
    struct table *t = table_create(name, n);
    table_cycle_str(t, "head", "", &head, 1);
    table_affine(t, "step", "", 0, 1, 0);
    return t;
}

Test(curves, regret)
{
    static const double kept[] = {1, 1, .6, .5}, oracle[] = {1, 1, .9, .7};
    const double x[] = {0, 1, 2, 3};
    const double area_x[] = {0, 1, 2, 3, 3, 2, 1, 0}, area[] = {1, 1, .9, .7, .5, .6, 1, 1};
    OWNED(table_destroy) struct table *t = steps_table("regret", 4, "all");
    double from = 2 - .05;
    struct axes a = {from, 3, .5 - .04 * .5, 1, false, false};
    table_dense_real(t, "kept_mass", "", kept);
    table_dense_real(t, "oracle_mass", "", oracle);
    draw("regret", t, NULL);
    LINE(0, &a, x, kept);
    LINE(0, &a, x, oracle);
    cr_expect(has(0, &a, area_x, area, 8, false), "no area");
}

Test(curves, dilution)
{
    static const double delta[] = {NAN, .8, .6, .2}, kept[] = {NAN, .9, .9, .9};
    static const double none[] = {NAN, NAN, NAN, NAN};
    const double x[] = {1, 2, 3}, y[] = {.8, .6, .2}, z[] = {.9, .9, .9};
    const struct axes a = {1, 3, 0, 1, false, false};
    OWNED(table_destroy) struct table *t = steps_table("dilution", 4, "all");
    table_dense_real(t, "dilution", "", delta);
    table_dense_real(t, "dilution_retained", "", kept);
    table_dense_real(t, "bound", "", none);
    draw("dilution", t, NULL);
    LINE(0, &a, x, y);
    LINE(0, &a, x, z);
    draw("dilution", t, "show=dilution_retained+dilution");
    LINE(0, &a, x, y);
    struct kvf_diag d = {""};
    char path[64];
    cr_expect(eq(int, write_figure("dilution", t, "show=step", ".svg", path, &d), KVF_E_ARG));
    unlink(path);
    cr_expect(eq(int, write_figure("dilution", t, "x=budget", ".svg", path, &d), KVF_E_ARG));
    unlink(path);
}

Test(curves, dilution_against_budget)
{
    const double x[] = {16, 256}, h2o[] = {.9, .5}, full[] = {.4, .4};
    const struct axes a = {16 / 1.1, 256 * 1.1, .4 - .04 * .65, 1.05, true, false};
    OWNED(table_destroy)
    struct table *t = table_of("dilution", "trace method budget head step dilution\n"
                                           "a h2o 16 all -1 .9\n"
                                           "b h2o 256 all -1 .5\n"
                                           "c full 0 all -1 .4\n"
                                           "d snapkv 64 all -1 .7\n");
    draw("dilution", t, "x=budget");
    LINE(0, &a, x, h2o);
    LINE(0, &a, x, full);
    cr_expect(has_ring(0, &a, 64, .7, .6), "no dot of the single budget");
}

Test(curves, density)
{
    const double x[] = {0, .5, .5, 1}, one[] = {1.5, 1.5, .5, .5}, two[] = {1, 1, 1, 1};
    const struct axes a = {0, 1, 0, 1.06 * 1.5, false, false};
    OWNED(table_destroy)
    struct table *t = table_of("density", "trace head bin_low bin_high share mean\n"
                                          "one all 0 .5 .75 .4\n"
                                          "one all .5 1 .25 .4\n"
                                          "two all 0 .5 .5 .55\n"
                                          "two all .5 1 .5 .55\n");
    draw("density", t, NULL);
    LINE(0, &a, x, one);
    LINE(0, &a, x, two);
}

Test(curves, received_ends_with_a_cross)
{
    const double first_x[] = {3, 4}, first[] = {.5, .2}, second_x[] = {5, 6}, second[] = {.4, .1};
    struct axes a = {3, 6, 0, .5 * 1.04, false, false};
    OWNED(table_destroy)
    struct table *t = table_of("received", "head token step attention seen\n"
                                           "L0H1 3 3 .5 1\n"
                                           "L0H1 3 4 .2 1\n"
                                           "L0H1 3 5 nan 0\n"
                                           "L0H1 3 6 nan 0\n"
                                           "L0H1 5 5 .4 1\n"
                                           "L0H1 5 6 .1 1\n");
    draw("received", t, "y=linear,show=attention");
    LINE(0, &a, first_x, first);
    LINE(0, &a, second_x, second);
    const double *f = pic.frame[0]->xy;
    double x = f[0] + (f[2] - f[0]) / 3 - .75, up = f[5] - .2 / a.y1 * (f[5] - f[1]) - .75;
    int crosses = 0;
    for (int i = 0; i < pic.n; i++)
        crosses += pic.path[i].n == 2 && fabs(pic.path[i].xy[0] - x) < .02
                   && fabs(pic.path[i].xy[1] - up) < .02;
    cr_expect(eq(int, crosses, 1));
}

Test(curves, occupancy_stacks_the_mean_over_heads)
{
    static const char *const head[] = {"L0K0", "L0K1"}, *const class[] = {"all", "prompt",
                                                                          "answer"};
    static const int64_t entries[] = {1, 2, 4, 1, 2, 2, 0, 0, 2, 1, 2, 2, 1, 2, 1, 0, 0, 1};
    const double x[] = {0, 2, 4}, prompt[] = {1, 2, 1.5}, both[] = {1, 2, 3}, one[] = {1, 2, 4};
    const double area_x[] = {0, 2, 4, 4, 2, 0}, answer[] = {1, 2, 3, 1.5, 2, 1};
    const struct axes a = {0, 4, 0, 8, false, false};
    static const int64_t layer[] = {0};
    const char *classes[18], *heads[18];
    for (int r = 0; r < 18; r++) {
        heads[r] = head[r / 9];
        classes[r] = class[r / 3 % 3];
    }
    OWNED(table_destroy) struct table *t = table_create("occupancy", 18);
    table_dense_str(t, "head", "", heads);
    table_cycle_int(t, "layer", "", layer, 1);
    table_dense_str(t, "class", "", classes);
    table_affine(t, "step", "", 0, 2, 3);
    table_dense_int(t, "entries", "", entries);
    vmax = 8;
    draw("occupancy-curves", t, NULL);
    LINE(0, &a, x, prompt);
    LINE(0, &a, x, both);
    cr_expect(has(0, &a, area_x, answer, 6, false), "no area of the answer");
    draw("occupancy-curves", t, "by=head");
    cr_assert(eq(int, pic.n_frames, 2));
    LINE(0, &a, x, one);
}

Test(curves, ghosts_by_steps_after_they_left)
{
    const double x[] = {1, 3, 4}, share[] = {.25, .25, .75}; /* of four evicted entries */
    const struct axes a = {1, 4, 0, .75 * 1.04, true, false};
    OWNED(table_destroy)
    struct table *t = table_of("ghosts", "head layer token evict_step first_hit\n"
                                         "L0H0 0 0 10 10\n"
                                         "L0H0 0 1 10 13\n"
                                         "L0H0 0 2 12 15\n"
                                         "L0H0 0 3 12 -1\n"
                                         "L0H0 0 4 -1 20\n");
    draw("ghosts", t, "by=all");
    LINE(0, &a, x, share);
}

/* A hundred thousand steps give a small file quickly. */
Test(curves, long_lines_are_small_files)
{
    enum { STEPS = 100000 };
    OWNED(free) double *y = calloc(STEPS, sizeof *y), *z = calloc(STEPS, sizeof *z);
    for (int i = 0; i < STEPS; i++) {
        y[i] = .5 + .4 * sin((long long)i * i % 977);
        z[i] = 1 - .05 * (i % 13) / 13;
    }
    y[50123] = .01; /* a single low point must be visible */
    OWNED(table_destroy) struct table *t = steps_table("regret", STEPS, "all");
    char path[64];
    table_dense_real(t, "kept_mass", "", y);
    table_dense_real(t, "oracle_mass", "", z);
    succeeds(write_figure("regret", t, NULL, ".pdf", path, &d));
    FILE *f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    cr_expect(ftell(f) < 500000 && ftell(f) > 5000, "%ld bytes", ftell(f));
    fclose(f);
    unlink(path);
}

/* No defined value, one point, infinite values, and too many panels. */
Test(curves, odd_tables)
{
    static const double odd[][4] = {{NAN, NAN, NAN, NAN},
                                    {NAN, .5, NAN, NAN},
                                    {INFINITY, .5, -INFINITY, .2},
                                    {1e300, 1e-300, 0, -1e300},
                                    {0, 0, 0, 1e12}};
    static const char *const names[] = {"regret", "dilution"};
    for (int k = 0; k < 20; k++) {
        OWNED(table_destroy) struct table *t = steps_table(names[k % 2], 4, "all");
        vmax = k < 10 ? NAN : 1e-3;
        table_dense_real(t, "kept_mass", "", odd[k / 2 % 5]);
        table_dense_real(t, "oracle_mass", "", odd[k / 2 % 5]);
        table_dense_real(t, "dilution", "", odd[k / 2 % 5]);
        draw(names[k % 2], t, NULL);
        cr_expect(eq(int, pic.n_frames, 1));
        for (int i = 0; i < pic.n; i++)
            for (int j = 0; j < 2 * pic.path[i].n; j++)
                cr_expect(fabs(pic.path[i].xy[j]) < 5000);
    }
}

Test(curves, too_many_panels_are_refused)
{
    enum { MANY = 1000 };
    static char name[MANY][16];
    const char *head[MANY];
    double y[MANY];
    struct kvf_diag d = {""};
    char path[64];
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], sizeof name[i], "L%dH%d", i / 10, i % 10);
        head[i] = name[i];
        y[i] = .5;
    }
    OWNED(table_destroy) struct table *t = table_create("regret", MANY);
    table_dense_str(t, "head", "", head);
    table_affine(t, "step", "", 0, 1, 0);
    table_dense_real(t, "kept_mass", "", y);
    table_dense_real(t, "oracle_mass", "", y);
    cr_expect(eq(int, write_figure("regret", t, "by=head", ".png", path, &d), KVF_E_ARG));
    cr_expect(strstr(d.text, "--head") != NULL);
    unlink(path);
}
