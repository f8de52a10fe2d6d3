/* attention_parts.cu - attention with the entries divided between blocks, for models with so few
 * heads that their rows do not fill a device. The part boundaries depend only on slots. A part in
 * which a row sees no entry changes no bit of the row. So the bits of a row do not depend on the
 * number of parts. */
#include "engine/cuda/attention.cuh"
#include "engine/cuda/tensor.cuh"

enum { LANES = 128, FEW_HEADS = 16 };

unsigned attention_parts_of(const struct gpu_attention *a)
{
    bool split = a->n_heads <= FEW_HEADS && a->cache.most > ATTENTION_PART;
    return split ? blocks_for((size_t)a->cache.most, ATTENTION_PART) : 1;
}

bool attention_hold_parts(struct gpu *g, const struct gpu_attention *a, unsigned n,
                          struct attention_parts *p)
{
    size_t rows = n * (size_t)a->T * (size_t)a->n_heads, D = (size_t)a->cache.D;
    *p = {};
    if (n == 1)
        return true;
    if (!gpu_hold(g, &g->parts, &g->parts_bytes, rows * (D + 2) * sizeof(float)))
        return false;
    p->out = (float *)g->parts;
    p->top = p->out + rows * D;
    p->sum = p->top + rows;
    return true;
}

/* A lane combines the parts of four channels of a row. */
__global__ void join_parts_kernel(struct gpu_attention a, struct attention_parts p, int n,
                                  float unit)
{
    int fours = a.cache.D / 4, rows = a.T * a.n_heads;
    int i = (int)(blockIdx.x * LANES + threadIdx.x), row = i / fours;
    float top = -INFINITY, sum = 0, x[4] = {0};
    if (row >= rows)
        return;
    for (int k = 0; k < n; k++)
        top = fmaxf(top, p.top[(size_t)k * (size_t)rows + (size_t)row]);
    for (int k = 0; k < n; k++) {
        size_t at = (size_t)k * (size_t)rows + (size_t)row;
        if (p.top[at] == -INFINITY)
            continue;
        float w = power_of_two((p.top[at] - top) * unit);
        float4 v = ((const float4 *)(const void *)p.out)[at * (size_t)fours + (size_t)(i % fours)];
        sum = fmaf(p.sum[at], w, sum);
        x[0] = fmaf(v.x, w, x[0]);
        x[1] = fmaf(v.y, w, x[1]);
        x[2] = fmaf(v.z, w, x[2]);
        x[3] = fmaf(v.w, w, x[3]);
    }
    float *out = a.out + (size_t)(row / a.n_heads) * a.ld_out
                 + (size_t)(row % a.n_heads * a.cache.D + i % fours * 4);
    for (int c = 0; c < 4; c++)
        out[c] = x[c] * (1 / (sum + sink_power(a, row % a.n_heads, top * unit)));
}

void attention_join(struct gpu *g, const struct gpu_attention *a, const struct attention_parts *p,
                    unsigned n, float unit)
{
    struct gpu_attention in = *a;
    struct attention_parts of = *p;
    size_t fours = (size_t)a->T * (size_t)a->n_heads * (size_t)a->cache.D / 4;
    LAUNCH(join_parts_kernel, blocks_for(fours, LANES), LANES, 0, g, in, of, (int)n, unit);
}
