/* race_attention.c - gated attention on several threads for ThreadSanitizer, without Criterion,
 * which does not start under it. Any number of threads must give the bits of one thread. */
#include <stdio.h>

#include "naive.h"

static int bad(const struct problem *p, const struct kernels *k, const struct answer *one,
               int threads)
{
    OWNED(par_destroy) struct par *pool = NULL;
    struct answer x;
    if (par_create(threads, &pool) != KVF_OK)
        return 1;
    answer_init(&x, p);
    answer_run(&x, p, k, pool);
    size_t T = (size_t)p->s.T;
    int differs = memcmp(x.out, one->out, T * x.ld_out * sizeof(float)) != 0
                  || memcmp(x.d_in, one->d_in, T * x.ld * sizeof(float)) != 0
                  || memcmp(x.d_gate, one->d_gate, p->ng * sizeof(float)) != 0;
    answer_finish(&x);
    return differs;
}

int main(void)
{
    struct kernels k;
    struct rng r;
    int failed = 0;
    kernels_init(&k, cpu_flags_detect());
    rng_init(&r, 3);
    for (int form = GATING_NONE; form <= GATING_WRITE; form++) {
        struct problem p;
        struct answer one;
        struct shape s = {150, 6, 2, 20, (enum gating)form, 11, -1, {31, 70, 0}};
        problem_init(&p, s, &r);
        answer_init(&one, &p);
        answer_run(&one, &p, &k, NULL);
        for (int threads = 2; threads <= 5; threads++)
            failed |= bad(&p, &k, &one, threads);
        answer_finish(&one);
        problem_finish(&p);
    }
    if (failed)
        fprintf(stderr, "the number of threads changed a result\n");
    return failed;
}
