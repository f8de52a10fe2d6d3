/* predict_read.c - the effects of all pairs, then what their traces and tables say of the units. */
#include <math.h>

#include "base/mem.h"
#include "studies/predict_values.h"

enum { MOST_HEADS = 1 << 16, MOST_TOKENS = 1 << 22 };

/* The largest number of a column of whole numbers, or -1. */
static int64_t largest(const struct table *t, const char *name)
{
    int column = table_find(t, name);
    int64_t most = -1;
    for (int64_t r = 0; column >= 0 && r < table_rows(t); r++)
        most = table_int(t, column, r) > most ? table_int(t, column, r) : most;
    return most;
}

static bool whole(const struct table *t, const char *name)
{
    int column = table_find(t, name);
    return column >= 0 && table_col_type(t, column) == TABLE_INT;
}

static bool of_entries(const struct table *t)
{
    return whole(t, "token") && whole(t, "count") && table_find(t, "entries") >= 0;
}

bool predict_is_effect(const struct table *t)
{
    int kl = table_find(t, "kl"), head = table_find(t, "head");
    bool heads = head >= 0 && table_col_type(t, head) == TABLE_STR && whole(t, "layer")
                 && whole(t, "index") && !whole(t, "doc");
    return kl >= 0 && table_col_type(t, kl) != TABLE_STR && (heads || of_entries(t));
}

static int shape(struct predict_values *x, struct kvf_diag *d)
{
    int64_t layers = 0, heads = 0, tokens = 0, n;
    for (int p = 0; p < x->args->n_pairs; p++) {
        const struct predict_pair *pair = &x->args->pair[p];
        if (of_entries(pair->effect) != x->entries)
            return kvf_fail(d, KVF_E_ARG, "%s: effects of heads and of entries do not go together",
                            pair->path);
        n = largest(pair->effect, "layer") + 1;
        layers = n > layers ? n : layers;
        n = largest(pair->effect, "index") + 1;
        heads = n > heads ? n : heads;
        n = largest(pair->effect, "token") + 1;
        tokens = n > tokens ? n : tokens;
        if (x->entries && pair->n_traces && kvf_n_layers(pair->trace[0])) {
            layers = kvf_n_layers(pair->trace[0]);
            heads = kvf_n_heads(pair->trace[0], 0, KVF_SPACE_KV);
        }
    }
    if (layers < 1 || heads < 1)
        return x->entries
                   ? kvf_fail(d, KVF_E_ARG, "effects of entries need a trace of the text")
                   : kvf_fail(d, KVF_E_ARG, "%s: there is no row of a head", x->args->pair[0].path);
    if (layers > MOST_HEADS || heads > MOST_HEADS / layers || tokens > MOST_TOKENS)
        return kvf_fail(d, KVF_E_LIMIT, "%s: more than %d heads, or %d tokens",
                        x->args->pair[0].path, MOST_HEADS, MOST_TOKENS);
    x->layers = (int)layers;
    x->heads = (int)heads;
    x->units = x->entries ? tokens : layers * heads;
    return KVF_OK;
}

/* What the effect held its heads to, unless something else is asked for. */
static int64_t setting(const struct predict_values *x, int64_t asked, const char *key,
                       double otherwise)
{
    double of_effect = table_meta_real(x->args->pair[0].effect, key, otherwise);
    return asked >= 0 ? asked : (int64_t)of_effect;
}

static int allocate(struct predict_values *x)
{
    size_t pairs = (size_t)x->args->n_pairs, n = pairs * (size_t)x->units;
    x->effect = MEM_NEW(double, n);
    x->c = MEM_NEW(struct candidate, MOST_CANDIDATES);
    if (x->entries)
        x->chosen = MEM_NEW(unsigned char, pairs *(size_t)(x->layers * x->heads));
    if (!x->effect || !x->c || (x->entries && !x->chosen))
        return KVF_E_NOMEM;
    for (size_t u = 0; u < n; u++)
        x->effect[u] = NAN;
    return KVF_OK;
}

/* Where a unit is: what any statistic has to beat. */
static int places(struct predict_values *x, int pair)
{
    double *v = candidate_of(x, pair, x->entries ? "position" : "layer", REDUCE_NONE);
    for (int64_t u = 0; v && u < x->units; u++)
        v[u] = (double)(x->entries ? u : u / x->heads);
    return v ? KVF_OK : KVF_E_NOMEM;
}

/* The statistics of one pair, from its places, its traces and its tables. */
static int read_pair(struct predict_values *x, int p, struct kvf_diag *d)
{
    const struct predict_pair *pair = &x->args->pair[p];
    int err = places(x, p);
    if (err)
        return err;
    for (int k = 0; k < pair->n_traces; k++) {
        err = predict_trace(x, p, pair->trace[k], d);
        if (err)
            return err;
    }
    for (int k = 0; k < pair->n_tables; k++) {
        err = predict_table(x, p, k, d);
        if (err)
            return err;
    }
    return KVF_OK;
}

int predict_values_read(const struct predict_args *args, struct predict_values *ret,
                        struct kvf_diag *d)
{
    struct predict_values *x = ret;
    *x = (struct predict_values){.args = args, .entries = of_entries(args->pair[0].effect)};
    int err = shape(x, d);
    if (err)
        return err;
    x->horizon = setting(x, args->horizon, "recent", 64);
    x->sinks = setting(x, args->sinks, "sinks", 4);
    err = allocate(x);
    if (err)
        return err;
    for (int p = 0; p < args->n_pairs; p++) {
        err = predict_effect(x, p, d);
        if (err)
            return err;
    }
    for (int p = 0; p < args->n_pairs; p++) {
        err = read_pair(x, p, d);
        if (err)
            return err;
    }
    return KVF_OK;
}
