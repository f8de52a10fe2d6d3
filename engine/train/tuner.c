/* tuner.c - trains a model's own weights under evictions, by distillation or from rewards. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stage.h"
#include "engine/train/parameters.h"
#include "engine/train/tuner.h"

/* The state of a training run. */
struct tuner {
    struct tuner_options opt;
    struct engine *e;
    struct engine student; /* e with the trained weights */
    struct packs *packs;
    struct compute c;
    struct frozen teacher;
    struct trainable *tuned;
    struct lora *lora; /* NULL: all weights are trained */
    struct pass *pass;
    struct parameters parameters;
    float *d_w;           /* [tuned->n] in device memory: gradient by the weights */
    float *grad;          /* [n] in device memory: gradient by the parameters; can be d_w */
    struct pack *pack;    /* [room] packs of a step or a validation */
    int32_t **evicted_at; /* [room][L, length, H] their masks */
    int room;
    int32_t *zero;          /* [length] zeros: an answer is one document */
    float *share, *sampled; /* [length] inputs for the tokens of an answer */
    int64_t step;
    struct stage stage; /* progress of a step or a validation: masks, then passes */
};

#define OF_MASKS 0.4 /* approximate fraction of time for decoding in a step */

static int create_parameters(struct tuner *t, struct kvf_diag *d)
{
    bool tied = !gguf_find(t->e->gguf, "output.weight");
    const struct ops *on = ops(&t->c);
    struct parameters *l = &t->parameters;
    int err = trainable_create(&t->c, &t->e->config, t->e->weights, tied, &t->tuned, d);
    if (!err && t->opt.lora.rank > 0)
        err = lora_create(t->tuned, &t->opt.lora, &t->lora, d);
    if (err)
        return err;
    if (t->lora)
        err = parameters_create(&t->c, t->lora->w, t->lora->n, t->lora->w_device, l);
    else
        err = parameters_create(&t->c, t->tuned->w, t->tuned->n, t->tuned->w_device, l);
    t->d_w = on->alloc(&t->c, t->tuned->n, sizeof *t->d_w);
    t->grad = t->lora ? on->alloc(&t->c, l->n, sizeof *t->grad) : t->d_w;
    size_t length = (size_t)t->opt.length;
    t->zero = MEM_NEW(int32_t, length);
    t->share = MEM_NEW(float, length);
    t->sampled = MEM_NEW(float, length);
    bool all = t->d_w && t->grad && t->zero && t->share && t->sampled;
    return err || all ? err : KVF_E_NOMEM;
}

/* Allocates masks for n packs. */
static int make_room(struct tuner *t, int n)
{
    const struct model_config *m = &t->e->config;
    size_t one = (size_t)m->n_layers * (size_t)t->opt.length * (size_t)m->n_kv_heads;
    if (n <= t->room)
        return KVF_OK;
    struct pack *pack = mem_grow(t->pack, (size_t)t->room, (size_t)n, sizeof *pack);
    if (!pack)
        return KVF_E_NOMEM;
    t->pack = pack;
    int32_t **evicted_at = mem_grow(t->evicted_at, (size_t)t->room, (size_t)n, sizeof *evicted_at);
    if (!evicted_at)
        return KVF_E_NOMEM;
    t->evicted_at = evicted_at;
    for (; t->room < n; t->room++) {
        evicted_at[t->room] = MEM_NEW(int32_t, one);
        if (!evicted_at[t->room])
            return KVF_E_NOMEM;
    }
    return KVF_OK;
}

static int create_parts(struct tuner *t, struct kvf_diag *d)
{
    const struct model_config *m = &t->e->config;
    int err = compute_open(&t->c, &t->e->kernels, t->e->pool, &t->opt.learner, d);
    t->stage = (struct stage){.watch = t->opt.pass.watch, .ctx = t->opt.pass.watch_ctx};
    t->c.progress = (struct progress_callback){stage_see, &t->stage};
    stage_set(&t->stage, 0, 1, 0, 2); /* teacher, then student */
    if (!err)
        err = frozen_build(&t->c, m, t->e->weights, &t->teacher, d);
    stage_set(&t->stage, 0, 1, 1, 2);
    if (!err)
        err = create_parameters(t, d);
    if (err)
        return err;
    t->student = *t->e;
    t->student.weights = &t->tuned->weights;
    err = make_room(t, t->opt.accumulate);
    if (err)
        return err;
    struct pass_options pass = t->opt.pass;
    pass.watch = stage_see;
    pass.watch_ctx = &t->stage;
    return pass_create(&t->c, &t->teacher, NULL, &pass, t->opt.length, &t->pass);
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
    int err = create_parts(t, d);
    if (err) {
        struct compute c = t->c;
        tuner_destroy(t);
        if (err != KVF_E_NOMEM)
            return err;
        return kvf_fail(d, err,
                        "not enough memory %sto train weights on packs of %d tokens; try shorter "
                        "ones, recomputation or %s",
                        ops_where(&c), opt->length,
                        opt->lora.rank > 0 ? "a smaller model" : "low-rank weights");
    }
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
        ops(&t->c)->free(&t->c, t->grad);
    ops(&t->c)->free(&t->c, t->d_w);
    parameters_finish(&t->parameters);
    for (int i = 0; i < t->room; i++)
        mem_free(t->evicted_at[i]);
    mem_free_all(t->evicted_at, t->pack, t->zero, t->share, t->sampled);
    lora_destroy(t->lora);
    trainable_destroy(t->tuned);
    compute_close(&t->c);
    mem_free(t);
}

int64_t tuner_steps(const struct tuner *t)
{
    return t->step;
}

size_t tuner_parameters(const struct tuner *t)
{
    return t->parameters.n;
}

/* Counts weights, packed matrices and so on. A packed matrix in one direction is as large as the
 * matrix. The teacher has both directions, and its output matrix a third time for decoding. */
size_t tuner_bytes(const struct tuner *t)
{
    const struct model_config *m = t->tuned->config;
    size_t copies = 6, moments = (t->lora ? 3 : 2) * t->parameters.n;
    size_t head = (size_t)m->vocab * (size_t)m->d_model;
    return (copies * t->tuned->n + moments + head) * sizeof(float) + pass_bytes(t->pass);
}

const struct trainable *tuner_weights(const struct tuner *t)
{
    return t->tuned;
}

const struct lora *tuner_lora(const struct tuner *t)
{
    return t->lora;
}

/* Updates the student after its parameters have changed. */
static void refresh(struct tuner *t)
{
    if (t->lora)
        lora_refresh(t->lora, &t->c);
    else
        trainable_refresh(t->tuned, t->c.pool);
}

/* Decodes n packs to make their masks. */
static int make_masks(struct tuner *t, const struct session_options *method,
                      const struct pack *pack, int n, int64_t *ret_evicted, struct kvf_diag *d)
{
    stage_set(&t->stage, 0, OF_MASKS, 0, 1);
    return masks_make(&t->student, method, t->opt.prompt, pack, n, t->evicted_at, ret_evicted,
                      &t->stage, d);
}

/* Runs the pass over a pack, with its recorded mask or else `made` (NULL: none). */
static int run_pass(struct tuner *t, const int32_t *made, const struct pack *pack, double weight,
                    float *d_w, struct pass_loss *ret, struct kvf_diag *d)
{
    pass_mask(t->pass, pack->evicted_at ? pack->evicted_at : made);
    pass_tune(t->pass, t->tuned, d_w);
    pass_run(t->pass, pack, weight, NULL, NULL, ret);
    return ops(&t->c)->check(&t->c, d);
}

int tuner_evaluate(struct tuner *t, const struct session_options *method, const struct pack *pack,
                   int n, struct pass_loss *ret, struct kvf_diag *d)
{
    static const double divergence[QUALITY_TERMS] = {[QUALITY_FWKL] = 1};
    int err = make_room(t, n);
    pass_weigh(t->pass, divergence);
    if (!err)
        err = make_masks(t, method, pack, n, NULL, d);
    for (int i = 0; !err && i < n; i++) {
        stage_set(&t->stage, OF_MASKS, 1, i, n);
        err = run_pass(t, t->evicted_at[i], &pack[i], 1, NULL, &ret[i], d);
    }
    return err;
}

/* Counts the recorded evictions of a pack. */
static int64_t count_left(const struct tuner *t, const struct pack *pack)
{
    size_t n = (size_t)pack->n * (size_t)t->e->config.n_layers * (size_t)t->e->config.n_kv_heads;
    int64_t left = 0;
    for (size_t i = 0; pack->evicted_at && i < n; i++)
        left += pack->evicted_at[i] != INT32_MAX;
    return left;
}

static int run_packs(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
                     struct kvf_diag *d)
{
    int64_t n = packs_count(t->packs), first = t->step * t->opt.accumulate;
    int A = t->opt.accumulate;
    for (int a = 0; a < A; a++) {
        int64_t i = first + a;
        t->pack[a] = packs_get(t->packs, t->opt.seed, i / n, (int)(i % n));
        ret->tokens += t->pack[a].n;
    }
    int err = KVF_OK;
    bool masks = method && !t->pack[0].evicted_at;
    if (masks)
        err = make_masks(t, method, t->pack, A, &ret->n_evicted, d);
    if (err)
        return err;
    for (int a = 0; a < A; a++)
        ret->n_evicted += count_left(t, &t->pack[a]);
    ops(&t->c)->zero(&t->c, t->d_w, t->tuned->n * sizeof *t->d_w);
    pass_weigh(t->pass, t->opt.pass.quality);
    for (int a = 0; !err && a < A; a++) {
        struct pass_loss l;
        stage_set(&t->stage, masks ? OF_MASKS : 0, 1, a, A);
        err = run_pass(t, method ? t->evicted_at[a] : NULL, &t->pack[a], 1.0 / A, t->d_w, &l, d);
        pass_loss_add(&ret->loss, &l, 1.0 / A);
    }
    return err;
}

/* Makes an optimizer step from the gradient in d_w. */
static int learn(struct tuner *t, struct tuner_step *ret, struct kvf_diag *d)
{
    if (t->lora)
        lora_gradient(t->lora, &t->c, t->d_w, t->grad);
    ret->norm = ops(&t->c)->l2_norm(&t->c, t->grad, t->parameters.n);
    ret->rate = optimizer_rate(&t->opt.optimizer, t->step + 1);
    int err = ops(&t->c)->check(&t->c, d);
    if (err)
        return err;
    if (!isfinite(ret->loss.total) || !isfinite(ret->norm))
        return kvf_fail(d, KVF_E_LIMIT,
                        "step %lld: the %s is not a finite number; the last checkpoint is as it "
                        "was; --fresh starts with a lower --lr",
                        (long long)ret->step, isfinite(ret->loss.total) ? "gradient" : "loss");
    parameters_step(&t->parameters, &t->opt.optimizer, t->step + 1, ret->norm, t->grad);
    err = parameters_to_host(&t->parameters, d); /* the CPU decodes with the new parameters */
    if (err)
        return err;
    refresh(t);
    t->step++;
    return ops(&t->c)->check(&t->c, d);
}

int tuner_step(struct tuner *t, const struct session_options *method, struct tuner_step *ret,
               struct kvf_diag *d)
{
    *ret = (struct tuner_step){.step = t->step + 1};
    int err = run_packs(t, method, ret, d);
    return err ? err : learn(t, ret, d);
}

/* Runs the pass over an answer; each of its tokens has weight `share`. */
static int run_answer(struct tuner *t, const struct answer *a, double share, double weight,
                      float *d_w, struct pass_loss *ret, struct kvf_diag *d)
{
    struct pack pack = {a->ids, t->zero, a->prompt + a->n, a->evicted_at};
    memset(t->share, 0, (size_t)pack.n * sizeof *t->share);
    for (int i = 0; i < a->n; i++) {
        t->share[a->prompt - 1 + i] = (float)share;
        t->sampled[a->prompt - 1 + i] = a->log_p[i];
    }
    pass_share(t->pass, t->share);
    int err = run_pass(t, NULL, &pack, weight, d_w, ret, d);
    pass_share(t->pass, NULL);
    return err;
}

int tuner_reinforce(struct tuner *t, const struct answer *answers, int n_questions, int samples,
                    double range, struct tuner_step *ret, struct kvf_diag *d)
{
    static const double policy[QUALITY_TERMS] = {[QUALITY_NTP] = 1};
    *ret = (struct tuner_step){.step = t->step + 1};
    int err = KVF_OK;
    if (ops_of_device(&t->c))
        return kvf_fail(d, KVF_E_ARG, "a device does not learn from rewards: use the processor");
    ops(&t->c)->zero(&t->c, t->d_w, t->tuned->n * sizeof *t->d_w);
    pass_weigh(t->pass, policy);
    pass_policy(t->pass, t->sampled, range);
    for (int i = 0; !err && i < n_questions * samples; i++) {
        const struct answer *a = &answers[i];
        struct pass_loss l;
        ret->n_evicted += a->n_evicted;
        ret->tokens += a->prompt + a->n;
        if (a->advantage == 0)
            continue;
        stage_set(&t->stage, 0, 1, i, n_questions * samples);
        err = run_answer(t, a, a->advantage / (samples * a->n), 1.0 / n_questions, t->d_w, &l, d);
        pass_loss_add(&ret->loss, &l, 1.0 / n_questions);
    }
    pass_policy(t->pass, NULL, 0);
    return err ? err : learn(t, ret, d);
}

int tuner_answers_kl(struct tuner *t, const struct answer *answers, int n, double *ret,
                     struct kvf_diag *d)
{
    int err = KVF_OK;
    static const double divergence[QUALITY_TERMS] = {[QUALITY_FWKL] = 1};
    pass_weigh(t->pass, divergence);
    for (int i = 0; !err && i < n; i++) {
        struct pass_loss l;
        stage_set(&t->stage, 0, 1, i, n);
        err = run_answer(t, &answers[i], 1.0 / answers[i].n, 1, NULL, &l, d);
        ret[i] = l.term[QUALITY_FWKL];
    }
    return err;
}

struct engine *tuner_student(struct tuner *t)
{
    return &t->student;
}

int tuner_save(const struct tuner *t, const char *path, const char *config, const char *log,
               struct kvf_diag *d)
{
    return parameters_save(&t->parameters, path, config, t->step, log, d);
}

int tuner_resume(struct tuner *t, const char *path, const char *config, char **ret_log,
                 int *ret_found, struct kvf_diag *d)
{
    int err = parameters_resume(&t->parameters, path, config, &t->step, ret_log, ret_found, d);
    if (err)
        return err;
    refresh(t);
    return ops(&t->c)->check(&t->c, d);
}
