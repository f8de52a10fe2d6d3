/* analysis.c - runs an analyzer as a command: parses its options, opens the traces, and writes or
 * draws the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/stack.h"
#include "base/mem.h"
#include "base/table_io.h"
#include "cli/analysis.h"
#include "base/files.h"
#include "cli/open_traces.h"
#include "cli/output.h"
#include "cli/preview.h"
#include "cli/record_again.h"
#include "cli/shown.h"
#include "cli/stream.h"
#include "cli/watcher.h"
#include "render/figure.h"

enum { MAX_TRACES = 256 };

/* The values of the options of an analysis. */
struct request {
    const struct analyzer *a;
    struct analyzer_args args;
    const char *tokens, *out, *figure;
    struct analyzer_options own;
    bool json;
    /* several traces were given to an analyzer of one trace; their tables are concatenated */
    bool several;
    struct figure_options look;
    struct buf about; /* for several traces: the summary of each trace */
    bool cut_off;     /* no trace has steps that can be read: there is nothing to summarize */
    int64_t threads;
    struct again_options {
        bool record;
        const char *to, *model;
    } again;
};

static const struct opt shared_options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_STR, 0, "head", offsetof(struct request, args.heads), "SET", "heads: L0-5K*, L15H24, 15.2",
     .absent = "all"},
    {OPT_STR, 0, "tokens", offsetof(struct request, tokens), "A:B", "tokens A to B - 1",
     .absent = "all"},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "the table as JSON to stdout"},
    {OPT_STR, 0, "figure", offsetof(struct request, figure), "NAME",
     "another figure of this table"},
    {OPT_INT, 't', "threads", offsetof(struct request, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_FLAG, 0, "record", offsetof(struct request, again.record), NULL,
     "run the model again on the tokens of the trace if columns are missing"},
    {OPT_STR, 0, "record-to", offsetof(struct request, again.to), "OUT.kvf",
     "does so too, and keeps the new trace"},
    {OPT_STR, 0, "model", offsetof(struct request, again.model), "FILE", "with --record, the model",
     .absent = "the listed model that the trace names"},
    {OPT_GROUP, 0, "figure", offsetof(struct request, look), .group = figure_options},
    {.type = OPT_END},
};

static const struct figure *figure_of(const struct request *q)
{
    return q->figure ? figure_find(q->figure) : figure_of_table(q->a->name);
}

static int parse_request(struct request *q, struct kvf_diag *d)
{
    q->args.token1 = -1;
    q->args.options = &q->own;
    q->args.threads = q->look.style.threads = (int)q->threads;
    int err = KVF_OK;
    if (q->tokens)
        err = opt_range("--tokens", q->tokens, &q->args.token0, &q->args.token1, d);
    if (!err)
        err = figure_options_check(&q->look, q->out, q->json, d);
    if (err)
        return err;
    const struct figure *f;
    if (q->figure)
        err = figure_named("--figure: ", q->figure, q->a->name, &f, d);
    bool screen = q->look.preview || (q->out && strcmp(q->out, "-") == 0);
    if (!err && q->figure && !screen && !(q->out && figure_can_write(q->out)))
        err = kvf_fail(d, KVF_E_ARG,
                       "--figure has an effect only if a figure is drawn, by -o NAME.png, .svg or "
                       ".pdf, or by --preview; leave it out");
    if (err)
        return err;
    if (q->out && strcmp(q->out, "-") != 0 && !figure_can_write(q->out)
        && table_format_of(q->out) == TABLE_FORMAT_NONE)
        return kvf_fail(
            d, KVF_E_ARG,
            "-o %s: the name must end in .tsv, .csv, .json, .npz, .sqlite, .png, .svg or .pdf",
            q->out);
    err = preview_check(&q->look, figure_of(q), d);
    if (err)
        return err;
    if (q->out && figure_can_write(q->out) && !figure_of(q))
        return kvf_fail(
            d, KVF_E_ARG,
            "-o %s: this table has no figure; write it as .tsv, .csv, .json, .npz or .sqlite",
            q->out);
    if (q->look.preview || (q->out && figure_can_write(q->out)))
        figure_prepare();
    return KVF_OK;
}

static int describe(const struct request *q, const struct table *t)
{
    struct buf b = {0};
    if (q->cut_off)
        return KVF_OK;
    if (q->about.len)
        buf_add(&b, q->about.data, q->about.len);
    else
        q->a->describe(t, &b);
    if (!b.err && b.len)
        shown_print(b.data, b.len);
    int err = b.err;
    buf_finish(&b);
    return err;
}

/* Decides whether the tables of several traces are concatenated. Returns KVF_E_ARG with a sentence
 * if a figure was requested that cannot show several traces, otherwise KVF_OK. */
static int check_several(struct request *q, int operands, struct kvf_diag *d)
{
    const struct figure *f = figure_of(q);
    bool asked = q->look.preview || (q->out && figure_can_write(q->out));
    q->several = q->a->max_traces <= 1 && operands > 1;
    return !q->several || !f || f->side_by_side || !asked
               ? KVF_OK
               : kvf_fail(d, KVF_E_ARG,
                          "the figure %s draws one trace; give one, or write the table "
                          "of all as .tsv, .csv, .json, .npz or .sqlite",
                          f->name);
}

static int make_table(struct request *q, struct kvf_trace *const *trace, char *const *path, int n,
                      struct table **ret, struct kvf_diag *d)
{
    return q->several
               ? stack_run(q->a, trace, n, (const char *const *)path, &q->args, &q->about, ret, d)
               : analyzer_run(q->a, trace, n, &q->args, ret, d);
}

/* Checks --style if no figure was drawn. Called after the table is written, because computing the
 * table may have taken long. */
static int check_unused_style(const struct request *q, const struct figure *f,
                              const struct table *t, int err, struct kvf_diag *d)
{
    return err ? err : figure_options_idle(&q->look, f, t, d);
}

static int deliver(const struct request *q, const struct table *t, struct kvf_diag *d)
{
    const struct figure *f = figure_of(q);
    if (f && q->several && !f->side_by_side)
        f = NULL;
    if (q->json)
        return check_unused_style(q, f, t, output_write(t, TABLE_JSON, "-", d), d);
    bool screen = q->out && strcmp(q->out, "-") == 0, drawn = preview_wanted(&q->look, f, q->out);
    int err = KVF_OK;
    if (screen && !drawn)
        return check_unused_style(q, f, t, output_write(t, TABLE_TSV, "-", d), d);
    bool figure = q->out && !screen && figure_can_write(q->out);
    if (figure)
        err = figure_options_write(&q->look, f, t, q->out, d);
    else if (q->out && !screen)
        err = output_write(t, table_format_of(q->out), q->out, d);
    if (!err)
        err = drawn ? preview_draw(&q->look, f, t, d) : describe(q, t);
    return drawn || figure ? err : check_unused_style(q, f, t, err, d);
}

/* Sets the file of a repeated run: the one of --record-to, or a temporary one. */
static int again_file(const struct request *q, struct buf *ret_path, struct kvf_diag *d)
{
    if (!q->again.to)
        return temporary_trace(ret_path, d);
    buf_str(ret_path, q->again.to);
    return ret_path->err;
}

/* Records the run of a trace again and opens the new trace in its place. */
static int record_again(const struct command *self, const struct request *q, const char *lacks,
                        struct kvf_trace **trace, struct kvf_diag *d)
{
    struct again a = {.n = 0};
    struct buf path = {0};
    struct kvf_trace *now = NULL;
    int err = again_file(q, &path, d);
    if (!err)
        err = again_plan(*trace, lacks, q->again.model, path.data, &a, d);
    if (!err)
        err = again_run(&a, d);
    if (!err)
        err = open_trace(self, path.data, "showing", &now, d);
    if (!err)
        err = again_same(*trace, now, d);
    if (!err) {
        kvf_close(*trace);
        *trace = now;
        now = NULL;
    }
    kvf_close(now);
    again_free(&a);
    if (!q->again.to)
        stream_out_close(&path); /* the open trace stays readable */
    buf_finish(&path);
    return err;
}

/* Appends the command that records the missing columns, if there is one. */
static void put_remedy(const struct request *q, const struct kvf_trace *t, const char *lacks,
                       struct buf *out)
{
    struct again a = {.n = 0};
    struct kvf_diag unused;
    struct buf path = {0};
    size_t n = strlen(kvf_path(t));
    n -= n > 4 && strcmp(kvf_path(t) + n - 4, ".kvf") == 0 ? 4 : 0;
    buf_printf(&path, "%.*s-again.kvf", (int)n, kvf_path(t));
    if (!path.err && again_plan(t, lacks, q->again.model, path.data, &a, &unused) == KVF_OK)
        again_show(&a, out);
    again_free(&a);
    buf_finish(&path);
}

/* Returns which of n traces the sentence of an error names as one that lacks columns; n: none. */
static int lacking(struct kvf_trace *const *trace, int n, int err, const struct kvf_diag *d)
{
    bool lacks = err == KVF_E_NOTFOUND
                 && (strstr(d->text, "no column") || strstr(d->text, "no blocks"));
    for (int i = 0; lacks && i < n; i++) {
        size_t len = strlen(kvf_path(trace[i]));
        if (strncmp(d->text, kvf_path(trace[i]), len) == 0 && d->text[len] == ' ')
            return i;
    }
    return n;
}

/* Makes the table. --record records again the runs that lack columns; otherwise *remedy receives
 * the command that does so. */
static int make_or_record(const struct command *self, struct request *q, struct kvf_trace **trace,
                          char **path, int n, struct table **ret, struct buf *remedy,
                          struct kvf_diag *d)
{
    bool done[MAX_TRACES] = {false};
    int err = make_table(q, trace, path, n, ret, d);
    for (int i = lacking(trace, n, err, d); i < n && !done[i]; i = lacking(trace, n, err, d)) {
        if (!q->again.record && !q->again.to) {
            put_remedy(q, trace[i], d->text, remedy);
            return err;
        }
        const struct kvf_diag lacks = *d;
        err = record_again(self, q, lacks.text, &trace[i], d);
        done[i] = true;
        if (!err)
            err = make_table(q, trace, path, n, ret, d);
    }
    return err;
}

static int cmd_analysis(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct kvf_diag d = {""};
    struct kvf_trace *trace[MAX_TRACES] = {NULL};
    struct table *t = NULL;
    struct buf remedy = {0};
    q->a = self->analyzer;
    int err = parse_request(q, &d);
    if (!err && q->again.to && n > 1)
        err = kvf_fail(&d, KVF_E_ARG, "--record-to keeps one trace, and %d are given; use --record",
                       n);
    if (!err && q->again.model && !q->again.record && !q->again.to)
        err = kvf_fail(&d, KVF_E_ARG, "--model has an effect only with --record or --record-to");
    if (err)
        goto done;
    err = check_several(q, n, &d);
    if (err)
        goto done;
    err = files_keep(q->out, operand, n, &d);
    for (int i = 0; !err && i < n; i++)
        err = open_trace(self, operand[i], "showing", &trace[i], &d);
    if (err)
        goto done;
    q->cut_off = true;
    for (int i = 0; i < n; i++) {
        q->cut_off = q->cut_off && kvf_n_steps(trace[i]) == 0 && !kvf_is_clean(trace[i]);
        trace_report_piece(self, trace[i]);
    }
    traces_report_diverged(self, trace, n);
    struct watcher w = watcher_count(self->name, "parts");
    q->args.watch = watcher_update;
    q->args.watch_ctx = &w;
    err = make_or_record(self, q, trace, operand, n, &t, &remedy, &d);
    watcher_end(&w);
    if (!err && table_meta(t, "missing"))
        command_print(self->name,
                      "the trace lacks %s; the values that need it are blank or left out",
                      table_meta(t, "missing"));
    if (!err && table_meta(t, "sampled"))
        command_print(self->name, "sampled: %s", table_meta(t, "sampled"));
    if (!err)
        err = deliver(q, t, &d);
    if (!err && table_meta(t, "note"))
        command_print(self->name, "%s", table_meta(t, "note"));
done:
    table_destroy(t);
    buf_finish(&q->about);
    for (int i = 0; i < n; i++)
        kvf_close(trace[i]);
    int status = command_end(self, err, &d);
    if (remedy.len && !remedy.err)
        command_print(self->name, "to record them: %s (or add --record here)", remedy.data);
    buf_finish(&remedy);
    return status;
}

struct command analysis_command(const struct analyzer *a)
{
    static const char *const shown[] = {"X.kvf [Y.kvf ...]", "A.kvf B.kvf [C.kvf ...]"};
    bool pairs = a->min_traces > 1;
    return (struct command){
        .name = a->name,
        .group = ANALYSIS_GROUP,
        .summary = a->summary,
        .example = a->example,
        .operands = {shown[pairs], "trace", pairs ? a->min_traces : 1,
                     a->max_traces <= 1 ? STACK_MOST : a->max_traces},
        .options = shared_options,
        .request_bytes = sizeof(struct request),
        .analyzer = a,
        .own_at = offsetof(struct request, own),
        .run = cmd_analysis,
    };
}
