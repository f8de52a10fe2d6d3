/* variants.h - shared by the kernel suites: the instruction sets of this CPU, random data, and
 * buffers that detect writes outside them. */
#ifndef KVF_TESTS_VARIANTS_H
#define KVF_TESTS_VARIANTS_H

#include "engine/kernels/kernels.h"
#include "tests/suite.h"

struct variant {
    const char *name;
    unsigned flags;
    struct kernels k;
};

enum { MAX_VARIANTS = 5 };

/* Lists the instruction sets, the reference first. Sets that the CPU or the build lacks are left
 * out and reported once on stderr. Returns their number. */
static inline int variants(struct variant *v)
{
    static const struct variant all[MAX_VARIANTS] = {
        {.name = "reference", .flags = 0},
#if defined(__aarch64__)
        {.name = "NEON", .flags = CPU_ARM_NEON},
        {.name = "NEON with dot products", .flags = CPU_ARM_NEON | CPU_ARM_DOT},
#else
        {.name = "AVX2", .flags = CPU_X86_AVX2},
        {.name = "AVX-VNNI", .flags = CPU_X86_AVX2 | CPU_X86_AVXVNNI},
        {.name = "AVX-512", .flags = CPU_X86_AVX2 | CPU_X86_AVX512},
        {.name = "AMX", .flags = CPU_X86_AVX2 | CPU_X86_AVX512 | CPU_X86_AMX},
#endif
    };
    unsigned have = cpu_flags_detect();
    int n = 0;
    for (int i = 0; i < MAX_VARIANTS && all[i].name; i++) {
        if ((all[i].flags & have) != all[i].flags) {
            fprintf(stderr, "%s: not on this CPU or masked, left out\n", all[i].name);
            continue;
        }
        v[n] = all[i];
        kernels_init(&v[n].k, v[n].flags);
        n++;
    }
    return n;
}

/* Declares an array v of the instruction sets and their number n. */
#define VARIANTS(v, n)                                                                             \
    struct variant v[MAX_VARIANTS];                                                                \
    int n = variants(v)

enum { MARGIN = 64 }; /* canary bytes on each side */

/* Returns memory between canaries; it is 64-byte aligned. The size is stored before the canaries.
 */
static inline void *guard(size_t bytes)
{
    unsigned char *base = mem_alloc(bytes + 3 * MARGIN, 1);
    memcpy(base, &bytes, sizeof bytes);
    memset(base + MARGIN, 0xa5, bytes + 2 * MARGIN);
    return base + 2 * MARGIN;
}

/* Frees the memory. Returns true if both canaries are unchanged. */
static inline bool intact(const void *p)
{
    unsigned char *base = (unsigned char *)(uintptr_t)p - 2 * MARGIN;
    size_t bytes;
    bool ok = true;
    memcpy(&bytes, base, sizeof bytes);
    for (size_t i = MARGIN; i < 2 * MARGIN; i++)
        ok = ok && base[i] == 0xa5 && base[MARGIN + bytes + i] == 0xa5;
    mem_free(base);
    return ok;
}

static inline void fill_normal(struct rng *r, float *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * rng_normal(r));
}

static inline double worst(double a, double b)
{
    return a > b || isnan(a) ? a : b; /* NaN is kept */
}

#endif
