/* cmd_causal.c - `kvfate ablate --as causal` tests whether attention to distractors degrades the
 * answer, by removing entries from the cache when the answer is queried. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/commands.h"
#include "cli/figure_options.h"
#include "base/files.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/runner.h"
#include "engine/experiment/task.h"
#include "engine/experiment/causal.h"

enum { PER_TASK = (int)CAUSAL_N_GROUPS * (int)CAUSAL_N_ROWS };

struct job {
    /* options */
    const char *model, *heads, *out;
    struct execution how;
    bool raw, json, per_task;
    int question; /* enum task_question */
    int64_t sinks, seed;
    double looking;
    struct figure_options look;

    struct engine *engine;
    struct effect effect;
    struct tasks tasks;
    bool apart;          /* entries are removed before the question */
    unsigned char *take; /* [L * KV heads] nonzero for heads of --head */
    double *share;       /* [n][L * KV heads] attention mass of each head on the distractors */
    struct causal_outcome *outcome; /* [n][PER_TASK] */
    struct effect_memory memory;
    struct progress bar;
    int64_t done;
};

/* ---- before the model runs */

static int open_all(struct job *j, char **operand, int n, struct kvf_diag *d)
{
    int err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = output_check(j->out, j->per_task ? "causal-tasks" : "causal", d);
    if (!err)
        err = model_open(j->model, &j->how, &j->engine, d);
    if (!err)
        err = model_heads(&j->engine->config, j->heads ? j->heads : "L*K*", &j->take, d);
    j->tasks = (struct tasks){.e = j->engine, .raw = j->raw, .sinks = (int)j->sinks};
    if (!err)
        err = tasks_open(&j->tasks, (const char *const *)operand, n, d);
    if (!err)
        err = tasks_keep(&j->tasks, j->out, d);
    if (!err)
        err = tasks_question(&j->tasks, (enum task_question)j->question, &j->apart, d);
    for (int i = 0; !err && j->apart && i < j->tasks.n; i++)
        err = task_question(&j->tasks.task[i], j->engine, &j->tasks.task[i].causal.cut, d);
    if (err)
        return err;
    if (j->tasks.note)
        fprintf(stderr, "note: %s\n", j->tasks.note);
    j->effect = (struct effect){
        .engine = j->engine, .kv_type = execution_kv_type(&j->how), .chunk = (int)j->how.chunk};
    return KVF_OK;
}

/* ---- measurement */

static void on_progress(void *ctx, int tokens)
{
    struct job *j = ctx;
    j->done += tokens;
    progress_update(&j->bar, j->done);
}

static size_t heads_of(const struct job *j)
{
    return (size_t)j->engine->config.n_layers * (size_t)j->engine->config.n_kv_heads;
}

static int measure(struct job *j, struct kvf_diag *d)
{
    size_t heads = heads_of(j);
    int64_t tokens = 0;
    j->share = mem_alloc((size_t)j->tasks.n, heads * sizeof *j->share);
    j->outcome = mem_alloc((size_t)j->tasks.n, PER_TASK * sizeof *j->outcome);
    unsigned char *group = mem_alloc(CAUSAL_N_GROUPS, heads);
    int err = j->share && j->outcome && group ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; i < j->tasks.n; i++)
        tokens += causal_tokens(&j->tasks.task[i].causal);
    j->effect.progress = on_progress;
    j->effect.ctx = j;
    progress_start(&j->bar, "causal", "tok", tokens);
    for (int i = 0; !err && i < j->tasks.n; i++)
        err = causal_look(&j->effect, &j->tasks.task[i].causal, j->share + (size_t)i * heads, d);
    for (int i = 0; !err && i < j->tasks.n; i++) {
        err = causal_groups(j->share, j->tasks.n, i, (int)heads, j->take, j->looking, group);
        if (!err)
            err = causal_measure(&j->effect, &j->tasks.task[i].causal, group,
                                 rng_hash((uint64_t)j->seed, (uint64_t)i, 0, 0),
                                 j->outcome + (size_t)i * PER_TASK, &j->memory, d);
    }
    progress_end(&j->bar, j->done);
    mem_free(group);
    return err;
}

/* ---- output */

static double cell(const struct table *t, const char *name, int row)
{
    return table_real(t, table_find(t, name), row);
}

static void print_row(const struct table *t, int row)
{
    double dose = cell(t, "dose", row);
    char how[16] = "matched", ends[32] = "";
    if (!isnan(dose))
        snprintf(how, sizeof how, "%.0f %%", 100 * dose);
    if (!isnan(cell(t, "dlogp_low", row)))
        snprintf(ends, sizeof ends, "%+8.3f .. %+8.3f", cell(t, "dlogp_low", row),
                 cell(t, "dlogp_high", row));
    printf("%-8s %-11s %9s  %5.1f %%  %7.1f  %+8.3f  %-20s  %5.1f %%",
           table_str(t, table_find(t, "group"), row), table_str(t, table_find(t, "removed"), row),
           how, 100 * cell(t, "mass", row), cell(t, "entries", row), cell(t, "dlogp", row), ends,
           100 * cell(t, "right", row));
    if (strcmp(table_str(t, table_find(t, "matched"), row), "no") == 0)
        printf("  not matched: the masses differ by more than 10 %%");
    if (!isnan(cell(t, "contrast", row)))
        printf("  %+8.3f  %.4f", cell(t, "contrast", row), cell(t, "contrast_p", row));
    printf("\n");
}

/* Prints one sentence on the row that removes all distractors in all heads. Fewer than six tasks
 * cannot give p < 0.05 in a sign test. */
static void print_verdict(const struct table *t, int row, int n)
{
    enum { MIN_TASKS = 6 };
    double low = cell(t, "dlogp_low", row), high = cell(t, "dlogp_high", row);
    bool clear = n >= MIN_TASKS && cell(t, "dlogp_p", row) < 0.05;
    if (n < MIN_TASKS) {
        printf("\n%d task%s cannot show a difference: give %d or more.\n", n, n == 1 ? "" : "s",
               MIN_TASKS);
        return;
    }
    printf("\nWithout all distractors log p(answer) changes by %+.3f nats (%+.3f .. %+.3f): ",
           cell(t, "dlogp", row), low, high);
    if (clear && low > 0)
        printf("attention to them costs the answer here.\n");
    else if (clear && high < 0)
        printf("here the distractors help more than the attention to them costs.\n");
    else
        printf("these tasks do not show whether attention to distractors costs the answer.\n");
}

static void summary(const struct job *j, const struct table *t)
{
    printf("%d task%s%s; nats per answer, against the full cache\n", j->tasks.n,
           j->tasks.n > 1 ? "s" : "", j->apart ? ", question unknown" : "");
    printf("%-8s %-11s %9s  %7s  %7s  %8s  %-20s  %7s  %8s  %s\n", "heads", "removed", "dose",
           "mass", "entries", "log p", "    95 %", "right", "contrast", "p");
    for (int i = 0; i < PER_TASK; i++)
        if (i < CAUSAL_N_ROWS || causal_rows[i % CAUSAL_N_ROWS].what != CAUSAL_NOTHING)
            print_row(t, i);
    print_verdict(t, CAUSAL_ALL_DISTRACTORS, j->tasks.n);
}

static void add_meta(const struct job *j, struct table *t)
{
    table_meta_str(t, "heads", j->heads ? j->heads : "all");
    table_meta_num(t, "looking", j->looking);
    table_meta_num(t, "sinks", (double)j->sinks);
    if (j->apart)
        table_meta_str(t, "question", "unknown");
    table_meta_num(t, "seed", (double)j->seed);
}

static int deliver(const struct job *j, struct kvf_diag *d)
{
    const char **name = MEM_NEW(const char *, (size_t)j->tasks.n);
    if (!name)
        return KVF_E_NOMEM;
    for (int i = 0; i < j->tasks.n; i++)
        name[i] = j->tasks.task[i].name;
    struct causal_result r = {&j->effect, j->tasks.n, name, j->outcome};
    struct table *rows = causal_table(&r), *tasks = j->per_task ? causal_table_tasks(&r) : NULL;
    struct table *t = j->per_task ? tasks : rows;
    const struct output o = {j->out, j->json, &j->look, NULL};
    int err = rows && t ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        add_meta(j, t);
        err = table_err(t);
    }
    if (!err)
        err = output_table(&o, t, d);
    if (!err && output_summary(&o))
        summary(j, rows);
    table_destroy(rows);
    table_destroy(tasks);
    mem_free(name);
    return err;
}

static void finish(struct job *j)
{
    tasks_close(&j->tasks);
    mem_free(j->take);
    mem_free(j->share);
    mem_free(j->outcome);
    engine_close(j->engine);
}

static const struct opt options[] = {
    {OPT_STR, 0, "head", offsetof(struct job, heads), "SET", "KV heads: L0-5K*, L3K1, 3.1",
     .absent = "all"},
    {OPT_REAL, 0, "looking", offsetof(struct job, looking), "X",
     "share of the heads that make the group looking", "0.1", .max = 1},
    {OPT_INT, 0, "sinks", offsetof(struct job, sinks), "K", "first tokens of the text that stay",
     "4", .max = 1 << 24},
    {OPT_WORD, 0, "question", offsetof(struct job, question), "WHEN",
     "known: entries are removed at the query of the answer. unknown: before the question. file: "
     "as in the tasks",
     "file", .words = task_question_words},
    {OPT_FLAG, 0, "per-task", offsetof(struct job, per_task), NULL, "a row for every task, too"},
    {OPT_INT, 's', "seed", offsetof(struct job, seed), "S", "seed of the random choices", "0",
     .max = 9e15},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_GROUP, 0, "execution", offsetof(struct job, how), .group = execution_options},
    {OPT_STR, 'm', "model", offsetof(struct job, model), "FILE", "model: a GGUF file or a folder",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_FLAG, 0, "raw", offsetof(struct job, raw), NULL,
     "do not apply the chat template to prompts"},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_causal(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = open_all(j, operand, n, &d);
    if (!err)
        err = engine_error(j->engine, measure(j, &d), &d);
    if (!err)
        err = deliver(j, &d);
    finish(j);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"1", "It failed: a file could not be read or written, is no task, or does not fit into the "
          "model's context."},
    {NULL, NULL},
};

const struct command command_causal = {
    .name = "causal",
    .group = "quality",
    .summary = "test whether removing distractors at the question improves the answer",
    .example = "kvfate ablate --as causal hay.json --per-task -o causal.tsv",
    .operands = {"NAME.json|FOLDER|@LIST ...", "task", 1, -1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_causal,
};
