/* cmd_run.c - `kvfate run` runs a model with a cache method and records a trace. `kvfate generate`
 * uses the same decoder without a trace. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/run_lines.h"
#include "cli/commands.h"
#include "base/files.h"
#include "cli/idle.h"
#include "cli/run.h"
#include "cli/run_cells.h"
#include "cli/run_json.h"
#include "cli/run_notes.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "cli/stream.h"

static void print_answer(const struct run *u)
{
    shown_piece(u->answer.data ? u->answer.data : "", u->answer.data ? strlen(u->answer.data) : 0);
    putchar('\n');
}

/* Prints the number of tokens and their rate. of: the planned number of tokens. rate: NaN if no
 * step was timed, as in an answer of one token. */
static void print_speed(const char *what, int n, int of, double rate)
{
    fprintf(stderr, "%s %d ", what, n);
    if (n < of)
        fprintf(stderr, "of %d ", of);
    fprintf(stderr, of == 1 ? "token" : "tokens");
    if (isfinite(rate))
        fprintf(stderr, ", %.0f tok/s", rate);
    fprintf(stderr, "; ");
}

static void print_summary(const struct run *u)
{
    const struct cache_stats st = session_cache_stats(u->session);
    fflush(stdout); /* in a pipe, too, the summary follows the answer */
    int fed = run_prefilled(u), n = u->n_generated;
    print_speed("prefill", fed, u->r.prompt.n_ids, run_rate(fed, u->prefill_seconds));
    print_speed("decode", n, n, run_rate(n - 1, u->decode_seconds));
    fprintf(stderr, "cache %lld entries at the end, %lld at the peak; stop: %s\n",
            (long long)st.entries, (long long)st.entries_peak, answer_stop_name(u->stop));
    note_peak(&u->r, u->session);
    note_effect(&u->r, u->session);
}

static void print_json(const struct run *u)
{
    struct buf b = {0};
    run_json(u, NULL, &b);
    if (!b.err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
}

/* Prints the answer or sends the trace, with the summary and notes. */
static int deliver(struct run *u, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (u->piped.len)
        err = stream_out_send(&u->piped, d);
    else if (u->json)
        print_json(u);
    else if (u->out)
        print_answer(u);
    else
        printf("\n");
    if (!u->quiet)
        print_summary(u);
    if (u->stop == STOP_CONTEXT)
        note_context(&u->r, u->n_generated);
    return err;
}

/* ---- questions */

/* Writes the name of the trace of question i from 0: OUT-1.kvf for OUT.kvf and the first one. */
static int name_of_question(const char *out, int i, struct buf *path)
{
    static const char ext[] = ".kvf";
    size_t n = strlen(out), k = sizeof ext - 1;
    bool has = n > k && strcmp(out + n - k, ext) == 0;
    buf_clear(path);
    buf_add(path, out, has ? n - k : n);
    buf_printf(path, "-%d%s", i + 1, has ? ext : "");
    return path->err;
}

/* Checks the options of several questions and the names of their traces. */
static int check_questions(const struct run *u, struct kvf_diag *d)
{
    struct buf path = {0};
    int err = KVF_OK;
    if (u->asks.n > 1 && (u->resume || u->piped.len))
        return kvf_fail(d, KVF_E_ARG, "%s is for one question: give --ask once",
                        u->resume ? "--resume" : "-o -");
    for (int i = 0; !err && u->out && u->asks.n > 1 && i < u->asks.n; i++) {
        err = name_of_question(u->out, i, &path);
        if (!err)
            err = file_vacant(path.data, u->overwrite, d);
    }
    buf_finish(&path);
    return err;
}

/* Runs the prompt with each question of --ask in turn, or without one. */
static int execute_all(struct run *u, struct kvf_diag *d)
{
    struct shared_cache shared = {NULL};
    struct buf path = {0};
    const char *out = u->out;
    int n = u->asks.n > 1 ? u->asks.n : 1, err = check_questions(u, d);
    for (int i = 0; !err && i < n && !signals_caught(); i++) {
        u->r.prompt.ask = u->asks.n ? u->asks.item[i] : NULL;
        u->r.prompt.spans_file = u->spans.file;
        u->shared = n > 1 ? &shared : NULL;
        if (out && n > 1) {
            err = name_of_question(out, i, &path);
            u->out = path.data;
        }
        if (!err && i > 0)
            run_forget(u);
        if (!err)
            err = i > 0 ? runner_open_prompt(&u->r, d) : runner_open(&u->r, d);
        if (!err)
            err = run_execute(u, d);
        if (!err)
            err = deliver(u, d);
        u->r.noted = true;
    }
    shared_cache_close(&shared);
    u->shared = NULL;
    u->out = out;
    buf_finish(&path);
    return err;
}

static int finish(const struct command *self, struct run *u, int err, struct kvf_diag *d)
{
    if (!err && signals_caught())
        fprintf(stderr, "kvfate %s: interrupted after %d tokens%s%s\n", self->name,
                session_length(u->session), u->out ? "; they are all in " : "",
                u->out ? u->out : "");
    run_close(u);
    stream_out_close(&u->piped);
    if (!err && signals_caught())
        return 128 + signals_caught();
    return command_end(self, err, d);
}

/* ---- batches */

/* Opens the model, with one method or with several. */
static int open_batch(struct run *u, struct kvf_diag *d)
{
    const char *gates = u->r.methods.gates_file, *heads = u->r.methods.head_budgets;
    if (!u->cell_methods)
        return runner_open_model(&u->r, d);
    u->r.methods.gates_file = u->r.methods.head_budgets = NULL; /* they belong to the cells */
    u->r.cells = true;
    int err = runner_open_model(&u->r, d);
    if (!err)
        err = run_cells_open(u, gates, heads, d);
    return err ? err : runner_check_context(&u->r, d);
}

/* Rejects options of the chat template if no line of the batch uses the template. */
static int check_template(const struct run *u, struct kvf_diag *d)
{
    const struct prompt *p = &u->r.prompt;
    const char *why = "where every line of --jsonl is a \"text\", without a chat template";
    for (size_t i = 0; i < u->batch.n_lines; i++)
        if (!u->batch.line[i].text)
            return KVF_OK;
    const struct idle list[] = {
        {p->think, "--think", why}, {p->no_think, "--no-think", why}, {p->date, "--date", why}};
    return IDLE_CHECK(list, d);
}

static int batch(const struct command *self, struct run *u)
{
    const struct prompt *p = &u->r.prompt;
    const struct {
        const char *name;
        bool given;
    } beside[] = {{"-p", p->given},
                  {"-f", p->file},
                  {"--chat", p->chat},
                  {"--ids", p->ids_file},
                  {"--ask", u->asks.n},
                  {"--question-at", p->question_at},
                  {"--raw", p->raw},
                  {"--force", u->force.file},
                  {"--plan", u->force.plan_file},
                  {"--spans", u->spans.file},
                  {"--score-pipe", u->score_pipe.text},
                  {"--resume", u->resume}};
    struct kvf_diag d = {""};
    int err = KVF_OK;
    for (size_t i = 0; !err && i < sizeof beside / sizeof *beside; i++)
        if (beside[i].given)
            err = kvf_fail(&d, KVF_E_ARG, "%s and --jsonl exclude each other%s", beside[i].name,
                           strcmp(beside[i].name, "--ask") == 0
                               ? "; a line has \"context\" and \"question\" or \"questions\""
                               : "");
    u->n_predict = u->r.n_predict;
    u->seed = u->r.seed;
    u->batch.folder = u->out;
    u->batch.overwrite = u->overwrite;
    u->batch.quiet = u->quiet;
    u->batch.make = run_lines_begin;
    u->batch.rest = run_lines_rest;
    u->batch.check = run_lines_check;
    /* Applies to unfinished traces. A closed trace without --overwrite is skipped before this
     * point. */
    u->overwrite = true;
    if (!err)
        err = jsonl_open(&u->batch, &d);
    if (!err)
        err = check_template(u, &d);
    if (!err)
        err = open_batch(u, &d);
    if (!err)
        err = run_lines_open(u, (struct run_lines **)&u->batch.ctx, &d);
    int status = err ? command_end(self, err, &d) : jsonl_run(self, &u->batch);
    run_lines_close(u->batch.ctx);
    jsonl_close(&u->batch);
    run_cells_close(u);
    run_close(u);
    return status;
}

/* Checks the options for several methods, which replace --method and require a batch. */
static int check_cells(const struct run *u, struct kvf_diag *d)
{
    const struct methods *w = &u->r.methods;
    if (u->cell_budgets && !u->cell_methods)
        return kvf_fail(d, KVF_E_ARG, "--budgets is of --methods, which is not given");
    if (u->cell_methods && !u->batch.file)
        return kvf_fail(d, KVF_E_ARG, "--methods is of --jsonl, which is not given");
    if (u->cell_methods && u->json)
        return kvf_fail(d, KVF_E_ARG, "--json and --methods exclude each other");
    if (u->cell_methods && (w->method || w->budget_text || w->override_text.n))
        return kvf_fail(d, KVF_E_ARG,
                        "--methods and --budgets replace --method, --budget and --override; give "
                        "only one kind");
    return KVF_OK;
}

/* Rejects options of batches without a batch, and options that --methods does not support. */
static int check_batch(const struct run *u, struct kvf_diag *d)
{
    const struct jsonl *b = &u->batch;
    const char *alone = "with --methods, which process lines one after another";
    const struct idle list[] = {
        {u->quiet && u->verbose, "--verbose", "with --quiet"},
        {b->part && !b->file, "--shard", "without --jsonl"},
        {b->together && !b->file, "--together", "without --jsonl"},
        {b->room && !b->file, "--room", "without --jsonl"},
        {b->together && u->cell_methods, "--together", alone},
        {b->room && u->cell_methods, "--room", alone},
    };
    return IDLE_CHECK(list, d);
}

static const struct opt run_options[] = {
    {OPT_GROUP, 0, "run", offsetof(struct run, r), .group = runner_options},
    {OPT_LIST, 0, "ask", offsetof(struct run, asks), "TEXT",
     "question about the context of -p or -f, which it follows; each one makes a trace OUT-1.kvf, "
     "OUT-2.kvf, ..."},
    {OPT_STR, 0, "force", offsetof(struct run, force.file), "FILE",
     "feed these tokens: ids as text, a trace or a plan"},
    {OPT_STR, 0, "plan", offsetof(struct run, force.plan_file), "P.kvf",
     "replay a plan: its tokens and its evictions"},
    {OPT_STR, 0, "probes", offsetof(struct run, probes), "LIST",
     "auto, lean, paper, full or names; auto: what every analysis needs, some of it sampled",
     PROBES_AUTO},
    {OPT_STR, 0, "shadow", offsetof(struct run, shadow), "LIST",
     "entries, model: record the cost of evictions (docs/reference/probes.md)"},
    {OPT_LIST, 0, "watch", offsetof(struct run, watch_text), "TOKENS@HEADS",
     "attention that tokens receive from every later query: 383,400-410@L10H19"},
    {OPT_STR, 0, "watch-queries", offsetof(struct run, watch_queries), "HEADS[@pre|@post]",
     "query vectors before or after RoPE", .absent = "pre"},
    {OPT_STR, 0, "spans", offsetof(struct run, spans.file), "FILE.json",
     "named stretches of the prompt (docs/reference/probes.md)"},
    {OPT_STR, 0, "score-pipe", offsetof(struct run, score_pipe.text), "R,W",
     "file descriptors to the program that computes score=external (cli/score_pipe.h)"},
    {OPT_INT, 0, "score-timeout", offsetof(struct run, score_pipe.seconds), "SECONDS",
     "maximum time of its answer", "3600", .min = 1, .max = 1 << 24},
    {OPT_GROUP, 0, "batch", offsetof(struct run, batch), .group = jsonl_options},
    {OPT_STR, 'o', "output", offsetof(struct run, out), "OUT.kvf",
     "the trace, or - for the standard output; with --jsonl a folder for ID.kvf"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct run, overwrite), NULL,
     "replace the trace that is there, once the new one is closed"},
    {OPT_FLAG, 0, "resume", offsetof(struct run, resume), NULL,
     "finish the trace of a killed run; a closed trace is replaced only with --overwrite"},
    {OPT_FLAG, 0, "json", offsetof(struct run, json), NULL,
     "one JSON object to stdout at the end; with --jsonl one for each line"},
    {OPT_FLAG, 'q', "quiet", offsetof(struct run, quiet), NULL, "no progress, no summary"},
    {OPT_FLAG, 'v', "verbose", offsetof(struct run, verbose), NULL,
     "also print which data is recorded and which is not, in bytes per token"},
    {.type = OPT_END},
};

/* Opens a temporary file for a trace that is written to the standard output. */
static int open_pipe(struct run *u, struct kvf_diag *d)
{
    if (u->json || u->resume)
        return kvf_fail(d, KVF_E_ARG, "%s and -o - exclude each other",
                        u->json ? "--json" : "--resume");
    int err = stream_out_open(&u->piped, d);
    u->out = u->piped.data;
    return err;
}

static int cmd_run(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)operand;
    struct run *u = request;
    struct kvf_diag d = {""};
    u->r.force = &u->force;
    if (!u->out)
        return command_end(self,
                           kvf_fail(&d, KVF_E_ARG,
                                    "no -o OUT.kvf; use 'kvfate generate' to decode without a "
                                    "trace"),
                           &d);
    unsigned set;
    int err = check_batch(u, &d);
    if (!err)
        err = probes_parse(u->probes, &set, &d); /* checked before the model is opened */
    if (!err && u->shadow)
        err = shadows_parse(u->shadow, &u->asked_shadows, &d);
    if (!err && u->batch.file)
        return batch(self, u);
    if (!err)
        err = score_pipe_open(&u->score_pipe, &d);
    if (!err && u->score_pipe.text)
        u->r.methods.inputs.external = &u->score_pipe.external;
    if (!err && strcmp(u->out, "-") == 0)
        err = open_pipe(u, &d);
    else if (!err && u->asks.n < 2)
        err = file_vacant(u->out, u->overwrite || u->resume, &d);
    return finish(self, u, err ? err : execute_all(u, &d), &d);
}

static const struct exit_status run_exits[] = {
    {"130, 143", "A signal (SIGINT, SIGTERM) stopped the run after the current token; the trace "
                 "has all tokens up to it and is closed."},
    {NULL, NULL},
};

const struct command command_run = {
    .name = "run",
    .group = "running",
    .summary = "run a model under a cache method and record a trace",
    .example = "kvfate run -p 'Why is the sky blue?' --method h2o --budget 64 -o sky.kvf",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE | --force FILE | --plan P.kvf | "
             "--jsonl FILE) "
             "-o OUT.kvf",
    .options = run_options,
    .request_bytes = sizeof(struct run),
    .exits = run_exits,
    .run = cmd_run,
};

static const struct opt generate_options[] = {
    {OPT_GROUP, 0, "run", offsetof(struct run, r), .group = runner_options},
    {OPT_LIST, 0, "ask", offsetof(struct run, asks), "TEXT",
     "question about the context of -p or -f, which it follows; several are answered in turn"},
    {OPT_STR, 0, "methods", offsetof(struct run, cell_methods), "A,B:k=v,...",
     "with --jsonl: many methods, which share the reading of each prompt"},
    {OPT_STR, 0, "budgets", offsetof(struct run, cell_budgets), "N|P%,...",
     "each of --methods at these budgets", .absent = "64,256"},
    {OPT_GROUP, 0, "batch", offsetof(struct run, batch), .group = jsonl_options},
    {OPT_FLAG, 0, "json", offsetof(struct run, json), NULL,
     "one JSON object to stdout at the end; with --jsonl one for each line"},
    {OPT_FLAG, 'q', "quiet", offsetof(struct run, quiet), NULL, "no progress, no summary"},
    {.type = OPT_END},
};

static int cmd_generate(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)operand;
    struct run *u = request;
    struct kvf_diag d = {""};
    u->probes = "lean";
    int err = check_batch(u, &d);
    if (!err)
        err = check_cells(u, &d);
    if (!err && u->batch.file)
        return batch(self, u);
    return finish(self, u, err ? err : execute_all(u, &d), &d);
}

static const struct exit_status generate_exits[] = {
    {"130, 143", "A signal (SIGINT, SIGTERM) stopped the run after the current token; the tokens "
                 "up to it were printed."},
    {NULL, NULL},
};

const struct command command_generate = {
    .name = "generate",
    .group = "running",
    .summary = "generate text only, without recording a trace",
    .example = "kvfate generate -p 'Name three rivers.' -n 64",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE | --jsonl FILE)",
    .options = generate_options,
    .request_bytes = sizeof(struct run),
    .exits = generate_exits,
    .run = cmd_generate,
};
