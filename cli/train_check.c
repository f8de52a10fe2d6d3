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

/* The model and the validation documents of checks. shape has the budgets and files. */
struct train_check {
    struct engine *engine;
    struct packs *packs[TRAIN_CHECK_FILES]; /* of each file with by_file, else of all files */
    int docs[TRAIN_CHECK_FILES], n_packs;
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

/* Opens the documents of the files, as one set. file: the one that is named if there are none;
 * NULL: all files. */
static int open_packs(struct train_check *c, const char *const *path, int n, const char *file,
                      struct kvf_diag *d)
{
    struct packs_source source = {
        path, n, TRAIN_CHECK_PROMPT + TRAIN_CHECK_SCORE, PACK_RUN, c->opt.from, 1, c->opt.cache};
    struct packs **to = &c->packs[c->n_packs];
    int err = packs_open(c->engine->tokenizer, &source, to, d), docs = c->opt.docs;
    if (err == KVF_E_LIMIT)
        return kvf_fail(d, err,
                        "%s%sthe share of the data that is checked on gives no document of %d "
                        "tokens; give more text, a smaller --share, or --check-every 0",
                        file ? file : "", file ? ": " : "", source.length);
    if (err)
        return err;
    if (packs_count(*to) < docs) {
        docs = packs_count(*to);
        fprintf(stderr,
                "note: %s%schecks are on %d document%s: the text that is checked on has no more\n",
                file ? file : "", file ? ": " : "", docs, docs == 1 ? "" : "s");
    }
    c->docs[c->n_packs++] = docs;
    return KVF_OK;
}

/* Fills the key of a file in records, which must be short and unlike all others. */
static int name_file(struct train_check_result *r, const char *path, struct kvf_diag *d)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct train_check_file *f = &r->file[r->n_files];
    int n = snprintf(f->key, sizeof f->key, "kl_in_%.*s", (int)strcspn(name, "."), name);
    if (n < 0 || (size_t)n >= sizeof f->key)
        return kvf_fail(d, KVF_E_ARG, "--check-files: the name of %s is too long; rename it", path);
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].key, f->key) == 0)
            return kvf_fail(d, KVF_E_ARG,
                            "--check-files: %s and %s have the same name in the record; rename one",
                            r->file[i].path, path);
    f->path = path;
    r->n_files++;
    return KVF_OK;
}

/* Opens the documents of each file. A file that is given several times counts once. */
static int open_files(struct train_check *c, struct kvf_diag *d)
{
    struct train_check_result *r = &c->shape;
    int err = KVF_OK;
    for (int i = 0; !err && i < c->opt.data->n; i++) {
        const char *path = c->opt.data->item[i];
        bool known = false;
        for (int k = 0; k < r->n_files; k++)
            known |= strcmp(r->file[k].path, path) == 0;
        if (known)
            continue;
        if (r->n_files == TRAIN_CHECK_FILES)
            return kvf_fail(d, KVF_E_ARG, "--check-files supports up to %d files; join some",
                            TRAIN_CHECK_FILES);
        err = name_file(r, path, d);
    }
    for (int i = 0; !err && i < r->n_files; i++)
        err = open_packs(c, &r->file[i].path, 1, r->file[i].path, d);
    return err;
}

int train_check_open(const struct train_check_options *o, struct train_check **ret,
                     struct kvf_diag *d)
{
    struct train_check *c = MEM_NEW(struct train_check, 1);
    if (!c)
        return KVF_E_NOMEM;
    const struct execution how = {.threads = o->threads, .pre = o->pre};
    const int length = TRAIN_CHECK_PROMPT + TRAIN_CHECK_SCORE;
    c->opt = *o;
    int err = train_budgets(o->budgets, TRAIN_CHECK_PROMPT, c->shape.budget, &c->shape.n, d);
    if (!err)
        err = model_open(o->model, &how, &c->engine, d);
    if (!err && c->engine->config.n_ctx_max < length)
        err = kvf_fail(d, KVF_E_ARG,
                       "checks need documents of %d tokens, and the model's context "
                       "has %d; --check-every 0 does without",
                       length, c->engine->config.n_ctx_max);
    if (!err && o->by_file)
        err = open_files(c, d);
    else if (!err)
        err = open_packs(c, o->data->item, o->data->n, NULL, d);
    if (err) {
        train_check_close(c);
        return err;
    }
    *ret = c;
    return KVF_OK;
}

void train_check_close(struct train_check *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_packs; i++)
        packs_close(c->packs[i]);
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

/* Adds up the mean KL of the documents at each budget, and of each file. */
static int evaluate(struct train_check *c, const struct eval_cell *cell,
                    struct train_check_result *ret, struct kvf_diag *d)
{
    struct eval_result result[TRAIN_CHECK_BUDGETS];
    struct check_progress t = {watcher_count("check", "tok"), 0, 0};
    struct eval e = {.engine = c->engine, .kv_type = KV_F16, .progress = on_tokens, .ctx = &t};
    int err = KVF_OK, all = 0;
    for (int f = 0; f < c->n_packs; f++)
        all += c->docs[f];
    for (int f = 0; f < c->n_packs; f++)
        for (int k = 0; !err && k < c->docs[f]; k++) {
            struct pack doc = packs_get(c->packs[f], c->opt.seed, 0, k);
            struct eval_text x = {
                .ids = doc.ids, .prompt = TRAIN_CHECK_PROMPT, .score = TRAIN_CHECK_SCORE};
            t.of = (uint64_t)(all * eval_tokens(&e, &x, cell, ret->n));
            err = eval_document(&e, &x, cell, ret->n, result, d);
            for (int i = 0; !err && i < ret->n; i++) {
                ret->kl[i] += result[i].kl / all;
                ret->file[f].kl += result[i].kl / c->docs[f] / ret->n;
            }
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
