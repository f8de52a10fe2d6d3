/* cmd_eval.c - `kvfate eval` measures the quality of cache methods against the budget, over
 * documents. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/table_io.h"
#include "cli/commands.h"
#include "cli/eval_job.h"
#include "cli/figure_options.h"
#include "base/files.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/runner.h"
#include "cli/shard.h"
#include "engine/experiment/task.h"
#include "engine/experiment/eval_state.h"

/* Default values of options. */
#define DOCS 24
#define PROMPT 512
#define SCORE 128

static int check_options(struct eval_job *j, struct kvf_diag *d)
{
    if (!j->data.n == !j->tasks_of.n)
        return kvf_fail(d, KVF_E_ARG,
                        "give --data FILE, text with headings or JSONL, or --tasks NAME.json, as "
                        "`kvfate tasks needle` writes them");
    const char *why = "with --tasks, which contain the text";
    bool tasks = j->tasks_of.n > 0;
    const struct idle list[] = {{j->raw && !tasks, "--raw", "without --tasks"},
                                {j->docs != DOCS && tasks, "--docs", why},
                                {j->prompt != PROMPT && tasks, "--prompt-tokens", why},
                                {j->score != SCORE && tasks, "--score-tokens", why},
                                {j->seed != 0 && tasks, "--seed", why}};
    int err = IDLE_CHECK(list, d);
    if (!err && j->question == TASK_UNKNOWN && !tasks)
        err = kvf_fail(d, KVF_E_ARG,
                       "--question unknown needs --tasks: documents of --data have no question");
    if (!err)
        err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = output_check(j->out, "eval", d);
    if (err)
        return err;
    j->eval = (struct eval){.kv_type = execution_kv_type(&j->how),
                            .prompt = j->tasks_of.n ? 0 : (int)j->prompt,
                            .score = j->tasks_of.n ? 0 : (int)j->score,
                            .answers = j->tasks_of.n > 0,
                            .chunk = (int)j->how.chunk};
    return eval_parse_cells(j, d);
}

static int check_output(const struct eval_job *j, struct kvf_diag *d)
{
    const char *const in[] = {gguf_path(j->eval.engine->gguf), j->state_path};
    for (size_t i = 0; j->out && i < sizeof in / sizeof *in; i++)
        if (in[i] && file_same(in[i], j->out))
            return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite %s", j->out, in[i]);
    for (int i = 0; j->out && i < j->data.n; i++)
        if (file_same(j->data.item[i], j->out))
            return kvf_fail(d, KVF_E_ARG, "-o %s would overwrite %s", j->out, j->data.item[i]);
    return tasks_keep(&j->tasks, j->out, d);
}

static int read_data(struct eval_job *j, struct kvf_diag *d)
{
    const struct model_config *m = &j->eval.engine->config;
    struct documents_source from = {j->data.item, j->data.n, (int)j->docs, (uint64_t)j->seed};
    int length = (int)(j->prompt + j->score);
    if (length > m->n_ctx_max)
        return kvf_fail(d, KVF_E_LIMIT,
                        "documents of %d tokens do not fit into the model's "
                        "context of %d",
                        length, m->n_ctx_max);
    j->text.length = length;
    int err = documents_choose(j->eval.engine->tokenizer, &from, &j->text, d);
    j->input = err ? NULL : MEM_NEW(struct eval_input, (size_t)j->docs);
    if (!err && !j->input)
        err = KVF_E_NOMEM;
    for (int64_t i = 0; !err && i < j->docs; i++)
        j->input[i] = (struct eval_input){
            {.ids = j->text.doc[i].ids, .prompt = (int)j->prompt, .score = (int)j->score},
            j->text.doc[i].hash};
    j->eval.tokens = j->docs * j->score;
    return err;
}

/* Sets input i from a task. The prompt ends before the reply, or before the question if methods do
 * not know it. The words of the reply that lead to the answer are fed but not scored. */
static int set_task(struct eval_job *j, int i, struct kvf_diag *d)
{
    const struct task *t = &j->tasks.task[i];
    int score = t->causal.query + t->causal.steps + 1 - t->reply, prompt = t->reply;
    size_t all = (size_t)(t->reply + score);
    int err = j->eval.apart ? task_question(t, j->eval.engine, &prompt, d) : KVF_OK;
    if (err)
        return err;
    j->input[i].text = (struct eval_text){.ids = t->prompt.ids,
                                          .prompt = prompt,
                                          .score = t->reply - prompt + score,
                                          .question = t->reply - prompt,
                                          .counts = t->counts};
    j->input[i].hash = rng_hash_bytes(0, t->prompt.ids, all * sizeof *t->prompt.ids);
    for (int k = 0; k < score; k++)
        j->eval.tokens += t->counts[k];
    return KVF_OK;
}

static int read_tasks(struct eval_job *j, struct kvf_diag *d)
{
    j->tasks = (struct tasks){.e = j->eval.engine, .raw = j->raw};
    int err = tasks_open(&j->tasks, j->tasks_of.item, j->tasks_of.n, d);
    if (!err)
        err = tasks_question(&j->tasks, (enum task_question)j->question, &j->eval.apart, d);
    if (err)
        return err;
    if (j->tasks.note)
        fprintf(stderr, "note: %s\n", j->tasks.note);
    j->docs = j->tasks.n;
    j->input = MEM_NEW(struct eval_input, (size_t)j->docs);
    err = j->input ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < j->tasks.n; i++) {
        err = set_task(j, i, d);
        j->eval.floor += j->tasks.task[i].chance / j->tasks.n;
    }
    return err;
}

/* Prints a mean and its CI. With too few documents there is no CI, and the columns stay blank. */
static void print_mean(double mean, double low, double high)
{
    if (isnan(low) || isnan(high))
        printf(" %7.4f %-17s", mean, "");
    else
        printf(" %7.4f %7.4f .. %6.4f", mean, low, high);
}

/* Prints the method and the budget of a row: entries, or "25%:128" for a fraction. */
static void print_budget(const struct table *t, int row, int wide)
{
    int percent = table_find(t, "budget_percent");
    double part = percent < 0 ? NAN : table_real(t, percent, row);
    char text[64];
    size_t n = isnan(part) ? 0 : (size_t)snprintf(text, sizeof text, "%.8g%%:", part);
    snprintf(text + n, sizeof text - n, "%.8g", table_real(t, table_find(t, "budget"), row));
    printf("%-*s %7s", wide, table_str(t, table_find(t, "method"), row), text);
}

static void summary(const struct eval_job *j, const struct table *t)
{
    static const char *const name[] = {"nll",     "nll_low", "nll_high",   "kl",
                                       "kl_low",  "kl_high", "top1_agree", "kv_mean",
                                       "kv_peak", "kv_end",  "window"};
    enum { COLUMNS = sizeof name / sizeof *name };
    const char *s = j->docs == 1 ? "" : "s", *intervals = j->docs < STATS_LEAST
                                                              ? ", too few for an interval"
                                                              : ", 95 % intervals";
    int wide = 6;
    for (int i = 0; i < j->n; i++)
        if ((int)strlen(j->cell[i].label) > wide)
            wide = (int)strlen(j->cell[i].label);
    if (j->eval.answers)
        printf("%lld task%s%s; nats per token of the answer%s\n", (long long)j->docs, s,
               j->eval.apart ? ", question unknown" : "", intervals);
    else
        printf("%lld document%s of %lld + %lld tokens; nats per token%s\n", (long long)j->docs, s,
               (long long)j->prompt, (long long)j->score, intervals);
    printf("%-*s %7s %6s %7s %-17s %7s %-17s %6s %7s %7s %7s%s\n", wide, "method", "budget",
           "window", "NLL", "", "KL", "", "top-1", "entries", "peak", "at end",
           j->eval.answers ? "   right    floor" : "");
    for (int i = 0; i < j->n; i++) {
        double v[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            v[c] = table_real(t, table_find(t, name[c]), i);
        print_budget(t, i, wide);
        if (isnan(v[10]))
            printf(" %6s", "-");
        else
            printf(" %6.0f", v[10]);
        print_mean(v[0], v[1], v[2]);
        print_mean(v[3], v[4], v[5]);
        printf(" %5.1f%% %7.1f %7.1f %7.1f", 100 * v[6], v[7], v[8], v[9]);
        int right = table_find(t, "right");
        if (right >= 0)
            printf("  %5.1f%%  %6.2g%%", 100 * table_real(t, right, i), 100 * j->eval.floor);
        printf("\n");
    }
}

static struct table *make_table(const struct eval_job *j)
{
    struct table *t = NULL;
    int *fed = MEM_NEW(int, (size_t)j->docs), *prompt = MEM_NEW(int, (size_t)j->docs);
    for (int64_t i = 0; fed && prompt && i < j->docs; i++) {
        prompt[i] = j->input[i].text.prompt;
        fed[i] = prompt[i] + j->input[i].text.score;
    }
    if (fed && prompt)
        t = eval_table(&j->eval, j->cell, j->n, j->result, fed, prompt, (int)j->docs);
    mem_free(fed);
    mem_free(prompt);
    return t;
}

static int deliver(const struct eval_job *j, struct kvf_diag *d)
{
    struct table *t = make_table(j);
    const struct output o = {j->out, j->json, &j->look, NULL};
    int err = t ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        table_meta_num(t, "seed", (double)j->seed);
    if (!err)
        err = output_table(&o, t, d);
    if (!err && output_summary(&o))
        summary(j, t);
    const char *unequal = !err ? table_meta(t, "unequal_memory") : NULL;
    if (unequal)
        fprintf(
            stderr,
            "note: rows of one budget do not cache equally many entries of a head (%s); compare "
            "them by kv_mean and kv_peak\n",
            unequal);
    table_destroy(t);
    return err;
}

static void finish(struct eval_job *j)
{
    eval_state_close(j->state);
    buf_finish(&j->own_file);
    documents_finish(&j->text);
    tasks_close(&j->tasks);
    mem_free(j->input);
    eval_close_cells(j);
    engine_close(j->eval.engine);
    mem_free(j->result);
    mem_free(j->done);
    crew_leave(j->crew);
}

/* Rejects a shard or a multi-process run without --state, since their results would be lost, and a
 * shard with a table as output. */
static int check_parts(struct eval_job *j, struct kvf_diag *d)
{
    int err = shard_parse(j->shard, &j->part, d);
    if (!err && !j->state_path && (crew_size(j->crew) > 1 || j->part.parts > 1))
        err = kvf_fail(d, KVF_E_ARG, "%s keep their results in files: give --state FILE",
                       j->part.parts > 1 ? "parts (--shard)" : "several processes");
    if (!err && j->part.parts > 1 && (j->out || j->json))
        err = kvf_fail(d, KVF_E_ARG,
                       "a part (--shard) makes no table: put the files of all parts together with "
                       "`kvfate corpus merge`, and give that to --state without --shard");
    return err;
}

static int finish_run(struct eval_job *j, struct kvf_diag *d)
{
    if (!crew_is_first(j->crew))
        return KVF_OK;
    if (j->part.parts == 1)
        return deliver(j, d);
    printf("part %s is done; its results are in %s\n", j->shard, j->state_path);
    return KVF_OK;
}

static void tell_pace(const struct eval_job *j)
{
    if (crew_size(j->crew) > 1)
        fprintf(stderr, "rank %d: ", crew_rank(j->crew));
    fprintf(stderr, "%lld cells (a document under a method and budget) in %.1f s: %.0f a minute\n",
            (long long)j->made, j->seconds, 60 * (double)j->made / j->seconds);
}

static int run(struct eval_job *j, struct kvf_diag *d)
{
    int err = crew_join(&j->crew, d);
    if (!err)
        err = check_parts(j, d);
    if (!err)
        err = check_options(j, d);
    if (!err)
        err = model_open(j->model, &j->how, &j->eval.engine, d);
    if (!err && j->tasks_of.n)
        err = read_tasks(j, d);
    if (!err)
        err = check_output(j, d);
    if (!err)
        err = eval_open_gates(j, d);
    if (!err && j->data.n)
        err = read_data(j, d);
    bool tells = j->crew && crew_is_first(j->crew);
    for (int i = 0; !err && tells && i < j->n_shipped; i++)
        fprintf(stderr, "note: --gates %s, which are shipped for this model\n",
                gates_path(j->shipped[i]));
    if (!err && tells && j->left_out.len)
        fprintf(stderr, "left out of all methods, for lack of a plan, of gates or of budget:%s\n",
                j->left_out.data);
    if (!err)
        err = eval_run(j, d);
    err = engine_error(j->eval.engine, err, d);
    if (!err)
        err = finish_run(j, d);
    if (!err && j->made)
        tell_pace(j);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'm', "model", offsetof(struct eval_job, model), "FILE",
     "model: a GGUF file or a folder", .absent = "SmolLM2 in the cache folder"},
    {OPT_LIST, 0, "data", offsetof(struct eval_job, data), "FILE",
     "text with headings, or JSONL; several may follow"},
    {OPT_LIST, 0, "tasks", offsetof(struct eval_job, tasks_of), "FILE",
     "NAME.json of prompts with known answers, or a folder of such files, instead of documents"},
    {OPT_FLAG, 0, "raw", offsetof(struct eval_job, raw), NULL, "tasks without the chat template"},
    {OPT_WORD, 0, "question", offsetof(struct eval_job, question), "WHEN",
     "with --tasks. unknown: methods cut the context before they see the question, which is fed "
     "afterwards. file: as in the tasks",
     "file", .words = task_question_words},
    {OPT_STR, 0, "methods", offsetof(struct eval_job, methods), "A,B:k=v,...",
     "cache methods, or all", "all"},
    {OPT_STR, 0, "budgets", offsetof(struct eval_job, budgets), "N|P%,...",
     "entries that each KV head may cache, or fractions of the tokens of each prompt",
     EVAL_BUDGETS},
    {OPT_LIST, 0, "gates", offsetof(struct eval_job, gates_file), "FILE",
     "trained gates, one file of each kind, or names of shipped ones"},
    {OPT_STR, 0, "head-budgets", offsetof(struct eval_job, head_budgets), "FILE",
     "table of budgets per head for methods with allocation=file, JSON or safetensors"},
    {OPT_INT, 0, "docs", offsetof(struct eval_job, docs), "N", "documents", OPT_TEXT(DOCS),
     .min = 1, .max = 1 << 20},
    {OPT_INT, 0, "prompt-tokens", offsetof(struct eval_job, prompt), "P", "tokens before the cut",
     OPT_TEXT(PROMPT), .min = 1, .max = 1 << 24},
    {OPT_INT, 0, "score-tokens", offsetof(struct eval_job, score), "S",
     "tokens fed one by one and scored", OPT_TEXT(SCORE), .min = 1, .max = 1 << 24},
    {OPT_INT, 's', "seed", offsetof(struct eval_job, seed), "S", "seed of the choice of documents",
     "0", .max = 9e15},
    {OPT_STR, 0, "state", offsetof(struct eval_job, state_path), "FILE",
     "keep results here and go on from them"},
    {OPT_STR, 0, "shard", offsetof(struct eval_job, shard), "I/N",
     "documents of part I of N, from 1/N to N/N, into --state"},
    {OPT_STR, 'o', "output", offsetof(struct eval_job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct eval_job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_GROUP, 0, "execution", offsetof(struct eval_job, how), .group = execution_options},
    {OPT_GROUP, 0, "figure", offsetof(struct eval_job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_eval(const struct command *self, void *request, int n, char **operand)
{
    struct eval_job *j = request;
    struct kvf_diag d = {""};
    int err = files_of_data(j->tasks_of.n ? &j->tasks_of : &j->data, operand, n, &d);
    if (!err)
        err = run(j, &d);
    finish(j);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"1", "It failed: a file could not be read or written, is damaged or has other settings, or "
          "the data have too few documents."},
    {NULL, NULL},
};

const struct command command_eval = {
    .name = "eval",
    .group = "quality",
    .summary = "measure the quality of cache methods at several budgets",
    .example =
        "kvfate eval --data text.txt --methods h2o,snapkv:window=16 --budgets 64,128 --docs 2 "
        "-o eval.tsv",
    .needs = "(--data FILE... | --tasks FILE...)",
    .operands = {NULL, "file", 0, -1},
    .options = options,
    .request_bytes = sizeof(struct eval_job),
    .exits = exits,
    .run = cmd_eval,
};
