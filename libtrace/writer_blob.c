/* writer_blob.c - blocks of numbers as they were in the run. */
#include <string.h>

#include "base/mem.h"
#include "libtrace/writer.h"

static int check(const struct kvf_writer *w, const struct kvf_blob *b)
{
    if (!b->name[0] || !memchr(b->name, 0, KVF_NAME_MAX) || b->rank < 1 || b->rank > KVF_MAX_RANK
        || !kvf_dtype_size((enum kvf_dtype)b->dtype) || b->t0 >= KVF_MAX_STEPS
        || !trace_has_head(w->n_layers, w->n_kv, w->n_query, b->layer, b->head))
        return KVF_E_ARG;
    for (int i = 0; i < KVF_MAX_RANK; i++)
        if ((b->shape[i] == 0) != (i >= b->rank))
            return KVF_E_ARG;
    return kvf_blob_size(b) ? KVF_OK : KVF_E_LIMIT;
}

/* Encodes the n elements' bytes and appends them, with memory of its own where they are many. */
static int append_packed(struct kvf_writer *w, struct record *r, const unsigned char *head,
                         const void *data, size_t n, int width)
{
    unsigned char *packed = w->packed, *scratch = w->scratch;
    if (n > CHUNK_RAW) {
        packed = mem_alloc_raw(codec_bound(n), 1);
        scratch = mem_alloc_raw(n, 1);
    }
    int err = packed && scratch ? KVF_OK : (w->err = KVF_E_NOMEM);
    if (!err) {
        size_t length = codec_encode_at(w->level, w->codec, data, n, width, packed, scratch,
                                        &r->codec);
        err = writer_append(w, r, head, BLOB_HEADER, packed, length);
    }
    if (n > CHUNK_RAW) {
        mem_free(packed);
        mem_free(scratch);
    }
    return err;
}

int kvf_write_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data)
{
    unsigned char head[BLOB_HEADER];
    int err = w->err ? w->err : check(w, b);
    if (err)
        return err;
    struct record r = {.type = REC_BLOB, .layer = b->layer, .head0 = b->head, .t0 = b->t0};
    r.raw_len = kvf_blob_size(b);
    blob_header_write(head, b);
    digest_blob(&w->content.kept, &r, head, data);
    if (packed)
        return append_packed(w, &r, head, data, r.raw_len,
                             (int)kvf_dtype_size((enum kvf_dtype)b->dtype));
    return writer_append(w, &r, head, BLOB_HEADER, data, r.raw_len);
}
