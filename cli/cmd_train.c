/* cmd_train.c - gates for a frozen model, from text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvf/version.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stage.h"
#include "cli/commands.h"
#include "cli/crew.h"
#include "cli/files.h"
#include "cli/folders.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/runner.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "cli/train_check.h"
#include "cli/train_files.h"
#include "cli/watcher.h"
#include "engine/device/devices.h"
#include "engine/train/recipe.h"

/* Defaults. */
#define CHECK_EVERY 100
#define CHECK_DOCS 4
#define BUDGETS "64,128"
#define TEACHER_LIMIT 4294967296

/* In the order of enum packing. */
static const char *const packing_words[] = {"run", "documents", NULL};

struct job {
    /* options */
    const char *model, *method, *out, *state_path, *budgets;
    struct opt_list data;
    int packing; /* of packing_words */
    struct execution how;
    int64_t steps, warmup, length, seed, save_every, check_every, check_docs, patience;
    int64_t teacher_limit;
    double share;
    bool json, f32, recompute, fresh, settings, keep_teacher;

    struct crew *crew;
    struct trainer_team team;
    struct recipe recipe;
    struct engine *engine;
    struct packs *packs;
    struct trainer *trainer;
    struct train_check *check; /* NULL: none */
    struct train_files files;
    struct buf config, log;
    struct buf tokens_name;              /* folder of the cache of token ids; empty: none */
    struct buf teacher_name, teacher_of; /* folder of the teacher's states; what they depend on */
    struct teacher_states teacher;
    bool warned; /* that no more of them are kept */
    struct progress bar;
    struct stage stage;            /* what the trainer does: it is made, or a step */
    double best;                   /* least mean KL of a check */
    int64_t best_step, stale;      /* checks since */
    int64_t saved;                 /* the step of the checkpoint, -1: none */
    int64_t tokens;                /* of this run */
    double seconds, first_seconds; /* of its steps, and of the first of them */
};

static int list_settings(void)
{
    const char *name, *help;
    printf("%-12s %s\n", "variant", "paper or code: the published values of several settings");
    for (int i = 0; recipe_key(i, &name, &help); i++)
        printf("%-12s %s\n", name, help);
    return EXIT_OK;
}

static int share(void *ctx, int owner, void *data, size_t bytes, struct kvf_diag *d)
{
    return crew_share(ctx, owner, data, bytes, d);
}

/* Ranks that share a training do packs of the same step. */
static int check_team(struct job *j, struct kvf_diag *d)
{
    struct trainer_options *o = &j->recipe.opt;
    int n = crew_size(j->crew);
    if (n == 1)
        return KVF_OK;
    if (o->accumulate < n)
        return kvf_fail(d, KVF_E_ARG,
                        "%d processes share the packs of a step, and a step has %d: give --method "
                        "%s:accumulate=N with N at least %d, a multiple for equal shares",
                        n, o->accumulate, j->recipe.name, n);
    j->team = (struct trainer_team){crew_rank(j->crew), n, share, j->crew};
    o->team = &j->team;
    return KVF_OK;
}

/* Options that have no effect beside the others. */
static int check_idle(const struct job *j, struct kvf_diag *d)
{
    const char *why = j->check_every ? "with --share 1, which leaves no text to check on"
                                     : "with --check-every 0";
    bool checks = j->check_every > 0 && j->share < 1;
    const struct idle list[] = {
        {j->check_every && j->check_every != CHECK_EVERY && !checks, "--check-every", why},
        {j->check_docs != CHECK_DOCS && !checks, "--check-docs", why},
        {strcmp(j->budgets, BUDGETS) != 0 && !checks, "--budgets", why},
        {j->patience && !checks, "--patience", why},
        {j->teacher_limit != TEACHER_LIMIT && !j->keep_teacher, "--teacher-limit",
         "without --keep-teacher"}};
    return IDLE_CHECK(list, d);
}

static int check_options(struct job *j, struct kvf_diag *d)
{
    if (j->data.n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "no --data FILE: text, or JSONL with \"text\" or "
                        "\"question\" and \"answer\"");
    if (!j->out)
        return kvf_fail(d, KVF_E_ARG, "no -o GATES.safetensors");
    int err = check_idle(j, d);
    if (!err)
        err = recipe_parse(j->method, &j->recipe, d);
    if (err)
        return err;
    struct trainer_options *o = &j->recipe.opt;
    o->optimizer.steps = j->steps;
    o->optimizer.warmup = j->warmup >= 0 ? j->warmup : j->steps / 20;
    o->length = (int)j->length;
    o->seed = (uint64_t)j->seed;
    o->pass.recompute = j->recompute;
    o->pass.watch = stage_see;
    o->pass.watch_ctx = &j->stage;
    err = check_team(j, d);
    if (err)
        return err;
    err = train_files_name(&j->files, j->out, j->state_path, &j->data, d);
    return err || !crew_is_first(j->crew) ? err : train_files_try(&j->files, d);
}

static int open_data(struct job *j, double from, double to, struct packs **ret, struct kvf_diag *d)
{
    struct packs_source source = {
        j->data.item, j->data.n, j->recipe.opt.length, (enum packing)j->packing,
        from,         to,        j->tokens_name.data};
    return packs_open(j->engine->tokenizer, &source, ret, d);
}

/* All that the bytes of the result depend on. */
static int put_config(struct job *j)
{
    struct buf *b = &j->config;
    buf_printf(b,
               "{\"version\": \"%s\", \"method\": \"%s\", \"model\": \"%s\", \"model_hash\": "
               "\"%s\", ",
               kvf_version(), j->recipe.name, j->engine->config.name, j->engine->hash);
    recipe_put(b, &j->recipe);
    buf_printf(b,
               ", \"steps\": %" PRId64 ", \"warmup\": %" PRId64 ", \"length\": %" PRId64
               ", \"seed\": %" PRId64 ", \"packing\": \"%s\", \"share\": ",
               j->steps, j->recipe.opt.optimizer.warmup, j->length, j->seed,
               packing_words[j->packing]);
    json_put_num(b, j->share);
    const char *device = model_learner_word(&j->recipe.opt.learner);
    if (device)
        buf_printf(b, ", \"computed\": \"%s\"", device);
    buf_printf(
        b, ", \"data_packs\": %d, \"data_tokens\": %" PRId64 ", \"data_hash\": \"%016" PRIx64 "\"}",
        packs_count(j->packs), packs_tokens(j->packs), packs_hash(j->packs));
    return b->err;
}

/* The states' bits are those of one instruction set and one version of the program. */
static int keep_teacher(struct job *j, struct kvf_diag *d)
{
    if (folder_cache_make("teacher", &j->teacher_name) != KVF_OK
        || access(j->teacher_name.data, W_OK | X_OK) != 0)
        return kvf_fail(d, KVF_E_IO, "--keep-teacher: no folder to keep it in; set KVFATE_CACHE");
    const char *device = model_learner_word(&j->recipe.opt.learner);
    buf_printf(&j->teacher_of, "%s %s ", kvf_version(), j->engine->hash);
    if (device)
        buf_str(&j->teacher_of, device);
    else
        buf_printf(&j->teacher_of, "%x", cpu_flags_detect());
    j->teacher = (struct teacher_states){
        .folder = j->teacher_name.data, .model = j->teacher_of.data, .limit = j->teacher_limit};
    j->recipe.opt.pass.kept = &j->teacher;
    return j->teacher_of.err;
}

static int open_all(struct job *j, struct kvf_diag *d)
{
    int err = model_learner(&j->how, &j->recipe.opt.learner, d);
    if (!err)
        err = model_open(j->model, &j->how, &j->engine, d);
    if (!err)
        err = train_files_keep(&j->files, gguf_path(j->engine->gguf), d);
    if (!err && j->length > j->engine->config.n_ctx_most)
        err = kvf_fail(d, KVF_E_ARG, "--length %" PRId64 " is more than the model's context of %d",
                       j->length, j->engine->config.n_ctx_most);
    if (err)
        return err;
    if (folder_cache_make("tokens", &j->tokens_name) != KVF_OK)
        buf_finish(&j->tokens_name);
    if (j->keep_teacher)
        err = keep_teacher(j, d);
    if (!err)
        err = open_data(j, 0, j->share, &j->packs, d);
    if (!err)
        err = put_config(j);
    struct watcher w = watcher_count("prepare", "models");
    w.of = 1;
    j->stage = (struct stage){watcher_within, &w, 0, 1};
    if (!err)
        err = trainer_create(j->engine, j->packs, &j->recipe.opt, &j->trainer, d);
    watcher_end(&w);
    j->stage = (struct stage){progress_within, &j->bar, 0, 1};
    if (!err && j->check_every > 0 && j->share < 1 && crew_is_first(j->crew)) {
        struct train_check_options o = {j->model,           j->how.pre,          &j->data,
                                        j->share,           j->budgets,          j->recipe.name,
                                        (int)j->check_docs, (int)j->how.threads, (uint64_t)j->seed,
                                        j->tokens_name.data};
        err = train_check_open(&o, &j->check, d);
    }
    return err;
}

/* ---- the record ---- */

static void put_loss(struct job *j, const struct trainer_step *s)
{
    static const char *const name[] = {"fwkl", "rvkl", "ntp", "mse"};
    struct buf *b = &j->log;
    buf_printf(b, "{\"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"loss\": ", s->step,
               s->tokens);
    json_put_num(b, s->loss.total);
    for (int i = 0; i < QUALITY_TERMS; i++)
        if (j->recipe.opt.pass.quality[i] > 0) {
            buf_printf(b, ", \"%s\": ", name[i]);
            json_put_num(b, s->loss.term[i]);
        }
    buf_str(b, ", \"limit\": ");
    json_put_num(b, s->loss.limit);
    buf_str(b, ", \"value\": ");
    json_put_num(b, s->loss.value);
    buf_str(b, ", \"lr\": ");
    json_put_num(b, s->rate);
    buf_str(b, ", \"norm\": ");
    json_put_num(b, s->norm);
    buf_str(b, "}\n");
}

/* The gates so far, with how they came about. */
static int write_gates(struct job *j, const char *path, struct kvf_diag *d)
{
    struct buf record = {0};
    buf_printf(&record, "%.*s, \"steps_done\": %" PRId64 "}", (int)j->config.len - 1,
               j->config.data, trainer_steps(j->trainer));
    int err = record.err
                  ? record.err
                  : trainer_write_gates(j->trainer, path, !j->f32, j->engine->hash, record.data, d);
    buf_finish(&record);
    return err;
}

/* The checkpoint comes last: a run that is taken up from it finds everything else written, and
 * one that was stopped before it does the steps again, with the same result. */
static int save(struct job *j, struct kvf_diag *d)
{
    int err = j->log.err;
    if (!err && !j->check)
        err = write_gates(j, j->out, d);
    if (!err)
        err = train_files_record(&j->files, &j->log, d);
    if (!err)
        err = trainer_save(j->trainer, j->files.state.data, j->config.data,
                           j->log.data ? j->log.data : "", d);
    j->saved = trainer_steps(j->trainer);
    return err;
}

/* ---- checks: the method's own KL at budgets, on text that is not trained on ---- */

/* The best check of a record that is taken up again. */
static void find_best(struct job *j)
{
    const char *line = j->log.data;
    while (line && *line) {
        const char *end = strchr(line, '\n');
        struct json *row;
        struct kvf_diag unused;
        if (!end)
            break;
        if (strncmp(line, "{\"check\"", 8) == 0
            && json_parse(line, (size_t)(end - line), &row, &unused) == KVF_OK) {
            double kl = json_num(json_get(row, "mean_kl"), INFINITY);
            j->stale = kl < j->best ? 0 : j->stale + 1;
            j->best_step = kl < j->best ? json_int(json_get(row, "check"), 0) : j->best_step;
            j->best = fmin(kl, j->best);
            json_free(row);
        }
        line = end + 1;
    }
}

/* Gates are written when they are the best so far; without checks: always. */
static int check(struct job *j, struct kvf_diag *d)
{
    struct train_check_result r;
    struct buf probe = {0};
    buf_printf(&probe, "%s.try", j->out);
    int err = probe.err ? probe.err : write_gates(j, probe.data, d);
    if (!err)
        err = train_check_run(j->check, probe.data, &r, d);
    if (probe.data)
        remove(probe.data);
    buf_finish(&probe);
    if (err)
        return err;
    buf_printf(&j->log, "{\"check\": %" PRId64, trainer_steps(j->trainer));
    for (int i = 0; i < r.n; i++) {
        buf_printf(&j->log, ", \"kl_%d\": ", r.budget[i]);
        json_put_num(&j->log, r.kl[i]);
    }
    buf_str(&j->log, ", \"mean_kl\": ");
    json_put_num(&j->log, r.mean_kl);
    buf_str(&j->log, "}\n");
    if (r.mean_kl < j->best) {
        j->best = r.mean_kl;
        j->best_step = trainer_steps(j->trainer);
        j->stale = 0;
        return write_gates(j, j->out, d);
    }
    j->stale++;
    return KVF_OK;
}

static int resume(struct job *j, struct kvf_diag *d)
{
    char *log = NULL;
    int found = 0;
    if (j->fresh)
        return KVF_OK;
    int err = trainer_resume(j->trainer, j->files.state.data, j->config.data, &log, &found, d);
    if (!found && err == KVF_E_IO) {
        d->text[0] = 0; /* there is none to go on from */
        return KVF_OK;
    }
    if (!err && log)
        buf_str(&j->log, log);
    mem_free(log);
    if (err)
        return err;
    find_best(j);
    j->saved = trainer_steps(j->trainer);
    struct stat s;
    if (j->check && j->best_step > 0 && stat(j->out, &s) != 0)
        return kvf_fail(d, KVF_E_IO,
                        "%s: the best gates so far (step %" PRId64 ") are not there; "
                        "put them back, or --fresh",
                        j->out, j->best_step);
    return KVF_OK;
}

/* All ranks go on from the same step of the same parameters; when this returns, all have read. */
static int resume_together(struct job *j, struct kvf_diag *d)
{
    int err = resume(j, d);
    for (int rank = 0; !err && rank < crew_size(j->crew); rank++) {
        int64_t step = trainer_steps(j->trainer);
        err = crew_share(j->crew, rank, &step, sizeof step, d);
        if (!err && step != trainer_steps(j->trainer))
            err = kvf_fail(d, KVF_E_IO,
                           "process %d reads another checkpoint (step %" PRId64 ") than this one "
                           "(step %" PRId64 "): all must see the same files",
                           rank, step, trainer_steps(j->trainer));
    }
    return err;
}

static bool done(const struct job *j)
{
    return signals_caught() || trainer_steps(j->trainer) >= j->steps
           || (j->check && j->patience > 0 && j->stale >= j->patience);
}

/* States that cannot be kept cost later trainings time; this one goes on. */
static void warn_teacher(struct job *j)
{
    if (j->warned || !j->teacher.stopped)
        return;
    j->warned = true;
    progress_clear(&j->bar);
    fprintf(stderr, "kvfate train: warning: --keep-teacher keeps no more states in this run: %s\n",
            j->teacher.why.text);
}

/* The first rank says whether there is another step. */
static bool goes_on(struct job *j, int *ret_err, struct kvf_diag *d)
{
    char more = !done(j);
    *ret_err = crew_share(j->crew, 0, &more, sizeof more, d);
    return !*ret_err && more;
}

/* One step and what is due after it. */
static int advance(struct job *j, struct kvf_diag *d)
{
    struct trainer_step s;
    double start = clock_seconds();
    int err = trainer_step(j->trainer, &s, d);
    warn_teacher(j);
    if (err)
        return err;
    double took = clock_seconds() - start;
    j->first_seconds = j->tokens ? j->first_seconds : took;
    j->seconds += took;
    j->tokens += s.tokens;
    put_loss(j, &s);
    if (!crew_is_first(j->crew))
        return KVF_OK;
    bool last = s.step == j->steps;
    if (j->check && (s.step % j->check_every == 0 || last))
        err = check(j, d);
    if (!err && s.step % j->save_every == 0)
        err = save(j, d);
    progress_update(&j->bar, s.step);
    return err ? err : j->log.err;
}

static void summary(const struct job *j)
{
    double rate = j->seconds > 0 ? (double)j->tokens / j->seconds : 0;
    if (j->json) {
        printf("{\"steps\": %" PRId64 ", \"tokens\": %" PRId64 ", \"seconds\": %.3f, "
               "\"first_step_seconds\": %.3f, \"tokens_per_second\": %.1f, \"parameters\": %zu, "
               "\"activation_bytes\": %zu, "
               "\"best_step\": %" PRId64 ", \"best_kl\": ",
               trainer_steps(j->trainer), j->tokens, j->seconds, j->first_seconds, rate,
               trainer_parameters(j->trainer), trainer_bytes(j->trainer), j->best_step);
        if (isfinite(j->best))
            printf("%.9g}\n", j->best);
        else
            printf("null}\n");
        return;
    }
    printf("%s: step %" PRId64 " of %" PRId64 "; %" PRId64 " tokens at %.0f per second; %zu "
           "parameters\n",
           shown_name(j->out).text, trainer_steps(j->trainer), j->steps, j->tokens, rate,
           trainer_parameters(j->trainer));
    if (j->check && isfinite(j->best))
        printf("least KL at the budgets checked: %.4f nats per token, step %" PRId64 "\n", j->best,
               j->best_step);
}

static int run(struct job *j, struct kvf_diag *d)
{
    int err = crew_join_steps(&j->crew, d);
    if (!err)
        err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = resume_together(j, d);
    if (err)
        return err;
    signals_catch();
    progress_start(&j->bar, "train", "steps", j->steps);
    progress_from(&j->bar, trainer_steps(j->trainer));
    while (!err && goes_on(j, &err, d))
        err = advance(j, d);
    /* Without checks the gates are those of the last step, whatever a stopped run has left there.
     */
    bool first = crew_is_first(j->crew);
    if (!err && first && (j->saved != trainer_steps(j->trainer) || !j->check))
        err = save(j, d);
    progress_end(&j->bar, trainer_steps(j->trainer));
    if (!err && first && signals_caught())
        fprintf(stderr,
                "kvfate train: interrupted after step %" PRId64 "; the same command goes "
                "on\n",
                trainer_steps(j->trainer));
    if (!err && first)
        summary(j);
    return err;
}

static void finish(struct job *j)
{
    train_check_close(j->check);
    trainer_destroy(j->trainer);
    packs_close(j->packs);
    engine_close(j->engine);
    buf_finish(&j->config);
    buf_finish(&j->log);
    train_files_finish(&j->files);
    buf_finish(&j->tokens_name);
    buf_finish(&j->teacher_name);
    buf_finish(&j->teacher_of);
    crew_leave(j->crew);
}

static const struct opt options[] = {
    {OPT_STR, 'm', "model", offsetof(struct job, model), "FILE", "model: a GGUF file or a folder",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_LIST, 0, "data", offsetof(struct job, data), "FILE", "text, or JSONL; several may follow"},
    {OPT_STR, 0, "method", offsetof(struct job, method), "M:k=v,...", "trimkv, dbtrimkv or wgkv",
     "trimkv"},
    {OPT_FLAG, 0, "settings", offsetof(struct job, settings), NULL,
     "list the keys of --method and stop"},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "GATES.safetensors", "the gate file"},
    {OPT_FLAG, 0, "f32", offsetof(struct job, f32), NULL, "gates in f32 instead of bf16"},
    {OPT_INT, 0, "steps", offsetof(struct job, steps), "N", "steps of the optimizer", "1000",
     .min = 1, .max = 1 << 30},
    {OPT_INT, 0, "warmup", offsetof(struct job, warmup), "N", "steps to the full rate", "-1",
     .absent = "a 20th", .max = 1 << 30},
    {OPT_INT, 0, "length", offsetof(struct job, length), "T", "tokens of a pack", "512", .min = 2,
     .max = 1 << 20},
    {OPT_WORD, 0, "packing", offsetof(struct job, packing), "P",
     "run: documents follow each other; documents: they do not see each other", "run",
     .words = packing_words},
    {OPT_REAL, 0, "share", offsetof(struct job, share), "S",
     "train on this share of each file, check on the rest", "0.9", .min = 0.01, .max = 1},
    {OPT_INT, 0, "check-every", offsetof(struct job, check_every), "N",
     "steps between checks; 0: none", OPT_TEXT(CHECK_EVERY), .max = 1 << 30},
    {OPT_INT, 0, "check-docs", offsetof(struct job, check_docs), "N", "documents of a check",
     OPT_TEXT(CHECK_DOCS), .min = 1, .max = 1 << 20},
    {OPT_STR, 0, "budgets", offsetof(struct job, budgets), "N,...", "budgets of a check", BUDGETS},
    {OPT_INT, 0, "patience", offsetof(struct job, patience), "N",
     "stop after N checks without a better one; 0: never", "0", .max = 1 << 30},
    {OPT_STR, 0, "state", offsetof(struct job, state_path), "FILE", "the checkpoint",
     .absent = "GATES.state"},
    {OPT_INT, 0, "save-every", offsetof(struct job, save_every), "N", "steps between checkpoints",
     "20", .min = 1, .max = 1 << 30},
    {OPT_FLAG, 0, "fresh", offsetof(struct job, fresh), NULL,
     "start anew although there is a checkpoint"},
    {OPT_FLAG, 0, "recompute", offsetof(struct job, recompute), NULL,
     "an eighth of the memory for a fifth more time"},
    {OPT_FLAG, 0, "keep-teacher", offsetof(struct job, keep_teacher), NULL,
     "keep the teacher's states in the cache folder, for other trainings on the same packs"},
    {OPT_INT, 0, "teacher-limit", offsetof(struct job, teacher_limit), "BYTES",
     "keep no more when that folder holds as much", OPT_TEXT(TEACHER_LIMIT), .max = 9e15},
    {OPT_INT, 's', "seed", offsetof(struct job, seed), "S", "order of the data", "0", .max = 9e15},
    {OPT_GROUP, 0, "execution", offsetof(struct job, how), .group = learner_options},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL, "one JSON object at the end"},
    {.type = OPT_END},
};

static int cmd_train(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    j->best = INFINITY;
    j->saved = -1;
    struct kvf_diag d = {""};
    if (j->settings)
        return list_settings();
    int err = files_of_data(&j->data, operand, n, &d);
    if (!err)
        err = run(j, &d);
    if (err)
        crew_fail(j->crew);
    finish(j);
    return !err && signals_caught() ? 128 + signals_caught() : command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"128 + N", "It was stopped by signal N, and saved; the same command goes on."},
    {NULL, NULL},
};

const struct command command_train = {
    .name = "train",
    .group = "running models",
    .summary = "train gates for a model whose weights stay as they are",
    .example = "kvfate train --data text.txt --method trimkv:lr=1e-3 --length 64 --steps 2 "
               "--check-every 0 -o gates.safetensors",
    .needs = "--data FILE... -o GATES.safetensors",
    .operands = {NULL, "file", 0, OPT_LIST_MAX},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_train,
};
