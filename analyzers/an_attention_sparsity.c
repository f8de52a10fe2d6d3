/* an_attention_sparsity.c - the share of tokens with a score under p times the largest one (G-KV,
 * appendix B and figure 9).  form=window: the score is the attention of the last 16 queries to an
 * entry; form=step: the weights of each query by themselves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/windows.h"
#include "analyzers/frame.h"
#include "base/stats.h"

enum { MOST_P = 64 };
enum { SPAN = KVF_WINDOWS * KVF_WINDOW_QUERIES }; /* the last 512 tokens */
static const char *const forms[] = {"window", "step", NULL};
enum { ENTRIES_AUTO, ENTRIES_LAST, ENTRIES_KEPT };
static const char *const entry_words[] = {"auto", "last", "kept", NULL};
static const char *const max_words[] = {"counted", "all", NULL};
struct options {
    int form, entries, max;
    const char *p;
};

struct cell { /* of a group of heads and a p */
    int64_t under, tokens, queries;
    struct sum share; /* of under / tokens, over queries */
};

struct plan {
    bool step, kept, all; /* form; entries; max */
    double p[MOST_P];
    int n_p;
    int64_t a, b; /* tokens, or queries, [a, b) */
    struct windows w;
    int column[KVF_N_UNDER + 1]; /* of each p; the last: seen */
    struct head_groups groups;
    struct cell *cell;         /* [groups][n_p] */
    double *evict, *score;     /* [T] of a head; form=window */
    double *seen, *under;      /* [T]; form=step: the same memory */
    int64_t left_out, evicted; /* of all heads */
};

/* ---- options */

static const char *const under_names[] = {
#define X(name, p) "under." #name,
    KVF_UNDER_MAP(X)
#undef X
        "under.seen"};

static const double under_shares[] = {
#define X(name, p) p,
    KVF_UNDER_MAP(X)
#undef X
};

static int choose_steps(const struct kvf_trace *t, struct plan *x, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int err = columns_find(t, under_names[KVF_N_UNDER], KVF_SPACE_QUERY, KVF_AXIS_STEP, &l,
                           &x->column[x->n_p], d);
    for (int p = 0; !err && p < x->n_p; p++) {
        int k = 0;
        while (k < KVF_N_UNDER && under_shares[k] != x->p[p])
            k++;
        if (k == KVF_N_UNDER)
            err = kvf_fail(d, KVF_E_ARG,
                           "--p: --form step records 0.0001, 0.001, 0.01 and 0.1, not %g", x->p[p]);
        else
            err = columns_find(t, under_names[k], KVF_SPACE_QUERY, KVF_AXIS_STEP, &l, &x->column[p],
                               d);
    }
    return columns_refuse(&l, NULL, err, d);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    const struct options *o = f->options;
    const char *p = o->p;
    *x = (struct plan){.step = o->form == 1,
                       .kept = o->entries == ENTRIES_KEPT,
                       .all = o->max == 1,
                       .a = f->a,
                       .b = f->b};
    f->space = x->step ? KVF_SPACE_QUERY : KVF_SPACE_KV;
    if (x->step && (o->entries || o->max))
        return kvf_fail(d, KVF_E_ARG,
                        "--%s speaks of --form window; a step counts all that its "
                        "query saw",
                        o->entries ? "entries" : "max");
    if (!p)
        p = x->step ? "0.0001,0.001,0.01,0.1" : "0.0001,0.001,0.01,0.02,0.05,0.1";
    int err = windows_shares("p", p, 1, x->p, MOST_P, &x->n_p, d);
    if (err)
        return err;
    return x->step ? choose_steps(f->t, x, d) : windows_open(f->t, KVF_WINDOW_BLOCK, &x->w, d);
}

/* Without the option, a run with evictions uses the entries that it kept. */
static int choose_entries(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    const struct options *o = f->options;
    int err = KVF_OK;
    for (int h = 0; !err && !o->entries && !x->kept && x->w.T && h < f->heads.n; h++) {
        err = read_evict(f->t, x->w.evict, &f->heads.head[h], (uint32_t)x->w.T, x->evict, d);
        for (int64_t i = 0; !err && i < x->w.T; i++)
            x->kept = x->kept || x->evict[i] < (double)x->w.T;
    }
    return err;
}

/* ---- counting */

static void add_share(struct cell *c, int64_t under, int64_t tokens)
{
    c->under += under;
    c->tokens += tokens;
    if (tokens) {
        c->queries++;
        sum_add(&c->share, (double)under / (double)tokens);
    }
}

/* The groups that a head counts in. */
static void add_all(struct plan *x, int h, int p, int64_t under, int64_t tokens)
{
    const struct head_groups *g = &x->groups;
    add_share(&x->cell[h * x->n_p + p], under, tokens);
    add_share(&x->cell[g->layer_of[h] * x->n_p + p], under, tokens);
    add_share(&x->cell[(g->n - 1) * x->n_p + p], under, tokens);
}

static bool counted(const struct plan *x, int64_t i)
{
    return i >= x->a && i < x->b && (x->kept || i >= x->w.end - SPAN)
           && x->evict[i] >= (double)x->w.T;
}

/* Counted scores to the front of x->score; returns their number. */
static int64_t gather(struct plan *x, double *ret_most)
{
    int64_t n = 0;
    *ret_most = 0;
    for (int64_t i = 0; i < x->w.end; i++) {
        double v = x->score[i];
        bool mine = counted(x, i);
        if ((mine || x->all) && v > *ret_most) /* false for NaN */
            *ret_most = v;
        x->evicted += x->evict[i] < (double)x->w.T;
        x->left_out += mine && isnan(v);
        if (mine && !isnan(v))
            x->score[n++] = v;
    }
    return n;
}

static int count_window(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    int err = KVF_OK, column = x->w.column[KVF_WINDOWS - 1];
    uint32_t n = (uint32_t)x->w.end;
    for (int h = 0; !err && n && h < f->heads.n; h++) {
        const struct head *head = &f->heads.head[h];
        double most;
        err = read_evict(f->t, x->w.evict, head, n, x->evict, d);
        if (!err)
            err = kvf_read_f64(f->t, column, head->layer, head->index, 0, n, x->score, d);
        int64_t m = err ? 0 : gather(x, &most);
        for (int p = 0; !err && p < x->n_p; p++) {
            int64_t under = 0;
            for (int64_t i = 0; i < m; i++)
                under += x->score[i] < x->p[p] * most;
            add_all(x, h, p, under, m);
        }
    }
    return err;
}

static int count_steps(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    int err = KVF_OK;
    uint32_t from = (uint32_t)x->a, n = (uint32_t)(x->b - x->a);
    for (int h = 0; !err && n && h < f->heads.n; h++) {
        const struct head *head = &f->heads.head[h];
        err = kvf_read_f64(f->t, x->column[x->n_p], head->layer, head->index, from, n, x->seen, d);
        for (int p = 0; !err && p < x->n_p; p++) {
            err = kvf_read_f64(f->t, x->column[p], head->layer, head->index, from, n, x->under, d);
            for (uint32_t i = 0; !err && i < n; i++) {
                bool known = x->under[i] >= 0 && x->under[i] <= x->seen[i]
                             && x->seen[i] <= (double)f->T;
                x->left_out += p == 0 && (!known || x->seen[i] == 0);
                if (known)
                    add_all(x, h, p, (int64_t)x->under[i], (int64_t)x->seen[i]);
            }
        }
    }
    return err;
}

/* ---- the table */

static int put_cells(struct frame *f, struct table *out)
{
    size_t n = (size_t)f->n_rows;
    double *r = FRAME_NEW(f, double, 2 * n);
    int64_t *v = FRAME_NEW(f, int64_t, 3 * n);
    int64_t undefined = 0;
    if (!r || !v)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct cell *c = &((const struct plan *)f->state)->cell[i];
        r[i] = c->queries ? sum_get(&c->share) / (double)c->queries : NAN;
        r[n + i] = c->tokens ? (double)c->under / (double)c->tokens : NAN;
        v[i] = c->under;
        v[n + i] = c->tokens;
        v[2 * n + i] = c->queries;
        undefined += c->queries == 0;
    }
    table_dense_real(out, "sparsity", "", r);
    table_dense_real(out, "share", "", r + n);
    table_dense_int(out, "under", "", v);
    table_dense_int(out, "tokens", "", v + n);
    table_dense_int(out, "n", "", v + 2 * n);
    table_meta_num(out, "undefined", (double)undefined);
    return KVF_OK;
}

/* Notes why a table has no value: no token of --tokens is counted. */
static void note_none(const struct frame *f, struct table *out)
{
    const struct plan *x = f->state;
    char text[160];
    bool any = false;
    for (int64_t i = 0; i < f->n_rows; i++)
        any |= x->cell[i].queries > 0;
    snprintf(text, sizeof text, "no token of %lld:%lld is counted; counted are %s%s",
             (long long)f->a, (long long)f->b, table_meta(out, "entries"),
             x->kept ? "" : "; --entries kept counts earlier tokens, too");
    if (!any && f->n_rows && table_meta(out, "tokens"))
        table_meta_str(out, "note", text);
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct plan *x = f->state;
    (void)d;
    put_groups(out, &x->groups);
    table_cycle_str(out, "form", "", &forms[x->step], 1);
    table_cycle_real(out, "p", "", x->p, x->n_p);
    int err = put_cells(f, out);
    put_tokens(out, f->a, f->b, f->T);
    table_meta_str(out, "form", forms[x->step]);
    if (!x->step) {
        table_meta_str(out, "entries", x->kept ? "all kept to the end" : "the last 512, if kept");
        table_meta_str(out, "max", x->all ? "of all entries" : "of the entries counted");
        table_meta_num(out, "end", (double)x->w.end);
        table_meta_num(out, "evicted", (double)x->evicted);
        note_none(f, out);
    }
    table_meta_num(out, "left_out", (double)x->left_out);
    return err;
}

/* ---- the frame */

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    double *one = FRAME_NEW(f, double, (size_t)f->T), *two = FRAME_NEW(f, double, (size_t)f->T);
    (void)d;
    f->items = 0; /* finish reads the heads: means of groups are sums in their order */
    x->evict = x->seen = one;
    x->score = x->under = two;
    int err = groups_create(&f->heads, f->space, &x->groups);
    if (err)
        return err;
    x->cell = frame_alloc(f, (size_t)x->groups.n * (size_t)x->n_p, sizeof *x->cell);
    f->n_rows = f->T ? (int64_t)x->groups.n * x->n_p : 0;
    return KVF_OK;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    const struct plan *x = f->state;
    if (x->step)
        return count_steps(f, d);
    int err = choose_entries(f, d);
    return err ? err : count_window(f, d);
}

static void close(struct frame *f)
{
    head_groups_free(&((struct plan *)f->state)->groups);
}

/* ---- for people */

static void describe(const struct table *t, struct buf *out)
{
    int head = table_find(t, "head"), p = table_find(t, "p"), value = table_find(t, "sparsity");
    bool step = strcmp(table_meta(t, "form"), "step") == 0;
    if (table_rows(t) == 0) {
        buf_str(out, "no tokens\n");
        return;
    }
    if (step)
        buf_str(out, "fraction of the visible entries with a weight below p times the query's "
                     "largest, mean over queries\n");
    else
        buf_printf(out,
                   "fraction of tokens with a score below p times the largest; score: weights of "
                   "the last 16 queries\nentries: %s; largest: %s\n",
                   table_meta(t, "entries"), table_meta(t, "max"));
    for (int64_t r = 0; r < table_rows(t); r++)
        if (strcmp(table_str(t, head, r), "all") == 0)
            buf_printf(out, "  p = %-7g %.4f\n", table_real(t, p, r), table_real(t, value, r));
    if (table_meta_real(t, "left_out", 0) > 0)
        buf_printf(out, "%s %s left out: there is no number for them\n", table_meta(t, "left_out"),
                   step ? "queries" : "tokens");
}

const struct analyzer an_attention_sparsity = {
    .name = "attention-sparsity",
    .summary = "fraction of attention weights below p times the largest",
    .example = "kvfate attention --as sparsity run.kvf -o sparsity.png",
    OPTIONS({OPT_WORD, 0, "form", offsetof(struct options, form), "F",
             "scores: of the last 16 queries together, or of each query", "window", .words = forms},
            {OPT_STR, 0, "p", offsetof(struct options, p), "LIST", "shares of the largest score",
             .absent = "0.0001,0.001,0.01,0.1; window: 0.02,0.05, too"},
            {OPT_WORD, 0, "entries", offsetof(struct options, entries), "E",
             "of the last 512 tokens, or of all; auto: kept where any was evicted", "auto",
             .words = entry_words},
            {OPT_WORD, 0, "max", offsetof(struct options, max), "M",
             "the largest score of the tokens that are counted, or of all", "counted",
             .words = max_words}),
    COLUMNS(
        {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--form window, the default"},
        {"window16.*", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--form window, the default"},
        {"under.*", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, "--form step"}),
    HEADS(.state_size = sizeof(struct plan), .choose = choose, .prepare = prepare, .finish = finish,
          .rows = rows, .close = close),
    .describe = describe,
    POOL(KEYS("head", "layer", "index", "form", "p"), {"sparsity"}, {"share", "under", "tokens"}),
};
