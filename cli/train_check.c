/* train_check.c - checks of gates during training (train_check.h). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/models.h"
#include "cli/runner.h"
#include "cli/train_check.h"
#include "cli/watcher.h"
#include "engine/experiment/eval.h"
#include "engine/train/packs.h"

/* The model and the validation documents of checks. shape has the budgets. */
struct train_check {
    struct engine *engine;
    struct packs *packs;
    struct train_check_options opt;
    struct train_check_result shape;
};

int train_budgets(const char *s, int prompt, int budget[TRAIN_CHECK_BUDGETS], int *ret_n,
                  struct kvf_diag *d)
{
    for (*ret_n = 0;; s++) {
        char part[BUDGET_TEXT] = "";
        size_t len = strcspn(s, ",");
        struct budget b;
        if (len < sizeof part)
            memcpy(part, s, len);
        if (!budget_parse(part, &b) || *ret_n == TRAIN_CHECK_BUDGETS)
            return kvf_fail(d, KVF_E_ARG,
                            "--budgets needs up to %d numbers from 1 on, separated "
                            "by commas",
                            TRAIN_CHECK_BUDGETS);
        if (b.part && !prompt)
            return kvf_fail(d, KVF_E_ARG,
                            "--budgets %s: the questions of --reward differ in length, and checks "
                            "are named by their entries; give entries",
                            part);
        budget[(*ret_n)++] = b.part ? budget_entries(b.part, prompt) : b.entries;
        s += len;
        if (!*s)
            return KVF_OK;
    }
}

int train_check_open(const struct train_check_options *o, struct train_check **ret,
                     struct kvf_diag *d)
{
    struct train_check *c = MEM_NEW(struct train_check, 1);
    struct packs_source source = {o->data->item, o->data->n, TRAIN_CHECK_PROMPT + TRAIN_CHECK_SCORE,
                                  PACK_RUN,      o->from,    1,
                                  o->cache};
    if (!c)
        return KVF_E_NOMEM;
    const struct execution how = {.threads = o->threads, .pre = o->pre};
    c->opt = *o;
    int err = train_budgets(o->budgets, TRAIN_CHECK_PROMPT, c->shape.budget, &c->shape.n, d);
    if (!err)
        err = model_open(o->model, &how, &c->engine, d);
    if (!err && c->engine->config.n_ctx_max < source.length)
        err = kvf_fail(d, KVF_E_ARG,
                       "checks need documents of %d tokens, and the model's context "
                       "has %d; --check-every 0 does without",
                       source.length, c->engine->config.n_ctx_max);
    if (!err) {
        err = packs_open(c->engine->tokenizer, &source, &c->packs, d);
        if (err == KVF_E_LIMIT)
            kvf_fail(d, err,
                     "the share of the data that is checked on gives no document of %d "
                     "tokens; give more text, a smaller --share, or --check-every 0",
                     source.length);
    }
    if (err) {
        train_check_close(c);
        return err;
    }
    if (packs_count(c->packs) < c->opt.docs) {
        c->opt.docs = packs_count(c->packs);
        fprintf(stderr,
                "note: checks are on %d document%s: the text that is checked on has no more\n",
                c->opt.docs, c->opt.docs == 1 ? "" : "s");
    }
    *ret = c;
    return KVF_OK;
}

void train_check_close(struct train_check *c)
{
    if (!c)
        return;
    packs_close(c->packs);
    engine_close(c->engine);
    mem_free(c);
}

/* The progress line of a check, with the tokens fed and their total. */
struct check_progress {
    struct watcher w;
    uint64_t fed, of;
};

static void on_tokens(void *ctx, int tokens)
{
    struct check_progress *t = ctx;
    t->fed += (uint64_t)tokens;
    watcher_update(&t->w, t->fed, t->of);
}

/* Adds up the mean KL of the documents at each budget. */
static int evaluate(struct train_check *c, const struct eval_cell *cell,
                    struct train_check_result *ret, struct kvf_diag *d)
{
    struct eval_result result[TRAIN_CHECK_BUDGETS];
    struct check_progress t = {watcher_count("check", "tok"), 0, 0};
    struct eval e = {.engine = c->engine, .kv_type = KV_F16, .progress = on_tokens, .ctx = &t};
    int err = KVF_OK;
    for (int k = 0; !err && k < c->opt.docs; k++) {
        struct pack doc = packs_get(c->packs, c->opt.seed, 0, k);
        struct eval_text x = {
            .ids = doc.ids, .prompt = TRAIN_CHECK_PROMPT, .score = TRAIN_CHECK_SCORE};
        t.of = (uint64_t)(c->opt.docs * eval_tokens(&e, &x, cell, ret->n));
        err = eval_document(&e, &x, cell, ret->n, result, d);
        for (int i = 0; !err && i < ret->n; i++)
            ret->kl[i] += result[i].kl / c->opt.docs;
    }
    watcher_end(&t.w);
    return err;
}

int train_check_run(struct train_check *c, const char *path, struct train_check_result *ret,
                    struct kvf_diag *d)
{
    struct eval_cell cell[TRAIN_CHECK_BUDGETS] = {{0}};
    struct gates *gates = NULL;
    *ret = c->shape;
    int err = model_gates(c->engine, path, &gates, d);
    for (int i = 0; !err && i < ret->n; i++) {
        err = method_parse(c->opt.method, ret->budget[i], &cell[i].row, &cell[i].params, d);
        cell[i].label = c->opt.method;
        cell[i].gates = gates;
    }
    if (!err)
        err = evaluate(c, cell, ret, d);
    for (int i = 0; !err && i < ret->n; i++)
        ret->mean_kl += ret->kl[i] / ret->n;
    gates_close(gates);
    return err;
}
