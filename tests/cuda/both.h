/* both.h - shared by the tests of training on a device: a CPU and a device backend, random arrays
 * on both, and comparisons. */
#ifndef KVF_TESTS_CUDA_BOTH_H
#define KVF_TESTS_CUDA_BOTH_H

#include "engine/train/ops.h"
#include "tests/cuda/device.h"

/* The CPU and the device backend, and the random generator for their inputs. */
struct both {
    struct compute cpu, gpu;
    struct rng r;
};

static inline struct both both_open(bool exact)
{
    struct both b = {.cpu = {.pool = NULL}};
    struct kvf_diag d = {""};
    if (gpu_count(&d) == 0)
        cr_skip_test("%s", d.text);
    struct kernels k;
    kernels_init(&k, 0);
    b.cpu.k = k;
    cr_assert(
        eq(int, compute_open(&b.gpu, &k, NULL, &(struct learner){&ops_cuda, 0, exact}, &d), KVF_OK),
        "%s", d.text);
    rng_init(&b.r, 5);
    return b;
}

static inline void both_close(struct both *b)
{
    compute_close(&b->gpu);
}

/* An array of n random floats with one copy on the host (here) and one on the device (there). */
struct pair {
    float *here, *there;
    size_t n;
};

static inline struct pair draw(struct both *b, size_t n, double spread)
{
    struct pair p = {MEM_NEW(float, n), NULL, n};
    fill(&b->r, p.here, n, spread);
    p.there = ops_cuda.device_copy(&b->gpu, p.here, n);
    cr_assert(ne(ptr, p.there, NULL));
    return p;
}

static inline void drop(struct both *b, struct pair *p)
{
    ops_cuda.device_copy_free(&b->gpu, p->there);
    mem_free(p->here);
}

/* Checks that the device copy equals the host copy within `most`, relative to the largest value. */
static inline void same_within(struct both *b, const struct pair *p, double most, const char *what)
{
    struct kvf_diag d = {""};
    float *got = MEM_NEW(float, p->n);
    ops_cuda.to_host(&b->gpu, got, p->there, p->n * sizeof *got);
    cr_expect(eq(int, ops_cuda.check(&b->gpu, &d), KVF_OK), "%s: %s", what, d.text);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", what, emulation_first_fault());
    cr_expect(le(dbl, distance(got, p->here, p->n), most), "%s", what);
    mem_free(got);
}

static inline void same(struct both *b, const struct pair *p, const char *what)
{
    same_within(b, p, 1e-5, what);
}

/* Copies n ints of the host to the device and returns the device pointer. */
static inline int32_t *lend(struct both *b, const int32_t *x, size_t n)
{
    int32_t *p = ops_cuda.alloc(&b->gpu, n, sizeof *p);
    ops_cuda.to_device(&b->gpu, p, x, n * sizeof *p);
    return p;
}

/* Cuts T tokens into random documents of 30 tokens on average. first[t] is the first token of the
 * document of t. */
static inline void cut(struct rng *r, int32_t *first, int T)
{
    for (int t = 0; t < T; t++)
        first[t] = t == 0 || rng_below(r, 30) == 0 ? t : first[t - 1];
}

#endif
