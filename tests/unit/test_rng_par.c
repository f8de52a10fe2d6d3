/* test_rng_par.c - the random generator compared with published values, and the thread pool. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/par.h"
#include "tests/suite.h"

/* First outputs of splitmix64 for the seed 1234567 and of xoshiro256** for the state 1, 2, 3, 4, as
 * printed by the authors' C programs (prng.di.unimi.it). */
Test(rng, published_sequences)
{
    static const uint64_t split[] = {6457827717110365317u, 3203168211198807973u,
                                     9817491932198370423u, 4593380528125082431u};
    static const uint64_t star[] = {11520,
                                    0,
                                    1509978240,
                                    1215971899390074240u,
                                    1216172134540287360u,
                                    607988272756665600u,
                                    16172922978634559625u,
                                    8476171486693032832u,
                                    10595114339597558777u,
                                    2904607092377533576u};
    struct rng r = rng_seeded(1234567);
    for (int i = 0; i < 4; i++)
        cr_expect(eq(u64, r.s[i], split[i]));
    r = (struct rng){{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof star / sizeof *star; i++)
        cr_expect(eq(u64, rng_next(&r), star[i]));
}

/* Bounds of five standard deviations: a correct generator fails once in millions of runs. */
Test(rng, ranges_and_moments)
{
    enum { N = 200000, SIDES = 7 };
    double sum = 0, normal = 0, square = 0;
    int count[SIDES] = {0};
    struct rng r = rng_seeded(99);
    for (int i = 0; i < N; i++) {
        double u = rng_uniform(&r), z = rng_normal(&r);
        cr_assert(u >= 0 && u < 1 && isfinite(z));
        sum += u;
        normal += z;
        square += z * z;
        count[rng_below(&r, SIDES)]++;
    }
    cr_expect(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    cr_expect(fabs(normal / N) < 5 / sqrt(N));
    cr_expect(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    for (int i = 0; i < SIDES; i++)
        cr_expect(fabs(count[i] - (double)N / SIDES) < 5 * sqrt(N * (1.0 / 7) * (6.0 / 7)), "%d",
                  i);
    cr_expect(eq(u64, rng_below(&r, 1), 0));
}

Test(rng, hash_depends_on_every_argument_and_on_nothing_else)
{
    uint64_t base = rng_hash(1, 2, 3, 4);
    cr_expect(eq(u64, rng_hash(1, 2, 3, 4), base));
    uint64_t other[] = {rng_hash(2, 2, 3, 4), rng_hash(1, 3, 3, 4), rng_hash(1, 2, 4, 4),
                        rng_hash(1, 2, 3, 5), rng_hash(1, 3, 2, 4), rng_hash(1, 2, 4, 3)};
    for (int i = 0; i < 6; i++) {
        int bits = __builtin_popcountll(other[i] ^ base);
        cr_expect(bits >= 10 && bits <= 54, "about half of the bits change: %d", bits);
    }
}

enum { TASKS = 301 };

struct seen {
    atomic_int count[TASKS], inside[16], bad;
    int threads;
};

static void visit(void *ctx, int task, int thread)
{
    struct seen *s = ctx;
    if (thread < 0 || thread >= s->threads || atomic_fetch_add(&s->inside[thread], 1) != 0)
        atomic_fetch_add(&s->bad, 1); /* one task at a time has a given thread number */
    atomic_fetch_add(&s->count[task], 1);
    atomic_fetch_sub(&s->inside[thread & 15], 1);
}

Test(par, every_task_once_for_any_number_of_threads)
{
    static const int threads[] = {1, 2, 3, 5, 16};
    static const int tasks[] = {0, 1, 2, 3, 7, TASKS};
    for (int a = 0; a < 5; a++) {
        OWNED(par_destroy) struct par *p = NULL;
        cr_assert(eq(int, par_create(threads[a], &p), KVF_OK));
        cr_expect(eq(int, par_threads(p), threads[a]));
        for (int round = 0; round < 20; round++)
            for (int b = 0; b < 6; b++) {
                struct seen s = {.threads = threads[a]};
                par_run(p, tasks[b], visit, &s);
                cr_expect(eq(int, atomic_load(&s.bad), 0));
                for (int i = 0; i < TASKS; i++)
                    cr_expect(eq(int, atomic_load(&s.count[i]), i < tasks[b]));
            }
    }
}

static void fill(void *ctx, int task, int thread)
{
    (void)thread;
    ((int *)ctx)[task] = task + 1; /* plain memory: par_run must make it visible */
}

Test(par, results_are_visible_to_the_caller)
{
    OWNED(par_destroy) struct par *p = NULL;
    cr_assert(eq(int, par_create(4, &p), KVF_OK));
    for (int round = 0; round < 300; round++) {
        int out[64] = {0}, sum = 0;
        par_run(p, 64, fill, out);
        for (int i = 0; i < 64; i++)
            sum += out[i];
        cr_expect(eq(int, sum, 64 * 65 / 2));
    }
}

static double processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void work(void *ctx, int task, int thread)
{
    (void)thread;
    double *x = (double *)ctx + task;
    for (int i = 0; i < 400; i++)
        *x = *x * 0.999 + 1;
}

static double seconds_of_rounds(struct par *p)
{
    double x[8] = {0}, begun = processor_seconds();
    for (int round = 0; round < 10000; round++)
        par_run(p, 8, work, x);
    return processor_seconds() - begun;
}

/* Eight threads on one CPU: idle threads must not use the CPU that the working thread needs. The
 * bound is far above the time of a pool that sleeps, and far below that of a pool that spins. */
Test(par, threads_that_wait_leave_the_processor)
{
    struct par *p = NULL;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
    double alone = seconds_of_rounds(NULL);
    cr_assert(eq(int, par_create(8, &p), KVF_OK));
    double together = seconds_of_rounds(p);
    par_destroy(p);
    cr_expect(together < 2 * alone + 0.2, "%g s of the processor, and %g s alone", together, alone);
}

static void in_order(void *ctx, int task, int thread)
{
    int *next = ctx;
    cr_expect(task == (*next)++ && thread == 0);
}

Test(par, no_pool_runs_in_order)
{
    int next = 0;
    par_run(NULL, 10, in_order, &next);
    cr_expect(eq(int, next, 10));
    cr_expect(eq(int, par_threads(NULL), 1));
    par_destroy(NULL);
}

Test(par, impossible_sizes_are_refused)
{
    struct par *p = NULL;
    cr_expect(eq(int, par_create(-1, &p), KVF_E_LIMIT));
    cr_expect(eq(int, par_create(257, &p), KVF_E_LIMIT));
    cr_expect(eq(ptr, p, NULL), "untouched");
    cr_assert(eq(int, par_create(0, &p), KVF_OK), "0: the machine's cores");
    par_destroy(p);
    for (int i = 0; i < 50; i++) { /* destroyed before its first run */
        cr_assert(eq(int, par_create(3, &p), KVF_OK));
        par_destroy(p);
    }
}
