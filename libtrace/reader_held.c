/* reader_held.c - counts the values of a file by its records, without decoding. */
#include "libtrace/reader.h"

uint64_t kvf_bytes(const struct kvf_trace *t)
{
    return t->size + (t->tail ? t->tail->size : 0);
}

int kvf_check_size(const struct kvf_trace *t, struct kvf_diag *d)
{
    enum { OF_ANY = 1 << 17 };
    uint64_t heads = 0, bytes = kvf_bytes(t);
    for (int l = 0; l < t->n_layers; l++)
        heads += (uint64_t)t->n_kv[l] + t->n_query[l];
    bool many_heads = heads > OF_ANY && heads > bytes;
    if (!many_heads && (t->n_steps <= OF_ANY || t->n_steps <= bytes))
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s declares %llu %s in a file of %llu bytes, which is less than a byte for "
                    "each: it is no record of a run",
                    t->path, (unsigned long long)(many_heads ? heads : t->n_steps),
                    many_heads ? "heads" : "steps", (unsigned long long)bytes);
}

static uint64_t decodes_to(const struct kvf_trace *t)
{
    uint64_t raw = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        if (is_chunk(&t->rec[i]) || t->rec[i].type == REC_BLOB)
            raw += t->rec[i].raw_len;
    return raw;
}

int trace_check_raw(const struct kvf_trace *t, struct kvf_diag *d)
{
    const uint64_t of_any = 1 << 30, of_a_byte = 4096;
    uint64_t raw = decodes_to(t);
    if (raw <= of_any || raw / of_a_byte <= t->size)
        return KVF_OK;
    return kvf_fail(
        d, KVF_E_LIMIT,
        "%s: columns and blobs would decode to %llu bytes, out of a file of %llu: it is no "
        "record of a run",
        t->path, (unsigned long long)raw, (unsigned long long)t->size);
}

int trace_check_source(const struct kvf_trace *t, struct kvf_diag *d)
{
    int err = kvf_check_size(t, d);
    if (!err)
        err = trace_check_raw(t, d);
    return err || !t->tail ? err : trace_check_raw(t->tail, d);
}

void kvf_watch(struct kvf_trace *t, kvf_watch_fn fn, void *ctx)
{
    t->watch = (struct watch){fn, ctx, 0, decodes_to(t)};
    if (t->tail)
        kvf_watch(t->tail, fn, ctx);
}

/* The values that records declare: lists or single values, and intervals in lists. */
struct held {
    uint64_t values, intervals;
};

/* The values of a column within the first steps, in the records of one file. */
static struct held held_in(const struct kvf_trace *t, int column, uint32_t steps)
{
    const struct kvf_column *c = kvf_column(t, column);
    struct held sum = {0, 0};
    for (size_t i = 0; c && i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        uint32_t epoch = c->flags & KVF_COL_SNAPSHOT ? t->epoch : 0;
        if (r->type != trace_type_of(c) || r->column != (uint32_t)column || r->epoch != epoch
            || r->t0 >= steps)
            continue;
        uint64_t most = steps - r->t0, ends = 4 * (uint64_t)r->n * r->n_heads;
        sum.values += (r->n < most ? r->n : most) * r->n_heads;
        if (r->type == REC_INTERVALS && r->raw_len > ends)
            sum.intervals += (r->raw_len - ends) / sizeof(struct kvf_interval);
    }
    return sum;
}

static struct held held(const struct kvf_trace *t, int column)
{
    const struct held none = {0, 0};
    struct held a = trace_in_tail(t, column) ? none : held_in(t, column, t->n_steps);
    struct held b = t->tail ? held_in(t->tail, column, t->n_steps) : none;
    return (struct held){a.values + b.values, a.intervals + b.intervals};
}

uint64_t kvf_held(const struct kvf_trace *t, int column)
{
    return held(t, column).values;
}

uint64_t kvf_held_intervals(const struct kvf_trace *t, int column)
{
    return held(t, column).intervals;
}

const char *kvf_format(const struct kvf_trace *t)
{
    return t->header.chained ? "1.0" : "0.1";
}
