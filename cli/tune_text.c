/* tune_text.c - steps of `kvfate tune` on texts, and checks on those that are left out. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/tune_job.h"
#include "cli/tune_masks.h"

static int open_packs(struct tune_job *j, double from, double to, struct packs **ret,
                      struct kvf_diag *d)
{
    struct packs_source source = {
        j->data.item, j->data.n, j->opt.length,      (enum packing)j->packing,
        from,         to,        j->tokens_name.data};
    return packs_open(j->engine->tokenizer, &source, ret, d);
}

/* What checks are on: the share of the data that is left out, or all of it beside plans. */
static int open_held(struct tune_job *j, struct kvf_diag *d)
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
    if (packs_count(j->held) < j->check_docs) {
        j->check_docs = packs_count(j->held);
        fprintf(stderr,
                "note: checks are on %" PRId64 " document%s: the text that is checked on has no "
                "more\n",
                j->check_docs, j->check_docs == 1 ? "" : "s");
    }
    size_t n = (size_t)j->check_docs;
    j->doc = MEM_NEW(struct pack, n);
    j->loss = MEM_NEW(struct pass_loss, n);
    j->kl_of = MEM_NEW(double, n);
    if (!j->doc || !j->loss || !j->kl_of)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        j->doc[i] = packs_get(j->held, j->opt.seed, 0, (int)i);
    j->checks = true;
    return KVF_OK;
}

int tune_text_open(struct tune_job *j, struct kvf_diag *d)
{
    int err = j->plans.n ? tune_plans_open(&j->plans, j->engine, j->opt.length, &j->packs, d)
                         : open_packs(j, 0, j->share, &j->packs, d);
    return err ? err : open_held(j, d);
}

static int check_budget(struct tune_job *j, int i, struct kvf_diag *d)
{
    struct method row;
    struct method_params params;
    int n = (int)j->check_docs,
        err = method_parse(j->methods.method, j->budget[i], &row, &params, d);
    struct session_options s = tune_session(j, &row, &params);
    if (!err)
        err = tuner_judge(j->tuner, &s, j->doc, n, j->loss, d);
    for (int k = 0; !err && k < n; k++)
        j->kl_of[k] = j->loss[k].term[QUALITY_FWKL];
    if (err)
        return err;
    j->last[i] = tune_put_values(j, "kl", j->budget[i], j->kl_of, n);
    return KVF_OK;
}

/* KL is judged where it is not learnt from, too. */
int tune_text_check(struct tune_job *j, struct kvf_diag *d)
{
    buf_printf(&j->log, "{\"check\": %" PRId64, tuner_steps(j->tuner));
    int err = KVF_OK;
    double sum = 0;
    for (int i = 0; !err && i < j->n_budgets; i++) {
        err = check_budget(j, i, d);
        watcher_see(&j->checking, (uint64_t)i + 1, (uint64_t)j->n_budgets);
        sum += j->last[i];
    }
    buf_str(&j->log, ", \"mean_kl\": ");
    json_put_num(&j->log, sum / j->n_budgets);
    buf_str(&j->log, "}\n");
    return err;
}

static void put_step(struct tune_job *j, const struct tuner_step *s)
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

int tune_text_step(struct tune_job *j, const struct session_options *method, struct kvf_diag *d)
{
    struct tuner_step s;
    int err = tuner_step(j->tuner, j->control ? NULL : method, &s, d);
    if (err)
        return err;
    j->tokens += s.tokens;
    put_step(j, &s);
    return KVF_OK;
}
