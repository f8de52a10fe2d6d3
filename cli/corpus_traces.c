/* corpus_traces.c - lists the traces of a corpus and identifies their documents. */
#include <stdlib.h>
#include <string.h>

#include <kvf/trace.h>

#include "base/mem.h"
#include "base/progress.h"
#include "cli/corpus_traces.h"
#include "base/files.h"
#include "cli/open_traces.h"
#include "studies/corpus.h"

int traces_add_file(struct corpus_traces *t, const char *path)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct corpus_trace *list = mem_grow(t->trace, t->n, cap, sizeof *list);
        if (!list)
            return KVF_E_NOMEM;
        t->trace = list;
        t->cap = cap;
    }
    t->trace[t->n] = (struct corpus_trace){.path = mem_strdup(path), .where = t->where};
    return t->trace[t->n++].path ? KVF_OK : KVF_E_NOMEM;
}

static int add(void *ctx, const char *path)
{
    return traces_add_file(ctx, path);
}

int traces_add(struct corpus_traces *t, const char *operand, struct kvf_diag *d)
{
    return files_each(operand, ".kvf", add, t, d);
}

/* Sets x->unwanted if the trace does not meet its conditions. Returns KVF_OK or KVF_E_NOMEM. */
static int check_conditions(struct kvf_trace *t, struct corpus_trace *x)
{
    struct trace_facts f = {0};
    int err = x->where ? facts_read(t, &f) : KVF_OK;
    x->unwanted = !err && !where_holds(x->where, &f);
    facts_free(&f);
    return err;
}

static void identify(void *ctx, int task, int thread)
{
    struct corpus_trace *x = (struct corpus_trace *)ctx + task;
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    (void)thread;
    int err = kvf_open(x->path, KVF_OPEN_TAIL, &t, &d);
    if (!err) {
        x->partial = trace_is_partial(t);
        x->steps = kvf_n_steps(t);
        err = kvf_check_size(t, &d);
        if (!err)
            err = check_conditions(t, x);
        if (!err && !x->unwanted)
            err = corpus_identify(t, &x->document, &x->print, &d);
        if (err && strncmp(d.text, x->path, strlen(x->path)) != 0)
            kvf_diag_prefix(&d, "%s", x->path);
    }
    if (err)
        x->why = mem_strdup(d.text[0] ? d.text : kvf_strerror(err));
    x->no_memory = err && (err == KVF_E_NOMEM || !x->why);
    kvf_close(t);
}

static void forget(struct corpus_trace *x)
{
    mem_free(x->path);
    mem_free(x->why);
}

static void drop_unwanted(struct corpus_traces *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->trace[i].unwanted)
            forget(&t->trace[i]);
        else
            t->trace[kept++] = t->trace[i];
    t->n = kept;
}

static int by_document(const void *a, const void *b)
{
    const struct corpus_trace *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? 1 : -1;
    if (!x->why && x->document != y->document)
        return x->document < y->document ? -1 : 1;
    if (!x->why && x->print != y->print)
        return x->print < y->print ? -1 : 1;
    return strcmp(x->path, y->path);
}

int traces_identify(struct corpus_traces *t, struct par *pool)
{
    struct progress bar;
    progress_start(&bar, "scan", "traces", (int64_t)t->n);
    par_run_watched(pool, (int)t->n, identify, t->trace,
                    &(struct progress_callback){progress_told, &bar});
    progress_end(&bar, (int64_t)t->n);
    for (size_t i = 0; i < t->n; i++)
        if (t->trace[i].no_memory)
            return KVF_E_NOMEM;
    drop_unwanted(t);
    if (t->n)
        qsort(t->trace, t->n, sizeof *t->trace, by_document);
    while (t->n_readable < t->n && !t->trace[t->n_readable].why)
        t->n_readable++;
    return KVF_OK;
}

void traces_shard(struct corpus_traces *t, int64_t shard, int64_t of)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct corpus_trace *x = &t->trace[i];
        if (!x->why && x->document % (uint64_t)of != (uint64_t)(shard - 1))
            forget(x);
        else
            t->trace[kept++] = *x;
    }
    t->n = kept;
    for (t->n_readable = 0; t->n_readable < t->n && !t->trace[t->n_readable].why;)
        t->n_readable++;
}

void traces_free(struct corpus_traces *t)
{
    for (size_t i = 0; i < t->n; i++)
        forget(&t->trace[i]);
    mem_free(t->trace);
    *t = (struct corpus_traces){0};
}
