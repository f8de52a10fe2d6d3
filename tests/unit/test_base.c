/* test_base.c - memory, progress lines, buffers, options, UTF-8, statistics, the thread pool and
 * the random generator. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/opt.h"
#include "base/par.h"
#include "base/progress.h"
#include "base/stage.h"
#include "base/stats.h"
#include "base/utf8.h"
#include "tests/suite.h"

Test(mem, overflow_is_refused)
{
    cr_expect(eq(ptr, mem_alloc((size_t)-1, 2), NULL));
    cr_expect(eq(ptr, mem_alloc((size_t)-1, 1), NULL));
}

Test(mem, memory_is_zeroed_and_aligned)
{
    OWNED(mem_free) unsigned char *p = mem_alloc(100, 1);
    cr_assert(ne(ptr, p, NULL));
    cr_expect(zero(sz, (size_t)p % MEM_ALIGN));
    for (int i = 0; i < 100; i++)
        cr_expect(zero(int, p[i]));
}

/* A failed allocation must not lose data. */
Test(mem, growing_keeps_what_there_was)
{
    OWNED(mem_free) int32_t *p = mem_grow(NULL, 0, 3, sizeof *p);
    cr_assert(ne(ptr, p, NULL));
    for (int i = 0; i < 3; i++)
        p[i] = i + 1;
    cr_expect(eq(ptr, mem_grow(p, 3, SIZE_MAX / 2, sizeof *p), NULL));
    p = mem_grow(p, 3, 50, sizeof *p);
    cr_assert(ne(ptr, p, NULL));
    for (int i = 0; i < 50; i++)
        cr_expect(eq(i32, p[i], i < 3 ? i + 1 : 0));
    p = mem_grow(p, 50, 2, sizeof *p);
    cr_assert(ne(ptr, p, NULL));
    cr_expect(p[0] == 1 && p[1] == 2);
}

Test(mem, growing_that_fails_leaves_what_there_was)
{
    const size_t n = 1 << 20; /* so large that the system unmaps it on free */
    OWNED(mem_free) int32_t *p = mem_alloc(n, sizeof *p);
    cr_assert(ne(ptr, p, NULL));
    p[n - 1] = 7;
    cr_expect(eq(ptr, mem_grow(p, n, SIZE_MAX / 2, sizeof *p), NULL));
    cr_expect(eq(i32, p[n - 1], 7));
}

Test(mem, rows_widen_all_or_none)
{
    OWNED(mem_free) int32_t *a = mem_alloc(2 * 3, sizeof *a);
    OWNED(mem_free) unsigned char *b = NULL;
    const struct mem_rows both[] = {{&a, 2, 1, sizeof *a}, {&b, 4, 5, 1}};
    const struct mem_rows too_wide[] = {{&a, 2, 1, sizeof *a}, {&b, SIZE_MAX / 8, 5, 1}};
    for (int i = 0; i < 6; i++)
        a[i] = i + 1;
    cr_assert(eq(int, mem_widen(both, 2, 3, 7), true));
    for (int i = 0; i < 14; i++)
        cr_expect(eq(int, a[i], i % 7 < 3 ? i / 7 * 3 + i % 7 + 1 : 0), "%d", i);
    for (int i = 0; i < 4 * 7 * 5; i++)
        cr_expect(zero(int, b[i]));
    const int32_t *was = a;
    cr_expect(zero(int, mem_widen(too_wide, 2, 7, 9)));
    cr_expect(eq(ptr, a, (void *)was));
    cr_expect(eq(int, a[9], 6));
}

/* Returns a progress line for `done` after 10 seconds, without terminal codes. On a busy machine
 * the line is drawn again until at most a millisecond more has passed. */
static const char *progress_line(int64_t done, int64_t total, char text[200])
{
    int keep = dup(STDERR_FILENO), tries = 1000;
    FILE *f = tmpfile();
    cr_assert(f != NULL && dup2(fileno(f), STDERR_FILENO) >= 0);
    struct progress p;
    do {
        cr_assert(ftruncate(fileno(f), 0) == 0 && lseek(fileno(f), 0, SEEK_SET) == 0);
        p = (struct progress){.label = "eval",
                              .unit = "tok",
                              .total = total,
                              .start = clock_seconds() - 10,
                              .on = true};
        progress_update(&p, done);
    } while (clock_seconds() - p.start > 10.001 && --tries > 0);
    dup2(keep, STDERR_FILENO);
    close(keep);
    rewind(f);
    text[fread(text, 1, 199, f)] = 0;
    fclose(f);
    size_t n = strlen(text);
    cr_assert(n > 4 && text[0] == '\r' && strcmp(text + n - 3, "\x1b[K") == 0, "%s", text);
    text[n - 3] = 0;
    return text + 1;
}

/* 50 of 100 in 10 s are 5 per second, so that the remaining 50 take 10 s. */
Test(progress, says_the_time_left_where_it_is_known)
{
    char s[200];
    cr_expect(eq(str, (char *)progress_line(0, 100, s),
                 "eval       [........................] 0/100  0 tok/s"));
    cr_expect(eq(str, (char *)progress_line(50, 100, s),
                 "eval       [############............] 50/100  5 tok/s  ETA 0:10"));
    cr_expect(eq(str, (char *)progress_line(100, 100, s),
                 "eval       [########################] 100/100  10 tok/s"));
    cr_expect(eq(str, (char *)progress_line(50, 0, s), "eval       50  5 tok/s"));
    cr_expect(strstr(progress_line(30, 6030, s), "ETA 33:20") != NULL, "6000 at 3 a second: %s", s);
}

/* Returns a line as shown on a terminal with this many columns, without terminal codes; "" if there
 * is no terminal. */
static const char *line_on(int columns, struct progress *p, char text[300])
{
    int keep = dup(STDERR_FILENO), terminal = posix_openpt(O_RDWR | O_NOCTTY), screen = -1;
    size_t n = 0;
    if (terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0)
        screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    if (screen >= 0
        && ioctl(screen, TIOCSWINSZ, &(struct winsize){.ws_col = (unsigned short)columns}) == 0) {
        dup2(screen, STDERR_FILENO);
        p->last_draw = 0;
        progress_within(p, 1, 2);
        dup2(keep, STDERR_FILENO);
        struct pollfd more = {.fd = terminal, .events = POLLIN};
        while (!memmem(text, n, "\x1b[K", 3) && n < 299 && poll(&more, 1, 5000) == 1) {
            ssize_t got = read(terminal, text + n, 299 - n);
            if (got <= 0)
                break;
            n += (size_t)got;
        }
        close(screen);
    }
    if (terminal >= 0)
        close(terminal);
    close(keep);
    text[n > 3 ? n - 3 : 0] = 0;
    return n > 3 ? text + 1 : "";
}

/* The bar shrinks first, then the end of the line is cut. A terminal that reports 0 columns has an
 * unknown width. */
Test(progress, is_never_wider_than_the_terminal)
{
    static const struct {
        int columns;
        const char *says;
    } wide[] = {{0, "train      [############............] 4.5/9"},
                {200, "train      [############............] 4.5/9"},
                {48, "train      [##..] 4.5/9"},
                {30, "train      4.5/9"},
                {9, "train   "}};
    char text[300];
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        struct progress p = {.label = "train",
                             .unit = "steps",
                             .total = 9,
                             .start = clock_seconds() - 10,
                             .on = true,
                             .done = 4};
        const char *shown = line_on(wide[i].columns, &p, text);
        if (!*shown)
            return; /* no terminal device */
        cr_expect(strncmp(shown, wide[i].says, strlen(wide[i].says)) == 0, "%d: '%s'",
                  wide[i].columns, shown);
        cr_expect(wide[i].columns == 0 || strlen(shown) < (size_t)wide[i].columns, "%d: '%s'",
                  wide[i].columns, shown);
    }
}

/* 4 of 9 were already done. 2.5 more in 10 seconds are 0.25 per second, so that the remaining 2.5
 * take 10 seconds. */
Test(progress, of_what_goes_on_counts_what_is_done_here)
{
    char text[300];
    struct progress p = {
        .label = "train", .unit = "steps", .total = 9, .start = clock_seconds() - 10, .on = true};
    progress_from(&p, 4);
    p.done = 6;
    const char *shown = line_on(80, &p, text);
    cr_expect(strlen(shown) == 0 || strstr(shown, "6.5/9  0.25 steps/s  ETA 0:10") != NULL, "%s",
              shown);
}

static void see(void *ctx, uint64_t done, uint64_t of)
{
    *(double *)ctx = (double)done / (double)of;
}

Test(stage, is_a_share_of_the_whole)
{
    double told = -1;
    struct stage s = {see, &told, 0, 1};
    stage_see(&s, 1, 4);
    cr_expect(eq(dbl, told, .25));
    stage_set(&s, .5, 1, 1, 2);
    stage_see(&s, 1, 2);
    cr_expect(eq(dbl, told, .875));
    s.watch = NULL;
    stage_see(&s, 1, 1);
    cr_expect(eq(dbl, told, .875), "nobody is told");
}

Test(progress, is_silent_unless_a_terminal_is_there)
{
    struct progress p;
    int keep = dup(STDERR_FILENO), terminal = posix_openpt(O_RDWR | O_NOCTTY), screen = -1;
    FILE *f = tmpfile();
    cr_assert(f != NULL && dup2(fileno(f), STDERR_FILENO) >= 0);
    progress_start(&p, "eval", "tok", 9);
    progress_update(&p, 5);
    progress_clear(&p);
    progress_end(&p, 9);
    cr_expect(not(p.on));
    cr_expect(zero(long, (long)lseek(fileno(f), 0, SEEK_END)));
    if (terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0)
        screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    if (screen >= 0) {
        dup2(screen, STDERR_FILENO);
        progress_start(&p, "eval", "tok", 9);
    }
    dup2(keep, STDERR_FILENO);
    if (screen >= 0) {
        /* Data written to a terminal arrive in pieces and with a delay. */
        char text[200] = "";
        size_t n = 0;
        struct pollfd more = {.fd = terminal, .events = POLLIN};
        while (!strstr(text, "0/9") && n < sizeof text - 1 && poll(&more, 1, 5000) == 1) {
            ssize_t got = read(terminal, text + n, sizeof text - 1 - n);
            if (got <= 0)
                break;
            n += (size_t)got;
        }
        cr_expect(p.on);
        cr_expect(strstr(text, "0/9") != NULL, "%s", text);
        close(screen);
    } else {
        puts("skipped: no terminal device; progress on a terminal is not tried");
    }
    if (terminal >= 0)
        close(terminal);
    close(keep);
    fclose(f);
}

Test(buf, limit_is_sticky)
{
    SCOPED(buf_finish) struct buf b = {.max = 8};
    buf_str(&b, "1234567");
    buf_str(&b, "89");
    buf_str(&b, "");
    cr_expect(eq(int, b.err, KVF_E_LIMIT));
    cr_expect(eq(str, b.data, "1234567"));
}

Test(opt, numbers_with_suffix_and_garbage)
{
    int64_t n;
    cr_expect(opt_int("4k", &n));
    cr_expect(eq(i64, n, 4096));
    cr_expect(not(opt_int("4kk", &n)));
    cr_expect(not(opt_int("", &n)));
    cr_expect(not(opt_int("99999999999999999999", &n)));
    cr_expect(not(opt_int("9007199254740993M", &n)));
}

Test(opt, parses_every_form_and_keeps_operands)
{
    struct values {
        int64_t n;
        const char *s;
        bool flag;
    } v = {0};
    bool help;
    int operands;
    static const struct opt list[] = {
        {OPT_INT, 'n', "count", offsetof(struct values, n), "N", "", .max = 10},
        {OPT_STR, 0, "name", offsetof(struct values, s), "NAME", ""},
        {OPT_FLAG, 'q', NULL, offsetof(struct values, flag), NULL, ""},
        {.type = OPT_END},
    };
    char *argv[] = {"x", "a", "-n3", "--name=v", "-q", "-", "--", "-n"};
    struct kvf_diag d;
    cr_assert(eq(int, opt_parse(list, &v, 8, argv, &operands, &help, &d), KVF_OK));
    cr_expect(eq(i64, v.n, 3));
    cr_expect(eq(str, (char *)v.s, "v"));
    cr_expect(v.flag);
    cr_assert(eq(int, operands, 3));
    cr_expect(eq(str, argv[1], "a"));
    cr_expect(eq(str, argv[2], "-"));
    cr_expect(eq(str, argv[3], "-n"));
    char *high[] = {"x", "--count", "11"};
    cr_expect(eq(int, opt_parse(list, &v, 3, high, &operands, &help, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, "--count"), NULL), "the error names the option");
}

Test(opt, pairs)
{
    const char *s = "sinks=4,pool=max,flag";
    char k[16], v[16];
    cr_assert(eq(int, opt_pair(&s, k, v, 16), 1));
    cr_expect(eq(str, k, "sinks"));
    cr_expect(eq(str, v, "4"));
    cr_assert(eq(int, opt_pair(&s, k, v, 16), 1));
    cr_assert(eq(int, opt_pair(&s, k, v, 16), 1));
    cr_expect(eq(str, k, "flag"));
    cr_expect(eq(str, v, ""));
    cr_expect(eq(int, opt_pair(&s, k, v, 16), 0));
    s = "a=1,";
    cr_expect(eq(int, opt_pair(&s, k, v, 16), KVF_E_ARG));
}

Test(utf8, well_formed_only)
{
    cr_expect(utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    static const char *const bad[] = {"\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(not(utf8_valid(bad[i], strlen(bad[i]))));
}

Test(stats, infinite_sums_stay_infinite)
{
    struct sum s = {0};
    sum_add(&s, 1);
    sum_add(&s, -INFINITY);
    sum_add(&s, 1);
    cr_expect(eq(dbl, sum_get(&s), -INFINITY));
    sum_add(&s, INFINITY);
    cr_expect(isnan(sum_get(&s)));
}

Test(stats, compensated_sum_keeps_small_terms)
{
    struct sum s = {0};
    sum_add(&s, 1e16);
    for (int i = 0; i < 10; i++)
        sum_add(&s, 1.0);
    sum_add(&s, -1e16);
    cr_expect(eq(dbl, sum_get(&s), 10.0));
    double v[] = {4, 1, 3, 2};
    cr_expect(eq(dbl, stats_quantile(v, 4, 0.5), 2.5));
}

static void count_task(void *ctx, int task, int thread)
{
    (void)thread;
    ((int *)ctx)[task]++;
}

Test(par, every_task_runs_once_in_every_round)
{
    enum { N = 37, ROUNDS = 2000 };
    OWNED(par_destroy) struct par *p = NULL;
    int count[N] = {0};
    cr_assert(eq(int, par_create(3, &p), KVF_OK));
    for (int r = 0; r < ROUNDS; r++)
        par_run(p, N, count_task, count);
    for (int i = 0; i < N; i++)
        cr_expect(eq(int, count[i], ROUNDS));
}

Test(rng, same_seed_same_sequence_and_unbiased_range)
{
    struct rng a, b;
    rng_init(&a, 5);
    rng_init(&b, 5);
    for (int i = 0; i < 100; i++) {
        cr_expect(eq(u64, rng_next(&a), rng_next(&b)));
        cr_expect(lt(u64, rng_below(&a, 7), 7));
        rng_below(&b, 7);
    }
}

/* The expected sum is added from the smallest term, without compensation. */
Test(stats, geometric_equals_the_sum)
{
    static const double x[] = {0, -1e-300, -1.5e-8, -1e-3, -0.7, -30, -1e3, -INFINITY};
    static const int n[] = {0, 1, 2, 3, 70, 10000};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        for (size_t j = 0; j < sizeof n / sizeof *n; j++) {
            double want = 0, got = stats_geometric(x[i], n[j]);
            for (int k = n[j] - 1; k > 0; k--)
                want += exp(k * x[i]);
            want += n[j] > 0;
            cr_expect(fabs(got - want) <= 1e-13 * want, "x %g, n %d: %.17g, want %.17g", x[i], n[j],
                      got, want);
        }
    cr_expect(isnan(stats_geometric(NAN, 1)) && isnan(stats_geometric(NAN, 5)));
}

/* The bounds are the roots of (share - p)^2 = z^2 p (1 - p) / n. */
Test(stats, wilson_bounds_are_where_the_share_is_z_deviations_away)
{
    const double z2 = 1.959963984540054 * 1.959963984540054;
    for (int64_t n = 1; n < 40; n++)
        for (int64_t yes = 0; yes <= n; yes++) {
            double low, high, p = (double)yes / (double)n;
            stats_wilson(yes, n, &low, &high);
            cr_assert(low >= 0 && low <= p && p <= high && high <= 1);
            double below = (p - low) * (p - low) - z2 * low * (1 - low) / (double)n;
            double above = (p - high) * (p - high) - z2 * high * (1 - high) / (double)n;
            cr_assert(yes > 0 ? fabs(below) < 1e-14 : low == 0);
            cr_assert(yes < n ? fabs(above) < 1e-14 : high == 1);
        }
}

/* t(0.975) from printed tables, for 1, 2, 9 and 120 degrees of freedom. */
Test(stats, t_intervals_have_the_width_of_the_tables)
{
    static const struct {
        size_t n;
        double t;
    } row[] = {{2, 12.7062}, {3, 4.30265}, {10, 2.26216}, {121, 1.97993}};
    double v[121], low, high;
    for (size_t k = 0; k < 4; k++) {
        double sum = 0, squares = 0, n = (double)row[k].n;
        for (size_t i = 0; i < row[k].n; i++) {
            v[i] = (double)(i * i % 7) + .25 * (double)i;
            sum += v[i];
            squares += v[i] * v[i];
        }
        double half = row[k].t * sqrt((squares - sum * sum / n) / (n - 1) / n);
        stats_t_interval(v, row[k].n, &low, &high);
        cr_expect(fabs((high - low) / 2 / half - 1) < 3e-5, "n %zu: %g .. %g", row[k].n, low, high);
        cr_expect(fabs((high + low) / 2 - sum / n) < 1e-9);
    }
    stats_t_interval(v, 1, &low, &high);
    cr_expect(isnan(low) && isnan(high));
}

/* For means of five normal values, 95 % of the intervals must contain the true mean. 20,000 samples
 * have a standard deviation of 0.15 %. */
Test(stats, t_intervals_cover_at_small_n)
{
    int held = 0;
    struct rng r = rng_seeded(7);
    for (int k = 0; k < 20000; k++) {
        double v[5], low, high;
        for (int i = 0; i < 5; i++)
            v[i] = 3 + 2 * rng_normal(&r);
        stats_t_interval(v, 5, &low, &high);
        held += low <= 3 && 3 <= high;
    }
    cr_expect(held > 18910 && held < 19090, "%d of 20000", held);
}

/* For many values, the interval equals that of the normal distribution, mean +- 1.96 s /
 * sqrt(n). */
Test(stats, bootstrap_agrees_with_the_standard_error)
{
    enum { N = 400 };
    double v[N], low, high, again[2], sum = 0, square = 0;
    struct rng r = rng_seeded(8);
    for (int i = 0; i < N; i++) {
        v[i] = 3 + 2 * rng_normal(&r);
        sum += v[i];
    }
    for (int i = 0; i < N; i++)
        square += (v[i] - sum / N) * (v[i] - sum / N);
    double half = 1.96 * sqrt(square / N) / sqrt(N);
    cr_assert(stats_mean_interval(v, N, 2000, 1, &low, &high) == KVF_OK);
    cr_expect(fabs(low - (sum / N - half)) < 0.1 * half, "%g, expected %g", low, sum / N - half);
    cr_expect(fabs(high - (sum / N + half)) < 0.1 * half, "%g, expected %g", high, sum / N + half);
    cr_assert(stats_mean_interval(v, N, 2000, 1, &again[0], &again[1]) == KVF_OK);
    cr_expect(again[0] == low && again[1] == high, "the same seed gives other intervals");
}
