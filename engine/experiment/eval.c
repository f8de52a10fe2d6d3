/* eval.c - evaluates cells on one text, token by token, against the full cache. */
#include <string.h>

#include "base/mem.h"
#include "engine/experiment/divergence.h"
#include "engine/experiment/eval.h"

/* The evaluation of a group of cells on one text. */
struct trial {
    const struct eval *e;
    const struct eval_text *x;
    struct lanes lanes;
    struct batch *batch;
    struct eval_result sum[LANES_MOST];
    struct reference p; /* prediction of the next token with the full cache */
    int32_t target;
};

static void score_task(void *ctx, int i, int thread)
{
    struct trial *t = ctx;
    struct eval_result *sum = &t->sum[i];
    struct divergence v = divergence(&t->p, session_logits(t->lanes.lane[i]), t->target);
    (void)thread;
    sum->nll += v.nll;
    sum->kl += v.kl;
    sum->agree += v.agree;
    sum->right += v.right;
}

static void count_entries(struct trial *t, int i)
{
    const struct model_config *m = &t->e->engine->config;
    const struct eval_cell *c = &t->lanes.cell[i];
    const struct session *s = t->lanes.lane[i];
    struct eval_result *sum = &t->sum[i];
    double n = (double)session_cache_stats(s).entries;
    n /= (double)m->n_layers * (double)session_cache_heads(m, &c->row, &c->params);
    sum->kv_end = n;
    sum->kv_mean += n;
    if (n > sum->kv_peak)
        sum->kv_peak = n;
    sum->triggers = session_cuts(s);
}

/* Returns true if the token after the prompt is scored. */
static bool counts(const struct eval_text *x, int step)
{
    return step >= x->question && (!x->counts || x->counts[step - x->question]);
}

/* Scores the next token in all cells if it counts, then feeds it. */
static int advance(struct trial *t, int step)
{
    struct lanes *l = &t->lanes;
    int32_t id = t->x->ids[t->x->prompt + step];
    t->target = id;
    if (counts(t->x, step)) {
        reference_set(&t->p, session_logits(l->full));
        par_run(t->e->engine->pool, l->n, score_task, t);
    }
    struct session *s[LANES_MOST + 1] = {l->full};
    int32_t ids[LANES_MOST + 1] = {id};
    for (int i = 0; i < l->n; i++) {
        s[i + 1] = l->lane[i];
        ids[i + 1] = id;
    }
    int err = batch_step(t->batch, s, l->n + 1, ids);
    if (err)
        return err;
    for (int i = 0; i < l->n && step >= t->x->question; i++)
        count_entries(t, i);
    return KVF_OK;
}

static void finish(struct trial *t)
{
    lanes_close(&t->lanes);
    batch_destroy(t->batch);
    mem_free(t->p.p);
}

static int run(struct trial *t, struct kvf_diag *d)
{
    t->p.n = t->e->engine->config.vocab;
    t->p.p = MEM_NEW(double, (size_t)t->p.n);
    int err = t->p.p ? batch_create(t->e->engine, t->lanes.n + 1, &t->batch) : KVF_E_NOMEM;
    if (!err)
        err = lanes_open(&t->lanes, t->x->ids, t->x->prompt, d);
    for (int i = 0; !err && i < t->x->score; i++) {
        err = advance(t, i);
        if (t->e->progress)
            t->e->progress(t->e->ctx, t->lanes.n);
    }
    return err;
}

static struct eval_result mean_of(const struct eval_result *sum, const struct eval_text *x)
{
    struct eval_result r = *sum;
    int n = 0;
    for (int i = 0; i < x->score; i++)
        n += counts(x, i);
    r.nll /= n;
    r.kl /= n;
    r.agree /= n;
    r.right = r.right == n;
    r.kv_mean /= x->score - x->question;
    return r;
}

/* Returns the lanes of the cells from `at` on, as many as run together. */
static struct lanes lanes_of(const struct eval *e, const struct eval_text *x,
                             const struct eval_cell *cell, int at, int n)
{
    return (struct lanes){.engine = e->engine,
                          .kv_type = e->kv_type,
                          .chunk = e->chunk,
                          .cap = x->prompt + x->score,
                          .cell = cell + at,
                          .n = n - at < LANES_MOST ? n - at : LANES_MOST,
                          .progress = e->progress,
                          .ctx = e->ctx};
}

int64_t eval_tokens(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                    int n)
{
    int64_t tokens = (int64_t)n * x->score;
    for (int at = 0; at < n; at += LANES_MOST) {
        struct lanes l = lanes_of(e, x, cell, at, n);
        tokens += (int64_t)lanes_prompts(&l) * x->prompt;
    }
    return tokens;
}

int eval_document(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                  int n, struct eval_result *ret_result, struct kvf_diag *d)
{
    struct trial *t = MEM_NEW(struct trial, 1);
    int err = t ? KVF_OK : KVF_E_NOMEM;
    for (int at = 0; !err && at < n; at += LANES_MOST) {
        *t = (struct trial){.e = e, .x = x, .lanes = lanes_of(e, x, cell, at, n)};
        err = run(t, d);
        for (int i = 0; !err && i < t->lanes.n; i++)
            ret_result[at + i] = mean_of(&t->sum[i], x);
        finish(t);
    }
    mem_free(t);
    return err;
}
