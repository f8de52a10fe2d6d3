/* gates.c - gate networks on a device: their weights, once per file and engine, and the gate values
 * for the tokens of a step or a chunk. */
#include <string.h>

#include "base/mem.h"
#include "engine/device/decode.h"

/* The linear layer of a stage, for all units of all layers. */
struct linear {
    float *w, *bias; /* [nets][N][K], [nets][N] or NULL */
    int N, K;
};

struct device_gates {
    struct device_gates *next;
    char hash[33];
    struct gate_net net;
    int nets; /* units of all layers */
    int n_stages;
    struct linear linear[GATE_STAGES];
    float *norm[2]; /* [L][head_dim] or NULL */
    int hidden_n;   /* maximum width of a stage */
};

static float *put(struct gpu *g, const float *v, size_t n)
{
    float *p = gpu_alloc(g, n, sizeof *p);
    if (p)
        gpu_put(g, p, v, n * sizeof *p);
    return p;
}

/* Uploads stage i of a network. w: host scratch for its matrix. */
static void put_weights(struct gpu *g, const struct gates *gates, const struct device_gates *d,
                        int net, int i, float *w)
{
    int units = d->net.n_units;
    const struct gate_linear from = gates_linear(gates, net / units, net % units, i);
    const struct linear *to = &d->linear[i];
    size_t n = (size_t)to->N * (size_t)to->K;
    gates_weights(gates, net / units, net % units, i, w);
    gpu_put(g, to->w + (size_t)net * n, w, n * sizeof *w);
    if (to->bias)
        gpu_put(g, to->bias + net * to->N, from.bias, (size_t)to->N * sizeof *w);
}

static int put_stage(struct gpu *g, const struct gates *gates, struct device_gates *d, int i)
{
    const struct gate_linear from = gates_linear(gates, 0, 0, i);
    struct linear *to = &d->linear[i];
    size_t nets = (size_t)d->nets, N = (size_t)from.N, K = (size_t)from.K;
    float *w = mem_alloc(N, K * sizeof *w);
    to->N = from.N;
    to->K = from.K;
    to->w = gpu_alloc(g, nets * N, K * sizeof *w);
    to->bias = from.bias ? gpu_alloc(g, nets * N, sizeof *w) : NULL;
    bool room = w && to->w && (to->bias || !from.bias);
    for (int net = 0; room && net < d->nets; net++)
        put_weights(g, gates, d, net, i, w);
    mem_free(w);
    d->hidden_n = from.N > d->hidden_n ? from.N : d->hidden_n;
    return room ? KVF_OK : KVF_E_NOMEM;
}

static int put_net(struct gpu *g, const struct gates *gates, const struct model_config *c,
                   struct device_gates *d)
{
    size_t norms = (size_t)c->n_layers * (size_t)c->head_dim;
    int err = KVF_OK;
    d->nets = c->n_layers * d->net.n_units;
    d->n_stages = gate_stages_count(d->net.stages);
    for (int i = 0; !err && i < d->n_stages; i++)
        err = put_stage(g, gates, d, i);
    for (int i = 0; i < 2 && d->net.norm[i]; i++)
        d->norm[i] = put(g, d->net.norm[i], norms);
    bool rest = (!d->net.norm[0] || d->norm[0]) && (!d->net.norm[1] || d->norm[1]);
    return err || !rest ? KVF_E_NOMEM : KVF_OK;
}

static void drop_net(struct gpu *g, struct device_gates *d)
{
    for (int i = 0; i < GATE_STAGES; i++) {
        gpu_free(g, d->linear[i].w);
        gpu_free(g, d->linear[i].bias);
    }
    gpu_free(g, d->norm[0]);
    gpu_free(g, d->norm[1]);
    mem_free(d);
}

void device_gates_close(struct device_weights *w)
{
    while (w->gates) {
        struct device_gates *next = w->gates->next;
        drop_net(w->gpu, w->gates);
        w->gates = next;
    }
}

bool device_gates_supported(const struct gates *gates)
{
    struct gate_net net;
    return gates_inputs(gates) == 0 || gates_net(gates, &net);
}

/* Returns the network of the session's gates. Returns NULL if it is not open. */
static struct device_gates *net_of(struct session *s)
{
    struct device_weights *w = s->e->device;
    struct device_gates *d = w->gates;
    while (d && strcmp(d->hash, gates_hash(s->gates)) != 0)
        d = d->next;
    return d;
}

static int no_room(struct session *s)
{
    return gpu_no_room(((struct device_session *)s->device_state)->gpu, &s->e->error,
                       "the device has no room for the gates: take --device cpu");
}

static int open_net(struct session *s)
{
    struct device_weights *w = s->e->device;
    struct device_gates *d = MEM_NEW(struct device_gates, 1);
    if (!d)
        return KVF_E_NOMEM;
    gates_net(s->gates, &d->net);
    memcpy(d->hash, gates_hash(s->gates), sizeof d->hash);
    int err = put_net(w->gpu, s->gates, &s->e->config, d);
    if (err) {
        drop_net(w->gpu, d);
        return no_room(s);
    }
    d->next = w->gates;
    w->gates = d;
    return KVF_OK;
}

/* Allocates the gathered inputs of `rows` tokens and the hidden rows of `units` units. Returns
 * KVF_OK or KVF_E_NOMEM. */
static int hold_rows(struct session *s, const struct device_gates *d, size_t rows, size_t units)
{
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    size_t in = rows * (size_t)(c->n_heads + 2 * c->n_kv_heads) * (size_t)c->head_dim;
    size_t hidden = rows * units * (size_t)d->hidden_n;
    struct gate_rows *r = &m->gate;
    if (r->n_in >= in && r->n_hidden >= hidden)
        return KVF_OK;
    device_gates_free_session(m);
    r->in = gpu_alloc(m->gpu, in, sizeof *r->in);
    r->hidden[0] = gpu_alloc(m->gpu, hidden, sizeof *r->in);
    r->hidden[1] = gpu_alloc(m->gpu, hidden, sizeof *r->in);
    if (!r->in || !r->hidden[0] || !r->hidden[1])
        return no_room(s);
    r->n_in = in;
    r->n_hidden = hidden;
    return KVF_OK;
}

void device_gates_free_session(struct device_session *m)
{
    gpu_free(m->gpu, m->gate.in);
    gpu_free(m->gpu, m->gate.hidden[0]);
    gpu_free(m->gpu, m->gate.hidden[1]);
    m->gate = (struct gate_rows){.n_in = 0};
}

static bool has_net(const struct session *s)
{
    return s->parts.gate && gates_inputs(s->gates) != 0;
}

int device_gates_open(struct session *s, int T)
{
    if (!has_net(s))
        return KVF_OK;
    int err = net_of(s) ? KVF_OK : open_net(s);
    return err ? err
               : hold_rows(s, net_of(s), device_session_rows(T), (size_t)net_of(s)->net.n_units);
}

int device_gates_open_step(struct session *shared, struct session *s, int n)
{
    int err = has_net(s) && !net_of(s) ? open_net(s) : KVF_OK;
    if (err || !has_net(s))
        return err;
    const struct device_gates *d = net_of(s);
    n = n < GPU_TOGETHER ? n : GPU_TOGETHER;
    return hold_rows(shared, d, (size_t)(n * s->e->config.n_layers), (size_t)d->net.n_units);
}

/* Returns the segments of queries, keys and values that the network reads instead of x. */
static struct gpu_runs runs_of(const struct session *s, const struct device_gates *d,
                               const struct device_tokens *x, int n)
{
    const struct model_config *c = &s->e->config;
    int D = c->head_dim, q = c->n_heads * D, kv = c->n_kv_heads * D, H = c->n_kv_heads;
    size_t pre = s->parts.ld_unrotated, ld = s->buf.ld_qkv;
    const struct gate_stages *list = d->net.stages;
    bool heads = list->by_head;
    struct gpu_runs r = {
        .n = gate_inputs_count(list), .n_units = heads ? H : 1, .T = x->T, .n_rows = n};
    for (int k = 0; k < r.n; k++) {
        unsigned from = list->input[k].from;
        bool rotated = from == GATE_IN_K_POST || from == GATE_IN_V, query = from == GATE_IN_Q;
        int at = query ? 0 : q; /* in rows of queries, keys and values */
        at += from == GATE_IN_V ? kv : 0;
        for (int i = 0; i < n; i++)
            r.from[i][k] = rotated ? x[i].qkv + at : x[i].pre + at;
        r.ld[k] = rotated ? ld : pre;
        r.step[k] = heads ? D : 0;
        r.count[k] = query ? q : kv;
        r.count[k] = heads ? D : r.count[k];
    }
    return r;
}

/* Sets ret_x to the inputs of the networks for n sequences: x, or segments that are gathered in
 * `in`. Their norms are ld_norm floats apart from token to token. Returns the distance of two
 * tokens in ret_x, in floats. */
static size_t gather(struct gpu *g, const struct session *s, const struct device_gates *d,
                     const struct device_tokens *x, int n, int layer, size_t ld_norm, float *in,
                     const float **ret_x)
{
    for (int i = 0; i < n; i++)
        ret_x[i] = x[i].x;
    if (d->net.stages->input[0].from == GATE_IN_X)
        return x->ld_x;
    size_t row = (size_t)d->net.n_units * (size_t)d->linear[0].K, D = (size_t)s->e->config.head_dim;
    struct gpu_runs r = runs_of(s, d, x, n);
    for (int i = 0; i < 2 && d->norm[i]; i++)
        r.norm[i] = d->norm[i] + (size_t)layer * D;
    r.ld_norm = ld_norm;
    r.eps = GATE_NORM_EPS;
    gpu_join_runs(g, &r, in);
    for (int i = 0; i < n; i++)
        ret_x[i] = in + (size_t)(i * x->T) * row;
    return row;
}

/* ---- the tokens of a chunk, a layer at a time */

static struct gpu_matrix matrix_of(const struct linear *s, int net)
{
    size_t K = (size_t)s->K;
    return (struct gpu_matrix){.data = s->w + (size_t)net * (size_t)s->N * K,
                               .type = WEIGHT_F32,
                               .N = s->N,
                               .K = s->K,
                               .row_bytes = K * sizeof(float)};
}

/* Multiplies the rows of a chunk, like other products in prefill. */
static void product(struct session *s, float *out, const float *x, size_t ld_x, int T,
                    const struct linear *stage, int net)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    const struct gpu_matrix w = matrix_of(stage, net);
    size_t ld = (size_t)w.N;
    if (!gpu_gemm(g, out, ld, x, ld_x, T, &w, 1))
        gpu_product(g, out, ld, x, ld_x, T, &w);
}

static const float *bias_of(const struct linear *s, int net)
{
    return s->bias ? s->bias + net * s->N : NULL;
}

/* Runs the only unit of a layer. Its matrices are as wide as the model. */
static void run_unit(struct session *s, const struct device_gates *d, int net, const float *x,
                     size_t ld, int T, float *out)
{
    struct device_session *m = s->device_state;
    for (int i = 0; i < d->n_stages; i++) {
        const struct linear *w = &d->linear[i];
        const struct gate_stage *stage = &d->net.stages->stage[i];
        const float *in = stage->reads ? m->gate.hidden[(stage->reads - 1) & 1] : x;
        float *to = m->gate.hidden[i & 1];
        product(s, to, in, stage->reads ? (size_t)w->K : ld, T, w, net);
        if (stage->then == GATE_THEN_OUTPUT)
            gpu_gate_output(m->gpu, out, (size_t)s->e->config.n_kv_heads, to, bias_of(w, net), T,
                            w->N, d->net.stages->output);
        else
            gpu_gate_act(m->gpu, to, bias_of(w, net),
                         stage->then == GATE_THEN_MULTIPLY ? m->gate.hidden[0] : NULL, T, w->N,
                         d->net.activation);
    }
}

/* Runs all units of a layer, with one launch per stage. */
static void run_units(struct session *s, const struct device_gates *d, int layer, const float *x,
                      size_t ld, int T, float *out)
{
    struct device_session *m = s->device_state;
    int units = d->net.n_units, net = layer * units;
    for (int i = 0; i < d->n_stages; i++) {
        const struct linear *w = &d->linear[i];
        const struct gate_stage *stage = &d->net.stages->stage[i];
        bool last = stage->then == GATE_THEN_OUTPUT;
        const struct gpu_gate_rows rows = {
            .w = w->w + (size_t)net * (size_t)w->N * (size_t)w->K,
            .bias = bias_of(w, net),
            .units = units,
            .N = w->N,
            .K = w->K,
            .T = T,
            .x = stage->reads ? m->gate.hidden[(stage->reads - 1) & 1] : x,
            .with = stage->then == GATE_THEN_MULTIPLY ? m->gate.hidden[0] : NULL,
            .out = last ? out : m->gate.hidden[i & 1],
            .ld_x = stage->reads ? (size_t)(units * w->K) : ld,
            .ld_out = last ? (size_t)s->e->config.n_kv_heads : (size_t)(units * w->N),
            .act = d->net.activation,
            .output = d->net.stages->output,
            .last = last};
        gpu_gate_rows(m->gpu, &rows);
    }
}

void device_gates_run(struct session *s, int layer, const struct device_tokens *x, float *numbers)
{
    struct device_session *m = s->device_state;
    const struct device_gates *d = net_of(s);
    const float *in;
    size_t ld = gather(m->gpu, s, d, x, 1, layer, 0, m->gate.in, &in);
    if (d->net.n_units > 1 || s->e->exact)
        run_units(s, d, layer, in, ld, x->T, numbers);
    else
        run_unit(s, d, layer, in, ld, x->T, numbers);
}

/* ---- a token of each of some sequences, all layers at a time */

/* Returns the output row of a stage. */
static float *hidden_of(const struct device_session *m, const struct device_gates *d, int stage,
                        int row)
{
    return m->gate.hidden[stage & 1] + (size_t)(row * d->nets) * (size_t)d->hidden_n;
}

/* Returns stage i for n rows with inputs in[row], layers ld floats apart, and gate values out[row].
 */
static struct gpu_gate_stage stage_of(const struct device_session *m, const struct device_gates *d,
                                      int i, int n, const float *const *in, size_t ld,
                                      float *const *out)
{
    const struct linear *w = &d->linear[i];
    const struct gate_stage *stage = &d->net.stages->stage[i];
    bool last = stage->then == GATE_THEN_OUTPUT;
    struct gpu_gate_stage s = {.w = w->w,
                               .bias = w->bias,
                               .nets = d->nets,
                               .units = d->net.n_units,
                               .N = w->N,
                               .K = w->K,
                               .n_rows = n,
                               .ld_x = stage->reads ? (size_t)d->net.n_units * (size_t)w->K : ld,
                               .act = d->net.activation,
                               .output = d->net.stages->output,
                               .last = last};
    for (int r = 0; r < n; r++) {
        s.x[r] = stage->reads ? hidden_of(m, d, stage->reads - 1, r) : in[r];
        s.with[r] = stage->then == GATE_THEN_MULTIPLY ? hidden_of(m, d, 0, r) : NULL;
        s.out[r] = last ? out[r] : hidden_of(m, d, i, r);
    }
    return s;
}

/* Computes the gate values of n sequences with the same networks. */
static void run_together(struct session *shared, const struct device_gates *d,
                         const struct device_tokens *x, float *const *numbers, int n)
{
    struct device_session *m = shared->device_state;
    const float *in[GPU_TOGETHER];
    size_t D = (size_t)shared->e->config.head_dim;
    size_t ld = gather(m->gpu, shared, d, x, n, 0, D, m->gate.in, in);
    for (int i = 0; i < d->n_stages; i++) {
        const struct gpu_gate_stage s = stage_of(m, d, i, n, in, ld, numbers);
        gpu_gate_stage(m->gpu, &s, shared->e->exact);
    }
}

void device_gates_run_step(struct session *shared, struct session *const *s,
                           const struct device_tokens *x, float *const *numbers, int n)
{
    struct device_tokens same[GPU_TOGETHER];
    float *out[GPU_TOGETHER];
    bool done[GPU_TOGETHER] = {false};
    for (int first = 0; first < n; first++) {
        const struct device_gates *d = has_net(s[first]) ? net_of(s[first]) : NULL;
        int count = 0;
        for (int i = first; d && !done[first] && i < n; i++) {
            if (!has_net(s[i]) || net_of(s[i]) != d)
                continue;
            same[count] = x[i];
            out[count++] = numbers[i];
            done[i] = i > first;
        }
        if (count > 0)
            run_together(shared, d, same, out, count);
    }
}
