/* rollout.c - samples answers under a cache method and records their evictions. */
#include "engine/train/rollout.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* An answer in progress, and the destination of its session's evictions. */
struct run {
    struct session *session;
    struct answer *a;
    const struct question *q;
    int32_t *evicted_at; /* [L, room, H] */
    int room, heads, sample;
    int64_t n_evicted;
};

/* All answers in progress. */
struct runs {
    struct engine *e;
    const struct rollout_options *opt;
    struct run *run; /* [n] */
    int n;
    struct session **session; /* [n] scratch: sessions with a next token */
    int32_t *id;              /* [n] their next tokens */
    double *p;                /* [vocab] scratch */
    int read;                 /* processed questions */
};

static void on_evict(void *ctx, const struct eviction *e)
{
    struct run *r = ctx;
    size_t at = (size_t)e->layer * (size_t)r->room + (size_t)e->pos;
    r->evicted_at[at * (size_t)r->heads + (size_t)e->head] = e->t;
    r->n_evicted++;
}

static size_t mask_size(const struct model_config *m, int tokens)
{
    return (size_t)m->n_layers * (size_t)tokens * (size_t)m->n_kv_heads;
}

static int create_answer(struct run *r, const struct runs *all)
{
    struct answer *a = r->a;
    size_t n = mask_size(&all->e->config, r->room);
    *a = (struct answer){.prompt = r->q->n,
                         .ids = MEM_NEW(int32_t, (size_t)r->room),
                         .log_p = MEM_NEW(float, (size_t)all->opt->max_tokens)};
    r->evicted_at = MEM_NEW(int32_t, n);
    if (!a->ids || !a->log_p || !r->evicted_at)
        return KVF_E_NOMEM;
    memcpy(a->ids, r->q->ids, (size_t)r->q->n * sizeof *a->ids);
    for (size_t i = 0; i < n; i++)
        r->evicted_at[i] = INT32_MAX;
    return KVF_OK;
}

/* Reports progress. The prefill of a question counts as much as one token of all its answers. */
static void tell(const struct runs *all, int tokens)
{
    int questions = all->n / all->opt->samples;
    if (all->opt->watch)
        stage_see(all->opt->watch, (uint64_t)(all->read + tokens * questions),
                  (uint64_t)(questions * (1 + all->opt->max_tokens)));
}

/* Runs the prefill of a question once. Sessions of further samples are forks, with the evictions of
 * the prefill. */
static int open_question(struct runs *all, struct run *r, struct kvf_diag *d)
{
    struct session_options o = *all->opt->session;
    int err = KVF_OK, samples = all->opt->samples;
    for (int s = 0; !err && s < samples; s++)
        err = create_answer(&r[s], all);
    o.cap = r->room;
    o.recorder = NULL;
    if (!err)
        err = session_create(all->e, &o, &r->session, d);
    if (err)
        return err;
    session_on_evict(r->session, on_evict, r);
    err = session_prompt(r->session, r->q->ids, r->q->n, NULL, NULL);
    for (int s = 1; !err && s < samples; s++) {
        err = session_fork(r->session, NULL, &r[s].session, d);
        if (err)
            break;
        session_on_evict(r[s].session, on_evict, &r[s]);
        memcpy(r[s].evicted_at, r->evicted_at,
               mask_size(&all->e->config, r->room) * sizeof *r->evicted_at);
        r[s].n_evicted = r->n_evicted;
    }
    all->read++;
    tell(all, 0);
    return err;
}

/* Draws the next token and records its log-probability and the entropy of the distribution. */
static int32_t draw(const struct runs *all, struct run *r)
{
    const float *logit = session_logits(r->session);
    int V = all->e->config.vocab, id = 0;
    double top = (double)logit[0], total = 0, mean = 0;
    for (int i = 1; i < V; i++)
        top = fmax(top, (double)logit[i]);
    for (int i = 0; i < V; i++) {
        double x = ((double)logit[i] - top) / all->opt->temperature;
        all->p[i] = exp(x);
        total += all->p[i];
        mean += all->p[i] * x;
    }
    struct rng g;
    rng_init(&g, rng_hash(all->opt->seed, r->q->number, (uint64_t)r->sample, (uint64_t)r->a->n));
    double u = rng_uniform(&g) * total;
    while (id < V - 1 && u >= all->p[id])
        u -= all->p[id++];
    r->a->log_p[r->a->n] = (float)(((double)logit[id] - top) / all->opt->temperature - log(total));
    r->a->entropy += log(total) - mean / total;
    return id;
}

static bool ends(const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *bytes = tokenizer_bytes(t, id, &n);
    return tokenizer_is_eog(t, id) || memchr(bytes, '\n', n);
}

/* Draws the next token of every unfinished answer, then feeds the tokens of those that continue. */
static int advance(struct runs *all, struct batch *batch, int *ret_n)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        struct run *r = &all->run[i];
        if (r->a->ended || r->a->n == all->opt->max_tokens)
            continue;
        int32_t id = draw(all, r);
        r->a->ids[r->q->n + r->a->n++] = id;
        r->a->ended = ends(all->e->tokenizer, id);
        if (r->a->ended || r->a->n == all->opt->max_tokens)
            continue;
        all->session[n] = r->session;
        all->id[n++] = id;
    }
    *ret_n = n;
    return n ? batch_step(batch, all->session, n, all->id) : KVF_OK;
}

/* Copies the mask of the existing tokens out of the mask for maximum length. */
static int keep_mask(const struct run *r, const struct model_config *m)
{
    size_t n = (size_t)(r->q->n + r->a->n) * (size_t)r->heads;
    size_t room = (size_t)r->room * (size_t)r->heads;
    r->a->evicted_at = MEM_NEW(int32_t, mask_size(m, r->q->n + r->a->n));
    r->a->n_evicted = r->n_evicted;
    for (size_t l = 0; r->a->evicted_at && l < (size_t)m->n_layers; l++)
        memcpy(r->a->evicted_at + l * n, r->evicted_at + l * room, n * sizeof *r->evicted_at);
    return r->a->evicted_at ? KVF_OK : KVF_E_NOMEM;
}

static int run_all(struct runs *all, struct batch *batch, struct kvf_diag *d)
{
    int err = KVF_OK, more = 1;
    for (int i = 0; !err && i < all->n; i += all->opt->samples)
        err = open_question(all, &all->run[i], d);
    for (int tokens = 1; !err && more; tokens++) {
        err = advance(all, batch, &more);
        tell(all, tokens);
    }
    for (int i = 0; !err && i < all->n; i++)
        err = keep_mask(&all->run[i], &all->e->config);
    return err;
}

int rollout_run(struct engine *student, const struct rollout_options *opt, const struct question *q,
                int n_questions, struct answer *ret, struct kvf_diag *d)
{
    size_t n = (size_t)n_questions * (size_t)opt->samples;
    struct runs all = {student,
                       opt,
                       MEM_NEW(struct run, n),
                       (int)n,
                       MEM_NEW(struct session *, n),
                       MEM_NEW(int32_t, n),
                       MEM_NEW(double, (size_t)student->config.vocab),
                       0};
    struct batch *batch = NULL;
    memset(ret, 0, n * sizeof *ret);
    int err = all.run && all.session && all.id && all.p ? batch_create(student, (int)n, &batch)
                                                        : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < n; i++) {
        const struct question *of = &q[i / (size_t)opt->samples];
        all.run[i] = (struct run){.a = &ret[i],
                                  .q = of,
                                  .room = of->n + opt->max_tokens,
                                  .heads = student->config.n_kv_heads,
                                  .sample = (int)(i % (size_t)opt->samples)};
    }
    if (!err)
        err = run_all(&all, batch, d);
    for (size_t i = 0; all.run && i < n; i++) {
        session_destroy(all.run[i].session);
        mem_free(all.run[i].evicted_at);
    }
    batch_destroy(batch);
    mem_free(all.run);
    mem_free(all.session);
    mem_free(all.id);
    mem_free(all.p);
    if (err)
        answers_finish(ret, (int)n);
    if (err && !d->text[0])
        kvf_fail(d, err, "%zu answers cannot be decoded", n);
    return err;
}

void answers_finish(struct answer *a, int n)
{
    for (int i = 0; i < n; i++) {
        mem_free(a[i].ids);
        mem_free(a[i].log_p);
        mem_free(a[i].evicted_at);
        a[i] = (struct answer){0};
    }
}

void answers_weigh(struct answer *a, int n_questions, int samples)
{
    for (int q = 0; q < n_questions; q++, a += samples) {
        double mean = 0, square = 0;
        for (int i = 0; i < samples; i++)
            mean += a[i].reward / samples;
        for (int i = 0; i < samples; i++)
            square += (a[i].reward - mean) * (a[i].reward - mean) / samples;
        for (int i = 0; i < samples; i++)
            a[i].advantage = a[i].ended && square > 0 ? (a[i].reward - mean) / sqrt(square) : 0;
    }
}

void answer_text(const struct answer *a, const struct tokenizer *t, struct buf *text)
{
    for (int i = 0; i < a->n - a->ended; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(t, a->ids[a->prompt + i], &n);
        buf_add(text, bytes, n);
    }
}
