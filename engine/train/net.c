/* net.c - the parameters of gates that learn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train/net.h"

static int net_size(const struct net *n, enum size s)
{
    return layout_size(&n->facts.model, n->facts.hidden, s);
}

static size_t tensor_size(struct net *n, const struct part *p, struct net_tensor *t)
{
    size_t size = 1;
    for (t->n_dims = 0; t->n_dims < 3 && p->shape[t->n_dims] != S_NONE; t->n_dims++) {
        t->dim[t->n_dims] = (uint64_t)net_size(n, p->shape[t->n_dims]);
        size *= (size_t)t->dim[t->n_dims];
    }
    return size;
}

/* Where the linear layers of a part's networks lie. */
static void place_dense(struct net *n, const struct net_tensor *t)
{
    const struct part *p = t->part;
    size_t per = t->n / (size_t)n->n_units;
    for (int u = 0; u < n->n_units; u++) {
        size_t at = (size_t)(t->layer * n->n_units + u) * (size_t)n->n_stages;
        struct net_dense *d = &n->dense[at + (size_t)p->stage];
        if (p->role == R_BIAS) {
            d->b_at = t->at + (size_t)u * per;
            continue;
        }
        d->in = net_size(n, p->cols);
        d->out = (int)(per / (size_t)d->in);
        d->w_at = t->at + (size_t)u * per;
    }
}

static void place(struct net *n)
{
    for (int l = 0, i = 0; l < n->L; l++)
        for (int k = 0; k < PARTS && n->layout->part[k].name; k++, i++) {
            struct net_tensor *t = &n->tensor[i];
            const struct part *p = &n->layout->part[k];
            snprintf(t->name, sizeof t->name, "model.layers.%d.self_attn.%s", l, p->name);
            t->part = p;
            t->layer = l;
            t->n = tensor_size(n, p, t);
            bool shared = n->tied && l > 0 && p->stage == n->n_stages - 1;
            t->at = shared ? n->tensor[k].at : n->n;
            n->n += shared ? 0 : t->n;
            if (p->role == R_NORM)
                n->norm_at[2 * l + p->stage] = t->at;
            else
                place_dense(n, t);
        }
}

static int count_parts(const struct layout *l)
{
    int k = 0;
    while (k < PARTS && l->part[k].name)
        k++;
    return k;
}

static int allocate(struct net *n)
{
    int parts = count_parts(n->layout);
    size_t n_dense = (size_t)n->L * (size_t)n->n_units * (size_t)n->n_stages;
    n->n_tensors = n->L * parts;
    n->tensor = MEM_NEW(struct net_tensor, (size_t)n->n_tensors);
    n->dense = MEM_NEW(struct net_dense, n_dense);
    n->norm_at = MEM_NEW(size_t, 2 * (size_t)n->L);
    if (!n->tensor || !n->dense || !n->norm_at)
        return KVF_E_NOMEM;
    place(n);
    n->w = MEM_NEW(float, n->n);
    if (!n->w)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n_dense; i++)
        if (packed_pair_create(n->dense[i].out, n->dense[i].in, &n->dense[i].packs) != KVF_OK)
            return KVF_E_NOMEM;
    return KVF_OK;
}

/* Retention gates as the published code starts them; write gates as PyTorch starts
 * convolutions: uniform in +-1/sqrt(inputs), biases too. */
static void initialise(struct net *n, const struct net_options *opt)
{
    bool write = n->layout == &gate_layouts[LAYOUT_WGKV];
    struct rng r;
    rng_init(&r, opt->seed);
    for (int i = 0; i < n->n_tensors; i++) {
        const struct net_tensor *t = &n->tensor[i];
        const struct part *p = t->part;
        bool last = p->stage == n->n_stages - 1 && p->role == R_BIAS;
        if (n->tied && t->layer > 0 && p->stage == n->n_stages - 1)
            continue;
        int in = p->stage == 0 ? 2 * n->D : n->facts.hidden;
        if (p->role == R_WEIGHT)
            in = net_size(n, p->cols);
        double bound = 1.0 / sqrt((double)in);
        for (size_t k = t->at; k < t->at + t->n; k++)
            if (p->role == R_NORM)
                n->w[k] = 1.0f;
            else if (write)
                n->w[k] = (float)((2 * rng_uniform(&r) - 1) * bound + (last ? opt->bias : 0));
            else if (p->role == R_WEIGHT)
                n->w[k] = (float)(rng_normal(&r) * opt->deviation);
            else
                n->w[k] = last ? (float)opt->bias : 0.0f;
    }
}

int net_create(const struct gates_model *m, const struct net_options *opt, struct net **ret_net)
{
    struct net *n = MEM_NEW(struct net, 1);
    if (!n)
        return KVF_E_NOMEM;
    n->layout = &gate_layouts[opt->layout];
    n->facts.model = *m;
    n->facts.layout = opt->layout;
    n->facts.hidden = n->layout->hidden_part < 0 ? 0 : opt->hidden;
    n->facts.activation = n->layout->activation;
    n->L = m->n_layers;
    n->H = m->n_kv_heads;
    n->D = m->head_dim;
    n->n_stages = gate_stages_count(&n->layout->stages);
    n->n_units = n->layout->per_head ? n->H : 1;
    n->tied = opt->tied;
    if (allocate(n) != KVF_OK) {
        net_destroy(n);
        return KVF_E_NOMEM;
    }
    initialise(n, opt);
    net_refresh(n, NULL);
    *ret_net = n;
    return KVF_OK;
}

void net_destroy(struct net *n)
{
    if (!n)
        return;
    size_t n_dense = (size_t)n->L * (size_t)n->n_units * (size_t)n->n_stages;
    for (size_t i = 0; n->dense && i < n_dense; i++)
        packed_pair_finish(&n->dense[i].packs);
    mem_free(n->dense);
    mem_free(n->tensor);
    mem_free(n->norm_at);
    mem_free(n->w);
    mem_free(n);
}

static void refresh_task(void *ctx, int layer, int thread)
{
    struct net *n = ctx;
    int per = n->n_units * n->n_stages;
    (void)thread;
    for (int i = layer * per; i < (layer + 1) * per; i++)
        packed_pair_fill(&n->dense[i].packs, n->w + n->dense[i].w_at);
}

void net_refresh(struct net *n, struct par *pool)
{
    par_run(pool, n->L, refresh_task, n);
}
