/* runner.c - opens the model, the methods and the prompt of a run, and checks their lengths. */
#include "cli/runner.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/files.h"
#include "cli/force.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "engine/device/devices.h"
#include "engine/experiment/question.h"

enum { N_PREDICT = 128, MOST_TOKENS = 1 << 24 };

static const char *const kv_type_words[] = {"auto", "f16", "f32", "q8_0", "i16", NULL};
/* in the order of kv_type_words */
static const enum kv_type kv_types[] = {KV_F16, KV_F16, KV_F32, KV_Q8_0, KV_I16};
/* Values of --activations in the order of enum activations. */
static const char *const activation_words[] = {"auto", "16", "8", NULL};

const struct opt execution_options[] = {
    {OPT_WORD, 0, "device", offsetof(struct execution, device), "D",
     "device: cpu, cuda, or auto (cuda if available)", "cpu", .words = device_words},
    {OPT_INT, 0, "chunk", offsetof(struct execution, chunk), "N", "prompt tokens that run together",
     .absent = "256, on a device 1024", .min = 1, .max = 8192},
    {OPT_INT, 't', "threads", offsetof(struct execution, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_WORD, 0, "kv-type", offsetof(struct execution, kv_type), "T",
     "cache elements; auto: f16, with --exact f32", "auto", .words = kv_type_words},
    {OPT_WORD, 0, "activations", offsetof(struct execution, activations), "BITS",
     "bits of integer products: auto, 16 for quantised weights; 16, for floats too; 8, less exact",
     "auto", .words = activation_words},
    {OPT_STR, 0, "rope-scale", offsetof(struct execution, rope_scale), "KIND:F",
     "rotations for texts F times as long: linear, ntk or yarn", .absent = "as in the file"},
    {OPT_STR, 0, "pre", offsetof(struct execution, pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as 'kvfate models' lists them",
     .absent = "as in the file"},
    {OPT_STR, 0, "lora", offsetof(struct execution, lora), "FILE",
     "low-rank changes that are added to the weights: an adapter of PEFT or of tune"},
    {OPT_FLAG, 0, "exact", offsetof(struct execution, exact), NULL,
     "f32 weights, activations and cache"},
    {.type = OPT_END},
};

const struct opt learner_options[] = {
    {OPT_INT, 't', "threads", offsetof(struct execution, threads), "N", "threads",
     .absent = "number of cores", .min = 1, .max = 256},
    {OPT_WORD, 0, "device", offsetof(struct execution, device), "D",
     "device of the derivatives: cpu, cuda, or auto (cuda if available)", "cpu",
     .words = device_words},
    {OPT_STR, 0, "pre", offsetof(struct execution, pre), "NAME",
     "pre-tokenizer of a byte-level vocabulary, as 'kvfate models' lists them",
     .absent = "as in the file"},
    {OPT_FLAG, 0, "exact", offsetof(struct execution, exact), NULL,
     "on a device: f32 in the order of the processor's sums, not products of bf16"},
    {.type = OPT_END},
};

const struct opt runner_prompt_options[] = {
    {OPT_STR, 'm', "model", offsetof(struct runner, model), "FILE",
     "model: a GGUF file or a folder", .absent = "SmolLM2 in the cache folder"},
    {OPT_STR, 'p', "prompt", offsetof(struct runner, prompt.given), "TEXT",
     "prompt, as a user's message"},
    {OPT_STR, 'f', "file", offsetof(struct runner, prompt.file), "FILE",
     "prompt from a file, as a user's message"},
    {OPT_STR, 0, "chat", offsetof(struct runner, prompt.chat), "FILE",
     "messages as JSON: [{\"role\",\"content\"}, ...]"},
    {OPT_STR, 0, "ids", offsetof(struct runner, prompt.ids_file), "FILE",
     "prompt as token ids, separated by white space"},
    {OPT_FLAG, 0, "raw", offsetof(struct runner, prompt.raw), NULL,
     "do not apply the chat template"},
    {OPT_FLAG, 0, "think", offsetof(struct runner, prompt.think), NULL,
     "the chat template with thinking, where it has the switch"},
    {OPT_FLAG, 0, "no-think", offsetof(struct runner, prompt.no_think), NULL,
     "the chat template without thinking"},
    {OPT_STR, 0, "date", offsetof(struct runner, prompt.date), "YYYY-MM-DD",
     "date that the chat template reports as today", .absent = "no date"},
    {.type = OPT_END},
};

const struct opt runner_method_options[] = {
    {OPT_STR, 0, "method", offsetof(struct runner, methods.method), "M",
     "cache method NAME[:key=value,...]", .absent = "full"},
    {OPT_LIST, 0, "override", offsetof(struct runner, methods.override_text), "SET=M",
     "another method for some KV heads, as L0-5K*=window:budget=64"},
    {OPT_STR, 0, "gates", offsetof(struct runner, methods.gates_file), "FILE",
     "trained gates: a safetensors file, or the name of shipped ones"},
    {OPT_STR, 0, "head-budgets", offsetof(struct runner, methods.head_budgets), "FILE",
     "table of budgets per head for methods with allocation=file, JSON or safetensors"},
    {OPT_STR, 'B', "budget", offsetof(struct runner, methods.budget_text), "N|P%",
     "entries that each KV head may cache, or a fraction of the tokens of the prompt"},
    {.type = OPT_END},
};

const char *const question_words[] = {"known", "unknown", NULL};

const struct opt runner_options[] = {
    {OPT_GROUP, 0, "prompt", 0, .group = runner_prompt_options},
    {OPT_WORD, 0, "question", offsetof(struct runner, question), "WHEN",
     "unknown: the method cuts the context before it sees the question, which is fed afterwards",
     .absent = "known; of a recorded prompt, as in its run", .words = question_words,
     .min = QUESTION_KNOWN},
    {OPT_INT, 0, "question-at", offsetof(struct runner, prompt.question_at), "N",
     "with --question unknown, the first token of the question",
     .absent = "the text of --ask, or the last message of a user", .min = 1, .max = 1 << 24},
    {OPT_INT, 'n', "predict", offsetof(struct runner, n_predict), "N",
     "most tokens to generate; the last is in the text, not in the trace", "-1",
     .absent = "128; with --force all its tokens", .max = 1 << 24},
    {OPT_GROUP, 0, NULL, 0, .group = runner_method_options},
    {OPT_INT, 's', "seed", offsetof(struct runner, seed), "S", "seed of sampling", "0",
     .max = 9e15},
    {OPT_REAL, 0, "temp", offsetof(struct runner, temperature), "X", "temperature; 0 = greedy", "0",
     .max = 100},
    {OPT_REAL, 0, "top-p", offsetof(struct runner, top_p), "P",
     "draw from the likeliest tokens of mass P", "1", .min = 1e-9, .max = 1},
    {OPT_FLAG, 0, "ignore-eos", offsetof(struct runner, ignore_eos), NULL,
     "do not stop at the end token"},
    {OPT_INT, 'c', "context", offsetof(struct runner, context), "N", "most tokens in all",
     .absent = "the model's context", .min = 1, .max = 1 << 24},
    {OPT_GROUP, 0, "execution", offsetof(struct runner, how), .group = execution_options},
    {.type = OPT_END},
};

enum kv_type execution_kv_type(const struct execution *x)
{
    return x->kv_type == 0 && x->exact ? KV_F32 : kv_types[x->kv_type];
}

/* Returns true if the prompt is read from the file of forced tokens. */
static bool prompt_is_forced(const struct runner *r)
{
    return !prompt_named(&r->prompt) && force_given(r->force);
}

/* Rejects options of sampling and of the chat template that have no effect. */
static int check_idle(const struct runner *r, struct kvf_diag *d)
{
    const struct prompt *p = &r->prompt;
    const char *cold = "at --temp 0, where the likeliest token is taken (of --method random the "
                       "seed is random:seed=S)";
    const char *bare = p->raw ? "with --raw, which uses no chat template"
                              : "with --ids, which uses no chat template";
    bool plain = p->raw || p->ids_file;
    const struct idle list[] = {
        {r->seed != 0 && r->temperature == 0, "--seed", cold},
        {r->top_p != 1 && r->top_p != 0 && r->temperature == 0, "--top-p", cold},
        {p->think && plain, "--think", bare},
        {p->no_think && plain, "--no-think", bare},
        {p->date && plain, "--date", bare},
        {p->raw && p->ids_file, "--raw", "with --ids: ids are used without conversion"},
        {p->question_at && r->question != QUESTION_UNKNOWN, "--question-at",
         "without --question unknown"},
    };
    return IDLE_CHECK(list, d);
}

static int check_options(struct runner *r, bool needed, struct kvf_diag *d)
{
    r->prompt.apart = r->question == QUESTION_UNKNOWN;
    int err = prompt_check(&r->prompt, needed, d);
    if (!err)
        err = check_idle(r, d);
    if (err)
        return err;
    return methods_parse(&r->methods, r->force && r->force->plan_file ? "plan" : "full", d);
}

/* Opens the forced tokens and the plan, and passes the plan to the methods. */
static int open_force(struct runner *r, struct kvf_diag *d)
{
    int err = force_open(r->force, r->engine, d);
    return err ? err : force_inputs(r->force, &r->engine->config, &r->methods, d);
}

/* Takes a recorded prompt and the question that followed it, if any. With --question known both are
 * the prompt. */
static int take_forced(struct prompt *p, int question, const int32_t *ids, int n, int n_question,
                       struct kvf_diag *d)
{
    if (question == QUESTION_KNOWN) {
        n += n_question;
        n_question = 0;
    }
    int err = prompt_take(p, ids, n + n_question);
    if (err)
        return err;
    if (!n_question && p->apart)
        return question_split(p, NULL, d);
    if (p->question_at && p->question_at != n)
        return kvf_fail(d, KVF_E_ARG,
                        "--question-at %d: in the recorded run the question begins at token %d",
                        (int)p->question_at, n);
    p->n_ids = n;
    p->n_question = n_question;
    return KVF_OK;
}

/* Notes that the text of -p is also the name of a file. */
static void note_name(const char *text)
{
    if (text && strlen(text) < 256 && !strpbrk(text, " \t\n") && access(text, R_OK) == 0)
        fprintf(stderr, "note: -p takes the words '%s' as the prompt; -f %s reads the file\n", text,
                text);
}

static int open_prompt(struct runner *r, struct kvf_diag *d)
{
    const int32_t *ids;
    int n;
    if (!prompt_is_forced(r)) {
        int err = prompt_open(&r->prompt, r->engine, d);
        if (!err && r->prompt.apart)
            err = question_split(&r->prompt, r->engine, d);
        if (!err && r->prompt.note && !r->noted)
            fprintf(stderr, "note: %s\n", r->prompt.note);
        if (!err && !r->noted)
            note_name(r->prompt.given);
        return err;
    }
    const struct prompt *p = &r->prompt;
    const struct idle list[] = {
        {p->raw, "--raw", "where --force or --plan gives the prompt"},
        {p->think, "--think", "where --force or --plan gives the prompt"},
        {p->no_think, "--no-think", "where --force or --plan gives the prompt"},
        {p->date, "--date", "where --force or --plan gives the prompt"}};
    int err = IDLE_CHECK(list, d);
    if (!err)
        err = force_prompt(r->force, &ids, &n, d);
    return err ? err : take_forced(&r->prompt, r->question, ids, n, force_question(r->force), d);
}

/* Returns the maximum number of tokens of prompt and answer. */
static int limit_of(const struct runner *r)
{
    const struct model_config *m = &r->engine->config;
    int limit = r->outlives ? MOST_TOKENS : m->n_ctx_max;
    if (!r->context)
        return r->outlives ? MOST_TOKENS : m->n_ctx;
    return r->context < limit ? (int)r->context : limit;
}

/* Returns the maximum number of tokens of a prompt. Unless the prompt is evicted in chunks, its
 * queries attend to all of it, so the model's context limits it. */
static int prompt_limit(const struct runner *r)
{
    const struct model_config *m = &r->engine->config;
    int limit = limit_of(r), reach = r->context > m->n_ctx ? m->n_ctx_max : m->n_ctx;
    bool cut = r->outlives && !r->cells && r->methods.params.chunk > 0;
    return cut || limit < reach ? limit : reach;
}

/* Returns advice on how to allow more tokens: a larger -c, or RoPE scaling if the model's context
 * is the limit. */
static const char *length_advice(const struct runner *r, int limit)
{
    const struct model_config *m = &r->engine->config;
    if (limit != m->n_ctx_max)
        return " or raise -c";
    if (m->rope_scale.kind)
        return " or raise the factor of --rope-scale";
    return m->turns_scaled ? "" : ", or stretch the model's positions with --rope-scale";
}

/* Finds the ends of turns if a method cuts there, and resolves budgets that are fractions, once the
 * prompt is known. */
static int resolve_budgets(struct runner *r, struct kvf_diag *d)
{
    if (r->cells || r->prompt.n_ids == 0)
        return KVF_OK;
    int err = methods_cut_turns(&r->methods) ? question_turn_ends(&r->prompt, r->engine->tokenizer,
                                                                  &r->turn_end, &r->n_turns, d)
                                             : KVF_OK;
    if (err || !methods_fractional(&r->methods))
        return err;
    const struct budget_prompt x = {r->prompt.n_ids, r->n_turns ? r->turn_end[0] : 0};
    err = methods_resolve(&r->methods, &x, d);
    if (err)
        return err;
    r->outlives = methods_outlive(&r->methods, &r->engine->config);
    return runner_check_context(r, d);
}

static int check_lengths(struct runner *r, struct kvf_diag *d)
{
    int err = resolve_budgets(r, d);
    if (err)
        return err;
    int limit = limit_of(r), most_of_prompt = prompt_limit(r);
    if (r->prompt.n_ids == 0)
        return kvf_fail(d, KVF_E_ARG, "the prompt is empty");
    int all = prompt_all(&r->prompt);
    if (all > most_of_prompt)
        return kvf_fail(d, KVF_E_LIMIT,
                        "the prompt has %d tokens, over the context of %d; shorten it%s", all,
                        most_of_prompt, length_advice(r, most_of_prompt));
    err = r->force ? force_follow(r->force, r->prompt.ids, all, d) : KVF_OK;
    int forced = err || !r->force ? 0 : r->force->n_ids;
    if (r->n_predict < 0)
        r->n_predict = r->force && r->force->ids ? forced : N_PREDICT;
    int room = limit - all + (r->force && r->force->scored);
    if (!err && forced > room && r->n_predict > room)
        err = kvf_fail(d, KVF_E_LIMIT,
                       "the prompt of %d tokens and %d that are forced are over "
                       "the context of %d; -n takes fewer",
                       all, forced, limit);
    /* the last sampled token is not fed */
    int64_t most = runner_cap(r), fed = all + (r->n_predict > 1 ? r->n_predict - 1 : 0);
    fed = fed < most ? fed : most;
    if (!err && r->methods.gates && gates_positions(r->methods.gates) < fed)
        err = kvf_fail(
            d, KVF_E_ARG,
            "--gates %s has values for %d positions, and the run may have %d; use a smaller -n",
            gates_path(r->methods.gates), (int)gates_positions(r->methods.gates), (int)fed);
    return err;
}

int runner_check_context(const struct runner *r, struct kvf_diag *d)
{
    int n_ctx = r->engine->config.n_ctx_max;
    if (r->outlives || r->context <= n_ctx)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "-c %lld is over the model's context of %d tokens; give a smaller -c%s, or a "
                    "method with positions=cache and a cache that fits into the context",
                    (long long)r->context, n_ctx, length_advice(r, n_ctx));
}

static int open_model(struct runner *r, bool needs_prompt, struct kvf_diag *d)
{
    int err = check_options(r, needs_prompt, d);
    if (!err)
        err = model_open(r->model, &r->how, &r->engine, d);
    if (!err && r->force)
        err = open_force(r, d);
    if (!err)
        err = methods_open(&r->methods, r->engine, d);
    if (err || r->cells)
        return err;
    r->outlives = methods_outlive(&r->methods, &r->engine->config);
    return methods_fractional(&r->methods) ? KVF_OK : runner_check_context(r, d);
}

int runner_open_model(struct runner *r, struct kvf_diag *d)
{
    return open_model(r, false, d);
}

int runner_open_prompt(struct runner *r, struct kvf_diag *d)
{
    int err = open_prompt(r, d);
    return err ? err : check_lengths(r, d);
}

int runner_take_prompt(struct runner *r, const int32_t *ids, int n, struct kvf_diag *d)
{
    int err = prompt_take(&r->prompt, ids, n);
    return err ? err : check_lengths(r, d);
}

int runner_open(struct runner *r, struct kvf_diag *d)
{
    int err = open_model(r, !prompt_is_forced(r), d);
    return err ? err : runner_open_prompt(r, d);
}

void runner_forget_prompt(struct runner *r)
{
    prompt_close(&r->prompt);
    mem_free(r->turn_end);
    r->turn_end = NULL;
    r->n_turns = 0;
}

void runner_close(struct runner *r)
{
    methods_close(&r->methods);
    runner_forget_prompt(r);
    engine_close(r->engine);
    mem_free(r->range);
    r->range = NULL;
    r->engine = NULL;
}

int runner_output(const struct runner *r, const char *out, struct kvf_diag *d)
{
    const struct prompt *p = &r->prompt;
    const char *const in[] = {p->file,
                              p->chat,
                              p->ids_file,
                              gguf_path(r->engine->gguf),
                              r->how.lora,
                              r->methods.gates_file,
                              r->methods.head_budgets,
                              r->force ? r->force->file : NULL,
                              r->force ? r->force->plan_file : NULL};
    int err = KVF_OK;
    for (size_t i = 0; !err && i < sizeof in / sizeof *in; i++)
        err = file_keep(out, in[i], d);
    return err;
}

int runner_cap(const struct runner *r)
{
    int64_t limit = limit_of(r), want = prompt_all(&r->prompt) + r->n_predict;
    return (int)(want < limit ? want : limit);
}

/* Adds the system messages of the prompt to the ranges. */
static int add_system(struct runner *r, struct kvf_diag *d)
{
    const struct chat_text *t = &r->prompt.chat_text;
    int64_t *end = NULL;
    int err = t->n_spans ? prompt_ends(&r->prompt, r->engine->tokenizer, &end, d) : KVF_OK;
    if (err)
        kvf_diag_prefix(d, "protect=system");
    for (int i = 0; !err && i < t->n_spans; i++) {
        struct method_range *x = &r->range[r->n_ranges];
        if (t->span[i].role != CHAT_SYSTEM)
            continue;
        *x = (struct method_range){.name = NULL};
        prompt_turn(&r->prompt, end, i, &x->first, &x->end);
        r->n_ranges++;
    }
    mem_free(end);
    return err;
}

/* Adds the spans of a file to the ranges. */
static void add_spans(struct runner *r, const struct spans *spans)
{
    for (int k = 0; spans && k < spans->n; k++)
        for (int i = 0; i < spans->name[k].n; i++)
            r->range[r->n_ranges++] = (struct method_range){
                spans->name[k].name, spans->name[k].range[i][0], spans->name[k].range[i][1]};
}

int runner_ranges(struct runner *r, const struct spans *spans, bool system, struct kvf_diag *d)
{
    int most = r->prompt.chat_text.n_spans;
    for (int k = 0; spans && k < spans->n; k++)
        most += spans->name[k].n;
    mem_free(r->range);
    r->n_ranges = 0;
    r->range = MEM_NEW(struct method_range, (size_t)most + 1);
    if (!r->range)
        return KVF_E_NOMEM;
    add_spans(r, spans);
    return system ? add_system(r, d) : KVF_OK;
}

int runner_protect(struct runner *r, const struct spans *spans, struct kvf_diag *d)
{
    struct methods *w = &r->methods;
    bool some = w->params.protect[0], system = strstr(w->params.protect, "system");
    for (int i = 0; i < w->override_text.n; i++) {
        some |= w->override[i].params.protect[0] != 0;
        system |= strstr(w->override[i].params.protect, "system") != NULL;
    }
    if (!some)
        return KVF_OK;
    int err = runner_ranges(r, spans, system, d);
    w->inputs.prompt = r->prompt.n_ids;
    w->inputs.ranges = r->range;
    w->inputs.n_ranges = r->n_ranges;
    return err ? err : methods_protect(w, d);
}

int runner_session(struct runner *r, struct recorder *rec, struct session **ret_session,
                   struct kvf_diag *d)
{
    const struct methods *w = &r->methods;
    struct session_override *list = MEM_NEW(struct session_override,
                                            (size_t)w->override_text.n + 1);
    if (!list)
        return KVF_E_NOMEM;
    for (int i = 0; i < w->override_text.n; i++)
        list[i] = (struct session_override){&w->override[i].row, &w->override[i].params,
                                            w->override[i].take};
    struct session_options opt = {.method = &w->row,
                                  .params = &w->params,
                                  .overrides = list,
                                  .n_overrides = w->override_text.n,
                                  .gates = w->gates,
                                  .inputs = &w->inputs,
                                  .kv_type = execution_kv_type(&r->how),
                                  .cap = runner_cap(r),
                                  .chunk = (int)r->how.chunk,
                                  .turn_end = r->turn_end,
                                  .n_turns = r->n_turns,
                                  .recorder = rec};
    int err = session_create(r->engine, &opt, ret_session, d);
    mem_free(list);
    return err;
}
