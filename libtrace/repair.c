/* repair.c - makes a complete trace from the rest of a damaged or unfinished one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/copying.h"

/* Whether the values of a chunk can be read.  Only compressed values and lists of intervals must be
 * decoded for that. */
static int try_chunk(struct kvf_trace *t, size_t i)
{
    const struct record *r = &t->rec[i];
    const unsigned char *data;
    unsigned char *p = NULL;
    size_t width = kvf_dtype_size((enum kvf_dtype)t->column[r->column].dtype);
    if (r->type == REC_INTERVALS || (r->codec != CODEC_RAW && r->codec != CODEC_CONSTANT))
        return trace_chunk(t, i, &data, NULL);
    int err = trace_payload(t, r, &p, NULL);
    mem_free(p);
    if (!err && r->stored_len != (r->codec == CODEC_RAW ? r->raw_len : width))
        err = KVF_E_CORRUPT;
    return err;
}

/* Whether a record can be read, if it is one that counts. */
static int try_record(struct kvf_trace *t, size_t i)
{
    const struct record *r = &t->rec[i];
    const unsigned char *header;
    const void *data;
    unsigned char *p = NULL;
    int err = KVF_OK;
    if (r->type == REC_BLOB)
        return trace_blob_view(t, r, &header, &data, NULL);
    if (is_chunk(r)) {
        bool snapshot = t->column[r->column].flags & KVF_COL_SNAPSHOT;
        return r->epoch == (snapshot ? t->epoch : 0) ? try_chunk(t, i) : KVF_OK;
    }
    if (r->type == REC_TOKENS || r->type == REC_CHECKPOINT) {
        err = trace_payload(t, r, &p, NULL);
        bool texts = err || r->type != REC_TOKENS || trace_texts_fit(r, p);
        bool copy = err || r->type != REC_CHECKPOINT || t->header_lost
                    || hash64(p, r->stored_len) == t->header.hash;
        err = texts && copy ? err : KVF_E_CORRUPT;
        mem_free(p);
    }
    return err;
}

static bool has_texts(const struct kvf_trace *t)
{
    bool any = false;
    for (size_t i = 0; i < t->n_rec; i++)
        any |= t->rec[i].type == REC_TOKENS;
    return any;
}

/* Names a blob that cannot be copied.  r: its record, by the file or by the index. */
static void tell_blob(const struct kvf_trace *t, const struct record *r, struct copying *c,
                      struct kvf_repaired *to)
{
    unsigned char header[BLOB_HEADER];
    struct kvf_blob b;
    char line[160];
    bool named = trace_pread(t->fd, header, sizeof header, r->offset + trace_header_size(t))
                     == KVF_OK
                 && blob_header_read(header, r, &b);
    snprintf(line, sizeof line, "%s%s of layer %u, head %u, from index %u on is lost",
             named ? "the blob " : "a blob", named ? b.name : "", r->layer, r->head0, r->t0);
    c->say(c->ctx, line);
    to->blobs_missing++;
}

/* Names the blobs whose records are damaged, or are in the index and not in the file. */
static void tell_blobs(const struct kvf_trace *t, const unsigned char *bad, struct copying *c,
                       struct kvf_repaired *to)
{
    for (size_t i = 0; i < t->n_rec; i++)
        if (bad[i] && t->rec[i].type == REC_BLOB)
            tell_blob(t, &t->rec[i], c, to);
    for (size_t i = 0; i < t->n_listed; i++)
        if (t->listed[i].type == REC_BLOB
            && !bsearch(&t->listed[i], t->rec, t->n_rec, sizeof *t->rec, record_compare))
            tell_blob(t, &t->listed[i], c, to);
}

/* Drops the records that count and cannot be read, so that all that is left can be. */
static int drop_damaged(struct kvf_trace *t, struct copying *c, struct kvf_repaired *to)
{
    size_t kept = 0;
    unsigned char *bad = MEM_NEW(unsigned char, t->n_rec);
    int err = bad ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; err != KVF_E_NOMEM && i < t->n_rec; i++) {
        err = try_record(t, i);
        bad[i] = err != KVF_OK;
        if (err)
            trace_note_damage(t, t->rec[i].offset);
    }
    if (err != KVF_E_NOMEM)
        tell_blobs(t, bad, c, to);
    for (size_t i = 0; err != KVF_E_NOMEM && i < t->n_rec; i++)
        if (!bad[i])
            t->rec[kept++] = t->rec[i];
    if (err != KVF_E_NOMEM)
        t->n_rec = kept;
    mem_free(bad);
    trace_free_buffers(t); /* they know chunks by their numbers */
    trace_no_buffers(t);
    return err == KVF_E_NOMEM ? err : KVF_OK;
}

/* Of a trace without a commit: up to where every column and layer has values of which it has any.
 */
static uint32_t steps_there(const struct kvf_trace *t)
{
    uint32_t least = 0, end = 0;
    for (size_t i = 0; i < t->n_rec; i++) { /* sorted: records of a column and layer are together */
        const struct record *r = &t->rec[i], *next = i + 1 < t->n_rec ? r + 1 : NULL;
        if (r->type != REC_COLUMN || r->epoch)
            continue;
        end = r->t0 + r->n > end ? r->t0 + r->n : end;
        if (next && next->type == r->type && next->column == r->column && next->layer == r->layer
            && next->epoch == 0)
            continue;
        least = least && least < end ? least : end;
        end = 0;
    }
    return least;
}

static void tell(const struct kvf_trace *t, struct kvf_repaired *r)
{
    r->closed = t->clean;
    r->bad_index = t->bad_index;
    r->tail = t->tail != NULL;
    r->places = t->bad_records + (t->tail ? t->tail->bad_records : 0);
    r->first_place = t->first_bad;
    r->lost_bytes = t->lost_bytes;
    r->torn_bytes = t->torn_bytes;
    r->breaks = t->breaks;
    r->first_break = t->first_break;
}

/* Prepares the trace: drops its damaged records. */
static int prepare(struct kvf_trace *t, struct copying *c, struct kvf_repaired *r,
                   struct kvf_diag *d)
{
    int err = trace_check_source(t, d);
    if (!err)
        err = drop_damaged(t, c, r);
    if (!err && t->tail)
        err = drop_damaged(t->tail, c, r);
    tell(t, r);
    if (err || (t->clean && !r->places))
        return err;
    if (!t->epoch) {
        t->n_steps = steps_there(t);
        r->no_commit = true;
    }
    if (!t->n_steps)
        return kvf_fail(d, KVF_E_CORRUPT, "%s: no step is left of it", t->path);
    return KVF_OK;
}

static int note_repaired(struct copying *c, const struct kvf_repaired *r)
{
    char json[256];
    snprintf(json, sizeof json,
             "{\"closed\":%s,\"places\":%llu,\"lost_bytes\":%llu,\"breaks\":%llu,\"missing\":%llu}",
             r->closed ? "true" : "false", (unsigned long long)r->places,
             (unsigned long long)r->lost_bytes, (unsigned long long)r->breaks,
             (unsigned long long)r->missing);
    return kvf_writer_note(c->w, "repaired", json);
}

/* True if the new trace has the complete content of the closed one. */
static bool all_there(const struct copying *c, const struct kvf_trace *t,
                      const struct kvf_repaired *r)
{
    struct hash128 now = writer_digest(c->w);
    if (!t->clean || !t->header.chained || !trace_all_known(t))
        return t->clean && !r->places && trace_all_known(t);
    return now.low == t->digest.low && now.high == t->digest.high;
}

static int fill(struct copying *c, struct kvf_trace *t, const struct taken *s,
                struct kvf_repaired *r, struct kvf_diag *d)
{
    int err = copying_fill(c, s, d);
    if (!err)
        err = copying_blobs(c, t, d);
    if (!err && (t->epoch || r->no_commit))
        err = copying_commit(c, t->n_steps);
    if (!err)
        err = copying_notes(c, t, NULL);
    if (err)
        return err;
    r->intact = all_there(c, t, r);
    return r->intact ? KVF_OK : note_repaired(c, r);
}

int copying_repair(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct kvf_repaired r = {.intact = false};
    struct copying c = {.say = q->say, .ctx = q->say_ctx};
    int err = kvf_open(q->damaged, KVF_OPEN_SALVAGE, &t, d);
    if (err)
        return err;
    if (t->tail_aside)
        q->say(q->say_ctx, t->tail_aside);
    kvf_watch(t, q->watch, q->watch_ctx);
    c.had_texts = has_texts(t) || (t->tail && has_texts(t->tail));
    err = prepare(t, &c, &r, d);
    struct taken s = {t, 0, t->n_steps, 0};
    if (!err)
        err = copying_plan(&c, t, NULL, 0, d);
    if (!err && t->clean && !r.places) {
        s = taken_all(t);
    } else if (!err) {
        c.repaired = &r;
        err = copying_leave_empty(&c, &s);
    }
    if (!err)
        err = copying_begin(&c, t, q, d);
    if (!err)
        err = fill(&c, t, &s, &r, d);
    ret->columns_left = t->n_columns - c.n_columns;
    err = copying_close(&c, err, ret, d);
    copying_finish(&c);
    kvf_close(t);
    if (!err && q->ret_repaired)
        *q->ret_repaired = r;
    return err;
}
