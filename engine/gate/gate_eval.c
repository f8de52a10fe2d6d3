/* gate_eval.c - gate values of a token on the CPU: runs the stages of a layout (gate.h). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/state.h"

/* Returns n rounded up: kernels write complete panels, and each scratch array starts on a cache
 * line. */
static size_t padded(int n)
{
    return ((size_t)n + PANEL - 1) / PANEL * PANEL;
}

/* Returns the floats of the concatenated inputs of a layer's networks, or 0 if they are read in
 * place. */
static int n_gathered(const struct gates *g)
{
    const struct layout *l = &gate_layouts[g->layout];
    struct gate_segment x = {0, 0, 0, 0}, last = x;
    if (g->kind == GATE_BLOCKS)
        return size_of(g, S_3D);
    for (int i = 0; layout_segment(l, &g->model, 0, i, &x); i++)
        last = x;
    return last.to + last.n;
}

/* Scratch: [gathered input][hidden or vector][hidden or cos and sin][logits] */
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

static void product(const struct gates *g, float *out, const float *x, const struct packed *w)
{
    size_t ld = (size_t)w->n_panels * PANEL;
    g->model.kernels->matmul_f(out, ld, x, (size_t)w->K, 1, w, 0, w->n_panels);
}

/* z = W x + b, rounded to bf16 after the product and after the sum if `rounds`. */
static void add_bias(const struct dense *w, float *z, bool rounds)
{
    for (int i = 0; i < w->w.N; i++) {
        if (rounds)
            z[i] = round_bf16(z[i]);
        if (w->bias)
            z[i] += w->bias[i];
        if (rounds)
            z[i] = round_bf16(z[i]);
    }
}

/* Runs the stages of one network on x.  hidden: two arrays of padded(I).  out: [N] of the last
 * stage. */
static void run(const struct gates *g, const struct unit *u, const float *x, float *hidden,
                float *z, float *out)
{
    const struct gate_stages *list = &gate_layouts[g->layout].stages;
    float *of_stage[GATE_STAGES];
    for (int s = 0; s < gate_stages_count(list); s++) {
        const struct gate_stage *stage = &list->stage[s];
        const struct dense *w = &u->stage[s];
        bool last = stage->then == GATE_THEN_OUTPUT;
        float *to = last ? z : hidden + (size_t)(s & 1) * padded(g->hidden);
        of_stage[s] = to;
        product(g, to, stage->reads ? of_stage[stage->reads - 1] : x, &w->w);
        add_bias(w, to, last && g->round_z);
        for (int i = 0; i < w->w.N; i++) {
            if (last)
                out[i] = gate_output(list->output, to[i]);
            else if (stage->then == GATE_THEN_MULTIPLY)
                to[i] *= of_stage[0][i];
            else
                to[i] = gate_activate(g->activation, to[i]);
        }
    }
}

static const float *vector_of(const struct gate_input *in, unsigned from)
{
    switch (from) {
    case GATE_IN_Q:
        return in->q_pre;
    case GATE_IN_K_PRE:
        return in->k_pre;
    case GATE_IN_V:
        return in->v;
    case GATE_IN_K_POST:
        return in->k_post;
    default:
        return in->x;
    }
}

/* Copies or normalises the inputs of one network to `to`.  Returns the network's input. */
static const float *gather(const struct gates *g, int layer, int unit, const struct gate_input *in,
                           float *to)
{
    const struct layout *l = &gate_layouts[g->layout];
    size_t norm = (size_t)layer * (size_t)g->model.head_dim;
    struct gate_segment x;
    int n = 0;
    for (; layout_segment(l, &g->model, unit, n, &x); n++) {
        const struct gate_source *from = &l->stages.input[x.input];
        const float *v = vector_of(in, from->from) + x.at;
        if (from->norm)
            g->model.kernels->rmsnorm(to + x.to, v, g->norm[x.input] + norm, 1, x.n, GATE_NORM_EPS);
        else
            memcpy(to + x.to, v, (size_t)x.n * sizeof *to);
    }
    return n ? to : vector_of(in, l->stages.input[0].from);
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
    float *hidden = scratch + padded(n_gathered(g)), *z = hidden + 2 * padded(g->hidden);
    for (int u = 0; u < g->n_units; u++) {
        const float *x = gather(g, layer, u, in, scratch);
        run(g, &g->unit[layer * g->n_units + u], x, hidden, z, out + u);
    }
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
