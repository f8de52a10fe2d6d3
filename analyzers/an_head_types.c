/* an_head_types.c - how many heads of each type several models have, and how deep they are.
 *
 * A trace is a document of its model. In a document, fraction = heads of the type / heads that have
 * a type, and depth = mean of layer / (layers - 1) over the heads of the type. The table has their
 * means over the documents of a model, with 95 % intervals over documents (stats_mean_interval). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "analyzers/classes.h"
#include "analyzers/copies.h"
#include "analyzers/head_kind.h"
#include "analyzers/records.h"
#include "base/mem.h"
#include "base/stats.h"
#include "libtrace/run_header.h"

enum { MOST_TRACES = 256, MOST_TYPES = N_HEAD_KINDS, REPLICATES = 1000, NAME = 112 };
#define CRITERION "mass.90" /* default */

enum { BY_KINDS, BY_INDUCTION, BY_RETRIEVAL };
static const char *const by_words[] = {"kinds", "induction", "retrieval", NULL};

struct options {
    int by;
    const char *criterion, *classes, *needle;
};

/* Heads of each type in a document. */
struct document {
    int model;
    char digest[33];
    int64_t heads; /* that have a type; 0: the document does not count */
    int64_t n[MOST_TYPES];
    double depth[MOST_TYPES]; /* sum over the heads of the type */
};

struct model {
    char hash[64], name[NAME];
    int64_t heads; /* chosen query heads */
};

struct row {
    const char *model, *kind;
    int64_t of, documents, occurs, models;
    double heads, fraction, low, high, depth, depth_low, depth_high;
};

struct job {
    const struct options *o;
    int n_documents, n_models, n_types;
    struct document *document; /* [n_documents] */
    struct model *model;       /* [n_documents], n_models used */
    struct row *row;           /* [n_models * n_types] */
};

static const char *type_name(const struct job *x, int type)
{
    return x->o->by == BY_KINDS ? head_kind_name((enum head_kind)type) : by_words[x->o->by];
}

/* ---- reading */

/* Finds the model of a trace, or adds it. Two models with one name get a part of their hash. */
static int find_model(struct job *x, struct kvf_trace *t, int *ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(t, &root, d), k = 0;
    if (err)
        return err;
    const struct json *model = json_get(root, "model");
    const char *hash = json_str(json_get(model, "hash"), "");
    while (k < x->n_models && strncmp(x->model[k].hash, hash, sizeof x->model[k].hash - 1) != 0)
        k++;
    if (k == x->n_models) {
        struct model *m = &x->model[x->n_models++];
        snprintf(m->hash, sizeof m->hash, "%.63s", hash);
        snprintf(m->name, sizeof m->name, "%.90s", json_str(json_get(model, "name"), "?"));
        for (int i = 0; i < k; i++)
            if (strcmp(x->model[i].name, m->name) == 0) {
                size_t n = strlen(m->name);
                snprintf(m->name + n, sizeof m->name - n, " %.8s", hash);
                break;
            }
    }
    json_free(root);
    *ret = k;
    return KVF_OK;
}

/* A text that is given twice would count as two documents. */
static int check_new(const struct job *x, int k, struct kvf_diag *d)
{
    for (int i = 0; i < k; i++)
        if (strcmp(x->document[i].digest, x->document[k].digest) == 0)
            return kvf_fail(d, KVF_E_ARG, "traces %d and %d are equal: each document counts once",
                            i + 1, k + 1);
    return KVF_OK;
}

static void count_head(struct document *x, const struct kvf_trace *t, const struct head *h,
                       int type)
{
    int last = kvf_n_layers(t) - 1;
    x->n[type]++;
    x->depth[type] += last > 0 ? (double)h->layer / last : 0;
}

static int read_kinds(const struct job *x, struct document *doc, struct kvf_trace *t,
                      const struct analyzer_args *args, struct kvf_diag *d)
{
    struct signature_source *s = NULL;
    int err = signature_open(t, args, x->o->criterion, x->o->classes, &s, d);
    int n = err || !kvf_n_steps(t) ? 0 : signature_heads(s)->n;
    for (int h = 0; !err && h < n; h++) {
        struct signature all[3];
        double rules[N_RULES], score;
        err = signature_read(s, h, all, d);
        enum head_kind kind = err ? HEAD_UNKNOWN : head_kind_of(&all[0], rules, &score);
        if (kind == HEAD_UNKNOWN)
            continue;
        doc->heads++;
        count_head(doc, t, &signature_heads(s)->head[h], (int)kind);
    }
    signature_close(s);
    return err;
}

static int read_scores(const struct job *x, struct document *doc, struct kvf_trace *t,
                       const struct analyzer_args *args, struct kvf_diag *d)
{
    struct copies_source *s = NULL;
    struct head_list heads = {0};
    int64_t a, b;
    bool retrieval = x->o->by == BY_RETRIEVAL;
    int err = tokens_select(t, args, &a, &b, d);
    if (!err)
        err = copies_open(t, x->o->needle, a, b, &s, d);
    if (!err && !s && kvf_n_steps(t))
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "--by %s needs the columns copy.*: record the run with --probes copies",
                       by_words[x->o->by]);
    if (!err && s && retrieval && !copies_text(s)->needle)
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "--by retrieval: the run has no span 'needle'; --needle names another, and "
                       "kvfate run --spans names the spans of a prompt");
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    for (int h = 0; !err && s && h < heads.n; h++) {
        struct copies c;
        err = copies_read(s, &heads.head[h], &c, d);
        double score = retrieval ? c.retrieval : c.induction;
        if (err || isnan(score))
            continue;
        doc->heads++;
        if (score >= (retrieval ? COPIES_RETRIEVAL : COPIES_INDUCTION))
            count_head(doc, t, &heads.head[h], 0);
        analyzer_tell(args, h + 1, heads.n);
    }
    heads_free(&heads);
    copies_close(s);
    return err;
}

static int read_document(struct job *x, int k, struct kvf_trace *t,
                         const struct analyzer_args *args, struct kvf_diag *d)
{
    struct document *doc = &x->document[k];
    struct head_list heads = {0};
    int err = find_model(x, t, &doc->model, d);
    if (!err)
        err = kvf_digest(t, doc->digest, d);
    if (!err)
        err = check_new(x, k, d);
    if (!err)
        err = heads_select(t, KVF_SPACE_QUERY, args->heads, &heads, d);
    if (err)
        return err;
    x->model[doc->model].heads = heads.n;
    heads_free(&heads);
    return (x->o->by == BY_KINDS ? read_kinds : read_scores)(x, doc, t, args, d);
}

/* ---- the table */

/* Fractions and depths lie in 0 .. 1. NaN stays. */
static void cut_to_unit(double *low, double *high)
{
    *low = *low < 0 ? 0 : *low;
    *high = *high > 1 ? 1 : *high;
}

/* Fills a row with the means and intervals over documents. v: [n_documents] scratch. */
static int fill_row(const struct job *x, int model, int type, double *v, struct row *r)
{
    size_t n = 0, deep = 0;
    *r = (struct row){
        .model = x->model[model].name, .kind = type_name(x, type), .of = x->model[model].heads};
    for (int k = 0; k < x->n_documents; k++) {
        const struct document *doc = &x->document[k];
        if (doc->model != model || doc->heads == 0)
            continue;
        v[n++] = (double)doc->n[type] / (double)doc->heads;
        r->occurs += doc->n[type] > 0;
        r->heads += (double)doc->n[type];
    }
    r->documents = (int64_t)n;
    r->heads = n ? r->heads / (double)n : NAN;
    r->fraction = stats_mean(v, n);
    int err = stats_mean_interval(v, n, REPLICATES, 0, &r->low, &r->high);
    cut_to_unit(&r->low, &r->high);
    for (int k = 0; !err && k < x->n_documents; k++) {
        const struct document *doc = &x->document[k];
        if (doc->model == model && doc->n[type] > 0)
            v[deep++] = doc->depth[type] / (double)doc->n[type];
    }
    r->depth = stats_mean(v, deep);
    if (!err)
        err = stats_mean_interval(v, deep, REPLICATES, 0, &r->depth_low, &r->depth_high);
    cut_to_unit(&r->depth_low, &r->depth_high);
    return err;
}

/* Counts for each type the models in which the lower end of its fraction is above 0. */
static int fill_rows(struct job *x)
{
    double *v = MEM_NEW(double, (size_t)x->n_documents);
    int err = v ? KVF_OK : KVF_E_NOMEM, N = x->n_types;
    for (int m = 0; !err && m < x->n_models; m++)
        for (int type = 0; !err && type < N; type++)
            err = fill_row(x, m, type, v, &x->row[m * N + type]);
    for (int r = 0; !err && r < x->n_models * N; r++)
        for (int m = 0; m < x->n_models; m++)
            x->row[r].models += x->row[m * N + r % N].low > 0;
    mem_free(v);
    return err;
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"model", "", TABLE_STR, AT(model)},
    {"kind", "", TABLE_STR, AT(kind)},
    {"fraction", "", TABLE_REAL, AT(fraction)},
    {"low", "", TABLE_REAL, AT(low)},
    {"high", "", TABLE_REAL, AT(high)},
    {"heads", "", TABLE_REAL, AT(heads)},
    {"of", "", TABLE_INT, AT(of)},
    {"depth", "", TABLE_REAL, AT(depth)},
    {"depth_low", "", TABLE_REAL, AT(depth_low)},
    {"depth_high", "", TABLE_REAL, AT(depth_high)},
    {"documents", "", TABLE_INT, AT(documents)},
    {"occurs", "", TABLE_INT, AT(occurs)},
    {"models", "", TABLE_INT, AT(models)},
};

static int put_table(const struct job *x, struct kvf_trace *first, struct table **ret,
                     struct kvf_diag *d)
{
    int64_t n = (int64_t)x->n_models * x->n_types;
    struct table *out = table_create("head-types", n);
    if (!out)
        return KVF_E_NOMEM;
    int err = put_provenance(out, first, d);
    table_meta_str(out, "by", by_words[x->o->by]);
    table_meta_num(out, "traces", x->n_documents);
    table_meta_num(out, "models", x->n_models);
    if (x->o->by == BY_KINDS)
        table_meta_str(out, "criterion", x->o->criterion);
    else
        table_meta_num(out, "limit",
                       x->o->by == BY_RETRIEVAL ? COPIES_RETRIEVAL : COPIES_INDUCTION);
    for (size_t c = 0; !err && c < sizeof members / sizeof *members; c++)
        err = records_put(out, x->row, sizeof *x->row, &members[c], 1);
    return table_deliver(out, err, ret);
}

static int check_options(const struct options *o, struct kvf_diag *d)
{
    if (o->by != BY_RETRIEVAL && o->needle)
        return kvf_fail(d, KVF_E_ARG, "--needle has an effect only with --by retrieval");
    if (o->by != BY_KINDS && strcmp(o->criterion, CRITERION) != 0)
        return kvf_fail(d, KVF_E_ARG, "--criterion has an effect only with --by kinds");
    if (o->by != BY_KINDS && o->classes)
        return kvf_fail(d, KVF_E_ARG, "--classes has an effect only with --by kinds");
    return KVF_OK;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct job x = {.o = args->options, .n_documents = n_traces};
    int err = check_options(x.o, d);
    if (err)
        return err;
    x.n_types = x.o->by == BY_KINDS ? HEAD_UNKNOWN : 1;
    x.document = MEM_NEW(struct document, (size_t)n_traces);
    x.model = MEM_NEW(struct model, (size_t)n_traces);
    x.row = mem_alloc((size_t)n_traces, (size_t)x.n_types * sizeof *x.row);
    err = x.document && x.model && x.row ? KVF_OK : KVF_E_NOMEM;
    for (int k = 0; !err && k < n_traces; k++)
        err = read_document(&x, k, traces[k], args, d);
    if (!err)
        err = fill_rows(&x);
    if (!err)
        err = put_table(&x, traces[0], ret_table, d);
    mem_free_all(x.document, x.model, x.row);
    return err;
}

/* Writes "sink 0.21 (0.18 .. 0.24)" for each type that occurs, a line for each model. */
static void describe_model(const struct table *t, const char *model, struct buf *out)
{
    int name = table_find(t, "model"), kind = table_find(t, "kind");
    bool any = false;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, table_find(t, "fraction"), r);
        double low = table_real(t, table_find(t, "low"), r);
        if (strcmp(table_str(t, name, r), model) != 0 || !(v > 0))
            continue;
        buf_printf(out, "%s %s %.3f", any ? "," : "", table_str(t, kind, r), v);
        if (!isnan(low))
            buf_printf(out, " (%.3f .. %.3f)", low, table_real(t, table_find(t, "high"), r));
        any = true;
    }
    buf_printf(out, "%s\n", any ? "" : " no head has a type");
}

/* Writes the types whose interval is above 0 in every model. */
static void describe_everywhere(const struct table *t, struct buf *out)
{
    int64_t models = table_meta_int(t, "models", 0), n = table_rows(t) / (models ? models : 1);
    bool any = false;
    buf_printf(out, "in each of %lld models (interval above 0):", (long long)models);
    for (int64_t r = 0; r < n; r++) {
        if (table_int(t, table_find(t, "models"), r) < models)
            continue;
        buf_printf(out, "%s %s", any ? "," : "", table_str(t, table_find(t, "kind"), r));
        any = true;
    }
    buf_printf(out, "%s\n", any ? "" : " no type");
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t models = table_meta_int(t, "models", 0), n = table_rows(t) / (models ? models : 1);
    int name = table_find(t, "model"), documents = table_find(t, "documents");
    for (int64_t r = 0; r < table_rows(t); r += n ? n : 1) {
        buf_printf(out, "%s, %lld documents:", table_str(t, name, r),
                   (long long)table_int(t, documents, r));
        describe_model(t, table_str(t, name, r), out);
    }
    if (models > 1)
        describe_everywhere(t, out);
}

const struct analyzer an_head_types = {
    .name = "head-types",
    .summary = "fraction and depth of each head type in several models, with intervals",
    .example = "kvfate heads --as types text1.kvf text2.kvf -o head-types.tsv",
    OPTIONS({OPT_WORD, 0, "by", offsetof(struct options, by), "WHAT",
             "kinds by the rules of heads, or heads above the published limit of a score", "kinds",
             .words = by_words},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set that defines the last use", CRITERION},
            CLASSES_OPTION(struct options, classes),
            {OPT_STR, 0, "needle", offsetof(struct options, needle), "NAME",
             "span of the prompt for which copies in the answer give retrieval scores",
             .absent = "needle"}),
    COLUMNS(SIGNATURE_COLUMNS("--by kinds"), COPIES_COLUMNS("--by induction or retrieval")),
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};
