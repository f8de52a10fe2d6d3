/* run_cells.c - runs each line of a batch with several methods and budgets. */
#include "cli/run_cells.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/eval_job.h"
#include "cli/signals.h"
#include "engine/experiment/answers.h"
#include "engine/experiment/divergence.h"

/* The answer of one method at one budget. */
struct outcome {
    struct buf text;
    int tokens;
    enum answer_stop stop; /* STOP_NONE: -n or the context limit ended it */
    double nll;
    bool greedy;
    double entries; /* entries per head of the cache at the end, mean over heads */
};

struct run_cells {
    struct eval_job job;     /* only its methods, budgets, gates and cells are used */
    struct outcome *outcome; /* [job.n] */
    int at;                  /* first cell of the present group */
    /* tokens fed for this line, and their number if all answers have maximum length */
    int64_t fed, of;
};

int run_cells_open(struct run *u, const char *gates, const char *head_budgets, struct kvf_diag *d)
{
    struct run_cells *c = u->cells = MEM_NEW(struct run_cells, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->job.methods = u->cell_methods;
    c->job.budgets = u->cell_budgets ? u->cell_budgets : EVAL_BUDGETS;
    c->job.head_budgets = head_budgets;
    c->job.eval.engine = u->r.engine;
    int err = eval_parse_cells(&c->job, d);
    if (!err && gates)
        err = opt_list_add(&c->job.gates_file, gates);
    if (!err)
        err = eval_open_gates(&c->job, d);
    struct lanes l = {.engine = u->r.engine, .cell = c->job.cell, .cap = INT32_MAX};
    for (int i = 0; !err && i < c->job.n; i++)
        u->r.outlives |= lanes_cap(&l, i) == l.cap;
    c->outcome = err ? NULL : MEM_NEW(struct outcome, (size_t)c->job.n);
    return !err && !c->outcome ? KVF_E_NOMEM : err;
}

void run_cells_close(struct run *u)
{
    struct run_cells *c = u->cells;
    if (!c)
        return;
    eval_close_cells(&c->job);
    opt_list_free(&c->job.gates_file);
    mem_free(c->outcome);
    mem_free(c);
    u->cells = NULL;
}

static void on_tokens(void *ctx, int tokens)
{
    struct run *u = ctx;
    struct run_cells *c = u->cells;
    c->fed += tokens;
    if (u->tell)
        u->tell(u->tell_ctx, (double)c->fed / (double)c->of);
}

static bool take(void *ctx, int i, int32_t id, const float *logits)
{
    struct run *u = ctx;
    struct outcome *s = &u->cells->outcome[u->cells->at + i];
    const struct tokenizer *t = u->r.engine->tokenizer;
    size_t len;
    on_tokens(u, 1);
    if (!u->scores && !u->r.ignore_eos && tokenizer_is_eog(t, id)) {
        s->stop = STOP_EOS;
        return false;
    }
    if (u->scores) {
        struct token_score x = token_score(logits, u->r.engine->config.vocab, id);
        s->nll += x.nll;
        s->greedy = s->greedy && x.right;
    }
    const char *text = tokenizer_bytes(t, id, &len);
    buf_add(&s->text, text, len);
    s->tokens++;
    if (u->until && run_cut(u->until, &s->text))
        s->stop = STOP_UNTIL;
    return !s->stop;
}

static bool stop(void *ctx)
{
    (void)ctx;
    return signals_caught();
}

/* Rejects gates with a value per position that have fewer positions than the line may need. */
static int check_gates(const struct run *u, int cap, struct kvf_diag *d)
{
    const struct eval_job *j = &u->cells->job;
    for (int i = 0; i < j->n; i++)
        if (j->cell[i].gates && gates_positions(j->cell[i].gates) < cap)
            return kvf_fail(
                d, KVF_E_ARG,
                "--gates %s has values for %d positions, and the line may have %d tokens",
                gates_path(j->cell[i].gates), (int)gates_positions(j->cell[i].gates), cap);
    return KVF_OK;
}

/* Finds the system messages of the line if `protect` of some cell names them. */
static int find_ranges(struct run *u, struct kvf_diag *d)
{
    const struct eval_job *j = &u->cells->job;
    bool system = false;
    for (int i = 0; i < j->n; i++)
        system |= strstr(j->cell[i].params.protect, "system") != NULL;
    return system ? runner_ranges(&u->r, NULL, true, d) : KVF_OK;
}

/* Returns the lanes for cells from `at` on, as many as can run together. */
static struct lanes lanes_of(struct run *u, int at)
{
    const struct runner *r = &u->r;
    int left = u->cells->job.n - at;
    return (struct lanes){.engine = r->engine,
                          .kv_type = execution_kv_type(&r->how),
                          .chunk = (int)r->how.chunk,
                          .cap = runner_cap(r),
                          .cell = u->cells->job.cell + at,
                          .n = left < LANES_MOST ? left : LANES_MOST,
                          .ranges = r->range,
                          .n_ranges = r->n_ranges,
                          .spare = true,
                          .progress = on_tokens,
                          .ctx = u};
}

static int64_t count_tokens(struct run *u)
{
    int64_t n = (int64_t)u->cells->job.n * u->r.n_predict;
    for (int at = 0; at < u->cells->job.n; at += LANES_MOST) {
        struct lanes l = lanes_of(u, at);
        n += (int64_t)lanes_prompts(&l) * u->r.prompt.n_ids;
        n += (int64_t)(l.n + 1) * u->r.prompt.n_question;
    }
    return n;
}

/* Runs the group of cells that begins at c->at. */
static int run_some(struct run *u, struct kvf_diag *d)
{
    struct run_cells *c = u->cells;
    const struct runner *r = &u->r;
    struct lanes l = lanes_of(u, c->at);
    const struct answers a = {.forced = u->scores ? u->force.ids : NULL,
                              .most = (int)r->n_predict,
                              .temperature = r->temperature,
                              .top_p = r->top_p,
                              .seed = (uint64_t)r->seed,
                              .take = take,
                              .stop = stop,
                              .ctx = u};
    int err = lanes_open(&l, r->prompt.ids, r->prompt.n_ids, d);
    if (!err && r->prompt.n_question)
        err = lanes_feed(&l, r->prompt.ids + r->prompt.n_ids, r->prompt.n_question);
    if (!err)
        err = answers_run(&l, &a);
    for (int i = 0; !err && i < l.n; i++) {
        const struct model_config *m = &r->engine->config;
        const struct eval_cell *x = &l.cell[i];
        double heads = (double)m->n_layers * session_cache_heads(m, &x->row, &x->params);
        c->outcome[c->at + i].entries = (double)session_cache_stats(lanes_session(&l, i)).entries
                                        / heads;
    }
    lanes_close(&l);
    return err;
}

static void put(const struct run *u, const char *id, int i, struct buf *b)
{
    const struct eval_cell *c = &u->cells->job.cell[i];
    const struct outcome *s = &u->cells->outcome[i];
    buf_char(b, '{');
    json_put_member_str(b, "id", id);
    json_put_member_str(b, "method", c->label);
    json_put_member_num(b, "budget", c->params.budget);
    if (c->params.part)
        json_put_member_num(b, "budget_percent",
                            (double)c->params.part * 100 / (double)BUDGET_WHOLE);
    json_put_key(b, "text");
    json_put_str(b, s->text.data ? s->text.data : "", s->text.len);
    json_put_member_num(b, "tokens", s->tokens);
    if (!u->scores)
        json_put_member_str(b, "stop", answer_stop_name(s->stop));
    json_put_member_num(b, "prompt_tokens", u->r.prompt.n_ids);
    if (u->r.prompt.n_question) {
        json_put_member_str(b, "question", "unknown");
        json_put_member_num(b, "question_tokens", u->r.prompt.n_question);
    }
    json_put_member_num(b, "entries", s->entries);
    if (u->scores) {
        json_put_member_num(b, "logprob", -s->nll);
        json_put_key(b, "greedy");
        buf_str(b, s->greedy ? "true" : "false");
    }
    buf_str(b, "}\n");
    b->err = b->err ? b->err : s->text.err;
}

int run_cells_line(struct run *u, const char *id, struct kvf_diag *d)
{
    struct run_cells *c = u->cells;
    struct buf lines = {0};
    signals_catch();
    int n = c->job.n, err = check_gates(u, runner_cap(&u->r), d);
    for (int i = 0; !err && i < n; i++)
        err = eval_cell_fit(&c->job.cell[i], u->r.engine, u->r.prompt.n_ids, d);
    if (!err)
        err = find_ranges(u, d);
    if (err)
        return err;
    c->fed = 0;
    c->of = count_tokens(u);
    for (int i = 0; i < n; i++)
        c->outcome[i] = (struct outcome){.greedy = true};
    for (c->at = 0; !err && c->at < n && u->r.n_predict > 0; c->at += LANES_MOST)
        err = run_some(u, d);
    for (int i = 0; !err && i < n; i++) {
        struct outcome *s = &c->outcome[i];
        if (!s->stop)
            s->stop = s->tokens < u->r.n_predict ? STOP_CONTEXT : STOP_LENGTH;
        u->batch.cut += s->stop == STOP_CONTEXT;
        put(u, id, i, &lines);
        err = lines.err;
    }
    if (!err)
        err = crew_print(u->batch.crew, lines.data, lines.len, d);
    for (int i = 0; i < n; i++)
        buf_finish(&c->outcome[i].text);
    buf_finish(&lines);
    return engine_error(u->r.engine, err, d);
}
