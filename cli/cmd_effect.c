/* cmd_effect.c - ablation: how much predictions degrade without the KV cache of a head, or without
 * chosen entries. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/table_io.h"
#include "cli/commands.h"
#include "cli/crew.h"
#include "engine/experiment/entries.h"
#include "cli/figure_options.h"
#include "base/files.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/runner.h"
#include "engine/experiment/documents.h"
#include "engine/experiment/effect.h"
#include "render/figure.h"

enum { DOCS = 4, PROMPT = 512, SINKS = 4, RECENT = 64, TOP = 10 };

struct job {
    /* options */
    struct runner r; /* model, prompt and execution */
    struct opt_list data;
    int64_t docs, prompt, score, recent, sinks, seed;
    const char *heads, *entries, *out;
    bool mirror, each, per_token, json;
    struct figure_options look;

    struct crew *crew;
    struct effect effect;
    struct documents text;
    int32_t *own;        /* the prompt and its continuation; NULL with --data */
    const int32_t **ids; /* [docs] */
    int n_docs, steps;
    unsigned char *take; /* [L * H] nonzero for heads of --head; all heads without it */
    unsigned char *mask; /* [n][L * H] masks of the cells that limit heads */
    int32_t *removed;    /* [n_removed] tokens whose entries are removed */
    int n_removed, n;
    struct effect_cell *cell; /* [n] */
    struct effect_row *row;   /* [n] */
    struct effect_step *step; /* [docs][n][steps] */
    struct effect_memory memory;
    struct progress bar;
    int64_t done;
    double seconds, cpu;
};

/* ---- before the model is opened */

static const char *table_of(const struct job *j)
{
    if (j->per_token)
        return "effect-steps";
    return j->entries ? "effect-entries" : "effect";
}

static int check_output_name(const struct job *j, struct kvf_diag *d)
{
    if (!j->out || strcmp(j->out, "-") == 0 || table_format_of(j->out) != TABLE_FORMAT_NONE)
        return KVF_OK;
    if (!figure_can_write(j->out))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .tsv, .csv, .json, .npz, .sqlite, .png, "
                        ".svg or .pdf",
                        j->out);
    if (!figure_of_table(table_of(j)))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: this table has no figure; write it as .tsv, .csv, "
                        ".json, .npz or .sqlite",
                        j->out);
    if (j->entries && !(j->each && strncmp(j->entries, "span=", 5) == 0))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the figure of entries is a text; give --entries span=A:B with "
                        "--each, or write the table as .tsv, .csv, .json, .npz or .sqlite",
                        j->out);
    return KVF_OK;
}

/* Checks the options of --data, of --entries and of heads. */
static int check_together(const struct job *j, struct kvf_diag *d)
{
    const struct runner *r = &j->r;
    bool classes = j->entries && strncmp(j->entries, "class=", 6) == 0;
    if (j->data.n && (prompt_named(&r->prompt) || r->prompt.raw || r->ignore_eos))
        return kvf_fail(
            d, KVF_E_ARG,
            "--data gives the prompts; leave -p, -f, --chat, --ids, --raw and --ignore-eos out");
    bool drawn_entries = j->entries && strncmp(j->entries, "random:", 7) == 0;
    bool drawn = j->data.n || drawn_entries;
    const char *given = "with --data: its texts use no chat template";
    const struct idle list[] = {
        {j->seed != 0 && !drawn, "--seed", "without --data and --entries random:N"},
        {r->prompt.think && j->data.n, "--think", given},
        {r->prompt.no_think && j->data.n, "--no-think", given},
        {r->prompt.date && j->data.n, "--date", given},
        {j->entries && j->sinks >= 0 && !classes && !drawn_entries, "--sinks",
         "with --entries span=A:B"}};
    int err = IDLE_CHECK(list, d);
    if (err)
        return err;
    if (!j->data.n && (j->docs > 0 || j->prompt > 0))
        return kvf_fail(d, KVF_E_ARG, "--docs and --prompt-tokens belong to --data");
    if (j->each && !j->entries)
        return kvf_fail(d, KVF_E_ARG, "--each belongs to --entries");
    if (j->mirror && j->entries)
        return kvf_fail(d, KVF_E_ARG, "--mirror belongs to heads, not to --entries");
    if (j->entries && j->recent >= 0 && !classes)
        return kvf_fail(d, KVF_E_ARG, "--recent is for heads and for the classes of --entries");
    return KVF_OK;
}

static int check_options(struct job *j, struct kvf_diag *d)
{
    int err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = check_together(j, d);
    if (!err)
        err = check_output_name(j, d);
    if (err)
        return err;
    j->docs = j->docs > 0 ? j->docs : DOCS;
    j->prompt = j->prompt > 0 ? j->prompt : PROMPT;
    j->sinks = j->sinks >= 0 ? j->sinks : SINKS;
    j->recent = j->recent >= 0 ? j->recent : RECENT;
    j->r.n_predict = 0;
    j->effect = (struct effect){.kv_type = execution_kv_type(&j->r.how),
                                .steps = (int)j->score,
                                .chunk = (int)j->r.how.chunk};
    return KVF_OK;
}

/* ---- input */

static int open_data(struct job *j, struct kvf_diag *d)
{
    struct documents_source from = {j->data.item, j->data.n, (int)j->docs, (uint64_t)j->seed};
    int err = model_open(j->r.model, &j->r.how, &j->r.engine, d);
    j->text.length = (int)(j->prompt + j->score + 1);
    if (!err)
        err = documents_choose(j->r.engine->tokenizer, &from, &j->text, d);
    if (err)
        return err;
    j->effect.prompt = (int)j->prompt;
    j->steps = (int)j->score;
    j->n_docs = (int)j->docs;
    j->ids = MEM_NEW(const int32_t *, (size_t)j->n_docs);
    for (int i = 0; j->ids && i < j->n_docs; i++)
        j->ids[i] = j->text.doc[i].ids;
    return j->ids ? KVF_OK : KVF_E_NOMEM;
}

static int open_prompt(struct job *j, struct kvf_diag *d)
{
    int err = runner_open(&j->r, d);
    if (err)
        return err;
    j->effect.prompt = j->r.prompt.n_ids;
    j->own = MEM_NEW(int32_t, (size_t)j->r.prompt.n_ids + (size_t)j->score + 1);
    j->ids = MEM_NEW(const int32_t *, 1);
    if (!j->own || !j->ids)
        return KVF_E_NOMEM;
    memcpy(j->own, j->r.prompt.ids, (size_t)j->r.prompt.n_ids * sizeof *j->own);
    j->ids[0] = j->own;
    j->n_docs = 1;
    return KVF_OK;
}

static int open_all(struct job *j, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < j->data.n; i++)
        err = file_keep(j->out, j->data.item[i], d);
    if (!err)
        err = j->data.n ? open_data(j, d) : open_prompt(j, d);
    if (err)
        return err;
    j->effect.engine = j->r.engine;
    int64_t need = j->effect.prompt + j->score, limit = j->r.engine->config.n_ctx_max;
    if (need > limit)
        return kvf_fail(d, KVF_E_LIMIT,
                        "a prompt of %d tokens and %d steps do not fit into the "
                        "model's context of %d",
                        j->effect.prompt, (int)j->score, (int)limit);
    return j->out ? runner_output(&j->r, j->out, d) : KVF_OK;
}

/* ---- cells */

static int alloc_cells(struct job *j)
{
    j->cell = MEM_NEW(struct effect_cell, (size_t)j->n);
    j->row = MEM_NEW(struct effect_row, (size_t)j->n);
    return j->cell && j->row ? KVF_OK : KVF_E_NOMEM;
}

/* Initialises cell k, which limits heads to sinks and recent entries, and returns its mask. The
 * caller marks the heads in it. */
static unsigned char *limited_cell(struct job *j, int k, size_t width)
{
    unsigned char *mask = j->mask + (size_t)k * width;
    j->cell[k] = (struct effect_cell){
        .heads = mask, .sinks = (int)j->sinks, .recent = (int)j->recent};
    return mask;
}

/* Makes a cell for each head of the set, in which this head, or every other head, is limited.  The
 * last cell limits the complete set, or all heads, for comparison. */
static int head_cells(struct job *j)
{
    const struct model_config *m = &j->r.engine->config;
    int H = m->n_kv_heads, all = m->n_layers * H, k = 0;
    size_t width = (size_t)all;
    for (int i = 0; i < all; i++)
        j->n += j->take[i];
    j->n++;
    int err = alloc_cells(j);
    if (!err) {
        j->mask = mem_alloc((size_t)j->n, width);
        err = j->mask ? KVF_OK : KVF_E_NOMEM;
    }
    for (int i = 0; !err && i < all; i++) {
        if (!j->take[i])
            continue;
        unsigned char *mask = limited_cell(j, k, width);
        memset(mask, j->mirror, width);
        mask[i] = !j->mirror;
        j->row[k] = (struct effect_row){.layer = i / H, .head = i % H};
        snprintf(j->row[k].name, sizeof j->row[k].name, "L%dK%d", i / H, i % H);
        k++;
    }
    if (err)
        return err;
    unsigned char *mask = limited_cell(j, k, width);
    for (int i = 0; i < all; i++)
        mask[i] = j->mirror || j->take[i];
    j->row[k] = (struct effect_row){-1, -1, "all", 0, 0};
    return KVF_OK;
}

static int entry_cells(struct job *j, struct kvf_diag *d)
{
    struct entries_prompt p = {j->effect.prompt, (int)j->sinks, (int)j->recent, (uint64_t)j->seed};
    int err = entries_parse(j->entries, &p, &j->removed, &j->n_removed, d);
    j->n = j->each ? j->n_removed : 1;
    if (!err)
        err = alloc_cells(j);
    for (int i = 0; !err && i < j->n; i++) {
        int n = j->each ? 1 : j->n_removed;
        j->cell[i] = (struct effect_cell){.heads = j->take, .gone = j->removed + i, .n_gone = n};
        j->row[i] = (struct effect_row){-1, -1, "", j->removed[i], n};
        if (j->each)
            snprintf(j->row[i].name, sizeof j->row[i].name, "%d", (int)j->removed[i]);
        else
            snprintf(j->row[i].name, sizeof j->row[i].name, "%.60s", j->entries);
    }
    return err;
}

/* ---- measurement */

static void on_progress(void *ctx, int tokens)
{
    struct job *j = ctx;
    j->done += tokens;
    progress_update(&j->bar, j->done);
}

/* The continuation of the prompt sets the number of steps. */
static int continue_prompt(struct job *j, struct effect_run *run, struct kvf_diag *d)
{
    int n, err = effect_continue(run, j->own, j->r.ignore_eos, &n);
    if (!err && n < 2)
        err = kvf_fail(d, KVF_E_LIMIT,
                       "the model ends its answer at once, so that there is no token to measure; "
                       "--ignore-eos continues");
    if (!err)
        j->steps = n - 1;
    return err;
}

static struct effect_step *steps_of(const struct job *j, int doc, int cell)
{
    return j->step + ((size_t)doc * (size_t)j->n + (size_t)cell) * (size_t)j->steps;
}

/* Measures cells from .. to - 1 on a document. */
static int measure_cells(struct job *j, int doc, int from, int to, struct kvf_diag *d)
{
    struct effect_run *run = NULL;
    int err = effect_open(&j->effect, j->ids[doc], &run, d);
    if (!err && j->own)
        err = continue_prompt(j, run, d);
    if (!err && !j->step) {
        j->step = mem_alloc((size_t)j->n_docs * (size_t)j->n, (size_t)j->steps * sizeof *j->step);
        err = j->step ? KVF_OK : KVF_E_NOMEM;
    }
    if (!err && to > from)
        err = effect_measure(run, j->steps, j->cell + from, to - from, steps_of(j, doc, from),
                             &j->memory, d);
    effect_close(run);
    return err;
}

/* Distributes documents over the MPI ranks, or parts of their cells if there are more ranks than
 * documents.  Then every rank receives all results. */
static int measure_all(struct job *j, struct kvf_diag *d)
{
    int ranks = crew_size(j->crew), parts = (ranks + j->n_docs - 1) / j->n_docs, err = KVF_OK;
    for (int share = 0; !err && share < 2; share++)
        for (int i = 0; !err && i < j->n_docs * parts; i++) {
            int doc = i / parts, part = i % parts;
            int from = (int)((int64_t)j->n * part / parts);
            int to = (int)((int64_t)j->n * (part + 1) / parts);
            size_t bytes = (size_t)(to - from) * (size_t)j->steps * sizeof *j->step;
            if (share)
                err = crew_broadcast(j->crew, i % ranks, steps_of(j, doc, from), bytes, d);
            else if (i % ranks == crew_rank(j->crew))
                err = measure_cells(j, doc, from, to, d);
        }
    return err;
}

static int measure(struct job *j, struct kvf_diag *d)
{
    clock_t c0 = clock();
    double t0 = clock_seconds();
    j->effect.progress = on_progress;
    j->effect.ctx = j;
    int64_t tokens = j->effect.prompt + effect_tokens(j->n, (int)j->score)
                     + (j->own ? j->score : 0);
    progress_start(&j->bar, "effect", "tok", crew_size(j->crew) > 1 ? 0 : j->n_docs * tokens);
    int err = measure_all(j, d);
    progress_end(&j->bar, j->done);
    j->seconds = clock_seconds() - t0;
    j->cpu = (double)(clock() - c0) / CLOCKS_PER_SEC;
    return err;
}

/* ---- output */

static void add_meta(const struct job *j, struct table *t)
{
    table_meta_str(t, "continuation", j->own ? "greedy" : "document");
    table_meta_str(t, "heads", j->heads ? j->heads : "all");
    if (j->entries) {
        table_meta_str(t, "removed", j->entries);
        table_meta_num(t, "removed_entries", j->n_removed);
    } else {
        table_meta_str(t, "held",
                       j->mirror ? "all heads but the one of the row"
                                 : "the head of the row alone");
    }
    if (!j->entries || strncmp(j->entries, "class=", 6) == 0) {
        table_meta_num(t, "sinks", (double)j->sinks);
        table_meta_num(t, "recent", (double)j->recent);
    }
    table_meta_num(t, "seed", (double)j->seed);
}

/* Sorts heads by effect, largest first; with --mirror by the KL that their cache saves.  Ties keep
 * their order. */
struct place {
    double kl; /* negated with --mirror */
    int row;
};

static int by_kl(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->kl != y->kl ? (x->kl < y->kl) - (x->kl > y->kl) : x->row - y->row;
}

static void print_row(const struct job *j, const struct table *t, int row)
{
    static const char *const name[] = {"kl", "kl_low", "kl_high", "kl_max", "dnll", "top1_agree"};
    double v[6];
    for (int c = 0; c < 6; c++)
        v[c] = table_real(t, table_find(t, name[c]), row);
    printf("%-12s %9.6f  %9.6f .. %9.6f  %9.6f  %+9.6f  %5.1f%%", j->row[row].name, v[0], v[1],
           v[2], v[3], v[4], 100 * v[5]);
    const char *text = j->entries ? table_str(t, table_find(t, "text"), row) : "";
    printf("%s%s\n", *text ? "  " : "", text);
}

static int summary(const struct job *j, const struct table *t)
{
    struct place *p = MEM_NEW(struct place, (size_t)j->n);
    /* the row "all" is the last row and is not sorted */
    int kl = table_find(t, "kl"), n = j->entries ? j->n : j->n - 1;
    if (!p)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++)
        p[i] = (struct place){(j->mirror ? -1 : 1) * table_real(t, kl, i), i};
    qsort(p, (size_t)n, sizeof *p, by_kl);
    printf("%d document%s, prompt of %d tokens, %d steps; nats per step\n", j->n_docs,
           j->n_docs > 1 ? "s" : "", j->effect.prompt, j->steps);
    if (j->entries)
        printf("without %s%s\n", j->each ? "each of " : "", j->entries);
    else
        printf("%s limited to the first %d and the newest %d entries\n",
               j->mirror ? "all heads but this one" : "this head", (int)j->sinks, (int)j->recent);
    printf("%-12s %9s  %-23s  %9s  %9s  %6s\n", j->entries ? "entries" : "head", "KL", "  95 %",
           "most", "delta NLL", "top-1");
    for (int i = 0; i < n && i < TOP; i++)
        print_row(j, t, p[i].row);
    if (n > TOP)
        printf("... and %d more\n", n - TOP);
    if (n < j->n)
        print_row(j, t, n);
    mem_free(p);
    return KVF_OK;
}

static void report_cost(const struct job *j)
{
    const struct effect_memory *m = &j->memory;
    double mib = (double)m->page_bytes / (1 << 20);
    fprintf(stderr,
            "%d fork%s, %.1f s, %.1f s of CPU time; pages of the caches %.1f MiB, %.1f MiB without "
            "sharing\n",
            j->n * j->n_docs, j->n * j->n_docs > 1 ? "s" : "", j->seconds, j->cpu,
            mib * (double)m->pages, mib * (double)m->pages_unshared);
}

static int deliver(const struct job *j, struct kvf_diag *d)
{
    struct effect_result r = {&j->effect,         j->row,  j->n,  j->n_docs, j->steps,
                              j->entries != NULL, j->step, j->ids};
    struct table *rows = effect_table(&r), *steps = j->per_token ? effect_table_steps(&r) : NULL;
    struct table *t = j->per_token ? steps : rows;
    const struct output o = {j->out, j->json, &j->look, NULL};
    int err = rows && t ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        add_meta(j, t);
        err = table_err(t);
    }
    if (!err)
        err = output_table(&o, t, d);
    if (!err && output_summary(&o))
        err = summary(j, rows);
    if (!err)
        report_cost(j);
    table_destroy(rows);
    table_destroy(steps);
    return err;
}

static int run(struct job *j, struct kvf_diag *d)
{
    int err = crew_join_steps(&j->crew, d);
    if (!err)
        err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = model_heads(&j->r.engine->config, j->heads ? j->heads : "L*K*", &j->take, d);
    if (!err)
        err = j->entries ? entry_cells(j, d) : head_cells(j);
    if (!err)
        err = measure(j, d);
    if (err)
        crew_fail(j->crew);
    return err || !crew_is_first(j->crew) ? err : deliver(j, d);
}

static void finish(struct job *j)
{
    documents_finish(&j->text);
    runner_close(&j->r);
    mem_free(j->own);
    mem_free(j->ids);
    mem_free(j->take);
    mem_free(j->mask);
    mem_free(j->removed);
    mem_free(j->cell);
    mem_free(j->row);
    mem_free(j->step);
    crew_leave(j->crew);
}

static const struct opt options[] = {
    {OPT_LIST, 0, "data", offsetof(struct job, data), "FILE",
     "documents instead of a prompt; several may follow"},
    {OPT_INT, 0, "docs", offsetof(struct job, docs), "N", "documents", .absent = "4", .min = 1,
     .max = 1 << 20},
    {OPT_INT, 0, "prompt-tokens", offsetof(struct job, prompt), "P",
     "tokens of a document's prompt", .absent = "512", .min = 1, .max = 1 << 24},
    {OPT_INT, 0, "score-tokens", offsetof(struct job, score), "S", "steps after the prompt", "64",
     .min = 1, .max = 1 << 24},
    {OPT_STR, 0, "head", offsetof(struct job, heads), "SET", "KV heads: L0-5K*, L3K1, 3.1",
     .absent = "all"},
    {OPT_INT, 0, "recent", offsetof(struct job, recent), "W", "newest entries that a head keeps",
     "-1", .absent = "64", .min = 1, .max = 1 << 24},
    {OPT_INT, 0, "sinks", offsetof(struct job, sinks), "K", "first entries that a head keeps", "-1",
     .absent = "4", .max = 1 << 24},
    {OPT_FLAG, 0, "mirror", offsetof(struct job, mirror), NULL,
     "limit all heads except the head of the row"},
    {OPT_STR, 0, "entries", offsetof(struct job, entries), "FILTER",
     "remove entries: span=A:B, class=sink|recent|middle or random:N"},
    {OPT_FLAG, 0, "each", offsetof(struct job, each), NULL, "one row for each such entry"},
    {OPT_FLAG, 0, "per-token", offsetof(struct job, per_token), NULL, "a row for every step"},
    {OPT_INT, 's', "seed", offsetof(struct job, seed), "S", "seed of documents and of random:N",
     "0", .max = 9e15},
    {OPT_FLAG, 0, "ignore-eos", offsetof(struct job, r.ignore_eos), NULL,
     "do not stop at the end token"},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_GROUP, 0, "execution", offsetof(struct job, r.how), .group = execution_options},
    {OPT_GROUP, 0, "prompt", offsetof(struct job, r), .group = runner_prompt_options},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_effect(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = files_of_data(&j->data, operand, n, &d);
    if (!err)
        err = engine_error(j->r.engine, run(j, &d), &d);
    finish(j);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"1", "It failed: a file could not be read or written, the prompt does not fit into the "
          "model's context, or the answer ended at once."},
    {NULL, NULL},
};

const struct command command_effect = {
    .name = "effect",
    .group = "quality",
    .summary = "ablation: how predictions degrade without some cache entries",
    .example = "kvfate ablate -p 'Why is the sky blue?' --recent 8 --score-tokens 16 -o effect.png",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE | --data FILE...)",
    .operands = {NULL, "file", 0, -1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_effect,
};
