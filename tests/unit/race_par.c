/* race_par.c - the thread pool without a test framework (Criterion does not start under
 * ThreadSanitizer): rounds of unequal tasks on shared plain memory. */
#include <stdio.h>
#include <string.h>

#include "base/par.h"

enum { TASKS = 97, ROUNDS = 400 };

struct work {
    long out[TASKS];     /* one writer each per round */
    long per_thread[16]; /* scratch memory per thread, as kernels use it */
    long input;          /* written by the caller between rounds */
};

static void task(void *ctx, int i, int thread)
{
    struct work *w = ctx;
    for (int k = 0; k < i % 13; k++)
        w->per_thread[thread] += k;
    w->out[i] += w->input + i;
}

static int rounds(int threads)
{
    struct par *p = NULL;
    struct work w;
    long want = 0;
    int bad = 0;
    memset(&w, 0, sizeof w);
    if (par_create(threads, &p) != KVF_OK)
        return 1;
    for (int r = 0; r < ROUNDS; r++) {
        w.input = r;
        want += r;
        par_run(p, r % 3 ? TASKS : TASKS / 2, task, &w);
    }
    for (int i = 0; i < TASKS / 2; i++)
        bad |= w.out[i] != want + (long)i * ROUNDS;
    par_destroy(p);
    return bad;
}

int main(void)
{
    int bad = rounds(1) | rounds(2) | rounds(3) | rounds(8);
    if (bad)
        fprintf(stderr, "a round lost or repeated a task\n");
    return bad;
}
