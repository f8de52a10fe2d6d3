/* cmd_corpus.c - `kvfate corpus` runs an analysis on many traces and sums the results over
 * documents. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/table_io.h"
#include "cli/corpus_out.h"
#include "cli/corpus_ranks.h"
#include "cli/corpus_traces.h"
#include "cli/crew.h"
#include "cli/idle.h"
#include "cli/open_traces.h"
#include "cli/shard.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "render/figure.h"
#include "studies/corpus_pairs.h"

enum { ROUND = 8 };
#define SAVE_EVERY 30

/* A run of `kvfate corpus`. */
struct job {
    const char *name;
    const struct analyzer *a;
    /* options */
    struct analyzer_args args;
    struct analyzer_options own; /* options of the analysis */
    struct corpus_target to;
    const char *tokens, *shard, *state, *against, *where;
    int intervals; /* index into corpus_interval_words */
    int64_t replicates, seed, threads;
    double save_every;
    bool skip_bad;

    struct shard part;    /* from --shard */
    struct where *chosen; /* from --where */
    struct corpus_settings set;
    struct corpus_traces traces;
    size_t *first; /* [documents + 1] index of the first trace of each document to process */
    size_t n_documents;
    struct crew *crew; /* if it has several ranks, its cells are documents */
    struct par *pool;
    struct corpus *c;
    pthread_mutex_t lock;             /* protects c and pairs */
    struct corpus_document **scratch; /* [2 * threads] */
    /* from --against */
    struct corpus_traces other;
    size_t *first_other; /* [documents] index of the first trace in `other` */
    uint64_t *id;        /* [documents] */
    struct corpus_pairs *pairs;
    int64_t left_out;
    int64_t longest; /* steps of the longest trace */
};

/* ---- options */

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct job, to.out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, to.json), NULL, "the table as JSON to stdout"},
    {OPT_STR, 0, "figure", offsetof(struct job, to.figure), "NAME", "another figure of this table"},
    {OPT_STR, 0, "head", offsetof(struct job, args.heads), "SET", "heads: L0-5K*, L15H24, 15.2",
     .absent = "all"},
    {OPT_STR, 0, "tokens", offsetof(struct job, tokens), "A:B", "tokens A to B - 1 of each trace",
     .absent = "all"},
    {OPT_STR, 'w', "where", offsetof(struct job, where), "CONDITIONS",
     "only traces that meet these conditions: 'method=trimkv budget<=128'", .absent = "all"},
    {OPT_STR, 0, "shard", offsetof(struct job, shard), "I/N",
     "documents of part I of N, from 1/N to N/N"},
    {OPT_STR, 0, "state", offsetof(struct job, state), "FILE",
     "file of the sums: a stopped run resumes from it"},
    {OPT_REAL, 0, "save-every", offsetof(struct job, save_every), "S", "seconds between saves",
     OPT_TEXT(SAVE_EVERY), .max = 86400},
    {OPT_INT, 0, "replicates", offsetof(struct job, replicates), "N", "bootstrap replicates", "200",
     .max = CORPUS_MOST_REPLICATES},
    {OPT_INT, 0, "seed", offsetof(struct job, seed), "N", "of the bootstrap", "0", .max = 1e15},
    {OPT_WORD, 0, "intervals", offsetof(struct job, intervals), "WHICH",
     "rows with intervals; auto: the rows of all heads", "auto", .words = corpus_interval_words},
    {OPT_STR, 0, "against", offsetof(struct job, against), "X",
     "compare with another trace, folder or @LIST"},
    {OPT_FLAG, 0, "skip-bad", offsetof(struct job, skip_bad), NULL,
     "traces that cannot be read are no failure"},
    {OPT_INT, 't', "threads", offsetof(struct job, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_GROUP, 0, "figure", offsetof(struct job, to.look), .group = figure_options},
    {.type = OPT_END},
};

static int choose_analysis(struct job *j, const char *name, struct kvf_diag *d)
{
    struct buf names = {0};
    j->a = analyzer_find(name);
    if (j->a && j->a->pool)
        return KVF_OK;
    for (const struct analyzer *const *a = analyzer_table; *a; a++)
        if ((*a)->pool)
            buf_printf(&names, "%s%s", names.len ? ", " : "", place_words((*a)->name));
    kvf_fail(d, KVF_E_ARG, "'%s' is no analysis that adds up over documents; these do: %s", name,
             names.err ? "" : names.data);
    buf_finish(&names);
    return KVF_E_ARG;
}

static int parse(struct job *j, struct kvf_diag *d)
{
    j->args.options = &j->own;
    j->args.threads = 1; /* documents run in parallel instead */
    j->set = (struct corpus_settings){(int)j->replicates, (uint64_t)j->seed,
                                      (enum corpus_intervals)j->intervals};
    const struct idle list[] = {
        {j->save_every != SAVE_EVERY && !j->state, "--save-every", "without --state"},
        {j->seed && !j->replicates, "--seed", "with --replicates 0"},
        {j->intervals && !j->replicates, "--intervals", "with --replicates 0"}};
    if (IDLE_CHECK(list, d) != KVF_OK)
        return KVF_E_ARG;
    int err = KVF_OK;
    if (j->tokens)
        err = opt_range("--tokens", j->tokens, &j->args.token0, &j->args.token1, d);
    if (!err)
        err = shard_parse(j->shard, &j->part, d);
    if (!err && j->where)
        err = where_parse(j->where, &j->chosen, d);
    j->traces.where = j->chosen;
    j->other.where = j->chosen;
    if (!err && j->against && (j->state || j->shard))
        err = kvf_fail(d, KVF_E_ARG,
                       "--against keeps the values of all documents: it has neither "
                       "--state nor --shard");
    if (!err && j->against && ((j->to.out && figure_can_write(j->to.out)) || j->to.figure))
        err = kvf_fail(d, KVF_E_ARG, "--against makes a table without a figure");
    return err ? err : corpus_out_check(j->a, &j->to, d);
}

/* ---- traces and state */

static int identify(struct job *j, struct corpus_traces *t, struct kvf_diag *d)
{
    if (t->n == 0)
        return kvf_fail(d, KVF_E_NOTFOUND, "no traces: the folders have no .kvf file");
    int err = traces_identify(t, j->pool);
    /* over all shards, so that all shards use the same length */
    for (size_t i = 0; !err && i < t->n_readable; i++)
        j->longest = t->trace[i].steps > j->longest ? t->trace[i].steps : j->longest;
    if (!err && t->n == 0)
        err = kvf_fail(d, KVF_E_NOTFOUND, "no trace meets --where: `kvfate trace ls` lists them");
    if (err)
        return err;
    traces_shard(t, j->part.part, j->part.parts);
    for (size_t i = t->n_readable; i < t->n; i++, j->left_out++)
        fprintf(command_errors(), "kvfate %s: %s\n", j->name, t->trace[i].why);
    size_t shorter = 0;
    for (size_t i = 0; i < t->n_readable; i++) {
        shorter += t->trace[i].steps < j->args.token1;
        if (t->trace[i].partial)
            trace_report_partial(j->name, t->trace[i].path);
    }
    if (shorter)
        fprintf(
            command_errors(),
            "note: --tokens %s: %zu of %zu traces have fewer than %lld tokens; all their tokens "
            "from %lld on are counted\n",
            j->tokens, shorter, t->n_readable, (long long)j->args.token1,
            (long long)j->args.token0);
    return KVF_OK;
}

static int find_traces(struct job *j, int n, char **operand, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < n; i++)
        err = traces_add(&j->traces, operand[i], d);
    if (!err)
        err = identify(j, &j->traces, d);
    if (!err && j->against)
        err = traces_add(&j->other, j->against, d);
    if (!err && j->against)
        err = identify(j, &j->other, d);
    return err;
}

/* Returns the plan of this run: number and hash of its traces. Unreadable traces have no known
 * document and count in shard 1. */
static struct corpus_plan plan_of(const struct job *j)
{
    struct corpus_plan p = {.traces = j->traces.n_readable};
    const struct corpus_trace *t = j->traces.trace;
    for (size_t i = 0; i < j->traces.n_readable; i++) {
        p.documents += i == 0 || t[i].document != t[i - 1].document;
        p.hash += rng_hash(5, t[i].document, t[i].print, 0);
    }
    if (j->part.part == 1)
        p.unreadable = j->traces.n - j->traces.n_readable;
    return p;
}

static size_t end_of_document(const struct corpus_traces *t, size_t first)
{
    size_t end = first + 1;
    while (end < t->n_readable && t->trace[end].document == t->trace[first].document)
        end++;
    return end;
}

/* Returns true if the traces of this run are the traces of the state c. The run may have fewer
 * unreadable traces than the state if the additional traces belong to documents that are not in
 * its sums. */
static bool same_traces(const struct job *j, struct corpus *c)
{
    const struct corpus_plan *now = corpus_planned(j->c), *old = corpus_planned(c);
    const struct corpus_traces *t = &j->traces;
    int64_t there = 0;
    if (old->unreadable == now->unreadable)
        return old->hash == now->hash && old->documents == now->documents
               && old->traces == now->traces;
    if (old->unreadable < now->unreadable
        || old->traces + old->unreadable != now->traces + now->unreadable)
        return false;
    for (size_t i = 0, end; i < t->n_readable; i = end) {
        end = end_of_document(t, i);
        int64_t n = corpus_traces_of(c, t->trace[i].document);
        if (n && n != (int64_t)(end - i))
            return false;
        there += n > 0;
    }
    return there == corpus_counted(c).documents;
}

/* Continues from the state file. Traces that could not be read before are tried again. */
static int resume(struct job *j, struct kvf_diag *d)
{
    const struct corpus_plan *now = corpus_planned(j->c), *old;
    struct corpus *c = NULL;
    int err = corpus_read(j->state, &c, d);
    if (err)
        return err;
    old = corpus_planned(c);
    corpus_forget_missed(c);
    /* checked first: the lengths of the traces may determine the arguments */
    if (!same_traces(j, c))
        err = kvf_fail(d, KVF_E_ARG,
                       "results of other traces: %llu of %llu documents, here %llu "
                       "of %llu; another file for --state, or the same traces",
                       (unsigned long long)old->traces, (unsigned long long)old->documents,
                       (unsigned long long)now->traces, (unsigned long long)now->documents);
    else
        err = corpus_same_arguments(c, j->c, d);
    if (err) {
        kvf_diag_prefix(d, "%s", j->state);
        corpus_destroy(c);
        return err;
    }
    *corpus_planned(c) = *now;
    corpus_destroy(j->c);
    j->c = c;
    j->left_out += corpus_counted(c).missed;
    return KVF_OK;
}

/* Lists the documents that are not in the sums yet, each by its first trace. With several ranks,
 * lists all documents, so that all ranks number them equally. */
static int list_documents(struct job *j)
{
    const struct corpus_trace *t = j->traces.trace;
    size_t n = j->traces.n_readable, kept = 0;
    j->first = MEM_NEW(size_t, n + 1);
    if (!j->first)
        return KVF_E_NOMEM;
    for (size_t i = 0, end; i < n; i = end) {
        end = end_of_document(&j->traces, i);
        if (crew_size(j->crew) > 1 || !corpus_has(j->c, t[i].document))
            j->first[kept++] = i;
    }
    j->n_documents = kept;
    return KVF_OK;
}

/* Keeps the documents that both corpora contain. Both lists are sorted by document. */
static int list_pairs(struct job *j, struct kvf_diag *d)
{
    const struct corpus_trace *a = j->traces.trace, *b = j->other.trace;
    size_t n = 0, at = 0, left_out = 0;
    j->first_other = MEM_NEW(size_t, j->n_documents);
    j->id = MEM_NEW(uint64_t, j->n_documents);
    if (!j->first_other || !j->id)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < j->n_documents; i++) {
        uint64_t id = a[j->first[i]].document;
        while (at < j->other.n_readable && b[at].document < id)
            at++;
        if (at == j->other.n_readable || b[at].document != id) {
            left_out++;
            continue;
        }
        j->first[n] = j->first[i];
        j->first_other[n] = at;
        j->id[n++] = id;
    }
    if (left_out)
        fprintf(stderr, "note: %zu of %zu documents have no partner\n", left_out, j->n_documents);
    j->n_documents = n;
    if (n == 0)
        return kvf_fail(d, KVF_E_NOTFOUND, "the two corpora share no document");
    return pairs_create(j->c, j->id, n, &j->pairs);
}

/* Sets option defaults that depend on the length from the longest trace, so that a row has the
 * same meaning in all documents. */
static void set_length(struct job *j)
{
    int64_t end = j->args.token1 < 0 || j->args.token1 > j->longest ? j->longest : j->args.token1;
    if (j->a->of_length && end > j->args.token0)
        j->a->of_length(&j->own, end - j->args.token0);
}

static int prepare(struct job *j, struct kvf_diag *d)
{
    struct stat st;
    int threads = par_threads(j->pool);
    set_length(j);
    int err = corpus_create(j->a, &j->args, &j->set, &j->c);
    if (!err) {
        *corpus_planned(j->c) = plan_of(j);
        if (j->state && crew_is_first(j->crew) && (stat(j->state, &st) == 0 || errno != ENOENT))
            err = resume(j, d);
    }
    if (!err)
        err = list_documents(j);
    if (!err && j->against)
        err = list_pairs(j, d);
    j->scratch = MEM_NEW(struct corpus_document *, 2 * (size_t)threads);
    for (int i = 0; !err && i < 2 * threads; i++)
        err = j->scratch ? corpus_document_create(j->c, &j->scratch[i]) : KVF_E_NOMEM;
    return err;
}

/* ---- documents */

struct task { /* the processing of one document */
    int err;
    struct kvf_diag d;
    struct buf bad; /* a line for each trace that could not be read */
};

/* A number of documents that are processed in parallel. */
struct round {
    struct job *j;
    struct task *task;
    size_t at;            /* index of the document of task 0 */
    struct progress *bar; /* NULL if progress is not shown */
    atomic_size_t done;
};

/* Returns true for errors that end the run: usage errors and exhausted memory. Other errors
 * concern one trace. */
static bool fatal(int err)
{
    return err == KVF_E_ARG || err == KVF_E_NOMEM;
}

static int read_trace(struct job *j, const char *path, struct corpus_document *x, struct task *k,
                      struct progress *bar)
{
    struct analyzer_args args = j->args;
    struct kvf_trace *t = NULL;
    struct table *table = NULL;
    struct kvf_diag *d = &k->d;
    args.watch = bar ? progress_within : NULL;
    args.watch_ctx = bar;
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    if (!err && args.token1 > kvf_n_steps(t)) /* identify() reports such traces */
        args.token1 = kvf_n_steps(t);
    if (!err)
        err = analyzer_run(j->a, &t, 1, &args, &table, d);
    bool lost = err && !fatal(err);
    if (lost) {
        corpus_document_miss(x);
        const char *text = d->text[0] ? d->text : kvf_strerror(err);
        const struct shown_name shown = shown_name(path);
        bool says = strncmp(text, shown.text, strlen(shown.text)) == 0;
        buf_printf(&k->bad, "%s%s%s\n", says ? "" : shown.text, says ? "" : ": ", text);
        err = k->bad.err;
    } else if (!err) {
        err = corpus_document_take(x, table, d);
    }
    if (err && !lost && strncmp(d->text, path, strlen(path)) != 0)
        kvf_diag_prefix(d, "%s", path);
    table_destroy(table);
    kvf_close(t);
    return err;
}

/* Adds all traces of the document of trace `first` to x. */
static void read_document(struct job *j, const struct corpus_traces *t, size_t first,
                          struct corpus_document *x, struct task *k, struct progress *bar)
{
    uint64_t id = t->trace[first].document;
    corpus_document_begin(x, id);
    for (size_t i = first; !k->err && i < t->n_readable && t->trace[i].document == id; i++)
        k->err = read_trace(j, t->trace[i].path, x, k, bar);
}

/* Processes one document. Only thread 0, the calling thread, updates the progress bar. */
static void do_document(void *ctx, int index, int thread)
{
    struct round *r = ctx;
    struct job *j = r->j;
    struct progress *bar = thread == 0 ? r->bar : NULL;
    struct task *k = &r->task[index];
    struct corpus_document *x = j->scratch[2 * thread], *y = j->scratch[2 * thread + 1];
    size_t n = r->at + (size_t)index;
    read_document(j, &j->traces, j->first[n], x, k, bar);
    if (!k->err && j->pairs)
        read_document(j, &j->other, j->first_other[n], y, k, bar);
    size_t done = atomic_fetch_add(&r->done, 1) + 1;
    if (bar)
        progress_update(bar, (int64_t)(r->at + done));
    if (k->err)
        return;
    /* The result does not depend on the order: sums are integers, and pairs have a slot for each
     * document. */
    pthread_mutex_lock(&j->lock);
    k->err = j->pairs ? pairs_add(j->pairs, n, x, y, &k->d) : corpus_add(j->c, x, &k->d);
    pthread_mutex_unlock(&j->lock);
}

/* Processes documents at .. at + n - 1. Prints messages on unreadable traces in the order of the
 * documents. */
static int do_round(struct job *j, size_t at, int n, struct progress *bar, struct kvf_diag *d)
{
    struct round r = {.j = j, .task = MEM_NEW(struct task, (size_t)n), .at = at, .bar = bar};
    int err = r.task ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        par_run(j->pool, n, do_document, &r);
    for (int i = 0; r.task && i < n; i++) {
        struct task *k = &r.task[i];
        char *line = k->bad.len ? k->bad.data : NULL;
        for (char *end; line && *line; line = end + 1, j->left_out++) {
            end = strchr(line, '\n');
            if (bar)
                progress_clear(bar);
            fprintf(command_errors(), "kvfate %s: %.*s\n", j->name, (int)(end - line), line);
        }
        if (!err && k->err) {
            err = k->err;
            *d = k->d;
        }
        buf_finish(&k->bad);
    }
    mem_free(r.task);
    return err;
}

static int do_all(struct job *j, struct kvf_diag *d)
{
    int err = KVF_OK, most = ROUND * par_threads(j->pool);
    double saved = clock_seconds();
    struct progress bar;
    progress_start(&bar, j->a->name, "documents", (int64_t)j->n_documents);
    size_t at = 0;
    while (!err && at < j->n_documents && !signals_caught()) {
        size_t left = j->n_documents - at;
        int n = left < (size_t)most ? (int)left : most;
        err = do_round(j, at, n, &bar, d);
        at += (size_t)n;
        progress_update(&bar, (int64_t)at);
        if (!err && j->state && at < j->n_documents && clock_seconds() - saved >= j->save_every) {
            err = corpus_write(j->c, j->state, d);
            saved = clock_seconds();
        }
    }
    progress_end(&bar, (int64_t)at);
    if (!err && j->state)
        err = corpus_write(j->c, j->state, d);
    if (!err && at < j->n_documents)
        err = kvf_fail(d, KVF_E_CANCEL, "stopped after %zu of %zu documents%s", at, j->n_documents,
                       j->state ? "; repeat the command to continue" : "");
    return err;
}

/* ---- documents distributed over the ranks of a crew */

static int offer_documents(struct job *j)
{
    bool *done = MEM_NEW(bool, j->n_documents);
    int err = done ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < j->n_documents; i++)
        done[i] = corpus_has(j->c, j->traces.trace[j->first[i]].document);
    if (!err)
        err = crew_offer(j->crew, (int64_t)j->n_documents, done);
    mem_free(done);
    return err;
}

/* On rank 0: merges the sums of all ranks, and processes documents that a dead rank did not
 * store. */
static int merge_ranks(struct job *j, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int rank = 1; !err && rank < crew_size(j->crew); rank++)
        err = corpus_add_rank(j->c, j->state, rank, d);
    *corpus_planned(j->c) = plan_of(j);
    for (size_t i = 0; !err && i < j->n_documents && !signals_caught(); i++)
        if (!corpus_has(j->c, j->traces.trace[j->first[i]].document))
            err = do_round(j, i, 1, NULL, d);
    j->left_out = (int64_t)(j->traces.n - j->traces.n_readable) + corpus_counted(j->c).missed;
    return err ? err : corpus_write(j->c, j->state, d);
}

static int do_cell(void *ctx, int64_t i, struct kvf_diag *d)
{
    if (signals_caught())
        return kvf_fail(d, KVF_E_CANCEL, "stopped; repeat the command to continue");
    return do_round(ctx, (size_t)i, 1, NULL, d);
}

static int do_cells(struct job *j, struct kvf_diag *d)
{
    struct buf own = {0};
    crew_own_file(j->crew, j->state, &own);
    int err = own.err;
    if (!err && crew_is_first(j->crew))
        err = offer_documents(j);
    if (!err)
        err = crew_each(j->crew, do_cell, j, d);
    if (!err && !crew_is_first(j->crew) && corpus_counted(j->c).documents)
        err = corpus_write(j->c, own.data, d);
    buf_finish(&own);
    return err;
}

/* Processes documents together with the other ranks. The other ranks have left the crew before
 * rank 0 merges their sums. */
static int run_with_crew(struct job *j, struct kvf_diag *d)
{
    int err = do_cells(j, d);
    return err || !crew_is_first(j->crew) ? err : merge_ranks(j, d);
}

static int finish(struct job *j, struct kvf_diag *d)
{
    if (!crew_is_first(j->crew))
        return KVF_OK;
    if (j->pairs)
        return pairs_out(j->pairs, &j->to, d);
    if (corpus_counted(j->c).counted == 0 && j->left_out > 0)
        return kvf_fail(d, KVF_E_NOTFOUND, "no trace could be read");
    int err = corpus_out(j->c, &j->to, d);
    if (!err && j->left_out)
        fprintf(stderr, "kvfate %s: %lld traces were left out\n", j->name, (long long)j->left_out);
    return err;
}

static void cleanup(struct job *j)
{
    for (int i = 0; j->scratch && i < 2 * par_threads(j->pool); i++)
        corpus_document_destroy(j->scratch[i]);
    mem_free(j->scratch);
    mem_free(j->first);
    mem_free(j->first_other);
    mem_free(j->id);
    pairs_destroy(j->pairs);
    corpus_destroy(j->c);
    traces_free(&j->traces);
    traces_free(&j->other);
    where_free(j->chosen);
    par_destroy(j->pool);
    pthread_mutex_destroy(&j->lock);
    crew_leave(j->crew);
}

static int cmd_corpus(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    j->name = self->name;
    j->args.token1 = -1;
    pthread_mutex_init(&j->lock, NULL);
    int status = EXIT_USAGE, err = choose_analysis(j, operand[0], &d);
    if (!err)
        err = parse(j, &d);
    if (err)
        goto done;
    err = crew_join(&j->crew, &d);
    if (!err && crew_size(j->crew) > 1 && (!j->state || j->against))
        err = kvf_fail(&d, KVF_E_ARG,
                       "several processes keep their sums in files: give --state FILE, and no "
                       "--against");
    if (err)
        goto done;
    status = EXIT_FAILED;
    err = par_create((int)j->threads, &j->pool);
    if (err)
        goto done;
    err = find_traces(j, n - 1, operand + 1, &d);
    if (err)
        goto done;
    signals_catch(); /* Until here a signal ends the process, even while an endless list is read. */
    err = prepare(j, &d);
    if (err)
        goto done;
    err = crew_size(j->crew) > 1 ? run_with_crew(j, &d) : do_all(j, &d);
    if (!err)
        err = finish(j, &d);
    if (err == KVF_E_ARG) /* an option that the analysis or the figure rejected */
        status = EXIT_USAGE;
    if (!err && (j->skip_bad || !j->left_out))
        status = EXIT_OK;
done:
    command_print_error(self, err, &d);
    cleanup(j);
    return status;
}

const struct command command_corpus = {
    .name = "corpus",
    .group = "files",
    .summary = "pool an analysis over many documents, with confidence intervals",
    .example = "kvfate corpus survival run.kvf --criterion top64 -o survival.tsv",
    .operands = {"ANALYSIS X.kvf|FOLDER|@LIST...", "trace", 2, -1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .first_is_analysis = true,
    .own_at = offsetof(struct job, own),
    .run = cmd_corpus,
};
