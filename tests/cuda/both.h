/* both.h - shared by the tests of training on a device: a CPU and a device backend, random arrays
 * on both, and comparisons. */
#ifndef KVF_TESTS_CUDA_BOTH_H
#define KVF_TESTS_CUDA_BOTH_H

#include "engine/train/ops.h"
#include "tests/cuda/device.h"

/* The CPU and the device backend, the random generator for their inputs, and the device memory that
 * both_close() frees: floats and ints. */
struct both {
    struct compute cpu, gpu;
    struct rng r;
    float **floats;
    int32_t **ints;
    size_t n_floats, n_ints;
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
    for (size_t i = 0; i < b->n_floats; i++)
        ops_cuda.device_copy_free(&b->gpu, b->floats[i]);
    for (size_t i = 0; i < b->n_ints; i++)
        ops_cuda.free(&b->gpu, b->ints[i]);
    mem_free(b->floats);
    mem_free(b->ints);
    compute_close(&b->gpu);
    device_release(NULL);
}

/* An array of n random floats with one copy on the host (here) and one on the device (there). */
struct pair {
    float *here, *there;
    size_t n;
};

static inline struct pair draw(struct both *b, size_t n, double spread)
{
    struct pair p = {NEW(float, n), NULL, n};
    fill(&b->r, p.here, n, spread);
    p.there = ops_cuda.device_copy(&b->gpu, p.here, n);
    cr_assert(ne(ptr, p.there, NULL));
    b->floats = mem_grow(b->floats, b->n_floats, b->n_floats + 1, sizeof *b->floats);
    b->floats[b->n_floats++] = p.there;
    return p;
}

/* Checks that the device copy equals the host copy within `most`, relative to the largest value. */
static inline void same_within(struct both *b, const struct pair *p, double most, const char *what)
{
    struct kvf_diag d = {""};
    float *got = NEW(float, p->n);
    ops_cuda.to_host(&b->gpu, got, p->there, p->n * sizeof *got);
    cr_expect(eq(int, ops_cuda.check(&b->gpu, &d), KVF_OK), "%s: %s", what, d.text);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", what, emulation_first_fault());
    cr_expect(le(dbl, distance(got, p->here, p->n), most), "%s", what);
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
    b->ints = mem_grow(b->ints, b->n_ints, b->n_ints + 1, sizeof *b->ints);
    b->ints[b->n_ints++] = p;
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
