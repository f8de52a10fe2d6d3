/* cmd_train.c - `kvfate train` trains gates for a model whose weights stay fixed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvf/version.h>

#include "base/json.h"
#include "cli/commands.h"
#include "base/files.h"
#include "cli/folders.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/signals.h"
#include "cli/train_check.h"
#include "cli/training.h"
#include "engine/train/recipe.h"

/* Default values of options. */
#define CHECK_EVERY 100
#define CHECK_DOCS 4
#define TEACHER_LIMIT 4294967296

/* A run of `kvfate train`. */
struct job {
    struct training t;
    /* options */
    const char *method;
    int64_t patience, teacher_limit;
    bool f32, settings, keep_teacher, check_files;

    struct trainer_team team;
    struct recipe recipe;
    struct trainer *trainer;
    struct train_check *check; /* NULL if there are no checks */
    /* folder of the teacher states, and the key of the settings that they depend on */
    struct buf teacher_name, teacher_of;
    struct teacher_states teacher;
    bool warned;       /* the user was warned that no more teacher states are stored */
    double best;       /* minimum mean KL of all checks */
    int64_t best_step; /* step of that check */
    int64_t stale;     /* checks since the best one */
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
    return crew_broadcast(ctx, owner, data, bytes, d);
}

/* Divides the packs of each step between the processes of a crew. */
static int check_team(struct job *j, struct kvf_diag *d)
{
    struct trainer_options *o = &j->recipe.opt;
    int n = crew_size(j->t.crew);
    if (n == 1)
        return KVF_OK;
    if (o->accumulate < n)
        return kvf_fail(d, KVF_E_ARG,
                        "%d processes share the packs of a step, and a step has %d: give --method "
                        "%s:accumulate=N with N at least %d, a multiple for equal shares",
                        n, o->accumulate, j->recipe.name, n);
    j->team = (struct trainer_team){crew_rank(j->t.crew), n, share, j->t.crew};
    o->team = &j->team;
    return KVF_OK;
}

/* Rejects options that have no effect in this combination. */
static int check_idle(const struct job *j, struct kvf_diag *d)
{
    const char *why = j->t.check_every ? "with --share 1, which leaves no text for validation"
                                       : "with --check-every 0";
    bool checks = j->t.check_every > 0 && j->t.share < 1;
    const struct idle list[] = {
        {j->t.check_every && j->t.check_every != CHECK_EVERY && !checks, "--check-every", why},
        {j->t.check_docs != CHECK_DOCS && !checks, "--check-docs", why},
        {j->check_files && !checks, "--check-files", why},
        {strcmp(j->t.budgets, TRAINING_BUDGETS) != 0 && !checks, "--budgets", why},
        {j->patience && !checks, "--patience", why},
        {j->teacher_limit != TEACHER_LIMIT && !j->keep_teacher, "--teacher-limit",
         "without --keep-teacher"}};
    return IDLE_CHECK(list, d);
}

static int check_options(struct job *j, struct kvf_diag *d)
{
    if (j->t.data.n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "no --data FILE: text, or JSONL with \"text\" or "
                        "\"question\" and \"answer\"");
    if (!j->t.out)
        return kvf_fail(d, KVF_E_ARG, "no -o GATES.safetensors");
    int err = check_idle(j, d);
    if (!err)
        err = recipe_parse(j->method, &j->recipe, d);
    if (err)
        return err;
    struct trainer_options *o = &j->recipe.opt;
    o->optimizer.steps = j->t.steps;
    o->optimizer.warmup = training_warmup(&j->t);
    o->length = (int)j->t.length;
    o->seed = (uint64_t)j->t.seed;
    o->pass.recompute = j->t.recompute;
    o->pass.watch = stage_see;
    o->pass.watch_ctx = &j->t.stage;
    j->t.until = j->t.steps;
    err = check_team(j, d);
    return err ? err : training_name_files(&j->t, d);
}

/* Writes every setting that the result depends on. */
static int put_config(struct job *j)
{
    struct buf *b = &j->t.config;
    buf_printf(b,
               "{\"version\": \"%s\", \"method\": \"%s\", \"model\": \"%s\", \"model_hash\": "
               "\"%s\", ",
               kvf_version(), j->recipe.name, j->t.engine->config.name, j->t.engine->hash);
    recipe_put(b, &j->recipe);
    buf_printf(b,
               ", \"steps\": %" PRId64 ", \"warmup\": %" PRId64 ", \"length\": %" PRId64
               ", \"seed\": %" PRId64 ", \"packing\": \"%s\", \"share\": ",
               j->t.steps, j->recipe.opt.optimizer.warmup, j->t.length, j->t.seed,
               training_packing(&j->t));
    json_put_num(b, j->t.share);
    const char *device = model_learner_word(&j->recipe.opt.learner);
    if (device)
        buf_printf(b, ", \"computed\": \"%s\"", device);
    training_put_packs(&j->t);
    buf_char(b, '}');
    return b->err;
}

/* Names the cache of the teacher's states.  Their bits depend on the program's version and on the
 * CPU's instruction set. */
static int keep_teacher(struct job *j, struct kvf_diag *d)
{
    if (folder_cache_make("teacher", &j->teacher_name) != KVF_OK
        || access(j->teacher_name.data, W_OK | X_OK) != 0)
        return kvf_fail(d, KVF_E_IO, "--keep-teacher: no folder to keep it in; set KVFATE_CACHE");
    const char *device = model_learner_word(&j->recipe.opt.learner);
    buf_printf(&j->teacher_of, "%s %s ", kvf_version(), j->t.engine->hash);
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
    int err = training_open(&j->t, &j->recipe.opt.learner, d);
    if (!err && j->keep_teacher)
        err = keep_teacher(j, d);
    if (!err)
        err = training_packs(&j->t, 0, j->t.share, &j->t.packs, d);
    if (!err)
        err = put_config(j);
    j->t.checks = j->t.check_every > 0 && j->t.share < 1 && crew_is_first(j->t.crew);
    if (!err && j->t.checks) {
        struct train_check_options o = {.model = j->t.model,
                                        .pre = j->t.how.pre,
                                        .data = &j->t.data,
                                        .from = j->t.share,
                                        .budgets = j->t.budgets,
                                        .method = j->recipe.name,
                                        .docs = (int)j->t.check_docs,
                                        .threads = (int)j->t.how.threads,
                                        .by_file = j->check_files,
                                        .seed = (uint64_t)j->t.seed,
                                        .cache = j->t.tokens_name.data};
        err = train_check_open(&o, &j->check, d);
    }
    return err;
}

static int create(void *job, struct kvf_diag *d)
{
    struct job *j = job;
    return trainer_create(j->t.engine, j->t.packs, &j->recipe.opt, &j->trainer, d);
}

static int64_t steps_done(const void *job)
{
    return trainer_steps(((const struct job *)job)->trainer);
}

/* ---- the record ---- */

static void put_loss(struct job *j, const struct trainer_step *s)
{
    static const char *const name[] = {"fwkl", "rvkl", "ntp", "mse"};
    struct buf *b = &j->t.log;
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

/* Writes the gates so far, with the settings that made them. */
static int write_gates(struct job *j, const char *path, struct kvf_diag *d)
{
    struct buf record = {0};
    training_put_record(&j->t, steps_done(j), &record);
    int err = record.err ? record.err
                         : trainer_write_gates(j->trainer, path, !j->f32, j->t.engine->hash,
                                               record.data, d);
    buf_finish(&record);
    return err;
}

/* Without checks the result is the gates of the last step. With checks the result is the best
 * gates, which check() writes. */
static int write_last(void *job, struct kvf_diag *d)
{
    struct job *j = job;
    return j->check ? KVF_OK : write_gates(j, j->t.out, d);
}

static int save(const void *job, const char *path, const char *config, const char *log,
                struct kvf_diag *d)
{
    return trainer_save(((const struct job *)job)->trainer, path, config, log, d);
}

static int resume(void *job, const char *path, const char *config, char **ret_log, int *ret_found,
                  struct kvf_diag *d)
{
    return trainer_resume(((struct job *)job)->trainer, path, config, ret_log, ret_found, d);
}

/* ---- checks: KL of the method from the full cache, on validation text ---- */

/* Keeps the best check of a record. */
static void read_check(void *job, const struct json *row)
{
    struct job *j = job;
    double kl = json_num(json_get(row, "mean_kl"), INFINITY);
    j->stale = kl < j->best ? 0 : j->stale + 1;
    j->best_step = kl < j->best ? json_int(json_get(row, "check"), 0) : j->best_step;
    j->best = fmin(kl, j->best);
}

/* Checks the gates, and writes them if they are the best so far. */
static int check(void *job, struct kvf_diag *d)
{
    struct job *j = job;
    struct train_check_result r;
    struct buf probe = {0};
    buf_printf(&probe, "%s.try", j->t.out);
    int err = probe.err ? probe.err : write_gates(j, probe.data, d);
    if (!err)
        err = train_check_run(j->check, probe.data, &r, d);
    if (probe.data)
        remove(probe.data);
    buf_finish(&probe);
    if (err)
        return err;
    buf_printf(&j->t.log, "{\"check\": %" PRId64, trainer_steps(j->trainer));
    for (int i = 0; i < r.n; i++) {
        buf_printf(&j->t.log, ", \"kl_%d\": ", r.budget[i]);
        json_put_num(&j->t.log, r.kl[i]);
    }
    for (int i = 0; i < r.n_files; i++) {
        buf_str(&j->t.log, ", ");
        json_put_str(&j->t.log, r.file[i].key, strlen(r.file[i].key));
        buf_str(&j->t.log, ": ");
        json_put_num(&j->t.log, r.file[i].kl);
    }
    buf_str(&j->t.log, ", \"mean_kl\": ");
    json_put_num(&j->t.log, r.mean_kl);
    buf_str(&j->t.log, "}\n");
    if (r.mean_kl < j->best) {
        j->best = r.mean_kl;
        j->best_step = trainer_steps(j->trainer);
        j->stale = 0;
        return write_gates(j, j->t.out, d);
    }
    j->stale++;
    return KVF_OK;
}

/* Checks that the file of the best gates exists. */
static int find_best(void *job, struct kvf_diag *d)
{
    const struct job *j = job;
    struct stat s;
    if (j->check && j->best_step > 0 && stat(j->t.out, &s) != 0)
        return kvf_fail(d, KVF_E_IO,
                        "%s: the best gates so far (step %" PRId64 ") are not there; "
                        "put them back, or --fresh",
                        j->t.out, j->best_step);
    return KVF_OK;
}

static bool stops(const void *job)
{
    const struct job *j = job;
    return j->check && j->patience > 0 && j->stale >= j->patience;
}

/* Warns once that teacher states are no longer stored.  This run does not need them. */
static void warn_teacher(struct job *j)
{
    if (j->warned || !j->teacher.stopped)
        return;
    j->warned = true;
    progress_clear(&j->t.bar);
    fprintf(stderr, "kvfate train: warning: --keep-teacher keeps no more states in this run: %s\n",
            j->teacher.why.text);
}

static int step(void *job, struct kvf_diag *d)
{
    struct job *j = job;
    struct trainer_step s;
    int err = trainer_step(j->trainer, &s, d);
    warn_teacher(j);
    if (err)
        return err;
    j->t.tokens += s.tokens;
    put_loss(j, &s);
    return KVF_OK;
}

static void summary(const struct job *j)
{
    double rate = j->t.seconds > 0 ? (double)j->t.tokens / j->t.seconds : 0;
    if (j->t.json) {
        printf("{\"steps\": %" PRId64 ", \"tokens\": %" PRId64 ", \"seconds\": %.3f, "
               "\"first_step_seconds\": %.3f, \"tokens_per_second\": %.1f, \"parameters\": %zu, "
               "\"activation_bytes\": %zu, "
               "\"best_step\": %" PRId64 ", \"best_kl\": ",
               trainer_steps(j->trainer), j->t.tokens, j->t.seconds, j->t.first_seconds, rate,
               trainer_parameters(j->trainer), trainer_bytes(j->trainer), j->best_step);
        if (isfinite(j->best))
            printf("%.9g}\n", j->best);
        else
            printf("null}\n");
        return;
    }
    training_summary(&j->t, trainer_steps(j->trainer), trainer_parameters(j->trainer));
    if (j->check && isfinite(j->best))
        printf("least KL at the budgets checked: %.4f nats per token, step %" PRId64 "\n", j->best,
               j->best_step);
}

static const struct training_kind kind = {
    .name = "train",
    .create = create,
    .steps = steps_done,
    .step = step,
    .check = check,
    .stops = stops,
    .write = write_last,
    .early = true,
    .save = save,
    .resume = resume,
    .read_check = read_check,
    .resumed = find_best,
};

static int run(struct job *j, struct kvf_diag *d)
{
    int err = crew_join_steps(&j->t.crew, d);
    if (!err)
        err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = training_run(&j->t, &kind, j, d);
    if (!err && crew_is_first(j->t.crew))
        summary(j);
    return err;
}

static void finish(struct job *j)
{
    train_check_close(j->check);
    trainer_destroy(j->trainer);
    buf_finish(&j->teacher_name);
    buf_finish(&j->teacher_of);
    training_finish(&j->t);
}

static const struct opt options[] = {
    {OPT_STR, 0, "method", offsetof(struct job, method), "M:k=v,...", "trimkv, dbtrimkv or wgkv",
     "trimkv"},
    {OPT_FLAG, 0, "settings", offsetof(struct job, settings), NULL,
     "list the keys of --method and stop"},
    {OPT_STR, 'o', "output", offsetof(struct job, t.out), "GATES.safetensors", "the gate file"},
    {OPT_FLAG, 0, "f32", offsetof(struct job, f32), NULL, "gates in f32 instead of bf16"},
    {OPT_INT, 0, "steps", offsetof(struct job, t.steps), "N", "steps of the optimizer", "1000",
     .min = 1, .max = 1 << 30},
    {OPT_INT, 0, "length", offsetof(struct job, t.length), "T", "tokens of a pack", "512", .min = 2,
     .max = 1 << 20},
    {OPT_INT, 0, "check-every", offsetof(struct job, t.check_every), "N",
     "steps between validations; 0: no validation", OPT_TEXT(CHECK_EVERY), .max = 1 << 30},
    {OPT_INT, 0, "check-docs", offsetof(struct job, t.check_docs), "N", "documents of a check",
     OPT_TEXT(CHECK_DOCS), .min = 1, .max = 1 << 20},
    {OPT_FLAG, 0, "check-files", offsetof(struct job, check_files), NULL,
     "check --check-docs documents of each file, and record the KL of each file"},
    {OPT_INT, 0, "patience", offsetof(struct job, patience), "N",
     "stop after N checks without a better one; 0: never", "0", .max = 1 << 30},
    {OPT_FLAG, 0, "keep-teacher", offsetof(struct job, keep_teacher), NULL,
     "keep the teacher's states in the cache folder, for other trainings on the same packs"},
    {OPT_INT, 0, "teacher-limit", offsetof(struct job, teacher_limit), "BYTES",
     "do not add more when that folder has this size", OPT_TEXT(TEACHER_LIMIT), .max = 9e15},
    {OPT_GROUP, 0, NULL, offsetof(struct job, t), .group = training_options},
    {.type = OPT_END},
};

static int cmd_train(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    j->best = INFINITY;
    struct kvf_diag d = {""};
    if (j->settings)
        return list_settings();
    int err = files_of_data(&j->t.data, operand, n, &d);
    if (!err)
        err = run(j, &d);
    if (err)
        crew_fail(j->t.crew);
    finish(j);
    return !err && signals_caught() ? 128 + signals_caught() : command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"128 + N", "It was stopped by signal N, and saved; repeat the command to continue."},
    {NULL, NULL},
};

const struct command command_train = {
    .name = "train",
    .group = "training",
    .summary = "train retention gates for a frozen model",
    .example = "kvfate train --data text.txt --method trimkv:lr=1e-3 --length 64 --steps 2 "
               "--check-every 0 -o gates.safetensors",
    .needs = "--data FILE... -o GATES.safetensors",
    .operands = {NULL, "file", 0, -1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_train,
};
