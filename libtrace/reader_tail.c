/* reader_tail.c - the file beside an unfinished trace that holds its newest state. */
#include <string.h>

#include "base/buf.h"
#include "base/replace.h"
#include "libtrace/reader.h"

/* A trace of the same run, closed, that goes further. */
static bool fits(const struct kvf_trace *t, const struct kvf_trace *tail)
{
    size_t n = (size_t)t->n_columns, layers = (size_t)t->n_layers;
    return tail->clean && tail->header.chained && tail->header.id.low == t->header.id.low
           && tail->header.id.high == t->header.id.high && tail->n_steps > t->n_steps
           && tail->n_columns == t->n_columns && tail->n_layers == t->n_layers
           && memcmp(tail->column, t->column, n * sizeof *t->column) == 0
           && memcmp(tail->n_kv, t->n_kv, layers * sizeof *t->n_kv) == 0
           && memcmp(tail->n_query, t->n_query, layers * sizeof *t->n_query) == 0;
}

static int open_tail(struct kvf_trace *t)
{
    static const char unfinished[] = REPLACE_UNFINISHED;
    size_t n = strlen(t->path), cut = sizeof unfinished - 1;
    struct kvf_trace *tail = NULL;
    struct buf name = {0};
    if (t->clean || !t->header.chained || t->header_lost)
        return KVF_OK;
    if (n > cut && strcmp(t->path + n - cut, unfinished) == 0)
        n -= cut;
    buf_add(&name, t->path, n);
    buf_str(&name, TAIL_SUFFIX);
    int err = name.err ? name.err : trace_open(name.data, KVF_OPEN_TAIL, &tail, NULL);
    buf_finish(&name);
    if (err == KVF_E_NOMEM)
        return err;
    if (err || !fits(t, tail)) { /* then there is no tail */
        kvf_close(tail);
        return KVF_OK;
    }
    t->tail = tail;
    t->n_steps = tail->n_steps;
    t->epoch++;
    return KVF_OK;
}

int kvf_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
             struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    int err = trace_open(path, mode, &t, d);
    if (err)
        return err;
    err = open_tail(t);
    if (err)
        kvf_close(t);
    else
        *ret_trace = t;
    return err;
}
