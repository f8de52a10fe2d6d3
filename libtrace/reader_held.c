/* reader_held.c - what a file holds, by its records: nothing is decoded. */
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

int trace_check_raw(const struct kvf_trace *t, struct kvf_diag *d)
{
    const uint64_t of_any = 1 << 30, of_a_byte = 4096;
    uint64_t raw = 0;
    for (size_t i = 0; i < t->n_rec; i++)
        if (is_chunk(&t->rec[i]))
            raw += t->rec[i].raw_len;
    if (raw <= of_any || raw / of_a_byte <= t->size)
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s: the columns would decode to %llu bytes, out of a file of %llu: it is no "
                    "record of a run",
                    t->path, (unsigned long long)raw, (unsigned long long)t->size);
}

/* What the records of one file hold of a column within the first steps. */
static uint64_t held_in(const struct kvf_trace *t, int column, uint32_t steps)
{
    const struct kvf_column *c = kvf_column(t, column);
    uint64_t n = 0;
    for (size_t i = 0; c && i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        uint32_t epoch = c->flags & KVF_COL_SNAPSHOT ? t->epoch : 0;
        if (r->type != trace_type_of(c) || r->column != (uint32_t)column || r->epoch != epoch
            || r->t0 >= steps)
            continue;
        uint64_t most = steps - r->t0;
        n += (r->n < most ? r->n : most) * r->n_heads;
    }
    return n;
}

uint64_t kvf_held(const struct kvf_trace *t, int column)
{
    uint64_t n = trace_in_tail(t, column) ? 0 : held_in(t, column, t->n_steps);
    return t->tail ? n + held_in(t->tail, column, t->n_steps) : n;
}
