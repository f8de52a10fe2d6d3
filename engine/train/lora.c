/* lora.c - low-rank adapters of trainable weights (lora.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/train/lora.h"
#include "engine/train/ops.h"

const char *lora_target_name(enum lora_target t)
{
    static const char *const name[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                       "mlp.down_proj"};
    return name[t];
}

int lora_parse_targets(const char *text, unsigned *ret, struct kvf_diag *d)
{
    static const char *const word[] = {"q", "k", "v", "o", "gate", "up", "down"};
    *ret = 0;
    for (const char *s = text;; s++) {
        size_t n = strcspn(s, ","), i = 0;
        while (i < LORA_TARGETS && (strlen(word[i]) != n || memcmp(s, word[i], n) != 0))
            i++;
        if (i == LORA_TARGETS)
            return kvf_fail(d, KVF_E_ARG,
                            "--targets '%s': give some of q, k, v, o, gate, up, down, separated by "
                            "commas",
                            text);
        *ret |= 1u << i;
        s += n;
        if (!*s)
            return KVF_OK;
    }
}

/* Which matrix a target lies in, and its rows there. */
static enum tensor_role rows_of(const struct model_config *m, enum lora_target t, int *ret_first,
                                int *ret_n)
{
    int q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int first[] = {0, q, q + kv, 0, 0, m->d_ffn, 0};
    const int n[] = {q, kv, kv, m->d_model, m->d_ffn, m->d_ffn, m->d_model};
    static const enum tensor_role role[] = {T_QKV,     T_QKV,     T_QKV, T_OUT,
                                            T_GATE_UP, T_GATE_UP, T_DOWN};
    *ret_first = first[t];
    *ret_n = n[t];
    return role[t];
}

/* Lays out the pairs; returns the floats of their matrices. */
static size_t place(struct lora *l)
{
    const struct model_config *m = l->trainable->config;
    size_t matrices = 0;
    l->trainable->learns = 0;
    for (int layer = 0; layer < m->n_layers; layer++)
        for (int t = 0; t < LORA_TARGETS; t++) {
            if (!(l->opt.targets & 1u << t))
                continue;
            struct lora_pair *p = &l->pair[l->n_pairs++];
            int first;
            enum tensor_role role = rows_of(m, (enum lora_target)t, &first, &p->rows);
            p->layer = layer;
            p->target = (enum lora_target)t;
            p->columns = tensor_columns(m, role);
            l->trainable->learns |= 1u << role;
            p->a = l->n;
            p->b = p->a + (size_t)l->opt.rank * (size_t)p->columns;
            p->matrix = l->trainable->layer[layer].at[role] + (size_t)first * (size_t)p->columns;
            l->n = p->b + (size_t)l->opt.rank * (size_t)p->rows;
            matrices += (size_t)p->rows * (size_t)p->columns;
        }
    return matrices;
}

/* A as PyTorch starts a linear layer: uniform in +-1 / sqrt(inputs). */
static void start(struct lora *l)
{
    struct rng r;
    rng_init(&r, l->opt.seed);
    const struct compute *c = &l->trainable->c;
    float *base = l->base;
    for (int i = 0; i < l->n_pairs; i++) {
        const struct lora_pair *p = &l->pair[i];
        size_t matrix = (size_t)p->rows * (size_t)p->columns;
        double bound = 1 / sqrt(p->columns);
        for (size_t k = p->a; k < p->b; k++)
            l->w[k] = (float)((2 * rng_uniform(&r) - 1) * bound);
        ops(c)->copy(c, base, l->trainable->w_device + p->matrix, matrix * sizeof *base);
        base += matrix;
    }
}

int lora_create(struct trainable *t, const struct lora_options *opt, struct lora **ret,
                struct kvf_diag *d)
{
    const struct compute *c = &t->c;
    struct lora *l = MEM_NEW(struct lora, 1);
    int err = KVF_E_NOMEM;
    if (!l)
        goto done;
    l->opt = *opt;
    l->trainable = t;
    l->pair = MEM_NEW(struct lora_pair, (size_t)t->config->n_layers * LORA_TARGETS);
    if (!l->pair)
        goto done;
    size_t matrices = place(l), widest = 0;
    for (int i = 0; i < l->n_pairs; i++)
        widest = widest > (size_t)l->pair[i].columns ? widest : (size_t)l->pair[i].columns;
    l->base = ops(c)->alloc(c, matrices, sizeof *l->base);
    l->turned = ops(c)->alloc(c, widest * (size_t)opt->rank, sizeof *l->turned);
    l->w = MEM_NEW(float, l->n);
    if (!l->base || !l->w || !l->turned)
        goto done;
    start(l);
    l->w_device = ops(c)->device_copy(c, l->w, l->n);
    if (!l->w_device)
        goto done;
    *ret = l;
    return KVF_OK;

done:
    lora_destroy(l);
    return kvf_fail(d, err, "not enough memory %sfor low-rank weights of rank %d", ops_where(c),
                    opt->rank);
}

void lora_destroy(struct lora *l)
{
    if (!l)
        return;
    const struct compute *c = &l->trainable->c;
    ops(c)->free(c, l->base);
    ops(c)->free(c, l->turned);
    ops(c)->device_copy_free(c, l->w_device);
    mem_free(l->pair);
    mem_free(l->w);
    mem_free(l);
}

static float share(const struct lora *l)
{
    return (float)(l->opt.alpha / l->opt.rank);
}

void lora_refresh(struct lora *l, const struct compute *c)
{
    const float *base = l->base;
    struct trainable *t = l->trainable;
    size_t rank = (size_t)l->opt.rank;
    for (int i = 0; i < l->n_pairs; i++) {
        const struct lora_pair *p = &l->pair[i];
        size_t K = (size_t)p->columns, n = (size_t)p->rows * K;
        float *to = t->w_device + p->matrix;
        ops(c)->multiply(c, &(struct tile_product){.c = to,
                                                   .ld_c = K,
                                                   .a = l->w_device + p->b,
                                                   .a_row = rank,
                                                   .a_col = 1,
                                                   .b = l->w_device + p->a,
                                                   .ld_b = K,
                                                   .m = p->rows,
                                                   .n = p->columns,
                                                   .k = l->opt.rank});
        ops(c)->scale_add(c, to, base, n, share(l));
        base += n;
    }
    ops(c)->to_host(c, t->w, t->w_device, t->n * sizeof *t->w);
    trainable_refresh(t, c->pool);
}

/* dA [rank, columns] = B^T dW */
static void gradient_a(const struct lora *l, const struct compute *c, const struct lora_pair *p,
                       const float *d_w, float *to)
{
    size_t K = (size_t)p->columns;
    ops(c)->multiply(c, &(struct tile_product){.c = to,
                                               .ld_c = K,
                                               .a = l->w_device + p->b,
                                               .a_row = 1,
                                               .a_col = (size_t)l->opt.rank,
                                               .b = d_w,
                                               .ld_b = K,
                                               .m = l->opt.rank,
                                               .n = p->columns,
                                               .k = p->rows});
}

/* dB [rows, rank] = dW A^T */
static void gradient_b(const struct lora *l, const struct compute *c, const struct lora_pair *p,
                       const float *d_w, float *to)
{
    size_t K = (size_t)p->columns, rank = (size_t)l->opt.rank;
    ops(c)->transpose(c, l->turned, l->w_device + p->a, l->opt.rank, p->columns);
    ops(c)->multiply(c, &(struct tile_product){.c = to,
                                               .ld_c = rank,
                                               .a = d_w,
                                               .a_row = K,
                                               .a_col = 1,
                                               .b = l->turned,
                                               .ld_b = rank,
                                               .m = p->rows,
                                               .n = l->opt.rank,
                                               .k = p->columns});
}

void lora_gradient(struct lora *l, const struct compute *c, const float *d_w, float *grad)
{
    for (int i = 0; i < l->n_pairs; i++) {
        const struct lora_pair *p = &l->pair[i];
        gradient_a(l, c, p, d_w + p->matrix, grad + p->a);
        gradient_b(l, c, p, d_w + p->matrix, grad + p->b);
    }
    ops(c)->scale_add(c, grad, NULL, l->n, share(l));
}
