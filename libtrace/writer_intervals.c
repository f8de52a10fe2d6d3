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

/* One record of lists k0 .. k0 + r->n_heads * r->n - 1, which lie one behind the other. */
static int write_lists(struct kvf_writer *w, struct record *r, const uint32_t *end, size_t k0,
                       const struct kvf_interval *v)
{
    const char *column = w->column[r->column].name;
    uint64_t name = hash64(column, strlen(column));
    size_t n_lists = (size_t)r->n_heads * r->n;
    uint32_t base = k0 ? end[k0 - 1] : 0, from = base;
    for (size_t k = 0; k < n_lists; from = end[k0 + k++]) {
        uint32_t to = end[k0 + k];
        put_le(w->raw + 4 * k, to - base, 4);
        digest_list(&w->content.pending, name, r->layer, r->head0 + (int)(k / r->n),
                    r->t0 + (uint32_t)(k % r->n), v + from, to - from);
    }
    if (from > base) /* v may be NULL where there is none */
        memcpy(w->raw + 4 * n_lists, v + base, (from - base) * sizeof *v);
    r->raw_len = 4 * n_lists + (from - base) * sizeof *v;
    return writer_append_chunk(w, r, 4);
}

/* The lists of one head, as many to a record as go into it. */
static int write_head(struct kvf_writer *w, const struct record *all, int head, const uint32_t *end,
                      const struct kvf_interval *v)
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
        int err = write_lists(w, &r, end, first + at, v);
        if (err)
            return err;
    }
    return KVF_OK;
}

int kvf_write_intervals(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                        uint32_t t0, uint32_t n, uint32_t epoch, const uint32_t *end,
                        const struct kvf_interval *interval)
{
    if (w->err)
        return w->err;
    if (!writer_has_place(w, column, layer, head0, n_heads, t0, n, epoch, true))
        return KVF_E_ARG;
    size_t n_lists = (size_t)n_heads * n;
    uint32_t needs = w->needs;
    int err = check_lists(end, n_lists, t0, n, interval, &needs);
    if (err || n == 0)
        return err;
    w->needs = needs;
    struct record r = {.type = REC_INTERVALS,
                       .column = (uint32_t)column,
                       .layer = (uint16_t)layer,
                       .head0 = (uint16_t)head0,
                       .n_heads = (uint16_t)n_heads,
                       .t0 = t0,
                       .n = n,
                       .epoch = epoch};
    if (4 * n_lists + 8 * (size_t)end[n_lists - 1] <= CHUNK_RAW)
        return write_lists(w, &r, end, 0, interval);
    for (int h = 0; !err && h < n_heads; h++)
        err = write_head(w, &r, h, end, interval);
    return err;
}
