/* device.h - shared by the tests of CUDA kernels: a device, real or emulated, copies between host
 * and device arrays, and comparisons. */
#ifndef KVF_TESTS_CUDA_DEVICE_H
#define KVF_TESTS_CUDA_DEVICE_H

#include "engine/cuda/gpu.h"
#include "tests/cuda/emulation_c.h"
#include "tests/suite.h"

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
    device_needed();
    succeeds(gpu_open(0, &g, &d));
    return g;
}

/* The memory of a test, on the device and on the host, which device_release() frees. */
struct test_memory {
    void *p;
    bool on_device;
};
static struct test_memory *test_memory;
static size_t n_test_memory;

static inline void *test_keeps(void *p, bool on_device)
{
    cr_assert(ne(ptr, p, NULL));
    test_memory = mem_grow(test_memory, n_test_memory, n_test_memory + 1, sizeof *test_memory);
    test_memory[n_test_memory++] = (struct test_memory){p, on_device};
    return p;
}

/* g is NULL if the test keeps no memory on the device. */
static inline void device_release(struct gpu *g)
{
    for (size_t i = 0; i < n_test_memory; i++)
        if (test_memory[i].on_device)
            gpu_free(g, test_memory[i].p);
        else
            mem_free(test_memory[i].p);
    mem_free(test_memory);
    test_memory = NULL;
    n_test_memory = 0;
}

static inline void device_close_owned(struct gpu **g)
{
    device_release(*g);
    gpu_close(*g);
}

/* Return zeroed memory on the host, and memory on the device; the test keeps both. */
static inline void *host_alloc(size_t n, size_t size)
{
    return test_keeps(mem_alloc(n, size), false);
}
#define NEW(type, n) ((type *)host_alloc(n, sizeof(type)))

static inline void *device_alloc(struct gpu *g, size_t n, size_t size)
{
    return test_keeps(gpu_alloc(g, n, size), true);
}

static inline void *device_copy(struct gpu *g, const void *host, size_t bytes)
{
    void *p = device_alloc(g, bytes, 1);
    gpu_put(g, p, host, bytes);
    return p;
}

static inline void *host_copy(struct gpu *g, const void *device, size_t bytes)
{
    void *p = host_alloc(bytes, 1);
    gpu_get(g, p, device, bytes);
    return p;
}

/* Waits for the device and checks that neither the device nor the emulation reported an error. */
static inline void device_check(struct gpu *g, const char *what)
{
    struct kvf_diag d = {""};
    cr_expect(eq(int, gpu_wait(g, &d), KVF_OK), "%s: %s", what, d.text);
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", what, emulation_first_fault());
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
