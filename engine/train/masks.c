/* masks.c - decodes documents in parallel and records their evictions. */
#include "base/mem.h"
#include "engine/train/masks.h"

/* A document in decoding, and the destination of its evictions. */
struct document_run {
    struct session *session;
    const struct pack *pack;
    int32_t *evicted_at;
    int heads, first, n, fed;
    int64_t n_evicted;
};

/* All documents in decoding. */
struct runs {
    struct document_run *run; /* [n] */
    struct session **session; /* [n] scratch: sessions with a next token */
    int32_t *id;              /* [n] their next tokens */
    int n;
    struct stage *watch;
    uint64_t fed, of; /* processed tokens, and all tokens */
};

static void on_evict(void *ctx, const struct eviction *e)
{
    struct document_run *r = ctx;
    size_t at = (size_t)e->layer * (size_t)r->pack->n + (size_t)(r->first + e->pos);
    r->evicted_at[at * (size_t)r->heads + (size_t)e->head] = r->first + e->t;
    r->n_evicted++;
}

/* Returns the end of the document that begins at a. */
static int end_of(const struct pack *pack, int a)
{
    int b = a;
    while (b < pack->n && pack->first[b] == a)
        b++;
    return b;
}

static uint64_t count_tokens(const struct pack *pack, int n_packs)
{
    uint64_t n = 0;
    for (int i = 0; i < n_packs; i++)
        n += (uint64_t)pack[i].n;
    return n;
}

static int count_documents(const struct pack *pack, int n_packs)
{
    int n = 0;
    for (int i = 0; i < n_packs; i++)
        for (int a = 0; a < pack[i].n; a = end_of(&pack[i], a))
            n++;
    return n;
}

static void tell(const struct runs *all, uint64_t fed)
{
    if (all->watch)
        stage_see(all->watch, fed, all->of);
}

static int on_prompt(void *ctx, int done)
{
    const struct runs *all = ctx;
    tell(all, all->fed + (uint64_t)done);
    return 0;
}

/* Starts a document. Its last token has no target, so that token is not processed. */
static int open_run(struct runs *all, struct document_run *r, struct engine *e,
                    const struct session_options *opt, int prompt, struct kvf_diag *d)
{
    struct session_options o = *opt;
    o.cap = r->n;
    o.recorder = NULL;
    int err = session_create(e, &o, &r->session, d);
    if (err)
        return err;
    session_on_evict(r->session, on_evict, r);
    r->fed = prompt < r->n - 1 ? prompt : r->n - 1;
    if (r->fed > 0)
        err = session_prompt(r->session, r->pack->ids + r->first, r->fed, on_prompt, all);
    all->fed += (uint64_t)r->fed;
    return err;
}

static int open_runs(struct runs *all, struct engine *e, const struct session_options *opt,
                     int prompt, const struct pack *pack, int n_packs, int32_t *const *evicted_at,
                     struct kvf_diag *d)
{
    const struct model_config *m = &e->config;
    int at = 0, err = KVF_OK;
    for (int i = 0; i < n_packs; i++) {
        size_t n = (size_t)m->n_layers * (size_t)pack[i].n * (size_t)m->n_kv_heads;
        for (size_t k = 0; k < n; k++)
            evicted_at[i][k] = INT32_MAX;
        for (int a = 0, b; !err && a < pack[i].n; a = b) {
            b = end_of(&pack[i], a);
            struct document_run *r = &all->run[at++];
            *r = (struct document_run){.pack = &pack[i],
                                       .evicted_at = evicted_at[i],
                                       .heads = m->n_kv_heads,
                                       .first = a,
                                       .n = b - a};
            err = open_run(all, r, e, opt, prompt, d);
        }
    }
    return err;
}

/* Feeds the next token to every document that has one. *ret_n is the number of such documents. */
static int advance(struct runs *all, struct batch *batch, int *ret_n)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        struct document_run *r = &all->run[i];
        if (r->fed >= r->n - 1)
            continue;
        all->session[n] = r->session;
        all->id[n++] = r->pack->ids[r->first + r->fed++];
    }
    *ret_n = n;
    all->fed += (uint64_t)n;
    tell(all, all->fed);
    return n ? batch_step(batch, all->session, n, all->id) : KVF_OK;
}

int masks_make(struct engine *e, const struct session_options *opt, int prompt,
               const struct pack *pack, int n_packs, int32_t *const *evicted_at,
               int64_t *ret_evicted, struct stage *watch, struct kvf_diag *d)
{
    int n = count_documents(pack, n_packs), more = 1;
    struct runs all = {MEM_NEW(struct document_run, (size_t)n),
                       MEM_NEW(struct session *, (size_t)n),
                       MEM_NEW(int32_t, (size_t)n),
                       n,
                       watch,
                       0,
                       count_tokens(pack, n_packs)};
    struct batch *batch = NULL;
    int err = all.run && all.session && all.id ? batch_create(e, n, &batch) : KVF_E_NOMEM;
    if (!err)
        err = open_runs(&all, e, opt, prompt, pack, n_packs, evicted_at, d);
    while (!err && more)
        err = advance(&all, batch, &more);
    if (ret_evicted)
        *ret_evicted = 0;
    for (int i = 0; all.run && i < n; i++) {
        session_destroy(all.run[i].session);
        if (ret_evicted)
            *ret_evicted += all.run[i].n_evicted;
    }
    batch_destroy(batch);
    mem_free(all.run);
    mem_free(all.session);
    mem_free(all.id);
    if (err && !d->text[0])
        kvf_fail(d, err, "%d documents cannot be decoded for their masks", n);
    return err;
}
