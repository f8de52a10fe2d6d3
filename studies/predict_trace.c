/* predict_trace.c - statistics of heads, or of entries, from the columns of a trace. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/common.h"
#include "analyzers/selected.h"
#include "base/mem.h"
#include "base/stats.h"
#include "studies/predict_values.h"
#include "libtrace/run_header.h"

/* The column at hand: T tokens or steps. */
struct of {
    int64_t T, horizon, sinks;
};

/* ---- heads: a number of the n = T values of a head */

static double mean_of(const struct of *c, const double *v)
{
    return stats_mean(v, (size_t)c->T);
}

static double mean_size(const struct of *c, const double *v)
{
    struct sum s = {0};
    for (int64_t i = 0; i < c->T; i++)
        sum_add(&s, fabs(v[i]));
    return c->T ? sum_get(&s) / (double)c->T : NAN;
}

static double mean_beta(const struct of *c, const double *v)
{
    struct sum s = {0};
    for (int64_t i = 0; i < c->T; i++)
        sum_add(&s, exp(v[i]));
    return c->T ? sum_get(&s) / (double)c->T : NAN;
}

static double mean_of_retention(const struct of *c, const double *v)
{
    struct sum s = {0};
    for (int64_t i = 0; i < c->T; i++)
        sum_add(&s, mean_retention(v[i], i, c->T));
    return c->T ? sum_get(&s) / (double)c->T : NAN;
}

/* TRIM-KV's sparsity of `kept` cells of the triangle. */
static double sparsity(const struct of *c, double kept)
{
    return c->T ? 1 - kept / ((double)c->T * ((double)c->T + 1) / 2) : NAN;
}

static double sparsity_beta(const struct of *c, const double *v)
{
    struct sum s = {0};
    for (int64_t i = 0; i < c->T; i++)
        sum_add(&s, stats_geometric(v[i], (double)(c->T - i)));
    return sparsity(c, sum_get(&s));
}

static double sparsity_use(const struct of *c, const double *v)
{
    double kept = 0; /* whole numbers */
    for (int64_t i = 0; i < c->T; i++)
        kept += v[i] < 0 ? 0 : v[i] + 1;
    return sparsity(c, kept);
}

/* Share of the tokens at risk that a query of age >= horizon selected. */
static double survival(const struct of *c, const double *v)
{
    int64_t n = c->T - c->horizon, alive = 0;
    for (int64_t i = 0; i < n; i++)
        alive += v[i] >= (double)c->horizon;
    return n > 0 ? (double)alive / (double)n : NAN;
}

static double entries_held(const struct of *c, const double *v)
{
    double cells = 0;
    for (int64_t i = 0; i < c->T; i++)
        cells += fmin(v[i], (double)c->T) - (double)i;
    return c->T ? cells / (double)c->T : NAN;
}

static double sink_share(const struct of *c, const double *v)
{
    struct sum first = {0}, all = {0};
    for (int64_t i = 0; i < c->T; i++) {
        sum_add(&all, v[i]);
        if (i < c->sinks)
            sum_add(&first, v[i]);
    }
    return sum_get(&all) > 0 ? sum_get(&first) / sum_get(&all) : NAN;
}

/* ---- entries: what a head says of token i */

static double as_it_is(const struct of *c, double v, int64_t i)
{
    (void)c, (void)i;
    return v;
}

static double size_of(const struct of *c, double v, int64_t i)
{
    (void)c, (void)i;
    return fabs(v);
}

static double beta_of(const struct of *c, double v, int64_t i)
{
    (void)c, (void)i;
    return exp(v);
}

static double life_of(const struct of *c, double v, int64_t i)
{
    return fmin(v, (double)c->T) - (double)i;
}

static double use_of(const struct of *c, double v, int64_t i)
{
    (void)c, (void)i;
    return v < 0 ? 0 : v + 1;
}

/* ---- which there are */

struct stat {
    const char *name, *column; /* a criterion's name follows both when of_criterion */
    enum kvf_space space;
    enum kvf_axis axis;
    double (*head)(const struct of *c, const double *v);      /* NULL: none of heads */
    double (*token)(const struct of *c, double v, int64_t i); /* NULL: none of entries */
    bool of_criterion, contrib; /* contrib: the column times out_norm */
};

/* Means of no values and shares of nothing are NaN, and so is what has a NaN among its values. */
#define KV KVF_SPACE_KV, KVF_AXIS_TOKEN
#define QUERY KVF_SPACE_QUERY, KVF_AXIS_TOKEN
static const struct stat stats[] = {
    {"beta", "log_beta", KV, mean_beta, beta_of, false, false},
    {"mean_retention", "log_beta", KV, mean_of_retention, NULL, false, false},
    {"sparsity.beta", "log_beta", KV, sparsity_beta, NULL, false, false},
    {"write_gate", "write_gate", KV, mean_of, as_it_is, false, false},
    {"importance", "importance", KV, mean_of, as_it_is, false, false},
    {"survival", "last_selected", QUERY, survival, NULL, true, false},
    {"sparsity.use", "last_selected", QUERY, sparsity_use, NULL, true, false},
    {"last_use", "last_selected", QUERY, NULL, use_of, true, false},
    {"entropy", "entropy", KVF_SPACE_QUERY, KVF_AXIS_STEP, mean_of, NULL, false, false},
    {"sink_mass", "mass.sum", QUERY, sink_share, NULL, false, false},
    {"mass.sum", "mass.sum", QUERY, NULL, as_it_is, false, false},
    {"mass.max", "mass.max", QUERY, NULL, as_it_is, false, false},
    {"sink_contrib", "mass.sum", QUERY, sink_share, NULL, false, true},
    {"contrib.sum", "mass.sum", QUERY, NULL, as_it_is, false, true},
    {"contrib.max", "mass.max", QUERY, NULL, as_it_is, false, true},
    {"entries_held", "evict_step", KV, entries_held, NULL, false, false},
    {"steps_held", "evict_step", KV, NULL, life_of, false, false},
    {"saliency", "saliency", KV, mean_size, size_of, false, false},
};
#undef KV
#undef QUERY

struct reading {
    struct predict_values *x;
    struct kvf_trace *t;
    struct of of;
    int pair, column, share; /* query heads of a KV head */
    const struct stat *stat;
    const char *name;
    int norm;      /* column out_norm, or -1 */
    double *value; /* [T] of one head */
    double *norms; /* [T] */
};

/* The column of a head of its space, times out_norm where the statistic is of contributions:
 * |W_O v_i| does not change with t, so it is a factor of the sum and of the maximum. */
static int read_head(const struct reading *r, int layer, int head, struct kvf_diag *d)
{
    uint32_t T = (uint32_t)r->of.T;
    int err = kvf_read_f64(r->t, r->column, layer, head, 0, T, r->value, d);
    if (err || !r->stat->contrib)
        return err;
    err = kvf_read_f64(r->t, r->norm, layer, head, 0, T, r->norms, d);
    if (err)
        return err;
    for (uint32_t i = 0; i < T; i++)
        r->value[i] *= r->norms[i];
    return KVF_OK;
}

/* The heads of a layer's KV head, reduced. */
static int take_heads(const struct reading *r, struct kvf_diag *d)
{
    struct predict_values *x = r->x;
    bool query = r->stat->space == KVF_SPACE_QUERY;
    int members = query ? r->share : 1;
    double *mean = candidate_of(x, r->pair, r->name, query ? REDUCE_MEAN : REDUCE_NONE);
    double *max = query ? candidate_of(x, r->pair, r->name, REDUCE_MAX) : mean;
    if (!mean || !max)
        return KVF_E_LIMIT;
    for (int u = 0; u < x->layers * x->heads; u++) {
        double sum = 0, top = -INFINITY;
        for (int m = 0; m < members; m++) {
            int err = read_head(r, u / x->heads, u % x->heads * members + m, d);
            if (err)
                return err;
            double v = r->stat->head(&r->of, r->value);
            sum += v;
            top = isnan(v) || v > top ? v : top; /* NaN stays: nothing is above it */
        }
        max[u] = top;
        mean[u] = sum / members;
    }
    return KVF_OK;
}

/* Tokens over the chosen heads, reduced. */
static int take_entries(const struct reading *r, struct kvf_diag *d)
{
    struct predict_values *x = r->x;
    bool query = r->stat->space == KVF_SPACE_QUERY;
    int members = query ? r->share : 1, n = 0;
    int64_t T = r->of.T < x->units ? r->of.T : x->units;
    const unsigned char *chosen = x->chosen + (size_t)r->pair * (size_t)(x->layers * x->heads);
    double *mean = candidate_of(x, r->pair, r->name, REDUCE_MEAN);
    double *max = candidate_of(x, r->pair, r->name, REDUCE_MAX);
    if (!mean || !max)
        return KVF_E_LIMIT;
    for (int u = 0; u < x->layers * x->heads * members; u++) {
        int kv = u / members;
        if (!chosen[kv])
            continue;
        int err = read_head(r, kv / x->heads, kv % x->heads * members + u % members, d);
        if (err)
            return err;
        for (int64_t i = 0; i < T; i++) {
            double v = r->stat->token(&r->of, r->value[i], i);
            mean[i] = n ? mean[i] + v : v;
            max[i] = !n || isnan(v) || v > max[i] ? v : max[i];
        }
        n++;
    }
    for (int64_t i = 0; i < T; i++)
        mean[i] /= n;
    return KVF_OK;
}

static int take(struct reading *r, const char *column, struct kvf_diag *d)
{
    const struct stat *s = r->stat;
    r->column = kvf_find(r->t, column);
    if (r->column < 0 || (s->contrib && r->norm < 0) || candidate_known(r->x, r->pair, r->name)
        || !(r->x->entries ? s->token != NULL : s->head != NULL))
        return KVF_OK;
    const struct kvf_column *c = kvf_column(r->t, r->column);
    if (c->space != s->space || c->axis != s->axis)
        return kvf_fail(d, KVF_E_FORMAT, "the column %s must hold a value for each %s head and %s",
                        column, s->space == KVF_SPACE_KV ? "KV" : "query",
                        s->axis == KVF_AXIS_STEP ? "step" : "token");
    return r->x->entries ? take_entries(r, d) : take_heads(r, d);
}

static int take_criteria(struct reading *r, struct kvf_diag *d)
{
    int of[N_CRITERION_TABLE], n, err = criteria_choose(r->x->args->criteria, of, &n, d);
    const char *plain = r->name;
    for (int k = 0; !err && k < n; k++) {
        char name[CANDIDATE_NAME], column[CANDIDATE_NAME];
        snprintf(name, sizeof name, "%s.%s", plain, criterion_table[of[k]].name);
        snprintf(column, sizeof column, "%s.%s", r->stat->column, criterion_table[of[k]].name);
        r->name = name;
        err = take(r, column, d);
    }
    r->name = plain;
    return err;
}

/* Whether the trace has the heads of the effect, of the same model. */
static int check_trace(struct predict_values *x, int pair, const struct kvf_trace *t, int *share,
                       struct kvf_diag *d)
{
    const struct table *effect = x->args->pair[pair].effect;
    const char *wanted = table_meta(effect, "model_hash");
    struct json *root = NULL;
    int H = kvf_n_layers(t) ? kvf_n_heads(t, 0, KVF_SPACE_KV) : 0;
    int G = kvf_n_layers(t) ? kvf_n_heads(t, 0, KVF_SPACE_QUERY) : 0;
    if (kvf_n_layers(t) < x->layers || H < x->heads || H < 1 || G % H
        || (x->entries && (kvf_n_layers(t) != x->layers || H != x->heads)))
        return kvf_fail(d, KVF_E_ARG,
                        "a trace of %d layers of %d KV heads does not go with the "
                        "effects, which have %d of %d",
                        kvf_n_layers(t), H, x->layers, x->heads);
    *share = G / H;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    const char *hash = json_str(json_get(json_get(root, "model"), "hash"), NULL);
    double prompt = json_num(json_get(json_get(root, "run"), "prompt_tokens"), NAN);
    if (hash && wanted && strcmp(hash, wanted) != 0)
        err = kvf_fail(d, KVF_E_ARG, "a trace is of another model than %s",
                       x->args->pair[pair].path);
    double asked = table_meta_real(effect, "prompt_tokens", NAN);
    x->prompts_differ += !isnan(prompt) && !isnan(asked) && prompt != asked;
    json_free(root);
    return err;
}

int predict_trace(struct predict_values *x, int pair, struct kvf_trace *t, struct kvf_diag *d)
{
    struct reading r = {.x = x, .t = t, .pair = pair, .of = {kvf_n_steps(t), x->horizon, x->sinks}};
    int err = check_trace(x, pair, t, &r.share, d);
    if (err)
        return err;
    r.value = MEM_NEW(double, (size_t)r.of.T);
    r.norms = MEM_NEW(double, (size_t)r.of.T);
    r.norm = kvf_find(t, "out_norm");
    if (!r.value || !r.norms) {
        err = KVF_E_NOMEM;
        goto done;
    }
    if (r.norm >= 0) {
        err = column_of_heads(t, r.norm, KVF_SPACE_QUERY, d);
        if (err)
            goto done;
    }
    for (size_t k = 0; r.of.T && k < sizeof stats / sizeof *stats; k++) {
        r.stat = &stats[k];
        r.name = stats[k].name;
        err = stats[k].of_criterion ? take_criteria(&r, d) : take(&r, stats[k].column, d);
        if (err)
            goto done;
    }

done:
    mem_free(r.value);
    mem_free(r.norms);
    return err;
}
