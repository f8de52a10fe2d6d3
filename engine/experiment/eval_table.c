/* eval_table.c - results of documents as the table that users see. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "engine/experiment/eval.h"

enum { SEED = 1 }; /* of the bootstrap: the same intervals for the same results */

enum column {
    NLL,
    NLL_LOW,
    NLL_HIGH,
    KL,
    KL_LOW,
    KL_HIGH,
    AGREE,
    KV_END,
    KV_MEAN,
    KV_PEAK,
    TRIGGERS,
    RIGHT,
    RIGHT_LOW,
    RIGHT_HIGH,
    N_COLUMNS
};

static const struct {
    const char *name, *unit;
} column[N_COLUMNS] = {
    {"nll", "nats"},        {"nll_low", "nats"},    {"nll_high", "nats"}, {"kl", "nats"},
    {"kl_low", "nats"},     {"kl_high", "nats"},    {"top1_agree", ""},   {"kv_end", "entries"},
    {"kv_mean", "entries"}, {"kv_peak", "entries"}, {"triggers", ""},     {"right", ""},
    {"right_low", ""},      {"right_high", ""},
};

static double field(const struct eval_result *r, enum column c)
{
    switch (c) {
    case NLL:
        return r->nll;
    case KL:
        return r->kl;
    case AGREE:
        return r->agree;
    case KV_END:
        return r->kv_end;
    case KV_MEAN:
        return r->kv_mean;
    case KV_PEAK:
        return r->kv_peak;
    case TRIGGERS:
        return (double)r->triggers;
    case RIGHT:
        return r->right;
    default:
        return NAN;
    }
}

/* Mean of a field over the documents of a cell, and its interval where out[1] and
 * out[2] are the columns for it. */
static int summarise(const struct eval_result *r, int n, int docs, enum column c, double *v,
                     double *out, size_t stride)
{
    for (int i = 0; i < docs; i++)
        v[i] = field(&r[(size_t)i * (size_t)n], c);
    out[0] = stats_mean(v, (size_t)docs);
    if (c == RIGHT)
        stats_wilson(llround(out[0] * docs), docs, &out[stride], &out[2 * stride]);
    if (c != NLL && c != KL)
        return KVF_OK;
    return stats_bootstrap_mean(v, (size_t)docs, EVAL_REPLICATES, SEED, &out[stride],
                                &out[2 * stride]);
}

static void add_meta(struct table *t, const struct eval *e)
{
    char hash[33] = "";
    gguf_hash(e->engine->gguf, hash);
    table_meta_str(t, "model", e->engine->config.name);
    table_meta_str(t, "model_hash", hash);
    if (!e->answers) {
        table_meta_num(t, "prompt_tokens", e->prompt);
        table_meta_num(t, "score_tokens", e->score);
    }
    table_meta_str(t, "precision", engine_precision(e->engine));
    table_meta_str(t, "kv_type", kv_type_name(e->kv_type));
    engine_put_scale(e->engine, t);
    table_meta_str(t, "interval",
                   e->answers ? "95 %, bootstrap over tasks, 2000 replicates; of right: Wilson"
                              : "95 %, bootstrap over documents, 2000 replicates");
}

static void add_names(struct table *t, const struct eval *e, const struct eval_cell *cell, int n,
                      int docs, const char **label, int64_t *number)
{
    for (int i = 0; i < n; i++) {
        label[i] = cell[i].label;
        number[i] = cell[i].params.budget;
    }
    table_dense_str(t, "method", "", label);
    table_dense_int(t, "budget", "entries", number);
    table_affine(t, "docs", "", docs, 0, 0);
    table_affine(t, "tokens", "", e->tokens, 0, 0);
}

struct table *eval_table(const struct eval *e, const struct eval_cell *cell, int n,
                         const struct eval_result *result, int docs)
{
    struct table *t = table_create("eval", n);
    double *v = MEM_NEW(double, (size_t)docs), *out = MEM_NEW(double, N_COLUMNS *(size_t)n);
    const char **label = MEM_NEW(const char *, (size_t)n);
    int64_t *number = MEM_NEW(int64_t, (size_t)n);
    int err = KVF_E_NOMEM;
    if (!t || !v || !out || !label || !number)
        goto done;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_COLUMNS; c++) {
            if (c == NLL_LOW || c == NLL_HIGH || c == KL_LOW || c == KL_HIGH || c > RIGHT)
                continue;
            err = summarise(result + i, n, docs, (enum column)c, v, out + (size_t)c * (size_t)n + i,
                            (size_t)n);
            if (err)
                goto done;
        }
    add_meta(t, e);
    add_names(t, e, cell, n, docs, label, number);
    for (int c = 0; c < (e->answers ? (int)N_COLUMNS : (int)RIGHT); c++)
        table_dense_real(t, column[c].name, column[c].unit, out + (size_t)c * (size_t)n);
    for (int i = 0; i < n; i++)
        label[i] = cell[i].gates ? gates_hash(cell[i].gates) : "";
    table_dense_str(t, "gates", "", label);
    err = table_err(t);

done:
    mem_free(v);
    mem_free(out);
    mem_free(label);
    mem_free(number);
    if (!err)
        return t;
    table_destroy(t);
    return NULL;
}
