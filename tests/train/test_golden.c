/* test_golden.c - losses, gates and derivatives compared with PyTorch's autograd in float64
 * (train.json). */
#include "../engine/golden.h"
#include "engine/train/optimizer.h"
#include "engine/train/pass.h"
#include "tests/suite.h"

struct world {
    struct engine *e;
    struct compute c;
    struct frozen f;
    struct net *net;
    struct pass_options opt;
    struct pass *pass;
};

static int index_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    cr_fatal("unknown name %s", name);
    return -1;
}

static const char *const layouts[] = {"rg", "rg10", "linear", "rgkv", "wgkv", NULL};
static const char *const forms[] = {"none", "decay", "logit", "write", NULL};
static const char *const norms[] = {"code", "t", "flat", "sum", NULL};
static const char *const terms[] = {"fwkl", "rvkl", "ntp", "mse", NULL};

static const char *text(const struct json *c, const char *key)
{
    return json_str(json_get(c, key), "");
}

static struct pass_options options_of(const struct json *c)
{
    const struct json *quality = json_get(c, "quality");
    struct pass_options o = {.gating = (enum gating)index_of(forms, text(c, "form")),
                             .window = (int)json_int(json_get(c, "window"), 1),
                             .lambda = json_num(json_get(c, "weight"), NAN),
                             .M = json_num(json_get(c, "M"), NAN),
                             .global = json_bool(json_get(c, "everywhere"), false),
                             .norm = (enum capacity_norm)index_of(norms, text(c, "norm")),
                             .offset = json_bool(json_get(c, "offset"), false)};
    int n = json_len(quality);
    for (int i = 0; i < n; i++)
        o.quality[index_of(terms, json_str(json_at(quality, i), ""))] =
            strcmp(text(c, "combine"), "mean") == 0 ? 1.0 / n : 1.0;
    return o;
}

/* Replaces the random parameters by those of the case. */
static void take_parameters(struct net *n, const struct json *from, float *to)
{
    for (int i = 0; i < n->n_tensors; i++) {
        const struct net_tensor *t = &n->tensor[i];
        const struct json *v = json_get(from, t->name);
        if (!v && n->tied && t->layer > 0)
            continue;
        cr_assert(eq(int, json_len(v), (int)t->n), "%s", t->name);
        int k = 0;
        for (const struct json *x = json_first(v); x; x = json_next(x))
            to[t->at + (size_t)k++] = (float)json_num(x, NAN);
    }
}

static void open_world(struct world *w, const struct json *c, unsigned flags, int threads)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/train%d.gguf", getenv("KVF_TRAIN"),
             (int)json_int(json_get(c, "model"), -1));
    struct engine_options eo = {.exact = true, .n_threads = threads, .cpu_flags = flags};
    struct kvf_diag d;
    cr_assert(eq(int, engine_open(path, &eo, &w->e, &d), KVF_OK), "%s", d.text);
    const struct model_config *m = &w->e->config;
    w->c = (struct compute){w->e->kernels, w->e->pool};
    cr_assert(eq(int, frozen_build(&w->c, m, w->e->weights, &w->f, &d), KVF_OK));
    struct gates_model gm = {m->n_layers, m->d_model,   m->n_heads, m->n_kv_heads, m->head_dim,
                             m->norm_eps, m->rope_base, NULL,       &w->c.k};
    static const enum layout_id ids[] = {LAYOUT_RG, LAYOUT_RG10, LAYOUT_LINEAR, LAYOUT_RGKV,
                                         LAYOUT_WGKV};
    struct net_options no = {.layout = ids[index_of(layouts, text(c, "layout"))],
                             .hidden = (int)json_int(json_get(c, "hidden"), 0),
                             .tied = json_bool(json_get(c, "tied"), false),
                             .deviation = 0.02};
    cr_assert(eq(int, net_create(&gm, &no, &w->net), KVF_OK));
    take_parameters(w->net, json_get(c, "parameters"), w->net->w);
    net_refresh(w->net, NULL);
    w->opt = options_of(c);
}

static void close_world(struct world *w)
{
    pass_destroy(w->pass);
    net_destroy(w->net);
    frozen_finish(&w->f);
    engine_close(w->e);
}

/* Reads pack number i of the case; free_pack() frees ids and first. */
static struct pack take_pack(const struct json *c, int i)
{
    const struct json *p = json_at(json_get(c, "packs"), i);
    struct pack pack;
    int n;
    pack.ids = golden_ids(json_get(p, "ids"), &pack.n);
    pack.first = golden_ids(json_get(p, "first"), &n);
    cr_assert(eq(int, n, pack.n));
    return pack;
}

static void free_pack(struct pack *p)
{
    mem_free((void *)(uintptr_t)p->ids);
    mem_free((void *)(uintptr_t)p->first);
}

/* Returns the largest difference relative to the largest value of the tensor. */
static double worst_of(const struct json *want, const float *have)
{
    double most = 1e-12, worst = 0;
    int k = 0;
    for (const struct json *x = json_first(want); x; x = json_next(x))
        most = fmax(most, fabs(json_num(x, NAN)));
    for (const struct json *x = json_first(want); x; x = json_next(x), k++) {
        double off = fabs((double)have[k] - json_num(x, NAN));
        worst = off <= worst ? worst : off; /* a NaN counts */
    }
    return worst / most;
}

static void check_loss(const struct json *c, const struct pass_loss *l)
{
    const struct json *loss = json_get(c, "loss");
    const char *name = text(c, "name");
    for (int i = 0; i < QUALITY_TERMS; i++) {
        double want = json_num(json_get(loss, terms[i]), NAN);
        if (!isnan(want))
            cr_expect(fabs(l->term[i] - want) <= 2e-5 * fabs(want), "%s: %s is %.9g, wanted %.9g",
                      name, terms[i], l->term[i], want);
    }
    double limit = json_num(json_get(loss, "capacity"), json_num(json_get(loss, "sparsity"), NAN));
    double total = json_num(json_get(loss, "total"), NAN);
    cr_expect(fabs(l->limit - limit) <= 1e-5 * fabs(limit), "%s: limit is %.9g, wanted %.9g", name,
              l->limit, limit);
    cr_expect(fabs(l->total - total) <= 2e-5 * fabs(total), "%s: total is %.9g, wanted %.9g", name,
              l->total, total);
}

static void check_case(const struct json *c, unsigned flags, int threads, bool recompute)
{
    SCOPED(close_world) struct world w = {0};
    struct pass_loss loss;
    open_world(&w, c, flags, threads);
    SCOPED(free_pack) struct pack pack = take_pack(c, 0);
    w.opt.recompute = recompute;
    cr_assert(eq(int, pass_create(&w.c, &w.f, w.net, &w.opt, pack.n + 3, &w.pass), KVF_OK));
    OWNED(mem_free) float *grad = MEM_NEW(float, w.net->n);
    pass_run(w.pass, &pack, 1.0, grad, NULL, &loss);
    check_loss(c, &loss);
    for (int i = 0; i < w.net->n_tensors; i++) {
        const struct net_tensor *t = &w.net->tensor[i];
        const struct json *want = json_get(json_get(c, "grad"), t->name);
        if (!want && w.net->tied && t->layer > 0)
            continue;
        double off = worst_of(want, grad + t->at);
        cr_expect(off <= 3e-4, "%s, flags %u: derivative of %s is off by %g", text(c, "name"),
                  flags, t->name, off);
    }
}

Test(train, derivatives_equal_autograd)
{
    OWNED(json_free) struct json *golden = golden_json("train.json");
    const struct json *cases = json_get(golden, "cases");
    cr_assert(ge(int, json_len(cases), 1));
    for (const struct json *c = json_first(cases); c; c = json_next(c)) {
        check_case(c, 0, 1, false);
        check_case(c, cpu_flags_detect(), 2, false);
        check_case(c, cpu_flags_detect() & CPU_X86_AVX2, 3, true);
    }
}

/* Runs steps of AdamW on the mean loss of all packs of the case. */
static void check_steps(const struct json *c)
{
    const struct json *s = json_get(c, "steps"), *record = json_get(s, "record");
    SCOPED(close_world) struct world w = {0};
    open_world(&w, c, cpu_flags_detect(), 2);
    size_t n = w.net->n;
    int packs = json_len(json_get(c, "packs")), done = (int)json_int(json_get(s, "done"), 0);
    OWNED(mem_free) float *grad = MEM_NEW(float, n), *m = MEM_NEW(float, n), *v = MEM_NEW(float, n);
    struct optimizer o = {.lr = json_num(json_get(s, "lr"), NAN),
                          .min_lr = json_num(json_get(s, "min_lr"), NAN),
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .decay = json_num(json_get(s, "decay"), NAN),
                          .clip = json_num(json_get(s, "clip"), NAN),
                          .schedule = SCHEDULE_COSINE,
                          .warmup = json_int(json_get(s, "warmup"), 0),
                          .steps = json_int(json_get(s, "steps"), 0)};
    cr_assert(eq(int, pass_create(&w.c, &w.f, w.net, &w.opt, 128, &w.pass), KVF_OK));
    for (int t = 1; t <= done; t++) {
        const struct json *want = json_at(record, t - 1);
        double total = 0;
        memset(grad, 0, n * sizeof *grad);
        for (int i = 0; i < packs; i++) {
            SCOPED(free_pack) struct pack pack = take_pack(c, i);
            struct pass_loss loss;
            pass_run(w.pass, &pack, 1.0 / packs, grad, NULL, &loss);
            total += loss.total / packs;
        }
        double norm = optimizer_norm(grad, n);
        cr_expect(fabs(total - json_num(json_get(want, "loss"), NAN)) <= 2e-5 * total,
                  "%s, step %d: loss %.9g", text(c, "name"), t, total);
        cr_expect(fabs(norm - json_num(json_get(want, "norm"), NAN)) <= 3e-4 * norm,
                  "%s, step %d: norm %.9g", text(c, "name"), t, norm);
        cr_expect(fabs(optimizer_rate(&o, t) - json_num(json_get(want, "rate"), NAN)) <= 1e-9);
        optimizer_step(&o, t, norm, grad, w.net->w, m, v, n);
        net_refresh(w.net, NULL);
    }
    for (int i = 0; i < w.net->n_tensors; i++) {
        const struct net_tensor *t = &w.net->tensor[i];
        const struct json *want = json_get(json_get(s, "parameters"), t->name);
        double off = worst_of(want, w.net->w + t->at);
        cr_expect(off <= 2e-3, "%s: %s is off by %g after %d steps", text(c, "name"), t->name, off,
                  done);
    }
}

Test(train, steps_equal_adamw)
{
    OWNED(json_free) struct json *golden = golden_json("train.json");
    int n = 0;
    for (const struct json *c = json_first(json_get(golden, "cases")); c; c = json_next(c))
        if (json_get(c, "steps")) {
            check_steps(c);
            n++;
        }
    cr_expect(eq(int, n, 2));
}
