/* copy_values.c - the values and texts of a trace into another, block by block. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/room.h"
#include "libtrace/copying.h"

/* ---- available values */

static int add_range(struct ranges *rs, uint32_t from, uint32_t to)
{
    if (!mem_room(&rs->list, rs->n, &rs->cap, 64, sizeof *rs->list))
        return KVF_E_NOMEM;
    rs->list[rs->n++] = (struct range){from, to};
    return KVF_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static void join_ranges(struct ranges *rs)
{
    size_t kept = 0;
    if (rs->n > 1)
        qsort(rs->list, rs->n, sizeof *rs->list, compare_ranges);
    for (size_t i = 0; i < rs->n; i++) {
        struct range r = rs->list[i], *last = kept ? &rs->list[kept - 1] : NULL;
        if (!last || r.from > last->to)
            rs->list[kept++] = r;
        else
            last->to = r.to > last->to ? r.to : last->to;
    }
    rs->n = kept;
}

/* The records of one column and layer of a file, of the epoch that counts; the file is the trace
 * or its tail. */
struct group {
    const struct kvf_trace *t;
    struct record key;
    size_t first;
    int widest; /* most heads of a record */
};

static bool in_group(const struct group *g, size_t i)
{
    return i < g->t->n_rec && trace_same_group(&g->t->rec[i], &g->key);
}

static struct group group_of(const struct kvf_trace *t, int column, int layer)
{
    struct group g = {.t = t};
    g.key = (struct record){.type = trace_type_of(&t->column[column]),
                            .column = (uint32_t)column,
                            .layer = (uint16_t)layer,
                            .epoch = t->column[column].flags & KVF_COL_SNAPSHOT ? t->epoch : 0};
    g.first = trace_lower_bound(t, &g.key);
    for (size_t i = g.first; in_group(&g, i); i++)
        g.widest = t->rec[i].n_heads > g.widest ? t->rec[i].n_heads : g.widest;
    return g;
}

/* The groups of a trace: its own, unless the tail has all of the column, and the tail's. */
struct groups {
    struct group in[2];
    int n, widest;
};

static struct groups groups_of(const struct kvf_trace *t, int column, int layer)
{
    struct groups gs = {.n = 0};
    if (!t->tail || !(t->column[column].flags & KVF_COL_SNAPSHOT))
        gs.in[gs.n++] = group_of(t, column, layer);
    if (t->tail)
        gs.in[gs.n++] = group_of(t->tail, column, layer);
    for (int i = 0; i < gs.n; i++)
        gs.widest = gs.in[i].widest > gs.widest ? gs.in[i].widest : gs.widest;
    return gs;
}

/* Finds the values of a head in the records of a group, within the indices taken.  Records are in
 * the order of their first heads. */
static int add_group(const struct group *g, const struct taken *s, int head, struct ranges *rs)
{
    struct record key = g->key;
    key.head0 = head >= g->widest ? (uint16_t)(head - g->widest + 1) : 0;
    for (size_t i = trace_lower_bound(g->t, &key); in_group(g, i); i++) {
        const struct record *r = &g->t->rec[i];
        uint32_t from = r->t0 > s->from ? r->t0 : s->from;
        uint32_t to = r->t0 + r->n < s->to ? r->t0 + r->n : s->to;
        if (r->head0 > head)
            break;
        int err = head < r->head0 + r->n_heads && from < to ? add_range(rs, from, to) : KVF_OK;
        if (err)
            return err;
    }
    return KVF_OK;
}

static int ranges_of(const struct groups *gs, const struct taken *s, int head, struct ranges *rs)
{
    int err = KVF_OK;
    rs->n = 0;
    for (int i = 0; !err && i < gs->n; i++)
        err = add_group(&gs->in[i], s, head, rs);
    if (!err)
        join_ranges(rs);
    return err;
}

/* The first head after this one at which a record begins; KVF_MAX_HEADS: none. */
static int next_head(const struct groups *gs, int head)
{
    int next = KVF_MAX_HEADS;
    for (int i = 0; i < gs->n; i++) {
        struct record key = gs->in[i].key;
        key.head0 = (uint16_t)(head + 1);
        size_t at = trace_lower_bound(gs->in[i].t, &key);
        if (in_group(&gs->in[i], at) && gs->in[i].t->rec[at].head0 < next)
            next = gs->in[i].t->rec[at].head0;
    }
    return next;
}

/* ---- values */

/* Steps that are values are counted from the beginning of the new trace. */
static int shift_steps(const struct taken *s, const struct kvf_column *k, uint32_t *v, size_t n,
                       struct kvf_diag *d)
{
    for (size_t i = 0; i < n; i++) {
        int64_t moved = (int64_t)v[i] - s->from + s->at;
        if (v[i] != UINT32_MAX && (moved < 0 || moved >= UINT32_MAX))
            return kvf_fail(d, KVF_E_CORRUPT, "%s: a step of the column %s is %u, which cannot be",
                            s->t->path, k->name, v[i]);
        v[i] = v[i] == UINT32_MAX ? v[i] : (uint32_t)moved;
    }
    return KVF_OK;
}

/* Heads head .. head + n_heads - 1 of a layer of the new trace, that have the same indices. */
struct band {
    int column, layer, head, n_heads;
};

/* Lists of intervals, with steps of the complete run. */
static int copy_lists(struct copying *c, const struct taken *s, const struct band *b, uint32_t from,
                      uint32_t n, struct kvf_diag *d)
{
    const struct kvf_column *k = &c->column[b->column];
    const struct kvf_interval *lists;
    uint32_t *end = (uint32_t *)(void *)c->block;
    int err = KVF_OK, layer = k->space == KVF_SPACE_RUN ? 0 : c->layer_of[b->layer];
    for (int h = 0; !err && h < b->n_heads; h++) {
        err = kvf_read_intervals(s->t, c->column_of[b->column], layer,
                                 copying_head_of(c, b->layer, k->space, b->head + h), from, n, end,
                                 &lists, d);
        if (!err)
            err = copying_wrote(c,
                                kvf_write_intervals(c->w, b->column, b->layer, b->head + h, 1, from,
                                                    n, 1, end, lists),
                                d);
    }
    return err;
}

static int copy_block(struct copying *c, const struct taken *s, const struct band *b, uint32_t from,
                      uint32_t n, struct kvf_diag *d)
{
    const struct kvf_column *k = &c->column[b->column];
    size_t row = n * kvf_dtype_size(k->dtype);
    if (k->flags & KVF_COL_INTERVALS)
        return copy_lists(c, s, b, from, n, d);
    int err = KVF_OK, layer = k->space == KVF_SPACE_RUN ? 0 : c->layer_of[b->layer];
    for (int h = 0; !err && h < b->n_heads; h++)
        err = kvf_read(s->t, c->column_of[b->column], layer,
                       copying_head_of(c, b->layer, k->space, b->head + h), from, n,
                       c->block + (size_t)h * row, d);
    if (!err && s->from != s->at && holds_steps(k))
        err = shift_steps(s, k, (uint32_t *)(void *)c->block, (size_t)b->n_heads * n, d);
    if (err)
        return err;
    err = kvf_write_chunk(c->w, b->column, b->layer, b->head, b->n_heads, from - s->from + s->at, n,
                          k->flags & KVF_COL_SNAPSHOT ? 1 : 0, c->block);
    return copying_wrote(c, err, d);
}

static int copy_band(struct copying *c, const struct taken *s, const struct band *b,
                     struct kvf_diag *d)
{
    size_t width = kvf_dtype_size(c->column[b->column].dtype);
    uint32_t most = (uint32_t)(CHUNK_RAW / (width * (size_t)b->n_heads));
    for (size_t i = 0; i < c->mine.n; i++) {
        struct range r = c->mine.list[i];
        for (uint32_t n; r.from < r.to; r.from += n) {
            n = r.to - r.from < most ? r.to - r.from : most;
            int err = copy_block(c, s, b, r.from, n, d);
            if (err)
                return err;
        }
    }
    return KVF_OK;
}

static bool same_ranges(const struct ranges *a, const struct ranges *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->list, b->list, a->n * sizeof *a->list) == 0);
}

/* Takes as many heads into the band as have the same indices and fit into one chunk, as far as the
 * source has them in one, too; their indices are c->mine. */
static int grow_band(struct copying *c, const struct taken *s, const struct groups *gs,
                     struct band *b)
{
    int space = c->column[b->column].space, heads = copying_heads(c, b->layer, space);
    int most = gs->widest > 1 ? gs->widest : 1;
    int head = copying_head_of(c, b->layer, space, b->head);
    int err = ranges_of(gs, s, head, &c->mine);
    int none = !err && c->mine.n == 0 ? next_head(gs, head) : 0; /* heads without values */
    for (b->n_heads = 1; !err && none && b->head + b->n_heads < heads; b->n_heads++)
        if (copying_head_of(c, b->layer, space, b->head + b->n_heads) >= none)
            break;
    for (; !err && !none && b->n_heads < most && b->head + b->n_heads < heads; b->n_heads++) {
        head = copying_head_of(c, b->layer, space, b->head + b->n_heads);
        err = ranges_of(gs, s, head, &c->next);
        if (!err && !same_ranges(&c->mine, &c->next))
            break;
    }
    return err;
}

/* Values that are not there, of a column and layer. */
struct gap {
    uint64_t values, missing;
    int head;
    uint32_t index; /* the first of them */
};

static void count_band(const struct copying *c, const struct taken *s, const struct band *b,
                       struct gap *gap)
{
    uint64_t have = 0, heads = (uint64_t)b->n_heads;
    uint32_t at = s->from;
    for (size_t i = 0; i < c->mine.n; i++) {
        have += c->mine.list[i].to - c->mine.list[i].from;
        at = c->mine.list[i].from <= at ? c->mine.list[i].to : at;
    }
    if (have < s->to - s->from && !gap->missing) {
        gap->head = b->head;
        gap->index = at;
    }
    gap->values += have * heads;
    gap->missing += (s->to - s->from - have) * heads;
}

static void tell_gap(struct copying *c, int column, int layer, const struct gap *gap)
{
    struct kvf_diag line = {""};
    unsigned long long missing = gap->missing, all = missing + gap->values;
    c->repaired->values += gap->values;
    c->repaired->missing += gap->missing;
    if (!missing)
        return;
    kvf_fail(&line, KVF_OK,
             "%s of layer %d: %llu of %llu values are not there, the first of head %d at %u",
             c->column[column].name, layer, missing, all, gap->head, gap->index);
    c->say(c->ctx, line.text);
}

static int copy_layer(struct copying *c, const struct taken *s, int column, int layer,
                      struct kvf_diag *d)
{
    int space = c->column[column].space, heads = copying_heads(c, layer, space), err = KVF_OK;
    int from = space == KVF_SPACE_RUN ? 0 : c->layer_of[layer];
    struct groups gs = groups_of(s->t, c->column_of[column], from);
    struct band b = {.column = column, .layer = layer};
    struct gap gap = {0};
    for (; !err && b.head < heads; b.head += b.n_heads) {
        err = grow_band(c, s, &gs, &b);
        if (!err)
            err = copy_band(c, s, &b, d);
        if (!err && c->repaired)
            count_band(c, s, &b, &gap);
    }
    if (!err && c->repaired)
        tell_gap(c, column, layer, &gap);
    return err;
}

/* ---- texts */

static uint32_t texts_end(const struct kvf_trace *t)
{
    uint32_t end = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        if (t->rec[i].type == REC_TOKENS && t->rec[i].n <= t->rec[i].stored_len / 4
            && t->rec[i].t0 <= KVF_MAX_STEPS && t->rec[i].n <= KVF_MAX_STEPS - t->rec[i].t0
            && t->rec[i].t0 + t->rec[i].n > end)
            end = t->rec[i].t0 + t->rec[i].n;
    uint32_t more = t->tail ? texts_end(t->tail) : 0;
    return more > end ? more : end;
}

/* Texts that are written together. */
struct texts {
    struct buf bytes;
    uint32_t *end; /* [n] */
    uint32_t t0, n;
};
enum { TEXTS = 16384, TEXT_BYTES = 1 << 20 };

static int flush_texts(struct copying *c, struct texts *x, struct kvf_diag *d)
{
    const char *text = x->bytes.data ? x->bytes.data : "";
    int err = x->bytes.err;
    if (!err && x->n)
        err = copying_wrote(c, kvf_write_token_bytes(c->w, x->t0, x->n, x->end, text), d);
    buf_clear(&x->bytes);
    x->n = 0;
    return err;
}

static int copy_texts(struct copying *c, const struct taken *s, struct kvf_diag *d)
{
    uint32_t end = texts_end(s->t), missing = 0;
    struct texts x = {.end = MEM_NEW(uint32_t, TEXTS)};
    int err = x.end ? trace_load_texts(s->t) : KVF_E_NOMEM;
    if (err)
        kvf_fail(d, err, "%s: texts of tokens cannot be read: %s", s->t->path, kvf_strerror(err));
    for (uint32_t i = s->from; !err && i < s->to && i < end; i++) {
        size_t len = 0;
        const char *text = kvf_token(s->t, i, &len);
        if (!text || x.n == TEXTS || x.bytes.len + len > TEXT_BYTES)
            err = flush_texts(c, &x, d);
        missing += !text;
        if (err || !text)
            continue;
        if (x.n == 0)
            x.t0 = i - s->from + s->at;
        buf_add(&x.bytes, text, len);
        x.end[x.n++] = (uint32_t)x.bytes.len;
    }
    if (!err)
        err = flush_texts(c, &x, d);
    if (c->repaired && s->to > end)
        missing += s->to - (end > s->from ? end : s->from);
    if (c->repaired && c->had_texts)
        c->repaired->texts_missing += missing;
    buf_finish(&x.bytes);
    mem_free(x.end);
    return err;
}

/* A piece of a run has not the steps of which the intervals of its tokens speak. */
static int check_lists(const struct copying *c, const struct taken *s, struct kvf_diag *d)
{
    bool all = s->from == 0 && s->at == 0 && s->to >= s->t->n_steps;
    for (int k = 0; !all && k < c->n_columns; k++)
        if (c->column[k].flags & KVF_COL_INTERVALS)
            return kvf_fail(d, KVF_E_ARG,
                            "%s: the column %s has intervals of steps of the complete run, which a "
                            "part of its tokens cannot have; take all tokens",
                            s->t->path, c->column[k].name);
    return KVF_OK;
}

int copying_fill(struct copying *c, const struct taken *s, struct kvf_diag *d)
{
    int err = check_lists(c, s, d);
    for (int k = 0; !err && k < c->n_columns; k++) {
        int layers = c->column[k].space == KVF_SPACE_RUN ? 1 : c->n_layers;
        for (int l = 0; !err && l < layers; l++)
            err = copy_layer(c, s, k, l, d);
    }
    return err ? err : copy_texts(c, s, d);
}

/* Whether a column has no values because none were written, by the index of a closed trace. */
static bool never_written(const struct kvf_trace *t, int column)
{
    for (size_t i = 0; i < t->n_listed; i++)
        if (is_chunk(&t->listed[i]) && t->listed[i].column == (uint32_t)column)
            return false;
    return t->n_listed > 0;
}

/* Counts all values of a column as missing. */
static void count_column(struct copying *c, const struct taken *s, int column)
{
    int space = c->column[column].space, layers = space == KVF_SPACE_RUN ? 1 : c->n_layers;
    for (int l = 0; l < layers && !never_written(s->t, c->column_of[column]); l++)
        c->repaired->missing += (uint64_t)(s->to - s->from) * (uint64_t)copying_heads(c, l, space);
}

int copying_leave_empty(struct copying *c, const struct taken *s)
{
    int kept = 0, err = KVF_OK;
    for (int k = 0; !err && k < c->n_columns; k++) {
        int space = c->column[k].space, layers = space == KVF_SPACE_RUN ? 1 : c->n_layers;
        bool any = false;
        for (int l = 0; !err && !any && l < layers; l++) {
            struct groups gs = groups_of(s->t, c->column_of[k], space ? c->layer_of[l] : 0);
            struct band b = {.column = k, .layer = l};
            for (; !err && !any && b.head < copying_heads(c, l, space); b.head += b.n_heads) {
                err = grow_band(c, s, &gs, &b);
                any = !err && c->mine.n;
            }
        }
        if (!err && !any)
            count_column(c, s, k);
        c->column[kept] = c->column[k];
        c->column_of[kept] = c->column_of[k];
        kept += any;
    }
    c->n_columns = kept;
    return err;
}
