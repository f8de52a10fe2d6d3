/* cmd_report.c - `kvfate report` writes one HTML file with the results of the analyses of one or
 * several traces. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/heads.h"
#include "base/mem.h"
#include "base/stage.h"
#include "base/files.h"
#include "cli/groups.h"
#include "cli/open_traces.h"
#include "cli/shown.h"
#include "cli/watcher.h"
#include "render/report/report.h"
#include "libtrace/run_header.h"

enum { MAX_TRACES = 8 };
#define DEFAULT_CRITERION "mass.90"

/* A table of the report: an analysis with fixed values of some of its options. */
static const struct job {
    const char *key, *analyzer;
    const char *option, *value; /* an option with its value for this table; NULL if there is none */
    bool query;                 /* rows are query heads */
    bool criterion;             /* uses the --criterion of the report */
    bool answer;                /* analyses only the tokens after the prompt, if there are any */
    bool recorded;              /* all heads that were recorded, also with --head */
} jobs[] = {
    {"tokens", "tokens"},
    {"eviction", "eviction"},
    {"retention", "retention", "source", "gate", .criterion = true},
    {"last-use", "retention", "source", "last-use", .query = true, .criterion = true},
    {"sparsity-alpha", "sparsity", "kind", "alpha"},
    {"sparsity-beta", "sparsity", "kind", "beta"},
    {"sparsity-last-use", "sparsity", "kind", "last-use", .query = true, .criterion = true},
    {"survival", "survival", .query = true},
    {"occupancy", "occupancy"},
    {"kv-size", "kv-size"},
    {"density", "density"},
    {"heads", "heads", .query = true},
    {"regret", "regret", "mean", "yes", .query = true, .answer = true},
    {"dilution", "dilution", "mean", "yes", .query = true, .answer = true},
    {"attention", "attention", .recorded = true},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

struct request {
    const char *out, *heads, *criterion, *classes;
    double max_size; /* in MB */
    bool viewer;     /* the page has no traces, and opens those that its reader drops on it */
    int64_t threads;
    char *query; /* owned: the query heads that `heads` selects; NULL if all */
};

/* Sets *ret (owned) to the set of query heads that use the KV heads of `set`. */
static int query_heads(const struct kvf_trace *t, const char *set, char **ret, struct kvf_diag *d)
{
    struct buf b = {0};
    struct head_list l;
    int err = heads_select(t, KVF_SPACE_KV, set, &l, d);
    for (int i = 0, end; !err && i < l.n; i = end) {
        int layer = l.head[i].layer, n = kvf_n_heads(t, layer, KVF_SPACE_KV),
            share = kvf_n_heads(t, layer, KVF_SPACE_QUERY) / n;
        for (end = i + 1; end < l.n && l.head[end].layer == layer
                          && l.head[end].index == l.head[end - 1].index + 1;)
            end++;
        if (share)
            buf_printf(&b, "%sL%dH%d-%d", b.len ? "," : "", layer, l.head[i].index * share,
                       l.head[end - 1].index * share + share - 1);
    }
    heads_free(&l);
    if (!err)
        err = b.err;
    *ret = b.data; /* now owned by the caller, also after an error */
    return err;
}

/* Returns the value of an option of an analysis: the value of the job, or that of the report
 * option with the same name. Returns NULL for the default. */
static const char *value_of(const struct job *j, const struct request *q, const char *name)
{
    if (j->option && strcmp(name, j->option) == 0)
        return j->value;
    if (strcmp(name, "criterion") == 0)
        return j->criterion ? q->criterion : NULL;
    return strcmp(name, "classes") == 0 ? q->classes : NULL;
}

/* Sets the analyzer's options, and appends them to `typed` as on a command line. */
static int set_options(const struct job *j, const struct analyzer *a, const struct request *q,
                       struct analyzer_options *to, struct buf *typed, struct kvf_diag *d)
{
    struct opt_walk w = opt_walk(a->options);
    const struct opt *o;
    int err = opt_defaults(a->options, to, d);
    for (o = opt_next(&w); !err && o; o = opt_next(&w)) {
        const char *value = value_of(j, q, o->name);
        if (!value)
            continue;
        buf_printf(typed, o->type == OPT_FLAG ? " --%s" : " --%s %s", o->name, value);
        err = opt_set(a->options, to, o->name, value, d);
    }
    return err;
}

/* Sets *ret to the first token after the prompt. Sets 0 if there is no such token, or if the run
 * header does not record the length of the prompt. */
static int answer_of(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d)
{
    int err = trace_number(t, "run", "prompt_tokens", 0, ret, d);
    if (!err && (*ret < 0 || *ret >= kvf_n_steps(t)))
        *ret = 0;
    return err;
}

/* Records why a table is missing. The page has no paths: a sentence on the file at `path` is one on
 * "this trace". */
static int add_reason(struct report *r, const char *key, const char *text, const char *path)
{
    struct buf why = {0};
    size_t n = strlen(path);
    bool of_trace = strncmp(text, path, n) == 0 && text[n] == ' ';
    buf_printf(&why, "%s%s", of_trace ? "this trace" : "", of_trace ? text + n : text);
    int err = why.err ? why.err : report_absent(r, key, why.data);
    buf_finish(&why);
    return err;
}

/* Runs one analysis, and adds its table to the report, or the reason why it has no result. */
static int run_job(const struct job *j, struct kvf_trace *t, const char *name,
                   const struct request *q, struct report *r, struct watcher *w, struct kvf_diag *d)
{
    const struct analyzer *a = analyzer_find(j->analyzer);
    struct analyzer_options options = {{0}};
    /* first half: computing; second half: packing */
    struct stage stage = {watcher_part, w, 0, 0.5};
    const char *heads = j->query ? q->query : q->heads;
    struct analyzer_args args = {.heads = j->recorded ? NULL : heads,
                                 .token1 = -1,
                                 .options = &options,
                                 .threads = (int)q->threads,
                                 .watch = stage_see,
                                 .watch_ctx = &stage};
    struct table *table = NULL;
    struct buf command = {0};
    const char *words = place_words(j->analyzer); /* such as "size --as kv-size" */
    int first = (int)strcspn(words, " ");
    buf_printf(&command, "kvfate %.*s %s%s", first, words, name, words + first);
    int err = set_options(j, a, q, &options, &command, d);
    if (!err && j->answer)
        err = answer_of(t, &args.token0, d);
    if (args.heads)
        buf_printf(&command, " --head %s", args.heads);
    if (args.token0)
        buf_printf(&command, " --tokens %lld:", (long long)args.token0);
    if (!err)
        err = analyzer_run(a, &t, 1, &args, &table, d);
    stage_set(&stage, 0.5, 1, 0, 1);
    if (!err) {
        struct progress_callback packing = {stage_see, &stage};
        err = command.err ? command.err : report_table(r, j->key, command.data, table, &packing);
    } else if (err == KVF_E_NOTFOUND) {
        err = add_reason(r, j->key, d->text, kvf_path(t));
        d->text[0] = 0; /* the page shows the message */
    }
    table_destroy(table);
    buf_finish(&command);
    return err;
}

/* Adds the tables of one of `traces` traces to the report. */
static int add_trace(const struct command *self, const char *path, int traces, struct request *q,
                     struct report *r, struct watcher *w, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int err = open_trace(self, path, "showing", &t, d);
    if (!err)
        trace_report_heads(self, t);
    if (!err && q->heads)
        err = query_heads(t, q->heads, &q->query, d);
    if (!err)
        err = report_trace(r, name);
    for (int j = 0; !err && j < N_JOBS; j++) {
        err = run_job(&jobs[j], t, name, q, r, w, d);
        watcher_update(w, w->last + 1, (uint64_t)traces * N_JOBS);
    }
    mem_free(q->query);
    q->query = NULL;
    kvf_close(t);
    return err;
}

/* Checks the number of traces: none with --viewer, and at least one without it. */
static int check_traces(const struct request *q, int n, struct kvf_diag *d)
{
    if (q->viewer && n)
        return kvf_fail(d, KVF_E_ARG,
                        "--viewer makes a page without traces; leave out the traces, or --viewer");
    if (!q->viewer && !n)
        return kvf_fail(d, KVF_E_ARG,
                        "a trace is missing, such as 'kvfate run -p TEXT -o X.kvf' records; "
                        "--viewer makes a page that opens traces");
    return KVF_OK;
}

static int check_out(const struct request *q, struct kvf_diag *d)
{
    const char *dot = q->out ? strrchr(q->out, '.') : NULL;
    if (!q->out)
        return kvf_fail(d, KVF_E_ARG, "-o FILE.html is missing: the file of the report");
    if (!dot || (strcmp(dot, ".html") != 0 && strcmp(dot, ".htm") != 0))
        return kvf_fail(d, KVF_E_ARG, "-o %s: the name must end in .html", q->out);
    return KVF_OK;
}

/* Writes the page. Prints on stderr which tables were left out to limit its size. */
static int deliver(const struct command *self, const struct request *q, struct report *r,
                   struct kvf_diag *d)
{
    struct buf left_out = {0};
    int64_t bytes = 0, most = (int64_t)(q->max_size * 1e6);
    int err = report_write(r, most, q->out, &left_out, &bytes, d);
    if (!err && left_out.len)
        fprintf(stderr,
                "kvfate %s: left out to stay under %g MB: %s; --max-size %g includes all, --head "
                "SET makes room\n",
                self->name, q->max_size, left_out.data, ceil((double)report_whole(r) / 1e5) / 10);
    if (!err && bytes > most)
        command_print(self->name, "%s has %.2f MB, more than the %g MB of --max-size", q->out,
                      (double)bytes / 1e6, q->max_size);
    if (!err)
        printf("%s: %.2f MB\n", shown_name(q->out).text, (double)bytes / 1e6);
    buf_finish(&left_out);
    return err;
}

/* Adds the command line of the report to the page, without the output name and --max-size. */
static int name_command(const struct request *q, char **traces, int n, struct report *r)
{
    const char *option[] = {"head", "criterion", "classes"};
    const char *value[] = {q->heads, q->criterion, q->classes};
    struct buf b = {0};
    buf_str(&b, "kvfate report");
    for (int i = 0; i < n; i++) {
        const char *slash = strrchr(traces[i], '/');
        buf_printf(&b, " %s", slash ? slash + 1 : traces[i]);
    }
    for (int i = 0; i < 3; i++)
        if (value[i] && strcmp(value[i], DEFAULT_CRITERION) != 0)
            buf_printf(&b, " --%s %s", option[i], value[i]);
    int err = b.err ? b.err : report_command(r, b.data);
    buf_finish(&b);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "FILE.html", "file of the report"},
    {OPT_STR, 0, "head", offsetof(struct request, heads), "SET", "KV heads: L0-5K*, 15.2",
     .absent = "all"},
    {OPT_STR, 0, "criterion", offsetof(struct request, criterion), "C",
     "selected set of last use: top64, ..., mass.99", DEFAULT_CRITERION},
    {OPT_STR, 0, "classes", offsetof(struct request, classes), "FILE",
     "classes of tokens of one's own"},
    {OPT_REAL, 0, "max-size", offsetof(struct request, max_size), "MB",
     "omit columns above this size", "10", .min = 0.1, .max = 1000},
    {OPT_FLAG, 0, "viewer", offsetof(struct request, viewer), NULL,
     "a page without traces, which opens traces that are dropped on it"},
    {OPT_INT, 't', "threads", offsetof(struct request, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {.type = OPT_END},
};

static int cmd_report(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    struct report *r = NULL;
    int err = check_traces(q, n, &d);
    if (!err)
        err = check_out(q, &d);
    if (!err)
        err = files_keep(q->out, operand, n, &d);
    if (!err)
        err = report_create(&r);
    if (!err)
        err = name_command(q, operand, n, r);
    struct watcher w = watcher_count(self->name, "tables");
    w.of = (uint64_t)n * N_JOBS;
    for (int i = 0; !err && i < n; i++)
        err = add_trace(self, operand[i], n, q, r, &w, &d);
    watcher_end(&w);
    if (!err)
        err = deliver(self, q, r, &d);
    report_destroy(r);
    return command_end(self, err, &d);
}

const struct command command_report = {
    .name = "report",
    .group = "files",
    .summary = "write one interactive HTML page about one or more traces",
    .example = "kvfate report run.kvf -o report.html",
    .needs = "-o FILE.html",
    .operands = {"[X.kvf...]", "trace", 0, MAX_TRACES},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_report,
};
