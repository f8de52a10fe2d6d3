/* tune_text.c - steps of `kvfate tune` on texts, and checks on validation texts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/tune_job.h"
#include "cli/tune_masks.h"

/* Opens the documents of checks: the validation part of --data, or all of it with --plan. */
static int open_held(struct tune_job *j, struct kvf_diag *d)
{
    double from = j->plans.n ? 0 : j->t.share;
    if (j->t.check_every == 0 || from >= 1 || j->t.data.n == 0)
        return KVF_OK;
    int err = training_packs(&j->t, from, 1, &j->held, d);
    if (err == KVF_E_LIMIT)
        kvf_fail(d, err,
                 "the share of the data that is checked on gives no document of %d tokens; give "
                 "more text, a smaller --share, or --check-every 0",
                 j->opt.length);
    if (err)
        return err;
    if (packs_count(j->held) < j->t.check_docs) {
        j->t.check_docs = packs_count(j->held);
        fprintf(stderr,
                "note: checks are on %" PRId64 " document%s: the text that is checked on has no "
                "more\n",
                j->t.check_docs, j->t.check_docs == 1 ? "" : "s");
    }
    size_t n = (size_t)j->t.check_docs;
    j->doc = MEM_NEW(struct pack, n);
    j->loss = MEM_NEW(struct pass_loss, n);
    j->kl_of = MEM_NEW(double, n);
    if (!j->doc || !j->loss || !j->kl_of)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        j->doc[i] = packs_get(j->held, j->opt.seed, 0, (int)i);
    j->t.checks = true;
    return KVF_OK;
}

int tune_text_open(struct tune_job *j, struct kvf_diag *d)
{
    int err = j->plans.n ? tune_plans_open(&j->plans, j->t.engine, j->opt.length, &j->t.packs, d)
                         : training_packs(&j->t, 0, j->t.share, &j->t.packs, d);
    return err ? err : open_held(j, d);
}

static int check_budget(struct tune_job *j, int i, struct kvf_diag *d)
{
    struct method row;
    struct method_params params;
    int n = (int)j->t.check_docs,
        err = method_parse(j->methods.method, j->budget[i], &row, &params, d);
    struct session_options s = tune_session(j, &row, &params);
    if (!err)
        err = tuner_evaluate(j->tuner, &s, j->doc, n, j->loss, d);
    for (int k = 0; !err && k < n; k++)
        j->kl_of[k] = j->loss[k].term[QUALITY_FWKL];
    if (err)
        return err;
    j->last[i] = tune_put_values(j, "kl", j->budget[i], j->kl_of, n);
    return KVF_OK;
}

/* Checks KL, also if the loss does not contain it. */
int tune_text_check(struct tune_job *j, struct kvf_diag *d)
{
    buf_printf(&j->t.log, "{\"check\": %" PRId64, tuner_steps(j->tuner));
    int err = KVF_OK;
    double sum = 0;
    for (int i = 0; !err && i < j->n_budgets; i++) {
        err = check_budget(j, i, d);
        watcher_update(&j->checking, (uint64_t)i + 1, (uint64_t)j->n_budgets);
        sum += j->last[i];
    }
    buf_str(&j->t.log, ", \"mean_kl\": ");
    json_put_num(&j->t.log, sum / j->n_budgets);
    buf_str(&j->t.log, "}\n");
    return err;
}

static void put_step(struct tune_job *j, const struct tuner_step *s)
{
    struct buf *b = &j->t.log;
    const struct {
        const char *name;
        double value;
    } number[] = {{"loss", s->loss.total},
                  {"fwkl", s->loss.term[QUALITY_FWKL]},
                  {"ntp", s->loss.term[QUALITY_NTP]},
                  {"lr", s->rate},
                  {"norm", s->norm}};
    buf_printf(b, "{\"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"evicted\": %" PRId64, s->step,
               s->tokens, s->n_evicted);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        if (isnan(number[i].value)) /* this term is not part of the loss */
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
    j->t.tokens += s.tokens;
    put_step(j, &s);
    return KVF_OK;
}
