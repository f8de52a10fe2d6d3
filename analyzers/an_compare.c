/* an_compare.c - heads of two or more runs held against each other: how far apart they are, and
 * which head of one is which of the other.  Of signatures (signature.h), which need neither equal
 * texts nor equal models; or, --by tokens, of the rank correlation over the tokens of one text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/align.h"
#include "analyzers/analyzer.h"
#include "analyzers/assign.h"
#include "analyzers/classes.h"
#include "analyzers/signature.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"

enum { MOST_TRACES = 16, MOST_ROWS = 1 << 22 };

static const char *const by_words[] = {"signature", "tokens", NULL};
struct options {
    int by;
    bool match;
    double level;
    const char *value, *criterion, *classes;
};
static const struct opt options[] = {
    {OPT_WORD, 0, "by", offsetof(struct options, by), "WHAT",
     "signatures, or tokens of equal texts", "signature", .words = by_words},
    {OPT_FLAG, 0, "match", offsetof(struct options, match), NULL,
     "best assignment alone, with what differs and whether it stands"},
    {OPT_REAL, 0, "level", offsetof(struct options, level), "Q",
     "a match whose q is below this does not stand", "0.05"},
    {OPT_STR, 0, "value", offsetof(struct options, value), "COLUMN", "what is ranked by tokens",
     "mass.sum"},
    {OPT_STR, 0, "criterion", offsetof(struct options, criterion), "C",
     "selected set behind last uses", "mass.90"},
    CLASSES_OPTION(struct options, classes),
    {.type = OPT_END},
};

struct row {
    int64_t a, b, layer_a, index_a, layer_b, index_b, matched, stands, own;
    const char *head_a, *head_b, *changed;
    double distance, value_a, value_b, halves, p, q, others, p_other, q_other, nearer;
};

struct side {
    struct kvf_trace *t;
    struct signature_source *source;
    struct signature *all;         /* [heads][3]; NULL by tokens */
    struct head_list own;          /* by tokens */
    const struct head_list *heads; /* of source, or &own */
    int column;                    /* by tokens */
};

struct job {
    int n;
    struct side side[MOST_TRACES];
    bool by_tokens, match;
    double level;
    struct row *row;
    int64_t n_rows, room, unmatched, undefined, pieces, bytes;
    int64_t t0, t1;
    /* Of a pair of traces, rising: distances of the halves of each head, and of each head and
     * the nearest other one of its trace. */
    double *halves, *others;
    int64_t n_halves, n_others;
};

/* ---- distances of two traces */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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
    mem_free(u);
    mem_free(v);
    align_free(&text);
    return err;
}

static double nearest_other(const struct side *s, int h)
{
    double least = INFINITY;
    for (int k = 0; k < s->heads->n; k++) {
        double far = k == h ? NAN : signature_distance(&s->all[3 * h], &s->all[3 * k], NULL);
        least = far < least ? far : least;
    }
    return least;
}

/* Two null hypotheses.  "One head, two texts": what halves of the tokens of a trace make of it.
 * "Another head": the nearest other one of the same trace, which is the least of as many
 * distances as the match has been chosen from. */
static int find_nulls(struct job *x, const struct side *a, const struct side *b)
{
    const struct side *const both[2] = {a, b};
    size_t most = (size_t)a->heads->n + (size_t)b->heads->n;
    x->halves = MEM_NEW(double, most);
    x->others = MEM_NEW(double, most);
    x->n_halves = x->n_others = 0;
    if (!x->halves || !x->others)
        return KVF_E_NOMEM;
    for (int k = 0; k < 2 && !x->by_tokens; k++)
        for (int h = 0; h < both[k]->heads->n; h++) {
            const struct signature *s = &both[k]->all[3 * h];
            double far = signature_distance(&s[1], &s[2], NULL), other = nearest_other(both[k], h);
            if (!isnan(far))
                x->halves[x->n_halves++] = far;
            if (!isinf(other))
                x->others[x->n_others++] = other;
        }
    qsort(x->halves, (size_t)x->n_halves, sizeof *x->halves, by_value);
    qsort(x->others, (size_t)x->n_others, sizeof *x->others, by_value);
    return KVF_OK;
}

/* ---- rows */

static struct row *next_row(struct job *x, int a, int b, int i, int j, double distance)
{
    const struct head *p = &x->side[a].heads->head[i], *q = &x->side[b].heads->head[j];
    struct row *r = &x->row[x->n_rows++];
    *r = (struct row){.a = a + 1,
                      .b = b + 1,
                      .layer_a = p->layer,
                      .index_a = p->index,
                      .layer_b = q->layer,
                      .index_b = q->index,
                      .stands = -1,
                      .own = -1,
                      .head_a = p->name,
                      .head_b = q->name,
                      .changed = "",
                      .distance = distance,
                      .value_a = NAN,
                      .value_b = NAN,
                      .halves = NAN,
                      .p = NAN,
                      .q = NAN,
                      .others = NAN,
                      .p_other = NAN,
                      .q_other = NAN,
                      .nearer = NAN};
    x->undefined += isnan(distance);
    return r;
}

static void all_rows(struct job *x, int a, int b, const double *D, const int64_t *partner)
{
    int n = x->side[b].heads->n;
    for (int i = 0; i < x->side[a].heads->n; i++)
        for (int j = 0; j < n; j++)
            next_row(x, a, b, i, j, D[(size_t)i * (size_t)n + (size_t)j])->matched = partner[i]
                                                                                     == j;
}

/* Share of the pairs of either head with another that are as near, or nearer. */
static double share_nearer(const double *D, int rows, int columns, int i, int j)
{
    double here = D[(size_t)i * (size_t)columns + (size_t)j];
    int64_t near = 0, n = 0;
    for (int k = 0; k < columns; k++) {
        double far = D[(size_t)i * (size_t)columns + (size_t)k];
        n += k != j && !isnan(far);
        near += k != j && far <= here;
    }
    for (int k = 0; k < rows; k++) {
        double far = D[(size_t)k * (size_t)columns + (size_t)j];
        n += k != i && !isnan(far);
        near += k != i && far <= here;
    }
    return n ? (double)near / (double)n : NAN;
}

/* Values of a rising list that are below x, or with `equal` not above it. */
static int64_t count_below(const double *v, int64_t n, double x, bool equal)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (v[mid] < x || (equal && v[mid] == x))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void fill_match(struct job *x, const struct side *a, const struct side *b, int i, int j,
                       struct row *r)
{
    int largest;
    if (x->by_tokens)
        return;
    const struct signature *p = &a->all[3 * i], *q = &b->all[3 * j];
    signature_distance(p, q, &largest);
    if (largest >= 0) {
        r->changed = signature_name(largest);
        r->value_a = p->f[largest];
        r->value_b = q->f[largest];
    }
    if (x->n_halves) {
        int64_t n = x->n_halves, far = n - count_below(x->halves, n, r->distance, false);
        r->halves = x->halves[n / 2];
        r->p = (double)(1 + far) / (double)(1 + n);
    }
    if (x->n_others) {
        int64_t n = x->n_others, near = count_below(x->others, n, r->distance, true);
        r->others = x->others[n / 2];
        r->p_other = (double)(1 + near) / (double)(1 + n);
    }
}

static int false_discoveries(struct job *x, int64_t first)
{
    size_t n = (size_t)(x->n_rows - first);
    struct row *row = x->row + first;
    double *p = MEM_NEW(double, 2 * n);
    int err = p ? KVF_OK : KVF_E_NOMEM;
    for (size_t k = 0; !err && k < n; k++) {
        p[k] = row[k].p;
        p[n + k] = row[k].p_other;
    }
    if (!err)
        err = stats_fdr(p, n, p);
    if (!err)
        err = stats_fdr(p + n, n, p + n);
    for (size_t k = 0; !err && k < n; k++) {
        row[k].q = p[k];
        row[k].q_other = p[n + k];
        row[k].stands = isnan(p[k]) ? -1 : p[k] >= x->level;
        row[k].own = isnan(p[n + k]) ? -1 : p[n + k] < x->level;
    }
    mem_free(p);
    return err;
}

/* Which head of b each head of a has in the best assignment, -1 where it has none.  Rows are
 * those of the side with fewer heads, as the assignment wants it.  Pairs of no distance cost
 * more than any other and are left out. */
static int best_partners(int A, int B, const double *D, int64_t *partner)
{
    size_t n = (size_t)(A < B ? A : B), m = (size_t)(A < B ? B : A);
    double *cost = mem_alloc(n * m, sizeof(double));
    size_t *column = MEM_NEW(size_t, n);
    int err = cost && column ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < (size_t)A; i++)
        for (size_t j = 0; j < (size_t)B; j++) {
            double far = D[i * (size_t)B + j];
            cost[A <= B ? i * m + j : j * m + i] = isnan(far) ? 1e6 : far;
        }
    if (!err)
        err = assign_least(cost, n, m, column, NULL, NULL);
    for (int i = 0; !err && i < A; i++)
        partner[i] = A <= B ? (int64_t)column[i] : -1;
    for (size_t k = 0; !err && A > B && k < n; k++)
        partner[column[k]] = (int64_t)k;
    for (size_t i = 0; !err && i < (size_t)A; i++)
        if (partner[i] >= 0 && isnan(D[i * (size_t)B + (size_t)partner[i]]))
            partner[i] = -1;
    mem_free(cost);
    mem_free(column);
    return err;
}

static int match_rows(struct job *x, int a, int b, const double *D, const int64_t *partner)
{
    int A = x->side[a].heads->n, B = x->side[b].heads->n;
    int64_t first = x->n_rows;
    for (int i = 0; i < A; i++) {
        int j = (int)partner[i];
        if (j < 0)
            continue;
        struct row *r = next_row(x, a, b, i, j, D[(size_t)i * (size_t)B + (size_t)j]);
        r->nearer = share_nearer(D, A, B, i, j);
        fill_match(x, &x->side[a], &x->side[b], i, j, r);
    }
    x->unmatched += A + B - 2 * (x->n_rows - first);
    return false_discoveries(x, first);
}

static int compare(struct job *x, int a, int b, struct kvf_diag *d)
{
    const struct side *p = &x->side[a], *q = &x->side[b];
    double *D = mem_alloc((size_t)p->heads->n * (size_t)q->heads->n, sizeof(double));
    int err = D ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        err = x->by_tokens ? distances_of_tokens(x, p, q, D, d) : distances_of_signatures(p, q, D);
    int64_t *partner = MEM_NEW(int64_t, (size_t)p->heads->n);
    if (!err)
        err = partner ? best_partners(p->heads->n, q->heads->n, D, partner) : KVF_E_NOMEM;
    if (!err && x->match) {
        err = find_nulls(x, p, q);
        if (!err)
            err = match_rows(x, a, b, D, partner);
        mem_free(x->halves);
        mem_free(x->others);
        x->halves = x->others = NULL;
    } else if (!err) {
        all_rows(x, a, b, D, partner);
    }
    mem_free(partner);
    mem_free(D);
    return err;
}

/* ---- the table */

#define AT(member) offsetof(struct row, member)
static const struct {
    const char *name, *unit;
    enum table_type type;
    enum { ANY, PAIRS, MATCH } when; /* without --match, with it */
    size_t offset;
} members[] = {
    {"a", "", TABLE_INT, ANY, AT(a)},
    {"b", "", TABLE_INT, ANY, AT(b)},
    {"head_a", "", TABLE_STR, ANY, AT(head_a)},
    {"head_b", "", TABLE_STR, ANY, AT(head_b)},
    {"distance", "", TABLE_REAL, ANY, AT(distance)},
    {"layer_a", "", TABLE_INT, ANY, AT(layer_a)},
    {"index_a", "", TABLE_INT, ANY, AT(index_a)},
    {"layer_b", "", TABLE_INT, ANY, AT(layer_b)},
    {"index_b", "", TABLE_INT, ANY, AT(index_b)},
    {"matched", "", TABLE_INT, PAIRS, AT(matched)},
    {"changed", "", TABLE_STR, MATCH, AT(changed)},
    {"value_a", "", TABLE_REAL, MATCH, AT(value_a)},
    {"value_b", "", TABLE_REAL, MATCH, AT(value_b)},
    {"halves", "", TABLE_REAL, MATCH, AT(halves)},
    {"p", "", TABLE_REAL, MATCH, AT(p)},
    {"q", "", TABLE_REAL, MATCH, AT(q)},
    {"stands", "", TABLE_INT, MATCH, AT(stands)},
    {"others", "", TABLE_REAL, MATCH, AT(others)},
    {"p_other", "", TABLE_REAL, MATCH, AT(p_other)},
    {"q_other", "", TABLE_REAL, MATCH, AT(q_other)},
    {"own", "", TABLE_INT, MATCH, AT(own)},
    {"nearer", "", TABLE_REAL, MATCH, AT(nearer)},
};

static int put_columns(struct table *out, const struct job *x)
{
    static const size_t sizes[] = {
        [TABLE_INT] = sizeof(int64_t), [TABLE_REAL] = sizeof(double), [TABLE_STR] = sizeof(char *)};
    void *v = mem_alloc((size_t)x->n_rows, sizeof(union {
                            int64_t i;
                            double x;
                            const char *s;
                        }));
    for (size_t c = 0; v && c < sizeof members / sizeof *members; c++) {
        size_t size = sizes[members[c].type];
        if (members[c].when == (x->match ? PAIRS : MATCH))
            continue;
        for (int64_t r = 0; r < x->n_rows; r++)
            memcpy((char *)v + (size_t)r * size, (const char *)&x->row[r] + members[c].offset,
                   size);
        if (members[c].type == TABLE_INT)
            table_dense_int(out, members[c].name, members[c].unit, v);
        else if (members[c].type == TABLE_REAL)
            table_dense_real(out, members[c].name, members[c].unit, v);
        else
            table_dense_str(out, members[c].name, members[c].unit, v);
    }
    mem_free(v);
    return v ? table_err(out) : KVF_E_NOMEM;
}

/* Mean share of the halves that are nearer than a match: about 1/2 when both are alike. */
static double mean_further(const struct job *x)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t r = 0; r < x->n_rows; r++) {
        if (isnan(x->row[r].p))
            continue;
        sum += 1 - x->row[r].p;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

/* What there is to say of a trace: its model and method. */
static void put_trace(struct table *out, const struct job *x, int k)
{
    char key[24], value[192];
    struct json *root = NULL;
    const char *meta = kvf_meta(x->side[k].t);
    if (json_parse(meta, strlen(meta), &root, NULL) != KVF_OK)
        root = NULL;
    snprintf(key, sizeof key, "trace_%d", k + 1);
    snprintf(value, sizeof value, "%.90s, %.64s, %lld tokens",
             json_str(json_get(json_get(root, "model"), "name"), "?"),
             json_str(json_get(json_get(root, "method"), "name"), "?"),
             (long long)kvf_n_steps(x->side[k].t));
    table_meta_str(out, key, value);
    json_free(root);
}

static int put_table(const struct job *x, const struct analyzer_args *args, struct table **ret)
{
    const struct options *o = args->options;
    struct table *out = table_create("compare", x->n_rows);
    if (!out)
        return KVF_E_NOMEM;
    put_provenance(out, x->side[0].t);
    table_meta_num(out, "traces", x->n);
    for (int k = 0; k < x->n; k++)
        put_trace(out, x, k);
    table_meta_str(out, "by", x->by_tokens ? "tokens" : "signature");
    if (x->by_tokens) {
        table_meta_str(out, "value", o->value);
        table_meta_num(out, "pieces", (double)x->pieces);
        table_meta_num(out, "bytes", (double)x->bytes);
    } else {
        table_meta_str(out, "criterion", o->criterion);
    }
    if (x->match) {
        table_meta_num(out, "level", x->level);
        table_meta_num(out, "unmatched", (double)x->unmatched);
        table_meta_num(out, "further", mean_further(x));
    }
    table_meta_num(out, "undefined", (double)x->undefined);
    int err = put_columns(out, x);
    if (err)
        table_destroy(out);
    else
        *ret = out;
    return err;
}

/* ---- what is asked for */

static int open_side(struct job *x, int k, const struct analyzer_args *args, struct kvf_diag *d)
{
    struct side *s = &x->side[k];
    const struct options *o = args->options;
    if (!x->by_tokens) {
        int err = signature_open(s->t, args, o->criterion, o->classes, &s->source, d);
        s->heads = err ? NULL : signature_heads(s->source);
        return err ? err : signature_read_all(s->source, &s->all, d);
    }
    int err = column_need(s->t, o->value, "paper", &s->column, d);
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
    if (!(o->level > 0 && o->level < 1))
        return kvf_fail(d, KVF_E_ARG, "--level must be a number between 0 and 1, not %g", o->level);
    return x->by_tokens ? tokens_select(x->side[0].t, args, &x->t0, &x->t1, d) : KVF_OK;
}

static int make_room(struct job *x, struct kvf_diag *d)
{
    for (int a = 0; a < x->n; a++)
        for (int b = a + 1; b < x->n; b++) {
            int64_t A = x->side[a].heads->n, B = x->side[b].heads->n;
            int64_t least = A < B ? A : B;
            x->room += x->match ? least : A * B;
        }
    if (x->room > MOST_ROWS)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%lld pairs of heads are more than the %d of a table: "
                        "choose heads with --head, or use --match",
                        (long long)x->room, (int)MOST_ROWS);
    x->row = MEM_NEW(struct row, (size_t)x->room);
    return x->row ? KVF_OK : KVF_E_NOMEM;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct job x = {.n = n_traces};
    for (int k = 0; k < n_traces; k++)
        x.side[k].t = traces[k];
    int err = parse(&x, args, d);
    for (int k = 0; !err && k < x.n; k++)
        err = open_side(&x, k, args, d);
    if (!err)
        err = make_room(&x, d);
    for (int a = 0; !err && a < x.n; a++)
        for (int b = a + 1; !err && b < x.n; b++)
            err = compare(&x, a, b, d);
    if (!err)
        err = put_table(&x, args, ret_table);
    for (int k = 0; k < x.n; k++) {
        signature_close(x.side[k].source);
        mem_free(x.side[k].all);
        heads_free(&x.side[k].own);
    }
    mem_free(x.row);
    return err;
}

/* How many rows of a column are known (not -1), and how many are 1. */
static int64_t count_ones(const struct table *t, const char *name, int64_t *known)
{
    int c = table_find(t, name);
    int64_t ones = 0;
    *known = 0;
    for (int64_t r = 0; c >= 0 && r < table_rows(t); r++) {
        *known += table_int(t, c, r) >= 0;
        ones += table_int(t, c, r) == 1;
    }
    return ones;
}

static void describe(const struct table *t, struct buf *out)
{
    int distance = table_find(t, "distance");
    int a = table_find(t, "head_a"), b = table_find(t, "head_b");
    int64_t known = 0, same = 0, judged;
    double sum = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double far = table_real(t, distance, r);
        if (isnan(far))
            continue;
        known++;
        sum += far;
        same += strcmp(table_str(t, a, r), table_str(t, b, r)) == 0;
    }
    buf_printf(out, "%lld %s of heads by %s", (long long)known,
               table_find(t, "stands") < 0 ? "pairs" : "matches", table_meta(t, "by"));
    if (known)
        buf_printf(out, ", mean distance %.4f; %lld of the same name", sum / (double)known,
                   (long long)same);
    buf_str(out, "\n");
    int64_t stand = count_ones(t, "stands", &judged);
    if (!judged)
        return;
    buf_printf(out, "%lld of %lld stand: not further apart than halves of one trace (q >= %s)\n",
               (long long)stand, (long long)judged, table_meta(t, "level"));
    buf_printf(out, "a match is further apart than %.0f %% of them\n",
               100 * table_meta_real(t, "further", NAN));
    int64_t own = count_ones(t, "own", &judged);
    buf_printf(out, "%lld of %lld are nearer than other heads of one trace are (q_other < %s)\n",
               (long long)own, (long long)judged, table_meta(t, "level"));
}

const struct analyzer an_compare = {
    .name = "compare",
    .summary = "how far apart heads of several runs are, and which is which",
    .example = "kvfate compare a.kvf b.kvf --match -o match.tsv",
    .options = options,
    .min_traces = 2,
    .max_traces = MOST_TRACES,
    .run = run,
    .describe = describe,
};
