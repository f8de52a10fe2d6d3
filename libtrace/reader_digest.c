/* reader_digest.c - the digest of an open trace, from its records. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/digest.h"
#include "libtrace/reader.h"

uint32_t trace_newest_epoch(const struct kvf_trace *t)
{
    uint32_t newest = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        if (t->rec[i].type == REC_COMMIT && t->rec[i].epoch > newest)
            newest = t->rec[i].epoch;
    return newest;
}

/* Lists of an INTERVALS record that was read and checked. */
static void add_lists(const struct record *r, uint64_t name, const unsigned char *raw,
                      struct hash128 *sum)
{
    size_t n_lists = (size_t)r->n_heads * r->n;
    const struct kvf_interval *v = (const void *)(raw + 4 * n_lists);
    uint32_t from = 0;
    for (size_t k = 0; k < n_lists; k++) {
        uint32_t to = (uint32_t)get_le(raw + 4 * k, 4);
        digest_list(sum, name, r->layer, r->head0 + (int)(k / r->n), r->t0 + (uint32_t)(k % r->n),
                    v + from, to - from);
        from = to;
    }
}

static int add_column(struct kvf_trace *t, size_t i, uint32_t epoch, struct hash128 *sum,
                      struct kvf_diag *d)
{
    const struct record *r = &t->rec[i];
    const struct kvf_column *c = &t->column[r->column];
    const unsigned char *data;
    size_t width = kvf_dtype_size((enum kvf_dtype)c->dtype);
    if (r->epoch != (c->flags & KVF_COL_SNAPSHOT ? epoch : 0))
        return KVF_OK;
    int err = trace_chunk(t, i, &data, d);
    if (err)
        return err;
    uint64_t name = hash64(c->name, strlen(c->name));
    if (r->type == REC_INTERVALS)
        add_lists(r, name, data, sum);
    for (int h = 0; r->type == REC_COLUMN && h < r->n_heads; h++)
        digest_values(sum, name, r->layer, r->head0 + h, r->t0, r->n, (int)width,
                      data + (size_t)h * r->n * width);
    return KVF_OK;
}

static int add_blob(struct kvf_trace *t, const struct record *r, struct hash128 *sum,
                    struct kvf_diag *d)
{
    const unsigned char *header;
    const void *data;
    int err = trace_blob_view(t, r, &header, &data, d);
    if (!err)
        digest_blob(sum, r, header, data);
    return err;
}

bool trace_all_known(const struct kvf_trace *t)
{
    for (size_t i = 0; i < t->n_rec; i++)
        if (trace_unknown(&t->rec[i]))
            return false;
    return true;
}

int trace_digest_record(struct kvf_trace *t, size_t i, uint32_t epoch, struct hash128 *sum,
                        struct kvf_diag *d)
{
    const struct record *r = &t->rec[i];
    unsigned char *p = NULL;
    if (is_chunk(r))
        return add_column(t, i, epoch, sum, d);
    if (r->type == REC_BLOB)
        return add_blob(t, r, sum, d);
    if (r->type != REC_META && r->type != REC_SCHEMA && r->type != REC_TOKENS)
        return KVF_OK;
    int err = trace_payload(t, r, &p, d);
    if (err)
        return err;
    if (r->type == REC_META)
        digest_meta(sum, p, r->stored_len);
    else if (r->type == REC_SCHEMA && t->column)
        digest_schema(sum, p, r->stored_len);
    else if (r->type == REC_TOKENS && trace_texts_fit(r, p))
        digest_tokens(sum, p, r->t0, r->n);
    mem_free(p);
    return KVF_OK;
}

/* By key, and for one key in the order of the file. */
static int by_key(const void *a, const void *b)
{
    char **x = *(char **const *)a, **y = *(char **const *)b;
    int order = strcmp(*x, *y);
    return order ? order : (x > y) - (x < y);
}

int trace_digest_rest(const struct kvf_trace *t, struct hash128 *sum)
{
    char ***note = MEM_NEW(char **, (size_t)t->n_notes); /* a file may have thousands of them */
    if (!note)
        return KVF_E_NOMEM;
    for (int i = 0; i < t->n_notes; i++)
        note[i] = &t->note[i];
    if (t->n_notes > 1)
        qsort(note, (size_t)t->n_notes, sizeof *note, by_key);
    for (int i = 0; i < t->n_notes; i++) {
        const char *text = *note[i], *json = text + strlen(text) + 1;
        if (i + 1 == t->n_notes || strcmp(text, *note[i + 1]) != 0) /* the last of its key */
            digest_add(sum, digest_note(text, (size_t)(json - text) + strlen(json)));
    }
    mem_free(note);
    digest_add(sum, digest_steps(t->n_steps));
    return KVF_OK;
}

int kvf_digest(struct kvf_trace *t, char ret[33], struct kvf_diag *d)
{
    struct hash128 sum = {0, 0};
    if (!t->clean)
        return kvf_fail(d, KVF_E_NOTFOUND, "%s: the trace was not closed: it has no digest yet",
                        t->path);
    if (!trace_all_known(t))
        return kvf_fail(
            d, KVF_E_VERSION,
            "%s: written by a newer kvfate, with records that its digest counts; update "
            "to compute it",
            t->path);
    int err = trace_check_raw(t, d);
    for (size_t i = 0; !err && i < t->n_rec; i++)
        err = trace_digest_record(t, i, t->epoch, &sum, d);
    if (!err)
        err = trace_digest_rest(t, &sum);
    if (!err)
        digest_text(sum, ret);
    return err;
}

int kvf_stored_digest(const struct kvf_trace *t, char ret[33])
{
    if (!t->clean || !t->header.chained)
        return KVF_E_NOTFOUND;
    digest_text(t->digest, ret);
    return KVF_OK;
}
