/* bench_decide.c - measures the complete cost that a method adds to a decode step: evidence,
 * decisions and eviction.
 *
 *   usage: bench_decide [-b BUDGET] [-m METHOD,...] [-r ROUNDS] [-t THREADS] MODEL.gguf
 *
 * Each method has a session at its budget.  A session under `full` has as many entries on
 * average.  The sessions take turns, so that disturbances of the machine affect all of them
 * equally.  A step evicts the data of other sessions from the CPU caches.  Columns: the median
 * wall time of a step, and the median of its excess over the step under `full` of the same
 * round, in microseconds and percent; then both over the fastest tenth.  Methods that need
 * gates, plans or twins are omitted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/decode/session.h"

enum { MOST = 32, ROUNDS_MOST = 4096 };

static struct {
    struct engine *e;
    struct session *s[MOST];
    struct method row[MOST];
    struct method_params params[MOST];
    double us[MOST][ROUNDS_MOST];
    int n, rounds, budget;
    struct rng random;
} bench;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench_decide: %s\n", what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static int32_t any_id(void)
{
    return (int32_t)(1000 + rng_below(&bench.random, 30000));
}

/* Starts a session after its prompt. */
static void start(const char *name)
{
    struct kvf_diag d = {""};
    int at = bench.n, n = bench.budget - (strcmp(name, "full") ? 0 : bench.rounds / 2);
    if (at == MOST || method_parse(name, bench.budget, &bench.row[at], &bench.params[at], &d))
        fail(d.text);
    struct session_options opt = {.method = &bench.row[at],
                                  .params = &bench.params[at],
                                  .kv_type = KV_F16,
                                  .cap = bench.budget + bench.rounds + 1};
    int32_t *ids = mem_alloc((size_t)n, sizeof *ids);
    for (int i = 0; ids && i < n; i++)
        ids[i] = any_id();
    if (!ids || session_create(bench.e, &opt, &bench.s[at], &d)
        || session_prompt(bench.s[at], ids, n, NULL, NULL))
        fail(d.text);
    mem_free(ids);
    bench.n++;
}

static void start_all(char *list)
{
    start("full");
    for (char *p = list ? strtok(list, ",") : NULL; p; p = strtok(NULL, ","))
        start(p);
    for (const struct method *m = method_presets; !list && m->name; m++) {
        unsigned other = EVIDENCE_MOMENTS | EVIDENCE_FULL | EVIDENCE_BLOCKS;
        if (m->score && !m->score->needs_mass && !(m->score->evidence & other) && !method_gates(m)
            && m->params.every == 0)
            start(m->name);
    }
}

static void step_all(int round)
{
    for (int i = 0; i < bench.n; i++) {
        double t0 = now_us();
        if (session_step(bench.s[i], any_id()))
            fail("a step came to nothing");
        bench.us[i][round] = now_us() - t0;
    }
}

static void print_all(void)
{
    double more[ROUNDS_MOST], whole[ROUNDS_MOST], full = 0, quick = 0;
    printf("%-14s %9s %9s %8s %9s %9s %8s\n", "method", "step us", "more us", "share", "quick us",
           "more us", "share");
    for (int i = 0; i < bench.n; i++) {
        for (int r = 0; r < bench.rounds; r++) {
            whole[r] = bench.us[i][r];
            more[r] = bench.us[i][r] - bench.us[0][r];
        }
        double step = median(whole, bench.rounds), add = median(more, bench.rounds);
        double tenth = whole[bench.rounds / 10];
        full = i == 0 ? step : full;
        quick = i == 0 ? tenth : quick;
        printf("%-14s %9.0f %9.1f %6.1f %% %9.0f %9.1f %6.1f %%\n", bench.row[i].name, step, add,
               100 * add / full, tenth, tenth - quick, 100 * (tenth - quick) / quick);
    }
}

int main(int argc, char **argv)
{
    struct engine_options opt = {.n_threads = 2, .cpu_flags = cpu_flags_detect()};
    struct kvf_diag d = {""};
    char *methods = NULL, *model = NULL;
    bench.rounds = 200;
    bench.budget = 512;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "-b") == 0 && more)
            bench.budget = atoi(argv[++i]);
        else if (strcmp(argv[i], "-m") == 0 && more)
            methods = argv[++i];
        else if (strcmp(argv[i], "-r") == 0 && more)
            bench.rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "-t") == 0 && more)
            opt.n_threads = atoi(argv[++i]);
        else
            model = argv[i];
    }
    if (!model || bench.rounds < 1 || bench.rounds > ROUNDS_MOST || bench.rounds > bench.budget)
        fail("it needs a model, and at most as many rounds as the budget");
    if (engine_open(model, &opt, &bench.e, &d))
        fail(d.text);
    rng_init(&bench.random, 1);
    start_all(methods);
    for (int r = 0; r < bench.rounds; r++)
        step_all(r);
    print_all();
    for (int i = 0; i < bench.n; i++)
        session_destroy(bench.s[i]);
    engine_close(bench.e);
    return 0;
}
