#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/state.h"

/* Kernels write whole panels; every piece of scratch starts on a cache line. */
static size_t padded(int n)
{
    return ((size_t)n + PANEL - 1) / PANEL * PANEL;
}

/* Channels that are gathered before the first linear layer; 0: none. */
static int n_gathered(const struct gates *g)
{
    switch (g->layout) {
    case LAYOUT_RGKV:
    case LAYOUT_RG2:
    case LAYOUT_RG3:
        return size_of(g, S_2HD);
    case LAYOUT_WGKV:
        return size_of(g, S_2D);
    case LAYOUT_LOCRET:
        return size_of(g, S_QKV);
    case LAYOUT_SEER:
        return size_of(g, S_3D);
    default:
        return 0;
    }
}

/* [gathered input][hidden or vector][hidden or cos and sin][logits] */
size_t gates_scratch(const struct gates *g)
{
    return padded(n_gathered(g)) + 2 * padded(g->hidden) + padded(g->model.n_kv_heads) + PANEL;
}

static float round_bf16(float f)
{
    uint32_t u;
    if (!isfinite(f))
        return f;
    memcpy(&u, &f, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u; /* to nearest, ties to even */
    memcpy(&f, &u, 4);
    return f;
}

static float activate(enum activation a, float x)
{
    switch (a) {
    case ACT_SILU:
        return x / (1.0f + expf(-x));
    case ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f)); /* x Phi(x), exact form */
    case ACT_RELU:
        return fmaxf(x, 0.0f);
    case ACT_NONE:
        break;
    }
    return x;
}

static void product(const struct gates *g, float *out, const float *x, const struct packed *w)
{
    size_t ld = (size_t)w->n_panels * PANEL;
    g->model.kernels->matmul_f(out, ld, x, (size_t)w->K, 1, w, 0, w->n_panels);
}

/* The linear layers of one unit, activation between them.  hidden: two areas of
 * padded(I); returns the logits, which lie at z. */
static float *run(const struct gates *g, const struct unit *u, const float *x, float *hidden,
                  float *z)
{
    int last = gate_layouts[g->layout].n_stages - 1;
    bool gated = gate_layouts[g->layout].gated;
    const float *in = x;
    for (int s = 0; s < last; s++) {
        const struct dense *w = &u->stage[s];
        float *to = hidden + (size_t)(s & 1) * padded(g->hidden);
        product(g, to, in, &w->w);
        for (int i = 0; i < w->w.N; i++) {
            float a = w->bias ? to[i] + w->bias[i] : to[i];
            to[i] = gated && s == 1 ? a * x[i] : activate(g->activation, a);
        }
        x = to;
        if (!gated)
            in = to;
    }
    const struct dense *w = &u->stage[last];
    product(g, z, x, &w->w);
    for (int i = 0; i < w->w.N; i++) {
        if (g->round_z)
            z[i] = round_bf16(z[i]);
        if (w->bias)
            z[i] += w->bias[i];
        if (g->round_z)
            z[i] = round_bf16(z[i]);
    }
    return z;
}

/* log sigmoid(z) = -softplus(-z) = min(z, 0) - log(1 + exp(-|z|)). */
static float log_sigmoid(float z)
{
    return (z < 0 ? z : 0.0f) - log1pf(expf(-fabsf(z)));
}

/* Network h sees [rmsnorm(k_pre); rmsnorm(k_post)] of head h. */
static void eval_write(const struct gates *g, int layer, const struct gate_input *in, float *out,
                       float *scratch)
{
    size_t D = (size_t)g->model.head_dim, at = (size_t)layer * D;
    float *hidden = scratch + padded(n_gathered(g)), *z = hidden + 2 * padded(g->hidden);
    rmsnorm_fn rmsnorm = g->model.kernels->rmsnorm;
    for (int h = 0; h < g->n_units; h++) {
        rmsnorm(scratch, in->k_pre + (size_t)h * D, g->norm[0] + at, 1, (int)D, GATE_WRITE_EPS);
        rmsnorm(scratch + D, in->k_post + (size_t)h * D, g->norm[1] + at, 1, (int)D,
                GATE_WRITE_EPS);
        run(g, &g->unit[layer * g->n_units + h], scratch, hidden, z);
        out[h] = 1.0f / (1.0f + expf(-z[0]));
    }
}

/* The input of rg2 and rg3: of head after head the key after RoPE, then the value. */
static const float *gather_entry(const struct gates *g, const struct gate_input *in, float *scratch)
{
    size_t D = (size_t)g->model.head_dim;
    float *to = scratch;
    for (int h = 0; h < g->model.n_kv_heads; h++, to += 2 * D) {
        memcpy(to, in->k_post + (size_t)h * D, D * sizeof *to);
        memcpy(to + D, in->v + (size_t)h * D, D * sizeof *to);
    }
    return scratch;
}

/* What the network of all heads sees: x, or queries, keys and values gathered in scratch. */
static const float *gather(const struct gates *g, const struct gate_input *in, float *scratch)
{
    size_t D = (size_t)g->model.head_dim, q = 0, kv = (size_t)g->model.n_kv_heads * D;
    if (g->layout == LAYOUT_RG2 || g->layout == LAYOUT_RG3)
        return gather_entry(g, in, scratch);
    if (g->layout != LAYOUT_LOCRET && g->layout != LAYOUT_RGKV)
        return in->x;
    if (g->layout == LAYOUT_LOCRET) {
        q = (size_t)g->model.n_heads * D;
        memcpy(scratch, in->q_pre, q * sizeof(float));
    }
    memcpy(scratch + q, in->k_pre, kv * sizeof(float));
    memcpy(scratch + q + kv, in->v, kv * sizeof(float));
    return scratch;
}

static void eval_given(const struct gates *g, int layer, int32_t pos, float *out)
{
    size_t H = (size_t)g->model.n_kv_heads, T = (size_t)g->n_given;
    assert(pos >= 0 && pos < g->n_given);
    for (size_t h = 0; h < H; h++)
        out[h] = g->given[((size_t)layer * H + h) * T + (size_t)pos];
}

void gates_eval(const struct gates *g, int layer, const struct gate_input *in, float *out,
                float *scratch)
{
    assert(layer >= 0 && layer < g->model.n_layers && g->kind <= GATE_IMPORTANCE);
    if (g->layout == LAYOUT_VALUES) {
        eval_given(g, layer, in->pos, out);
        return;
    }
    if (g->layout == LAYOUT_WGKV) {
        eval_write(g, layer, in, out, scratch);
        return;
    }
    int H = g->model.n_kv_heads;
    float *hidden = scratch + padded(n_gathered(g)), *z = hidden + 2 * padded(g->hidden);
    run(g, &g->unit[layer], gather(g, in, scratch), hidden, z);
    for (int h = 0; h < H; h++)
        out[h] = g->kind == GATE_RETENTION ? log_sigmoid(z[h]) : z[h];
}

/* out = rope(norm(W x), pos) over the gate dimension. */
static void vector_at(const struct gates *g, int layer, int head, int side, const float *x,
                      int32_t pos, float *out, float *scratch)
{
    const struct kernels *k = g->model.kernels;
    int n = g->hidden;
    float *v = scratch + padded(n_gathered(g)), *cos_sin = v + padded(n);
    product(g, v, x, &g->unit[layer * g->n_units + head].stage[side].w);
    if (g->norm[side])
        k->rmsnorm(v, v, g->norm[side] + (size_t)layer * (size_t)n, 1, n, g->model.norm_eps);
    for (int j = 0; j < n / 2; j++) {
        cos_sin[2 * j] = (float)cos(pos * g->theta[j]);
        cos_sin[2 * j + 1] = (float)sin(pos * g->theta[j]);
    }
    k->rope(v, cos_sin, 1, n, n);
    memcpy(out, v, (size_t)n * sizeof *v);
}

void gates_block_key(const struct gates *g, int layer, int head, const float *max, const float *min,
                     const float *avg, int32_t start_pos, float *out, float *scratch)
{
    size_t D = (size_t)g->model.head_dim;
    assert(g->kind == GATE_BLOCKS);
    memcpy(scratch, max, D * sizeof *max);
    memcpy(scratch + D, min, D * sizeof *min);
    memcpy(scratch + 2 * D, avg, D * sizeof *avg);
    vector_at(g, layer, head, 0, scratch, start_pos, out, scratch);
}

void gates_block_query(const struct gates *g, int layer, int head, const float *q_pre, int32_t pos,
                       float *out, float *scratch)
{
    assert(g->kind == GATE_BLOCKS);
    vector_at(g, layer, head, 1, q_pre, pos, out, scratch);
}

float gates_block_logit(const struct gates *g, const float *q, const float *k)
{
    double sum = 0;
    for (int i = 0; i < g->hidden; i++)
        sum += (double)q[i] * (double)k[i];
    return (float)(sum / sqrt(g->hidden));
}
