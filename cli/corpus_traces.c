#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kvf/trace.h>

#include "base/mem.h"
#include "base/progress.h"
#include "cli/corpus_traces.h"
#include "cli/open_traces.h"
#include "studies/corpus.h"

static int add(struct corpus_traces *t, const char *path)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct corpus_trace *list = mem_grow(t->trace, t->n, cap, sizeof *list);
        if (!list)
            return KVF_E_NOMEM;
        t->trace = list;
        t->cap = cap;
    }
    t->trace[t->n] = (struct corpus_trace){.path = mem_strdup(path)};
    return t->trace[t->n++].path ? KVF_OK : KVF_E_NOMEM;
}

static int add_folder(struct corpus_traces *t, const char *folder, struct kvf_diag *d)
{
    DIR *dir = opendir(folder);
    struct buf path = {0};
    int err = KVF_OK;
    if (!dir)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", folder, strerror(errno));
    for (struct dirent *f = readdir(dir); !err && f; f = readdir(dir)) {
        size_t n = strlen(f->d_name);
        if (f->d_name[0] == '.' || n < 5 || strcmp(f->d_name + n - 4, ".kvf") != 0)
            continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", folder, f->d_name);
        err = path.err ? path.err : add(t, path.data);
    }
    closedir(dir);
    buf_finish(&path);
    return err;
}

static int add_list(struct corpus_traces *t, const char *list, struct kvf_diag *d)
{
    struct buf line = {.max = 65536};
    FILE *f = fopen(list, "r");
    int c = f ? 0 : EOF, err = KVF_OK;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", list, strerror(errno));
    while (!err && c != EOF) {
        buf_clear(&line);
        for (c = getc(f); c != EOF && c != '\n'; c = getc(f))
            buf_char(&line, (char)c);
        if (line.err)
            err = kvf_fail(d, KVF_E_IO, "%s: a line is too long", list);
        else if (line.len && line.data[0] != '#')
            err = add(t, line.data);
    }
    if (!err && ferror(f))
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read", list);
    fclose(f);
    buf_finish(&line);
    return err;
}

int traces_add(struct corpus_traces *t, const char *operand, struct kvf_diag *d)
{
    struct stat st;
    if (operand[0] == '@')
        return add_list(t, operand + 1, d);
    if (stat(operand, &st) == 0 && S_ISDIR(st.st_mode))
        return add_folder(t, operand, d);
    return add(t, operand);
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
        err = kvf_check_size(t, &d);
        if (!err)
            err = corpus_identify(t, &x->document, &x->print, &d);
        if (err && strncmp(d.text, x->path, strlen(x->path)) != 0)
            kvf_diag_prefix(&d, "%s", x->path);
    }
    if (err)
        x->why = mem_strdup(d.text[0] ? d.text : kvf_strerror(err));
    x->no_memory = err && (err == KVF_E_NOMEM || !x->why);
    kvf_close(t);
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
    enum { ROUND = 256 };
    struct progress bar;
    progress_start(&bar, "scan", "traces", (int64_t)t->n);
    for (size_t at = 0; at < t->n; at += ROUND) {
        int n = t->n - at < ROUND ? (int)(t->n - at) : ROUND;
        par_run(pool, n, identify, t->trace + at);
        progress_update(&bar, (int64_t)at + n);
    }
    progress_end(&bar, (int64_t)t->n);
    for (size_t i = 0; i < t->n; i++)
        if (t->trace[i].no_memory)
            return KVF_E_NOMEM;
    if (t->n)
        qsort(t->trace, t->n, sizeof *t->trace, by_document);
    while (t->n_readable < t->n && !t->trace[t->n_readable].why)
        t->n_readable++;
    return KVF_OK;
}

static void forget(struct corpus_trace *x)
{
    mem_free(x->path);
    mem_free(x->why);
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
