/* gate.cu - what the networks of gates need beside products: their input, activations, and the
 * number that comes out (engine/gate/gate_eval.c); and what write gates make of it. */
#include "engine/cuda/device.cuh"
#include "engine/cuda/heads.h"

enum { LANES = 256 };
enum act { ACT_NONE, ACT_SILU, ACT_GELU, ACT_RELU };  /* enum gate_activation */
enum ending { ENDS, ENDS_LOG_SIGMOID, ENDS_SIGMOID }; /* enum gate_ending */

__global__ void gather_kernel(struct gpu_runs r, int all, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), unit = (int)blockIdx.z, run = 0, j = i;
    size_t t = blockIdx.y, row = t * (size_t)r.n_units + (size_t)unit;
    if (i >= all)
        return;
    for (; j >= r.count[run]; run++)
        j -= r.count[run];
    out[row * (size_t)all + (size_t)i] =
        r.from[run][t * r.ld[run] + (size_t)(unit * r.step[run] + j)];
}

void gpu_join_runs(struct gpu *g, const struct gpu_runs *runs, float *out)
{
    struct gpu_runs r = *runs;
    int all = 0;
    for (int i = 0; i < r.n; i++)
        all += r.count[i];
    dim3 grid(blocks_for((size_t)all, LANES), (unsigned)r.T, (unsigned)r.n_units);
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
    size_t at = (size_t)blockIdx.y * (size_t)n + (size_t)i;
    float a = bias ? x[at] + bias[i] : x[at];
    x[at] = with ? a * with[at] : activated(a, act);
}

void gpu_gate_act(struct gpu *g, float *x, const float *bias, const float *with, int T, int n,
                  int act)
{
    dim3 grid(blocks_for((size_t)n, LANES), (unsigned)T);
    LAUNCH(act_kernel, grid, LANES, 0, g, x, bias, with, n, act);
}

__global__ void end_kernel(float *out, size_t ld, const float *x, const float *bias, int n,
                           int ending)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    size_t t = blockIdx.y;
    float z = x[t * (size_t)n + (size_t)i];
    z = bias ? z + bias[i] : z;
    if (ending == ENDS_LOG_SIGMOID)
        z = (z < 0 ? z : 0.0f) - log1pf(expf(-fabsf(z)));
    else if (ending == ENDS_SIGMOID)
        z = 1.0f / (1.0f + expf(-z));
    out[t * ld + (size_t)i] = z;
}

void gpu_gate_end(struct gpu *g, float *out, size_t ld, const float *x, const float *bias, int T,
                  int n, int ending)
{
    dim3 grid(blocks_for((size_t)n, LANES), (unsigned)T);
    LAUNCH(end_kernel, grid, LANES, 0, g, out, ld, x, bias, n, ending);
}

/* As admission_after of parts.h. */
DEVICE int32_t after(int32_t pos, int32_t steps)
{
    return steps < INT32_MAX - pos ? pos + steps : INT32_MAX - 1;
}

__global__ void admit_kernel(struct gpu_cache c, struct gpu_admission how, const float *numbers,
                             const int32_t *first, int T, int32_t pos0)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = i / c.heads, h = i % c.heads;
    if (t >= T)
        return;
    double number = (double)numbers[i];
    bool in = how.above ? number > how.tau : number >= how.tau;
    int32_t pos = pos0 + t, until = in ? INT32_MAX : after(pos, how.stays), end = INT32_MAX;
    if (how.window && pos < INT32_MAX - how.window)
        end = pos + how.window;
    c.until[(size_t)h * (size_t)c.ld_slot + (size_t)(first[h] + t)] = until < end ? until : end;
}

void gpu_admit(struct gpu *g, const struct gpu_cache *c, const struct gpu_admission *how,
               const float *numbers, const int32_t *first, int T, int32_t pos0)
{
    struct gpu_cache cache = *c;
    struct gpu_admission own = *how;
    LAUNCH(admit_kernel, blocks_for((size_t)T * (size_t)c->heads, LANES), LANES, 0, g, cache, own,
           numbers, first, T, pos0);
}
