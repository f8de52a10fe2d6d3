/* test_pass.c - complete training passes on a device compared with the CPU. Tests losses and
 * derivatives by gates, by model weights (low-rank or full) and by cache entries, with several
 * documents and evictions. In f32 they agree within 1e-5 of the largest derivative, with bf16
 * matrix multiplications within 5e-2. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/decode/engine.h"
#include "engine/train/lora.h"
#include "engine/train/pass.h"
#include "tests/cuda/device.h"

enum { N = 70, CUT = 27 };

/* One side of the comparison: a backend with its networks and its pass. */
struct side {
    struct compute c;
    struct frozen teacher;
    struct net *net;
    struct trainable *tuned;
    struct lora *lora;
    struct pass *pass;
    float *grad, *d_w, *d_lora; /* on the device */
    float *out;                 /* on the host: all derivatives, concatenated */
    size_t n;
    struct pass_loss loss;
};

struct setting {
    const char *model;
    enum gating gating;
    enum layout_id layout;
    bool tunes, recompute;
};

static const struct setting settings[] = {
    {"train0.gguf", GATING_DECAY, LAYOUT_RG, false, false},
    {"train1.gguf", GATING_LOGIT, LAYOUT_RGKV, false, true},
    {"train2.gguf", GATING_WRITE, LAYOUT_WGKV, false, true},
    {"train3.gguf", GATING_NONE, LAYOUT_RG, true, true},
    {"train4.gguf", GATING_NONE, LAYOUT_RG, true, false},
};

static struct engine *open_model(const char *name)
{
    device_needed();
    char path[4096];
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    const struct engine_options eo = {.exact = true, .n_threads = 1};
    snprintf(path, sizeof path, "%s/%s", getenv("KVF_TRAIN"), name);
    cr_assert(zero(int, engine_open(path, &eo, &e, &d)), "%s", d.text);
    return e;
}

static void must(int err, const struct kvf_diag *d)
{
    cr_assert(eq(int, err, KVF_OK), "%s", d->text);
}

static void open_net(struct side *s, struct engine *e, const struct setting *how)
{
    struct gates_model gm = gates_model_from(&e->config, NULL, &s->c.k);
    struct net_options no = {
        .layout = how->layout, .hidden = 5, .bias = 1, .deviation = 0.2, .seed = 3};
    must(net_create(&gm, &no, &s->net), &(struct kvf_diag){""});
    s->net->w_device = ops(&s->c)->device_copy(&s->c, s->net->w, s->net->n);
    s->grad = ops(&s->c)->alloc(&s->c, s->net->n, sizeof *s->grad);
    s->n = s->net->n;
}

static void open_tuned(struct side *s, struct engine *e)
{
    struct kvf_diag d = {""};
    struct lora_options lo = {.rank = 3, .alpha = 5, .targets = 0x7f, .seed = 2};
    bool tied = !gguf_find(e->gguf, "output.weight");
    struct rng r;
    rng_init(&r, 8);
    must(trainable_create(&s->c, &e->config, e->weights, tied, &s->tuned, &d), &d);
    must(lora_create(s->tuned, &lo, &s->lora, &d), &d);
    fill(&r, s->lora->w, s->lora->n, 0.05);
    ops(&s->c)->to_device(&s->c, s->lora->w_device, s->lora->w, s->lora->n * sizeof *s->lora->w);
    lora_refresh(s->lora, &s->c);
    s->d_w = ops(&s->c)->alloc(&s->c, s->tuned->n, sizeof *s->d_w);
    s->d_lora = ops(&s->c)->alloc(&s->c, s->lora->n, sizeof *s->d_lora);
    s->n = s->tuned->n + s->lora->n;
}

static void open_side(struct side *s, struct engine *e, const struct learner *l,
                      const struct setting *how)
{
    struct kvf_diag d = {""};
    struct pass_options po = {.gating = how->gating,
                              .window = 4,
                              .quality = {1, 0.5, 1, 0.5},
                              .lambda = how->gating == GATING_NONE ? 0 : 0.3,
                              .M = 3,
                              .offset = true,
                              .temperature = 1.5,
                              .recompute = how->recompute};
    *s = (struct side){.n = 0};
    must(compute_open(&s->c, &e->kernels, e->pool, l, &d), &d);
    must(frozen_build(&s->c, &e->config, e->weights, &s->teacher, &d), &d);
    if (how->tunes)
        open_tuned(s, e);
    else
        open_net(s, e, how);
    must(pass_create(&s->c, &s->teacher, s->net, &po, N + 2, &s->pass), &d);
    s->out = MEM_NEW(float, s->n);
}

static void run_side(struct side *s, const struct pack *pack, const int32_t *gone)
{
    const struct ops *on = ops(&s->c);
    struct kvf_diag d = {""};
    pass_mask(s->pass, gone);
    pass_tune(s->pass, s->tuned, s->d_w);
    pass_run(s->pass, pack, 0.7, s->grad, NULL, &s->loss);
    if (s->tuned) {
        lora_gradient(s->lora, &s->c, s->d_w, s->d_lora);
        on->to_host(&s->c, s->out, s->d_w, s->tuned->n * sizeof *s->out);
        on->to_host(&s->c, s->out + s->tuned->n, s->d_lora, s->lora->n * sizeof *s->out);
    } else {
        on->to_host(&s->c, s->out, s->grad, s->net->n * sizeof *s->out);
    }
    must(on->check(&s->c, &d), &d);
}

static void close_side(struct side *s)
{
    const struct ops *on = ops(&s->c);
    pass_destroy(s->pass);
    on->free(&s->c, s->grad);
    on->free(&s->c, s->d_w);
    on->free(&s->c, s->d_lora);
    if (s->net)
        on->device_copy_free(&s->c, s->net->w_device);
    net_destroy(s->net);
    lora_destroy(s->lora);
    trainable_destroy(s->tuned);
    frozen_finish(&s->teacher);
    compute_close(&s->c);
    mem_free(s->out);
}

static void compare(const struct side *a, const struct side *b, double most, const char *what)
{
    double off = distance(b->out, a->out, a->n);
    cr_expect(le(dbl, off, most), "%s: derivatives", what);
    cr_expect(le(dbl, fabs(b->loss.total - a->loss.total), most * fabs(a->loss.total)),
              "%s: loss %.9g, not %.9g", what, b->loss.total, a->loss.total);
    cr_expect(le(dbl, fabs(b->loss.value - a->loss.value), most * (1 + fabs(a->loss.value))));
    cr_assert(eq(int, emulation_faults(), 0), "%s: %s", what, emulation_first_fault());
}

/* Makes a pack of two documents in which a quarter of the entries expires. */
static void make_pack(const struct model_config *m, int32_t *ids, int32_t *first, int32_t *gone)
{
    struct rng r;
    rng_init(&r, 5);
    for (int t = 0; t < N; t++) {
        ids[t] = (int32_t)rng_below(&r, (uint32_t)m->vocab);
        first[t] = t < CUT ? 0 : CUT;
    }
    for (int i = 0; i < m->n_layers * N * m->n_kv_heads; i++) {
        int t = i / m->n_kv_heads % N;
        gone[i] = rng_below(&r, 4) ? INT32_MAX : t + 1 + (int)rng_below(&r, 20);
    }
}

static void try_setting(const struct setting *how)
{
    struct engine *e = open_model(how->model);
    int32_t ids[N], first[N];
    int32_t *gone = MEM_NEW(int32_t, (size_t)(e->config.n_layers * N * e->config.n_kv_heads));
    struct pack pack = {ids, first, N};
    struct side cpu, exact, bf16;
    make_pack(&e->config, ids, first, gone);
    open_side(&cpu, e, &(struct learner){NULL}, how);
    open_side(&exact, e, &(struct learner){&ops_cuda, 0, true}, how);
    open_side(&bf16, e, &(struct learner){&ops_cuda, 0, false}, how);
    struct side *all[] = {&cpu, &exact, &bf16};
    for (int i = 0; i < (how->recompute ? 2 : 3); i++)
        run_side(all[i], &pack, how->tunes ? gone : NULL);
    compare(&cpu, &exact, 1e-5, how->model);
    if (!how->recompute)
        compare(&cpu, &bf16, 5e-2, "bf16");
    for (int i = 0; i < 3; i++)
        close_side(all[i]);
    mem_free(gone);
    engine_close(e);
}

Test(pass, retention_gates)
{
    try_setting(&settings[0]);
    try_setting(&settings[1]);
}

Test(pass, write_gates)
{
    try_setting(&settings[2]);
}

Test(pass, weights)
{
    try_setting(&settings[3]);
    try_setting(&settings[4]);
}

/* Tests derivatives by cache entries with fixed weights, from which saliency is computed. */
Test(pass, entries)
{
    struct engine *e = open_model("train1.gguf");
    int32_t ids[N], first[N] = {0}, gone[4096];
    struct pack pack = {ids, first, N};
    size_t n = (size_t)(e->config.n_layers * N * e->config.n_kv_heads);
    float *held = MEM_NEW(float, n), *got[2] = {MEM_NEW(float, n), MEM_NEW(float, n)};
    struct rng r;
    rng_init(&r, 4);
    cr_assert(le(sz, n, 4096));
    make_pack(&e->config, ids, first, gone);
    for (size_t i = 0; i < n; i++)
        held[i] = (float)rng_uniform(&r);
    for (int i = 0; i < 2; i++) {
        struct learner l = {i ? &ops_cuda : NULL, 0, true};
        struct pass_options po = {.gating = GATING_WRITE, .window = 3, .recompute = true};
        struct kvf_diag d = {""};
        struct side s = {.n = 0};
        po.quality[QUALITY_FWKL] = 1;
        must(compute_open(&s.c, &e->kernels, e->pool, &l, &d), &d);
        must(frozen_build(&s.c, &e->config, e->weights, &s.teacher, &d), &d);
        must(pass_create(&s.c, &s.teacher, NULL, &po, N, &s.pass), &d);
        pass_fix_gates(s.pass, held);
        pass_run(s.pass, &pack, 1, NULL, got[i], &s.loss);
        must(ops(&s.c)->check(&s.c, &d), &d);
        close_side(&s);
    }
    cr_expect(le(dbl, distance(got[1], got[0], n), 1e-5));
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
    mem_free(held);
    mem_free(got[0]);
    mem_free(got[1]);
    engine_close(e);
}
