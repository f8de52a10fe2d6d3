/* reader_held.c - what a file holds, by its records: nothing is decoded. */
#include "libtrace/reader.h"

uint64_t kvf_bytes(const struct kvf_trace *t)
{
    return t->size;
}

int kvf_check_size(const struct kvf_trace *t, struct kvf_diag *d)
{
    enum { OF_ANY = 1 << 17 };
    uint64_t heads = 0;
    for (int l = 0; l < t->n_layers; l++)
        heads += (uint64_t)t->n_kv[l] + t->n_query[l];
    bool many_heads = heads > OF_ANY && heads > t->size;
    if (!many_heads && (t->n_steps <= OF_ANY || t->n_steps <= t->size))
        return KVF_OK;
    return kvf_fail(d, KVF_E_LIMIT,
                    "%s declares %llu %s in a file of %llu bytes, which is less than a byte for "
                    "each: it is no record of a run",
                    t->path, (unsigned long long)(many_heads ? heads : t->n_steps),
                    many_heads ? "heads" : "steps", (unsigned long long)t->size);
}

uint64_t kvf_held(const struct kvf_trace *t, int column)
{
    const struct kvf_column *c = kvf_column(t, column);
    uint64_t n = 0;
    for (size_t i = 0; c && i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        uint32_t epoch = c->flags & KVF_COL_SNAPSHOT ? t->epoch : 0;
        if (r->type != REC_COLUMN || r->column != (uint32_t)column || r->epoch != epoch
            || r->t0 >= t->n_steps)
            continue;
        uint64_t most = t->n_steps - r->t0;
        n += (r->n < most ? r->n : most) * r->n_heads;
    }
    return n;
}
