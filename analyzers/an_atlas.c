/* an_atlas.c - the heads of a model over many texts: their mean signatures (signature.h), clusters
 * of them, and how stable both are from text to text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/classes.h"
#include "analyzers/head_kind.h"
#include "analyzers/medoids.h"
#include "base/mem.h"
#include "base/stats.h"

enum { MOST_TRACES = 256, AUTO_K = 12 };

struct options {
    const char *k, *criterion, *classes;
};

struct atlas {
    int n_traces;
    int64_t k;              /* 0: auto */
    struct head_list heads; /* of the first trace */
    struct signature *of;   /* [parts][heads]: of each trace */
    struct signature *half; /* [2][heads]: means of every other trace, or halves of the tokens */
    struct signature *mean; /* [heads] */
    size_t n, *head;        /* heads that have a signature, in rising order: [n] */
    double *D;              /* [n][n] of their means */
    size_t *medoid, *cluster, *other; /* [k], [n], [n] */
    double *silhouette, width;        /* [n], their mean */
    int64_t *agree, *known;           /* [n] parts in which a head is nearest to its medoid */
    double rand, icc[N_SIGNATURE];
    int64_t icc_heads[N_SIGNATURE];
};

static bool has_signature(const struct signature *s)
{
    return !isnan(s->f[SIGNATURE_SINK]);
}

/* ---- reading */

static int same_heads(const struct head_list *a, const struct head_list *b, int k,
                      struct kvf_diag *d)
{
    bool same = a->n == b->n;
    for (int h = 0; same && h < a->n; h++)
        same = a->layer[h] == b->layer[h] && a->index[h] == b->index[h];
    return same ? KVF_OK
                : kvf_fail(
                    d, KVF_E_ARG,
                    "trace %d has other heads than trace 1: an atlas "
                    "is of one model (kvfate heads --as types and kvfate compare take several)",
                    k + 1);
}

static int allocate(struct atlas *x)
{
    size_t H = (size_t)x->heads.n;
    x->of = mem_alloc(H * (size_t)x->n_traces, sizeof *x->of);
    x->half = mem_alloc(2 * H, sizeof *x->half);
    x->mean = MEM_NEW(struct signature, H);
    x->head = MEM_NEW(size_t, H);
    x->medoid = MEM_NEW(size_t, H);
    x->cluster = MEM_NEW(size_t, H);
    x->other = MEM_NEW(size_t, H);
    x->silhouette = MEM_NEW(double, H);
    x->agree = MEM_NEW(int64_t, H);
    x->known = MEM_NEW(int64_t, H);
    return x->of && x->half && x->mean && x->head && x->medoid && x->cluster && x->other
                   && x->silhouette && x->agree && x->known
               ? KVF_OK
               : KVF_E_NOMEM;
}

static void release(struct atlas *x)
{
    void *const all[] = {x->of,    x->half,       x->mean,  x->head,  x->medoid, x->cluster,
                         x->other, x->silhouette, x->agree, x->known, x->D};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    heads_free(&x->heads);
}

static int read_trace(struct atlas *x, int k, struct kvf_trace *t, const struct analyzer_args *args,
                      struct kvf_diag *d)
{
    struct signature_source *s = NULL;
    const struct options *o = args->options;
    int err = signature_open(t, args, o->criterion, o->classes, &s, d);
    if (!err)
        err = same_heads(&x->heads, signature_heads(s), k, d);
    for (int h = 0; !err && h < x->heads.n; h++) {
        struct signature all[3];
        err = signature_read(s, h, all, d);
        if (err)
            break;
        x->of[k * x->heads.n + h] = all[0];
        for (int half = 0; x->n_traces == 1 && half < 2; half++)
            x->half[half * x->heads.n + h] = all[1 + half];
    }
    signature_close(s);
    return err;
}

/* Mean of the signatures of head h in traces first, first + step, ... */
static int mean_of(const struct atlas *x, int h, int first, int step, struct signature *ret)
{
    struct signature *all = MEM_NEW(struct signature, (size_t)x->n_traces);
    size_t n = 0;
    if (!all)
        return KVF_E_NOMEM;
    for (int k = first; k < x->n_traces; k += step)
        all[n++] = x->of[k * x->heads.n + h];
    signature_mean(all, n, ret);
    mem_free(all);
    return KVF_OK;
}

static int find_means(struct atlas *x)
{
    int err = KVF_OK, H = x->heads.n;
    for (int h = 0; !err && h < H; h++) {
        err = mean_of(x, h, 0, 1, &x->mean[h]);
        for (int half = 0; !err && x->n_traces > 1 && half < 2; half++)
            err = mean_of(x, h, half, 2, &x->half[half * H + h]);
        bool complete = has_signature(&x->mean[h]) && has_signature(&x->half[h])
                        && has_signature(&x->half[H + h]);
        if (complete)
            x->head[x->n++] = (size_t)h;
    }
    return err;
}

/* ---- clusters */

/* Distances of the heads that have a signature. */
static int distances(const struct atlas *x, const struct signature *of, double **ret)
{
    double *D = mem_alloc(x->n * x->n, sizeof(double));
    for (size_t i = 0; D && i < x->n; i++)
        for (size_t j = 0; j < i; j++)
            D[i * x->n + j] = D[j * x->n + i] = signature_distance(&of[x->head[i]], &of[x->head[j]],
                                                                   NULL);
    *ret = D;
    return D ? KVF_OK : KVF_E_NOMEM;
}

static int try_k(struct atlas *x, size_t k)
{
    struct sum width = {0, 0};
    int err = medoids_find(x->D, x->n, k, x->medoid, x->cluster);
    if (!err)
        err = medoids_silhouette(x->D, x->n, k, x->cluster, x->silhouette, x->other);
    for (size_t i = 0; !err && i < x->n; i++)
        sum_add(&width, x->silhouette[i]);
    x->width = sum_get(&width) / (double)x->n;
    return err;
}

static int choose_k(struct atlas *x)
{
    double best = -INFINITY;
    int64_t chosen = 1;
    int err = KVF_OK;
    for (size_t k = 2; !err && x->k == 0 && k <= AUTO_K && k < x->n; k++) {
        err = try_k(x, k);
        if (err || !(x->width > best))
            continue;
        best = x->width;
        chosen = (int64_t)k;
    }
    x->k = x->k ? x->k : chosen;
    x->k = x->k < (int64_t)x->n ? x->k : (int64_t)x->n;
    return err ? err : try_k(x, (size_t)x->k);
}

/* Adjusted Rand index of the clusters of either half. */
static int compare_halves(struct atlas *x)
{
    size_t *cluster = MEM_NEW(size_t, 2 * x->n), *medoid = MEM_NEW(size_t, x->n);
    int err = cluster && medoid ? KVF_OK : KVF_E_NOMEM;
    for (size_t half = 0; !err && half < 2; half++) {
        double *D = NULL;
        err = distances(x, x->half + half * (size_t)x->heads.n, &D);
        if (!err)
            err = medoids_find(D, x->n, (size_t)x->k, medoid, cluster + half * x->n);
        mem_free(D);
    }
    if (!err)
        err = medoids_adjusted_rand(cluster, cluster + x->n, x->n, (size_t)x->k, &x->rand);
    mem_free_all(cluster, medoid);
    return err;
}

/* In how many texts, or halves of one, a head is nearer to the medoid of its cluster than to
 * any other. */
static void count_agreement(struct atlas *x)
{
    const struct signature *of = x->n_traces > 1 ? x->of : x->half;
    int parts = x->n_traces > 1 ? x->n_traces : 2;
    for (size_t i = 0; i < x->n; i++)
        for (int t = 0; t < parts; t++) {
            const struct signature *s = &of[(size_t)t * (size_t)x->heads.n + x->head[i]];
            double least = INFINITY;
            size_t nearest = 0;
            if (!has_signature(s))
                continue;
            for (size_t m = 0; m < (size_t)x->k; m++) {
                double far = signature_distance(s, &x->mean[x->head[x->medoid[m]]], NULL);
                if (far < least) {
                    least = far;
                    nearest = m;
                }
            }
            x->known[i]++;
            x->agree[i] += nearest == x->cluster[i];
        }
}

/* Intraclass correlation ICC(1,1) of a feature: heads by texts, one way (Shrout and Fleiss
 * 1979), of heads that have it in every text. */
static void correlate(struct atlas *x, int f)
{
    double T = x->n_traces, grand = 0, between = 0, within = 0;
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < x->n; i++) {
            double mean = 0, squares = 0;
            for (int t = 0; t < x->n_traces; t++)
                mean += signature_on_scale(f,
                                           x->of[(size_t)t * (size_t)x->heads.n + x->head[i]].f[f])
                        / T;
            if (isnan(mean))
                continue;
            for (int t = 0; t < x->n_traces; t++) {
                double v = signature_on_scale(
                    f, x->of[(size_t)t * (size_t)x->heads.n + x->head[i]].f[f]);
                squares += (v - mean) * (v - mean);
            }
            n += pass == 0;
            grand += pass == 0 ? mean : 0;
            within += pass == 0 ? squares : 0;
            between += pass == 1 ? T * (mean - grand) * (mean - grand) : 0;
        }
        grand /= pass == 0 && n ? (double)n : 1;
    }
    x->icc_heads[f] = n;
    double msb = between / (double)(n - 1), msw = within / ((double)n * (T - 1));
    x->icc[f] = n > 1 && T > 1 && msb + msw > 0 ? (msb - msw) / (msb + (T - 1) * msw) : NAN;
}

static int cluster(struct atlas *x)
{
    int err = find_means(x);
    if (!err && x->n)
        err = distances(x, x->mean, &x->D);
    if (!err && x->n)
        err = choose_k(x);
    if (!err && x->n)
        err = compare_halves(x);
    if (!err)
        count_agreement(x);
    for (int f = 0; !err && f < N_SIGNATURE; f++)
        correlate(x, f);
    return err;
}

/* ---- the table */

struct columns { /* [heads] each */
    int64_t *cluster, *is, *agree, *known;
    const char **medoid, **kind;
    double *silhouette, *stability, *v;
};

static void fill_columns(const struct atlas *x, const struct columns *c)
{
    for (int h = 0; h < x->heads.n; h++) {
        double scores[N_RULES], score;
        c->cluster[h] = -1;
        c->medoid[h] = "";
        c->silhouette[h] = c->stability[h] = NAN;
        c->kind[h] = head_kind_name(head_kind_of(&x->mean[h], scores, &score));
    }
    for (size_t i = 0; i < x->n; i++) {
        size_t h = x->head[i], m = x->cluster[i];
        c->cluster[h] = (int64_t)m + 1;
        c->medoid[h] = x->heads.name[x->head[x->medoid[m]]];
        c->is[h] = x->medoid[m] == i;
        c->silhouette[h] = x->silhouette[i];
        c->agree[h] = x->agree[i];
        c->known[h] = x->known[i];
        c->stability[h] = x->known[i] ? (double)x->agree[i] / (double)x->known[i] : NAN;
    }
}

static void put_columns(struct table *out, const struct atlas *x, const struct columns *c)
{
    put_heads(out, &x->heads);
    table_dense_int(out, "cluster", "", c->cluster);
    table_dense_str(out, "medoid", "", c->medoid);
    table_dense_real(out, "silhouette", "", c->silhouette);
    table_dense_real(out, "stability", "", c->stability);
    table_dense_int(out, "agree", "", c->agree);
    table_dense_int(out, "parts", "", c->known);
    table_dense_int(out, "is_medoid", "", c->is);
    table_dense_str(out, "kind", "", c->kind);
    for (int f = 0; f < N_SIGNATURE; f++) {
        for (int h = 0; h < x->heads.n; h++)
            c->v[h] = x->mean[h].f[f];
        table_dense_real(out, signature_name(f), signature_unit(f), c->v);
    }
}

static int put_rows(struct table *out, const struct atlas *x)
{
    size_t H = (size_t)x->heads.n;
    struct columns c = {MEM_NEW(int64_t, H), MEM_NEW(int64_t, H),      MEM_NEW(int64_t, H),
                        MEM_NEW(int64_t, H), MEM_NEW(const char *, H), MEM_NEW(const char *, H),
                        MEM_NEW(double, H),  MEM_NEW(double, H),       MEM_NEW(double, H)};
    int err = c.cluster && c.is && c.agree && c.known && c.medoid && c.kind && c.silhouette
                      && c.stability && c.v
                  ? KVF_OK
                  : KVF_E_NOMEM;
    if (!err) {
        fill_columns(x, &c);
        put_columns(out, x, &c);
        err = table_err(out);
    }
    void *const all[] = {c.cluster,      c.is,         c.agree,     c.known, (void *)c.medoid,
                         (void *)c.kind, c.silhouette, c.stability, c.v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    return err;
}

static void put_metadata(struct table *out, const struct atlas *x, const struct analyzer_args *args)
{
    char key[64];
    table_meta_num(out, "traces", x->n_traces);
    table_meta_str(out, "criterion", ((const struct options *)args->options)->criterion);
    table_meta_num(out, "k", (double)x->k);
    table_meta_num(out, "mean_silhouette", x->n ? x->width : NAN);
    table_meta_str(out, "halves", x->n_traces > 1 ? "traces" : "tokens");
    table_meta_num(out, "adjusted_rand", x->rand);
    table_meta_num(out, "undefined", (double)((size_t)x->heads.n - x->n));
    for (int f = 0; f < N_SIGNATURE; f++) {
        if (!signature_counts(f))
            continue;
        snprintf(key, sizeof key, "icc_%.50s", signature_name(f));
        table_meta_num(out, key, x->icc[f]);
        snprintf(key, sizeof key, "icc_heads_%.50s", signature_name(f));
        table_meta_num(out, key, (double)x->icc_heads[f]);
    }
}

static int parse_k(struct atlas *x, const char *k, struct kvf_diag *d)
{
    enum { MOST_K = 64 };
    if (strcmp(k, "auto") == 0)
        return KVF_OK;
    if (!opt_int(k, &x->k) || x->k < 1 || x->k > MOST_K)
        return kvf_fail(d, KVF_E_ARG, "--k must be auto or 1 to %d, not '%s'", (int)MOST_K, k);
    return KVF_OK;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    const struct options *o = args->options;
    struct atlas x = {.n_traces = n_traces, .rand = NAN};
    struct table *out = NULL;
    int err = parse_k(&x, o->k, d);
    if (!err)
        err = heads_select(traces[0], KVF_SPACE_QUERY, args->heads, &x.heads, d);
    if (!err)
        err = allocate(&x);
    for (int k = 0; !err && k < n_traces; k++)
        err = read_trace(&x, k, traces[k], args, d);
    if (!err)
        err = cluster(&x);
    if (err)
        goto done;
    out = table_create("atlas", x.heads.n);
    err = out ? put_provenance(out, traces[0], d) : KVF_E_NOMEM;
    if (err)
        goto done;
    put_metadata(out, &x, args);
    err = put_rows(out, &x);

done:
    release(&x);
    return table_deliver(out, err, ret_table);
}

static void describe(const struct table *t, struct buf *out)
{
    int cluster = table_find(t, "cluster"), medoid = table_find(t, "medoid");
    int kind = table_find(t, "kind"), is = table_find(t, "is_medoid");
    int stability = table_find(t, "stability");
    buf_printf(out,
               "%lld heads in %s clusters over %s traces: mean silhouette %.3f, adjusted Rand "
               "index of halves (%s) %.3f\n",
               (long long)table_rows(t), table_meta(t, "k"), table_meta(t, "traces"),
               table_meta_real(t, "mean_silhouette", NAN), table_meta(t, "halves"),
               table_meta_real(t, "adjusted_rand", NAN));
    for (int64_t r = 0; r < table_rows(t); r++) {
        double stable = 0;
        int64_t n = 0;
        if (!table_int(t, is, r))
            continue;
        for (int64_t s = 0; s < table_rows(t); s++)
            if (table_int(t, cluster, s) == table_int(t, cluster, r)) {
                stable += table_real(t, stability, s);
                n++;
            }
        buf_printf(out, "cluster %lld: %lld heads around %s (%s), mean stability %.3f\n",
                   (long long)table_int(t, cluster, r), (long long)n, table_str(t, medoid, r),
                   table_str(t, kind, r), stable / (double)n);
    }
}

const struct analyzer an_atlas = {
    .name = "atlas",
    .summary = "cluster heads over many texts, and test how stable the clusters are",
    .example = "kvfate atlas text1.kvf text2.kvf -o atlas.tsv",
    OPTIONS({OPT_STR, 0, "k", offsetof(struct options, k), "N",
             "clusters; auto: from 2 to 12, the number with the largest mean silhouette", "auto"},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set that defines the last use", "mass.90"},
            CLASSES_OPTION(struct options, classes)),
    COLUMNS(SIGNATURE_COLUMNS("always")),
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};
