/* verify.c - is every byte of a trace accounted for? */
#include <string.h>

#include "base/mem.h"
#include "libtrace/digest.h"
#include "libtrace/reader.h"

static int check_blob(struct kvf_trace *t, const struct record *r, int full, struct kvf_diag *d)
{
    struct kvf_blob b;
    const unsigned char *header;
    const void *data;
    if (t->column && !trace_fits_schema(t, r))
        return kvf_fail(d, KVF_E_CORRUPT, "%s: the blob at byte %llu contradicts the schema",
                        t->path, (unsigned long long)r->offset);
    return full ? trace_blob_view(t, r, &header, &data, d) : trace_blob(t, r, &b, d);
}

/* Payloads of columns and blobs are looked at only if full: they are nearly all of the file. */
static int check_record(struct kvf_trace *t, size_t i, int full, struct kvf_check *c,
                        struct kvf_diag *d)
{
    const struct record *r = &t->rec[i];
    unsigned char *p = NULL;
    const unsigned char *data;
    if (is_chunk(r)) {
        c->payload_bytes += r->stored_len;
        c->raw_bytes += r->raw_len;
        if (t->column && !trace_fits_schema(t, r))
            return kvf_fail(d, KVF_E_CORRUPT, "%s: the chunk at byte %llu contradicts the schema",
                            t->path, (unsigned long long)r->offset);
        if (!full)
            return KVF_OK;
        if (t->column)
            return trace_chunk(t, i, &data, d);
    }
    if (r->type == REC_BLOB)
        return check_blob(t, r, full, d);
    int err = trace_payload(t, r, &p, d);
    /* the copy ends with its own checksum, which the checksum of the record does not cover */
    if (!err && r->type == REC_CHECKPOINT && !t->header_lost
        && hash64(p, r->stored_len) != t->header.hash)
        err = kvf_fail(d, KVF_E_CORRUPT,
                       "%s: the checkpoint at byte %llu is no copy of the file header", t->path,
                       (unsigned long long)r->offset);
    mem_free(p);
    return err;
}

static int check_records(struct kvf_trace *t, int full, struct kvf_check *c, struct hash128 *digest,
                         struct kvf_diag *first)
{
    for (size_t i = 0; i < t->n_rec; i++) {
        struct kvf_diag why = {""};
        int err = check_record(t, i, full, c, &why);
        if (!err && full && t->column)
            err = trace_digest_record(t, i, t->epoch, digest, &why);
        if (err == KVF_E_NOMEM)
            return err;
        c->records += !err;
        c->bad += !!err;
        if (err && !first->text[0])
            *first = why;
    }
    return KVF_OK;
}

/* The newest commit, for the intervals of its epoch: before all is loaded, since the
 * records are looked at first. */
static int look_at_commit(struct kvf_trace *t)
{
    t->epoch = trace_newest_epoch(t);
    t->n_steps = KVF_MAX_STEPS;
    for (size_t i = 0; i < t->n_rec; i++) {
        unsigned char *p = NULL;
        const struct record *r = &t->rec[i];
        if (r->type != REC_COMMIT || r->epoch != t->epoch || r->stored_len != 8)
            continue;
        int err = trace_payload(t, r, &p, NULL);
        if (err == KVF_E_NOMEM)
            return err;
        if (!err && get_le(p + 4, 4) < KVF_MAX_STEPS)
            t->n_steps = (uint32_t)get_le(p + 4, 4);
        mem_free(p);
    }
    return KVF_OK;
}

/* The sentence for the results. */
static int report(const struct kvf_trace *t, const struct kvf_check *c,
                  const struct kvf_diag *first, struct kvf_diag *d)
{
    unsigned long long n = c->records, torn = c->torn, size = c->bytes;
    if (first->text[0])
        return kvf_fail(d, KVF_E_CORRUPT, "%s", first->text);
    if (t->bad_records && t->breaks && !c->lost)
        return kvf_fail(d, KVF_E_CORRUPT,
                        "%s: the chain of checksums is broken at byte %llu: this record does not "
                        "follow the previous one; a record was exchanged, moved or left out",
                        t->path, (unsigned long long)t->first_break);
    if (t->bad_records)
        return kvf_fail(d, KVF_E_CORRUPT,
                        "%s: damage at byte %llu: %llu bytes belong to no record%s", t->path,
                        (unsigned long long)t->first_bad, (unsigned long long)c->lost,
                        t->breaks ? "; the chain of checksums is broken there" : "");
    if (t->bad_index)
        return kvf_fail(d, KVF_E_CORRUPT,
                        "%s: the index does not match the records; all %llu records are complete",
                        t->path, n);
    if (!c->clean && torn)
        return kvf_fail(d, KVF_OK,
                        "%s: unfinished: %llu complete records up to byte %llu, then %llu bytes of "
                        "an incomplete one",
                        t->path, n, size - torn, torn);
    if (!c->clean)
        return kvf_fail(d, KVF_OK, "%s: unfinished: %llu complete records, no incomplete one",
                        t->path, n);
    return KVF_OK;
}

/* Intact records that contradict each other, or lack the first two. */
static int tell_story(struct kvf_trace *t, struct kvf_check *c, struct kvf_diag *d)
{
    struct kvf_diag why = {""};
    int err = trace_load(t, &why);
    if (err)
        return kvf_fail(d, err, "%s", why.text[0] ? why.text : kvf_strerror(err));
    if (!t->bad_records)
        return KVF_OK;
    c->bad += t->bad_records;
    c->records -= t->bad_records;
    return kvf_fail(d, KVF_E_CORRUPT, "%s: the commit or note at byte %llu has impossible values",
                    t->path, (unsigned long long)t->first_bad);
}

/* Everything is intact: is it what the writer wrote? */
static int compare_digest(const struct kvf_trace *t, struct hash128 sum, struct kvf_check *c,
                          struct kvf_diag *d)
{
    int err = trace_digest_rest(t, &sum);
    if (err)
        return err;
    if (!t->clean || !t->header.chained || !trace_all_known(t)
        || (sum.low == t->digest.low && sum.high == t->digest.high))
        return KVF_OK;
    c->bad++;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "%s: the digest of the content differs from the digest of the writer", t->path);
}

int kvf_verify_watched(const char *path, int full, kvf_watch_fn watch, void *ctx,
                       struct kvf_check *ret, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct kvf_diag first = {""};
    struct hash128 digest = {0, 0};
    memset(ret, 0, sizeof *ret);
    int err = trace_open_file(path, &t, d);
    if (err)
        return err;
    ret->bytes = t->size;
    err = trace_scan(t, KVF_OPEN_SALVAGE, false, d);
    if (!err && trace_load_schema(t, NULL) == KVF_E_NOMEM)
        err = KVF_E_NOMEM;
    if (!err && full)
        err = trace_check_raw(t, d);
    kvf_watch(t, watch, ctx);
    if (!err)
        err = look_at_commit(t);
    if (!err)
        err = check_records(t, full, ret, &digest, &first);
    t->epoch = t->n_steps = 0; /* they are loaded with the rest */
    if (!err) {
        ret->clean = t->clean;
        ret->bad += t->bad_records + t->bad_index;
        ret->lost = t->lost_bytes;
        ret->breaks = t->breaks;
        ret->torn = t->torn_bytes;
        err = report(t, ret, &first, d);
    }
    if (!err)
        err = tell_story(t, ret, d);
    if (!err && full)
        err = compare_digest(t, digest, ret, d);
    kvf_close(t);
    return err;
}

int kvf_verify(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d)
{
    return kvf_verify_watched(path, full, NULL, NULL, ret, d);
}
