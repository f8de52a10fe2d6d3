/* writer_blob.c - blocks of numbers as they were in the run. */
#include <string.h>

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

static int append_blob(struct kvf_writer *w, struct encoder *e, const struct kvf_blob *b,
                       bool packed, const void *data)
{
    unsigned char head[BLOB_HEADER];
    struct record r = {.type = REC_BLOB, .layer = b->layer, .head0 = b->head, .t0 = b->t0};
    struct hash128 holds = {0, 0};
    size_t n = kvf_blob_size(b), width = kvf_dtype_size((enum kvf_dtype)b->dtype);
    int err = writer_room(w, e, LITTLE_ENDIAN_HERE ? 0 : n, packed ? n : 0);
    if (err)
        return err;
    if (!LITTLE_ENDIAN_HERE) {
        copy_le(e->raw, data, n / width, width);
        data = e->raw;
    }
    r.raw_len = n;
    blob_header_write(head, b);
    digest_blob(&holds, &r, head, data);
    const struct payload p = {.first = head, .n_first = sizeof head, .data = data, .n = n};
    return packed ? writer_put_coded(w, e, &r, (int)width, p, holds) : writer_put(w, &r, p, holds);
}

int writer_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data)
{
    struct encoder *e;
    int err = check(w, b);
    if (err)
        return writer_refuse(w, err);
    err = writer_take(w, 0, &e);
    if (err)
        return err;
    err = append_blob(w, e, b, packed, data);
    writer_give(w, e);
    return err;
}
