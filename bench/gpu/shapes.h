/* shapes.h - shapes of real models, a clock, and zeroed device memory for the device benchmarks.  A
 * program ends if it cannot allocate that memory. */
#ifndef KVF_BENCH_GPU_SHAPES_H
#define KVF_BENCH_GPU_SHAPES_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/cuda/gpu.h"

struct shape {
    const char *name;
    int d, q, kv, D, ffn, vocab, layers;
};

static const struct shape shapes[] = {
    {"SmolLM2-135M", 576, 9, 3, 64, 1536, 49152, 30},
    {"Qwen3-0.6B", 1024, 16, 8, 128, 3072, 151936, 28},
    {"Qwen3-4B", 2560, 32, 8, 128, 9728, 151936, 36},
    {"Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256, 32},
};
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *zeros(struct gpu *g, size_t n, size_t size)
{
    void *p = gpu_alloc(g, n, size);
    if (!p) {
        fprintf(stderr, "the device has no room for %zu bytes\n", n * size);
        exit(1);
    }
    gpu_zero(g, p, n * size);
    return p;
}

#endif
