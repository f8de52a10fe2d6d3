/* run.c - runs one prompt: prefill, decode steps, and the recording of a trace. */
#include "cli/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <kvf/version.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/files.h"
#include "cli/resume.h"
#include "cli/run_notes.h"
#include "cli/shown.h"
#include "cli/signals.h"
#include "engine/experiment/divergence.h"
#include "engine/model/gguf.h"
#include "engine/model/out_gram.h"

const char *answer_stop_name(enum answer_stop why)
{
    static const char *const name[] = {NULL, "eos", "until", "length", "context", "interrupted"};
    return name[why];
}

/* Appends the object "replay" to the run header if tokens were forced or a plan was replayed. */
static void put_replay(struct run *u, struct buf *b)
{
    const struct plan *p = u->force.plan;
    if (!u->force.ids && !p)
        return;
    json_put_key(b, "replay");
    buf_char(b, '{');
    json_put_member_num(b, "forced_tokens", fmin(u->force.n_ids, (double)u->r.n_predict));
    if (p)
        json_put_member_str(b, "method", p->method);
    buf_char(b, '}');
}

/* Appends the options of raw blocks, --watch and --watch-queries, to the run header. */
static void put_watch(const struct run *u, struct buf *b)
{
    struct buf text = {0};
    for (int i = 0; i < u->watch_text.n; i++)
        buf_printf(&text, "%s%s", i ? " " : "", u->watch_text.item[i]);
    if (u->watch_text.n && !text.err)
        json_put_member_str(b, "watch", text.data);
    if (u->watch_queries)
        json_put_member_str(b, "watch_queries", u->watch_queries);
    b->err = b->err ? b->err : text.err;
    buf_finish(&text);
}

/* Selects the heads of --probes raw:HEADS, and their sinks. */
static int choose_raw(struct run *u, const struct probe_config *cfg, struct kvf_diag *d)
{
    struct watch *w = &u->watch;
    int err = watch_set_raw(w, u->probes, cfg, d);
    if (err || w->n_raw == 0)
        return err;
    if (u->r.methods.params.positions == POSITIONS_CACHE)
        return kvf_fail(d, KVF_E_ARG,
                        "--probes raw: with positions=cache keys are rotated by their rank in each "
                        "head's cache, at each query anew; leave raw or positions=cache out");
    if (cfg->reads)
        return kvf_fail(d, KVF_E_ARG,
                        "--probes raw: %s reads selected pages of the cache, which the trace does "
                        "not record for each query; leave raw out",
                        u->r.methods.row.name);
    if (!u->r.engine->backend->host_memory && cfg->kv_type != KV_F32)
        return kvf_fail(
            d, KVF_E_ARG,
            "--probes raw: on a device, prompt attention over a cache of type %s rounds "
            "queries; use --kv-type f32, --exact or --device cpu",
            kv_type_name(cfg->kv_type));
    for (int i = 0; i < w->n_raw; i++) {
        const float *sink = u->r.engine->weights->layer[w->raw[i].layer].vector[T_SINKS];
        if (sink)
            w->sink[i] = sink[w->raw[i].head];
    }
    return KVF_OK;
}

/* Selects the heads and tokens of raw data, and adds the probes that they need to *set. */
static int choose_watch(struct run *u, struct probe_config *cfg, unsigned *set, struct kvf_diag *d)
{
    struct watch *w = &u->watch;
    int err = KVF_OK;
    for (int i = 0; !err && i < u->watch_text.n; i++)
        err = watch_add_tokens(w, u->watch_text.item[i], cfg, d);
    if (!err && u->automatic.watch[0])
        err = watch_add_tokens(w, u->automatic.watch, cfg, d);
    if (!err && u->watch_queries)
        err = watch_set_queries(w, u->watch_queries, cfg, d);
    if (!err)
        err = choose_raw(u, cfg, d);
    if (!err)
        err = watch_settle(w, cfg, set, d);
    if (!err && w->turned && u->r.methods.params.positions == POSITIONS_CACHE)
        err = kvf_fail(d, KVF_E_ARG,
                       "--watch-queries: with positions=cache queries are rotated by their rank in "
                       "each head's cache; use @pre");
    cfg->watch = w;
    if (!err && !u->quiet && (u->watch_text.n || u->watch_queries))
        note_watch(w, cfg->shape.head_dim);
    return err;
}

/* Builds the run header. It contains every setting that the results depend on, and no value that
 * may differ between equal runs, such as a time, a path or the number of threads. */
static void build_header(struct run *u, struct buf *b)
{
    struct runner *r = &u->r;
    char hash[33];
    tokenizer_hash(r->engine->tokenizer, hash);
    buf_str(b, "{\"kvf\":{");
    json_put_member_str(b, "version", kvf_version());
    buf_str(b, "},\"model\":{");
    engine_put_model(r->engine, b);
    buf_str(b, "},\"tokenizer\":{");
    json_put_member_str(b, "hash", hash);
    buf_str(b, "},\"run\":{");
    json_put_member_num(b, "prompt_tokens", r->prompt.n_ids);
    if (r->prompt.n_question) {
        json_put_member_str(b, "question", "unknown");
        json_put_member_num(b, "question_tokens", r->prompt.n_question);
    }
    json_put_member_num(b, "seed", (double)r->seed);
    json_put_member_num(b, "temperature", r->temperature);
    json_put_member_num(b, "top_p", r->top_p);
    json_put_member_str(b, "probes", u->probes);
    if (u->shadows) {
        char names[64];
        shadows_names(u->shadows, names, sizeof names);
        json_put_member_str(b, "shadow", names);
    }
    if (u->automatic.every > 1)
        json_put_member_num(b, "dilution_every", u->automatic.every);
    put_watch(u, b);
    if (u->score_pipe.name[0])
        json_put_member_str(b, "external_score", u->score_pipe.name);
    json_put_member_str(b, "precision", engine_precision(r->engine));
    json_put_member_str(b, "kv_type", kv_type_name(execution_kv_type(&r->how)));
    buf_char(b, '}');
    auto_probes_put(&u->automatic, b);
    prompt_put_turns(&r->prompt, r->engine->tokenizer, b);
    spans_put(&u->spans, b);
    methods_put(b, &r->methods, &r->engine->config, r->prompt.n_ids);
    put_replay(u, b);
    buf_char(b, '}');
}

static bool keeps_entries(unsigned shadows)
{
    bool some = false;
    for (int i = 0; probe_table[i]; i++)
        some |= shadows >> i & 1 && probe_table[i]->wants & PROBE_SHADOW_ENTRIES;
    return some;
}

/* Returns true if the trace can begin with the recording of the context of an earlier question.
 * Settings that depend on the tokens of a prompt prevent it. */
static bool shares_trace(const struct run *u)
{
    return u->shared && u->r.prompt.n_question && !u->shadows && !u->spans.n_sets
           && !force_given(&u->force) && !u->watch_text.n && !u->watch_queries
           && u->r.engine->backend->host_memory;
}

/* Chooses what --probes auto records of this run. Questions about one context share its recording,
 * so the choice must not depend on a question. */
static void choose_auto(struct run *u)
{
    const struct runner *r = &u->r;
    const struct model_config *m = &r->engine->config;
    bool in_cache = r->methods.params.positions == POSITIONS_CACHE;
    const struct auto_run x = {.probes = u->probes,
                               .layers = m->n_layers,
                               .head_dim = m->head_dim,
                               .n_prompt = r->prompt.n_ids,
                               .n_tokens = r->prompt.n_question ? r->prompt.n_ids : runner_cap(r),
                               .on_device = !r->engine->backend->host_memory,
                               .shadows = !in_cache && !r->prompt.n_question,
                               .has_watch = u->watch_text.n > 0,
                               .has_queries = u->watch_queries != NULL};
    u->automatic = auto_probes_choose(&x);
    u->shadows = u->asked_shadows;
    for (int i = 0; probe_table[i]; i++)
        if (probe_table[i]->shadow)
            u->shadows |= u->automatic.set & 1u << i;
}

static int open_recording(struct run *u, struct kvf_diag *d)
{
    const struct model_config *m = &u->r.engine->config;
    choose_auto(u);
    struct probe_config cfg = {
        .every = u->automatic.every,
        .shape = {m->n_layers, m->n_heads, u->r.methods.cache_heads, m->head_dim},
        .cap = runner_cap(&u->r),
        .kernels = &u->r.engine->kernels,
        .gate_column = methods_gate_column(&u->r.methods),
        .reads = methods_read_pages(&u->r.methods),
        .evicts = methods_evict(&u->r.methods),
        .shadow_entries = keeps_entries(u->shadows),
        .kv_type = execution_kv_type(&u->r.how),
        .attn_scale = m->attn_scale,
        .attn_cap = m->attn_cap,
        .span_set = u->spans.set,
        .n_span_sets = u->spans.n_sets};
    const struct plan *p = u->force.plan;
    if (p && p->evict_step) {
        cfg.plan_until = p->evict_step;
        cfg.plan_heads = p->n_kv_heads;
        cfg.plan_tokens = p->n_tokens;
    }
    struct buf header = {0};
    unsigned set;
    int err = probes_parse(u->probes, &set, d);
    if (err)
        return err;
    set |= u->shadows | u->automatic.set;
    err = choose_watch(u, &cfg, &set, d);
    if (!err && probes_want(set) & PROBE_VALUE && !u->out_gram)
        err = out_gram(u->r.engine->gguf, m, u->r.engine->pool, &u->out_gram, d);
    if (err)
        return err;
    cfg.out_gram = u->out_gram;
    build_header(u, &header);
    struct recorder_run run = {.header = header.data,
                               .prompt = u->r.prompt.ids,
                               .n_prompt = (size_t)u->r.prompt.n_ids,
                               .existing = u->overwrite ? KVF_OVERWRITE : KVF_REFUSE};
    run.kept = shares_trace(u) && !u->shared->session;
    if (u->resume)
        run.existing = u->overwrite ? KVF_RESUME_OVERWRITE : KVF_RESUME;
    err = header.err;
    if (!err && u->resume)
        err = resume_check(u->out, header.data, &u->r.prompt, d);
    if (!err)
        err = recorder_create(u->out, &run, set, &cfg, par_threads(u->r.engine->pool), &u->rec, d);
    if (!err && !u->r.noted)
        auto_probes_note(&u->automatic);
    if (!err && u->verbose)
        note_recorded(u->probes, u->shadow, set, &cfg);
    buf_finish(&header);
    return err;
}

int run_is_that_of(struct run *u, const char *trace, struct kvf_diag *d)
{
    struct buf header = {0};
    int err = runner_protect(&u->r, &u->spans, d);
    if (err)
        return err;
    choose_auto(u);
    build_header(u, &header);
    err = header.err ? header.err : resume_same(trace, header.data, &u->r.prompt, d);
    buf_finish(&header);
    return err;
}

double run_share(const struct run *u, int fed)
{
    return (double)fed / (double)(prompt_all(&u->r.prompt) + u->r.n_predict);
}

static int on_progress(void *ctx, int done)
{
    struct run *u = ctx;
    progress_update(&u->bar, done);
    if (u->tell)
        u->tell(u->tell_ctx, run_share(u, done));
    return signals_caught();
}

static int record_token(struct run *u, int32_t id, enum kvf_role role)
{
    size_t len;
    const char *text = tokenizer_bytes(u->r.engine->tokenizer, id, &len);
    return u->rec ? recorder_token(u->rec, id, role, text, len) : KVF_OK;
}

/* Returns the role of the next token of the answer. A thought includes the marks <think> and
 * </think>. */
static enum kvf_role answer_role(struct run *u)
{
    static const char open[] = "<think>", close[] = "</think>";
    const struct buf *a = &u->answer;
    const char *mark = u->thinking ? close : open;
    bool was = u->thinking;
    if (!u->may_think)
        return KVF_ROLE_ANSWER;
    const char *at = a->len > u->thought_to ? memmem(a->data + u->thought_to,
                                                     a->len - u->thought_to, mark, strlen(mark))
                                            : NULL;
    if (at) {
        u->thinking = !u->thinking;
        u->thought_to = (size_t)(at - a->data) + strlen(mark);
    }
    return was || u->thinking ? KVF_ROLE_THINK : KVF_ROLE_ANSWER;
}

/* Records the tokens of the context and of the question. */
static int record_prompt(struct run *u)
{
    const struct prompt *p = &u->r.prompt;
    const uint8_t *roles = force_roles(&u->force);
    int err = KVF_OK;
    for (int i = 0; !err && i < prompt_all(p); i++) {
        enum kvf_role own = i < p->n_ids ? KVF_ROLE_PROMPT : KVF_ROLE_QUESTION;
        bool as_forced = roles && i < p->n_ids && roles[i] != KVF_ROLE_QUESTION;
        err = record_token(u, p->ids[i], as_forced ? (enum kvf_role)roles[i] : own);
    }
    return err;
}

static int on_question(void *ctx, int done)
{
    struct run *u = ctx;
    return on_progress(u, u->r.prompt.n_ids + done);
}

int run_same_context(struct run *u, struct kvf_diag *d)
{
    struct shared_cache *c = u->shared;
    const struct prompt *p = &u->r.prompt;
    int at = 0;
    if (!c || !p->n_question)
        return KVF_OK;
    if (!c->ids) {
        c->ids = MEM_NEW(int32_t, (size_t)p->n_ids);
        if (!c->ids)
            return KVF_E_NOMEM;
        memcpy(c->ids, p->ids, (size_t)p->n_ids * sizeof *c->ids);
        c->n = p->n_ids;
    }
    while (at < c->n && at < p->n_ids && c->ids[at] == p->ids[at])
        at++;
    if (at == c->n && at == p->n_ids)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT,
                    "the tokens of the context depend on the question: they differ between two "
                    "questions from token %d on; begin the questions with the same kind of "
                    "character, or ask them in runs of their own",
                    at);
}

void shared_cache_close(struct shared_cache *c)
{
    session_destroy(c->session);
    recorder_forget(c->past);
    mem_free(c->ids);
    *c = (struct shared_cache){NULL};
}

/* Forks the shared cache for a question, with the recording of the context. Returns false if they
 * cannot be shared. A recording that failed later reports its own error. */
static bool fork_shared(struct run *u)
{
    const struct shared_cache *c = u->shared;
    bool host = u->r.engine->backend->host_memory; /* the question runs in chunks */
    struct session_options opt = {
        .cap = runner_cap(&u->r), .chunk = host ? (int)u->r.how.chunk : 1, .recorder = u->rec};
    struct kvf_diag unused;
    if (!c || !c->session || (u->rec && (!c->past || !shares_trace(u)))
        || session_fork(c->session, &opt, &u->session, &unused) != KVF_OK)
        return false;
    if (!u->rec || recorder_continue(u->rec, c->past) != KVF_E_LIMIT)
        return true;
    session_destroy(u->session);
    u->session = NULL;
    return false;
}

/* Creates the session: a fork of the shared cache, if there is one that rotates keys as the run
 * does, or a new one. */
static int open_session(struct run *u, bool *ret_forked, struct kvf_diag *d)
{
    int err = run_same_context(u, d);
    if (err)
        return err;
    *ret_forked = fork_shared(u);
    return *ret_forked ? recorder_err(u->rec) : runner_session(&u->r, u->rec, &u->session, d);
}

/* Keeps the cache, and the recording if there is one, for the next question about the context. A
 * failure only means that the next question prefills the context again. */
static void share(struct run *u)
{
    struct shared_cache *c = u->shared;
    struct kvf_diag unused;
    if (!c || c->session || !u->r.prompt.n_question || (u->rec && !shares_trace(u)))
        return;
    if (u->rec && recorder_keep(u->rec, u->r.prompt.n_ids, &c->past) != KVF_OK)
        return;
    (void)session_fork(u->session, NULL, &c->session, &unused);
}

static int prefill(struct run *u, bool forked)
{
    struct runner *r = &u->r;
    double t0 = clock_seconds();
    int err = record_prompt(u);
    u->bar.on = false;
    if (!u->quiet && !u->batch.file)
        progress_start(&u->bar, "prefill", "tok", prompt_all(&r->prompt));
    if (!err && !forked)
        err = session_prompt(u->session, r->prompt.ids, r->prompt.n_ids, on_progress, u);
    u->prefill_seconds = clock_seconds() - t0;
    if (!err)
        share(u);
    if (!err && r->prompt.n_question)
        err = session_feed(u->session, r->prompt.ids + r->prompt.n_ids, r->prompt.n_question,
                           on_question, u);
    progress_end(&u->bar, session_length(u->session));
    if (err == KVF_E_CANCEL && u->rec)
        recorder_cut(u->rec, session_length(u->session));
    return err;
}

/* Appends the text of a token to the answer, and writes it to stdout if neither a trace nor JSON
 * is produced. Returns false if stdout is closed. */
static bool emit(struct run *u, int32_t id)
{
    size_t len;
    const char *text = tokenizer_bytes(u->r.engine->tokenizer, id, &len);
    buf_add(&u->answer, text, len);
    if (u->tells_ids)
        buf_printf(&u->told_ids, "%c%d", u->told_ids.len ? ',' : '[', (int)id);
    if (u->out || u->json || u->batch.file)
        return true;
    shown_piece(text, len);
    return fflush(stdout) == 0 && !ferror(stdout);
}

static void score(struct run *u, int32_t id)
{
    struct token_score x = token_score(session_logits(u->session), u->r.engine->config.vocab, id);
    u->nll += x.nll;
    u->greedy = u->greedy && x.right;
}

bool run_cut(const struct json *until, struct buf *answer)
{
    char *first = NULL;
    if (!answer->data)
        return false;
    for (const struct json *m = json_first(until); m; m = json_next(m)) {
        char *at = strstr(answer->data, json_str(m, ""));
        if (at && (!first || at < first))
            first = at;
    }
    if (!first)
        return false;
    answer->len = (size_t)(first - answer->data);
    *first = 0;
    return true;
}

static int begin_decode(struct run *u)
{
    struct runner *r = &u->r;
    u->greedy = true;
    u->nll = 0;
    u->decode_begin = clock_seconds();
    u->decoding = true;
    u->bar.on = false;
    if (!u->quiet && u->out && !u->batch.file)
        progress_start(&u->bar, "decode", "tok", r->n_predict);
    session_set_sampler(u->session, &u->sampler);
    return sampler_init(&u->sampler, r->temperature, r->top_p, (uint64_t)r->seed,
                        r->engine->config.vocab);
}

static bool end_answer(struct run *u, enum answer_stop why)
{
    u->stop = why;
    return false;
}

bool run_next(struct run *u, int32_t *ret_id, int *ret_err)
{
    struct runner *r = &u->r;
    int n = u->n_generated;
    bool forced = n < u->force.n_ids;
    *ret_err = KVF_OK;
    if (signals_caught())
        return end_answer(u, STOP_INTERRUPTED);
    if (n >= r->n_predict)
        return end_answer(u, STOP_LENGTH);
    int32_t id = forced ? u->force.ids[n] : session_next(u->session);
    if (!forced && !r->ignore_eos && tokenizer_is_eog(r->engine->tokenizer, id))
        return end_answer(u, STOP_EOS);
    if (u->scores)
        score(u, id);
    if (!emit(u, id))
        return end_answer(u, STOP_INTERRUPTED); /* commands_main() reports the error */
    u->n_generated++;
    if (u->until && run_cut(u->until, &u->answer))
        return end_answer(u, STOP_UNTIL);
    /* the last sampled token is not fed, because no token follows it */
    if (n + 1 == r->n_predict && !forced)
        return end_answer(u, STOP_LENGTH);
    if (session_length(u->session) == runner_cap(r))
        return end_answer(u, u->n_generated == r->n_predict ? STOP_LENGTH : STOP_CONTEXT);
    enum kvf_role role = answer_role(u);
    *ret_id = id;
    *ret_err = record_token(u, id,
                            forced && u->force.roles ? (enum kvf_role)u->force.roles[n] : role);
    return !*ret_err;
}

static void end_decode(struct run *u)
{
    progress_end(&u->bar, u->n_generated);
    u->bar.on = false;
    sampler_finish(&u->sampler);
    u->decoding = false;
    u->decode_seconds = clock_seconds() - u->decode_begin;
}

/* Writes the note "result", which contains only values that equal runs share, and closes the
 * trace. */
static int finish_recording(struct run *u, struct kvf_diag *d)
{
    struct buf b = {0};
    buf_char(&b, '{');
    json_put_member_num(&b, "generated_tokens", u->n_generated);
    if (u->stop)
        json_put_member_str(&b, "stop", answer_stop_name(u->stop));
    json_put_key(&b, "text");
    json_put_str(&b, u->answer.data ? u->answer.data : "", u->answer.len);
    buf_char(&b, '}');
    int err = b.err; /* finish() then abandons the trace */
    if (!err) {
        struct stat st; /* the recorder writes the end of the trace when it closes it */
        err = recorder_finish(u->rec, b.data, d);
        u->rec = NULL;
        if (!err && stat(u->out, &st) == 0)
            u->trace_bytes = (uint64_t)st.st_size;
    }
    buf_finish(&b);
    return err;
}

static const char *why_failed(const struct run *u, int err)
{
    if (err == KVF_E_IO)
        return "no space or no permission";
    return u->resume && err == KVF_E_FORMAT
               ? "the options record other data than the unfinished trace has; it is kept unchanged"
               : kvf_strerror(err);
}

/* Sets the message of a run that failed. A device that failed or has no memory left sets its own
 * message. */
static void say_failed(const struct run *u, int err, struct kvf_diag *d)
{
    const char *out = u->out ? u->out : "run";
    engine_error(u->r.engine, err, d);
    if (u->score_pipe.external.err && u->score_pipe.failed.text[0]) {
        *d = u->score_pipe.failed;
        return;
    }
    if ((err == KVF_E_BACKEND || err == KVF_E_NOMEM) && u->out && d->text[0])
        kvf_diag_prefix(d, "%s: the recorded steps were kept, and --resume continues", out);
    else if (d->text[0])
        kvf_diag_prefix(d, "%s", out);
    else if (err == KVF_E_IO)
        kvf_fail(d, err, "%s: writing failed: %s; the steps that were written stay readable", out,
                 why_failed(u, err));
    else
        kvf_fail(d, err, "%s: %s", out, why_failed(u, err));
}

int run_begin(struct run *u, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (u->out)
        err = runner_output(&u->r, u->out, d);
    if (!err)
        err = file_keep(u->out, u->spans.file, d);
    if (!err)
        err = spans_open(&u->spans, &u->r.prompt, u->r.engine->tokenizer, d);
    if (!err)
        err = runner_protect(&u->r, &u->spans, d);
    if (!err && !u->quiet)
        note_budgets(&u->r);
    u->may_think = !err && chat_may_think(u->r.engine->gguf);
    u->thinking = u->may_think && u->r.prompt.chat_text.thinks;
    signals_catch(); /* from here on a signal must close the trace */
    if (!err && u->out)
        err = open_recording(u, d);
    bool forked = false;
    if (!err)
        err = open_session(u, &forked, d);
    if (err)
        return err;
    err = prefill(u, forked);
    if (err == KVF_E_CANCEL)
        return KVF_OK; /* the completed tokens are recorded; run_next() ends the run */
    if (!err)
        err = begin_decode(u);
    if (err && !d->text[0])
        say_failed(u, err, d);
    return err;
}

int run_end(struct run *u, int err, struct kvf_diag *d)
{
    if (u->decoding)
        end_decode(u);
    err = err ? err : u->answer.err;
    err = err ? err : u->told_ids.err;
    if (!err && u->batch.file && signals_caught())
        return KVF_E_CANCEL; /* a batch contains only complete traces; this one stays unfinished */
    if (err && !d->text[0])
        say_failed(u, err, d);
    if (!err && u->rec)
        err = finish_recording(u, d);
    if (u->resume && err == KVF_E_FORMAT && signals_caught())
        kvf_fail(
            d, err,
            "%s.unfinished is kept as it is: the run was interrupted before it came to its end",
            u->out);
    return err;
}

int run_execute(struct run *u, struct kvf_diag *d)
{
    int32_t id;
    int err = run_begin(u, d);
    if (err)
        return err;
    while (!err && run_next(u, &id, &err)) {
        err = session_step(u->session, id);
        progress_update(&u->bar, u->n_generated);
    }
    return run_end(u, err, d);
}

void run_let_go(struct run *u)
{
    recorder_abandon(u->rec);
    session_destroy(u->session);
    sampler_finish(&u->sampler);
    u->decoding = false;
    u->rec = NULL;
    u->session = NULL;
}

void run_forget(struct run *u)
{
    run_let_go(u);
    runner_forget_prompt(&u->r);
    mem_free(u->r.range);
    u->r.range = NULL;
    u->r.n_ranges = 0;
    watch_free(&u->watch);
    buf_finish(&u->answer);
    buf_finish(&u->told_ids);
    u->n_generated = 0;
    u->stop = STOP_NONE;
    u->thought_to = 0;
}

void run_close(struct run *u)
{
    run_forget(u);
    runner_close(&u->r);
    force_close(&u->force);
    spans_close(&u->spans);
    mem_free(u->out_gram);
}
