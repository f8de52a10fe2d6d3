/* training.c - options, files and loop of a training run. */
#include "cli/training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/folders.h"
#include "cli/models.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "cli/watcher.h"

static const char *const packing_words[] = {"run", "documents", NULL}; /* enum packing */

const struct opt training_options[] = {
    {OPT_STR, 'm', "model", offsetof(struct training, model), "FILE",
     "model: a GGUF file or a folder", .absent = "SmolLM2 in the cache folder"},
    {OPT_LIST, 0, "data", offsetof(struct training, data), "FILE",
     "text, or JSONL; several may follow"},
    {OPT_INT, 0, "warmup", offsetof(struct training, warmup), "N", "steps to the full rate", "-1",
     .absent = "a 20th", .max = 1 << 30},
    {OPT_WORD, 0, "packing", offsetof(struct training, packing), "P",
     "run: documents follow each other; documents: they do not see each other", "run",
     .words = packing_words},
    {OPT_REAL, 0, "share", offsetof(struct training, share), "S",
     "train on this share of each file, check on the rest", "0.9", .min = 0.01, .max = 1},
    {OPT_STR, 0, "budgets", offsetof(struct training, budgets), "N,...", "budgets of a check",
     TRAINING_BUDGETS},
    {OPT_STR, 0, "state", offsetof(struct training, state_path), "FILE", "the checkpoint",
     .absent = "the output's name with .state"},
    {OPT_INT, 0, "save-every", offsetof(struct training, save_every), "N",
     "steps between checkpoints", "20", .min = 1, .max = 1 << 30},
    {OPT_FLAG, 0, "fresh", offsetof(struct training, fresh), NULL,
     "start again although there is a checkpoint"},
    {OPT_FLAG, 0, "recompute", offsetof(struct training, recompute), NULL,
     "an eighth of the memory of activations for a fifth more time"},
    {OPT_INT, 's', "seed", offsetof(struct training, seed), "S",
     "order of the data, and initial weights", "0", .max = 9e15},
    {OPT_GROUP, 0, "execution", offsetof(struct training, how), .group = learner_options},
    {OPT_FLAG, 0, "json", offsetof(struct training, json), NULL, "one JSON object at the end"},
    {.type = OPT_END},
};

const char *training_packing(const struct training *t)
{
    return packing_words[t->packing];
}

int64_t training_warmup(const struct training *t)
{
    return t->warmup >= 0 ? t->warmup : t->steps / 20;
}

static bool is_first(const struct training *t)
{
    return !t->crew || crew_is_first(t->crew);
}

int training_name_files(struct training *t, struct kvf_diag *d)
{
    int err = train_files_name(&t->files, t->out, t->state_path, &t->data, d);
    return err || !is_first(t) ? err : train_files_try(&t->files, d);
}

int training_open(struct training *t, struct learner *ret_learner, struct kvf_diag *d)
{
    int err = model_learner(&t->how, ret_learner, d);
    if (!err)
        err = model_open(t->model, &t->how, &t->engine, d);
    if (!err)
        err = train_files_keep(&t->files, gguf_path(t->engine->gguf), d);
    if (!err && t->length > t->engine->config.n_ctx_max)
        err = kvf_fail(d, KVF_E_ARG, "--length %" PRId64 " is more than the model's context of %d",
                       t->length, t->engine->config.n_ctx_max);
    if (!err && folder_cache_make("tokens", &t->tokens_name) != KVF_OK)
        buf_finish(&t->tokens_name);
    return err;
}

int training_packs(const struct training *t, double from, double to, struct packs **ret,
                   struct kvf_diag *d)
{
    struct packs_source source = {
        t->data.item, t->data.n, (int)t->length,     (enum packing)t->packing,
        from,         to,        t->tokens_name.data};
    return packs_open(t->engine->tokenizer, &source, ret, d);
}

void training_put_packs(struct training *t)
{
    buf_printf(&t->config,
               ", \"data_packs\": %d, \"data_tokens\": %" PRId64 ", \"data_hash\": \"%016" PRIx64
               "\"",
               packs_count(t->packs), packs_tokens(t->packs), packs_hash(t->packs));
}

void training_put_record(const struct training *t, int64_t steps, struct buf *b)
{
    buf_printf(b, "%.*s, \"steps_done\": %" PRId64 "}", (int)t->config.len - 1, t->config.data,
               steps);
}

/* Makes the trainer, with progress on the terminal. */
static int create(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d)
{
    struct watcher w = watcher_count("prepare", "models");
    w.of = 1;
    t->stage = (struct stage){watcher_part, &w, 0, 1};
    int err = k->create(job, d);
    watcher_end(&w);
    t->stage = (struct stage){progress_within, &t->bar, 0, 1};
    return err;
}

/* Writes the checkpoint last: a run that resumes from it finds everything else written, and a run
 * that was stopped before it repeats the steps with the same result. */
static int save(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d)
{
    int err = t->log.err;
    if (!err && k->early)
        err = k->write(job, d);
    if (!err)
        err = train_files_record(&t->files, &t->log, d);
    if (!err)
        err = k->save(job, t->files.state.data, t->config.data, t->log.data ? t->log.data : "", d);
    t->saved = k->steps(job);
    return err;
}

/* Gives each check of a resumed record to the command. */
static void read_checks(const struct training *t, const struct training_kind *k, void *job)
{
    const char *end = NULL;
    for (const char *line = t->log.data ? t->log.data : "";; line = end + 1) {
        struct json *row;
        struct kvf_diag unused;
        end = strchr(line, '\n');
        if (!end)
            return;
        if (strncmp(line, "{\"check\"", 8) != 0
            || json_parse(line, (size_t)(end - line), &row, &unused) != KVF_OK)
            continue;
        k->read_check(job, row);
        json_free(row);
    }
}

static int resume(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d)
{
    char *log = NULL;
    int found = 0;
    if (t->fresh)
        return KVF_OK;
    int err = k->resume(job, t->files.state.data, t->config.data, &log, &found, d);
    if (!found && err == KVF_E_IO) {
        d->text[0] = 0; /* there is no checkpoint */
        return KVF_OK;
    }
    if (!err && log)
        buf_str(&t->log, log);
    mem_free(log);
    if (err)
        return err;
    read_checks(t, k, job);
    t->saved = k->steps(job);
    return k->resumed ? k->resumed(job, d) : KVF_OK;
}

/* Returns true if there is another step; the first process of a crew decides. */
static bool goes_on(const struct training *t, const struct training_kind *k, const void *job,
                    int *ret_err, struct kvf_diag *d)
{
    char more = !signals_caught() && k->steps(job) < t->until && !(k->stops && k->stops(job));
    *ret_err = t->crew ? crew_broadcast(t->crew, 0, &more, sizeof more, d) : KVF_OK;
    return !*ret_err && more;
}

/* Makes one step, then a check and a checkpoint if they are due. */
static int advance(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d)
{
    double start = clock_seconds();
    int64_t before = t->tokens;
    t->stage = (struct stage){progress_within, &t->bar, 0, 1};
    int err = k->step(job, d);
    if (err)
        return err;
    double took = clock_seconds() - start;
    t->first_seconds = before ? t->first_seconds : took;
    t->seconds += took;
    if (!is_first(t))
        return KVF_OK;
    int64_t step = k->steps(job);
    if (t->checks && (step % t->check_every == 0 || step == t->until))
        err = k->check(job, d);
    if (!err && step % t->save_every == 0)
        err = save(t, k, job, d);
    progress_update(&t->bar, step);
    return err ? err : t->log.err;
}

/* Writes the last checkpoint, record and result. */
static int conclude(struct training *t, const struct training_kind *k, void *job,
                    struct kvf_diag *d)
{
    bool saved = t->saved == k->steps(job);
    int err = saved ? train_files_record(&t->files, &t->log, d) : save(t, k, job, d);
    if (!err && saved && k->early)
        err = k->write(job, d);
    progress_end(&t->bar, k->steps(job));
    if (!err && signals_caught())
        fprintf(stderr,
                "kvfate %s: interrupted after step %" PRId64 "; repeat the command to continue\n",
                k->name, k->steps(job));
    else if (!err && !k->early)
        err = k->write(job, d);
    return err;
}

int training_run(struct training *t, const struct training_kind *k, void *job, struct kvf_diag *d)
{
    t->saved = -1;
    int err = create(t, k, job, d);
    if (!err)
        err = resume(t, k, job, d);
    for (int rank = 0; !err && t->crew && rank < crew_size(t->crew); rank++) {
        int64_t step = k->steps(job);
        err = crew_broadcast(t->crew, rank, &step, sizeof step, d);
        if (!err && step != k->steps(job))
            err = kvf_fail(d, KVF_E_IO,
                           "process %d reads another checkpoint (step %" PRId64 ") than this one "
                           "(step %" PRId64 "): all must see the same files",
                           rank, step, k->steps(job));
    }
    if (err)
        return err;
    signals_catch();
    progress_start(&t->bar, k->name, "steps", t->steps);
    progress_from(&t->bar, k->steps(job));
    if (t->checks && k->check_first && !t->log.len)
        err = k->check(job, d);
    while (!err && goes_on(t, k, job, &err, d))
        err = advance(t, k, job, d);
    if (!err && is_first(t))
        return conclude(t, k, job, d);
    progress_end(&t->bar, k->steps(job));
    return err;
}

void training_summary(const struct training *t, int64_t steps, size_t parameters)
{
    printf("%s: step %" PRId64 " of %" PRId64 "; %" PRId64 " tokens at %.0f per second; %zu "
           "parameters\n",
           shown_name(t->out).text, steps, t->steps, t->tokens,
           t->seconds > 0 ? (double)t->tokens / t->seconds : 0, parameters);
}

void training_finish(struct training *t)
{
    packs_close(t->packs);
    engine_close(t->engine);
    buf_finish(&t->config);
    buf_finish(&t->log);
    train_files_finish(&t->files);
    buf_finish(&t->tokens_name);
    if (t->crew)
        crew_leave(t->crew);
}
