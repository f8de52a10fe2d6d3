/* cmd_tune.c - `kvfate tune` trains the weights of a model for a small cache. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "base/files.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/signals.h"
#include "cli/tune_job.h"
#include "cli/tune_masks.h"
#include "engine/model/gguf_write.h"

/* Default values of options. */
#define BUDGET 128
#define SAMPLES 8
#define MOST 16
#define RANGE 0.2
#define UPDATES 1
#define TARGETS "q,k,v,o"
#define SHARE 0.9 /* default of --share in training_options */
#define CHECK_EVERY 50
#define CHECK_DOCS 8

/* Types of matrices, as --type names them. */
static const char *const type_words[] = {"f16", "q8_0", "q4_1", "q4_k", "f32", NULL};
static const enum weight_type types[] = {WEIGHT_F16, WEIGHT_Q8_0, WEIGHT_Q4_1, WEIGHT_Q4_K,
                                         WEIGHT_F32};

/* ---- options ---- */

static bool is_adapter(const struct tune_job *j)
{
    size_t n = strlen(j->t.out), end = strlen(".safetensors");
    return n > end && strcmp(j->t.out + n - end, ".safetensors") == 0;
}

static void set_options(struct tune_job *j)
{
    j->opt.optimizer = (struct optimizer){.lr = j->lr,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .decay = j->decay,
                                          .clip = j->clip,
                                          .schedule = SCHEDULE_COSINE,
                                          .warmup = training_warmup(&j->t) * j->updates,
                                          .steps = j->t.steps * j->updates};
    j->opt.pass.quality[QUALITY_FWKL] = j->control ? 0 : j->kl;
    j->opt.pass.quality[QUALITY_NTP] = j->control && j->ntp == 0 ? 1 : j->ntp;
    j->opt.pass.temperature = j->temperature;
    j->opt.pass.recompute = j->t.recompute;
    j->opt.pass.watch = stage_see;
    j->opt.pass.watch_ctx = &j->t.stage;
    j->opt.lora.rank = (int)j->rank;
    j->opt.lora.alpha = j->alpha > 0 ? j->alpha : 2.0 * (double)j->rank;
    j->opt.lora.seed = (uint64_t)j->t.seed;
    j->opt.length = (int)j->t.length;
    j->opt.accumulate = (int)j->accumulate;
    j->opt.prompt = (int)(j->prompt > 0 ? j->prompt : j->t.length / 4 + 1);
    j->opt.seed = (uint64_t)j->t.seed;
}

/* Rejects options that have no effect in this combination. */
static int check_idle(const struct tune_job *j, struct kvf_diag *d)
{
    const char *texts = "without --reward", *whole = "without --rank";
    const char *none = j->t.check_every ? "without text to check on" : "with --check-every 0";
    bool reward = j->rewards.n > 0;
    bool held = j->t.data.n && (reward || j->plans.n || j->t.share < 1);
    bool checks = j->t.check_every > 0 && held;
    const struct idle list[] = {
        {j->samples != SAMPLES && !reward, "--samples", texts},
        {j->most != MOST && !reward, "--most", texts},
        {j->range != RANGE && !reward, "--range", texts},
        {j->updates != UPDATES && !reward, "--updates", texts},
        {j->raw && !reward, "--raw", texts},
        {j->t.packing && (reward || j->plans.n), "--packing", "with --reward or --plan"},
        {j->t.share != SHARE && (reward || j->plans.n), "--share", "with --reward or --plan"},
        {j->alpha > 0 && !j->rank, "--alpha", whole},
        {strcmp(j->targets, TARGETS) != 0 && !j->rank, "--targets", whole},
        {j->type && is_adapter(j), "--type", "for an adapter, which is f32"},
        {j->t.check_docs != CHECK_DOCS && !checks, "--check-docs", none},
        {strcmp(j->t.budgets, TRAINING_BUDGETS) != 0 && !checks, "--budgets", none},
        {j->t.check_every && j->t.check_every != CHECK_EVERY && !checks, "--check-every", none}};
    return IDLE_CHECK(list, d);
}

/* Sets the default budget if the method takes a budget and its text has none. */
static void give_budget(struct methods *m)
{
    struct method row;
    struct method_params p;
    struct kvf_diag unused;
    if (!m->budget_text && method_parse(m->method, BUDGET, &row, &p, &unused) == KVF_OK
        && p.budget == BUDGET)
        m->budget_text = OPT_TEXT(BUDGET);
}

/* Resolves a budget that is a fraction of the tokens before the first cut. */
static int resolve_budget(struct tune_job *j, struct kvf_diag *d)
{
    if (methods_fractional(&j->methods) && j->rewards.n)
        return kvf_fail(d, KVF_E_ARG,
                        "a budget in percent needs prompts of one length, and the questions of "
                        "--reward differ; give entries");
    return methods_resolve(&j->methods, &(struct budget_prompt){.tokens = j->opt.prompt}, d);
}

static int check_options(struct tune_job *j, struct kvf_diag *d)
{
    if (j->t.data.n == 0 && j->plans.n == 0 && j->rewards.n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "no --data FILE: text, or JSONL with \"text\" or "
                        "\"question\" and \"answer\"; or --plan P.kvf, or --reward FILE.jsonl");
    if (j->plans.n && j->rewards.n)
        return kvf_fail(d, KVF_E_ARG,
                        "--plan brings texts, and --reward samples its own: give one of them");
    if (!j->t.out)
        return kvf_fail(d, KVF_E_ARG, "no -o MODEL.gguf, or -o ADAPTER.safetensors with --rank");
    if (is_adapter(j) && j->rank == 0)
        return kvf_fail(
            d, KVF_E_ARG,
            "-o %s is an adapter, which needs low-rank weights: give --rank, or -o MODEL.gguf",
            j->t.out);
    if (!(j->kl + j->ntp > 0) || (j->plans.n && j->control))
        return kvf_fail(d, KVF_E_ARG,
                        j->control ? "--plan brings evictions, and --control takes steps without"
                                   : "--kl and --ntp are both 0, so that there is no loss to "
                                     "minimise; give one of them");
    int err = check_idle(j, d);
    if (err)
        return err;
    if (j->t.until > j->t.steps)
        return kvf_fail(d, KVF_E_ARG, "--until %" PRId64 " is over --steps %" PRId64, j->t.until,
                        j->t.steps);
    if (j->t.until == 0)
        j->t.until = j->t.steps;
    set_options(j);
    err = lora_parse_targets(j->targets, &j->opt.lora.targets, d);
    if (!err)
        err = train_budgets(j->t.budgets, j->rewards.n ? 0 : j->opt.prompt, j->budget,
                            &j->n_budgets, d);
    if (!err && j->rewards.n && j->n_budgets < TRAIN_CHECK_BUDGETS)
        j->budget[j->n_budgets++] = 0; /* checks include the full cache (budget 0) */
    if (!err)
        give_budget(&j->methods);
    if (!err)
        err = methods_parse(&j->methods, "gkv", d);
    if (!err && j->methods.row.allocation->heads)
        err = kvf_fail(d, KVF_E_ARG,
                       "--method %s: allocation=file is not supported in a training; give another "
                       "allocation",
                       j->methods.method);
    if (!err)
        err = resolve_budget(j, d);
    if (!err)
        err = training_name_files(&j->t, d);
    return err;
}

/* ---- initialisation ---- */

/* Writes every setting that the result depends on. */
static int put_config(struct tune_job *j)
{
    struct buf *b = &j->t.config;
    const struct tuner_options *o = &j->opt;
    buf_printf(b, "{\"version\": \"%s\", \"model\": \"%s\", \"model_hash\": \"%s\"", kvf_version(),
               j->t.engine->config.name, j->t.engine->hash);
    methods_put(b, &j->methods, &j->t.engine->config, 0);
    buf_printf(b,
               ", \"steps\": %" PRId64 ", \"warmup\": %" PRId64 ", \"length\": %d, \"prompt\": %d, "
               "\"accumulate\": %d, \"seed\": %" PRId64 ", \"packing\": \"%s\", \"rank\": %d, "
               "\"targets\": %u, \"control\": %s, \"check_every\": %" PRId64,
               j->t.steps, o->optimizer.warmup, o->length, o->prompt, o->accumulate, j->t.seed,
               training_packing(&j->t), o->lora.rank, o->lora.rank ? o->lora.targets : 0,
               j->control ? "true" : "false", j->t.check_every);
    const struct {
        const char *name;
        double value;
    } number[] = {{"alpha", o->lora.rank ? o->lora.alpha : 0},
                  {"share", j->t.share},
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
        training_put_packs(&j->t);
    buf_char(b, '}');
    return b->err;
}

static int open_all(struct tune_job *j, struct kvf_diag *d)
{
    int err = training_open(&j->t, &j->opt.learner, d);
    if (!err && is_adapter(j) && j->t.engine->config.family->fused_qkv)
        err = kvf_fail(
            d, KVF_E_ARG,
            "-o %s: %s has one matrix for queries, keys and values, and one for gate and up, so "
            "that its low-rank weights have another shape: give -o MODEL.gguf",
            j->t.out, j->t.engine->config.arch);
    if (!err)
        err = methods_open(&j->methods, j->t.engine, d);
    if (!err)
        err = tune_check_method(&j->methods, j->t.engine, d);
    if (!err)
        err = j->rewards.n ? tune_reward_open(j, d) : tune_text_open(j, d);
    if (err)
        return err;
    j->session = j->control ? (struct session_options){.kv_type = KV_F32}
                            : tune_session(j, &j->methods.row, &j->methods.params);
    return put_config(j);
}

static int create(void *job, struct kvf_diag *d)
{
    struct tune_job *j = job;
    return tuner_create(j->t.engine, j->t.packs, &j->opt, &j->tuner, d);
}

/* ---- the record ---- */

/* Returns the steps of the run; the optimizer may make several in each. */
static int64_t steps_done(const void *job)
{
    const struct tune_job *j = job;
    return tuner_steps(j->tuner) / j->updates;
}

/* Keeps the first check of a record, and the last. */
static void read_check(void *job, const struct json *row)
{
    struct tune_job *j = job;
    for (int i = 0; i < j->n_budgets; i++) {
        char key[TUNE_KEY];
        tune_key(key, j->reward ? "pass" : "kl", j->budget[i]);
        j->last[i] = json_num(json_get(row, key), NAN);
        j->first[i] = isnan(j->first[i]) ? j->last[i] : j->first[i];
    }
}

static int save(const void *job, const char *path, const char *config, const char *log,
                struct kvf_diag *d)
{
    return tuner_save(((const struct tune_job *)job)->tuner, path, config, log, d);
}

static int resume(void *job, const char *path, const char *config, char **ret_log, int *ret_found,
                  struct kvf_diag *d)
{
    return tuner_resume(((struct tune_job *)job)->tuner, path, config, ret_log, ret_found, d);
}

static int write_model(struct tune_job *j, const char *record, struct kvf_diag *d)
{
    struct gguf_change change = {.fill = trainable_fill,
                                 .ctx = (void *)(uintptr_t)tuner_weights(j->tuner),
                                 .type = types[j->type],
                                 .key = "kvfate.tuning",
                                 .note = record};
    int err = gguf_write(j->t.out, j->t.engine->gguf, &change, d);
    if (!err)
        j->stored = sqrt(change.off / change.square);
    return err;
}

/* Writes the model with its new weights, or the low-rank adapter. */
static int write_result(void *job, struct kvf_diag *d)
{
    struct tune_job *j = job;
    struct buf record = {0};
    training_put_record(&j->t, steps_done(j), &record);
    int err = record.err;
    if (!err && is_adapter(j))
        err = lora_write(tuner_lora(j->tuner), j->t.out, j->t.engine->hash, record.data, d);
    else if (!err)
        err = write_model(j, record.data, d);
    buf_finish(&record);
    return err;
}

/* ---- the run ---- */

static int check(void *job, struct kvf_diag *d)
{
    struct tune_job *j = job;
    j->checking = watcher_count("check", "budgets");
    j->checking.of = (uint64_t)j->n_budgets;
    j->t.stage = (struct stage){watcher_part, &j->checking, 0, 1};
    int err = j->reward ? tune_reward_check(j, d) : tune_text_check(j, d);
    watcher_end(&j->checking);
    if (steps_done(j) == 0)
        memcpy(j->first, j->last, sizeof j->first);
    return err;
}

static int step(void *job, struct kvf_diag *d)
{
    struct tune_job *j = job;
    return j->reward ? tune_reward_step(j, &j->session, d) : tune_text_step(j, &j->session, d);
}

static void summary_json(const struct tune_job *j)
{
    struct buf b = {0};
    buf_printf(&b,
               "{\"steps\": %" PRId64 ", \"tokens\": %" PRId64
               ", \"seconds\": %.3f, \"parameters\": %zu, \"bytes\": %zu, \"stored_error\": %.6g, "
               "\"%s\": {",
               steps_done(j), j->t.tokens, j->t.seconds, tuner_parameters(j->tuner),
               tuner_bytes(j->tuner), j->stored, j->reward ? "pass" : "kl");
    for (int i = 0; j->t.checks && i < j->n_budgets; i++) {
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
    if (j->t.json) {
        summary_json(j);
        return;
    }
    training_summary(&j->t, steps_done(j), tuner_parameters(j->tuner));
    if (j->stored > 0)
        printf("%s: matrices in the file differ by %.2g of their root mean square; the following "
               "results are for the weights before rounding\n",
               type_words[j->type], j->stored);
    for (int i = 0; j->t.checks && i < j->n_budgets; i++)
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

static const struct training_kind kind = {
    .name = "tune",
    .create = create,
    .steps = steps_done,
    .step = step,
    .check = check,
    .check_first = true,
    .write = write_result,
    .save = save,
    .resume = resume,
    .read_check = read_check,
};

static int run(struct tune_job *j, struct kvf_diag *d)
{
    int err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = training_run(&j->t, &kind, j, d);
    if (!err && !signals_caught())
        summary(j);
    return err;
}

static void finish(struct tune_job *j)
{
    tuner_destroy(j->tuner);
    tune_reward_close(j->reward);
    packs_close(j->held);
    methods_close(&j->methods);
    mem_free(j->doc);
    mem_free(j->loss);
    mem_free(j->kl_of);
    training_finish(&j->t);
}

static const struct opt options[] = {
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
    {OPT_STR, 'B', "budget", offsetof(struct tune_job, methods.budget_text), "N|P%",
     "entries that each KV head may cache, or a fraction of --prompt",
     .absent = "128, for methods that take one"},
    {OPT_STR, 0, "gates", offsetof(struct tune_job, methods.gates_file), "FILE",
     "trained gates of the method, a file or the name of shipped ones"},
    {OPT_FLAG, 0, "control", offsetof(struct tune_job, control), NULL,
     "steps without evictions, from the next tokens; checks are under the method all the same"},
    {OPT_STR, 'o', "output", offsetof(struct tune_job, t.out), "MODEL.gguf|ADAPTER.safetensors",
     "the new model, or only its low-rank weights"},
    {OPT_WORD, 0, "type", offsetof(struct tune_job, type), "T", "how the new model stores matrices",
     "f16", .words = type_words},
    {OPT_INT, 0, "rank", offsetof(struct tune_job, rank), "R",
     "learn low-rank changes of this rank; 0: all weights", "0", .max = 4096},
    {OPT_REAL, 0, "alpha", offsetof(struct tune_job, alpha), "A", "their weight times R", "0",
     .absent = "2 R", .max = 1e6},
    {OPT_STR, 0, "targets", offsetof(struct tune_job, targets), "LIST",
     "matrices that they change: q, k, v, o, gate, up, down", TARGETS},
    {OPT_INT, 0, "steps", offsetof(struct tune_job, t.steps), "N",
     "steps of the optimizer; 0: a check of the model as it is", "100", .max = 1 << 30},
    {OPT_INT, 0, "until", offsetof(struct tune_job, t.until), "N",
     "validate and save after this number of steps; repeat the command to continue", "0",
     .absent = "all", .min = 1, .max = 1 << 30},
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
    {OPT_INT, 0, "length", offsetof(struct tune_job, t.length), "T", "tokens of a pack", "256",
     .min = 2, .max = 1 << 20},
    {OPT_INT, 0, "prompt", offsetof(struct tune_job, prompt), "N",
     "tokens of a document that are computed together, before the decoded tokens", "0",
     .absent = "a quarter", .min = 1, .max = 1 << 20},
    {OPT_INT, 0, "accumulate", offsetof(struct tune_job, accumulate), "N",
     "packs, or questions, of a step", "1", .min = 1, .max = 1 << 20},
    {OPT_INT, 0, "check-every", offsetof(struct tune_job, t.check_every), "N",
     "steps between validations; 0: no validation", OPT_TEXT(CHECK_EVERY), .max = 1 << 30},
    {OPT_INT, 0, "check-docs", offsetof(struct tune_job, t.check_docs), "N",
     "documents, or questions, of a check", OPT_TEXT(CHECK_DOCS), .min = 1, .max = 1 << 20},
    {OPT_GROUP, 0, NULL, offsetof(struct tune_job, t), .group = training_options},
    {.type = OPT_END},
};

static int cmd_tune(const struct command *self, void *request, int n, char **operand)
{
    struct tune_job *j = request;
    struct kvf_diag d = {""};
    for (int i = 0; i < TRAIN_CHECK_BUDGETS; i++)
        j->first[i] = j->last[i] = NAN;
    int err = files_of_data(&j->t.data, operand, n, &d);
    if (!err)
        err = run(j, &d);
    finish(j);
    return !err && signals_caught() ? 128 + signals_caught() : command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"128 + N", "It was stopped by signal N, and saved; repeat the command to continue."},
    {NULL, NULL},
};

const struct command command_tune = {
    .name = "tune",
    .group = "training",
    .summary = "fine-tune a model's weights under a small cache",
    .example = "kvfate tune --data text.txt --method window -B 16 --length 48 --steps 2 "
               "--check-every 0 --rank 4 -o tuned.gguf",
    .needs = "--data FILE... -o MODEL.gguf",
    .operands = {NULL, "file", 0, -1},
    .options = options,
    .request_bytes = sizeof(struct tune_job),
    .exits = exits,
    .run = cmd_tune,
};
