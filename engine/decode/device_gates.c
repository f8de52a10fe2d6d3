/* device_gates.c - the networks of gates on a device: their weights, once for each file and engine,
 * and their numbers for the tokens of a step or a chunk. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/device_step.h"

struct gate_layer { /* a linear layer of a unit */
    struct gpu_matrix w;
    float *bias; /* NULL: none */
};

enum { MOST_STAGES = 3 };

struct device_gates {
    struct device_gates *next;
    char hash[33];
    struct gate_net net;
    struct gate_layer *stage; /* [L][n_units][n_stages] */
    float *norm[2];           /* [L][head_dim] or NULL */
    int n, hidden_n;          /* linear layers altogether; the widest */
};

static struct gate_layer *stage_of(const struct device_gates *d, int layer, int unit, int stage)
{
    return &d->stage[(layer * d->net.n_units + unit) * d->net.n_stages + stage];
}

static float *put(struct gpu *g, const float *v, size_t n)
{
    float *p = gpu_alloc(g, n, sizeof *p);
    if (p)
        gpu_put(g, p, v, n * sizeof *p);
    return p;
}

static int put_stage(struct gpu *g, const struct gates *gates, struct device_gates *d, int layer,
                     int unit, int stage)
{
    const struct gate_stage from = gates_stage(gates, layer, unit, stage);
    struct gate_layer *to = stage_of(d, layer, unit, stage);
    size_t n = (size_t)from.N * (size_t)from.K;
    float *w = MEM_RAW(float, n);
    if (!w)
        return KVF_E_NOMEM;
    gates_weights(gates, layer, unit, stage, w);
    to->w = (struct gpu_matrix){.data = put(g, w, n),
                                .type = WEIGHT_F32,
                                .N = from.N,
                                .K = from.K,
                                .row_bytes = (size_t)from.K * sizeof *w};
    mem_free(w);
    if (from.bias)
        to->bias = put(g, from.bias, (size_t)from.N);
    d->hidden_n = from.N > d->hidden_n ? from.N : d->hidden_n;
    return to->w.data && (!from.bias || to->bias) ? KVF_OK : KVF_E_NOMEM;
}

static int put_net(struct gpu *g, const struct gates *gates, const struct model_config *c,
                   struct device_gates *d)
{
    size_t D = (size_t)c->head_dim, norms = (size_t)c->n_layers * D;
    int err = KVF_OK;
    d->n = c->n_layers * d->net.n_units * d->net.n_stages;
    d->stage = MEM_NEW(struct gate_layer, (size_t)d->n);
    for (int i = 0; d->stage && !err && i < d->n; i++)
        err = put_stage(g, gates, d, i / d->net.n_stages / d->net.n_units,
                        i / d->net.n_stages % d->net.n_units, i % d->net.n_stages);
    for (int i = 0; i < 2 && d->net.norm[i]; i++)
        d->norm[i] = put(g, d->net.norm[i], norms);
    bool rest = (!d->net.norm[0] || d->norm[0]) && (!d->net.norm[1] || d->norm[1]);
    return err || !d->stage || !rest ? KVF_E_NOMEM : KVF_OK;
}

static void drop_net(struct gpu *g, struct device_gates *d)
{
    for (int i = 0; d->stage && i < d->n; i++) {
        gpu_free(g, (void *)d->stage[i].w.data);
        gpu_free(g, d->stage[i].bias);
    }
    gpu_free(g, d->norm[0]);
    gpu_free(g, d->norm[1]);
    mem_free(d->stage);
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

bool device_gates_can(const struct gates *gates)
{
    struct gate_net net;
    return gates_inputs(gates) == 0 || gates_net(gates, &net);
}

/* The network of the session's gates; NULL: there is no room, or it needs none. */
static struct device_gates *net_of(struct session *s)
{
    struct device_weights *w = s->e->device;
    struct device_gates *d = w->gates;
    while (d && strcmp(d->hash, gates_hash(s->gates)) != 0)
        d = d->next;
    return d;
}

static int no_room(struct session *s, int err)
{
    return kvf_fail(&s->e->said, err, "the device has no room for the gates: take --device cpu");
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
        return no_room(s, err);
    }
    d->next = w->gates;
    w->gates = d;
    return KVF_OK;
}

/* Rooms are the session's: those of sessions that step side by side have nothing in common. */
static int hold_rows(struct session *s, const struct device_gates *d, size_t rows)
{
    struct mirror *m = s->mirror;
    const struct model_config *c = &s->e->config;
    size_t all = (size_t)(c->n_heads + 2 * c->n_kv_heads) * (size_t)c->head_dim;
    size_t wide = (size_t)d->hidden_n;
    struct gate_rows *r = &m->gate;
    if (r->n >= rows && r->wide >= wide)
        return KVF_OK;
    mirror_free_gates(m);
    r->in = gpu_alloc(m->gpu, rows * all, sizeof *r->in);
    r->hidden[0] = gpu_alloc(m->gpu, rows * wide, sizeof *r->in);
    r->hidden[1] = gpu_alloc(m->gpu, rows * wide, sizeof *r->in);
    if (!r->in || !r->hidden[0] || !r->hidden[1])
        return no_room(s, KVF_E_NOMEM);
    r->n = rows;
    r->wide = wide;
    return KVF_OK;
}

void mirror_free_gates(struct mirror *m)
{
    gpu_free(m->gpu, m->gate.in);
    gpu_free(m->gpu, m->gate.hidden[0]);
    gpu_free(m->gpu, m->gate.hidden[1]);
    m->gate = (struct gate_rows){.n = 0};
}

int device_gates_open(struct session *s, int T)
{
    if (!s->gate || gates_inputs(s->gates) == 0)
        return KVF_OK;
    int err = net_of(s) ? KVF_OK : open_net(s);
    size_t rows = s->stepping ? 1 : mirror_rows(T);
    return err ? err : hold_rows(s, net_of(s), rows);
}

/* What the network sees of all units: x, or runs of these rows, gathered. */
static const float *gather(struct session *s, const struct device_gates *d, int layer,
                           const struct device_tokens *x)
{
    struct mirror *m = s->mirror;
    int D = s->e->config.head_dim, q = s->e->config.n_heads * D, kv = s->e->config.n_kv_heads * D;
    int H = s->e->config.n_kv_heads;
    const float *k = x->qkv + q, *v = k + kv;
    size_t pre = s->ld_pre, ld = s->ld_qkv;
    struct gpu_runs r = {.n_units = 1};
    switch (d->net.gather) {
    case GATE_GATHER_X:
        return x->x;
    case GATE_GATHER_KEYS_VALUES:
        r = (struct gpu_runs){{x->pre + q, v}, {pre, ld}, {0}, {kv, kv}, 2, 1, x->T};
        break;
    case GATE_GATHER_ENTRIES:
        r = (struct gpu_runs){{k, v}, {ld, ld}, {D, D}, {D, D}, 2, H, x->T};
        break;
    case GATE_GATHER_ALL:
        r = (struct gpu_runs){
            {x->pre, x->pre + q, v}, {pre, pre, ld}, {0}, {q, kv, kv}, 3, 1, x->T};
        break;
    case GATE_GATHER_HEAD:
        r = (struct gpu_runs){{x->pre + q, k}, {pre, ld}, {D, D}, {D, D}, 2, H, x->T};
        break;
    }
    gpu_join_runs(m->gpu, &r, m->gate.in);
    for (int i = 0; i < 2 && d->net.gather == GATE_GATHER_HEAD; i++) {
        float *half = m->gate.in + i * D;
        gpu_rmsnorm(m->gpu, half, half, (size_t)(2 * D), d->norm[i] + layer * D, x->T * r.n_units,
                    1, D, d->net.eps);
    }
    return m->gate.in;
}

/* Rows of a chunk as other products of prompts. */
static void product(struct session *s, float *out, const float *x, size_t ld_x, int T,
                    const struct gpu_matrix *w)
{
    struct gpu *g = ((struct mirror *)s->mirror)->gpu;
    size_t ld = (size_t)w->N;
    if (s->e->exact)
        gpu_product_exact(g, out, ld, x, ld_x, T, w);
    else if (s->stepping || !gpu_gemm(g, out, ld, x, ld_x, T, w, 1))
        gpu_product(g, out, ld, x, ld_x, T, w);
}

static void run_unit(struct session *s, const struct device_gates *d, int layer, int unit,
                     const float *x, size_t ld, int T, float *out)
{
    struct mirror *m = s->mirror;
    const struct gate_layer *w = stage_of(d, layer, unit, 0);
    const float *in = x;
    size_t ld_in = ld;
    int last = d->net.n_stages - 1;
    for (int i = 0; i < last; i++) {
        float *to = m->gate.hidden[i & 1];
        product(s, to, in, ld_in, T, &w[i].w);
        gpu_gate_act(m->gpu, to, w[i].bias, d->net.gated && i == 1 ? x : NULL, T, w[i].w.N,
                     (int)d->net.activation);
        x = to;
        ld = (size_t)w[i].w.N;
        in = d->net.gated ? in : to;
        ld_in = d->net.gated ? ld_in : ld;
    }
    float *z = m->gate.hidden[last & 1];
    product(s, z, x, ld, T, &w[last].w);
    gpu_gate_end(m->gpu, out, (size_t)s->e->config.n_kv_heads, z, w[last].bias, T, w[last].w.N,
                 (int)d->net.ending);
}

void device_gates_run(struct session *s, int layer, const struct device_tokens *x, float *numbers)
{
    const struct device_gates *d = net_of(s);
    if (!d)
        return; /* the numbers were given */
    const float *in = gather(s, d, layer, x);
    int units = d->net.n_units, K = stage_of(d, layer, 0, 0)->w.K;
    for (int u = 0; u < units; u++)
        run_unit(s, d, layer, u, in + u * K, (size_t)(units * K), x->T, numbers + u);
}
