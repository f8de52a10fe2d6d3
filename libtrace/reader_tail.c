/* reader_tail.c - the tail file of an unfinished trace, with its newest state. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/replace.h"
#include "libtrace/reader.h"

/* A trace of the same run, closed, with more steps. */
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

/* The name that the tail of a trace would have: mem_free.  KVF_E_NOTFOUND: it needs none. */
static int tail_name(const struct kvf_trace *t, char **ret)
{
    static const char unfinished[] = REPLACE_UNFINISHED;
    size_t n = strlen(t->path), cut = sizeof unfinished - 1;
    struct buf name = {0};
    if (t->clean || !t->header.chained || t->header_lost)
        return KVF_E_NOTFOUND;
    if (n > cut && strcmp(t->path + n - cut, unfinished) == 0)
        n -= cut;
    buf_add(&name, t->path, n);
    buf_str(&name, TAIL_SUFFIX);
    const int err = name.err;
    if (err)
        buf_finish(&name);
    else
        *ret = name.data;
    return err;
}

static int ends_early(const char *name, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_CORRUPT, "%s: the tail ends early; it was complete when written",
                    name);
}

/* True if a file of this name exists, even if it cannot be read. */
static bool is_there(const char *name)
{
    return access(name, F_OK) == 0 || errno != ENOENT;
}

static int open_tail(struct kvf_trace *t)
{
    struct kvf_trace *tail = NULL;
    struct kvf_diag why = {""};
    char *name = NULL;
    int err = tail_name(t, &name);
    if (err)
        return err == KVF_E_NOTFOUND ? KVF_OK : err;
    err = trace_open(name, KVF_OPEN_TAIL, &tail, &why);
    if (!err && !tail->clean)
        err = ends_early(name, &why);
    if (err && err != KVF_E_NOMEM && is_there(name)) {
        t->tail_aside = mem_strdup(why.text);
        err = t->tail_aside ? err : KVF_E_NOMEM;
    }
    mem_free(name);
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

int kvf_open_mapped(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
                    struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    int err = kvf_open(path, mode, &t, d);
    if (err)
        return err;
    err = trace_map(t, d);
    if (err)
        kvf_close(t);
    else
        *ret_trace = t;
    return err;
}

const char *kvf_tail_aside(const struct kvf_trace *t)
{
    return t->tail_aside;
}

/* A tail with intact records: d has the reason if readers ignore it. */
static int compare_tail(const struct kvf_trace *t, const char *name, struct kvf_diag *d)
{
    struct kvf_trace *tail = NULL;
    int err = trace_open(name, KVF_OPEN_TAIL, &tail, d);
    if (err)
        return err;
    bool later = tail->n_steps > t->n_steps;
    if (!fits(t, tail))
        err = kvf_fail(d, KVF_OK, "%s: the tail %s, and is left aside", name,
                       later ? "is of another run" : "does not continue after the trace");
    kvf_close(tail);
    return err;
}

int kvf_verify_tail(const char *path, int full, struct kvf_check *ret, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    char *name = NULL;
    int err = trace_open(path, KVF_OPEN_TAIL, &t, d);
    if (!err)
        err = tail_name(t, &name);
    if (!err && !is_there(name))
        err = KVF_E_NOTFOUND;
    if (!err)
        err = kvf_verify(name, full, ret, d);
    if (!err && !ret->clean)
        err = ends_early(name, d);
    if (!err)
        err = compare_tail(t, name, d);
    mem_free(name);
    kvf_close(t);
    return err;
}
