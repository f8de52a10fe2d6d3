/* writer_intervals.c - lists of intervals of steps, of columns with KVF_COL_INTERVALS. */
#include <string.h>

#include "libtrace/writer.h"

/* The list of one token, n intervals, whether it can be.  *needs rises to the number of steps that
 * it speaks of. */
static int check_list(const struct kvf_interval *v, uint32_t n, uint32_t token, uint32_t *needs)
{
    if (n > KVF_MAX_INTERVALS)
        return KVF_E_LIMIT;
    if (!trace_list_rises(v, n, token, KVF_MAX_STEPS))
        return KVF_E_ARG;
    if (n && v[n - 1].last >= *needs)
        *needs = v[n - 1].last + 1;
    return KVF_OK;
}

/* Lists k = 0 .. n_heads * n - 1; list k is of token t0 + k % n. */
static int check_lists(const uint32_t *end, size_t n_lists, uint32_t t0, uint32_t n,
                       const struct kvf_interval *v, uint32_t *needs)
{
    uint32_t from = 0;
    for (size_t k = 0; k < n_lists; from = end[k++]) {
        if (end[k] < from)
            return KVF_E_ARG;
        int err = check_list(v + from, end[k] - from, t0 + (uint32_t)(k % n), needs);
        if (err)
            return err;
    }
    return KVF_OK;
}

/* One record of lists k0 .. k0 + r->n_heads * r->n - 1, which are consecutive. */
static int write_lists(struct kvf_writer *w, struct encoder *e, struct record *r,
                       const uint32_t *end, size_t k0, const struct kvf_interval *v)
{
    struct hash128 holds = {0, 0};
    const char *column = w->column[r->column].name;
    uint64_t name = hash64(column, strlen(column));
    size_t n_lists = (size_t)r->n_heads * r->n;
    uint32_t base = k0 ? end[k0 - 1] : 0, from = base;
    size_t count = end[k0 + n_lists - 1] - base;
    struct kvf_interval *stored = (void *)(e->raw + 4 * n_lists);
    if (count) /* v may be NULL where there is none */
        copy_le(stored, v + base, 2 * count, sizeof v->first);
    for (size_t k = 0; k < n_lists; from = end[k0 + k++]) {
        uint32_t to = end[k0 + k];
        put_le(e->raw + 4 * k, to - base, 4);
        digest_list(&holds, name, r->layer, r->head0 + (int)(k / r->n),
                    r->t0 + (uint32_t)(k % r->n), stored + (from - base), to - from);
    }
    r->raw_len = 4 * n_lists + count * sizeof *v;
    const struct payload p = {.data = e->raw, .n = r->raw_len};
    return w->plain ? writer_put(w, r, p, holds) : writer_put_coded(w, e, r, 4, p, holds);
}

/* The lists of one head, as many to a record as go into it. */
static int write_head(struct kvf_writer *w, struct encoder *e, const struct record *all, int head,
                      const uint32_t *end, const struct kvf_interval *v)
{
    size_t first = (size_t)head * all->n, bytes;
    for (uint32_t at = 0, to; at < all->n; at = to) {
        uint32_t from = first + at ? end[first + at - 1] : 0;
        for (bytes = 0, to = at; to < all->n; to++) {
            bytes = 4 * (size_t)(to + 1 - at) + 8 * (size_t)(end[first + to] - from);
            if (bytes > CHUNK_RAW)
                break;
        }
        struct record r = *all;
        r.head0 = (uint16_t)(all->head0 + head);
        r.n_heads = 1;
        r.t0 = all->t0 + at;
        r.n = to - at;
        int err = write_lists(w, e, &r, end, first + at, v);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int write_all(struct kvf_writer *w, struct encoder *e, const struct record *all,
                     const uint32_t *end, const struct kvf_interval *v)
{
    size_t n_lists = (size_t)all->n_heads * all->n;
    struct record r = *all;
    if (4 * n_lists + 8 * (size_t)end[n_lists - 1] <= CHUNK_RAW)
        return write_lists(w, e, &r, end, 0, v);
    int err = KVF_OK;
    for (int h = 0; !err && h < all->n_heads; h++)
        err = write_head(w, e, all, h, end, v);
    return err;
}

int kvf_write_intervals(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                        uint32_t t0, uint32_t n, uint32_t epoch, const uint32_t *end,
                        const struct kvf_interval *interval)
{
    struct encoder *e;
    if (!writer_has_place(w, column, layer, head0, n_heads, t0, n, epoch, true))
        return writer_refuse(w, KVF_E_ARG);
    uint32_t needs = 0;
    int err = check_lists(end, (size_t)n_heads * n, t0, n, interval, &needs);
    if (err)
        return writer_refuse(w, err);
    err = writer_take(w, epoch, &e);
    if (err)
        return err;
    const struct record r = {.type = REC_INTERVALS,
                             .column = (uint32_t)column,
                             .layer = (uint16_t)layer,
                             .head0 = (uint16_t)head0,
                             .n_heads = (uint16_t)n_heads,
                             .t0 = t0,
                             .n = n,
                             .epoch = epoch};
    if (n) {
        writer_need(w, needs);
        err = write_all(w, e, &r, end, interval);
    }
    writer_give(w, e);
    return err;
}
