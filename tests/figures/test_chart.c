/* test_chart.c - compares thinned lines with a search of every column and logarithmic ticks with
 * their definition, and checks how plots collect points and options. */
#include "base/buf.h"
#include "render/axis.h"
#include "render/chart.h"
#include "render/plot.h"
#include "tests/suite.h"

TestSuite(chart, .timeout = 60);

enum { N = 6000 };
#define MINUS "\xe2\x88\x92"

static double random01(uint64_t i, uint64_t k)
{
    return (double)(rng_hash(7, i, k, 0) >> 11) / 9007199254740992.0;
}

/* Makes a path to the right that sometimes stops, turns back, or has holes. */
static void make_walk(double *xy, int kind)
{
    double x = 3;
    for (int i = 0; i < N; i++) {
        x += (random01((uint64_t)i, 1) - (kind == 1 ? .45 : 0)) * (kind == 2 ? 3 : .02);
        xy[2 * i] = x;
        xy[2 * i + 1] = floor(40 * random01((uint64_t)i, 2)); /* with equal heights */
        if (random01((uint64_t)i, 3) < .004)
            xy[2 * i + (i & 1)] = i % 3 ? NAN : INFINITY;
    }
}

static bool hole(const double *xy, int i)
{
    return !isfinite(xy[2 * i]) || !isfinite(xy[2 * i + 1]);
}

static bool same_run(const double *xy, int a, int b, double column)
{
    if (hole(xy, a) || hole(xy, b))
        return hole(xy, a) && hole(xy, b);
    return floor(xy[2 * a] / column) == floor(xy[2 * b] / column);
}

/* Returns true if point i must be kept: an end of its run, or its first minimum or maximum. */
static bool must_stay(const double *xy, int i, double column)
{
    int a = i, b = i;
    while (a > 0 && same_run(xy, a - 1, i, column))
        a--;
    while (b + 1 < N && same_run(xy, b + 1, i, column))
        b++;
    if (hole(xy, i))
        return i == a;
    bool lowest = true, highest = true;
    for (int k = a; k <= b; k++) {
        double d = xy[2 * k + 1] - xy[2 * i + 1];
        lowest &= d > 0 || (d == 0 && k >= i);
        highest &= d < 0 || (d == 0 && k >= i);
    }
    return i == a || i == b || lowest || highest;
}

Test(chart, thin_keeps_ends_and_extremes_of_columns)
{
    static double xy[2 * N], out[2 * N], same[2 * N];
    for (int kind = 0; kind < 3; kind++) {
        double column = kind == 0 ? .085 : .3;
        make_walk(xy, kind);
        int n = chart_thin(xy, N, column, out), m = 0;
        for (int i = 0; i < N; i++) {
            if (!must_stay(xy, i, column))
                continue;
            cr_assert(m < n, "kind %d: %d points are too few", kind, n);
            if (hole(xy, i))
                cr_expect(isnan(out[2 * m]) && isnan(out[2 * m + 1]), "kind %d: hole %d", kind, i);
            else
                cr_expect(out[2 * m] == xy[2 * i] && out[2 * m + 1] == xy[2 * i + 1],
                          "kind %d: point %d", kind, i);
            m++;
        }
        cr_expect(eq(int, n, m));
        cr_expect(kind == 2 || n < N, "nothing was thinned");
        memcpy(same, xy, sizeof same);
        cr_expect(eq(int, chart_thin(same, N, column, same), n));
        cr_expect(memcmp(same, out, 2 * sizeof *out * (size_t)n) == 0, "in place it differs");
    }
    cr_expect(eq(int, chart_thin(xy, 0, 1, out), 0));
}

struct range {
    double lo, hi, room;
    const char *names; /* all names, separated by spaces */
};

Test(chart, log_ticks)
{
    static const struct range r[] = {
        {1, 1000, 12, "1 10 100 1000"},
        {1, 50, 12, "1 2 5 10 20 50"},
        {1, 50, 4, "1 10"},
        {0.001, 0.1, 14, "0.001 0.01 0.1"},
        {64, 128, 9, "70 80 90 100"},
        {1e-6, 1, 14,
         "10\xe2\x81\xbb\xe2\x81\xb6 10\xe2\x81\xbb\xe2\x81\xb5 "
         "10\xe2\x81\xbb\xe2\x81\xb4 10\xe2\x81\xbb\xc2\xb3 "
         "10\xe2\x81\xbb\xc2\xb2 10\xe2\x81\xbb\xc2\xb9 1"},
        {1e-12, 1, 4,
         "10\xe2\x81\xbb\xc2\xb9\xc2\xb2 10\xe2\x81\xbb\xe2\x81\xb8 10\xe2\x81\xbb"
         "\xe2\x81\xb4 1"},
        {1, 1e8, 10,
         "1 10 10\xc2\xb2 10\xc2\xb3 10\xe2\x81\xb4 10\xe2\x81\xb5 10\xe2\x81\xb6 10"
         "\xe2\x81\xb7 10\xe2\x81\xb8"},
    };
    for (size_t k = 0; k < sizeof r / sizeof *r; k++) {
        double v[128];
        char name[128][24], all[4000] = "";
        int n = ticks_log(r[k].lo, r[k].hi, r[k].room, v, name, 128);
        for (int i = 0; i < n; i++) {
            double lead = v[i] / pow(10, floor(log10(v[i]) + 1e-9));
            cr_expect(fabs(lead - round(lead)) < 1e-6, "%g is no tick", v[i]);
            cr_expect(v[i] >= r[k].lo * (1 - 1e-6) && v[i] <= r[k].hi * (1 + 1e-6));
            cr_expect(i == 0 || v[i] > v[i - 1]);
            if (name[i][0])
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%.23s", *all ? " " : "",
                         name[i]);
        }
        cr_expect(eq(str, all, (char *)(uintptr_t)r[k].names));
    }
}

/* There is no digit times a power of ten from 258 to 298: multiples of 10 replace them. */
Test(chart, log_ticks_of_ends_close_together)
{
    double v[128];
    char name[128][24];
    int n = ticks_log(258, 298, 9, v, name, 128);
    cr_assert(eq(int, n, 4));
    for (int i = 0; i < n; i++) {
        cr_expect(epsilon_eq(dbl, v[i], 260 + 10 * i, 1e-9));
        cr_expect(eq(dbl, strtod(name[i], NULL), 260 + 10 * i));
    }
}

/* Tests ends from the smallest to the largest double. */
Test(chart, log_ticks_of_any_numbers)
{
    static const double ends[][2] = {{1e-3, 1e308}, {1e-300, 1e300}, {1, INFINITY}, {0, 1},
                                     {NAN, 1},      {5e-324, 1e308}, {-1, 1},       {2, 1}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        double v[128];
        char name[128][24];
        int n = ticks_log(ends[i][0], ends[i][1], 6, v, name, 128);
        bool range = ends[i][0] > 0 && isfinite(ends[i][1]) && ends[i][1] > ends[i][0];
        cr_expect(range ? n >= 2 : n == 0, "%zu: %d", i, n);
        struct axis_box a = {.w = 10, .h = 10, .x0 = ends[i][0], .x1 = ends[i][1], .log_x = 1};
        for (int k = 0; k < n; k++)
            cr_expect(axis_x(&a, v[k]) > -.01 && axis_x(&a, v[k]) < 10.01, "%g", v[k]);
        if (n) /* the ticks cover the axis */
            cr_expect(axis_x(&a, v[n - 1]) > 7, "%zu: %g", i, v[n - 1]);
    }
}

Test(chart, log_axis_upwards)
{
    struct axis_box a = {
        .x = 1, .y = 2, .w = 10, .h = 30, .x1 = 1, .y0 = 1e-3, .y1 = 1, .log_y = 1};
    cr_expect(epsilon_eq(dbl, axis_y(&a, 1), 2, 1e-9));
    cr_expect(epsilon_eq(dbl, axis_y(&a, 0.1), 12, 1e-9));
    cr_expect(epsilon_eq(dbl, axis_y(&a, 1e-3), 32, 1e-9));
    cr_expect(eq(int, isfinite(axis_y(&a, 0)) || isfinite(axis_y(&a, -1)), 0));
}

Test(chart, zero_has_no_sign)
{
    static const char *const pairs[][2] = {
        {"-0", "0"},         {"-0.00", "0.00"},          {"-0.001", MINUS "0.001"},
        {"-10", MINUS "10"}, {"1e-00", "1e" MINUS "00"}, {"-0e-05", MINUS "0e" MINUS "05"},
        {"-", MINUS},        {"a-0 b", "a" MINUS "0 b"}, {"(-0.00 .. 0.1)", "(0.00 .. 0.1)"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", pairs[i][0]);
        minus_signs(text, sizeof text);
        cr_expect_str_eq(text, pairs[i][1]);
    }
}

/* Values far outside an axis keep their position, although their quotient with its end overflows.
 * An axis of 200 powers of ten has 1e200 at twice its width. */
Test(chart, log_axis_beyond_its_ends)
{
    static const struct {
        double x0, x1, v, widths;
    } known[] = {{1e-200, 1, 1e200, 2},  {1e-200, 1, 1e-300, -.5}, {1e100, 1e200, 1e-300, -4},
                 {1e-300, 1e300, 1, .5}, {1e300, 1e-300, 1, .5},   {1e200, 1e100, 1e-300, 5}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct axis_box a = {
            .x = 3, .w = 10, .h = 10, .x0 = known[i].x0, .x1 = known[i].x1, .log_x = 1};
        cr_expect(epsilon_eq(dbl, axis_x(&a, known[i].v), 3 + 10 * known[i].widths, 1e-9), "%zu",
                  i);
    }
}

/* Returns the x axis of a drawing of 60 mm, or a line, as SVG. */
static struct buf drawn(const struct axis_box *a, const struct chart_line *l)
{
    static const struct chart_look look = {.width = .1, .points = true};
    struct canvas *c = NULL;
    struct buf out = {0};
    succeeds(canvas_create(CANVAS_SVG, 60, 40, 300, &c, &d));
    if (l)
        chart_draw_line(c, a, l, &look);
    else
        axis_ticks_x(c, a);
    cr_assert(eq(int, canvas_finish(c, "", &out), KVF_OK));
    canvas_destroy(c);
    buf_add(&out, "", 1);
    return out;
}

static int count(const char *in, const char *what)
{
    int n = 0;
    for (const char *at = in; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static struct buf x_axis(const struct axis_box *a)
{
    return drawn(a, NULL);
}

/* Consecutive points in one place are drawn once.  Points with only x or only y in common are all
 * drawn. */
Test(chart, points_that_coincide_are_drawn_once)
{
    const struct axis_box a = {.x = 10, .y = 5, .w = 40, .h = 25, .x1 = 4, .y1 = 4};
    double x[] = {1, 1, 2, 2, 3}, y[] = {1, 1, 1, 3, 3};
    SCOPED(buf_finish) struct buf out = drawn(&a, &(struct chart_line){.n = 5, .x = x, .y = y});
    cr_expect(eq(int, count(out.data, "fill:rgb(0%,0%,0%)"), 4));
}

/* Count axes have only whole numbers: from 0.4 to 1.6 only 1 remains. */
Test(chart, axes_of_counts_have_whole_numbers)
{
    struct axis_box a = {.x = 10, .y = 5, .w = 40, .h = 25, .x0 = .4, .x1 = 1.6, .y1 = 1};
    SCOPED(buf_finish) struct buf any = x_axis(&a);
    a.whole_x = 1;
    SCOPED(buf_finish) struct buf whole = x_axis(&a);
    cr_expect(ge(int, count(any.data, "</tspan>"), 3));
    cr_expect(eq(int, count(whole.data, "</tspan>"), 1));
    cr_expect(eq(int, count(whole.data, ">1</tspan>"), 1));
}

/* Numbers that would touch the previous one are omitted: labels wider than their distance leave at
 * most every second one. */
Test(chart, wide_numbers_do_not_touch)
{
    for (double w = 13; w < 50; w += .7) {
        struct axis_box a = {.x = 8, .y = 5, .w = w, .h = 25, .x0 = 1e-5, .x1 = 1.0009e-5, .y1 = 1};
        SCOPED(buf_finish) struct buf out = x_axis(&a);
        double end = -INFINITY;
        int n = 0;
        for (const char *at = out.data; (at = strstr(at, "<tspan x=\"")) != NULL; n++) {
            const char *text = strchr(at, '>') + 1;
            struct canvas *c = NULL;
            struct kvf_diag d = {""};
            char label[64] = "";
            at += strlen("<tspan x=\"");
            memcpy(label, text, (size_t)(strchr(text, '<') - text));
            cr_assert(eq(int, canvas_create(CANVAS_SVG, 60, 40, 300, &c, &d), KVF_OK));
            double wide = canvas_text_width(c, label, PT_TICK, 0), left = strtod(at, NULL);
            canvas_destroy(c);
            left *= 25.4 / 72; /* the file is in points; a text begins at its left end */
            cr_expect(left > end, "%g mm, %s: %g after %g", w, label, left, end);
            end = left + wide;
        }
        cr_expect(ge(int, n, 1));
    }
}

Test(chart, criteria_have_their_names)
{
    static const char *const name[][2] = {{"top64", "top-64"},
                                          {"mass.90", "mass 0.90"},
                                          {"contrib64", "contribution top-64"},
                                          {"mass.95-top128", "mass 0.95 \xe2\x88\x92 top-128"},
                                          {"other", "other"},
                                          {"", ""}};
    char out[PLOT_NAME];
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        criterion_name(name[i][0], out);
        cr_expect(eq(str, out, (char *)(uintptr_t)name[i][1]));
    }
}

struct keys {
    int by;
    const char *x;
    int64_t top;
    double level;
};

static const struct opt keys[] = {
    WORD_KEY(struct keys, by, "all", "unit of a panel", "head", "all"),
    TEXT_KEY(struct keys, x, "NAME", "horizontal axis", .absent = "nothing"),
    COUNT_KEY(struct keys, top, 1, 9, "most rows", .standard = "3"),
    REAL_KEY(struct keys, level, 0, 1, "the level", .standard = "0.25"),
    {.type = OPT_END},
};

Test(chart, style_takes_what_is_declared)
{
    struct keys k = {0};
    SCOPED(buf_finish) struct buf text = {0};
    struct kvf_diag d = {""};
    cr_expect(eq(int, style_read("f", keys, NULL, &k, &text, &d), KVF_OK));
    cr_expect(k.by == 1 && !k.x && k.top == 3 && k.level == 0.25);
    cr_expect(eq(int, style_read("f", keys, "x=any,by=head,level=1,top=9", &k, &text, &d), KVF_OK));
    cr_expect(k.by == 0 && strcmp(k.x, "any") == 0 && k.top == 9 && k.level == 1);
}

Test(chart, style_refuses_the_rest_with_a_sentence)
{
    static const char *const bad[] = {
        "by=he", "by=all|head", "by",      "z=1",  "by=",        "=all",    "x",
        "top=0", "top=10",      "top=2.5", "top=", "level=1.01", "level=x", "x=1,by=none"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct keys k = {0};
        SCOPED(buf_finish) struct buf text = {0};
        struct kvf_diag d = {""};
        cr_expect(eq(int, style_read("f", keys, bad[i], &k, &text, &d), KVF_E_ARG), "%s", bad[i]);
        cr_expect(strncmp(d.text, "--style", 7) == 0, "%s: '%s'", bad[i], d.text);
    }
}

Test(chart, steps_are_two_numbers_or_one)
{
    static const char *const bad[] = {"9", "a:b", "0:101", "101:", "9:3", "3:x", ""};
    struct kvf_diag d = {""};
    int64_t from = -7, to = -8;
    cr_expect(eq(int, style_steps(NULL, 99, &from, &to, &d), KVF_OK));
    cr_expect(from == -7 && to == -8);
    cr_expect(eq(int, style_steps("20:60", 99, &from, &to, &d), KVF_OK));
    cr_expect(from == 20 && to == 60);
    cr_expect(eq(int, style_steps(":5", 99, &from, &to, &d), KVF_OK));
    cr_expect(from == 0 && to == 5);
    cr_expect(eq(int, style_steps("15:", 99, &from, &to, &d), KVF_OK));
    cr_expect(from == 15 && to == 100);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(eq(int, style_steps(bad[i], 99, &from, &to, &d), KVF_E_ARG), "%s", bad[i]);
    cr_expect(from == 15 && to == 100, "rejected steps leave the earlier values");
}

/* Points are stored unchanged, for any order of panels and lines. */
Test(chart, plots_keep_points)
{
    SCOPED(plot_free) struct plot p;
    char panel[16], line[16];
    plot_init(&p);
    for (int i = 0; i < 4000; i++) {
        snprintf(panel, sizeof panel, "p%d", i * 7 % 5);
        snprintf(line, sizeof line, "line %d", i * 3 % 11);
        bool has = i * 3 % 11 == 4 && i > 2000;
        plot_add(&p, panel, line, i, -i, has ? i - 1 : NAN, has ? i + 1 : NAN);
    }
    cr_assert(eq(int, p.err, KVF_OK));
    cr_expect(p.n_panels == 5 && p.n_lines == 11 && p.n_series == 55);
    int seen = 0;
    for (int s = 0; s < p.n_series; s++) {
        const struct chart_line *l = &p.series[s].data;
        bool four = strcmp(p.line[p.series[s].line].name, "line 4") == 0;
        cr_expect(eq(int, l->low != NULL, four));
        for (int k = 0; k < l->n; k++, seen++) {
            int i = (int)l->x[k];
            snprintf(panel, sizeof panel, "p%d", i * 7 % 5);
            cr_expect(l->y[k] == -i && (k == 0 || l->x[k] > l->x[k - 1]));
            cr_expect(strcmp(p.panel[p.series[s].panel], panel) == 0);
            if (four && i > 2000)
                cr_expect(l->low[k] == i - 1 && l->high[k] == i + 1, "%d", i);
            else if (four)
                cr_expect(isnan(l->low[k]) && isnan(l->high[k]), "%d", i);
        }
    }
    cr_expect(eq(int, seen, 4000));
    for (int i = 0; i < PLOT_PANELS + 1; i++) {
        snprintf(panel, sizeof panel, "more %d", i);
        plot_add(&p, panel, "x", 0, 0, NAN, NAN);
    }
    cr_expect(eq(int, p.err, KVF_E_LIMIT));
}
