/* train_step.cu - sums, for example for the norm of a gradient, and optimizer steps. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/gpu_train.h"

enum { LANES = 256 };

/* Each block sums a separate range. */
__global__ void __launch_bounds__(LANES)
    parts_kernel(double *part, const float *x, size_t n, enum gpu_sum what)
{
    size_t each = (n + GPU_PARTS - 1) / GPU_PARTS, from = blockIdx.x * each;
    size_t end = from + each < n ? from + each : n;
    double sum = 0;
    for (size_t i = from + threadIdx.x; i < end; i += LANES) {
        double v = (double)x[i];
        if (what == GPU_SQUARES)
            v *= v;
        else if (what == GPU_EXPONENTIALS)
            v = exp(v);
        sum += v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

void gpu_sum_parts(struct gpu *g, double *part, const float *x, size_t n, enum gpu_sum what)
{
    LAUNCH(parts_kernel, GPU_PARTS, LANES, 0, g, part, x, n, what);
}

/* One AdamW step; the equations are in optimizer.c. */
__global__ void adamw_kernel(struct gpu_adamw o, const float *grad, float *w, float *m, float *v,
                             size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = grad[i] * o.scale, first = o.b1 * m[i] + o.a1 * x,
          second = o.b2 * v[i] + o.a2 * (x * x);
    m[i] = first;
    v[i] = second;
    w[i] -= o.rate * first / (sqrtf(second) + o.eps) + o.decay * w[i];
}

void gpu_adamw(struct gpu *g, const struct gpu_adamw *o, const float *grad, float *w, float *m,
               float *v, size_t n)
{
    struct gpu_adamw in = *o;
    LAUNCH(adamw_kernel, blocks_for(n, LANES), LANES, 0, g, in, grad, w, m, v, n);
}
