/* tune.c - training steps of a model's weights with all intermediate values, for test_tuned.py.
 *
 * usage: tune MODEL INPUT OUTPUT RANK STEPS RECOMPUTE THREADS
 * INPUT starts with int32 numbers: T, masked, ids [T], first [T], and gone [L, T, H] if masked.
 * Then follow f32 numbers: the temperature and the weights of fwkl and ntp. If masked is 2, they
 * are followed by the range of a policy's ratios, shares [T] and log-probabilities [T] of the
 * sampling policy. OUTPUT is a line of JSON, then f32 numbers: the teacher's weights, the student's
 * weights, derivatives by them, parameters, derivatives by them (without RANK these equal the
 * former), and parameters and losses after each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/decode/engine.h"
#include "engine/train/lora.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"

enum {
    MORE = 3,   /* tokens that the pass can process beyond the pack */
    INPUTS = 8, /* arrays of the input */
};

struct run {
    struct engine *e;
    struct compute c;
    struct frozen teacher;
    struct trainable *t;
    struct lora *l;
    struct pass *pass;
    struct pack pack;
    float *d_w, *grad, *m, *v, *w;
    size_t n;
    FILE *in, *out;
    void *input[INPUTS]; /* arrays read from the input */
    int n_inputs;
};

static void must(int err, const struct kvf_diag *d)
{
    if (err == KVF_OK)
        return;
    fprintf(stderr, "tune: %d %s\n", err, d->text);
    exit(1);
}

static void put(struct run *r, const float *x, size_t n)
{
    if (fwrite(x, sizeof *x, n, r->out) != n)
        exit(1);
}

static const char *yes(bool b)
{
    return b ? "true" : "false";
}

/* Writes the RoPE angles of each kind of rotation, and the factor of cosines and sines. */
static void describe_turns(const struct run *r)
{
    const struct model_config *m = &r->e->config;
    fprintf(r->out, ", \"turns\": [");
    for (int kind = 0; kind < ROPE_KINDS; kind++) {
        fprintf(r->out, "%s[%.9g", kind ? ", " : "", (double)m->rope_attn_factor[kind]);
        for (int j = 0; j < m->rope_dim / 2; j++)
            fprintf(r->out, ", %.17g", m->theta[kind][j]);
        fprintf(r->out, "]");
    }
    fprintf(r->out, "]");
}

static void describe_layers(const struct run *r)
{
    const struct model_config *m = &r->e->config;
    fprintf(r->out, ", \"layer\": [");
    for (int l = 0; l < m->n_layers; l++) {
        const struct trainable_layer *a = &r->t->layer[l];
        fprintf(
            r->out,
            "%s{\"qkv\": %zu, \"out\": %zu, \"gate_up\": %zu, \"down\": %zu, "
            "\"attn_norm\": %zu, \"ffn_norm\": %zu, \"attn_post\": %zu, \"ffn_post\": %zu, "
            "\"q_norm\": %zu, \"k_norm\": %zu, \"bias\": %zu, \"sinks\": %zu, \"out_bias\": %zu, "
            "\"gate_up_bias\": %zu, \"down_bias\": %zu, \"window\": %d, \"turn\": %d}",
            l ? ", " : "", a->at[T_QKV], a->at[T_OUT], a->at[T_GATE_UP], a->at[T_DOWN],
            a->at[T_ATTN_NORM], a->at[T_FFN_NORM], a->at[T_ATTN_POST], a->at[T_FFN_POST],
            a->at[T_Q_NORM], a->at[T_K_NORM], a->at[T_QKV_BIAS], a->at[T_SINKS], a->at[T_OUT_BIAS],
            a->at[T_GATE_UP_BIAS], a->at[T_DOWN_BIAS], model_window(m, l),
            (int)model_rope(m, l, r->pack.n + MORE));
    }
    fprintf(r->out, "]");
}

static void describe(const struct run *r)
{
    const struct model_config *m = &r->e->config;
    const struct family *f = m->family;
    fprintf(
        r->out,
        "{\"n\": %zu, \"parameters\": %zu, \"layers\": %d, \"d\": %d, \"heads\": %d, "
        "\"kv_heads\": %d, \"head_dim\": %d, \"ffn\": %d, \"vocab\": %d, \"eps\": %.9g, "
        "\"scale\": %.9g, \"rope_dim\": %d, \"embedding\": %zu, \"head\": %zu, "
        "\"out_norm\": %zu, \"attn_cap\": %.9g, \"logit_cap\": %.9g, \"embedding_scale\": %.9g, "
        "\"residual_scale\": %.9g",
        r->t->n, r->n, m->n_layers, m->d_model, m->n_heads, m->n_kv_heads, m->head_dim, m->d_ffn,
        m->vocab, (double)m->norm_eps, (double)m->attn_scale, m->rope_dim, r->t->embedding,
        r->t->head, r->t->out_norm, (double)m->attn_cap, (double)m->logit_cap,
        (double)m->embedding_scale, (double)m->residual_scale);
    fprintf(r->out,
            ", \"biases\": %s, \"norms\": %s, \"wide\": %s, \"before\": %s, \"behind\": %s, "
            "\"gelu\": %s, \"sinks\": %s, \"all_biases\": %s",
            yes(tensor_rows(m, T_QKV_BIAS)), yes(f->qk_norm), yes(f->qk_norm_wide),
            yes(!f->no_pre_norm), yes(f->post_norm), yes(f->gelu), yes(tensor_rows(m, T_SINKS)),
            yes(tensor_rows(m, T_OUT_BIAS)));
    describe_turns(r);
    describe_layers(r);
    fprintf(r->out, ", \"pairs\": [");
    for (int i = 0; r->l && i < r->l->n_pairs; i++) {
        const struct lora_pair *p = &r->l->pair[i];
        fprintf(r->out, "%s[%zu, %zu, %zu, %d, %d]", i ? ", " : "", p->matrix, p->a, p->b, p->rows,
                p->columns);
    }
    fprintf(r->out, "]}\n");
}

static void *take(struct run *r, size_t n, size_t size)
{
    void *p = mem_alloc(n, size);
    if (!p || r->n_inputs == INPUTS || fread(p, size, n, r->in) != n)
        exit(1);
    return r->input[r->n_inputs++] = p;
}

/* Changes the weights so that the student differs from the teacher. */
static void disturb(float *w, size_t n, double by)
{
    struct rng r;
    rng_init(&r, 7);
    for (size_t i = 0; i < n; i++)
        w[i] += (float)(by * rng_normal(&r));
}

static float loss_of(struct run *r)
{
    struct pass_loss loss;
    memset(r->d_w, 0, r->t->n * sizeof *r->d_w);
    pass_run(r->pass, &r->pack, 1, NULL, NULL, &loss);
    if (r->l)
        lora_gradient(r->l, &r->c, r->d_w, r->grad);
    return (float)loss.total;
}

static void refresh(struct run *r)
{
    if (r->l)
        lora_refresh(r->l, &r->c);
    else
        trainable_refresh(r->t, r->c.pool);
}

static void steps(struct run *r, int n)
{
    const struct optimizer o = {.lr = 1e-3,
                                .min_lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .decay = 0.1,
                                .clip = 0.5};
    for (int i = 1; i <= n; i++) {
        float loss = loss_of(r);
        optimizer_step(&o, i, optimizer_norm(r->grad, r->n), r->grad, r->w, r->m, r->v, r->n);
        refresh(r);
        put(r, r->w, r->n);
        put(r, &loss, 1);
    }
}

static void open_all(struct run *r, char **argv, struct kvf_diag *d)
{
    struct engine_options eo = {
        .exact = true, .n_threads = atoi(argv[7]), .cpu_flags = cpu_flags_detect()};
    int rank = atoi(argv[4]);
    struct lora_options lo = {.rank = rank, .alpha = 2.0 * rank, .targets = 0x7f, .seed = 3};
    must(engine_open(argv[1], &eo, &r->e, d), d);
    r->c = (struct compute){r->e->kernels, r->e->pool};
    must(frozen_build(&r->c, &r->e->config, r->e->weights, &r->teacher, d), d);
    bool tied = !gguf_find(r->e->gguf, "output.weight");
    must(trainable_create(&r->c, &r->e->config, r->e->weights, tied, &r->t, d), d);
    if (rank)
        must(lora_create(r->t, &lo, &r->l, d), d);
    r->n = rank ? r->l->n : r->t->n;
    r->w = rank ? r->l->w : r->t->w;
    r->d_w = MEM_NEW(float, r->t->n);
    r->grad = rank ? MEM_NEW(float, r->n) : r->d_w;
    r->m = MEM_NEW(float, r->n);
    r->v = MEM_NEW(float, r->n);
}

static int close_all(struct run *r)
{
    int err = fclose(r->out) ? 1 : 0;
    fclose(r->in);
    for (int i = 0; i < r->n_inputs; i++)
        mem_free(r->input[i]);
    pass_destroy(r->pass);
    if (r->l)
        mem_free(r->grad);
    mem_free(r->d_w);
    mem_free(r->m);
    mem_free(r->v);
    lora_destroy(r->l);
    trainable_destroy(r->t);
    frozen_finish(&r->teacher);
    engine_close(r->e);
    return err;
}

int main(int argc, char **argv)
{
    struct run r = {0};
    struct kvf_diag d = {0};
    if (argc != 8)
        return 2;
    open_all(&r, argv, &d);
    const struct model_config *m = &r.e->config;
    r.in = fopen(argv[2], "rb");
    r.out = fopen(argv[3], "wb");
    if (!r.in || !r.out)
        return 1;
    int32_t *head = take(&r, 2, 4);
    size_t T = (size_t)head[0], entries = (size_t)m->n_layers * T * (size_t)m->n_kv_heads;
    r.pack = (struct pack){take(&r, T, 4), take(&r, T, 4), (int)T};
    int32_t *gone = head[1] ? take(&r, entries, 4) : NULL;
    float *number = take(&r, 3, 4);
    struct pass_options po = {.temperature = (double)number[0], .recompute = atoi(argv[6])};
    po.quality[QUALITY_FWKL] = (double)number[1];
    po.quality[QUALITY_NTP] = (double)number[2];
    must(pass_create(&r.c, &r.teacher, NULL, &po, (int)T + MORE, &r.pass), &d);
    pass_tune(r.pass, r.t, r.d_w);
    pass_mask(r.pass, gone);
    if (head[1] == 2) {
        float *range = take(&r, 1, 4);
        pass_share(r.pass, take(&r, T, 4));
        pass_policy(r.pass, take(&r, T, 4), (double)range[0]);
    }
    describe(&r);
    put(&r, r.t->w, r.t->n);
    disturb(r.w, r.n, 0.03);
    refresh(&r);
    put(&r, r.t->w, r.t->n);
    loss_of(&r);
    put(&r, r.d_w, r.t->n);
    put(&r, r.w, r.n);
    put(&r, r.grad, r.n);
    steps(&r, atoi(argv[5]));
    return close_all(&r);
}
