/* writer_encoder.c - working memory of the threads that write: one of them has it at a time, and it
 * is kept for the next, so that repeated writes do not allocate. */
#include "base/mem.h"
#include "libtrace/writer.h"

static int grow(unsigned char **p, size_t *have, size_t n)
{
    if (n <= *have)
        return KVF_OK;
    unsigned char *more = mem_alloc_raw(n, 1);
    if (!more)
        return KVF_E_NOMEM;
    mem_free(*p);
    *p = more;
    *have = n;
    return KVF_OK;
}

/* Room for `raw` bytes as they are, and to encode `coded` bytes; its contents are lost. */
static int make_room(struct encoder *e, size_t raw, size_t coded)
{
    int err = grow(&e->raw, &e->cap_raw, raw);
    if (!err)
        err = grow(&e->scratch, &e->cap_scratch, coded);
    if (!err && coded)
        err = grow(&e->packed, &e->cap_packed, codec_bound(coded));
    return err;
}

int writer_room(struct kvf_writer *w, struct encoder *e, size_t raw, size_t coded)
{
    int err = make_room(e, raw, coded);
    if (!err)
        return KVF_OK;
    pthread_mutex_lock(&w->lock);
    w->err = w->err ? w->err : err;
    err = w->err;
    pthread_mutex_unlock(&w->lock);
    return err;
}

static void destroy(struct encoder *e)
{
    if (!e)
        return;
    mem_free_all(e->raw, e->packed, e->scratch);
    codec_destroy(e->codec);
    mem_free(e);
}

static struct encoder *create(void)
{
    struct encoder *e = MEM_NEW(struct encoder, 1);
    if (!e)
        return NULL;
    e->codec = codec_create();
    if (e->codec && make_room(e, CHUNK_RAW, CHUNK_RAW) == KVF_OK)
        return e;
    destroy(e);
    return NULL;
}

int writer_take(struct kvf_writer *w, uint32_t epoch, struct encoder **ret)
{
    pthread_mutex_lock(&w->lock);
    int err = w->err;
    if (!err && epoch && epoch != w->epoch + 1)
        err = KVF_E_ARG;
    struct encoder *e = NULL;
    if (!err) {
        e = w->idle;
        if (e)
            w->idle = e->next;
        else
            e = create(); /* as many as there are threads, in all */
        if (!e)
            err = w->err = KVF_E_NOMEM;
    }
    pthread_mutex_unlock(&w->lock);
    if (!err)
        *ret = e;
    return err;
}

void writer_give(struct kvf_writer *w, struct encoder *e)
{
    pthread_mutex_lock(&w->lock);
    e->next = w->idle;
    w->idle = e;
    pthread_mutex_unlock(&w->lock);
}

void writer_free_encoders(struct kvf_writer *w)
{
    while (w->idle) {
        struct encoder *e = w->idle;
        w->idle = e->next;
        destroy(e);
    }
}
