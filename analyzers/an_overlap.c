/* an_overlap.c - do observation windows agree about what matters (G-KV, figures 1 and 16)?
 * A_w is the set of the p % of the candidates to which window w gave most.  Overlap of the
 * last window with an earlier one, or with the union of all earlier ones:
 * |A_last and A_w| / |A_last|, and its mean for independent sets of these sizes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/frame.h"
#include "analyzers/windows.h"

enum { MOST_P = 128, LAST = KVF_WINDOWS - 1, UNION = LAST };
static const char *const candidate_words[] = {"common", "own", NULL};
static const char *const query_words[] = {"128", "16", NULL};
struct options {
    const char *p;
    int candidates, queries;
};

struct cell { /* of a group of heads, a window (UNION last) and a p */
    int64_t both, last, other, candidates, tied;
    double chance; /* sum over the heads of |A_last| times the overlap by chance */
};

struct plan {
    struct windows w;
    int first;                     /* windows first .. LAST are used */
    int64_t a, bound[KVF_WINDOWS]; /* candidates of a window: tokens [a, bound) */
    double p[MOST_P];
    int n_p, queries;
    bool own;
    struct head_groups groups;
    struct cell *cell;         /* [groups][windows and union][p] */
    int64_t left_out, evicted; /* of all heads */
};

struct item {
    uint64_t key; /* of its score */
    int64_t pos;
};

struct work {                          /* of one thread */
    uint32_t *evict;                   /* [T] for view_evict */
    double *score[KVF_WINDOWS];        /* [T] */
    unsigned char *use;                /* [T] */
    struct item *item;                 /* [2 T], or narrow ones */
    uint8_t *at[KVF_WINDOWS];          /* [T] the first p with a set that has it; n_p: none */
    int32_t *pos;                      /* [T] candidates in order */
    int64_t n[KVF_WINDOWS];            /* how many */
    int32_t tied[KVF_WINDOWS][MOST_P]; /* candidates outside a set that equal its last */
    int64_t left_out, evicted;         /* of all heads that it had */
};

/* ---- options */

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    const struct options *o = f->options;
    x->own = o->candidates == 1;
    x->queries = o->queries == 1 ? KVF_WINDOW_BLOCK : KVF_WINDOW_QUERIES;
    x->a = f->a;
    int err = windows_shares("p", o->p, 100, x->p, MOST_P, &x->n_p, d);
    if (!err)
        err = windows_open(f->t, x->queries, &x->w, d);
    if (err)
        return err;
    while (x->first < KVF_WINDOWS && windows_from(&x->w, x->first) < 1)
        x->first++; /* no window precedes it */
    for (int w = x->first; w < KVF_WINDOWS; w++) {
        int64_t from = windows_from(&x->w, x->own ? w : x->first);
        x->bound[w] = from < f->b ? from : f->b;
    }
    return KVF_OK;
}

/* Earlier windows and their union. */
static int n_windows(const struct plan *x)
{
    return x->first < LAST ? LAST - x->first + 1 : 0;
}

static size_t n_cells(const struct plan *x)
{
    return (size_t)n_windows(x) * (size_t)x->n_p;
}

/* ---- the sets of a head */

/* Candidates are kept to the end of the run: the last window cannot attend to entries that were
 * evicted before. */
static void choose_use(const struct plan *x, struct work *k)
{
    const uint32_t *restrict evict = k->evict;
    unsigned char *restrict use = k->use;
    int32_t T = (int32_t)x->w.T, n = (int32_t)x->bound[LAST], a = (int32_t)x->a;
    int32_t evicted = 0, left_out = 0;
    memset(use, 1, (size_t)n);
    for (int w = x->first; w < KVF_WINDOWS; w++) {
        const double *restrict score = k->score[w];
        for (int32_t i = 0, stop = (int32_t)x->bound[w]; i < stop; i++)
            use[i] &= !isnan(score[i]);
    }
    for (int32_t i = a; i < n; i++) {
        bool kept = evict[i] >= (uint32_t)T, defined = use[i];
        use[i] = kept & defined;
        evicted += !kept;
        left_out += kept & !defined;
    }
    k->evicted += evicted;
    k->left_out += left_out;
}

static int read_head(struct kvf_trace *t, const struct plan *x, const struct head *head,
                     struct work *k, struct kvf_diag *d)
{
    int64_t n = x->bound[LAST];
    const uint32_t *evict = NULL;
    int err = n ? view_evict(t, x->w.evict, head, (uint32_t)n, k->evict, &evict, d) : KVF_OK;
    if (!err && n && evict != k->evict) /* it is borrowed until the next column */
        memcpy(k->evict, evict, (size_t)n * sizeof *evict);
    for (int w = x->first; !err && n && w < KVF_WINDOWS; w++)
        err = kvf_read_f64(t, x->w.column[w], head->layer, head->index, 0, (uint32_t)n, k->score[w],
                           d);
    if (!err && n)
        choose_use(x, k);
    return err;
}

/* Falls as the score rises: as integers they have the order of the numbers except NaN, inverted bit
 * by bit; -0 is 0. */
static uint64_t key_of(double score)
{
    uint64_t bits;
    score += 0.0;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 63 ? bits : ~bits & ~((uint64_t)1 << 63);
}

/* By rising key, equal ones as they are: a pass for each 11 bits from the lowest in which keys
 * differ.  Returns a or b, whichever has them. */
static struct item *sort_items(struct item *a, struct item *b, int64_t n)
{
    enum { BITS = 11 };
    uint64_t any = 0;
    for (int64_t i = 1; i < n; i++)
        any |= a[i].key ^ a[0].key;
    for (int shift = any ? __builtin_ctzll(any) : 64; shift < 64; shift += BITS) {
        int32_t at[1 << BITS] = {0}, sum = 0;
        const uint64_t digit = (1 << BITS) - 1;
        if (!(any >> shift & digit))
            continue;
        for (int64_t i = 0; i < n; i++)
            at[a[i].key >> shift & digit]++;
        for (int k = 0; k < 1 << BITS; k++) {
            int32_t here = at[k];
            at[k] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            b[at[a[i].key >> shift & digit]++] = a[i];
        struct item *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* The same of scores of 32 bits: key and position in one number. */
static uint64_t narrow_item(double score, int64_t pos)
{
    uint32_t bits;
    float narrow = (float)score + 0.0f;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint64_t)(bits >> 31 ? bits : ~bits & INT32_MAX) << 32 | (uint64_t)pos;
}

static uint64_t *sort_narrow(uint64_t *a, uint64_t *b, int64_t n)
{
    enum { BITS = 11, FIRST = 32 };
    const uint64_t digit = (1 << BITS) - 1;
    for (int shift = FIRST; shift < 64; shift += BITS) {
        int32_t at[1 << BITS] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++)
            at[a[i] >> shift & digit]++;
        for (int k = 0; k < 1 << BITS; k++) {
            int32_t here = at[k];
            at[k] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            b[at[a[i] >> shift & digit]++] = a[i];
        uint64_t *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* ceil(p n / 100), at least one of any. */
static int64_t set_size(double p, int64_t n)
{
    int64_t k = (int64_t)ceil(p * (double)n / 100 - 1e-9); /* 7 % of 100 are 7, whatever 0.07 is */
    if (k < 1)
        k = 1;
    return k > n ? n : k;
}

/* The candidates of a window in order: larger scores first, and for equal scores the larger
 * position.  pos: of each. */
static int64_t sort_candidates(const struct plan *x, struct work *k, int w, bool narrow,
                               int32_t *pos)
{
    int64_t n = 0;
    uint64_t *one = (uint64_t *)k->item;
    const unsigned char *use = k->use; /* no branch: it would be guessed wrong often */
    const double *score = k->score[w];
    for (int64_t i = x->bound[w] - 1; narrow && i >= x->a; n += use[i--])
        one[n] = narrow_item(score[i], i);
    for (int64_t i = x->bound[w] - 1; !narrow && i >= x->a; n += use[i--])
        k->item[n] = (struct item){key_of(score[i]), i};
    if (narrow)
        one = sort_narrow(one, one + x->w.T, n);
    const struct item *item = narrow ? NULL : sort_items(k->item, k->item + x->w.T, n);
    for (int64_t i = 0; i < n; i++)
        pos[i] = narrow ? (int32_t)(uint32_t)one[i] : (int32_t)item[i].pos;
    return n;
}

/* Which sets of a window have each candidate: they are nested. */
static void find_sets(const struct plan *x, struct work *k, int w, bool narrow)
{
    int64_t n = k->n[w] = sort_candidates(x, k, w, narrow, k->pos), rank = 0, end = 0;
    memset(k->at[w], x->n_p, (size_t)x->bound[LAST]);
    for (int p = 0; p < x->n_p; p++) {
        for (int64_t stop = set_size(x->p[p], n); rank < stop; rank++)
            k->at[w][k->pos[rank]] = (uint8_t)p;
        const double *score = k->score[w];
        for (end = end > rank ? end : rank; rank && end < n; end++)
            if (score[k->pos[end]] != score[k->pos[rank - 1]])
                break;
        k->tied[w][p] = (int32_t)(end - rank);
    }
}

/* ---- counting */

static struct cell *cell_of(const struct plan *x, struct cell *cell, int w, int p)
{
    return &cell[(w - x->first) * x->n_p + p];
}

static void count(const struct plan *x, const struct work *k, struct cell *cell)
{
    int32_t both[KVF_WINDOWS][MOST_P + 1] = {{0}}, other[KVF_WINDOWS][MOST_P + 1] = {{0}};
    int32_t of_last[MOST_P + 1] = {0}; /* the place n_p is for entries in no set */
    for (int64_t i = x->a; i < x->bound[LAST]; i++) {
        int last = k->at[LAST][i], any = x->n_p;
        of_last[last]++;
        for (int w = x->first; w < UNION; w++) {
            int at = k->at[w][i];
            any = at < any ? at : any;
            other[w][at]++;
            both[w][at > last ? at : last]++;
        }
        other[UNION][any]++;
        both[UNION][any > last ? any : last]++;
    }
    for (int w = x->first; w <= UNION; w++)
        for (int p = 0; p < x->n_p; p++) { /* so far: first in the set of p */
            struct cell *c = cell_of(x, cell, w, p), *before = p ? cell_of(x, cell, w, p - 1) : c;
            c->other += other[w][p] + (p ? before->other : 0);
            c->last += of_last[p] + (p ? before->last : 0);
            c->both += both[w][p] + (p ? before->both : 0);
        }
}

/* Mean overlap of the last window's set with an independent one of the size that window w
 * has, or with the union of such sets: the share of its candidates that are in it.  A
 * candidate of window j is one of all later windows. */
static double by_chance(const struct plan *x, const struct work *k, int w, double p)
{
    double sum = 0;
    if (w < UNION)
        return (double)set_size(p, k->n[w]) / (double)k->n[LAST];
    for (int j = x->first; j < UNION; j++) {
        double out = 1; /* of all sets, for a candidate with the first window j */
        for (int v = j; v < UNION; v++)
            out *= k->n[v] ? 1 - (double)set_size(p, k->n[v]) / (double)k->n[v] : 1;
        sum += (1 - out) * (double)(k->n[j] - (j > x->first ? k->n[j - 1] : 0));
    }
    return sum / (double)k->n[LAST];
}

static void judge_head(const struct kvf_trace *t, const struct plan *x, struct work *k,
                       struct cell *cell)
{
    for (int w = x->first; w < KVF_WINDOWS; w++)
        find_sets(x, k, w, kvf_column(t, x->w.column[w])->dtype == KVF_F32);
    count(x, k, cell);
    for (int w = x->first; w <= UNION; w++)
        for (int p = 0; p < x->n_p; p++) {
            struct cell *c = cell_of(x, cell, w, p);
            c->candidates = k->n[LAST];
            c->tied = k->tied[LAST][p];
            for (int v = w < UNION ? w : x->first; v < (w < UNION ? w + 1 : UNION); v++)
                c->tied += k->tied[v][p];
            c->chance = k->n[LAST] ? (double)c->last * by_chance(x, k, w, x->p[p]) : 0;
        }
}

static void add_cells(struct cell *to, const struct cell *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i].both += from[i].both;
        to[i].last += from[i].last;
        to[i].other += from[i].other;
        to[i].candidates += from[i].candidates;
        to[i].tied += from[i].tied;
        to[i].chance += from[i].chance;
    }
}

/* ---- the frame */

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    int err = groups_create(&f->heads, f->space, &x->groups);
    (void)d;
    if (err)
        return err;
    f->items = n_cells(x) > 0;
    f->n_rows = (int64_t)((size_t)x->groups.n * n_cells(x));
    x->cell = FRAME_NEW(f, struct cell, (size_t)f->n_rows);
    return KVF_OK;
}

static void thread(struct frame *f, void *scratch)
{
    struct work *k = scratch;
    size_t T = (size_t)f->T;
    k->evict = FRAME_NEW(f, uint32_t, T);
    k->use = FRAME_NEW(f, unsigned char, T);
    k->item = FRAME_NEW(f, struct item, 2 * T);
    k->pos = FRAME_NEW(f, int32_t, T);
    for (int w = 0; w < KVF_WINDOWS; w++) {
        k->score[w] = FRAME_NEW(f, double, T);
        k->at[w] = FRAME_NEW(f, uint8_t, T);
    }
}

static int head(const struct frame *f, const struct frame_head *y, struct kvf_diag *d)
{
    const struct plan *x = f->state;
    int err = read_head(y->t, x, y->head, y->scratch, d);
    if (!err)
        judge_head(y->t, x, y->scratch, x->cell + (size_t)y->h * n_cells(x));
    return err;
}

/* Layers and all heads, in the order of the heads: `chance` is no integer. */
static int finish(struct frame *f, struct kvf_diag *d)
{
    struct plan *x = f->state;
    size_t n = n_cells(x);
    (void)d;
    for (int h = 0; h < f->heads.n && f->items; h++) {
        const struct cell *mine = x->cell + (size_t)h * n;
        add_cells(x->cell + (size_t)x->groups.layer_of[h] * n, mine, n);
        add_cells(x->cell + (size_t)(x->groups.n - 1) * n, mine, n);
    }
    for (int i = 0; i < f->n_threads; i++) {
        const struct work *k = frame_scratch(f, i);
        x->evicted += k->evicted;
        x->left_out += k->left_out;
    }
    return KVF_OK;
}

static void close(struct frame *f)
{
    head_groups_free(&((struct plan *)f->state)->groups);
}

/* ---- the table */

static void put_meta(struct table *out, const struct plan *x, int64_t b, const int64_t *undefined)
{
    static const char *const kinds[] = {"tokens before the first window",
                                        "tokens before each window"};
    put_tokens(out, x->a, b, x->w.T);
    table_meta_str(out, "candidates", kinds[x->own]);
    table_meta_num(out, "queries", x->queries);
    table_meta_num(out, "windows", KVF_WINDOWS - x->first);
    table_meta_num(out, "end", (double)x->w.end);
    for (int w = x->first; w < KVF_WINDOWS; w++) {
        char key[24], text[48];
        snprintf(key, sizeof key, "window_%d", w);
        snprintf(text, sizeof text, "%lld:%lld", (long long)windows_from(&x->w, w),
                 (long long)windows_from(&x->w, w + 1));
        table_meta_str(out, key, text);
    }
    table_meta_num(out, "evicted", (double)x->evicted);
    table_meta_num(out, "left_out", (double)x->left_out);
    table_meta_num(out, "undefined", (double)undefined[0]);
    table_meta_num(out, "undefined_kappa", (double)undefined[1]);
}

/* The values of all cells, and the number of cells without one. */
static int put_cells(struct frame *f, struct table *out, int64_t *undefined)
{
    const struct plan *x = f->state;
    size_t n = (size_t)f->n_rows;
    int64_t *v = FRAME_NEW(f, int64_t, 5 * n);
    double *r = FRAME_NEW(f, double, 3 * n);
    if (!v || !r)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct cell *c = &x->cell[i];
        double *overlap = &r[i], *expected = &r[n + i], *kappa = &r[2 * n + i];
        v[i] = c->both;
        v[n + i] = c->last;
        v[2 * n + i] = c->other;
        v[3 * n + i] = c->candidates;
        v[4 * n + i] = c->tied;
        *overlap = c->last ? (double)c->both / (double)c->last : NAN;
        *expected = c->last ? c->chance / (double)c->last : NAN;
        *kappa = *expected < 1 - 1e-12 ? (*overlap - *expected) / (1 - *expected) : NAN;
        undefined[0] += isnan(*overlap);
        undefined[1] += isnan(*kappa);
    }
    static const char *const real[] = {"overlap", "expected", "kappa"};
    static const char *const whole[] = {"both", "last", "other", "candidates", "tied"};
    for (size_t c = 0; c < 3; c++)
        table_dense_real(out, real[c], "", r + c * n);
    for (size_t c = 0; c < 5; c++)
        table_dense_int(out, whole[c], "", v + c * n);
    return KVF_OK;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    static const char *const names[] = {"0", "1", "2", "union"};
    const struct plan *x = f->state;
    const char *window[KVF_WINDOWS * MOST_P];
    int64_t undefined[2] = {0, 0};
    size_t n = n_cells(x);
    (void)d;
    for (size_t i = 0; i < n; i++)
        window[i] = names[x->first + (int)(i / (size_t)x->n_p)];
    put_groups(out, &x->groups);
    table_cycle_str(out, "window", "", window, (int64_t)n);
    table_cycle_real(out, "p", "%", x->p, x->n_p);
    int err = put_cells(f, out, undefined);
    put_meta(out, x, f->b, undefined);
    return err;
}

/* ---- for people */

static bool worth_a_line(double p, int n_p)
{
    static const double some[] = {1, 5, 10, 25, 55, 75};
    bool found = n_p <= 8;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        found = found || p == some[i];
    return found;
}

static void describe(const struct table *t, struct buf *out)
{
    int64_t rows = table_rows(t), r = 0;
    int head = table_find(t, "head"), window = table_find(t, "window"), p = table_find(t, "p");
    int overlap = table_find(t, "overlap"), expected = table_find(t, "expected");
    int kappa = table_find(t, "kappa"), n_p = 0;
    if (rows == 0) {
        buf_printf(out, "%s of 4 windows of 128 queries have tokens before them: two are needed\n",
                   table_meta(t, "windows"));
        return;
    }
    while (r < rows && strcmp(table_str(t, head, r), "all") != 0)
        r++;
    while (r + n_p < rows && strcmp(table_str(t, window, r), table_str(t, window, r + n_p)) == 0)
        n_p++;
    buf_printf(out,
               "overlap of the last window's top p %% with earlier windows (%s asked)\n"
               "candidates: %s, %lld in all heads\n",
               table_meta(t, "queries"), table_meta(t, "candidates"),
               (long long)table_row_int(t, r, "candidates"));
    buf_str(out, "  window      p  overlap  expected    kappa\n");
    int64_t tied = 0;
    for (int64_t k = r; k < rows; k++)
        tied += table_row_int(t, k, "tied");
    for (; r < rows; r++)
        if (worth_a_line(table_real(t, p, r), n_p))
            buf_printf(out, "  %-6s %6g %8.4f %9.4f %8.4f\n", table_str(t, window, r),
                       table_real(t, p, r), table_real(t, overlap, r), table_real(t, expected, r),
                       table_real(t, kappa, r));
    if (tied > 0)
        buf_printf(out,
                   "%lld candidates are left out of a set although they equal its last: position "
                   "decides, in all windows alike, and such sets agree without a reason (column "
                   "tied)\n",
                   (long long)tied);
    if (table_meta_real(t, "left_out", 0) > 0)
        buf_printf(out, "%s candidates left out: a window has no number for them\n",
                   table_meta(t, "left_out"));
}

const struct analyzer an_overlap = {
    .name = "overlap",
    .summary = "overlap of the important tokens between observation windows",
    .example = "kvfate overlap run.kvf -o overlap.png",
    OPTIONS({OPT_STR, 0, "p", offsetof(struct options, p), "LIST",
             "sizes of the sets, percent of the candidates",
             "1,5,10,15,20,25,30,35,40,45,50,55,60,65,70,75,80,85,90,95,100"},
            {OPT_WORD, 0, "candidates", offsetof(struct options, candidates), "C",
             "tokens before the first window, or before each one's own", "common",
             .words = candidate_words},
            {OPT_WORD, 0, "queries", offsetof(struct options, queries), "N",
             "queries of a window that are asked: all, or its last", "128", .words = query_words}),
    COLUMNS({"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "always"},
            {"window.*", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--queries 128"},
            {"window16.*", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--queries 16"}),
    HEADS(.space = KVF_SPACE_KV, FRAME_USUAL(struct plan, struct work), .finish = finish,
          .close = close),
    .describe = describe,
    POOL(KEYS("head", "layer", "index", "window", "p"), {"overlap", "both", "last"}, {"expected"},
         {"kappa"}),
};
