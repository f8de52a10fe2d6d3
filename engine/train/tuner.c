#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train/checkpoint.h"
#include "engine/train/tuner.h"

struct tuner {
    struct tuner_options opt;
    struct engine *e;
    struct engine student; /* e with the weights that learn */
    struct packs *packs;
    struct compute c;
    struct frozen teacher;
    struct tuned *tuned;
    struct lora *lora; /* NULL: all weights learn */
    struct pass *pass;
    float *w;    /* [n] parameters, borrowed from tuned or lora */
    float *d_w;  /* [tuned->n] derivatives by the weights */
    float *grad; /* [n] by the parameters: d_w where all weights learn */
    float *m, *v;
    int32_t *gone; /* [L, length, H] */
    size_t n;
    int64_t step;
};

static int create_parameters(struct tuner *t, struct kvf_diag *d)
{
    bool tied = !gguf_find(t->e->gguf, "output.weight");
    int err = tuned_create(&t->e->config, t->e->weights, tied, &t->tuned, d);
    if (!err && t->opt.lora.rank > 0)
        err = lora_create(t->tuned, &t->opt.lora, &t->lora, d);
    if (err)
        return err;
    t->w = t->lora ? t->lora->w : t->tuned->w;
    t->n = t->lora ? t->lora->n : t->tuned->n;
    t->d_w = MEM_NEW(float, t->tuned->n);
    t->grad = t->lora ? MEM_NEW(float, t->n) : t->d_w;
    t->m = MEM_NEW(float, t->n);
    t->v = MEM_NEW(float, t->n);
    return t->d_w && t->grad && t->m && t->v ? KVF_OK : KVF_E_NOMEM;
}

static int create_parts(struct tuner *t, struct kvf_diag *d)
{
    const struct model_config *m = &t->e->config;
    int err = frozen_build(m, t->e->weights, t->c.pool, &t->teacher, d);
    if (!err)
        err = create_parameters(t, d);
    if (err)
        return err;
    t->student = *t->e;
    t->student.weights = &t->tuned->weights;
    t->gone = MEM_NEW(int32_t,
                      ((size_t)m->n_layers * (size_t)t->opt.length * (size_t)m->n_kv_heads));
    if (!t->gone)
        return KVF_E_NOMEM;
    return pass_create(&t->c, &t->teacher, NULL, &t->opt.pass, t->opt.length, &t->pass);
}

int tuner_create(struct engine *e, struct packs *packs, const struct tuner_options *opt,
                 struct tuner **ret, struct kvf_diag *d)
{
    struct tuner *t = MEM_NEW(struct tuner, 1);
    if (!t)
        return KVF_E_NOMEM;
    t->opt = *opt;
    t->e = e;
    t->packs = packs;
    t->c = (struct compute){e->kernels, e->pool};
    int err = create_parts(t, d);
    if (err) {
        tuner_destroy(t);
        if (err != KVF_E_NOMEM)
            return err;
        return kvf_fail(d, err,
                        "not enough memory to train all weights on packs of %d tokens; try "
                        "shorter ones, recomputation or low-rank weights",
                        opt->length);
    }
    pass_mask(t->pass, t->gone);
    *ret = t;
    return KVF_OK;
}

void tuner_destroy(struct tuner *t)
{
    if (!t)
        return;
    pass_destroy(t->pass);
    frozen_finish(&t->teacher);
    if (t->grad != t->d_w)
        mem_free(t->grad);
    mem_free(t->d_w);
    mem_free(t->m);
    mem_free(t->v);
    mem_free(t->gone);
    lora_destroy(t->lora);
    tuned_destroy(t->tuned);
    mem_free(t);
}

int64_t tuner_steps(const struct tuner *t)
{
    return t->step;
}

size_t tuner_parameters(const struct tuner *t)
{
    return t->n;
}

/* Packs of a matrix in one direction take as much as the matrix; the teacher has both, too. */
size_t tuner_bytes(const struct tuner *t)
{
    size_t copies = 6, moments = 2 * t->n + (t->lora ? t->n : 0);
    return (copies * t->tuned->n + moments) * sizeof(float) + pass_bytes(t->pass);
}

const struct tuned *tuner_weights(const struct tuner *t)
{
    return t->tuned;
}

const struct lora *tuner_lora(const struct tuner *t)
{
    return t->lora;
}

static void refresh(struct tuner *t)
{
    if (t->lora)
        lora_refresh(t->lora, &t->c);
    else
        tuned_refresh(t->tuned, t->c.pool);
}

static void add_loss(struct pass_loss *sum, const struct pass_loss *l, double weight)
{
    sum->total += weight * l->total;
    sum->positions += l->positions;
    for (int i = 0; i < QUALITY_TERMS; i++)
        sum->term[i] += weight * l->term[i];
}

int tuner_judge(struct tuner *t, const struct session_options *method, const struct pack *pack,
                struct pass_loss *ret, struct kvf_diag *d)
{
    int err = masks_make(&t->student, method, t->opt.prompt, pack, t->gone, NULL, d);
    if (err)
        return err;
    pass_tune(t->pass, t->tuned, NULL);
    pass_run(t->pass, pack, 1, NULL, NULL, ret);
    return KVF_OK;
}

static int run_packs(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
                     struct kvf_diag *d)
{
    int64_t n = packs_count(t->packs);
    memset(t->d_w, 0, t->tuned->n * sizeof *t->d_w);
    for (int a = 0; a < t->opt.accumulate; a++) {
        int64_t i = t->step * t->opt.accumulate + a, left;
        struct pack pack = packs_get(t->packs, t->opt.seed, i / n, (int)(i % n));
        struct pass_loss l;
        int err = masks_make(&t->student, method, t->opt.prompt, &pack, t->gone, &left, d);
        if (err)
            return err;
        ret->left += left;
        ret->tokens += pack.n;
        pass_tune(t->pass, t->tuned, t->d_w);
        pass_run(t->pass, &pack, 1.0 / t->opt.accumulate, NULL, NULL, &l);
        add_loss(&ret->loss, &l, 1.0 / t->opt.accumulate);
    }
    return KVF_OK;
}

int tuner_step(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
               struct kvf_diag *d)
{
    *ret = (struct tuner_step){.step = t->step + 1};
    int err = run_packs(t, method, ret, d);
    if (err)
        return err;
    if (t->lora)
        lora_gradient(t->lora, &t->c, t->d_w, t->grad);
    ret->norm = optimizer_norm(t->grad, t->n);
    ret->rate = optimizer_rate(&t->opt.optimizer, t->step + 1);
    if (!isfinite(ret->loss.total) || !isfinite(ret->norm))
        return kvf_fail(d, KVF_E_LIMIT,
                        "step %lld: the %s is not a finite number; the last checkpoint is as it "
                        "was; --fresh starts with a lower --lr",
                        (long long)ret->step, isfinite(ret->loss.total) ? "gradient" : "loss");
    optimizer_step(&t->opt.optimizer, t->step + 1, ret->norm, t->grad, t->w, t->m, t->v, t->n);
    refresh(t);
    t->step++;
    return KVF_OK;
}

/* Parameters and both moments as three tensors: the layout is in the configuration. */
static void describe(const struct tuner *t, struct checkpoint_tensor tensor[3])
{
    static const char *const name[] = {"parameters", "moment1", "moment2"};
    float *const data[] = {t->w, t->m, t->v};
    for (int i = 0; i < 3; i++)
        tensor[i] = (struct checkpoint_tensor){name[i], 1, {t->n, 1, 1}, data[i]};
}

int tuner_save(const struct tuner *t, const char *path, const char *config, const char *log,
               struct kvf_diag *d)
{
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, t->step, (char *)(uintptr_t)log};
    describe(t, tensor);
    return checkpoint_write(path, &c, d);
}

int tuner_resume(struct tuner *t, const char *path, const char *config, char **ret_log,
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
    refresh(t);
    return KVF_OK;
}
