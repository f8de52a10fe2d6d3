/* copy_join.c - pieces of a trace into one again. */
#include <string.h>

#include "base/mem.h"
#include "libtrace/copying.h"

/* Checks the properties that two pieces must share. */
static int compare_runs(const struct kvf_trace *a, const struct kvf_trace *b, struct kvf_diag *d)
{
    const char *what = NULL;
    size_t layers = (size_t)a->n_layers;
    if (a->header.id.low != b->header.id.low || a->header.id.high != b->header.id.high
        || strcmp(a->meta, b->meta) != 0)
        what = "they are of different runs";
    else if (a->n_layers != b->n_layers || memcmp(a->n_kv, b->n_kv, layers * sizeof *a->n_kv) != 0
             || memcmp(a->n_query, b->n_query, layers * sizeof *a->n_query) != 0)
        what = "they have different heads";
    const char *x = kvf_note(a, note_keys_of(a, "heads").now),
               *y = kvf_note(b, note_keys_of(b, "heads").now);
    if (!what && (!x != !y || (x && strcmp(x, y) != 0)))
        what = "they have different heads";
    return what ? kvf_fail(d, KVF_E_ARG, "%s and %s cannot be joined: %s", a->path, b->path, what)
                : KVF_OK;
}

/* Whether the pieces follow each other; their places into place[n]. */
static int check_order(struct kvf_trace *const *t, int n, struct kvf_part *place,
                       struct kvf_diag *d)
{
    for (int i = 0; i < n; i++) {
        const struct kvf_part *before = i ? &place[i - 1] : NULL;
        if (!t[i]->clean)
            return kvf_fail(d, KVF_E_NOTFOUND, "%s: the trace was not closed", t[i]->path);
        if (kvf_part(t[i], &place[i]) != KVF_OK)
            return kvf_fail(
                d, KVF_E_ARG,
                "%s is no part of a trace, as 'kvfate trace split' and 'kvfate trace trim' write "
                "them",
                t[i]->path);
        int err = i ? compare_runs(t[0], t[i], d) : KVF_OK;
        if (err)
            return err;
        if (before && (before->of != place[i].of || strcmp(before->whole, place[i].whole) != 0))
            return kvf_fail(d, KVF_E_ARG,
                            "%s and %s cannot be joined: they are of different traces",
                            t[i - 1]->path, t[i]->path);
        if (before && before->to != place[i].from)
            return kvf_fail(d, KVF_E_ARG, "%s ends before token %u and %s begins at %u: %s",
                            t[i - 1]->path, before->to, t[i]->path, place[i].from,
                            before->to < place[i].from ? "a part between them is missing"
                                                       : "they overlap, or their order is wrong");
    }
    return KVF_OK;
}

/* A piece must have the columns of the first, under the names of the first. */
static int compare_columns(const struct copying *c, const struct taken *s,
                           const struct kvf_trace *first, struct kvf_diag *d)
{
    struct copying own = {.w = NULL};
    int err = copying_plan(&own, s->t, NULL, -(int64_t)s->at, d);
    bool same = !err && own.n_columns == c->n_columns
                && memcmp(own.column, c->column, (size_t)c->n_columns * sizeof *c->column) == 0;
    copying_finish(&own);
    return err || same
               ? err
               : kvf_fail(d, KVF_E_ARG, "%s and %s cannot be joined: they have different columns",
                          first->path, s->t->path);
}

/* Writes the notes of the first piece except its "part"; notes the joined range unless it is the
 * complete trace. */
static int join_notes(struct copying *c, struct kvf_trace *first, const struct kvf_part *whole)
{
    struct note_keys keys = note_keys_of(first, "part");
    int err = copying_notes(c, first, keys.now);
    return err || whole->to - whole->from == whole->of
               ? err
               : kvf_writer_note(c->w, keys.now, part_text(whole).json);
}

static int fill(struct copying *c, struct kvf_trace *const *t, int n, const struct kvf_part *place,
                struct kvf_diag *d)
{
    const struct kvf_part whole = {place[0].from, place[n - 1].to, place[0].of, ""};
    struct kvf_part told = place[0];
    char now[33];
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++) {
        struct taken s = {t[i], 0, t[i]->n_steps, place[i].from - place[0].from};
        err = compare_columns(c, &s, t[0], d);
        if (!err)
            err = copying_fill(c, &s, d);
        trace_free_buffers(t[i]); /* there may be many pieces */
        trace_no_buffers(t[i]);
    }
    told.to = whole.to;
    if (!err)
        err = copying_commit(c, whole.to - whole.from);
    if (!err)
        err = join_notes(c, t[0], &told);
    if (err || !told.whole[0] || whole.from > 0 || whole.to < whole.of)
        return err;
    digest_text(writer_digest(c->w), now);
    if (strcmp(now, told.whole) == 0)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "%s and the following parts: joined they have the digest %s, the trace that "
                    "they are parts of had %s",
                    t[0]->path, now, told.whole);
}

int copying_join(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d)
{
    struct copying c = {.w = NULL};
    struct kvf_part *place = MEM_NEW(struct kvf_part, (size_t)q->n_parts);
    int err = place ? check_order(q->part, q->n_parts, place, d) : KVF_E_NOMEM;
    for (int i = 0; !err && i < q->n_parts; i++)
        err = trace_check_source(q->part[i], d);
    if (!err)
        err = copying_plan(&c, q->part[0], NULL, 0, d);
    if (!err)
        err = copying_begin(&c, q->part[0], q, d);
    if (!err)
        err = fill(&c, q->part, q->n_parts, place, d);
    err = copying_close(&c, err, ret, d);
    copying_finish(&c);
    mem_free(place);
    return err;
}
