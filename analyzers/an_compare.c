/* an_compare.c - compares the heads of two or more runs: the distances between them, and the
 * matching head in each run.  Of signatures, which need neither equal texts nor equal models
 * (signature.h; of matches fingerprint.h, over the texts of groups of runs); or, --by tokens, of
 * the rank correlation over the tokens of one text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/records.h"
#include "analyzers/align.h"
#include "analyzers/analyzer.h"
#include "analyzers/classes.h"
#include "analyzers/compare_match.h"
#include "analyzers/head_match.h"
#include "analyzers/protocol.h"
#include "analyzers/signature.h"
#include "base/mem.h"
#include "libtrace/run_header.h"

enum { MOST_TRACES = 64, MOST_ROWS = 1 << 22 };

static const char *const by_words[] = {"signature", "tokens", NULL};
/* Defaults. */
#define LEVEL 0.05
#define VALUE "mass.sum"
#define CRITERION "mass.90"

struct options {
    int by;
    bool match;
    double level;
    const char *groups, *value, *criterion, *classes;
};

struct side {
    struct kvf_trace *t;
    struct signature_source *source;
    struct signature *all;                        /* [heads][3]; NULL by tokens */
    struct head_list own;                         /* by tokens */
    const struct head_list *heads;                /* of source, or &own */
    int column;                                   /* by tokens */
    char hash[64], model[96], method[LABEL_TEXT]; /* of the run header; "", "?", "?": none */
};

struct job {
    int n;
    struct side side[MOST_TRACES];
    bool by_tokens, match;
    double level;
    int n_groups, of[MOST_TRACES]; /* group of each trace */
    struct compare_group *group;   /* [n_groups]; NULL without --match or by tokens */
    struct compare_row *row;
    int64_t n_rows, room, unmatched, undefined, pieces, bytes;
    int64_t t0, t1;
};

/* ---- distances of two traces */

static int distances_of_signatures(const struct side *a, const struct side *b, double *D)
{
    for (int i = 0; i < a->heads->n; i++)
        for (int j = 0; j < b->heads->n; j++)
            D[(size_t)i * (size_t)b->heads->n + (size_t)j] = signature_distance(
                &a->all[3 * i], &b->all[3 * j], NULL);
    return KVF_OK;
}

static int distances_of_tokens(struct job *x, const struct side *a, const struct side *b, double *D,
                               struct kvf_diag *d)
{
    struct alignment text;
    float *u = NULL, *v = NULL;
    bool sum = strncmp(kvf_column(a->t, a->column)->name, "mass.", 5) == 0;
    int err = align_texts(a->t, b->t, x->t0, x->t1, &text, d);
    if (err)
        return err;
    err = align_ranks(a->t, a->column, a->heads, &text, 0, sum, &u, d);
    if (!err)
        err = align_ranks(b->t, b->column, b->heads, &text, 1, sum, &v, d);
    for (int i = 0; !err && i < a->heads->n; i++)
        for (int j = 0; j < b->heads->n; j++) {
            const float *p = u + (size_t)i * (size_t)text.n, *q = v + (size_t)j * (size_t)text.n;
            double rho = 0;
            for (int64_t k = 0; k < text.n; k++)
                rho += (double)p[k] * (double)q[k];
            D[(size_t)i * (size_t)b->heads->n + (size_t)j] = rho > 1 ? 0 : 1 - rho; /* NaN stays */
        }
    x->pieces += text.n;
    x->bytes += text.bytes;
    mem_free_all(u, v);
    align_free(&text);
    return err;
}

/* ---- rows of pairs of traces */

static void add_row(struct job *x, int a, int b, int i, int j, double distance, bool matched)
{
    const struct head *p = &x->side[a].heads->head[i], *q = &x->side[b].heads->head[j];
    struct compare_row *r = &x->row[x->n_rows++];
    *r = compare_row_of(a, b, p, q, distance);
    r->matched = matched;
    x->undefined += isnan(distance);
}

/* All pairs, or only the pairs of the best assignment. */
static void put_pairs(struct job *x, int a, int b, const double *D, const int *partner)
{
    int A = x->side[a].heads->n, B = x->side[b].heads->n;
    int64_t first = x->n_rows;
    for (int i = 0; i < A; i++)
        for (int j = 0; j < B; j++)
            if (!x->match || partner[i] == j)
                add_row(x, a, b, i, j, D[(size_t)i * (size_t)B + (size_t)j], partner[i] == j);
    if (x->match)
        x->unmatched += A + B - 2 * (x->n_rows - first);
}

static int compare(struct job *x, int a, int b, struct kvf_diag *d)
{
    const struct side *p = &x->side[a], *q = &x->side[b];
    double *D = mem_alloc((size_t)p->heads->n * (size_t)q->heads->n, sizeof(double));
    int err = D ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = x->by_tokens ? distances_of_tokens(x, p, q, D, d) : distances_of_signatures(p, q, D);
    int *partner = MEM_NEW(int, (size_t)p->heads->n);
    if (!err)
        err = partner ? best_partners(D, p->heads->n, q->heads->n, partner) : KVF_E_NOMEM;
    if (!err)
        put_pairs(x, a, b, D, partner);
    mem_free_all(partner, D);
    return err;
}

/* ---- matches of groups of traces */

/* Keeps what the run header of a trace says of its model and method. */
static int read_header(struct side *s, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(s->t, &root, d);
    if (err)
        return err;
    const struct json *model = json_get(root, "model");
    snprintf(s->hash, sizeof s->hash, "%.63s", json_str(json_get(model, "hash"), ""));
    snprintf(s->model, sizeof s->model, "%.90s", json_str(json_get(model, "name"), "?"));
    run_label(s->method, root, "");
    json_free(root);
    return KVF_OK;
}

static void group_by_model(struct job *x)
{
    for (int k = 0; k < x->n; k++) {
        int like = 0;
        while (like < k && strcmp(x->side[k].hash, x->side[like].hash) != 0)
            like++;
        x->of[k] = like < k ? x->of[like] : x->n_groups++;
    }
}

/* With several models, no model may have traces in both groups: otherwise the match compares
 * neither models nor texts.  Traces of a single model may be split, to see whether texts change its
 * heads. */
static int check_groups(const struct job *x, struct kvf_diag *d)
{
    int a = -1, b = -1;
    bool several = false;
    for (int k = 1; k < x->n; k++) {
        const char *one = x->side[k].hash;
        for (int like = 0; like < k; like++) {
            bool same = strcmp(one, x->side[like].hash) == 0;
            several = several || !same;
            if (a < 0 && same && *one && x->of[k] != x->of[like]) {
                a = like;
                b = k;
            }
        }
    }
    return a < 0 || !several
               ? KVF_OK
               : kvf_fail(d, KVF_E_ARG,
                          "--groups: traces %d and %d are of one model, but are in groups %d and "
                          "%d with another model; --groups model makes a group of each model",
                          a + 1, b + 1, x->of[a] + 1, x->of[b] + 1);
}

static int choose_groups(struct job *x, const char *how, struct kvf_diag *d)
{
    int64_t first = 0;
    if (strcmp(how, "model") == 0) {
        group_by_model(x);
        if (x->n_groups < 2)
            return kvf_fail(d, KVF_E_ARG,
                            "--groups model: all traces are of one model; --groups N sets the size "
                            "of the first group");
        return KVF_OK;
    }
    bool each = strcmp(how, "each") == 0;
    if (!each && (!opt_int(how, &first) || first < 1 || first >= x->n))
        return kvf_fail(d, KVF_E_ARG,
                        "--groups must be each, model or a number from 1 to %d of traces that are "
                        "the first group, not '%s'",
                        x->n - 1, how);
    for (int k = 0; k < x->n; k++)
        x->of[k] = each ? k : k >= first;
    x->n_groups = each ? x->n : 2;
    return each ? KVF_OK : check_groups(x, d);
}

static int read_groups(struct job *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    struct kvf_trace *traces[MOST_TRACES];
    int err = KVF_OK;
    for (int k = 0; k < x->n; k++)
        traces[k] = x->side[k].t;
    x->group = MEM_NEW(struct compare_group, (size_t)x->n_groups);
    if (!x->group)
        return KVF_E_NOMEM;
    for (int g = 0; !err && g < x->n_groups; g++) {
        int which[MOST_TRACES], n = 0;
        for (int k = 0; k < x->n; k++)
            if (x->of[k] == g)
                which[n++] = k;
        err = compare_group_read(traces, which, n, args, &x->group[g], d);
    }
    return err;
}

static int64_t heads_of_group(const struct compare_group *g)
{
    return g->query.heads.n + g->kv.heads.n;
}

static int match_groups(struct job *x, int a, int b, struct kvf_diag *d)
{
    int64_t n = 0;
    const struct compare_group *p = &x->group[a], *q = &x->group[b];
    int err = compare_groups(p, q, a, b, x->level, x->row + x->n_rows, &n, d);
    if (err)
        return err;
    x->n_rows += n;
    x->unmatched += heads_of_group(p) + heads_of_group(q) - 2 * n;
    return KVF_OK;
}

/* ---- the table */

#define AT(member) offsetof(struct compare_row, member)
static const struct {
    struct record_member of;
    enum { ANY, PAIRS, MATCH } when; /* without --match, with it */
} members[] = {
    {{"a", "", TABLE_INT, AT(a)}, ANY},
    {{"b", "", TABLE_INT, AT(b)}, ANY},
    {{"head_a", "", TABLE_STR, AT(head_a)}, ANY},
    {{"head_b", "", TABLE_STR, AT(head_b)}, ANY},
    {{"distance", "", TABLE_REAL, AT(distance)}, ANY},
    {{"layer_a", "", TABLE_INT, AT(layer_a)}, ANY},
    {{"index_a", "", TABLE_INT, AT(index_a)}, ANY},
    {{"layer_b", "", TABLE_INT, AT(layer_b)}, ANY},
    {{"index_b", "", TABLE_INT, AT(index_b)}, ANY},
    {{"matched", "", TABLE_INT, AT(matched)}, PAIRS},
    {{"changed", "", TABLE_STR, AT(changed)}, MATCH},
    {{"value_a", "", TABLE_REAL, AT(value_a)}, MATCH},
    {{"value_b", "", TABLE_REAL, AT(value_b)}, MATCH},
    {{"space", "", TABLE_STR, AT(space)}, MATCH},
    {{"rival", "", TABLE_REAL, AT(rival)}, MATCH},
    {{"nearer", "", TABLE_REAL, AT(nearer)}, MATCH},
    {{"p", "", TABLE_REAL, AT(p)}, MATCH},
    {{"q", "", TABLE_REAL, AT(q)}, MATCH},
    {{"own", "", TABLE_INT, AT(own)}, MATCH},
    {{"joined", "", TABLE_INT, AT(joined)}, MATCH},
    {{"nearer_wrong", "", TABLE_REAL, AT(nearer_wrong)}, MATCH},
};

static int put_columns(struct table *out, const struct job *x)
{
    int err = KVF_OK;
    for (size_t c = 0; !err && c < sizeof members / sizeof *members; c++)
        if (members[c].when != (x->match ? PAIRS : MATCH))
            err = records_put(out, x->row, sizeof *x->row, &members[c].of, 1);
    return err;
}

/* Notes the model, the method and the length of a trace. */
static void put_trace(struct table *out, const struct job *x, int k)
{
    char key[24], value[LABEL_TEXT + 160], group[24] = "";
    const struct side *s = &x->side[k];
    snprintf(key, sizeof key, "trace_%d", k + 1);
    if (x->group)
        snprintf(group, sizeof group, "group %d, ", x->of[k] + 1);
    snprintf(value, sizeof value, "%s%s, %s, %lld tokens", group, s->model, s->method,
             (long long)kvf_n_steps(s->t));
    table_meta_str(out, key, value);
}

/* Notes the model of a group. */
static void put_group(struct table *out, const struct job *x, int g)
{
    char key[24];
    int k = 0;
    while (k < x->n - 1 && x->of[k] != g)
        k++;
    snprintf(key, sizeof key, "group_%d", g + 1);
    table_meta_str(out, key, x->side[k].model);
}

static int put_table(const struct job *x, const struct analyzer_args *args, struct table **ret,
                     struct kvf_diag *d)
{
    const struct options *o = args->options;
    struct table *out = table_create("compare", x->n_rows);
    if (!out)
        return KVF_E_NOMEM;
    struct kvf_trace *t[MOST_TRACES];
    for (int k = 0; k < x->n; k++)
        t[k] = x->side[k].t;
    int err = put_provenance_all(out, t, x->n, d);
    table_meta_num(out, "traces", x->n);
    if (x->group)
        table_meta_num(out, "groups", x->n_groups);
    for (int k = 0; k < x->n; k++)
        put_trace(out, x, k);
    for (int g = 0; x->group && g < x->n_groups; g++)
        put_group(out, x, g);
    table_meta_str(out, "by", x->by_tokens ? "tokens" : "signature");
    if (x->by_tokens) {
        table_meta_str(out, "value", o->value);
        table_meta_num(out, "pieces", (double)x->pieces);
        table_meta_num(out, "bytes", (double)x->bytes);
    } else if (!x->match) {
        table_meta_str(out, "criterion", o->criterion);
    }
    if (x->match) {
        table_meta_num(out, "level", x->level);
        table_meta_num(out, "unmatched", (double)x->unmatched);
    }
    table_meta_num(out, "undefined", (double)x->undefined);
    if (!err)
        err = put_columns(out, x);
    return table_deliver(out, err, ret);
}

/* ---- options */

/* The options for a trace that records only evictions. */
static void add_way_out(struct kvf_diag *d)
{
    size_t n = strlen(d->text);
    snprintf(d->text + n, sizeof d->text - n,
             "; --by tokens --value evict_step compares evictions");
}

static int open_side(struct job *x, int k, const struct analyzer_args *args, struct kvf_diag *d)
{
    struct side *s = &x->side[k];
    const struct options *o = args->options;
    if (!x->by_tokens) {
        int err = signature_open(s->t, args, o->criterion, o->classes, &s->source, d);
        if (err == KVF_E_NOTFOUND && kvf_find(s->t, "evict_step") >= 0)
            add_way_out(d);
        s->heads = err ? NULL : signature_heads(s->source);
        return err ? err : signature_read_all(s->source, &s->all, d);
    }
    int err = column_need(s->t, o->value, &s->column, d);
    enum kvf_space space = err ? KVF_SPACE_RUN : kvf_column(s->t, s->column)->space;
    if (!err && space == KVF_SPACE_RUN)
        err = kvf_fail(d, KVF_E_ARG, "--value: the column %s has no heads", o->value);
    if (!err)
        err = column_of_heads(s->t, s->column, space, d);
    if (!err)
        err = heads_select(s->t, space, args->heads, &s->own, d);
    s->heads = &s->own;
    return err;
}

static int parse(struct job *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    const struct options *o = args->options;
    x->by_tokens = o->by == 1;
    x->match = o->match;
    x->level = o->level;
    if (strcmp(o->groups, "each") != 0 && (!x->match || x->by_tokens))
        return kvf_fail(d, KVF_E_ARG, "--groups needs --match, by signature");
    if (strcmp(o->value, VALUE) != 0 && !x->by_tokens)
        return kvf_fail(d, KVF_E_ARG, "--value has an effect only with --by tokens");
    if (strcmp(o->criterion, CRITERION) != 0 && x->by_tokens)
        return kvf_fail(d, KVF_E_ARG, "--criterion has no effect with --by tokens; leave it out");
    if (o->level != LEVEL && !x->match)
        return kvf_fail(d, KVF_E_ARG, "--level has an effect only with --match");
    if (!(o->level > 0 && o->level < 1))
        return kvf_fail(d, KVF_E_ARG, "--level must be a number between 0 and 1, not %g", o->level);
    return x->by_tokens ? tokens_select(x->side[0].t, args, &x->t0, &x->t1, d) : KVF_OK;
}

static int64_t rows_of_pair(const struct job *x, int a, int b)
{
    if (x->group) {
        int64_t A = heads_of_group(&x->group[a]), B = heads_of_group(&x->group[b]);
        return A > B ? A : B;
    }
    int64_t A = x->side[a].heads->n, B = x->side[b].heads->n, least = A < B ? A : B;
    return x->match ? least : A * B;
}

static int make_room(struct job *x, struct kvf_diag *d)
{
    for (int a = 0; a < x->n_groups; a++)
        for (int b = a + 1; b < x->n_groups; b++)
            x->room += rows_of_pair(x, a, b);
    if (x->room > MOST_ROWS)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%lld pairs of heads are more than the %d of a table: "
                        "choose heads with --head, or use --match",
                        (long long)x->room, (int)MOST_ROWS);
    x->row = MEM_NEW(struct compare_row, (size_t)x->room);
    return x->row ? KVF_OK : KVF_E_NOMEM;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct job x = {.n = n_traces};
    const struct options *o = args->options;
    for (int k = 0; k < n_traces; k++)
        x.side[k].t = traces[k];
    int err = parse(&x, args, d);
    for (int k = 0; !err && k < n_traces; k++)
        err = read_header(&x.side[k], d);
    if (!err)
        err = choose_groups(&x, o->groups, d);
    if (!err && x.match && !x.by_tokens)
        err = read_groups(&x, args, d);
    for (int k = 0; !err && !x.group && k < x.n; k++)
        err = open_side(&x, k, args, d);
    if (!err)
        err = make_room(&x, d);
    for (int a = 0; !err && a < x.n_groups; a++)
        for (int b = a + 1; !err && b < x.n_groups; b++)
            err = x.group ? match_groups(&x, a, b, d) : compare(&x, a, b, d);
    if (!err)
        err = put_table(&x, args, ret_table, d);
    for (int k = 0; k < x.n; k++) {
        signature_close(x.side[k].source);
        mem_free(x.side[k].all);
        heads_free(&x.side[k].own);
    }
    for (int g = 0; x.group && g < x.n_groups; g++)
        compare_group_free(&x.group[g]);
    mem_free_all(x.group, x.row);
    return err;
}

/* A line on the rows of a space: query heads, KV heads, or all of a table without the column. */
static void describe_space(const struct table *t, const char *space, struct buf *out)
{
    int distance = table_find(t, "distance"), which = table_find(t, "space");
    int a = table_find(t, "head_a"), b = table_find(t, "head_b"), own = table_find(t, "own");
    int64_t n = 0, same = 0, proven = 0, judged = 0;
    double sum = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double far = table_real(t, distance, r);
        if (isnan(far) || (which >= 0 && strcmp(table_str(t, which, r), space) != 0))
            continue;
        n++;
        sum += far;
        same += strcmp(table_str(t, a, r), table_str(t, b, r)) == 0;
        judged += own >= 0 && table_int(t, own, r) >= 0;
        proven += own >= 0 && table_int(t, own, r) == 1;
    }
    bool rest = which < 0 || table_rows(t) == 0; /* one line is enough */
    if (rest ? space[0] != 0 : n == 0)
        return;
    buf_printf(out, "%lld %s of ", (long long)n, own < 0 ? "pairs" : "matches");
    if (space[0])
        buf_str(out, strcmp(space, "kv") == 0 ? "KV " : "query ");
    buf_printf(out, "heads by %s", table_meta(t, "by"));
    if (n)
        buf_printf(out, ", mean distance %.4f; %lld of the same name", sum / (double)n,
                   (long long)same);
    if (judged)
        buf_printf(out, "; %lld proven (q < %s)", (long long)proven, table_meta(t, "level"));
    buf_str(out, "\n");
}

/* Writes how near the matches of two groups are, compared with the best wrong pairs. */
static void describe_nearness(const struct table *t, int64_t a, int64_t b, const char *space,
                              struct buf *out)
{
    int near = table_find(t, "nearer"), wrong = table_find(t, "nearer_wrong");
    char key[2][32];
    double sum[2] = {0};
    int64_t n[2] = {0};
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (table_int(t, table_find(t, "a"), r) != a || table_int(t, table_find(t, "b"), r) != b
            || strcmp(table_str(t, table_find(t, "space"), r), space) != 0)
            continue;
        const double v[2] = {table_real(t, near, r), table_real(t, wrong, r)};
        for (int k = 0; k < 2; k++)
            if (!isnan(v[k])) {
                sum[k] += 1 - v[k];
                n[k]++;
            }
    }
    if (!n[0] || !n[1])
        return;
    snprintf(key[0], sizeof key[0], "group_%lld", (long long)a);
    snprintf(key[1], sizeof key[1], "group_%lld", (long long)b);
    buf_printf(out,
               "%s and %s: matched %s heads are nearer than %.1f %% of the other pairs of their "
               "heads, the best wrong pairs than %.1f %%\n",
               table_meta(t, key[0]), table_meta(t, key[1]),
               strcmp(space, "kv") == 0 ? "KV" : "query", 100 * sum[0] / (double)n[0],
               100 * sum[1] / (double)n[1]);
}

static void describe(const struct table *t, struct buf *out)
{
    describe_space(t, "", out);
    describe_space(t, "query", out);
    describe_space(t, "kv", out);
    for (int64_t a = 1; a <= table_meta_int(t, "groups", 0); a++)
        for (int64_t b = a + 1; b <= table_meta_int(t, "groups", 0); b++) {
            describe_nearness(t, a, b, "query", out);
            describe_nearness(t, a, b, "kv", out);
        }
}

const struct analyzer an_compare = {
    .name = "compare",
    .summary = "compare and match heads across runs or models",
    .example = "kvfate compare a.kvf b.kvf --match -o match.tsv",
    OPTIONS({OPT_WORD, 0, "by", offsetof(struct options, by), "WHAT",
             "signatures, or tokens of equal texts", "signature", .words = by_words},
            {OPT_FLAG, 0, "match", offsetof(struct options, match), NULL,
             "print only the best assignment, with the differences and their significance"},
            {OPT_STR, 0, "groups", offsetof(struct options, groups), "HOW",
             "texts to compare: each text, the texts of a model, the first N and the rest", "each"},
            {OPT_REAL, 0, "level", offsetof(struct options, level), "Q",
             "a match with q below this is significant", OPT_TEXT(LEVEL)},
            {OPT_STR, 0, "value", offsetof(struct options, value), "COLUMN",
             "ranking of the tokens", VALUE},
            {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
             "selected set that defines the last use", CRITERION},
            CLASSES_OPTION(struct options, classes)),
    .min_traces = 2,
    COLUMNS(SIGNATURE_COLUMNS("unless --by tokens")),
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};
