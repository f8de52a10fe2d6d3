/* predict_table.c - effects, and what other tables say of heads or entries. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/common.h"
#include "base/headset.h"
#include "base/mem.h"
#include "base/whole.h"
#include "studies/predict_values.h"

int predict_head_name(const char *text, int *layer, int *head, bool *query, struct kvf_diag *d)
{
    char kind = 0;
    int end = 0;
    if (sscanf(text, "L%d%c%d%n", layer, &kind, head, &end) != 3 || text[end]
        || (kind != 'K' && kind != 'H') || *layer < 0 || *head < 0 || *layer >= 1 << 16
        || *head >= 1 << 16)
        return kvf_fail(d, KVF_E_FORMAT, "'%.40s' is no head such as L3K1 or L3H4", text);
    *query = kind == 'H';
    return KVF_OK;
}

/* ---- effects */

static int twice(struct kvf_diag *d, const char *path, const char *what)
{
    return kvf_fail(d, KVF_E_FORMAT, "%s: there are several rows of %s", path, what);
}

/* In the mirror all others are held: what a head restores is the KL of `all` less its own, of
 * which the order is that of the negative. */
static double sign_of(const struct table *t)
{
    const char *held = table_meta(t, "held");
    return held && strncmp(held, "all heads but", 13) == 0 ? -1 : 1;
}

static int effect_heads(struct predict_values *x, int pair, int value, struct kvf_diag *d)
{
    const struct predict_pair *p = &x->args->pair[pair];
    const struct table *t = p->effect;
    double *to = x->effect + (size_t)pair * (size_t)x->units, sign = sign_of(t);
    int name = table_find(t, "head");
    for (int64_t r = 0; r < table_rows(t); r++) {
        int layer, head;
        bool query;
        const char *text = table_str(t, name, r);
        if (strcmp(text, "all") == 0)
            continue;
        int err = predict_head_name(text, &layer, &head, &query, d);
        if (!err && query)
            err = kvf_fail(d, KVF_E_FORMAT, "an effect is of KV heads, not of %.40s", text);
        if (err) {
            kvf_diag_prefix(d, "%s", p->path);
            return err;
        }
        int64_t u = (int64_t)layer * x->heads + head;
        if (!isnan(to[u]))
            return twice(d, p->path, text);
        to[u] = sign * table_real(t, value, r);
    }
    return KVF_OK;
}

static int effect_entries(struct predict_values *x, int pair, int value, struct kvf_diag *d)
{
    const struct predict_pair *p = &x->args->pair[pair];
    const struct table *t = p->effect;
    double *to = x->effect + (size_t)pair * (size_t)x->units;
    size_t width = (size_t)x->layers * (size_t)x->heads;
    unsigned char *chosen = x->chosen + (size_t)pair * width;
    const char *heads = table_meta(t, "heads");
    int token = table_find(t, "token"), count = table_find(t, "count");
    if (!heads || strcmp(heads, "all") == 0)
        memset(chosen, 1, width);
    else if (headset_mark(heads, 'H', x->layers, x->heads, chosen) < 1)
        return kvf_fail(d, KVF_E_FORMAT, "%s: '%.80s' names no heads of the trace", p->path, heads);
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t i = table_int(t, token, r);
        if (table_int(t, count, r) != 1)
            return kvf_fail(d, KVF_E_ARG,
                            "%s: rows must be single entries; make it with "
                            "'kvfate effect --entries ... --each'",
                            p->path);
        if (!isnan(to[i]))
            return twice(d, p->path, "one entry");
        to[i] = table_real(t, value, r);
    }
    return KVF_OK;
}

int predict_effect(struct predict_values *x, int pair, struct kvf_diag *d)
{
    const struct predict_pair *p = &x->args->pair[pair];
    int value = table_find(p->effect, x->args->value);
    if (value < 0 || table_col_type(p->effect, value) == TABLE_STR)
        return kvf_fail(d, KVF_E_ARG, "%s has no column of numbers '%s'", p->path, x->args->value);
    return x->entries ? effect_entries(x, pair, value, d) : effect_heads(x, pair, value, d);
}

/* ---- other tables */

struct reading {
    struct predict_values *x;
    const struct table *t;
    const char *path;
    int pair, head, token; /* columns; token -1: a row per head */
    int share;             /* query heads of a KV head, 0: not known */
    bool query;            /* rows are of query heads */
    int64_t *unit;         /* [rows] -1: of none */
    int64_t *count;        /* [units] rows */
};

/* Whom each row is about. */
static int take_rows(struct reading *r, struct kvf_diag *d)
{
    const struct predict_values *x = r->x;
    const unsigned char *chosen = x->chosen
                                      ? x->chosen + (size_t)r->pair * (size_t)(x->layers * x->heads)
                                      : NULL;
    for (int64_t k = 0; k < table_rows(r->t); k++) {
        const char *text = table_str(r->t, r->head, k);
        int layer, head;
        bool query;
        r->unit[k] = -1;
        if (strcmp(text, "all") == 0)
            continue;
        int err = predict_head_name(text, &layer, &head, &query, d);
        if (err)
            return err;
        if (query && !r->share)
            return kvf_fail(d, KVF_E_ARG,
                            "how many query heads share a KV head is not known: give "
                            "a trace too");
        r->query = query;
        head = query ? head / r->share : head;
        if (layer >= x->layers || head >= x->heads)
            continue;
        int64_t u = (int64_t)layer * x->heads + head;
        if (x->entries) {
            int64_t i = table_int(r->t, r->token, k);
            u = chosen[u] && i >= 0 && i < x->units ? i : -1;
        }
        r->unit[k] = u;
        r->count[u < 0 ? 0 : u] += u >= 0;
    }
    return KVF_OK;
}

/* One row of each head, or all tokens of each: else rows of several kinds would be mixed. */
static int check_rows(const struct reading *r, struct kvf_diag *d)
{
    int64_t most = r->query ? r->share : 1;
    if (r->x->entries || r->token >= 0)
        return KVF_OK;
    for (int64_t u = 0; u < r->x->units; u++)
        if (r->count[u] > most)
            return kvf_fail(d, KVF_E_ARG,
                            "several rows of a head: a table of one row per head is "
                            "needed");
    return KVF_OK;
}

/* Of a KV head all query heads are needed. */
static bool known(const struct reading *r, int64_t u)
{
    return r->count[u] > 0 && (r->x->entries || !r->query || r->count[u] == r->share);
}

static int put_column(const struct reading *r, int column)
{
    struct predict_values *x = r->x;
    char name[CANDIDATE_NAME];
    const char *table = table_name(r->t), *of = table_col_name(r->t, column);
    bool size = strcmp(of, "saliency") == 0;
    bool one = !x->entries && !r->query; /* or the mean over a head's tokens */
    if (size)
        snprintf(name, sizeof name, "saliency");
    else
        snprintf(name, sizeof name, "%.30s.%.40s", *table ? table : "table", of);
    if (candidate_known(x, r->pair, name))
        return KVF_OK;
    double *mean = candidate_of(x, r->pair, name, one ? REDUCE_NONE : REDUCE_MEAN);
    double *max = one ? mean : candidate_of(x, r->pair, name, REDUCE_MAX);
    if (!mean || !max)
        return KVF_E_LIMIT;
    for (int64_t u = 0; u < x->units; u++)
        if (known(r, u)) {
            max[u] = -INFINITY;
            mean[u] = 0; /* which may be where max is */
        }
    for (int64_t k = 0; k < table_rows(r->t); k++) {
        double v = table_real(r->t, column, k);
        int64_t u = r->unit[k];
        if (u < 0 || !known(r, u))
            continue;
        v = size ? fabs(v) : v;
        if (!one)
            max[u] = isnan(v) || v > max[u] ? v : max[u]; /* above NaN is nothing */
        mean[u] += v / (double)r->count[u];
    }
    return KVF_OK;
}

/* Columns of numbers that say something of the head, and not where it is. */
static bool is_statistic(const struct reading *r, int column)
{
    static const char *const places[] = {"layer", "index", "token", "birth", "step", "count"};
    const char *name = table_col_name(r->t, column);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if (strcmp(name, places[k]) == 0)
            return false;
    if (!r->x->entries && r->token >= 0 && strcmp(name, "saliency") != 0)
        return false;
    return table_col_type(r->t, column) != TABLE_STR;
}

/* Query heads of a KV head, from a trace or the table's provenance; 0: not known. */
static int share_of(const struct predict_pair *p, const struct table *t)
{
    int G = (int)whole_within(table_meta_real(t, "query_heads", 0), 0, INT32_MAX, 0);
    int H = (int)whole_within(table_meta_real(t, "kv_heads", 0), 0, INT32_MAX, 0);
    if (p->n_traces && kvf_n_layers(p->trace[0])) {
        G = kvf_n_heads(p->trace[0], 0, KVF_SPACE_QUERY);
        H = kvf_n_heads(p->trace[0], 0, KVF_SPACE_KV);
    }
    return G > 0 && H > 0 && G % H == 0 ? G / H : 0;
}

static int take_columns(struct reading *r, struct kvf_diag *d)
{
    const char *a = table_meta(r->t, "model_hash");
    const char *b = table_meta(r->x->args->pair[r->pair].effect, "model_hash");
    int taken = 0;
    if (a && b && strcmp(a, b) != 0)
        return kvf_fail(d, KVF_E_ARG, "it is of another model than the effect");
    if (r->head < 0 || table_col_type(r->t, r->head) != TABLE_STR)
        return kvf_fail(d, KVF_E_ARG, "there is no column 'head'");
    if (r->x->entries && r->token < 0)
        return kvf_fail(d, KVF_E_ARG, "effects of entries need a column 'token'");
    int err = take_rows(r, d);
    if (err)
        return err;
    err = check_rows(r, d);
    if (err)
        return err;
    for (int c = 0; c < table_cols(r->t); c++) {
        if (!is_statistic(r, c))
            continue;
        err = put_column(r, c);
        if (err)
            return err;
        taken++;
    }
    if (!taken)
        return kvf_fail(d, KVF_E_ARG, "there is no column of numbers of heads%s",
                        r->token >= 0 ? ", and none of saliency" : "");
    return KVF_OK;
}

int predict_table(struct predict_values *x, int pair, int which, struct kvf_diag *d)
{
    const struct predict_pair *p = &x->args->pair[pair];
    const struct table *t = p->table[which];
    int token = table_find(t, "token");
    if (token >= 0 && table_col_type(t, token) != TABLE_INT)
        token = -1;
    struct reading r = {.x = x,
                        .t = t,
                        .pair = pair,
                        .head = table_find(t, "head"),
                        .token = token,
                        .share = share_of(p, t)};
    r.unit = MEM_NEW(int64_t, (size_t)table_rows(t));
    r.count = MEM_NEW(int64_t, (size_t)x->units);
    int err = r.unit && r.count ? take_columns(&r, d) : KVF_E_NOMEM;
    if (err && d && d->text[0])
        kvf_diag_prefix(d, "%s", p->table_path[which]);
    mem_free(r.unit);
    mem_free(r.count);
    return err;
}
