/* answers.c - decodes one answer per cell of open lanes, one batched step per token. */
#include "engine/experiment/answers.h"

#include "base/mem.h"
#include "engine/decode/sampler.h"

/* The state of a decoding. */
struct round {
    struct lanes *l;
    const struct answers *a;
    struct batch *batch;
    struct sampler sampler[LANES_MOST];
    bool unfinished[LANES_MOST];
    int32_t id[LANES_MOST]; /* the token that each cell drew last */
    const float *logits[LANES_MOST];
};

static void draw_task(void *ctx, int i, int thread)
{
    struct round *r = ctx;
    (void)thread;
    if (r->unfinished[i])
        r->id[i] = sampler_next(&r->sampler[i], r->logits[i]);
}

/* Draws or takes the next token of every unfinished answer, and returns the number of answers that
 * continue. */
static int take_tokens(struct round *r, int at)
{
    int unfinished = 0, n = r->l->n;
    for (int i = 0; i < n; i++)
        if (r->unfinished[i])
            r->logits[i] = session_logits(lanes_session(r->l, i));
    if (!r->a->forced)
        par_run(r->l->engine->pool, n, draw_task, r);
    for (int i = 0; i < n; i++) {
        if (!r->unfinished[i])
            continue;
        if (r->a->forced)
            r->id[i] = r->a->forced[at];
        r->unfinished[i] = r->a->take(r->a->ctx, i, r->id[i], r->logits[i])
                           && session_length(lanes_session(r->l, i)) < lanes_cap(r->l, i);
        unfinished += r->unfinished[i];
    }
    return unfinished;
}

/* Feeds the tokens. Cells that share the session of the full cache have equal tokens, which are
 * fed once. */
static int feed(struct round *r)
{
    struct session *s[LANES_MOST];
    int32_t ids[LANES_MOST];
    int n = 0;
    bool fed_full = false;
    for (int i = 0; i < r->l->n; i++) {
        bool shared = !r->l->lane[i];
        if (!r->unfinished[i] || (shared && fed_full))
            continue;
        fed_full |= shared;
        s[n] = lanes_session(r->l, i);
        ids[n++] = r->id[i];
    }
    return batch_step(r->batch, s, n, ids);
}

static int decode(struct round *r)
{
    const struct answers *a = r->a;
    int err = KVF_OK, most = r->l->cap - session_length(r->l->full) + 1;
    most = a->most < most ? a->most : most;
    for (int at = 0; !err && at < most; at++) {
        if (a->stop && a->stop(a->ctx))
            return KVF_E_CANCEL;
        if (take_tokens(r, at) == 0 || at + 1 == most)
            return KVF_OK;
        err = feed(r);
    }
    return err;
}

int answers_run(struct lanes *l, const struct answers *a)
{
    struct round *r = MEM_NEW(struct round, 1);
    int err = r ? batch_create(l->engine, l->n, &r->batch) : KVF_E_NOMEM;
    for (int i = 0; !err && i < l->n; i++) {
        r->unfinished[i] = true;
        err = sampler_init(&r->sampler[i], a->temperature, a->top_p, a->seed,
                           l->engine->config.vocab);
    }
    if (!err) {
        r->l = l;
        r->a = a;
        err = decode(r);
    }
    for (int i = 0; r && i < l->n; i++)
        sampler_finish(&r->sampler[i]);
    if (r)
        batch_destroy(r->batch);
    mem_free(r);
    return err;
}
