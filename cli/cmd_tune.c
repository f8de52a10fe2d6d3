/* cmd_tune.c - a model's own weights, trained to live with a small cache. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stats.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/folders.h"
#include "cli/models.h"
#include "cli/runner.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "cli/train_check.h"
#include "cli/train_files.h"
#include "cli/tune_masks.h"
#include "engine/decode/devices.h"
#include "engine/model/gguf_write.h"
#include "engine/train/tuner.h"

enum { REPLICATES = 2000 };

/* In the order of the words; types of matrices. */
static const char *const type_words[] = {"f16", "q8_0", "q4_1", "f32", NULL};
static const enum weight_type types[] = {WEIGHT_F16, WEIGHT_Q8_0, WEIGHT_Q4_1, WEIGHT_F32};
static const char *const packing_words[] = {"run", "documents", NULL}; /* enum packing */

struct job {
    /* options */
    const char *model, *out, *state_path, *targets, *budgets;
    struct opt_list data, plans;
    struct methods methods;
    int packing, type, device; /* of the words */
    int64_t steps, warmup, length, prompt, accumulate, seed, threads, save_every, check_every,
        check_docs, rank;
    double share, lr, clip, decay, kl, ntp, temperature, alpha;
    bool json, recompute, fresh, control, exact;

    struct train_files files;
    struct tuner_options opt;
    struct engine *engine;
    struct packs *packs, *held; /* held: what checks are on; NULL: none */
    struct tuner *tuner;
    int n_budgets, budget[TRAIN_CHECK_BUDGETS];
    struct pack *doc;       /* [check_docs] of checks */
    struct pass_loss *loss; /* [check_docs] */
    double *kl_of;          /* [check_docs] */
    char hash[33];
    struct buf config, log, tokens_name;
    struct progress bar;
    double first[TRAIN_CHECK_BUDGETS], last[TRAIN_CHECK_BUDGETS]; /* KL of checks; NaN: none */
    int64_t saved, tokens;
    double seconds;
};

/* ---- options ---- */

static bool is_adapter(const struct job *j)
{
    size_t n = strlen(j->out), end = strlen(".safetensors");
    return n > end && strcmp(j->out + n - end, ".safetensors") == 0;
}

static void set_options(struct job *j)
{
    j->opt.optimizer = (struct optimizer){.lr = j->lr,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .decay = j->decay,
                                          .clip = j->clip,
                                          .schedule = SCHEDULE_COSINE,
                                          .warmup = j->warmup >= 0 ? j->warmup : j->steps / 20,
                                          .steps = j->steps};
    j->opt.pass.quality[QUALITY_FWKL] = j->control ? 0 : j->kl;
    j->opt.pass.quality[QUALITY_NTP] = j->control && j->ntp == 0 ? 1 : j->ntp;
    j->opt.pass.temperature = j->temperature;
    j->opt.pass.recompute = j->recompute;
    j->opt.lora.rank = (int)j->rank;
    j->opt.lora.alpha = j->alpha > 0 ? j->alpha : 2.0 * (double)j->rank;
    j->opt.lora.seed = (uint64_t)j->seed;
    j->opt.length = (int)j->length;
    j->opt.accumulate = (int)j->accumulate;
    j->opt.prompt = (int)(j->prompt > 0 ? j->prompt : j->length / 4 + 1);
    j->opt.seed = (uint64_t)j->seed;
}

static int check_options(struct job *j, struct kvf_diag *d)
{
    if (j->data.n == 0 && j->plans.n == 0)
        return kvf_fail(d, KVF_E_ARG,
                        "no --data FILE: text, or JSONL with \"text\" or "
                        "\"question\" and \"answer\"; or --plan P.kvf");
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
    set_options(j);
    int err = lora_parse_targets(j->targets, &j->opt.lora.targets, d);
    if (!err)
        err = train_budgets(j->budgets, j->budget, &j->n_budgets, d);
    if (!err)
        err = methods_parse(&j->methods, d);
    if (!err)
        err = train_files_name(&j->files, j->out, j->state_path, &j->data, d);
    return err ? err : train_files_try(&j->files, d);
}

/* ---- opening ---- */

static int open_packs(struct job *j, double from, double to, struct packs **ret, struct kvf_diag *d)
{
    struct packs_source source = {
        j->data.item, j->data.n, j->opt.length,      (enum packing)j->packing,
        from,         to,        j->tokens_name.data};
    return packs_open(j->engine->tokenizer, &source, ret, d);
}

/* What checks are on: the share of the data that is left out, or all of it beside plans. */
static int open_held(struct job *j, struct kvf_diag *d)
{
    double from = j->plans.n ? 0 : j->share;
    if (j->check_every == 0 || from >= 1 || j->data.n == 0)
        return KVF_OK;
    int err = open_packs(j, from, 1, &j->held, d);
    if (err == KVF_E_LIMIT)
        kvf_fail(d, err,
                 "the share of the data that is checked on gives no document of %d tokens; give "
                 "more text, a smaller --share, or --check-every 0",
                 j->opt.length);
    if (err)
        return err;
    if (packs_count(j->held) < j->check_docs)
        j->check_docs = packs_count(j->held);
    size_t n = (size_t)j->check_docs;
    j->doc = MEM_NEW(struct pack, n);
    j->loss = MEM_NEW(struct pass_loss, n);
    j->kl_of = MEM_NEW(double, n);
    if (!j->doc || !j->loss || !j->kl_of)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        j->doc[i] = packs_get(j->held, j->opt.seed, 0, (int)i);
    return KVF_OK;
}

/* All that the bytes of the result depend on. */
static int put_config(struct job *j)
{
    struct buf *b = &j->config;
    const struct tuner_options *o = &j->opt;
    buf_printf(b, "{\"version\": \"%s\", \"model\": \"%s\", \"model_hash\": \"%s\"", kvf_version(),
               j->engine->config.name, j->hash);
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
    buf_printf(
        b, ", \"data_packs\": %d, \"data_tokens\": %" PRId64 ", \"data_hash\": \"%016" PRIx64 "\"}",
        packs_count(j->packs), packs_tokens(j->packs), packs_hash(j->packs));
    return b->err;
}

static int open_all(struct job *j, struct kvf_diag *d)
{
    struct execution how = {.exact = j->exact, .threads = j->threads, .device = j->device};
    int err = model_learner(&how, &j->opt.learner, d);
    if (!err)
        err = model_open(j->model, &how, &j->engine, d);
    if (!err)
        err = train_files_keep(&j->files, gguf_path(j->engine->gguf), d);
    if (!err && j->length > j->engine->config.n_ctx)
        err = kvf_fail(d, KVF_E_ARG, "--length %" PRId64 " is more than the model's context of %d",
                       j->length, j->engine->config.n_ctx);
    if (!err)
        err = methods_open(&j->methods, j->engine, d);
    if (!err)
        err = tune_check_method(&j->methods, j->engine, d);
    if (err)
        return err;
    if (folder_cache_make("tokens", &j->tokens_name) != KVF_OK)
        buf_finish(&j->tokens_name);
    gguf_hash(j->engine->gguf, j->hash);
    err = j->plans.n ? tune_plans_open(&j->plans, j->engine, j->opt.length, &j->packs, d)
                     : open_packs(j, 0, j->share, &j->packs, d);
    if (!err)
        err = open_held(j, d);
    if (!err)
        err = put_config(j);
    return err ? err : tuner_create(j->engine, j->packs, &j->opt, &j->tuner, d);
}

static struct session_options session_of(const struct job *j, const struct method *row,
                                         const struct method_params *params)
{
    return (struct session_options){.method = row,
                                    .params = params,
                                    .gates = j->methods.gates,
                                    .inputs = &j->methods.inputs,
                                    .kv_type = KV_F32};
}

/* ---- checks: KL(model || student under the method) on text that is not trained on ---- */

static int check_budget(struct job *j, int i, struct kvf_diag *d)
{
    struct method row;
    struct method_params params;
    double low, high;
    int n = (int)j->check_docs,
        err = method_parse(j->methods.method, j->budget[i], &row, &params, d);
    struct session_options s = session_of(j, &row, &params);
    if (!err)
        err = tuner_judge(j->tuner, &s, j->doc, n, j->loss, d);
    for (int k = 0; !err && k < n; k++)
        j->kl_of[k] = j->loss[k].term[QUALITY_FWKL];
    if (err)
        return err;
    j->last[i] = stats_mean(j->kl_of, (size_t)j->check_docs);
    err = stats_bootstrap_mean(j->kl_of, (size_t)j->check_docs, REPLICATES, 1, &low, &high);
    buf_printf(&j->log, ", \"kl_%d\": ", j->budget[i]);
    json_put_num(&j->log, j->last[i]);
    buf_printf(&j->log, ", \"low_%d\": ", j->budget[i]);
    json_put_num(&j->log, low);
    buf_printf(&j->log, ", \"high_%d\": ", j->budget[i]);
    json_put_num(&j->log, high);
    buf_printf(&j->log, ", \"documents_%d\": [", j->budget[i]);
    for (int k = 0; k < n; k++) {
        buf_str(&j->log, k ? ", " : "");
        json_put_num(&j->log, j->loss[k].term[QUALITY_FWKL]);
    }
    buf_char(&j->log, ']');
    return err;
}

/* KL is judged where it is not learnt from, too. */
static int check(struct job *j, struct kvf_diag *d)
{
    buf_printf(&j->log, "{\"check\": %" PRId64, tuner_steps(j->tuner));
    int err = KVF_OK;
    double sum = 0;
    for (int i = 0; !err && i < j->n_budgets; i++) {
        err = check_budget(j, i, d);
        sum += j->last[i];
    }
    buf_str(&j->log, ", \"mean_kl\": ");
    json_put_num(&j->log, sum / j->n_budgets);
    buf_str(&j->log, "}\n");
    if (tuner_steps(j->tuner) == 0)
        memcpy(j->first, j->last, sizeof j->first);
    return err;
}

/* ---- the record ---- */

static void put_step(struct job *j, const struct tuner_step *s)
{
    struct buf *b = &j->log;
    const struct {
        const char *name;
        double value;
    } number[] = {{"loss", s->loss.total},
                  {"fwkl", s->loss.term[QUALITY_FWKL]},
                  {"ntp", s->loss.term[QUALITY_NTP]},
                  {"lr", s->rate},
                  {"norm", s->norm}};
    buf_printf(b, "{\"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"evicted\": %" PRId64, s->step,
               s->tokens, s->left);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        if (isnan(number[i].value)) /* a term that is not asked for */
            continue;
        buf_printf(b, ", \"%s\": ", number[i].name);
        json_put_num(b, number[i].value);
    }
    buf_str(b, "}\n");
}

/* The first check of a record that is taken up again, and the last. */
static void find_checks(struct job *j)
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
            char key[32];
            snprintf(key, sizeof key, "kl_%d", j->budget[i]);
            j->last[i] = json_num(json_get(row, key), NAN);
            j->first[i] = isnan(j->first[i]) ? j->last[i] : j->first[i];
        }
        json_free(row);
    }
}

static int save(struct job *j, struct kvf_diag *d)
{
    int err = j->log.err ? j->log.err : train_files_record(&j->files, &j->log, d);
    if (!err)
        err = tuner_save(j->tuner, j->files.state.data, j->config.data,
                         j->log.data ? j->log.data : "", d);
    j->saved = tuner_steps(j->tuner);
    return err;
}

static int resume(struct job *j, struct kvf_diag *d)
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
    j->saved = err ? -1 : tuner_steps(j->tuner);
    return err;
}

/* The model with its new weights, or what is to be added to them. */
static int write_result(struct job *j, struct kvf_diag *d)
{
    struct buf record = {0};
    buf_printf(&record, "%.*s, \"steps_done\": %" PRId64 "}", (int)j->config.len - 1,
               j->config.data, tuner_steps(j->tuner));
    int err = record.err;
    if (!err && is_adapter(j))
        err = lora_write(tuner_lora(j->tuner), j->out, j->hash, record.data, d);
    else if (!err)
        err = gguf_write(j->out, j->engine->gguf,
                         &(struct gguf_change){.fill = tuned_fill,
                                               .ctx = (void *)(uintptr_t)tuner_weights(j->tuner),
                                               .type = types[j->type],
                                               .key = "kvfate.tuning",
                                               .note = record.data},
                         d);
    buf_finish(&record);
    return err;
}

/* ---- the run ---- */

static int advance(struct job *j, const struct session_options *method, struct kvf_diag *d)
{
    struct tuner_step s;
    double start = clock_seconds();
    int err = tuner_step(j->tuner, method, &s, d);
    if (err)
        return err;
    j->seconds += clock_seconds() - start;
    j->tokens += s.tokens;
    put_step(j, &s);
    if (j->held && (s.step % j->check_every == 0 || s.step == j->steps))
        err = check(j, d);
    if (!err && s.step % j->save_every == 0)
        err = save(j, d);
    progress_update(&j->bar, s.step);
    return err ? err : j->log.err;
}

static void summary_json(const struct job *j)
{
    struct buf b = {0};
    buf_printf(&b,
               "{\"steps\": %" PRId64 ", \"tokens\": %" PRId64
               ", \"seconds\": %.3f, \"parameters\": %zu, \"bytes\": %zu, \"kl\": {",
               tuner_steps(j->tuner), j->tokens, j->seconds, tuner_parameters(j->tuner),
               tuner_bytes(j->tuner));
    for (int i = 0; j->held && i < j->n_budgets; i++) {
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

static void summary(const struct job *j)
{
    double rate = j->seconds > 0 ? (double)j->tokens / j->seconds : 0;
    if (j->json) {
        summary_json(j);
        return;
    }
    printf("%s: step %" PRId64 " of %" PRId64 "; %" PRId64 " tokens at %.0f per second; %zu "
           "parameters\n",
           shown_name(j->out).text, tuner_steps(j->tuner), j->steps, j->tokens, rate,
           tuner_parameters(j->tuner));
    for (int i = 0; j->held && i < j->n_budgets; i++)
        printf("budget %d: KL from the full cache was %.4f nats per token and is %.4f\n",
               j->budget[i], j->first[i], j->last[i]);
}

static int run(struct job *j, struct kvf_diag *d)
{
    int err = check_options(j, d);
    if (!err)
        err = open_all(j, d);
    if (!err)
        err = resume(j, d);
    if (err)
        return err;
    signals_catch();
    struct session_options method = j->control ? (struct session_options){.kv_type = KV_F32}
                                               : session_of(j, &j->methods.row, &j->methods.params);
    progress_start(&j->bar, "tune", "steps", j->steps);
    if (j->held && tuner_steps(j->tuner) == 0)
        err = check(j, d);
    while (!err && !signals_caught() && tuner_steps(j->tuner) < j->steps)
        err = advance(j, &method, d);
    if (!err && j->saved != tuner_steps(j->tuner))
        err = save(j, d);
    progress_end(&j->bar, tuner_steps(j->tuner));
    if (err)
        return err;
    if (signals_caught())
        fprintf(stderr,
                "kvfate tune: interrupted after step %" PRId64 "; the same command goes on\n",
                tuner_steps(j->tuner));
    else
        err = write_result(j, d);
    if (!err)
        summary(j);
    return err;
}

static void finish(struct job *j)
{
    tuner_destroy(j->tuner);
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
    {OPT_STR, 'm', "model", offsetof(struct job, model), "FILE", "model: a GGUF file or a folder",
     .absent = "SmolLM2 in the cache folder"},
    {OPT_LIST, 0, "data", offsetof(struct job, data), "FILE", "text, or JSONL; several may follow"},
    {OPT_LIST, 0, "plan", offsetof(struct job, plans), "P.kvf",
     "train on recorded runs and their evictions; --data is checked on"},
    {OPT_STR, 0, "method", offsetof(struct job, methods.method), "M",
     "the cache method to live with, NAME[:key=value,...]", "gkv"},
    {OPT_INT, 'B', "budget", offsetof(struct job, methods.budget), "N",
     "entries that each KV head may hold", "128", .min = 1, .max = 1 << 24},
    {OPT_STR, 0, "gates", offsetof(struct job, methods.gates_file), "FILE",
     "trained gates of the method, a file or the name of shipped ones"},
    {OPT_FLAG, 0, "control", offsetof(struct job, control), NULL,
     "steps without evictions, from the next tokens; checks are under the method all the same"},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "MODEL",
     "the new model, .gguf; or the low-rank weights alone, .safetensors"},
    {OPT_WORD, 0, "type", offsetof(struct job, type), "T", "how the new model stores matrices",
     "f16", .words = type_words},
    {OPT_INT, 0, "rank", offsetof(struct job, rank), "R",
     "learn low-rank changes of this rank; 0: all weights", "0", .max = 4096},
    {OPT_REAL, 0, "alpha", offsetof(struct job, alpha), "A", "their weight times R", "0",
     .absent = "2 R", .max = 1e6},
    {OPT_STR, 0, "targets", offsetof(struct job, targets), "LIST",
     "matrices that they change: q, k, v, o, gate, up, down", "q,k,v,o"},
    {OPT_INT, 0, "steps", offsetof(struct job, steps), "N", "steps of the optimizer", "100",
     .min = 1, .max = 1 << 30},
    {OPT_INT, 0, "warmup", offsetof(struct job, warmup), "N", "steps to the full rate", "-1",
     .absent = "a 20th", .max = 1 << 30},
    {OPT_REAL, 0, "lr", offsetof(struct job, lr), "X", "rate of AdamW; then half a cosine to 0",
     "1e-5", .min = 1e-12, .max = 1},
    {OPT_REAL, 0, "clip", offsetof(struct job, clip), "X", "most norm of a gradient; 0: any", "1",
     .max = 1e9},
    {OPT_REAL, 0, "decay", offsetof(struct job, decay), "X", "decay of the weights", "0",
     .max = 10},
    {OPT_REAL, 0, "kl", offsetof(struct job, kl), "W", "weight of KL(model || student)", "1",
     .max = 1e6},
    {OPT_REAL, 0, "ntp", offsetof(struct job, ntp), "W", "weight of the next token's -ln p", "0",
     .max = 1e6},
    {OPT_REAL, 0, "temperature", offsetof(struct job, temperature), "T",
     "logits are divided by it before either", "1", .min = 0.01, .max = 100},
    {OPT_INT, 0, "length", offsetof(struct job, length), "T", "tokens of a pack", "256", .min = 2,
     .max = 1 << 20},
    {OPT_INT, 0, "prompt", offsetof(struct job, prompt), "N",
     "tokens of a document that are fed at once, before those that are decoded", "0",
     .absent = "a quarter", .min = 1, .max = 1 << 20},
    {OPT_INT, 0, "accumulate", offsetof(struct job, accumulate), "N", "packs of a step", "1",
     .min = 1, .max = 1 << 20},
    {OPT_WORD, 0, "packing", offsetof(struct job, packing), "P",
     "run: documents follow each other; documents: they do not see each other", "run",
     .words = packing_words},
    {OPT_REAL, 0, "share", offsetof(struct job, share), "S",
     "train on this share of each file, check on the rest", "0.9", .min = 0.01, .max = 1},
    {OPT_INT, 0, "check-every", offsetof(struct job, check_every), "N",
     "steps between checks; 0: none", "50", .max = 1 << 30},
    {OPT_INT, 0, "check-docs", offsetof(struct job, check_docs), "N", "documents of a check", "8",
     .min = 1, .max = 1 << 20},
    {OPT_STR, 0, "budgets", offsetof(struct job, budgets), "N,...", "budgets of a check", "64,128"},
    {OPT_STR, 0, "state", offsetof(struct job, state_path), "FILE", "the checkpoint",
     .absent = "MODEL.state"},
    {OPT_INT, 0, "save-every", offsetof(struct job, save_every), "N", "steps between checkpoints",
     "20", .min = 1, .max = 1 << 30},
    {OPT_FLAG, 0, "fresh", offsetof(struct job, fresh), NULL,
     "start anew although there is a checkpoint"},
    {OPT_FLAG, 0, "recompute", offsetof(struct job, recompute), NULL,
     "an eighth of the memory of activations for a fifth more time"},
    {OPT_INT, 's', "seed", offsetof(struct job, seed), "S",
     "order of the data, start of low-rank weights", "0", .max = 9e15},
    {OPT_INT, 't', "threads", offsetof(struct job, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_WORD, 0, "device", offsetof(struct job, device), "D",
     "what computes the derivatives: the processor, a CUDA device, or one where there is one",
     "cpu", .words = device_words},
    {OPT_FLAG, 0, "exact", offsetof(struct job, exact), NULL,
     "on a device: f32 in the order of the processor's sums, not products of bf16"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL, "one JSON object at the end"},
    {.type = OPT_END},
};

static int cmd_tune(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
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
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_tune,
};
