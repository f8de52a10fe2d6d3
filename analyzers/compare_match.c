/* compare_match.c - signatures of the heads of a group of traces, and their matches as rows. */
#include <math.h>
#include <string.h>

#include "analyzers/compare_match.h"
#include "analyzers/head_match.h"
#include "base/mem.h"

struct compare_row compare_row_of(int a, int b, const struct head *p, const struct head *q,
                                  double distance)
{
    return (struct compare_row){.a = a + 1,
                                .b = b + 1,
                                .layer_a = p->layer,
                                .index_a = p->index,
                                .layer_b = q->layer,
                                .index_b = q->index,
                                .own = -1,
                                .joined = -1,
                                .head_a = p->name,
                                .head_b = q->name,
                                .space = "",
                                .changed = "",
                                .distance = distance,
                                .value_a = NAN,
                                .value_b = NAN,
                                .rival = NAN,
                                .nearer = NAN,
                                .nearer_wrong = NAN,
                                .p = NAN,
                                .q = NAN};
}

/* ---- the texts of a group */

static size_t cells(const struct sightings *s)
{
    return (size_t)s->heads.n * (size_t)s->n_f;
}

static int make_room(struct sightings *s, enum kvf_space space)
{
    s->space = space;
    s->n_f = space == KVF_SPACE_QUERY ? FINGERPRINT_QUERY : FINGERPRINT_KV;
    s->score = mem_alloc(cells(s), sizeof *s->score);
    s->value = mem_alloc(cells(s), sizeof *s->value);
    return s->score && s->value ? KVF_OK : KVF_E_NOMEM;
}

/* A feature that one head of a text lacks is NaN for all: ranks of some heads differ from ranks of
 * all. */
static void drop_incomplete(double *x, int n, int n_f)
{
    for (int f = 0; f < n_f; f++) {
        double sum = 0;
        for (int h = 0; h < n; h++)
            sum += x[(size_t)h * (size_t)n_f + (size_t)f];
        for (int h = 0; h < n && isnan(sum); h++)
            x[(size_t)h * (size_t)n_f + (size_t)f] = NAN;
    }
}

/* Adds the features x [heads][n_f] of one of n texts, which become scores. */
static int add_text(struct sightings *s, double *x, int n)
{
    drop_incomplete(x, s->heads.n, s->n_f);
    for (size_t k = 0; k < cells(s); k++)
        s->value[k] += x[k] / n;
    for (size_t k = 0; k < cells(s); k++) /* NaN stays NaN in the values, and is dropped */
        x[k] = isnan(x[k]) ? 0 : x[k];
    int err = rank_scores(x, s->heads.n, s->n_f);
    for (size_t k = 0; !err && k < cells(s); k++)
        s->score[k] += x[k] / n;
    return err;
}

static int read_text(struct compare_group *g, struct kvf_trace *t, int n,
                     const struct analyzer_args *args, double *q, double *k, struct kvf_diag *d)
{
    int64_t a, b;
    int err = tokens_select(t, args, &a, &b, d);
    if (!err)
        err = fingerprint_query(t, &g->query.heads, a, b, q, d);
    if (!err)
        err = fingerprint_kv(t, &g->query.heads, q, &g->kv.heads, a, b, k, d);
    if (!err)
        err = add_text(&g->query, q, n);
    return err ? err : add_text(&g->kv, k, n);
}

static bool equal_heads(const struct kvf_trace *x, const struct kvf_trace *y)
{
    bool equal = kvf_n_layers(x) == kvf_n_layers(y);
    for (int l = 0; equal && l < kvf_n_layers(x); l++)
        equal = kvf_n_heads(x, l, KVF_SPACE_QUERY) == kvf_n_heads(y, l, KVF_SPACE_QUERY)
                && kvf_n_heads(x, l, KVF_SPACE_KV) == kvf_n_heads(y, l, KVF_SPACE_KV);
    return equal;
}

int compare_group_read(struct kvf_trace *const *t, const int *which, int n,
                       const struct analyzer_args *args, struct compare_group *ret,
                       struct kvf_diag *d)
{
    struct kvf_trace *first = t[which[0]];
    *ret = (struct compare_group){.n = n, .t = first};
    for (int k = 1; k < n; k++)
        if (!equal_heads(first, t[which[k]]))
            return kvf_fail(d, KVF_E_ARG,
                            "traces %d and %d have other layers or heads: they cannot be texts of "
                            "one group",
                            which[0] + 1, which[k] + 1);
    int err = heads_select(first, KVF_SPACE_QUERY, args->heads, &ret->query.heads, d);
    if (!err)
        err = fingerprint_kv_heads(first, &ret->query.heads, &ret->kv.heads, d);
    if (!err)
        err = make_room(&ret->query, KVF_SPACE_QUERY);
    if (!err)
        err = make_room(&ret->kv, KVF_SPACE_KV);
    if (err)
        return err;
    double *q = mem_alloc(cells(&ret->query), sizeof *q),
           *k = mem_alloc(cells(&ret->kv), sizeof *k);
    err = q && k ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < n; i++)
        err = read_text(ret, t[which[i]], n, args, q, k, d);
    mem_free_all(q, k);
    return err;
}

static void sightings_free(struct sightings *s)
{
    heads_free(&s->heads);
    mem_free_all(s->score, s->value);
}

void compare_group_free(struct compare_group *g)
{
    sightings_free(&g->query);
    sightings_free(&g->kv);
}

/* ---- matches of two groups */

static bool known(const struct sightings *s, int f)
{
    return s->heads.n && !isnan(s->value[f]); /* of all heads, or of no head */
}

/* The features that both have: their places to feature, scores of s to ret [heads][n]. */
static int shared_features(const struct sightings *a, const struct sightings *b, int *feature)
{
    int n = 0;
    for (int f = 0; f < a->n_f; f++)
        if (known(a, f) && known(b, f))
            feature[n++] = f;
    return n;
}

static double *take_features(const struct sightings *s, const int *feature, int n)
{
    double *x = mem_alloc((size_t)s->heads.n * (size_t)n, sizeof *x);
    for (size_t h = 0; x && h < (size_t)s->heads.n; h++)
        for (int f = 0; f < n; f++)
            x[h * (size_t)n + (size_t)f] = s->score[h * (size_t)s->n_f + (size_t)feature[f]];
    return x;
}

/* The feature with the largest difference of scores, and its values. */
static void fill_changed(const struct sightings *a, const struct sightings *b, const int *feature,
                         int n, const struct head_match *m, struct compare_row *r)
{
    size_t p = (size_t)m->a * (size_t)a->n_f, q = (size_t)m->b * (size_t)b->n_f;
    double most = -1;
    for (int k = 0; k < n; k++) {
        size_t f = (size_t)feature[k];
        double gap = fabs(a->score[p + f] - b->score[q + f]);
        if (gap <= most)
            continue;
        most = gap;
        fingerprint_name(a->space, feature[k], r->feature);
        r->value_a = a->value[p + f];
        r->value_b = b->value[q + f];
    }
    r->changed = r->feature;
}

/* Heads of one kind of two groups. */
struct contest {
    const struct sightings *a, *b;
    int *feature, n_f; /* features that both have */
    double *x, *y;     /* their scores */
    double *beside;    /* [heads of a][heads of b]; NULL: nothing */
    double *distance;  /* the same */
    struct head_match *match;
    int n; /* matches */
};

static int contest_run(struct contest *c, struct kvf_diag *d)
{
    size_t n_a = (size_t)c->a->heads.n, n_b = (size_t)c->b->heads.n;
    c->feature = MEM_NEW(int, (size_t)c->a->n_f);
    c->match = MEM_NEW(struct head_match, n_a < n_b ? n_a : n_b);
    c->distance = mem_alloc(n_a * n_b, sizeof *c->distance);
    if (!c->feature || !c->match || !c->distance)
        return KVF_E_NOMEM;
    c->n_f = shared_features(c->a, c->b, c->feature);
    c->x = take_features(c->a, c->feature, c->n_f);
    c->y = take_features(c->b, c->feature, c->n_f);
    if (!c->x || !c->y)
        return KVF_E_NOMEM;
    const struct head_pair pair = {
        .a = c->x, .b = c->y, .beside = c->beside, .n_a = (int)n_a, .n_b = (int)n_b, .n_f = c->n_f};
    return head_match(&pair, c->distance, c->match, &c->n, d);
}

static void contest_free(struct contest *c)
{
    void *const all[] = {c->feature, c->x, c->y, c->beside, c->distance, c->match};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        mem_free(all[k]);
}

static void put_matches(const struct contest *c, int ga, int gb, double level,
                        struct compare_row *row)
{
    for (int k = 0; k < c->n; k++) {
        const struct head_match *m = &c->match[k];
        struct compare_row *r = &row[k];
        *r = compare_row_of(ga, gb, &c->a->heads.head[m->a], &c->b->heads.head[m->b], m->distance);
        r->space = c->a->space == KVF_SPACE_QUERY ? "query" : "kv";
        r->rival = isfinite(m->rival) ? m->rival : NAN;
        r->nearer = m->nearer;
        r->nearer_wrong = m->nearer_wrong;
        r->p = m->p;
        r->q = m->q;
        r->own = isnan(r->q) ? -1 : r->q < level;
        fill_changed(c->a, c->b, c->feature, c->n_f, m, r);
    }
}

/* Whether the query head of a layer reads the KV head. */
static bool reads(const struct kvf_trace *t, int64_t layer, int64_t query, int64_t kv)
{
    int G = kvf_n_heads(t, (int)layer, KVF_SPACE_QUERY);
    int H = kvf_n_heads(t, (int)layer, KVF_SPACE_KV);
    return H && query / (G / H) == kv;
}

/* joined: of a KV head the query heads of its group that are matched into the group of its partner;
 * of a query head 1 when the KV heads that both read are matched, 0 when they are not. */
static void join(const struct compare_group *a, const struct compare_group *b,
                 struct compare_row *row, int n_query, int n_kv)
{
    for (int q = 0; q < n_query; q++)
        row[q].joined = n_kv ? 0 : -1;
    for (int k = n_query; k < n_query + n_kv; k++) {
        row[k].joined = 0;
        for (int q = 0; q < n_query; q++) {
            bool both = row[q].layer_a == row[k].layer_a && row[q].layer_b == row[k].layer_b
                        && reads(a->t, row[q].layer_a, row[q].index_a, row[k].index_a)
                        && reads(b->t, row[q].layer_b, row[q].index_b, row[k].index_b);
            row[k].joined += both;
            row[q].joined = both ? 1 : row[q].joined;
        }
    }
}

/* The place in the list of KV heads of the KV head that a query head reads, or -1. */
static int kv_of(const struct compare_group *g, int query)
{
    const struct head *q = &g->query.heads.head[query];
    for (int k = 0; k < g->kv.heads.n; k++)
        if (g->kv.heads.head[k].layer == q->layer
            && reads(g->t, q->layer, q->index, g->kv.heads.head[k].index))
            return k;
    return -1;
}

/* Squared distances of the KV heads that two query heads read; NULL when memory is out.  All 0 when
 * the list of a side lacks such a KV head. */
static double *beside_of(const struct compare_group *a, const struct compare_group *b,
                         const double *distance)
{
    size_t n_a = (size_t)a->query.heads.n, n_b = (size_t)b->query.heads.n, n = n_a + n_b;
    double *beside = mem_alloc(n_a * n_b, sizeof *beside);
    int *kv = MEM_NEW(int, n);
    bool whole = true;
    for (size_t k = 0; kv && k < n; k++) {
        kv[k] = k < n_a ? kv_of(a, (int)k) : kv_of(b, (int)(k - n_a));
        whole = whole && kv[k] >= 0;
    }
    for (size_t i = 0; beside && kv && whole && i < n_a; i++)
        for (size_t j = 0; j < n_b; j++) {
            double far = distance[(size_t)kv[i] * (size_t)b->kv.heads.n + (size_t)kv[n_a + j]];
            beside[i * n_b + j] = far * far;
        }
    if (!kv) {
        mem_free(beside);
        beside = NULL;
    }
    mem_free(kv);
    return beside;
}

int compare_groups(const struct compare_group *a, const struct compare_group *b, int ga, int gb,
                   double level, struct compare_row *row, int64_t *ret_n, struct kvf_diag *d)
{
    struct contest query = {.a = &a->query, .b = &b->query}, kv = {.a = &a->kv, .b = &b->kv};
    int err = contest_run(&kv, d);
    if (!err) {
        query.beside = beside_of(a, b, kv.distance);
        err = query.beside ? contest_run(&query, d) : KVF_E_NOMEM;
    }
    if (!err) {
        put_matches(&query, ga, gb, level, row);
        put_matches(&kv, ga, gb, level, row + query.n);
        join(a, b, row, query.n, kv.n);
        *ret_n = query.n + kv.n;
    }
    contest_free(&query);
    contest_free(&kv);
    return err;
}
