/* gate.cu - what the networks of gates need beside products: their input, activations, and the
 * number that comes out (engine/gate/gate_eval.c). */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"

enum { LANES = 256 };
enum act { ACT_NONE, ACT_SILU, ACT_GELU, ACT_RELU };  /* enum gate_activation */
enum ending { ENDS, ENDS_LOG_SIGMOID, ENDS_SIGMOID }; /* enum gate_ending */

__global__ void gather_kernel(struct gpu_runs r, int all, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), unit = (int)blockIdx.y, run = 0, j = i;
    if (i >= all)
        return;
    for (; j >= r.count[run]; run++)
        j -= r.count[run];
    out[(size_t)unit * (size_t)all + (size_t)i] = r.from[run][unit * r.step[run] + j];
}

void gpu_join_runs(struct gpu *g, const struct gpu_runs *runs, float *out)
{
    struct gpu_runs r = *runs;
    int all = 0;
    for (int i = 0; i < r.n; i++)
        all += r.count[i];
    dim3 grid(blocks_for((size_t)all, LANES), (unsigned)r.n_units);
    LAUNCH(gather_kernel, grid, LANES, 0, g, r, all, out);
}

DEVICE float activated(float x, int act)
{
    switch (act) {
    case ACT_SILU:
        return x / (1.0f + expf(-x));
    case ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ACT_RELU:
        return fmaxf(x, 0.0f);
    default:
        return x;
    }
}

__global__ void act_kernel(float *x, const float *bias, const float *with, int n, int act)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    float a = bias ? x[i] + bias[i] : x[i];
    x[i] = with ? a * with[i] : activated(a, act);
}

void gpu_gate_act(struct gpu *g, float *x, const float *bias, const float *with, int n, int act)
{
    LAUNCH(act_kernel, blocks_for((size_t)n, LANES), LANES, 0, g, x, bias, with, n, act);
}

__global__ void end_kernel(float *out, const float *x, const float *bias, int n, int ending)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    float z = bias ? x[i] + bias[i] : x[i];
    if (ending == ENDS_LOG_SIGMOID)
        z = (z < 0 ? z : 0.0f) - log1pf(expf(-fabsf(z)));
    else if (ending == ENDS_SIGMOID)
        z = 1.0f / (1.0f + expf(-z));
    out[i] = z;
}

void gpu_gate_end(struct gpu *g, float *out, const float *x, const float *bias, int n, int ending)
{
    LAUNCH(end_kernel, blocks_for((size_t)n, LANES), LANES, 0, g, out, x, bias, n, ending);
}
