/* run_lines.c - runs the lines of a file of prompts, several at a time.
 *
 * Lines are stored in a ring in their order. The prompt of a line is prefilled separately. Then
 * its tokens are generated together with those of the other open lines, one token of each per
 * step, so that the weights are read once for all lines. Each line has its own session, recorder
 * and sampler, so its result does not depend on the other lines. Answers are reported in the order
 * of the lines.
 */
#include "cli/run_lines.h"

#include <stdlib.h>
#include <string.h>

#include <kvf/trace.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "cli/run_cells.h"
#include "cli/run_json.h"
#include "engine/decode/engine.h"

enum { TOGETHER = 16 };
/* capacity of the ring, in multiples of the open lines; finished lines wait in it for their turn */
enum { KEPT = 4 };
static const int64_t GIB = (int64_t)1 << 30;

/* A line in the ring. */
struct slot {
    struct run u;
    const struct jsonl_line *line;
    char *out;       /* path of the trace, owned; NULL if none is written */
    bool open;       /* tokens are being generated */
    struct buf json; /* with --json: the object of the finished line */
    int64_t bytes;
    int err;
    struct kvf_diag why;
};

struct run_lines {
    struct run *u; /* options and model; borrowed */
    struct batch *batch;
    int most, n_open;
    int64_t bytes, room;        /* memory use of the open lines, and its limit */
    struct slot *ring;          /* [KEPT * most] */
    int first, n;               /* start and number of lines in the ring */
    struct shared_cache shared; /* of the context of several questions */
    struct session **session;   /* [most] scratch of a step */
    int32_t *id;
    struct slot **of;
};

/* ---- one line */

static int print(const struct run *u, const struct buf *b, struct kvf_diag *d)
{
    return b->err ? b->err : crew_print(u->batch.crew, b->data, b->len, d);
}

static int print_line(const struct run *u, const char *id, struct kvf_diag *d)
{
    struct buf b = {0};
    buf_char(&b, '{');
    json_put_member_str(&b, "id", id);
    json_put_key(&b, "text");
    json_put_str(&b, u->answer.data ? u->answer.data : "", u->answer.len);
    json_put_member_num(&b, "tokens", u->n_generated);
    run_put_ids(u, &b);
    if (!u->scores)
        json_put_member_str(&b, "stop", answer_stop_name(u->stop));
    if (u->scores) {
        json_put_member_num(&b, "logprob", -u->nll);
        json_put_key(&b, "greedy");
        buf_str(&b, u->greedy ? "true" : "false");
    }
    buf_str(&b, "}\n");
    int err = print(u, &b, d);
    buf_finish(&b);
    return err;
}

/* Sets *ret_ids to the tokens of a text, and *ret_next to those that its continuation adds. An
 * empty text gives the token before a text. The caller frees both arrays. */
static int read_texts(const struct tokenizer *t, const struct jsonl_line *x, int32_t **ret_ids,
                      int *ret_n, int32_t **ret_next, int *ret_n_next, struct kvf_diag *d)
{
    const unsigned flags = TOKENIZER_MARKS | TOKENIZER_BOS;
    struct buf text = {0};
    int32_t start = tokenizer_before_text(t);
    int n = 0, n_whole = 0;
    buf_printf(&text, "%s%s", x->text, json_str(x->continuation, ""));
    int err = text.err ? text.err
                       : tokenizer_encode(t, x->text, strlen(x->text), flags, ret_ids, &n, d);
    if (!err)
        err = tokenizer_encode(t, text.data, text.len, flags, ret_next, &n_whole, d);
    buf_finish(&text);
    if (!err && n_whole <= n)
        err = kvf_fail(d, KVF_E_FORMAT, "the continuation adds no token to the text");
    if (!err && n == 0 && start < 0)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "the text is empty, and the vocabulary has no mark of a start");
    if (err)
        return err;
    *ret_n_next = n_whole - n;
    memmove(*ret_next, *ret_next + n, (size_t)*ret_n_next * sizeof **ret_next);
    if (n == 0)
        **ret_ids = start; /* the array has room for one more */
    *ret_n = n ? n : 1;
    return KVF_OK;
}

/* Opens a line with a continuation, whose tokens are forced, or with a prompt of ids. */
static int open_tokens(struct run *u, const struct jsonl_line *x, struct kvf_diag *d)
{
    int32_t *ids = NULL, *next = NULL;
    int n = 0, n_next = 0, vocab = u->r.engine->config.vocab;
    int err = x->ids ? jsonl_ids(x->ids, vocab, &ids, &n, d)
                     : read_texts(u->r.engine->tokenizer, x, &ids, &n, &next, &n_next, d);
    if (!err && x->ids && x->continuation)
        err = jsonl_ids(x->continuation, vocab, &next, &n_next, d);
    if (!err && x->continuation) {
        u->force.n_text = n_next;
        u->force.text_ids = next;
        u->force.scored = true;
        next = NULL;
        u->r.n_predict = -1;
        u->r.force = &u->force;
    }
    if (!err)
        err = runner_take_prompt(&u->r, ids, n, d);
    mem_free(ids);
    mem_free(next);
    return err;
}

static int open_line(struct run *u, const struct jsonl_line *x, struct kvf_diag *d)
{
    struct prompt *p = &u->r.prompt;
    u->r.n_predict = x->n >= 0 ? x->n : u->n_predict;
    u->r.seed = x->seed >= 0 ? x->seed : u->seed;
    p->given = x->prompt ? x->prompt : x->text;
    p->raw = x->text != NULL;
    p->line = true;
    p->messages = x->messages;
    p->reply = x->answer_prefix;
    p->ask = x->question;
    p->join = x->join;
    u->until = x->until;
    u->scores = x->continuation != NULL;
    u->tells_ids = x->ids && !u->scores;
    return u->scores || x->ids ? open_tokens(u, x, d) : runner_open_prompt(&u->r, d);
}

static void forget_line(struct run *u)
{
    run_forget(u);
    if (u->scores)
        force_close(&u->force);
    u->scores = false;
}

/* ---- several lines */

static struct slot *slot_at(const struct run_lines *a, int i)
{
    return &a->ring[(a->first + i) % (KEPT * a->most)];
}

/* Returns the memory limit of the open lines, in bytes; a single line may exceed it. It is --room,
 * if given. On a device, it is otherwise half of the machine's memory, because host copies are long
 * and the device needs many open lines. On the CPU it is 1 GiB, because a job on a shared machine
 * may have little memory. */
static int64_t memory_limit(const struct jsonl *b, bool device)
{
    int64_t half = device ? (int64_t)(os_memory() / 2) : 0;
    if (b->room)
        return b->room * GIB;
    return half > GIB ? half : GIB;
}

/* Updates the progress bar. share: completed fraction of the line that is being prefilled. */
static void tell(void *ctx, double share)
{
    struct run_lines *a = ctx;
    double done = (double)a->u->batch.told + share;
    for (int i = 0; i < a->n; i++) {
        const struct slot *x = slot_at(a, i);
        done += x->open ? run_share(&x->u, session_length(x->u.session)) : 1;
    }
    progress_at(&a->u->batch.bar, done);
}

int run_lines_open(struct run *u, struct run_lines **ret, struct kvf_diag *d)
{
    struct run_lines *a = MEM_NEW(struct run_lines, 1);
    int err = a ? KVF_OK : KVF_E_NOMEM;
    if (err)
        return kvf_fail(d, err, "not enough memory for %s", u->batch.file);
    a->u = u;
    a->most = u->batch.together ? (int)u->batch.together : TOGETHER;
    if (crew_size(u->batch.crew) > 1)
        a->most = 1; /* a rank may receive a single line */
    a->room = memory_limit(&u->batch, u->r.engine->device != NULL);
    size_t n = (size_t)a->most;
    a->ring = MEM_NEW(struct slot, KEPT * n);
    a->session = MEM_NEW(struct session *, n);
    a->id = MEM_NEW(int32_t, n);
    a->of = MEM_NEW(struct slot *, n);
    if (!a->ring || !a->session || !a->id || !a->of)
        err = KVF_E_NOMEM;
    if (!err && a->most > 1)
        err = batch_create(u->r.engine, a->most, &a->batch);
    *ret = a;
    return err ? kvf_fail(d, err, "not enough memory for %d lines side by side", a->most) : KVF_OK;
}

static void forget(struct slot *x)
{
    forget_line(&x->u);
    mem_free(x->out);
    buf_finish(&x->json);
    *x = (struct slot){.open = false};
}

void run_lines_close(struct run_lines *a)
{
    if (!a)
        return;
    for (int i = 0; a->ring && i < a->n; i++)
        forget(slot_at(a, i));
    batch_destroy(a->batch);
    shared_cache_close(&a->shared);
    mem_free(a->ring);
    mem_free(a->session);
    mem_free(a->id);
    mem_free(a->of);
    mem_free(a);
}

/* Finishes an open line, which an error may have ended, and frees its memory. */
static void finish_line(struct run_lines *a, struct slot *x, int err)
{
    x->err = run_end(&x->u, err, &x->why);
    a->u->batch.cut += !x->err && x->u.stop == STOP_CONTEXT;
    if (!x->err && x->u.json)
        run_json(&x->u, x->line->id, &x->json);
    run_let_go(&x->u);
    x->open = false;
    a->n_open--;
    a->bytes -= x->bytes;
}

static int feed(struct run_lines *a, int n)
{
    if (!a->batch)
        return n ? session_step(a->session[0], a->id[0]) : KVF_OK;
    return batch_step(a->batch, a->session, n, a->id);
}

/* Generates and feeds a token of every open line. */
static void step(struct run_lines *a)
{
    int n = 0, err;
    for (int i = 0; i < a->n; i++) {
        struct slot *x = slot_at(a, i);
        if (!x->open)
            continue;
        if (!run_next(&x->u, &a->id[n], &err)) {
            finish_line(a, x, err);
            continue;
        }
        a->session[n] = x->u.session;
        a->of[n++] = x;
    }
    err = feed(a, n);
    for (int i = 0; i < n; i++) {
        int own = err ? err : recorder_err(a->of[i]->u.rec);
        if (own)
            finish_line(a, a->of[i], own);
    }
    tell(a, 0);
}

/* Reports the finished lines up to the first open line. Returns an error that ends the loop. */
static int report_finished(struct run_lines *a, jsonl_done done, void *loop)
{
    int err = KVF_OK;
    while (!err && a->n > 0 && !slot_at(a, 0)->open) {
        struct slot *x = slot_at(a, 0);
        if (!x->err && x->u.json)
            x->err = print(&x->u, &x->json, &x->why);
        else if (!x->err && !x->out && !x->u.cells)
            x->err = print_line(&x->u, x->line->id, &x->why);
        err = done(loop, x->line, x->err, &x->why);
        forget(x);
        a->first = (a->first + 1) % (KEPT * a->most);
        a->n--;
    }
    return err;
}

static int64_t bytes_of(const struct run *u)
{
    const struct model_config *m = &u->r.engine->config;
    const struct cache_config c = {.type = execution_kv_type(&u->r.how),
                                   .head_dim = m->head_dim,
                                   .n_layers = m->n_layers,
                                   .n_heads = u->r.methods.cache_heads};
    int cap = runner_cap(&u->r), chunk = (int)u->r.how.chunk;
    chunk = chunk > 0 ? chunk : u->r.engine->backend->rows;
    return cache_bytes(&c, cap)
           + session_buffer_bytes(m, cap, chunk, par_threads(u->r.engine->pool));
}

/* Opens a slot with the options of the batch and the prompt of the line. */
static int take(struct run_lines *a, struct slot *x, const struct jsonl_line *line, const char *out)
{
    *x = (struct slot){.u = *a->u, .line = line};
    x->u.r.force = &x->u.force;
    x->out = out ? mem_strdup(out) : NULL;
    x->u.out = x->out;
    x->u.tell = tell;
    x->u.tell_ctx = a;
    if (out && !x->out)
        return KVF_E_NOMEM;
    int err = open_line(&x->u, line, &x->why);
    x->bytes = err ? 0 : bytes_of(&x->u);
    return err;
}

static bool fits_memory(const struct run_lines *a, const struct slot *x)
{
    return a->n_open == 0 || (a->n_open < a->most && a->bytes + x->bytes <= a->room);
}

/* Prefills the prompt of a line. With several methods, runs the complete line. */
static void begin(struct run_lines *a, struct slot *x)
{
    struct run *u = &x->u;
    u->shared = x->line->more || a->shared.ids ? &a->shared : NULL;
    if (u->cells)
        x->err = run_same_context(u, &x->why);
    if (!x->err)
        x->err = u->cells ? run_cells_line(u, x->line->id, &x->why) : run_begin(u, &x->why);
    /* the first line printed the notes, which apply to all lines */
    a->u->quiet = a->u->r.noted = true;
    a->u->out_gram = u->out_gram;
    if (u->cells)
        a->u->batch.cut = u->batch.cut;
    if (!x->line->more)
        shared_cache_close(&a->shared);
    x->open = !x->err && !u->cells;
    a->n_open += x->open;
    a->bytes += x->open ? x->bytes : 0;
    if (!x->open)
        run_let_go(u);
}

int run_lines_begin(void *ctx, const struct jsonl_line *line, const char *out, jsonl_done done,
                    void *loop)
{
    struct run_lines *a = ctx;
    int err = KVF_OK;
    while (!err && a->n == KEPT * a->most) {
        step(a);
        err = report_finished(a, done, loop);
    }
    if (err)
        return err;
    struct slot *x = slot_at(a, a->n);
    x->err = take(a, x, line, out);
    while (!x->err && !fits_memory(a, x))
        step(a);
    if (!x->err)
        begin(a, x);
    a->n++;
    while (a->most == 1 && a->n_open)
        step(a);
    return report_finished(a, done, loop);
}

int run_lines_rest(void *ctx, jsonl_done done, void *loop)
{
    struct run_lines *a = ctx;
    int err = KVF_OK;
    while (!err && a->n > 0) {
        step(a);
        err = report_finished(a, done, loop);
    }
    return err;
}

/* ---- existing traces */

/* Compares the length of the recorded answer with -n. Returns KVF_E_ARG with a sentence if the
 * answer is longer, or if it is shorter and only the token limit ended it. */
static int check_answer(const struct run *u, const char *trace, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    struct json *result = NULL;
    int err = kvf_open(trace, KVF_OPEN_STRICT, &t, d);
    const char *note = err ? NULL : kvf_note(t, "result");
    if (note && json_parse(note, strlen(note), &result, NULL) != KVF_OK)
        result = NULL;
    int64_t n = json_int(json_get(result, "generated_tokens"), -1), asked = u->r.n_predict;
    const char *stop = json_str(json_get(result, "stop"), NULL); /* older traces have no "stop" */
    bool goes_on = stop ? strcmp(stop, "length") == 0 : u->r.ignore_eos && !u->until;
    bool more = asked >= 0 && n > asked, fewer = n >= 0 && n < asked && goes_on;
    if (stop && strcmp(stop, "interrupted") == 0)
        err = kvf_fail(d, KVF_E_ARG, "%s has an answer that was interrupted", trace);
    else if (more || fewer)
        err = kvf_fail(d, KVF_E_ARG, "%s has an answer of %lld tokens, and %lld are asked for (-n)",
                       trace, (long long)n, (long long)asked);
    else if (stop && strcmp(stop, "context") == 0 && kvf_n_steps(t) < (uint32_t)runner_cap(&u->r))
        err = kvf_fail(d, KVF_E_ARG, "%s has an answer that a smaller context (-c) cut off", trace);
    json_free(result);
    kvf_close(t);
    return err;
}

int run_lines_check(void *ctx, const struct jsonl_line *x, const char *trace, struct kvf_diag *d)
{
    struct run *u = ((struct run_lines *)ctx)->u;
    bool quiet = u->quiet;
    u->quiet = true;
    int err = open_line(u, x, d);
    if (!err)
        err = run_is_that_of(u, trace, d);
    if (!err)
        err = check_answer(u, trace, d);
    forget_line(u);
    u->quiet = quiet;
    return err;
}
