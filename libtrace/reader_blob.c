/* reader_blob.c - blocks of numbers as they were in the run. */
#include "libtrace/reader.h"

/* The first record of this type or a greater one: t->rec[] is sorted. */
static size_t first_of(const struct kvf_trace *t, int type)
{
    return trace_lower_bound(t, &(struct record){.type = (uint8_t)type});
}

static int n_own(const struct kvf_trace *t)
{
    return (int)(first_of(t, REC_BLOB + 1) - first_of(t, REC_BLOB));
}

int kvf_n_blobs(const struct kvf_trace *t)
{
    return n_own(t) + (t->tail ? n_own(t->tail) : 0);
}

static int damaged(const struct kvf_trace *t, const struct record *r, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_CORRUPT, "%s: the blob at byte %llu is damaged", t->path,
                    (unsigned long long)r->offset);
}

int trace_blob(const struct kvf_trace *t, const struct record *r, struct kvf_blob *ret,
               struct kvf_diag *d)
{
    unsigned char p[RECORD_HEADER + BLOB_HEADER];
    size_t head = trace_header_size(t);
    struct record full;
    if (r->stored_len < BLOB_HEADER)
        return damaged(t, r, d);
    int err = trace_pread(t->fd, p, head + BLOB_HEADER, r->offset);
    if (err)
        return kvf_fail(d, err, "%s: cannot read at byte %llu", t->path,
                        (unsigned long long)r->offset);
    if (!record_header_read(p, r->offset, t->header.salt, t->header.chained, &full)
        || !record_same(&full, r) || !blob_header_read(p + head, r, ret))
        err = damaged(t, r, d);
    return err;
}

/* The elements at `in`, decoded if they were packed. */
static int unpack(struct kvf_trace *t, const struct record *r, const unsigned char *in, int width,
                  const void **ret)
{
    size_t n = r->stored_len - BLOB_HEADER;
    if (r->codec == CODEC_RAW) {
        *ret = in;
        return n == r->raw_len ? KVF_OK : KVF_E_CORRUPT;
    }
    int err = trace_room(r->raw_len, &t->raw);
    if (!err)
        err = trace_room(r->raw_len, &t->shuffled);
    if (!err && !t->decoder)
        t->decoder = decoder_create();
    if (!err && !t->decoder)
        err = KVF_E_NOMEM;
    if (!err)
        err = codec_decode(t->decoder, in, n, r->codec, width, t->raw.data, r->raw_len,
                           t->shuffled.data);
    *ret = t->raw.data;
    return err;
}

int trace_blob_view(struct kvf_trace *t, const struct record *r, const unsigned char **ret_header,
                    const void **ret, struct kvf_diag *d)
{
    struct kvf_blob b;
    const unsigned char *header;
    const void *data;
    if (r->stored_len < BLOB_HEADER)
        return damaged(t, r, d);
    int err = trace_bytes(t, r, &header, d);
    if (err)
        return err;
    header += trace_header_size(t);
    trace_decoded(t, r->raw_len);
    if (!blob_header_read(header, r, &b))
        return damaged(t, r, d);
    err = unpack(t, r, header + BLOB_HEADER, (int)kvf_dtype_size((enum kvf_dtype)b.dtype), &data);
    if (err)
        return kvf_fail(d, err, "%s: the blob at byte %llu cannot be decoded", t->path,
                        (unsigned long long)r->offset);
    if (t->map && r->codec == CODEC_RAW)
        trace_checked(t, r, true);
    *ret_header = header;
    *ret = data;
    return KVF_OK;
}

static const struct record *blob_at(const struct kvf_trace *t, int blob, struct kvf_diag *d)
{
    if (blob >= 0 && blob < n_own(t))
        return &t->rec[first_of(t, REC_BLOB) + (size_t)blob];
    kvf_fail(d, KVF_E_ARG, "%s: there is no blob %d", t->path, blob);
    return NULL;
}

int kvf_blob(struct kvf_trace *t, int blob, struct kvf_blob *ret, struct kvf_diag *d)
{
    if (t->tail && blob >= n_own(t))
        return kvf_blob(t->tail, blob - n_own(t), ret, d);
    const struct record *r = blob_at(t, blob, d);
    return r ? trace_blob(t, r, ret, d) : KVF_E_ARG;
}

int kvf_blob_view(struct kvf_trace *t, int blob, const void **ret, struct kvf_diag *d)
{
    const unsigned char *header;
    const void *data;
    if (t->tail && blob >= n_own(t))
        return kvf_blob_view(t->tail, blob - n_own(t), ret, d);
    const struct record *r = blob_at(t, blob, d);
    int err = r ? trace_blob_view(t, r, &header, &data, d) : KVF_E_ARG;
    if (!err && !LITTLE_ENDIAN_HERE) {
        size_t width = kvf_dtype_size((enum kvf_dtype)header[48]); /* its dtype */
        err = data == t->raw.data ? KVF_OK : trace_room(r->raw_len, &t->raw);
        if (!err)
            copy_le(t->raw.data, data, r->raw_len / width, width);
        data = t->raw.data;
    }
    if (!err)
        *ret = data;
    return err;
}
