/* copy.c - a trace, or a piece of one, into another file. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "libtrace/copying.h"

int copying_begin(struct copying *c, const struct kvf_trace *run, const struct kvf_copy_request *q,
                  struct kvf_diag *d)
{
    const struct kvf_shape shape = {c->n_layers, c->n_kv, c->n_query};
    const struct kvf_writer_options w = {.existing = q->overwrite ? KVF_OVERWRITE : KVF_REFUSE,
                                         .only_whole = true,
                                         .run = run,
                                         .smallest = q->smallest};
    return writer_open(q->out, run->meta, &shape, c->column, c->n_columns, &w, &c->w, d);
}

int copying_notes(struct copying *c, const struct kvf_trace *t, const char *but)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < t->n_notes; i++) {
        const char *key = t->note[i], *json = key + strlen(key) + 1;
        bool last = kvf_note(t, key) == json;
        if (last && (!but || strcmp(key, but) != 0))
            err = kvf_writer_note(c->w, key, json);
    }
    return err;
}

int copying_blobs(struct copying *c, struct kvf_trace *t, struct kvf_diag *d)
{
    int blob = 0;
    for (size_t i = 0; i < t->n_rec; i++) {
        const void *data;
        struct kvf_blob b;
        if (t->rec[i].type != REC_BLOB)
            continue;
        bool packed = t->rec[i].codec != CODEC_RAW;
        int err = kvf_blob(t, blob, &b, d);
        if (!err)
            err = kvf_blob_view(t, blob++, &data, d);
        if (!err)
            err = copying_wrote(c, writer_blob(c->w, &b, packed, data), d);
        if (err)
            return err;
    }
    return t->tail ? copying_blobs(c, t->tail, d) : KVF_OK;
}

int copying_commit(struct copying *c, uint32_t n_steps)
{
    return kvf_writer_commit(c->w, 1, n_steps);
}

int copying_close(struct copying *c, int err, struct kvf_copied *ret, struct kvf_diag *d)
{
    if (err)
        return c->w && c->w->err == err ? copying_wrote(c, err, d) : err;
    ret->n_steps = c->w->content.n_steps;
    ret->bytes = c->w->end + RECORD_HEADER + c->w->n_index * INDEX_ENTRY + FOOTER;
    err = kvf_writer_close(c->w, d);
    c->w = NULL;
    return err;
}

struct taken taken_all(struct kvf_trace *t)
{
    return (struct taken){t, 0, t->clean ? KVF_MAX_STEPS : t->n_steps, 0};
}

struct note_keys note_keys_of(const struct kvf_trace *t, const char *name)
{
    struct note_keys k = {"", ""};
    snprintf(k.next, sizeof k.next, "%s", name);
    for (int n = 2; kvf_note(t, k.next); n++) {
        memcpy(k.now, k.next, sizeof k.now);
        snprintf(k.next, sizeof k.next, "%s.%d", name, n);
    }
    return k;
}

/* ---- pieces */

int kvf_part(const struct kvf_trace *t, struct kvf_part *ret)
{
    struct kvf_part p = {.from = 0};
    const char *note = kvf_note(t, note_keys_of(t, "part").now);
    if (!note
        || sscanf(note, "{\"from\":%u,\"to\":%u,\"of\":%u,\"whole\":\"%32[0-9a-f]\"}", &p.from,
                  &p.to, &p.of, p.whole)
               < 3
        || p.from >= p.to || p.to > p.of || p.of > KVF_MAX_STEPS || p.to - p.from != t->n_steps)
        return KVF_E_NOTFOUND;
    *ret = p;
    return KVF_OK;
}

struct part_text part_text(const struct kvf_part *p)
{
    struct part_text x;
    snprintf(x.json, sizeof x.json, "{\"from\":%u,\"to\":%u,\"of\":%u,\"whole\":\"%s\"}", p->from,
             p->to, p->of, p->whole);
    return x;
}

/* Notes in the copy the tokens and steps of the source that it has. */
static int note_part(struct copying *c, struct kvf_trace *t, const struct kvf_piece *p,
                     struct kvf_diag *d)
{
    struct kvf_part part = {p->from, p->to, t->n_steps, ""};
    int err = p->heads ? KVF_OK : kvf_stored_digest(t, part.whole);
    if (err == KVF_E_NOTFOUND) /* of format 0.1 */
        err = kvf_digest(t, part.whole, d);
    return err ? err : kvf_writer_note(c->w, note_keys_of(t, "part").next, part_text(&part).json);
}

/* Notes in the copy the heads of the source that it has, by their numbers in the source. */
static int note_heads(struct copying *c, const struct kvf_trace *t)
{
    struct buf b = {0};
    const char *sep = "[";
    for (int l = 0; l < c->n_layers; l++)
        for (int h = 0; h < c->n_kv[l]; h++, sep = ",")
            buf_printf(&b, "%s\"%d.%d\"", sep, c->layer_of[l],
                       copying_head_of(c, l, KVF_SPACE_KV, h));
    buf_char(&b, ']');
    int err = b.err ? b.err : kvf_writer_note(c->w, note_keys_of(t, "heads").next, b.data);
    buf_finish(&b);
    return err;
}

static int note_piece(struct copying *c, struct kvf_trace *t, const struct kvf_piece *p,
                      struct kvf_diag *d)
{
    int err = copying_notes(c, t, NULL);
    if (!err && p && p->heads)
        err = note_heads(c, t);
    if (!err && p && (!p->heads || p->from > 0 || p->to < t->n_steps))
        err = note_part(c, t, p, d);
    return err;
}

/* The piece with its end, or KVF_E_ARG. */
static int check_piece(const struct kvf_trace *t, const struct kvf_piece *piece,
                       struct kvf_piece *ret, struct kvf_diag *d)
{
    if (!t->clean)
        return kvf_fail(
            d, KVF_E_NOTFOUND,
            "%s: the trace was not closed; 'kvfate trace repair' makes a complete trace of it",
            t->path);
    if (!piece)
        return KVF_OK;
    *ret = *piece;
    ret->to = ret->to ? ret->to : t->n_steps;
    if (ret->from < ret->to && ret->to <= t->n_steps)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG, "%s has %u tokens; %u:%u selects no token, or more than it has",
                    t->path, t->n_steps, ret->from, ret->to);
}

/* Checks that the copy has the digest that the writer of the source stored. */
static int check_digest(const struct copying *c, const struct kvf_trace *t, struct kvf_diag *d)
{
    char now[33], told[33];
    if (kvf_stored_digest(t, told) != KVF_OK)
        return KVF_OK;
    digest_text(writer_digest(c->w), now);
    if (strcmp(now, told) == 0)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "%s: its content has the digest %s, the digest of its writer is %s", t->path,
                    now, told);
}

/* The number of records that a piece omits. */
static uint64_t count_left_out(const struct kvf_trace *t)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        n += t->rec[i].type == REC_BLOB || trace_unknown(&t->rec[i]);
    return n;
}

static int check_known(const struct kvf_trace *t, struct kvf_diag *d)
{
    if (trace_all_known(t))
        return KVF_OK;
    return kvf_fail(d, KVF_E_VERSION,
                    "%s: written by a newer kvfate, with records that this one cannot copy; "
                    "update to copy it",
                    t->path);
}

static int fill(struct copying *c, struct kvf_trace *t, const struct kvf_piece *p,
                struct kvf_diag *d)
{
    const struct taken s = p ? (struct taken){t, p->from, p->to, 0} : taken_all(t);
    int err = copying_fill(c, &s, d);
    if (!err && !p)
        err = copying_blobs(c, t, d);
    if (!err && t->epoch)
        err = copying_commit(c, p ? p->to - p->from : t->n_steps);
    if (!err)
        err = note_piece(c, t, p, d);
    return err || p ? err : check_digest(c, t, d);
}

int copying_trace(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d)
{
    struct copying c = {.w = NULL};
    struct kvf_trace *t = q->trace;
    struct kvf_piece p = {.heads = NULL};
    int err = check_piece(t, q->piece, &p, d);
    if (!err)
        err = trace_check_source(t, d);
    if (!err && !q->piece)
        err = check_known(t, d);
    if (!err)
        err = copying_plan(&c, t, p.heads, p.from, d);
    if (!err)
        err = copying_begin(&c, t, q, d);
    if (!err)
        err = fill(&c, t, q->piece ? &p : NULL, d);
    ret->columns_left = t->n_columns - c.n_columns;
    ret->left_out = q->piece ? count_left_out(t) : 0;
    err = copying_close(&c, err, ret, d);
    copying_finish(&c);
    return err;
}

int kvf_check_pieces(const struct kvf_trace *t, const struct kvf_piece *piece, int n,
                     struct kvf_diag *d)
{
    const uint64_t of_any = (uint64_t)8 << 30, of_a_byte = 4096;
    uint64_t raw = 0, all = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        all += is_chunk(&t->rec[i]) ? t->rec[i].raw_len : 0;
    if (all <= CACHE_GROWS_TO) /* decoded chunks are kept */
        return KVF_OK;
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < t->n_rec; i++) {
            const struct record *r = &t->rec[i];
            if (is_chunk(r) && r->t0 < piece[k].to && piece[k].from < r->t0 + r->n)
                raw += r->raw_len;
        }
    if (raw <= of_any || raw / of_a_byte <= t->size)
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s: to make %d pieces of it, %llu bytes would be decoded out of a file of "
                    "%llu; make fewer, and pieces of these",
                    t->path, n, (unsigned long long)raw, (unsigned long long)t->size);
}
