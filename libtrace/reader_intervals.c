/* reader_intervals.c - lists of intervals of steps, of columns with KVF_COL_INTERVALS. */
#include "libtrace/reader.h"

/* A file of a few bytes may declare any number of them. */
enum { MOST_IN_A_CALL = 1 << 24 };

/* A decoded chunk: where each list ends, in intervals, then all intervals. */
static uint32_t end_of(const unsigned char *raw, size_t list)
{
    return (uint32_t)get_le(raw + 4 * list, 4);
}

static const struct kvf_interval *intervals_of(const struct record *r, const unsigned char *raw)
{
    return (const void *)(raw + 4 * (size_t)r->n_heads * r->n);
}

/* Lists [t0, t0 + n) of a head, into end [n], and their intervals into out unless that is NULL. */
struct gather {
    int head;
    uint32_t t0, n, have; /* have: index of the next list */
    uint32_t *end;
    struct kvf_interval *out;
    const struct kvf_interval *whole; /* all of them, if they are in one chunk */
};

/* Takes the values from g->have on from a chunk.  False: they are too many for one call. */
static bool take(struct gather *g, const struct record *r, const unsigned char *raw)
{
    uint32_t stop = r->t0 + r->n < g->t0 + g->n ? r->t0 + r->n : g->t0 + g->n;
    size_t list = (size_t)(g->head - r->head0) * r->n + (g->have - r->t0);
    uint32_t from = list ? end_of(raw, list - 1) : 0;
    uint32_t base = g->have > g->t0 ? g->end[g->have - g->t0 - 1] : 0, count = 0;
    bool all = LITTLE_ENDIAN_HERE && g->have == g->t0 && stop == g->t0 + g->n;
    g->whole = all ? intervals_of(r, raw) + from : NULL;
    for (; g->have < stop; g->have++) {
        count = end_of(raw, list++) - from;
        g->end[g->have - g->t0] = base + count;
    }
    if (g->out)
        copy_le(g->out + base, intervals_of(r, raw) + from, 2 * (size_t)count, sizeof(uint32_t));
    return base + count <= MOST_IN_A_CALL; /* neither is more than 2^24 before */
}

/* All of them.  A second pass only where the heads were grouped differently over time. */
static int gather(struct kvf_trace *t, const struct record *key, struct gather *g,
                  struct kvf_diag *d)
{
    uint32_t stop = g->t0 + g->n, before;
    g->have = g->t0;
    do {
        before = g->have;
        for (size_t i = trace_lower_bound(t, key); i < t->n_rec && g->have < stop; i++) {
            const struct record *r = &t->rec[i];
            const unsigned char *raw;
            if (!trace_same_group(r, key))
                break;
            if (g->head < r->head0 || g->head >= r->head0 + r->n_heads || r->t0 > g->have
                || r->t0 + r->n <= g->have)
                continue;
            int err = trace_chunk(t, i, &raw, d);
            if (err)
                return err;
            if (!take(g, r, raw))
                return kvf_fail(d, KVF_E_LIMIT, "%s: column %s has more than %d intervals there",
                                t->path, t->column[key->column].name, MOST_IN_A_CALL);
        }
    } while (g->have < stop && g->have > before);
    return g->have < stop ? trace_not_there(t, key, g->head, g->have, d) : KVF_OK;
}

int kvf_read_intervals(struct kvf_trace *t, int column, int layer, int head, uint32_t t0,
                       uint32_t n, uint32_t *end, const struct kvf_interval **ret,
                       struct kvf_diag *d)
{
    static const struct kvf_interval none = {0, 0};
    struct gather g = {.head = head, .t0 = t0, .n = n, .end = end};
    struct record key;
    int err = trace_key(t, column, layer, head, t0, n, true, &key, d);
    if (err)
        return err;
    if (trace_in_tail(t, column))
        return kvf_read_intervals(t->tail, column, layer, head, t0, n, end, ret, d);
    err = gather(t, &key, &g, d);
    if (err)
        return err;
    if (n == 0) {
        *ret = &none;
        return KVF_OK;
    }
    if (g.whole) {
        *ret = g.whole;
        return KVF_OK;
    }
    err = trace_room((size_t)end[n - 1] * sizeof *g.out, &t->raw);
    if (err)
        return err;
    g.out = (void *)t->raw.data;
    err = gather(t, &key, &g, d);
    if (!err)
        *ret = g.out;
    return err;
}
