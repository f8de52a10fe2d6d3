/* train_memory.c - scratch memory and matrix multiplication for training on a device. */
#include "engine/device/train.h"

#include "base/mem.h"

void *device_hold(const struct compute *c, enum held what, size_t n, size_t size)
{
    struct device *dev = c->device;
    size_t bytes;
    if (mem_mul(n, size, &bytes) && bytes <= dev->bytes[what])
        return dev->held[what];
    gpu_wait(dev->gpu, NULL); /* kernels can still use the old buffer */
    gpu_free(dev->gpu, dev->held[what]);
    dev->held[what] = gpu_alloc(dev->gpu, n, size);
    dev->bytes[what] = dev->held[what] ? bytes : 0;
    dev->full = dev->full || !dev->held[what];
    return dev->held[what];
}

void device_multiply(const struct compute *c, const struct gpu_multiply *p)
{
    if (c->exact || !gpu_multiply_bf16(gpu_of(c), p))
        gpu_multiply(gpu_of(c), p);
}
