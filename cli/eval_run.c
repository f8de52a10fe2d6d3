/* eval_run.c - evaluates the documents of `kvfate eval` with one process or the ranks of a crew. */
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "base/mem.h"
#include "cli/eval_job.h"

/* Copies a cell for a document, with its budget resolved. */
static int cell_of(const struct eval_job *j, int64_t doc, int c, struct eval_cell *ret,
                   struct kvf_diag *d)
{
    *ret = j->cell[c];
    return eval_cell_fit(ret, j->eval.engine, j->input[doc].text.prompt, d);
}

/* Copies the cells of a document that are not done into cell [j->n], and returns their number or
 * an error. */
static int cells_left(const struct eval_job *j, int64_t doc, struct eval_cell *cell,
                      struct kvf_diag *d)
{
    int n = 0, err = KVF_OK;
    for (int c = 0; !err && c < j->n; c++)
        if (!j->done[doc * j->n + c])
            err = cell_of(j, doc, c, &cell[n++], d);
    return err ? err : n;
}

/* Loads the results of the state file, and sets *ret_left to the number of tokens that must still
 * be fed. */
static int resume(struct eval_job *j, struct eval_cell *cell, int64_t *ret_left, struct kvf_diag *d)
{
    *ret_left = 0;
    for (int64_t i = 0; i < j->docs; i++) {
        for (int c = 0; c < j->n; c++) {
            int64_t at = i * j->n + c;
            int found = cell_of(j, i, c, cell, d);
            if (!found)
                found = eval_state_find(j->state, (int)i, j->input[i].hash, cell, &j->result[at],
                                        d);
            if (found < 0)
                return found;
            j->done[at] = found;
        }
        int n = cells_left(j, i, cell, d);
        if (n < 0)
            return n;
        *ret_left += eval_tokens(&j->eval, &j->input[i].text, cell, n);
    }
    return KVF_OK;
}

static void on_progress(void *ctx, int tokens)
{
    struct eval_job *j = ctx;
    j->fed += tokens;
    progress_update(&j->bar, j->fed);
}

/* Evaluates the cells of a document that are not done, and stores their results. cell and result
 * are scratch of [j->n]. */
static int run_document(struct eval_job *j, int64_t doc, struct eval_cell *cell,
                        struct eval_result *result, struct kvf_diag *d)
{
    int n = cells_left(j, doc, cell, d);
    if (n <= 0)
        return n;
    int err = eval_document(&j->eval, &j->input[doc].text, cell, n, result, d);
    for (int c = 0, k = 0; !err && c < j->n; c++) {
        int64_t at = doc * j->n + c;
        if (j->done[at])
            continue;
        j->result[at] = result[k];
        j->made++;
        err = eval_state_add(j->state, (int)doc, j->input[doc].hash, &cell[k++], &j->result[at], d);
    }
    return err;
}

static int open_state(struct eval_job *j, struct kvf_diag *d)
{
    const char *path = NULL;
    buf_clear(&j->own_file);
    if (j->state_path) {
        crew_own_file(j->crew, j->state_path, &j->own_file);
        path = j->own_file.data;
    }
    if (j->own_file.err)
        return j->own_file.err;
    return eval_state_open(path, &j->eval, (uint64_t)j->seed, kvf_version(), &j->state, d);
}

/* The state files of other ranks, from this run or from one that was interrupted. */
struct found {
    struct buf *path; /* [n] */
    int n;
};

static int find_files(const struct eval_job *j, struct found *f)
{
    enum { MISSING = 64 }; /* The search ends after so many consecutive ranks without a file. */
    for (int rank = 1, last = 0; rank <= last + MISSING; rank++) {
        struct buf path = {0};
        crew_file(j->state_path, rank, &path);
        int err = path.err;
        if (err || !eval_state_is(path.data)) {
            buf_finish(&path);
            if (err)
                return err;
            continue;
        }
        struct buf *grown = mem_grow(f->path, (size_t)f->n, (size_t)f->n + 1, sizeof *grown);
        if (!grown) {
            buf_finish(&path);
            return KVF_E_NOMEM;
        }
        f->path = grown;
        f->path[f->n++] = path;
        last = rank;
    }
    return KVF_OK;
}

/* Merges the files of all ranks into the file of rank 0, which is open and locked meanwhile. All
 * files are merged in one call, because a merge reads and writes all results. */
static int merge_files(struct eval_job *j, const struct found *f, struct kvf_diag *d)
{
    char **path = MEM_NEW(char *, (size_t)f->n + 1);
    if (!path)
        return KVF_E_NOMEM;
    path[0] = (char *)(uintptr_t)j->state_path;
    for (int i = 0; i < f->n; i++)
        path[i + 1] = f->path[i].data;
    int err = eval_states_merge(path, f->n + 1, j->state_path, d);
    for (int i = 0; !err && i < f->n; i++)
        remove(f->path[i].data);
    mem_free(path);
    return err;
}

/* Merges the files of other ranks, if there are any, into the file of rank 0, and opens it
 * again. */
static int merge_ranks(struct eval_job *j, struct kvf_diag *d)
{
    struct found f = {0};
    int err = j->state_path ? find_files(j, &f) : KVF_OK;
    if (!err && f.n) {
        err = merge_files(j, &f, d);
        eval_state_close(j->state);
        j->state = NULL;
        if (!err)
            err = open_state(j, d);
    }
    for (int i = 0; i < f.n; i++)
        buf_finish(&f.path[i]);
    mem_free(f.path);
    return err;
}

/* Loads the finished results from the file of rank 0. Sets complete[i] if all cells of document i
 * are done. */
static int load_results(struct eval_job *j, bool *complete, struct eval_cell *cell,
                        int64_t *ret_left, struct kvf_diag *d)
{
    int err = j->state ? KVF_OK : open_state(j, d);
    if (!err)
        err = merge_ranks(j, d);
    if (!err)
        err = resume(j, cell, ret_left, d);
    for (int64_t i = 0; !err && i < j->docs; i++) {
        complete[i] = true;
        for (int c = 0; c < j->n; c++)
            complete[i] = complete[i] && j->done[i * j->n + c];
    }
    return err;
}

static bool in_shard(const struct eval_job *j, int64_t doc)
{
    return doc % j->part.parts == j->part.part - 1;
}

/* On rank 0, after the other ranks have left: evaluates the documents that a dead rank did not
 * store. */
static int fill_gaps(struct eval_job *j, bool *complete, struct eval_cell *cell,
                     struct eval_result *result, struct kvf_diag *d)
{
    int64_t left = 0;
    int err = load_results(j, complete, cell, &left, d);
    for (int64_t i = 0; !err && i < j->docs; i++)
        if (!complete[i] && in_shard(j, i))
            err = run_document(j, i, cell, result, d);
    return err;
}

/* The context of run_cell(); cell and result are scratch of [j->n]. */
struct workspace {
    struct eval_job *j;
    struct eval_cell *cell;
    struct eval_result *result;
};

static int run_cell(void *ctx, int64_t doc, struct kvf_diag *d)
{
    struct workspace *b = ctx;
    int err = b->j->state ? KVF_OK : open_state(b->j, d);
    return err ? err : run_document(b->j, doc, b->cell, b->result, d);
}

int eval_run(struct eval_job *j, struct kvf_diag *d)
{
    size_t rows = (size_t)j->docs * (size_t)j->n;
    int64_t left = 0;
    struct eval_cell *cell = MEM_NEW(struct eval_cell, (size_t)j->n);
    struct eval_result *result = MEM_NEW(struct eval_result, (size_t)j->n);
    bool *complete = MEM_NEW(bool, (size_t)j->docs), *skipped = MEM_NEW(bool, (size_t)j->docs);
    bool first = crew_is_first(j->crew);
    j->eval.progress = on_progress;
    j->eval.ctx = j;
    j->result = MEM_NEW(struct eval_result, rows);
    j->done = MEM_NEW(bool, rows);
    int err = cell && result && complete && skipped && j->result && j->done ? KVF_OK : KVF_E_NOMEM;
    if (!err && first)
        err = load_results(j, complete, cell, &left, d);
    for (int64_t i = 0; !err && i < j->docs; i++)
        skipped[i] = complete[i] || !in_shard(j, i);
    if (!err && first)
        err = crew_offer(j->crew, j->docs, skipped);
    double begun = clock_seconds();
    progress_start(&j->bar, "eval", "tok", crew_size(j->crew) == 1 ? left : 0);
    if (!err)
        err = crew_each(j->crew, run_cell, &(struct workspace){j, cell, result}, d);
    if (!err && first && crew_size(j->crew) > 1)
        err = fill_gaps(j, complete, cell, result, d);
    progress_end(&j->bar, j->fed);
    j->seconds = clock_seconds() - begun;
    mem_free(cell);
    mem_free(result);
    mem_free(complete);
    mem_free(skipped);
    return err;
}
