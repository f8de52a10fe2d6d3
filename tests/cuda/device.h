/* device.h - shared by the tests of CUDA kernels: a device, real or emulated, copies between host
 * and device arrays, and comparisons. */
#ifndef KVF_TESTS_CUDA_DEVICE_H
#define KVF_TESTS_CUDA_DEVICE_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/cuda/gpu.h"
#include "tests/cuda/emulation_c.h"

#ifndef EMULATED
#define EMULATED 1 /* 0 if the kernels run on a real device */
#endif
enum { SEEDS = 3 }; /* lane orders that each case runs with */

/* Returns the step between the cases that a test runs. It is 1 on a device and in the long tests,
 * which run all cases. Otherwise it is `otherwise`, because an emulated device is slow. */
static inline int stride(int otherwise)
{
    const char *asked = getenv("KVFATE_TESTS");
    return !EMULATED || (asked && strcmp(asked, "long") == 0) ? 1 : otherwise;
}

/* Skips the test if there is no device. */
static inline void device_needed(void)
{
    struct kvf_diag d = {""};
    if (gpu_count(&d) == 0)
        cr_skip_test("%s", d.text);
}

static inline struct gpu *device_open(void)
{
    struct gpu *g = NULL;
    struct kvf_diag d = {""};
    device_needed();
    cr_assert(eq(int, gpu_open(0, &g, &d), KVF_OK), "%s", d.text);
    return g;
}

static inline void *device_copy(struct gpu *g, const void *host, size_t bytes)
{
    void *p = gpu_alloc(g, bytes, 1);
    cr_assert(ne(ptr, p, NULL));
    gpu_put(g, p, host, bytes);
    return p;
}

/* Waits for the device and checks that neither the device nor the emulation reported an error. */
static inline void device_check(struct gpu *g, const char *what)
{
    struct kvf_diag d = {""};
    cr_expect(eq(int, gpu_wait(g, &d), KVF_OK), "%s: %s", what, d.text);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", what, emulation_first_fault());
}

static inline void *host_copy(struct gpu *g, const void *device, size_t bytes)
{
    void *p = mem_alloc(bytes, 1);
    gpu_get(g, p, device, bytes);
    return p;
}

static inline void fill(struct rng *r, float *x, size_t n, double spread)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(spread * rng_normal(r));
}

/* Returns the largest difference of two arrays, relative to the largest value of b. NaN counts as
 * 1. */
static inline double distance(const float *a, const float *b, size_t n)
{
    double worst = 0, top = 1e-30;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)b[i]));
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = fmax(worst, isnan(d) ? top : d);
    }
    return worst / top;
}

#endif
