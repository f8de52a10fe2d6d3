/* cmd_tune.c - a model's own weights, trained to live with a small cache. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/folders.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/runner.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "cli/tune_job.h"
#include "cli/tune_masks.h"
#include "engine/model/gguf_write.h"

/* Defaults. */
#define BUDGET 128
#define SAMPLES 8
#define MOST 16
#define RANGE 0.2
#define UPDATES 1
#define TARGETS "q,k,v,o"
#define SHARE 0.9
#define CHECK_EVERY 50
#define CHECK_DOCS 8
#define BUDGETS "64,128"

/* In the order of the words; types of matrices. */
static const char *const type_words[] = {"f16", "q8_0", "q4_1", "q4_k", "f32", NULL};
static const enum weight_type types[] = {WEIGHT_F16, WEIGHT_Q8_0, WEIGHT_Q4_1, WEIGHT_Q4_K,
                                         WEIGHT_F32};
static const char *const packing_words[] = {"run", "documents", NULL}; /* enum packing */

/* ---- options ---- */

static bool is_adapter(const struct tune_job *j)
{
    size_t n = strlen(j->out), end = strlen(".safetensors");
    return n > end && strcmp(j->out + n - end, ".safetensors") == 0;
}

static void set_options(struct tune_job *j)
{
    int64_t warmup = j->warmup >= 0 ? j->warmup : j->steps / 20;
    j->opt.optimizer = (struct optimizer){.lr = j->lr,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .decay = j->decay,
                                          .clip = j->clip,
                                          .schedule = SCHEDULE_COSINE,
                                          .warmup = warmup * j->updates,
                                          .steps = j->steps * j->updates};
    j->opt.pass.quality[QUALITY_FWKL] = j->control ? 0 : j->kl;
    j->opt.pass.quality[QUALITY_NTP] = j->control && j->ntp == 0 ? 1 : j->ntp;
    j->opt.pass.temperature = j->temperature;
    j->opt.pass.recompute = j->recompute;
    j->opt.pass.watch = stage_see;
    j->opt.pass.watch_ctx = &j->stage;
    j->opt.lora.rank = (int)j->rank;
    j->opt.lora.alpha = j->alpha > 0 ? j->alpha : 2.0 * (double)j->rank;
    j->opt.lora.seed = (uint64_t)j->seed;
    j->opt.length = (int)j->length;
    j->opt.accumulate = (int)j->accumulate;
    j->opt.prompt = (int)(j->prompt > 0 ? j->prompt : j->length / 4 + 1);
    j->opt.seed = (uint64_t)j->seed;
}

/* Options that have no effect beside the others. */
static int check_idle(const struct tune_job *j, struct kvf_diag *d)
{
    const char *texts = "without --reward", *whole = "without --rank";
    const char *none = j->check_every ? "without text to check on" : "with --check-every 0";
    bool reward = j->rewards.n > 0;
    bool held = j->data.n && (reward || j->plans.n || j->share < 1);
    bool checks = j->check_every > 0 && held;
    const struct idle list[] = {
        {j->samples != SAMPLES && !reward, "--samples", texts},
        {j->most != MOST && !reward, "--most", texts},
        {j->range != RANGE && !reward, "--range", texts},
        {j->updates != UPDATES && !reward, "--updates", texts},
        {j->raw && !reward, "--raw", texts},
        {j->packing && (reward || j->plans.n), "--packing", "with --reward or --plan"},
        {j->share != SHARE && (reward || j->plans.n), "--share", "with --reward or --plan"},
        {j->alpha > 0 && !j->rank, "--alpha", whole},
        {strcmp(j->targets, TARGETS) != 0 && !j->rank, "--targets", whole},
        {j->type && is_adapter(j), "--type", "for an adapter, which is f32"},
        {j->check_docs != CHECK_DOCS && !checks, "--check-docs", none},
        {strcmp(j->budgets, BUDGETS) != 0 && !checks, "--budgets", none},
        {j->check_every && j->check_every != CHECK_EVERY && !checks, "--check-every", none}};
    return IDLE_CHECK(list, d);
}

/* The default budget, for a method that takes one and does not name it. */
static void give_budget(struct methods *m)
{
    struct method row;
    struct method_params p;
    struct kvf_diag unused;
    if (!m->budget && method_parse(m->method, BUDGET, &row, &p, &unused) == KVF_OK
        && p.budget == BUDGET)
        m->budget = BUDGET;
}

static int check_options(struct tune_job *j, struct kvf_diag *d)
{
    if (j->data.n == 0 && j->plans.n == 0 && j->rewards.n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "no --data FILE: text, or JSONL with \"text\" or "
                        "\"question\" and \"answer\"; or --plan P.kvf, or --reward FILE.jsonl");
    if (j->plans.n && j->rewards.n)
        return kvf_fail(d, KVF_E_ARG,
                        "--plan brings texts, and --reward samples its own: give one of them");
    if (!j->out)
        return kvf_fail(d, KVF_E_ARG, "no -o MODEL.gguf, or -o ADAPTER.safetensors with --rank");
    if (is_adapter(j) && j->rank == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s is an adapter, which low-rank weights alone have: give --rank, or "
                        "-o MODEL.gguf",
                        j->out);
    if (!(j->kl + j->ntp > 0) || (j->plans.n && j->control))
        return kvf_fail(d, KVF_E_ARG,
                        j->control ? "--plan brings evictions, and --control takes steps without"
                                   : "--kl and --ntp are both 0: there is nothing to learn from");
    int err = check_idle(j, d);
    if (err)
        return err;
    if (j->until > j->steps)
        return kvf_fail(d, KVF_E_ARG, "--until %" PRId64 " is over --steps %" PRId64, j->until,
                        j->steps);
    if (j->until == 0)
        j->until = j->steps;
    set_options(j);
    err = lora_parse_targets(j->targets, &j->opt.lora.targets, d);
    if (!err)
        err = train_budgets(j->budgets, j->budget, &j->n_budgets, d);
    if (!err && j->rewards.n && j->n_budgets < TRAIN_CHECK_BUDGETS)
        j->budget[j->n_budgets++] = 0; /* checks are with the full cache, too */
    if (!err)
        give_budget(&j->methods);
    if (!err)
        err = methods_parse(&j->methods, "gkv", d);
    if (!err)
        err = train_files_name(&j->files, j->out, j->state_path, &j->data, d);
    return err ? err : train_files_try(&j->files, d);
}

/* ---- opening ---- */

/* All that the bytes of the result depend on. */
static int put_config(struct tune_job *j)
{
    struct buf *b = &j->config;
    const struct tuner_options *o = &j->opt;
    buf_printf(b, "{\"version\": \"%s\", \"model\": \"%s\", \"model_hash\": \"%s\"", kvf_version(),
               j->engine->config.name, j->engine->hash);
    methods_put(b, &j->methods, &j->engine->config);
    buf_printf(b,
               ", \"steps\": %" PRId64 ", \"warmup\": %" PRId64 ", \"length\": %d, \"prompt\": %d, "
               "\"accumulate\": %d, \"seed\": %" PRId64 ", \"packing\": \"%s\", \"rank\": %d, "
               "\"targets\": %u, \"control\": %s, \"check_every\": %" PRId64,
               j->steps, o->optimizer.warmup, o->length, o->prompt, o->accumulate, j->seed,
               packing_words[j->packing], o->lora.rank, o->lora.rank ? o->lora.targets : 0,
               j->control ? "true" : "false", j->check_every);
    const struct {
        const char *name;
        double value;
    } number[] = {{"alpha", o->lora.rank ? o->lora.alpha : 0},
                  {"share", j->share},
                  {"lr", j->lr},
                  {"clip", j->clip},
                  {"decay", j->decay},
                  {"kl", j->kl},
                  {"ntp", j->ntp},
                  {"temperature", j->temperature}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        buf_printf(b, ", \"%s\": ", number[i].name);
        json_put_num(b, number[i].value);
    }
    const char *device = model_learner_word(&o->learner);
    if (device)
        buf_printf(b, ", \"computed\": \"%s\"", device);
    if (j->reward)
        tune_reward_put(j, b);
    else
        buf_printf(b,
                   ", \"data_packs\": %d, \"data_tokens\": %" PRId64
                   ", \"data_hash\": \"%016" PRIx64 "\"",
                   packs_count(j->packs), packs_tokens(j->packs), packs_hash(j->packs));
    buf_char(b, '}');
    return b->err;
}

static int open_all(struct tune_job *j, struct kvf_diag *d)
{
    int err = model_learner(&j->how, &j->opt.learner, d);
    if (!err)
        err = model_open(j->model, &j->how, &j->engine, d);
    if (!err)
        err = train_files_keep(&j->files, gguf_path(j->engine->gguf), d);
    if (!err && is_adapter(j) && j->engine->config.family->fused_qkv)
        err = kvf_fail(
            d, KVF_E_ARG,
            "-o %s: %s has one matrix for queries, keys and values, and one for gate and "
            "up, whose low-rank weights are of another shape: give -o MODEL.gguf",
            j->out, j->engine->config.arch);
    if (!err && j->length > j->engine->config.n_ctx_most)
        err = kvf_fail(d, KVF_E_ARG, "--length %" PRId64 " is more than the model's context of %d",
                       j->length, j->engine->config.n_ctx_most);
    if (!err)
        err = methods_open(&j->methods, j->engine, d);
    if (!err)
        err = tune_check_method(&j->methods, j->engine, d);
    if (err)
        return err;
    if (folder_cache_make("tokens", &j->tokens_name) != KVF_OK)
        buf_finish(&j->tokens_name);
    err = j->rewards.n ? tune_reward_open(j, d) : tune_text_open(j, d);
    if (!err)
        err = put_config(j);
    struct watcher w = watcher_count("prepare", "models");
    w.of = 1;
    j->stage = (struct stage){watcher_within, &w, 0, 1};
    if (!err)
        err = tuner_create(j->engine, j->packs, &j->opt, &j->tuner, d);
    watcher_end(&w);
    return err;
}

/* ---- the record ---- */

/* Steps of the run: of the optimizer there may be more. */
static int64_t steps_done(const struct tune_job *j)
{
    return tuner_steps(j->tuner) / j->updates;
}

/* The first check of a record that is taken up again, and the last. */
static void find_checks(struct tune_job *j)
{
    for (const char *line = j->log.data; line && strchr(line, '\n');
         line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n');
        struct json *row;
        struct kvf_diag unused;
        if (strncmp(line, "{\"check\"", 8) != 0
            || json_parse(line, (size_t)(end - line), &row, &unused) != KVF_OK)
            continue;
        for (int i = 0; i < j->n_budgets; i++) {
            char key[TUNE_KEY];
            tune_key(key, j->reward ? "pass" : "kl", j->budget[i]);
            j->last[i] = json_num(json_get(row, key), NAN);
            j->first[i] = isnan(j->first[i]) ? j->last[i] : j->first[i];
        }
        json_free(row);
    }
}

static int save(struct tune_job *j, struct kvf_diag *d)
{
    int err = j->log.err ? j->log.err : train_files_record(&j->files, &j->log, d);
    if (!err)
        err = tuner_save(j->tuner, j->files.state.data, j->config.data,
                         j->log.data ? j->log.data : "", d);
    j->saved = steps_done(j);
    return err;
}

static int resume(struct tune_job *j, struct kvf_diag *d)
{
    char *log = NULL;
    int found = 0;
    if (j->fresh)
        return KVF_OK;
    int err = tuner_resume(j->tuner, j->files.state.data, j->config.data, &log, &found, d);
    if (!found && err == KVF_E_IO) {
        d->text[0] = 0; /* there is none to go on from */
        return KVF_OK;
    }
    if (!err && log)
        buf_str(&j->log, log);
    mem_free(log);
    find_checks(j);
    j->saved = err ? -1 : steps_done(j);
    return err;
}

static int write_model(struct tune_job *j, const char *record, struct kvf_diag *d)
{
    struct gguf_change change = {.fill = trainable_fill,
                                 .ctx = (void *)(uintptr_t)tuner_weights(j->tuner),
                                 .type = types[j->type],
                                 .key = "kvfate.tuning",
                                 .note = record};
    int err = gguf_write(j->out, j->engine->gguf, &change, d);
    if (!err)
        j->stored = sqrt(change.off / change.square);
    return err;
}

/* The model with its new weights, or what is to be added to them. */
static int write_result(struct tune_job *j, struct kvf_diag *d)
{
    struct buf record = {0};
    buf_printf(&record, "%.*s, \"steps_done\": %" PRId64 "}", (int)j->config.len - 1,
               j->config.data, steps_done(j));
    int err = record.err;
    if (!err && is_adapter(j))
        err = lora_write(tuner_lora(j->tuner), j->out, j->engine->hash, record.data, d);
    else if (!err)
        err = write_model(j, record.data, d);
    buf_finish(&record);
    return err;
}

/* ---- the run ---- */

static int check(struct tune_job *j, struct kvf_diag *d)
{
    j->checking = watcher_count("check", "budgets");
    j->checking.of = (uint64_t)j->n_budgets;
    j->stage = (struct stage){watcher_within, &j->checking, 0, 1};
    int err = j->reward ? tune_reward_check(j, d) : tune_text_check(j, d);
    watcher_end(&j->checking);
    if (steps_done(j) == 0)
        memcpy(j->first, j->last, sizeof j->first);
    return err;
}

static int advance(struct tune_job *j, const struct session_options *method, struct kvf_diag *d)
{
    double start = clock_seconds();
    j->stage = (struct stage){progress_within, &j->bar, 0, 1};
    int err = j->reward ? tune_reward_step(j, method, d) : tune_text_step(j, method, d);
    if (err)
        return err;
    int64_t step = steps_done(j);
    j->seconds += clock_seconds() - start;
    if (j->checks && (step % j->check_every == 0 || step == j->until))
        err = check(j, d);
    if (!err && step % j->save_every == 0)
        err = save(j, d);
    progress_update(&j->bar, step);
    return err ? err : j->log.err;
}

static void summary_json(const struct tune_job *j)
{
    struct buf b = {0};
    buf_printf(&b,
               "{\"steps\": %" PRId64 ", \"tokens\": %" PRId64
               ", \"seconds\": %.3f, \"parameters\": %zu, \"bytes\": %zu, \"stored_error\": %.6g, "
               "\"%s\": {",
               steps_done(j), j->tokens, j->seconds, tuner_parameters(j->tuner),
               tuner_bytes(j->tuner), j->stored, j->reward ? "pass" : "kl");
    for (int i = 0; j->checks && i < j->n_budgets; i++) {
        buf_printf(&b, "%s\"%d\": [", i ? ", " : "", j->budget[i]);
        json_put_num(&b, j->first[i]);
        buf_str(&b, ", ");
        json_put_num(&b, j->last[i]);
        buf_char(&b, ']');
    }
    buf_str(&b, "}}");
    printf("%s\n", b.data ? b.data : "");
    buf_finish(&b);
}

static void summary(const struct tune_job *j)
{
    double rate = j->seconds > 0 ? (double)j->tokens / j->seconds : 0;
    if (j->json) {
        summary_json(j);
        return;
    }
    printf("%s: step %" PRId64 " of %" PRId64 "; %" PRId64 " tokens at %.0f per second; %zu "
           "parameters\n",
           shown_name(j->out).text, steps_done(j), j->steps, j->tokens, rate,
           tuner_parameters(j->tuner));
    if (j->stored > 0)
        printf("%s: matrices in the file are off by %.2g of their root mean square; what "
               "follows is of the weights before that\n",
               type_words[j->type], j->stored);
    for (int i = 0; j->checks && i < j->n_budgets; i++)
        if (j->reward && !j->budget[i])
            printf("full cache: %.4f of the answers were right, and %.4f are\n", j->first[i],
                   j->last[i]);
        else if (j->reward)
            printf("budget %d: %.4f of the answers were right, and %.4f are\n", j->budget[i],
                   j->first[i], j->last[i]);
        else
            printf("budget %d: KL from the full cache was %.4f nats per token and is %.4f\n",
                   j->budget[i], j->first[i], j->last[i]);
}

static int run(struct tune_job *j, struct kvf_diag *d)
{
    int err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = resume(j, d);
    if (err)
        return err;
    signals_catch();
    struct session_options method = j->control
                                        ? (struct session_options){.kv_type = KV_F32}
                                        : tune_session(j, &j->methods.row, &j->methods.params);
    progress_start(&j->bar, "tune", "steps", j->steps);
    progress_from(&j->bar, steps_done(j));
    if (j->checks && !j->log.len) /* a run that was stopped there has it */
        err = check(j, d);
    while (!err && !signals_caught() && steps_done(j) < j->until)
        err = advance(j, &method, d);
    if (!err && j->saved != steps_done(j))
        err = save(j, d);
    else if (!err) /* a run that was stopped behind its last step may have lost its record */
        err = train_files_record(&j->files, &j->log, d);
    progress_end(&j->bar, steps_done(j));
    if (err)
        return err;
    if (signals_caught())
        fprintf(stderr,
                "kvfate tune: interrupted after step %" PRId64 "; the same command goes on\n",
                steps_done(j));
    else
        err = write_result(j, d);
    if (!err)
        summary(j);
    return err;
}

static void finish(struct tune_job *j)
{
    tuner_destroy(j->tuner);
    tune_reward_close(j->reward);
    packs_close(j->packs);
    packs_close(j->held);
    methods_close(&j->methods);
    engine_close(j->engine);
    mem_free(j->doc);
    mem_free(j->loss);
    mem_free(j->kl_of);
    buf_finish(&j->config);
    buf_finish(&j->log);
    buf_finish(&j->tokens_name);
    train_files_finish(&j->files);
}

static const struct opt options[] = {
    {OPT_STR, 'm', "model", offsetof(struct tune_job, model), "FILE",
     "model: a GGUF file or a folder", .absent = "SmolLM2 in the cache folder"},
    {OPT_LIST, 0, "data", offsetof(struct tune_job, data), "FILE",
     "text, or JSONL; several may follow"},
    {OPT_LIST, 0, "plan", offsetof(struct tune_job, plans), "P.kvf",
     "train on recorded runs and their evictions; --data is checked on"},
    {OPT_LIST, 0, "reward", offsetof(struct tune_job, rewards), "FILE.jsonl",
     "learn from sampled answers to questions that are right or wrong; --data is checked on"},
    {OPT_INT, 0, "samples", offsetof(struct tune_job, samples), "G", "answers to a question",
     OPT_TEXT(SAMPLES), .min = 2, .max = 1024},
    {OPT_INT, 0, "most", offsetof(struct tune_job, most), "N", "tokens of an answer, at most",
     OPT_TEXT(MOST), .min = 1, .max = 1 << 16},
    {OPT_REAL, 0, "range", offsetof(struct tune_job, range), "E",
     "ratios of policies count within 1 - E to 1 + E", OPT_TEXT(RANGE), .max = 1},
    {OPT_INT, 0, "updates", offsetof(struct tune_job, updates), "N",
     "steps of the optimizer on the same answers", OPT_TEXT(UPDATES), .min = 1, .max = 1024},
    {OPT_FLAG, 0, "raw", offsetof(struct tune_job, raw), NULL,
     "questions without the chat template; a new line follows them"},
    {OPT_STR, 0, "method", offsetof(struct tune_job, methods.method), "M",
     "the cache method to live with, NAME[:key=value,...]", "gkv"},
    {OPT_INT, 'B', "budget", offsetof(struct tune_job, methods.budget), "N",
     "entries that each KV head may hold", .absent = "128, for methods that take one", .min = 1,
     .max = 1 << 24},
    {OPT_STR, 0, "gates", offsetof(struct tune_job, methods.gates_file), "FILE",
     "trained gates of the method, a file or the name of shipped ones"},
    {OPT_FLAG, 0, "control", offsetof(struct tune_job, control), NULL,
     "steps without evictions, from the next tokens; checks are under the method all the same"},
    {OPT_STR, 'o', "output", offsetof(struct tune_job, out), "MODEL.gguf|ADAPTER.safetensors",
     "the new model; or the low-rank weights alone"},
    {OPT_WORD, 0, "type", offsetof(struct tune_job, type), "T", "how the new model stores matrices",
     "f16", .words = type_words},
    {OPT_INT, 0, "rank", offsetof(struct tune_job, rank), "R",
     "learn low-rank changes of this rank; 0: all weights", "0", .max = 4096},
    {OPT_REAL, 0, "alpha", offsetof(struct tune_job, alpha), "A", "their weight times R", "0",
     .absent = "2 R", .max = 1e6},
    {OPT_STR, 0, "targets", offsetof(struct tune_job, targets), "LIST",
     "matrices that they change: q, k, v, o, gate, up, down", TARGETS},
    {OPT_INT, 0, "steps", offsetof(struct tune_job, steps), "N",
     "steps of the optimizer; 0: a check of the model as it is", "100", .max = 1 << 30},
    {OPT_INT, 0, "until", offsetof(struct tune_job, until), "N",
     "check and write the model after so many of them; the same command goes on", "0",
     .absent = "all", .min = 1, .max = 1 << 30},
    {OPT_INT, 0, "warmup", offsetof(struct tune_job, warmup), "N", "steps to the full rate", "-1",
     .absent = "a 20th", .max = 1 << 30},
    {OPT_REAL, 0, "lr", offsetof(struct tune_job, lr), "X",
     "rate of AdamW; then half a cosine to 0", "1e-5", .min = 1e-12, .max = 1},
    {OPT_REAL, 0, "clip", offsetof(struct tune_job, clip), "X", "most norm of a gradient; 0: any",
     "1", .max = 1e9},
    {OPT_REAL, 0, "decay", offsetof(struct tune_job, decay), "X", "decay of the weights", "0",
     .max = 10},
    {OPT_REAL, 0, "kl", offsetof(struct tune_job, kl), "W", "weight of KL(model || student)", "1",
     .max = 1e6},
    {OPT_REAL, 0, "ntp", offsetof(struct tune_job, ntp), "W", "weight of the next token's -ln p",
     "0", .max = 1e6},
    {OPT_REAL, 0, "temperature", offsetof(struct tune_job, temperature), "T",
     "logits are divided by it before either", "1", .min = 0.01, .max = 100},
    {OPT_INT, 0, "length", offsetof(struct tune_job, length), "T", "tokens of a pack", "256",
     .min = 2, .max = 1 << 20},
    {OPT_INT, 0, "prompt", offsetof(struct tune_job, prompt), "N",
     "tokens of a document that are fed at once, before those that are decoded", "0",
     .absent = "a quarter", .min = 1, .max = 1 << 20},
    {OPT_INT, 0, "accumulate", offsetof(struct tune_job, accumulate), "N",
     "packs, or questions, of a step", "1", .min = 1, .max = 1 << 20},
    {OPT_WORD, 0, "packing", offsetof(struct tune_job, packing), "P",
     "run: documents follow each other; documents: they do not see each other", "run",
     .words = packing_words},
    {OPT_REAL, 0, "share", offsetof(struct tune_job, share), "S",
     "train on this share of each file, check on the rest", OPT_TEXT(SHARE), .min = 0.01, .max = 1},
    {OPT_INT, 0, "check-every", offsetof(struct tune_job, check_every), "N",
     "steps between checks; 0: none", OPT_TEXT(CHECK_EVERY), .max = 1 << 30},
    {OPT_INT, 0, "check-docs", offsetof(struct tune_job, check_docs), "N",
     "documents, or questions, of a check", OPT_TEXT(CHECK_DOCS), .min = 1, .max = 1 << 20},
    {OPT_STR, 0, "budgets", offsetof(struct tune_job, budgets), "N,...", "budgets of a check",
     BUDGETS},
    {OPT_STR, 0, "state", offsetof(struct tune_job, state_path), "FILE", "the checkpoint",
     .absent = "MODEL.state"},
    {OPT_INT, 0, "save-every", offsetof(struct tune_job, save_every), "N",
     "steps between checkpoints", "20", .min = 1, .max = 1 << 30},
    {OPT_FLAG, 0, "fresh", offsetof(struct tune_job, fresh), NULL,
     "start anew although there is a checkpoint"},
    {OPT_FLAG, 0, "recompute", offsetof(struct tune_job, recompute), NULL,
     "an eighth of the memory of activations for a fifth more time"},
    {OPT_INT, 's', "seed", offsetof(struct tune_job, seed), "S",
     "order of the data, start of low-rank weights", "0", .max = 9e15},
    {OPT_GROUP, 0, "execution", offsetof(struct tune_job, how), .group = learner_options},
    {OPT_FLAG, 0, "json", offsetof(struct tune_job, json), NULL, "one JSON object at the end"},
    {.type = OPT_END},
};

static int cmd_tune(const struct command *self, void *request, int n, char **operand)
{
    struct tune_job *j = request;
    struct kvf_diag d = {""};
    j->saved = -1;
    for (int i = 0; i < TRAIN_CHECK_BUDGETS; i++)
        j->first[i] = j->last[i] = NAN;
    int err = files_of_data(&j->data, operand, n, &d);
    if (!err)
        err = run(j, &d);
    finish(j);
    return !err && signals_caught() ? 128 + signals_caught() : command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"128 + N", "It was stopped by signal N, and saved; the same command goes on."},
    {NULL, NULL},
};

const struct command command_tune = {
    .name = "tune",
    .group = "running models",
    .summary = "train a model's own weights to live with a small cache",
    .example = "kvfate tune --data text.txt --method window -B 16 --length 48 --steps 2 "
               "--check-every 0 --rank 4 -o tuned.gguf",
    .needs = "--data FILE... -o MODEL.gguf",
    .operands = {NULL, "file", 0, OPT_LIST_MAX},
    .options = options,
    .request_bytes = sizeof(struct tune_job),
    .exits = exits,
    .run = cmd_tune,
};
