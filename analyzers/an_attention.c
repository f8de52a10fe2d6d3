/* an_attention.c - the attention map of query heads: the weight a_ti that query t gives entry i,
 * computed from the queries and keys of --probes raw:HEADS. Maps with more queries or keys than
 * --boxes are divided into boxes of several cells. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/frame.h"
#include "analyzers/raw_blocks.h"
#include "analyzers/token_text.h"
#include "base/json.h"
#include "base/mem.h"

enum { EVICT, REASON, LSE };
enum { EACH_MAX, EACH_MEAN };
enum { MOST_BOXES = 4096, MOST_ROWS = 1 << 25 };

static const char *const each_words[] = {"max", "mean", NULL};

struct options {
    const char *queries; /* NULL: those of the tokens */
    int64_t boxes;
    int each;
};

/* The boxes of a map. Query row r has the queries [query[r], query[r + 1]), key column c the keys
 * [key[c], key[c + 1]). A row has the columns whose first key is not later than its last query. */
struct boxes {
    int64_t n_rows, n_columns, n;
    int64_t *query, *key; /* [n_rows + 1], [n_columns + 1] */
    int64_t *first;       /* [n_rows + 1] the first box of a row */
};

/* The source of the table's columns. */
struct source {
    struct boxes box;
    double *attention, *cached;          /* [heads][box.n] */
    const char **query_text, **key_text; /* [rows], [columns]; "" for boxes of several tokens */
    struct token_text texts[2];
};

struct data {
    struct raw_list blobs;
    struct source *s; /* NULL once the table owns it */
    int64_t c, d;     /* queries [c, d) */
    int64_t *evicted; /* [heads] cells without a cached entry */
    int64_t *window;  /* [heads] of these, cells that left the layer's own window */
    int64_t *cells;   /* [heads] */
    double *differ;   /* [heads] largest difference from the recorded log-sum-exp */
};

/* Of one thread. */
struct scratch {
    uint32_t *evict; /* [T] */
    double *weight;  /* [T] */
    double *real;    /* [T] a column */
};

static void source_destroy(void *ctx)
{
    struct source *s = ctx;
    if (!s)
        return;
    mem_free_all(s->box.query, s->box.key, s->box.first, s->attention, s->cached,
                 (void *)s->query_text, (void *)s->key_text);
    token_text_finish(&s->texts[0]);
    token_text_finish(&s->texts[1]);
    mem_free(s);
}

/* ---- the heads that have blobs */

static bool complete(const struct raw_list *l, const struct kvf_trace *t, int layer, int head)
{
    int H = kvf_n_heads(t, layer, KVF_SPACE_KV);
    int share = H > 0 ? kvf_n_heads(t, layer, KVF_SPACE_QUERY) / H : 0;
    return share > 0 && raw_has(l, "q", layer, head) && raw_has(l, "logit", layer, head)
           && raw_has(l, "k", layer, head / share);
}

/* Fails with the option that records the heads. */
static int lacks_heads(const struct kvf_trace *t, const char *heads, struct kvf_diag *d)
{
    char middle[32];
    snprintf(middle, sizeof middle, "%d.0", kvf_n_layers(t) / 2);
    return kvf_fail(d, KVF_E_NOTFOUND,
                    "%s has no blocks of queries and keys of %s%s (kvfate run --probes raw:%s)%s",
                    kvf_path(t), heads ? "query heads " : "any query head", heads ? heads : "",
                    heads ? heads : middle, heads ? "" : "; --head names other heads");
}

/* Sets the heads that have blobs if no head is asked for, and checks them otherwise. */
static int choose_heads(struct frame *f, const struct raw_list *l, struct kvf_diag *d)
{
    struct head_list all;
    const char *asked = f->args->heads;
    int err = heads_select(f->t, KVF_SPACE_QUERY, asked, &all, d);
    struct analyzer_args *own = err ? NULL : FRAME_NEW(f, struct analyzer_args, 1);
    char *text = own ? frame_alloc(f, (size_t)all.n + 1, 16) : NULL;
    size_t n = 0;
    for (int i = 0; text && i < all.n; i++) {
        const struct head *h = &all.head[i];
        if (complete(l, f->t, h->layer, h->index))
            n += (size_t)snprintf(text + n, 16, "%s%d.%d", n ? "," : "", h->layer, h->index);
        else if (asked) {
            err = lacks_heads(f->t, asked, d);
            break;
        }
    }
    heads_free(&all);
    if (err || !text)
        return err ? err : KVF_E_NOMEM;
    if (n == 0)
        return lacks_heads(f->t, NULL, d);
    *own = *f->args;
    own->heads = text;
    f->args = own;
    return KVF_OK;
}

/* Sets the queries of --queries; without it, those of the tokens. */
static int choose_queries(const struct frame *f, struct data *x, struct kvf_diag *d)
{
    const struct options *o = f->options;
    int64_t c = f->a, end = f->b;
    int err = KVF_OK;
    if (o->queries) {
        end = -1;
        err = opt_range("--queries", o->queries, &c, &end, d);
        if (!err)
            err = opt_range_fit("--queries", "queries", kvf_path(f->t), f->T, &c, &end, d);
    }
    x->c = c;
    x->d = end;
    if (err || (f->a < f->b && x->d > f->a))
        return err;
    return kvf_fail(d, o->queries ? KVF_E_ARG : KVF_E_NOTFOUND,
                    "no query of %lld:%lld sees a token of %lld:%lld", (long long)c, (long long)end,
                    (long long)f->a, (long long)f->b);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const char *reads = kvf_find(f->t, "seen") >= 0 ? "seen" : "read.count";
    if (kvf_find(f->t, reads) >= 0)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "the attention map needs entries that stay until they are evicted; in this "
                        "trace queries read selected entries (column %s)",
                        reads);
    int err = raw_list_read(f->t, &x->blobs, d);
    if (!err)
        err = choose_heads(f, &x->blobs, d);
    return err ? err : choose_queries(f, x, d);
}

/* ---- the boxes */

/* Divides [a, b) into n parts of nearly equal length: edge[n + 1]. */
static void divide(int64_t a, int64_t b, int64_t n, int64_t *edge)
{
    for (int64_t i = 0; i <= n; i++)
        edge[i] = a + (b - a) * i / n;
}

static int make_boxes(struct boxes *b, const struct frame *f, const struct data *x)
{
    const struct options *o = f->options;
    int64_t end = f->b < x->d ? f->b : x->d, keys = end - f->a, queries = x->d - x->c;
    b->n_rows = queries < o->boxes ? queries : o->boxes;
    b->n_columns = keys < o->boxes ? keys : o->boxes;
    b->query = MEM_NEW(int64_t, (size_t)b->n_rows + 1);
    b->key = MEM_NEW(int64_t, (size_t)b->n_columns + 1);
    b->first = MEM_NEW(int64_t, (size_t)b->n_rows + 1);
    if (!b->query || !b->key || !b->first)
        return KVF_E_NOMEM;
    divide(x->c, x->d, b->n_rows, b->query);
    divide(f->a, end, b->n_columns, b->key);
    for (int64_t r = 0, c = 0; r < b->n_rows; r++) {
        while (c < b->n_columns && b->key[c] < b->query[r + 1])
            c++;
        b->first[r + 1] = b->first[r] + c;
    }
    b->n = b->first[b->n_rows];
    return KVF_OK;
}

/* Lists the texts of boxes of one token. */
static int box_texts(struct kvf_trace *t, const int64_t *edge, int64_t n, struct token_text *texts,
                     const char ***ret)
{
    bool single = edge[n] - edge[0] == n;
    *ret = MEM_NEW(const char *, (size_t)n);
    int err = *ret ? KVF_OK : KVF_E_NOMEM;
    if (!err && single)
        err = token_text_read(t, edge[0], n, texts);
    for (int64_t i = 0; !err && i < n; i++)
        (*ret)[i] = single ? texts->text[i] : "";
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    size_t heads = (size_t)f->heads.n;
    struct source *s = x->s = MEM_NEW(struct source, 1);
    int err = s ? make_boxes(&s->box, f, x) : KVF_E_NOMEM;
    if (err)
        return err;
    f->n_rows = (int64_t)heads * s->box.n;
    if (f->n_rows > MOST_ROWS)
        return kvf_fail(d, KVF_E_LIMIT,
                        "%d maps of %lld boxes have more than %d rows; choose fewer heads (--head) "
                        "or --boxes",
                        f->heads.n, (long long)s->box.n, MOST_ROWS);
    s->attention = MEM_NEW(double, (size_t)f->n_rows);
    s->cached = MEM_NEW(double, (size_t)f->n_rows);
    x->evicted = FRAME_NEW(f, int64_t, heads);
    x->window = FRAME_NEW(f, int64_t, heads);
    x->cells = FRAME_NEW(f, int64_t, heads);
    x->differ = FRAME_NEW(f, double, heads);
    if (!s->attention || !s->cached)
        return KVF_E_NOMEM;
    err = box_texts(f->t, s->box.query, s->box.n_rows, &s->texts[0], &s->query_text);
    return err ? err : box_texts(f->t, s->box.key, s->box.n_columns, &s->texts[1], &s->key_text);
}

static void thread(struct frame *f, void *scratch)
{
    struct scratch *w = scratch;
    w->evict = FRAME_NEW(f, uint32_t, (size_t)f->T);
    w->weight = FRAME_NEW(f, double, (size_t)f->T);
    w->real = FRAME_NEW(f, double, (size_t)f->T);
}

/* Adds the weights of query t to the boxes of its row. mean: their sum, otherwise the largest. */
static void add_query(const struct boxes *b, int64_t r, int64_t t, const uint32_t *evict,
                      const double *weight, bool mean, double *attention, double *cached)
{
    for (int64_t c = 0; c < b->first[r + 1] - b->first[r]; c++) {
        double *to = attention + b->first[r] + c;
        for (int64_t i = b->key[c]; i < b->key[c + 1] && i <= t; i++) {
            *to = mean ? *to + weight[i] : fmax(*to, weight[i]);
            cached[b->first[r] + c] += evict[i] > t;
        }
    }
}

/* Divides the sums of the boxes of a head by their cells, and counts the cells. Values are rounded
 * to f32, the precision of the decoder. */
static void finish_boxes(const struct boxes *b, bool mean, double *attention, double *cached,
                         int64_t *ret_cells, int64_t *ret_evicted)
{
    for (int64_t r = 0; r < b->n_rows; r++)
        for (int64_t k = b->first[r]; k < b->first[r + 1]; k++) {
            int64_t c = k - b->first[r], cells = 0;
            for (int64_t t = b->query[r]; t < b->query[r + 1]; t++) {
                int64_t last = b->key[c + 1] <= t ? b->key[c + 1] : t + 1;
                cells += last > b->key[c] ? last - b->key[c] : 0;
            }
            *ret_cells += cells;
            *ret_evicted += cells - (int64_t)cached[k];
            attention[k] = (float)(attention[k] / (mean ? (double)cells : 1));
            cached[k] = (float)(cached[k] / (double)cells);
        }
}

/* Counts the cells of entries that left the layer's own window. */
static int count_window(const struct frame *f, const struct frame_head *y, const struct head *kv,
                        const uint32_t *evict, double *reason, struct kvf_diag *d)
{
    const struct data *x = f->state;
    if (f->column[REASON] < 0)
        return KVF_OK;
    int err = kvf_read_f64(y->t, f->column[REASON], kv->layer, kv->index, 0, (uint32_t)f->T, reason,
                           d);
    for (int64_t i = f->a; !err && i < f->b; i++) {
        int64_t from = evict[i] > x->c ? (int64_t)evict[i] : x->c;
        if (reason[i] == KVF_REASON_ARCHITECTURE && from < x->d)
            x->window[y->h] += x->d - (from > i ? from : i);
    }
    return err;
}

static int check_row(const struct frame_head *y, int64_t t, double lse, struct kvf_diag *d)
{
    if (!isnan(lse) && lse < INFINITY)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT,
                    "the blobs q and k of %s do not have finite logits for query %lld and the "
                    "entries that it sees",
                    y->head->name, (long long)t);
}

static int fill(const struct frame *f, const struct frame_head *y, const struct raw_head *raw,
                const uint32_t *evict, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct scratch *w = y->scratch;
    const struct boxes *b = &x->s->box;
    bool mean = ((const struct options *)f->options)->each == EACH_MEAN;
    double *attention = x->s->attention + y->h * b->n, *cached = x->s->cached + y->h * b->n;
    double lse, differ = 0;
    int err = KVF_OK;
    if (f->column[LSE] >= 0)
        err = kvf_read_f64(y->t, f->column[LSE], y->head->layer, y->head->index, 0, (uint32_t)f->T,
                           w->real, d);
    for (int64_t r = 0; !err && r < b->n_rows; r++)
        for (int64_t t = b->query[r]; !err && t < b->query[r + 1]; t++) {
            raw_weights(raw, evict, t, w->weight, &lse);
            err = check_row(y, t, lse, d);
            add_query(b, r, t, evict, w->weight, mean, attention, cached);
            if (f->column[LSE] >= 0 && lse > -INFINITY)
                differ = fmax(differ, fabs(lse - w->real[t]));
        }
    finish_boxes(b, mean, attention, cached, &x->cells[y->h], &x->evicted[y->h]);
    x->differ[y->h] = differ;
    return err;
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct scratch *w = y->scratch;
    struct raw_head raw;
    struct head kv = *y->head;
    const uint32_t *evict;
    kv.index /= kvf_n_heads(y->t, kv.layer, KVF_SPACE_QUERY)
                / kvf_n_heads(y->t, kv.layer, KVF_SPACE_KV);
    int err = raw_head_read(y->t, &x->blobs, y->head, f->T, &raw, d);
    if (!err)
        err = view_evict(y->t, f->column[EVICT], &kv, (uint32_t)f->T, w->evict, &evict, d);
    if (!err && evict != w->evict) /* reading another column ends the view */
        memcpy(w->evict, evict, (size_t)f->T * sizeof *evict);
    if (!err)
        err = count_window(f, y, &kv, w->evict, w->real, d);
    if (!err)
        err = fill(f, y, &raw, w->evict, d);
    raw_head_finish(&raw);
    return err;
}

/* ---- the table */

/* Returns the row of boxes that has box k. */
static int64_t row_of(const struct boxes *b, int64_t k)
{
    int64_t lo = 0, hi = b->n_rows;
    while (hi - lo > 1) {
        int64_t middle = lo + (hi - lo) / 2;
        if (b->first[middle] <= k)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* Defines a lazy column of integers that are `value` of box k in row r of a map. */
#define BOX_COLUMN(name, value)                                                                    \
    static void name(void *ctx, int64_t row0, int64_t n, double *out)                              \
    {                                                                                              \
        const struct boxes *b = ctx;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int64_t k = (row0 + i) % b->n, r = row_of(b, k);                                       \
            out[i] = (double)(value);                                                              \
        }                                                                                          \
    }
BOX_COLUMN(read_query, b->query[r])
BOX_COLUMN(read_query_end, b->query[r + 1])
BOX_COLUMN(read_token, b->key[k - b->first[r]])
BOX_COLUMN(read_token_end, b->key[k - b->first[r] + 1])

static void put_counts(struct table *out, const struct frame *f, const struct data *x)
{
    int64_t cells = 0, evicted = 0, window = 0;
    double differ = 0;
    for (int h = 0; h < f->heads.n; h++) {
        cells += x->cells[h];
        evicted += x->evicted[h];
        window += x->window[h];
        differ = fmax(differ, x->differ[h]);
    }
    table_meta_num(out, "cells", (double)cells);
    table_meta_num(out, "cells_evicted", (double)evicted);
    table_meta_num(out, "cells_outside_window", (double)window);
    if (f->column[LSE] >= 0)
        table_meta_num(out, "lse_difference", differ);
}

/* Lists the text of each box of a map. */
static int put_texts(struct table *out, const struct source *s)
{
    const struct boxes *b = &s->box;
    const char **query = MEM_NEW(const char *, (size_t)b->n);
    const char **key = MEM_NEW(const char *, (size_t)b->n);
    int err = query && key ? KVF_OK : KVF_E_NOMEM;
    for (int64_t r = 0; !err && r < b->n_rows; r++)
        for (int64_t k = b->first[r]; k < b->first[r + 1]; k++) {
            query[k] = s->query_text[r];
            key[k] = s->key_text[k - b->first[r]];
        }
    if (!err) {
        table_cycle_str(out, "query_text", "", query, b->n);
        table_cycle_str(out, "text", "", key, b->n);
    }
    mem_free_all((void *)query, (void *)key);
    return err;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = f->options;
    struct source *s = x->s;
    (void)d;
    put_tokens(out, f->a, f->b, f->T);
    table_meta_num(out, "first_query", (double)x->c);
    table_meta_num(out, "end_query", (double)x->d);
    table_meta_num(out, "queries_per_box", (double)(x->d - x->c) / (double)s->box.n_rows);
    table_meta_num(out, "tokens_per_box",
                   (double)(s->box.key[s->box.n_columns] - f->a) / (double)s->box.n_columns);
    table_meta_str(out, "each", each_words[o->each]);
    put_counts(out, f, x);
    x->s = NULL;
    table_own(out, s, source_destroy);
    put_heads(out, &f->heads);
    table_lazy(out, "query", "step", TABLE_INT, read_query, &s->box);
    table_lazy(out, "query_end", "step", TABLE_INT, read_query_end, &s->box);
    table_lazy(out, "token", "", TABLE_INT, read_token, &s->box);
    table_lazy(out, "token_end", "", TABLE_INT, read_token_end, &s->box);
    table_dense_real(out, "attention", "", s->attention);
    table_dense_real(out, "cached", "", s->cached);
    return put_texts(out, s);
}

static void close_data(struct frame *f)
{
    struct data *x = f->state;
    raw_list_finish(&x->blobs);
    source_destroy(x->s);
}

/* Returns true if a box has neither the first token nor a query's own token. Most heads give these
 * two the largest weights. */
static bool is_inner(const struct table *t, int64_t row)
{
    return table_row_int(t, row, "token") > 0
           && table_row_int(t, row, "token_end") <= table_row_int(t, row, "query");
}

/* Appends "query 30", or "queries 30 to 44" of a box of several. */
static void put_edges(struct buf *out, const char *one, const char *many, int64_t from, int64_t end)
{
    if (end - from == 1)
        buf_printf(out, "%s %lld", one, (long long)from);
    else
        buf_printf(out, "%s %lld to %lld", many, (long long)from, (long long)end - 1);
}

/* Appends the largest value of the rows [row, end) of a map that is not of the first token or of
 * the query itself. */
static void describe_map(const struct table *t, int64_t row, int64_t end, struct buf *out)
{
    int value = table_find(t, "attention");
    int64_t top = -1;
    for (int64_t r = row; r < end; r++)
        if (is_inner(t, r) && (top < 0 || table_real(t, value, r) > table_real(t, value, top)))
            top = r;
    buf_printf(out, "  %-7s ", table_row_str(t, row, "head"));
    if (top < 0) {
        buf_str(out, "no token between the first one and the query itself\n");
        return;
    }
    buf_printf(out, "largest %.4g: ", table_real(t, value, top));
    put_edges(out, "query", "queries", table_row_int(t, top, "query"),
              table_row_int(t, top, "query_end"));
    const char *query = table_row_str(t, top, "query_text"), *text = table_row_str(t, top, "text");
    if (*query) {
        buf_char(out, ' ');
        json_put_str(out, query, strlen(query));
    }
    buf_str(out, ", ");
    put_edges(out, "token", "tokens", table_row_int(t, top, "token"),
              table_row_int(t, top, "token_end"));
    if (*text) {
        buf_char(out, ' ');
        json_put_str(out, text, strlen(text));
    }
    buf_char(out, '\n');
}

static void describe(const struct table *t, struct buf *out)
{
    enum { MOST = 12 };
    int head = table_find(t, "head");
    int64_t n = table_rows(t), maps = 0;
    double cells = table_meta_real(t, "cells", NAN), gone = table_meta_real(t, "cells_evicted", 0);
    buf_printf(out,
               "attention of queries %s to %lld: the %s of each box of %s x %s cells\n"
               "apart from the first token and the query itself:\n",
               table_meta(t, "first_query"), (long long)table_meta_int(t, "end_query", 1) - 1,
               strcmp(table_meta(t, "each"), "mean") == 0 ? "mean" : "maximum",
               table_meta(t, "queries_per_box"), table_meta(t, "tokens_per_box"));
    for (int64_t r = 0, end; r < n; r = end, maps++) {
        for (end = r; end < n && strcmp(table_str(t, head, end), table_str(t, head, r)) == 0;)
            end++;
        if (maps < MOST)
            describe_map(t, r, end, out);
    }
    if (maps > MOST)
        buf_printf(out, "  and %lld more\n", (long long)(maps - MOST));
    buf_printf(out, "%.4g %% of the cells had no cached entry\n",
               cells > 0 ? 100 * gone / cells : 0);
    if (table_meta(t, "lse_difference"))
        buf_printf(out, "log-sum-exp of each query: the run and this map differ by %.2g or less\n",
                   table_meta_real(t, "lse_difference", NAN));
}

const struct analyzer an_attention = {
    .name = "attention",
    .summary = "exact attention map of chosen query heads",
    .example = "kvfate attention raw.kvf --head 5.3 -o attention.png",
    OPTIONS({OPT_STR, 0, "queries", offsetof(struct options, queries), "C:D",
             "queries C to D - 1, the rows of the map", .absent = "those of --tokens"},
            {OPT_INT, 0, "boxes", offsetof(struct options, boxes), "N",
             "at most N boxes down and across; longer texts have several tokens in a box", "512",
             .min = 1, .max = MOST_BOXES},
            {OPT_WORD, 0, "each", offsetof(struct options, each), "WORD",
             "value of a box of several cells", "max", .words = each_words}),
    COLUMNS(COLUMN_EVICT_STEP,
            {"evict_reason", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS,
             "whether entries left the layer's own window"},
            {"lse", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS,
             "comparison with the log-sum-exp of the run"}),
    HEADS(.space = KVF_SPACE_QUERY, FRAME_USUAL(struct data, struct scratch), .close = close_data),
    .describe = describe,
};
