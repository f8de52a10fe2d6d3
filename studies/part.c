/* part.c - compares the evictions of two runs (part.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "base/mem.h"
#include "base/room.h"
#include "base/utf8.h"
#include "studies/part.h"

enum { PART_STEP, PART_REASON, PART_SCORE, PART_MARGIN, PART_COLUMNS };

struct part_stat {       /* of a head */
    int64_t first;       /* first step at which other entries are seen; -1: none */
    int64_t differ;      /* entries with different evict_step ... */
    int64_t only[2];     /* evicted in only one run */
    int64_t earlier[2];  /* evicted in both, earlier in this one */
    int64_t equal_steps; /* of T */
};

struct part {
    struct kvf_trace *t[2];
    int column[2][PART_COLUMNS]; /* -1: the trace lacks it */
    int id[2];
    enum kvf_space space;
    struct head_list heads;
    struct part_stat *stat; /* [heads] */
    int64_t T;              /* steps compared */
    bool end;               /* step T, after the last query, is compared too */
    int64_t first;          /* least over the heads; -1: none */
    int64_t token_first;    /* first token with another id; -1: none */
    int64_t tokens_differ;
    double *id_value[2]; /* [T] */
};

static int part_read(const struct part *p, int head, double *const evict[2], struct kvf_diag *d)
{
    const struct head *h = &p->heads.head[head];
    for (int s = 0; s < 2; s++) {
        int err = read_evict(p->t[s], p->column[s][PART_STEP], h, (uint32_t)p->T, evict[s], d);
        if (err)
            return err;
        for (int64_t i = 0; i < p->T; i++) {
            double e = evict[s][i];
            evict[s][i] = !p->end && e >= (double)p->T ? INFINITY : fmax(e, (double)i);
        }
    }
    return KVF_OK;
}

static int64_t part_step(const struct part *p, int64_t i, double a, double b)
{
    double first = fmax(fmin(a, b), (double)i);
    return a == b || first > (double)p->T ? -1 : (int64_t)first;
}

/* covered: [T + 1] zeroes, becomes how many more entries differ from a step on. */
static void count_head(const struct part *p, double *const evict[2], int64_t *covered,
                       struct part_stat *s)
{
    s->first = -1;
    for (int64_t i = 0; i < p->T; i++) {
        double a = evict[0][i], b = evict[1][i];
        int64_t from = part_step(p, i, a, b), to = (int64_t)fmin(fmax(a, b), (double)p->T);
        if (from < 0)
            continue;
        s->differ++;
        s->only[0] += isinf(b);
        s->only[1] += isinf(a);
        s->earlier[0] += a < b && !isinf(b);
        s->earlier[1] += b < a && !isinf(a);
        if (s->first < 0 || from < s->first)
            s->first = from;
        covered[from]++;
        covered[to]--;
    }
    for (int64_t t = 0, now = 0; t < p->T; t++) {
        now += covered[t];
        s->equal_steps += now == 0;
    }
}

static int compare_heads(struct part *p, struct kvf_diag *d)
{
    size_t T = (size_t)p->T;
    double *evict[2] = {MEM_NEW(double, T), MEM_NEW(double, T)};
    int64_t *covered = MEM_NEW(int64_t, T + 1);
    int err = KVF_E_NOMEM;
    if (!evict[0] || !evict[1] || !covered)
        goto done;
    for (int h = 0; h < p->heads.n; h++) {
        err = part_read(p, h, evict, d);
        if (err)
            goto done;
        for (int64_t t = 0; t <= p->T; t++)
            covered[t] = 0;
        count_head(p, evict, covered, &p->stat[h]);
        if (p->stat[h].first >= 0 && (p->first < 0 || p->stat[h].first < p->first))
            p->first = p->stat[h].first;
    }
    err = KVF_OK;

done:
    mem_free_all(evict[0], evict[1], covered);
    return err;
}

static int compare_tokens(struct part *p, struct kvf_diag *d)
{
    if (p->id[0] < 0 || p->id[1] < 0)
        return KVF_OK;
    for (int s = 0; s < 2; s++) {
        p->id_value[s] = MEM_NEW(double, (size_t)p->T);
        if (!p->id_value[s])
            return KVF_E_NOMEM;
        int err = kvf_read_f64(p->t[s], p->id[s], 0, 0, 0, (uint32_t)p->T, p->id_value[s], d);
        if (err)
            return err;
    }
    for (int64_t i = 0; i < p->T; i++) {
        if (p->id_value[0][i] == p->id_value[1][i])
            continue;
        p->tokens_differ++;
        if (p->token_first < 0)
            p->token_first = i;
    }
    return KVF_OK;
}

static int check_shape(struct part *p, bool common, struct kvf_diag *d)
{
    struct kvf_trace *a = p->t[0], *b = p->t[1];
    uint32_t T[2] = {kvf_n_steps(a), kvf_n_steps(b)};
    if (kvf_n_layers(a) != kvf_n_layers(b))
        return kvf_fail(d, KVF_E_ARG, "the runs cannot be compared: %d layers and %d layers",
                        kvf_n_layers(a), kvf_n_layers(b));
    for (int l = 0; l < kvf_n_layers(a); l++)
        if (kvf_n_heads(a, l, p->space) != kvf_n_heads(b, l, p->space))
            return kvf_fail(d, KVF_E_ARG,
                            "the runs cannot be compared: %d and %d %s heads in "
                            "layer %d",
                            kvf_n_heads(a, l, p->space), kvf_n_heads(b, l, p->space),
                            p->space == KVF_SPACE_KV ? "KV" : "query", l);
    if (T[0] != T[1] && !common)
        return kvf_fail(d, KVF_E_ARG,
                        "the runs cannot be compared: %u tokens and %u tokens; "
                        "--common compares the steps that both have",
                        T[0], T[1]);
    p->T = T[0] < T[1] ? T[0] : T[1];
    p->end = T[0] == T[1];
    return KVF_OK;
}

static int find_columns(struct part *p, struct kvf_diag *d)
{
    static const char *const names[PART_COLUMNS] = {"evict_step", "evict_reason", "evict_score",
                                                    "evict_margin"};
    const struct kvf_column *col[2];
    for (int s = 0; s < 2; s++) {
        int column;
        int err = column_need(p->t[s], names[PART_STEP], &column, d);
        if (err)
            return err;
        col[s] = kvf_column(p->t[s], column);
        if (col[s]->space == KVF_SPACE_RUN || col[s]->axis != KVF_AXIS_TOKEN)
            return kvf_fail(d, KVF_E_FORMAT,
                            "evict_step must have a value for each head and token");
        p->id[s] = kvf_find(p->t[s], "tokens.id");
        for (int c = 0; c < PART_COLUMNS; c++) {
            int k = kvf_find(p->t[s], names[c]);
            const struct kvf_column *x = kvf_column(p->t[s], k);
            bool fits = x && x->space == col[s]->space && x->axis == col[s]->axis;
            p->column[s][c] = fits ? k : -1;
        }
    }
    if (col[0]->space != col[1]->space)
        return kvf_fail(d, KVF_E_ARG,
                        "the runs cannot be compared: one evicts per KV head, the "
                        "other per query head");
    p->space = (enum kvf_space)col[0]->space;
    return KVF_OK;
}

int part_compare(struct kvf_trace *a, struct kvf_trace *b, const struct part_args *args,
                 struct part **ret_part, struct kvf_diag *d)
{
    struct part *p = MEM_NEW(struct part, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->t[0] = a;
    p->t[1] = b;
    p->first = p->token_first = -1;
    int err = find_columns(p, d);
    if (!err)
        err = check_shape(p, args->common, d);
    if (!err)
        err = heads_select(a, p->space, args->heads, &p->heads, d);
    if (err)
        goto fail;
    p->stat = MEM_NEW(struct part_stat, (size_t)p->heads.n);
    if (!p->stat) {
        err = KVF_E_NOMEM;
        goto fail;
    }
    err = compare_tokens(p, d);
    if (!err)
        err = compare_heads(p, d);
    if (err)
        goto fail;
    *ret_part = p;
    return KVF_OK;

fail:
    part_free(p);
    return err;
}

void part_free(struct part *p)
{
    if (!p)
        return;
    heads_free(&p->heads);
    mem_free_all(p->stat, p->id_value[0], p->id_value[1], p);
}

/* ---- the results of a comparison, as tables and for people. */

struct entry {
    int head;
    int64_t token, step;
    double value[2][PART_COLUMNS]; /* NaN: the trace has no such column */
};

struct entries {
    struct entry *row; /* [cap] */
    size_t cap;
    int64_t n, found; /* found: rows that there are, n of them kept */
};

static int push(struct entries *e, int64_t most, struct entry row)
{
    e->found++;
    if (most > 0 && e->n >= most)
        return KVF_OK;
    if (!mem_room(&e->row, (size_t)e->n, &e->cap, 64, sizeof *e->row))
        return KVF_E_NOMEM;
    e->row[e->n++] = row;
    return KVF_OK;
}

/* The remaining columns of the rows from `from` on, all of one head. */
static int complete(const struct part *p, struct entries *e, int64_t from, double *v,
                    struct kvf_diag *d)
{
    if (from == e->n)
        return KVF_OK;
    const struct head *h = &p->heads.head[e->row[from].head];
    for (int s = 0; s < 2; s++)
        for (int c = PART_REASON; c < PART_COLUMNS; c++) {
            if (p->column[s][c] < 0)
                continue;
            int err = kvf_read_f64(p->t[s], p->column[s][c], h->layer, h->index, 0, (uint32_t)p->T,
                                   v, d);
            if (err)
                return err;
            for (int64_t r = from; r < e->n; r++)
                e->row[r].value[s][c] = v[e->row[r].token];
        }
    return KVF_OK;
}

/* Entries of head h that differ, only at step `only` unless it is -1. */
static int gather_head(const struct part *p, int h, int64_t only, int64_t most,
                       double *const evict[2], struct entries *e, struct kvf_diag *d)
{
    int err = part_read(p, h, evict, d);
    if (err)
        return err;
    for (int64_t i = 0; i < p->T; i++) {
        int64_t step = part_step(p, i, evict[0][i], evict[1][i]);
        if (step < 0 || (only >= 0 && step != only))
            continue;
        err = push(e, most,
                   (struct entry){
                       h, i, step, {{evict[0][i], NAN, NAN, NAN}, {evict[1][i], NAN, NAN, NAN}}});
        if (err)
            return err;
    }
    return KVF_OK;
}

static int gather(const struct part *p, bool first, int64_t most, struct entries *e,
                  struct kvf_diag *d)
{
    size_t T = (size_t)p->T;
    double *evict[2] = {MEM_NEW(double, T), MEM_NEW(double, T)}, *v = MEM_NEW(double, T);
    int err = KVF_E_NOMEM;
    if (!evict[0] || !evict[1] || !v)
        goto done;
    for (int h = 0; h < p->heads.n; h++) {
        int64_t from = e->n, s = p->stat[h].first;
        if (s < 0 || (first && s != p->first))
            continue;
        err = gather_head(p, h, first ? s : -1, most, evict, e, d);
        if (!err)
            err = complete(p, e, from, v, d);
        if (err)
            goto done;
    }
    err = KVF_OK;

done:
    mem_free_all(evict[0], evict[1], v);
    return err;
}

static int put_summary(const struct part *p, struct table *t, struct kvf_diag *d)
{
    int64_t differ = 0, steps = 0, heads = 0;
    for (int h = 0; h < p->heads.n; h++) {
        differ += p->stat[h].differ;
        steps += p->stat[h].equal_steps;
        heads += p->stat[h].differ > 0;
    }
    int err = put_provenance(t, p->t[0], d);
    if (err)
        return err;
    table_meta_num(t, "steps", (double)p->T);
    table_meta_num(t, "first_token", (double)p->token_first);
    table_meta_num(t, "tokens_differ", (double)p->tokens_differ);
    table_meta_num(t, "first_step", (double)p->first);
    table_meta_num(t, "heads_differ", (double)heads);
    table_meta_num(t, "entries_differ", (double)differ);
    table_meta_num(t, "entries", (double)p->heads.n * (double)p->T);
    if (p->T)
        table_meta_num(t, "equal_cells", (double)steps / ((double)p->heads.n * (double)p->T));
    return KVF_OK;
}

int part_heads(const struct part *p, struct table **ret_table, struct kvf_diag *d)
{
    static const char *const names[] = {"first_step", "differ",    "only_a",     "only_b",
                                        "earlier_a",  "earlier_b", "equal_steps"};
    enum { N = sizeof names / sizeof *names };
    int n = p->heads.n;
    struct table *t = table_create("part", n);
    int64_t *v = MEM_NEW(int64_t, N * (size_t)n);
    int err = KVF_E_NOMEM;
    if (!t || !v)
        goto done;
    for (int h = 0; h < n; h++) {
        const struct part_stat *s = &p->stat[h];
        const int64_t row[N] = {s->first,      s->differ,     s->only[0],    s->only[1],
                                s->earlier[0], s->earlier[1], s->equal_steps};
        for (int k = 0; k < N; k++)
            v[k * n + h] = row[k];
    }
    err = put_summary(p, t, d);
    if (err)
        goto done;
    put_heads(t, &p->heads);
    for (int k = 0; k < N; k++)
        table_dense_int(t, names[k], k == 0 || k == N - 1 ? "step" : "entries", v + k * n);
    err = table_err(t);
    if (err)
        goto done;
    *ret_table = t;
    t = NULL;

done:
    mem_free(v);
    table_destroy(t);
    return err;
}

static void put_side(struct table *t, const struct entries *e, int s, int64_t *step, double *v,
                     const char **text)
{
    char name[4][24];
    static const char *const stems[4] = {"evict_step", "reason", "score", "margin"};
    for (int k = 0; k < 4; k++)
        snprintf(name[k], sizeof name[k], "%s_%c", stems[k], s ? 'b' : 'a');
    for (int64_t r = 0; r < e->n; r++) {
        double end = e->row[r].value[s][PART_STEP], why = e->row[r].value[s][PART_REASON];
        step[r] = isinf(end) ? -1 : (int64_t)end;
        text[r] = isnan(why) ? "" : reason_name(why);
        if (isinf(end))
            text[r] = "alive";
    }
    table_dense_int(t, name[0], "step", step);
    table_dense_str(t, name[1], "", text);
    for (int c = PART_SCORE; c < PART_COLUMNS; c++) {
        for (int64_t r = 0; r < e->n; r++)
            v[r] = e->row[r].value[s][c];
        table_dense_real(t, name[c], "", v);
    }
}

static int entry_table(const struct part *p, const struct entries *e, struct table **ret_table,
                       struct kvf_diag *d)
{
    size_t n = (size_t)e->n;
    int64_t *v = MEM_NEW(int64_t, 4 * n);
    double *real = MEM_NEW(double, n);
    const char **text = MEM_NEW(const char *, n);
    struct table *t = table_create("part-entries", e->n);
    int err = KVF_E_NOMEM;
    if (!v || !real || !text || !t)
        goto done;
    for (size_t r = 0; r < n; r++) {
        const struct head *h = &p->heads.head[e->row[r].head];
        text[r] = h->name;
        v[r] = h->layer;
        v[n + r] = h->index;
        v[2 * n + r] = e->row[r].token;
        v[3 * n + r] = e->row[r].step;
    }
    err = put_summary(p, t, d);
    if (err)
        goto done;
    if (e->found > e->n)
        table_meta_num(t, "rows_left_out", (double)(e->found - e->n));
    table_dense_str(t, "head", "", text);
    table_dense_int(t, "layer", "", v);
    table_dense_int(t, "index", "", v + n);
    table_dense_int(t, "token", "", v + 2 * n);
    table_dense_int(t, "step", "step", v + 3 * n);
    put_side(t, e, 0, v, real, text);
    put_side(t, e, 1, v, real, text);
    err = table_err(t);
    if (err)
        goto done;
    *ret_table = t;
    t = NULL;

done:
    mem_free_all(v, real, (void *)text);
    table_destroy(t);
    return err;
}

int part_entries(const struct part *p, bool first, int64_t most, struct table **ret_table,
                 struct kvf_diag *d)
{
    struct entries e = {0};
    int err = gather(p, first, most, &e, d);
    if (!err)
        err = entry_table(p, &e, ret_table, d);
    mem_free(e.row);
    return err;
}

static void say_side(const struct part *p, const struct entry *e, int s, struct buf *out)
{
    double end = e->value[s][PART_STEP], why = e->value[s][PART_REASON];
    double score = e->value[s][PART_SCORE], margin = e->value[s][PART_MARGIN];
    if (isinf(end)) {
        buf_str(out, p->end ? "kept" : "kept so far");
        return;
    }
    buf_printf(out, "gone at %.0f", end);
    if (!isnan(why))
        buf_printf(out, ", %s", reason_name(why));
    if (!isnan(score))
        buf_printf(out, ", score %.6g", score);
    if (!isnan(margin))
        buf_printf(out, ", margin %.3g", margin);
}

static int say_first(const struct part *p, int64_t most, struct buf *out, struct kvf_diag *d)
{
    struct entries e = {0};
    int heads = 0, err = gather(p, true, most > 0 ? most : 1, &e, d);
    if (err)
        goto done;
    for (int h = 0; h < p->heads.n; h++)
        heads += p->stat[h].first == p->first;
    buf_printf(out, "%lld entries of %d heads of %d part at step %lld%s\n", (long long)e.found,
               heads, p->heads.n, (long long)p->first,
               p->first == p->T ? ", after the last query" : "");
    for (int64_t r = 0; r < e.n && r < most; r++) {
        const struct entry *x = &e.row[r];
        buf_printf(out, "  %-8s entry %-6lld A: ", p->heads.head[x->head].name,
                   (long long)x->token);
        say_side(p, x, 0, out);
        buf_str(out, "; B: ");
        say_side(p, x, 1, out);
        buf_char(out, '\n');
    }
    if (e.found > most)
        buf_printf(out, "  and %lld more\n", (long long)(e.found - (most > 0 ? most : 0)));

done:
    mem_free(e.row);
    return err;
}

static void say_totals(const struct part *p, struct buf *out)
{
    struct part_stat all = {0};
    int heads = 0;
    for (int h = 0; h < p->heads.n; h++) {
        const struct part_stat *s = &p->stat[h];
        heads += s->differ > 0;
        all.differ += s->differ;
        all.equal_steps += s->equal_steps;
        for (int k = 0; k < 2; k++) {
            all.only[k] += s->only[k];
            all.earlier[k] += s->earlier[k];
        }
    }
    double cells = (double)p->heads.n * (double)p->T;
    buf_printf(out,
               "in all: %lld of %.0f entries differ (%.2f %%), in %d heads: evicted only in A "
               "%lld, only in B %lld, earlier in A %lld, earlier in B %lld\n",
               (long long)all.differ, cells, 100.0 * (double)all.differ / cells, heads,
               (long long)all.only[0], (long long)all.only[1], (long long)all.earlier[0],
               (long long)all.earlier[1]);
    buf_printf(out, "equal (head, step) cells: %.2f %%\n", 100.0 * (double)all.equal_steps / cells);
}

static void say_tokens(const struct part *p, struct buf *out)
{
    if (!p->id_value[0])
        buf_str(out, "tokens are not compared: a trace lacks tokens.id\n");
    else if (p->token_first >= 0)
        buf_printf(out, "tokens part at step %lld: id %.0f in A, %.0f in B; %lld of %lld differ\n",
                   (long long)p->token_first, p->id_value[0][p->token_first],
                   p->id_value[1][p->token_first], (long long)p->tokens_differ, (long long)p->T);
}

int part_describe(const struct part *p, const char *const name[2], int64_t most, struct buf *out,
                  struct kvf_diag *d)
{
    bool tokens = p->token_first >= 0, heads = p->first >= 0;
    int64_t first = !heads || (tokens && p->token_first < p->first) ? p->token_first : p->first;
    int err = KVF_OK;
    buf_str(out, "A = ");
    utf8_show(out, name[0], strlen(name[0]));
    buf_str(out, ", B = ");
    utf8_show(out, name[1], strlen(name[1]));
    buf_printf(out, ", %lld steps\n", (long long)p->T);
    if (!tokens && !heads) {
        say_tokens(p, out);
        buf_printf(out, "equal: %s and the same entries in all %d heads at every step\n",
                   p->id_value[0] ? "the same tokens" : "no difference of tokens known",
                   p->heads.n);
        return out->err;
    }
    buf_printf(out, "they part at step %lld\n", (long long)first);
    if (!heads || first < p->first) {
        say_tokens(p, out);
        if (!heads)
            buf_printf(out, "the entries seen are the same in all %d heads\n", p->heads.n);
    }
    if (heads) {
        err = say_first(p, most, out, d);
        if (first == p->first)
            say_tokens(p, out);
        say_totals(p, out);
    }
    return err ? err : out->err;
}
