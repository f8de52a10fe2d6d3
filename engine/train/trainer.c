#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/safetensors_write.h"
#include "engine/train/checkpoint.h"
#include "engine/train/trainer.h"

struct trainer {
    struct trainer_options opt;
    struct engine *e;
    struct packs *packs;
    struct compute c;
    struct frozen frozen;
    struct net *net;
    struct pass *pass;
    float *grad, *m, *v; /* [net->n] */
    float *one;          /* [net->n] the gradient of one pack of several; NULL: of one pack */
    int64_t step;
};

static int create_parts(struct trainer *t, struct kvf_diag *d)
{
    const struct model_config *m = &t->e->config;
    struct gates_model gm = gates_model_from(m, NULL, &t->c.k);
    int err = net_create(&gm, &t->opt.net, &t->net);
    if (err)
        return err;
    err = frozen_build(m, t->e->weights, t->c.pool, &t->frozen, d);
    if (err)
        return err;
    err = pass_create(&t->c, &t->frozen, t->net, &t->opt.pass, t->opt.length, &t->pass);
    if (err)
        return err;
    t->grad = MEM_NEW(float, t->net->n);
    t->m = MEM_NEW(float, t->net->n);
    t->v = MEM_NEW(float, t->net->n);
    if (t->opt.accumulate > 1)
        t->one = MEM_NEW(float, t->net->n);
    return t->grad && t->m && t->v && (t->one || t->opt.accumulate == 1) ? KVF_OK : KVF_E_NOMEM;
}

int trainer_create(struct engine *e, struct packs *packs, const struct trainer_options *opt,
                   struct trainer **ret_trainer, struct kvf_diag *d)
{
    struct trainer *t = MEM_NEW(struct trainer, 1);
    if (!t)
        return KVF_E_NOMEM;
    t->opt = *opt;
    t->e = e;
    t->packs = packs;
    t->c = (struct compute){e->kernels, e->pool};
    int err = create_parts(t, d);
    if (err) {
        trainer_destroy(t);
        if (err != KVF_E_NOMEM)
            return err;
        return kvf_fail(d, err,
                        "not enough memory to train on packs of %d tokens; try shorter "
                        "ones or recomputation",
                        opt->length);
    }
    *ret_trainer = t;
    return KVF_OK;
}

void trainer_destroy(struct trainer *t)
{
    if (!t)
        return;
    pass_destroy(t->pass);
    net_destroy(t->net);
    frozen_finish(&t->frozen);
    mem_free(t->grad);
    mem_free(t->one);
    mem_free(t->m);
    mem_free(t->v);
    mem_free(t);
}

int64_t trainer_steps(const struct trainer *t)
{
    return t->step;
}

size_t trainer_parameters(const struct trainer *t)
{
    return t->net->n;
}

size_t trainer_bytes(const struct trainer *t)
{
    return pass_bytes(t->pass);
}

static void add_loss(struct pass_loss *sum, const struct pass_loss *l, double weight)
{
    sum->total += weight * l->total;
    sum->limit += weight * l->limit;
    sum->value += weight * l->value;
    sum->positions += l->positions;
    for (int i = 0; i < QUALITY_TERMS; i++)
        sum->term[i] += weight * l->term[i];
}

/* What pack a of a step gives: its gradient is at grad. */
static int run_pack(struct trainer *t, int a, float *grad, struct pass_loss *ret, int64_t *tokens,
                    struct kvf_diag *d)
{
    const struct trainer_team *team = t->opt.team;
    int64_t n = packs_count(t->packs), i = t->step * t->opt.accumulate + a;
    struct pack pack = packs_get(t->packs, t->opt.seed, i / n, (int)(i % n));
    int owner = team ? a % team->size : 0, err = KVF_OK;
    *tokens += pack.n;
    if (!team || owner == team->me) {
        memset(grad, 0, t->net->n * sizeof *grad);
        pass_run(t->pass, &pack, 1.0 / t->opt.accumulate, grad, NULL, ret);
    }
    if (team)
        err = team->share(team->ctx, owner, grad, t->net->n * sizeof *grad, d);
    return team && !err ? team->share(team->ctx, owner, ret, sizeof *ret, d) : err;
}

/* The sum over packs, in their order, whoever computed them: its bytes depend on nothing else. */
static int run_packs(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d)
{
    int err = KVF_OK;
    memset(t->grad, 0, t->net->n * sizeof *t->grad);
    for (int a = 0; !err && a < t->opt.accumulate; a++) {
        struct pass_loss l = {0};
        err = run_pack(t, a, t->one ? t->one : t->grad, &l, &ret->tokens, d);
        for (size_t i = 0; t->one && i < t->net->n; i++)
            t->grad[i] += t->one[i];
        add_loss(&ret->loss, &l, 1.0 / t->opt.accumulate);
    }
    return err;
}

int trainer_step(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d)
{
    *ret = (struct trainer_step){.step = t->step + 1};
    int err = run_packs(t, ret, d);
    if (err)
        return err;
    ret->norm = optimizer_norm(t->grad, t->net->n);
    ret->rate = optimizer_rate(&t->opt.optimizer, t->step + 1);
    if (!isfinite(ret->loss.total) || !isfinite(ret->norm))
        return kvf_fail(d, KVF_E_LIMIT,
                        "step %lld: the %s is not a finite number; the last "
                        "checkpoint is as it was; --fresh starts with a lower lr or clip",
                        (long long)ret->step, isfinite(ret->loss.total) ? "gradient" : "loss");
    optimizer_step(&t->opt.optimizer, t->step + 1, ret->norm, t->grad, t->net->w, t->m, t->v,
                   t->net->n);
    net_refresh(t->net, t->c.pool);
    t->step++;
    return KVF_OK;
}

/* Parameters and both moments as three tensors: the layout is in the configuration. */
static void describe(const struct trainer *t, struct checkpoint_tensor tensor[3])
{
    static const char *const name[] = {"parameters", "moment1", "moment2"};
    float *const data[] = {t->net->w, t->m, t->v};
    for (int i = 0; i < 3; i++)
        tensor[i] = (struct checkpoint_tensor){name[i], 1, {t->net->n, 1, 1}, data[i]};
}

int trainer_save(const struct trainer *t, const char *path, const char *config, const char *log,
                 struct kvf_diag *d)
{
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, t->step, (char *)(uintptr_t)log};
    describe(t, tensor);
    return checkpoint_write(path, &c, d);
}

int trainer_resume(struct trainer *t, const char *path, const char *config, char **ret_log,
                   int *ret_found, struct kvf_diag *d)
{
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, 0, NULL};
    describe(t, tensor);
    int err = checkpoint_read(path, &c, ret_found, d);
    if (err)
        return err;
    t->step = c.step;
    *ret_log = c.log;
    net_refresh(t->net, t->c.pool);
    return KVF_OK;
}

int trainer_write_gates(const struct trainer *t, const char *path, bool bf16, const char *hash,
                        const char *record, struct kvf_diag *d)
{
    const struct net *n = t->net;
    struct safetensors_item *item = MEM_NEW(struct safetensors_item, (size_t)n->n_tensors);
    const struct safetensors_note note[] = {
        {"kvfate.kind", n->facts.layout == LAYOUT_WGKV ? "write" : "retention"},
        {"kvfate.layout", n->layout->name},
        {"kvfate.model_hash", hash},
        {"training", record}};
    if (!item)
        return KVF_E_NOMEM;
    for (int i = 0; i < n->n_tensors; i++) {
        const struct net_tensor *p = &n->tensor[i];
        item[i] = (struct safetensors_item){p->name,
                                            p->n_dims,
                                            {p->dim[0], p->dim[1], p->dim[2], 1},
                                            n->w + p->at,
                                            bf16 ? WEIGHT_BF16 : WEIGHT_F32};
    }
    int err = safetensors_write(path, item, n->n_tensors, note, 4, d);
    mem_free(item);
    return err;
}
