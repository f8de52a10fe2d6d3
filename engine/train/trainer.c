/* trainer.c - trains gates: forward and backward passes over packs, then an optimizer step. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stage.h"
#include "engine/gate/safetensors_write.h"
#include "engine/train/parameters.h"
#include "engine/train/trainer.h"

/* The state of a training run. */
struct trainer {
    struct trainer_options opt;
    struct engine *e;
    struct packs *packs;
    struct compute c;
    struct frozen frozen;
    struct net *net;
    struct pass *pass;
    struct parameters parameters;
    struct stage stage; /* progress of a step, pack by pack */
    float *host_grad;   /* [net->n] a gradient on the host, for a team */
    float *grad;        /* [net->n] the gradient in device memory */
    float *sum;         /* [net->n] sum of gradients in device memory; NULL: one pack per step */
    int64_t step;
};

static int create_gradients(struct trainer *t)
{
    const struct ops *on = ops(&t->c);
    t->net->w_device = on->device_copy(&t->c, t->net->w, t->net->n);
    if (!t->net->w_device)
        return KVF_E_NOMEM;
    int err = parameters_create(&t->c, t->net->w, t->net->n, t->net->w_device, &t->parameters);
    t->host_grad = MEM_NEW(float, t->net->n);
    if (t->host_grad)
        t->grad = on->device_copy(&t->c, t->host_grad, t->net->n);
    if (t->opt.accumulate > 1)
        t->sum = on->alloc(&t->c, t->net->n, sizeof *t->sum);
    bool good = t->grad && (t->sum || t->opt.accumulate == 1);
    return err || good ? err : KVF_E_NOMEM;
}

static int create_parts(struct trainer *t, struct kvf_diag *d)
{
    const struct model_config *m = &t->e->config;
    struct gates_model gm = gates_model_from(m, NULL, &t->c.k);
    int err = net_create(&gm, &t->opt.net, &t->net);
    if (err)
        return err;
    err = frozen_check(m, FEATURES_OF_GATES, d);
    if (!err)
        err = frozen_build(&t->c, m, t->e->weights, &t->frozen, d);
    if (err)
        return err;
    struct pass_options pass = t->opt.pass;
    t->stage = (struct stage){.watch = pass.watch, .ctx = pass.watch_ctx};
    pass.watch = stage_see;
    pass.watch_ctx = &t->stage;
    err = pass_create(&t->c, &t->frozen, t->net, &pass, t->opt.length, &t->pass);
    if (err)
        return err;
    return create_gradients(t);
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
    int err = compute_open(&t->c, &e->kernels, e->pool, &opt->learner, d);
    t->c.progress = (struct progress_callback){opt->pass.watch, opt->pass.watch_ctx};
    if (!err)
        err = create_parts(t, d);
    if (err) {
        struct compute c = t->c;
        trainer_destroy(t);
        if (err != KVF_E_NOMEM)
            return err;
        return kvf_fail(d, err,
                        "not enough memory %sto train on packs of %d tokens; try shorter "
                        "ones or recomputation",
                        ops_where(&c), opt->length);
    }
    *ret_trainer = t;
    return KVF_OK;
}

void trainer_destroy(struct trainer *t)
{
    if (!t)
        return;
    pass_destroy(t->pass);
    if (t->net)
        ops(&t->c)->device_copy_free(&t->c, t->net->w_device);
    net_destroy(t->net);
    frozen_finish(&t->frozen);
    parameters_finish(&t->parameters);
    ops(&t->c)->device_copy_free(&t->c, t->grad);
    ops(&t->c)->free(&t->c, t->sum);
    mem_free(t->host_grad);
    compute_close(&t->c);
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

/* Computes the gradient of pack a of a step in t->grad, or receives it from its owner. */
static int run_pack(struct trainer *t, int a, struct pass_loss *ret, int64_t *tokens,
                    struct kvf_diag *d)
{
    const struct ops *on = ops(&t->c);
    const struct trainer_team *team = t->opt.team;
    int64_t n = packs_count(t->packs), i = t->step * t->opt.accumulate + a;
    struct pack pack = packs_get(t->packs, t->opt.seed, i / n, (int)(i % n));
    int owner = team ? a % team->size : 0, err = KVF_OK;
    size_t bytes = t->net->n * sizeof *t->grad;
    *tokens += pack.n;
    stage_set(&t->stage, 0, 1, a, t->opt.accumulate);
    if (!team || owner == team->rank) {
        on->zero(&t->c, t->grad, bytes);
        pass_run(t->pass, &pack, 1.0 / t->opt.accumulate, t->grad, NULL, ret);
        err = on->check(&t->c, d);
    }
    if (!team || err)
        return err;
    on->to_host(&t->c, t->host_grad, t->grad, bytes);
    err = team->broadcast(team->ctx, owner, t->host_grad, bytes, d);
    on->to_device(&t->c, t->grad, t->host_grad, bytes);
    return err ? err : team->broadcast(team->ctx, owner, ret, sizeof *ret, d);
}

/* Sums the gradients of the packs in their order. The result does not depend on the processes that
 * compute them. */
static int run_packs(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d)
{
    const struct ops *on = ops(&t->c);
    size_t n = t->net->n;
    int err = KVF_OK;
    if (t->sum)
        on->zero(&t->c, t->sum, n * sizeof *t->sum);
    for (int a = 0; !err && a < t->opt.accumulate; a++) {
        struct pass_loss l = {0};
        err = run_pack(t, a, &l, &ret->tokens, d);
        if (t->sum && !err)
            on->scale_add(&t->c, t->sum, t->grad, n, 1.0f);
        add_loss(&ret->loss, &l, 1.0 / t->opt.accumulate);
    }
    return err;
}

int trainer_step(struct trainer *t, struct trainer_step *ret, struct kvf_diag *d)
{
    const float *grad = t->sum ? t->sum : t->grad;
    *ret = (struct trainer_step){.step = t->step + 1};
    int err = run_packs(t, ret, d);
    if (err)
        return err;
    ret->norm = ops(&t->c)->l2_norm(&t->c, grad, t->net->n);
    ret->rate = optimizer_rate(&t->opt.optimizer, t->step + 1);
    err = ops(&t->c)->check(&t->c, d);
    if (err)
        return err;
    if (!isfinite(ret->loss.total) || !isfinite(ret->norm))
        return kvf_fail(d, KVF_E_LIMIT,
                        "step %lld: the %s is not a finite number; the last "
                        "checkpoint is as it was; --fresh starts with a lower lr or clip",
                        (long long)ret->step, isfinite(ret->loss.total) ? "gradient" : "loss");
    parameters_step(&t->parameters, &t->opt.optimizer, t->step + 1, ret->norm, grad);
    ops(&t->c)->net_refresh(&t->c, t->net);
    t->step++;
    return KVF_OK;
}

int trainer_save(const struct trainer *t, const char *path, const char *config, const char *log,
                 struct kvf_diag *d)
{
    return parameters_save(&t->parameters, path, config, t->step, log, d);
}

int trainer_resume(struct trainer *t, const char *path, const char *config, char **ret_log,
                   int *ret_found, struct kvf_diag *d)
{
    int err = parameters_resume(&t->parameters, path, config, &t->step, ret_log, ret_found, d);
    if (!err)
        ops(&t->c)->net_refresh(&t->c, t->net);
    return err;
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
    int err = parameters_to_host(&t->parameters, d);
    if (!err)
        err = safetensors_write(path, item, n->n_tensors, note, 4, d);
    mem_free(item);
    return err;
}
