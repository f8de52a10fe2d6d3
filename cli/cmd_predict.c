/* cmd_predict.c - whether statistics of traces tell which memory matters. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/table_io.h"
#include "base/table_read.h"
#include "cli/commands.h"
#include "cli/figure_options.h"
#include "cli/open_traces.h"
#include "cli/output.h"
#include "cli/shown.h"
#include "studies/predict.h"

enum { MOST_FILES = 256 };

struct job {
    struct predict_args args;
    const char *out;
    bool json;
    struct figure_options look;
    struct predict_pair *pair; /* [PREDICT_MOST] */
    struct table *table[MOST_FILES];
    struct kvf_trace *trace[MOST_FILES];
    int n_tables, n_traces;
};

/* A table that is an effect begins a pair. */
static int add_table(struct job *j, const char *path, struct kvf_diag *d)
{
    struct table *t = NULL;
    int err = table_read(path, figure_reads_text, &t, d);
    if (err)
        return err;
    j->table[j->n_tables++] = t;
    if (predict_is_effect(t)) {
        if (j->args.n_pairs == PREDICT_MOST)
            return kvf_fail(d, KVF_E_ARG, "%s: more than %d effects", path, PREDICT_MOST);
        struct predict_pair *p = &j->pair[j->args.n_pairs++];
        p->effect = t;
        p->path = path;
        return KVF_OK;
    }
    struct predict_pair *p = j->args.n_pairs ? &j->pair[j->args.n_pairs - 1] : NULL;
    if (!p)
        return kvf_fail(d, KVF_E_ARG,
                        "%s is no effect of heads or of single entries; the first "
                        "file must be one ('kvfate effect -o effect.tsv')",
                        path);
    if (p->n_tables == PREDICT_MOST)
        return kvf_fail(d, KVF_E_ARG, "%s: more than %d tables", path, PREDICT_MOST);
    p->table[p->n_tables] = t;
    p->table_path[p->n_tables++] = path;
    return KVF_OK;
}

static int add_trace(struct job *j, const char *path, struct kvf_diag *d)
{
    struct predict_pair *p = j->args.n_pairs ? &j->pair[j->args.n_pairs - 1] : NULL;
    if (!p)
        return kvf_fail(d, KVF_E_ARG, "%s: the first file must be the table of an effect", path);
    if (p->n_traces == PREDICT_MOST)
        return kvf_fail(d, KVF_E_ARG, "%s: more than %d traces", path, PREDICT_MOST);
    int err = kvf_open(path, KVF_OPEN_TAIL, &j->trace[j->n_traces], d);
    if (err)
        return err;
    p->trace[p->n_traces++] = j->trace[j->n_traces++];
    return kvf_check_size(j->trace[j->n_traces - 1], d);
}

static int open_files(struct job *j, char **path, int n, struct kvf_diag *d)
{
    int err = KVF_OK;
    j->pair = MEM_NEW(struct predict_pair, PREDICT_MOST);
    if (!j->pair)
        return KVF_E_NOMEM;
    j->args.pair = j->pair;
    for (int i = 0; !err && i < n; i++) {
        enum table_format f = table_format_of(path[i]);
        bool table = f == TABLE_TSV || f == TABLE_JSON;
        err = table ? add_table(j, path[i], d) : add_trace(j, path[i], d);
    }
    for (int p = 0; !err && p < j->args.n_pairs; p++)
        if (j->pair[p].n_traces + j->pair[p].n_tables == 0)
            err = kvf_fail(d, KVF_E_ARG, "%s: give a trace or table of the same text after it",
                           j->pair[p].path);
    return err;
}

static int deliver(const struct job *j, const struct table *t, struct kvf_diag *d)
{
    const struct output o = {j->out, j->json, &j->look, NULL};
    struct buf b = {0};
    int err = output_table(&o, t, d);
    if (err || !output_summary(&o))
        return err;
    err = predict_describe(t, &b);
    err = err ? err : b.err;
    if (!err)
        shown_print(b.data, b.len);
    buf_finish(&b);
    return err;
}

static int run(struct job *j, char **path, int n, struct kvf_diag *d)
{
    struct table *t = NULL;
    int err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = output_check(j->out, j->args.units ? "predict-units" : "predict", d);
    if (!err)
        err = open_files(j, path, n, d);
    if (!err)
        err = predict_run(&j->args, &t, d);
    if (!err)
        err = deliver(j, t, d);
    table_destroy(t);
    return err;
}

static void finish(struct job *j)
{
    for (int i = 0; i < j->n_tables; i++)
        table_destroy(j->table[i]);
    for (int i = 0; i < j->n_traces; i++)
        kvf_close(j->trace[i]);
    mem_free(j->pair);
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL, "the table as JSON to stdout"},
    {OPT_STR, 0, "value", offsetof(struct job, args.value), "COLUMN", "of the effect", "kl"},
    {OPT_STR, 0, "only", offsetof(struct job, args.only), "LIST",
     "these candidates, as the table names them"},
    {OPT_FLAG, 0, "units", offsetof(struct job, args.units), NULL,
     "the statistic and the effect of every unit"},
    {OPT_STR, 0, "criterion", offsetof(struct job, args.criteria), "LIST",
     "selected sets: top64 ... mass.99, or all", "top64,mass.95"},
    {OPT_INT, 0, "horizon", offsetof(struct job, args.horizon), "N", "age of survival", "-1",
     .absent = "what the effect's heads held, or 64", .max = 1 << 24},
    {OPT_INT, 0, "sinks", offsetof(struct job, args.sinks), "K", "first tokens, of sink mass", "-1",
     .absent = "those of the effect, or 4", .max = 1 << 24},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_predict(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = run(j, operand, n, &d);
    for (int i = 0; i < j->n_traces; i++)
        trace_judge(self, j->trace[i], "using");
    finish(j);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"0", "The table was made."},
    {"1", "A file could not be read, or is damaged."},
    {"2", "The command line was wrong, or the files do not go together."},
    EXIT_PARTIAL,
    {NULL, NULL},
};

const struct command command_predict = {
    .name = "predict",
    .group = "analyses",
    .summary = "whether statistics of a trace tell which memory matters",
    .example = "kvfate predict effect.tsv run.kvf saliency.kvf -o predict.tsv",
    .operands = {"EFFECT.{tsv,json} X.kvf... [TABLE...]", "table", 2, MOST_FILES},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_predict,
};
