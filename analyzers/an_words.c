/* an_words.c - the words in the caches compared with the words of the text.  Over the chosen heads
 * and the occurrences of a word: base_count counts all of them, count the occurrences with entries
 * that the head caches at a step or at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/word_list.h"
#include "analyzers/frame.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/stats.h"

enum { EVICT, ROLE }; /* columns */
static const char *const by_words[] = {"word", "token", "class", "role", NULL};
enum { SORT_COUNT, SORT_KEPT, SORT_LIFT, SORT_RETENTION, SORT_WORD };
static const char *const sort_words[] = {"count", "kept", "lift", "retention", "word", NULL};
static const char *const match_words[] = {"any", "all", NULL};
struct options {
    int by, sort, match; /* by: enum words_by */
    const char *step, *classes;
    int64_t min_count;
    bool fold;
};

struct word {
    int64_t places, count, scored;
    struct sum log_beta;
    int64_t id;
    double key; /* of the order: rising */
};

struct row {
    const char *word;
    int64_t count, base_count, scored, places, total, base_total;
    double share, base_share, lift, kept, log_beta;
};

struct data {
    const struct options *o;
    struct classes *classes;
    struct word_list list;
    struct word *word; /* [list.n_words]; the rows of the table are the first n_rows */
    int64_t step, n_rows, total, base_total, undefined;
    int n_heads, log_beta; /* column, or -1 */
    double *value;         /* [T] of a head */
};

/* ---- counting */

static int64_t held_of(const struct place *p, const double *evict, int64_t step)
{
    int64_t held = 0;
    for (int64_t i = p->first; i < p->end; i++)
        held += i <= step && evict[i] > (double)step;
    return held;
}

/* Whether a place counts when `n` of its tokens do. */
static bool counts(const struct data *x, const struct place *p, int64_t n)
{
    return x->o->match ? n == p->end - p->first : n > 0;
}

static void count_head(struct data *x, const double *evict)
{
    for (int64_t k = 0; k < x->list.n_places; k++) {
        const struct place *p = &x->list.place[k];
        x->word[p->word].count += counts(x, p, held_of(p, evict, x->step));
    }
}

static void count_places(struct data *x)
{
    for (int64_t k = 0; k < x->list.n_places; k++) {
        const struct place *p = &x->list.place[k];
        int64_t born = (p->end <= x->step ? p->end : x->step + 1) - p->first;
        x->word[p->word].places += counts(x, p, born > 0 ? born : 0);
    }
}

static void score_head(struct data *x, const double *log_beta)
{
    for (int64_t k = 0; k < x->list.n_places; k++) {
        const struct place *p = &x->list.place[k];
        struct word *w = &x->word[p->word];
        for (int64_t i = p->first; i < p->end && i <= x->step; i++) {
            if (isnan(log_beta[i])) {
                x->undefined++;
                continue;
            }
            sum_add(&w->log_beta, log_beta[i]);
            w->scored++;
        }
    }
}

static int read_heads(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    int err = KVF_OK;
    for (int h = 0; !err && f->T && h < f->heads.n; h++) {
        const struct head *head = &f->heads.head[h];
        err = read_evict(f->t, f->column[EVICT], head, (uint32_t)f->T, x->value, d);
        if (!err)
            count_head(x, x->value);
        if (err || x->log_beta < 0)
            continue;
        err = kvf_read_f64(f->t, x->log_beta, head->layer, head->index, 0, (uint32_t)f->T, x->value,
                           d);
        if (!err)
            score_head(x, x->value);
    }
    return err;
}

/* ---- the rows */

static double mean_log_beta(const struct word *w)
{
    return w->scored ? sum_get(&w->log_beta) / (double)w->scored : NAN;
}

static double share(int64_t n, int64_t of)
{
    return of ? (double)n / (double)of : NAN;
}

static double lift_of(const struct data *x, const struct word *w)
{
    return share(w->count, x->total) / share(w->places * x->n_heads, x->base_total);
}

static double key_of(const struct data *x, const struct word *w)
{
    double lb = mean_log_beta(w);
    switch (x->o->sort) {
    case SORT_COUNT:
        return -(double)w->count;
    case SORT_KEPT:
        return -share(w->count, w->places);
    case SORT_LIFT:
        return x->total ? -lift_of(x, w) : 0;
    case SORT_RETENTION:
        return isnan(lb) ? INFINITY : -lb;
    default:
        return 0;
    }
}

static int by_key(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    int order = (x->key > y->key) - (x->key < y->key);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

struct named {
    const char *text;
    int64_t at;
};

/* Keys that put the words in the order of their bytes. */
static int take_names(struct data *x)
{
    struct named *e = MEM_NEW(struct named, (size_t)x->n_rows);
    if (!e)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < x->n_rows; r++)
        e[r] = (struct named){x->list.word[x->word[r].id], r};
    qsort(e, (size_t)x->n_rows, sizeof *e, order_text);
    for (int64_t r = 0; r < x->n_rows; r++)
        x->word[e[r].at].key = (double)r;
    mem_free(e);
    return KVF_OK;
}

static int choose_rows(struct data *x)
{
    int64_t n = 0;
    int err = KVF_OK;
    for (int64_t w = 0; w < x->list.n_words; w++) {
        x->total += x->word[w].count;
        x->base_total += x->word[w].places * x->n_heads;
        x->word[w].id = w;
    }
    for (int64_t w = 0; w < x->list.n_words; w++)
        if (x->word[w].places >= x->o->min_count)
            x->word[n++] = x->word[w];
    x->n_rows = n;
    for (int64_t r = 0; r < n; r++)
        x->word[r].key = key_of(x, &x->word[r]);
    if (x->o->sort == SORT_WORD)
        err = take_names(x);
    qsort(x->word, (size_t)n, sizeof *x->word, by_key);
    return err;
}

/* ---- the frame */

static int read_list(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    uint32_t T = (uint32_t)f->T;
    uint8_t *class = FRAME_NEW(f, uint8_t, T);
    double *role = FRAME_NEW(f, double, T);
    int err = class && role ? classes_open(x->o->classes, &x->classes, d) : KVF_E_NOMEM;
    if (!err)
        err = classes_of_trace(x->classes, f->t, class, d);
    if (!err && T && f->column[ROLE] >= 0)
        err = kvf_read_f64(f->t, f->column[ROLE], 0, 0, 0, T, role, d);
    if (err)
        return err;
    const struct word_source s = {f->t,       x->classes, class, role, (enum words_by)x->o->by,
                                  x->o->fold, f->a,       f->b};
    return word_list_make(&s, &x->list);
}

static int choose(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    const struct options *o = x->o = f->options;
    if (o->fold && o->by != BY_WORD)
        return kvf_fail(d, KVF_E_ARG, "--fold needs words; add --by word");
    if (o->classes && o->by != BY_CLASS)
        return kvf_fail(d, KVF_E_ARG, "--classes are of use with --by class");
    int err = step_select(o->step, f->T, &x->step, d);
    f->column[ROLE] = -1;
    if (!err && o->by == BY_ROLE)
        err = column_need(f->t, "tokens.role", &f->column[ROLE], d);
    x->log_beta = kvf_find(f->t, "log_beta");
    if (!err && (o->sort == SORT_RETENTION || x->log_beta >= 0)) {
        err = log_beta_need(f->t, &x->log_beta, d);
        if (!err)
            err = column_of_heads(f->t, x->log_beta, KVF_SPACE_KV, d);
    }
    return err;
}

static int prepare(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    int err = read_list(f, d);
    f->items = 0; /* finish reads the heads in their order */
    x->n_heads = f->heads.n;
    x->value = FRAME_NEW(f, double, (size_t)f->T);
    x->word = FRAME_NEW(f, struct word, (size_t)x->list.n_words);
    return err;
}

static int finish(struct frame *f, struct kvf_diag *d)
{
    struct data *x = f->state;
    count_places(x);
    int err = read_heads(f, d);
    if (!err)
        err = choose_rows(x);
    for (int64_t k = 0; !err && k < x->n_rows; k++) {
        const struct word *w = &x->word[k];
        int64_t base = w->places * x->n_heads;
        struct row *r = frame_add_row(f);
        if (!r)
            return KVF_E_NOMEM;
        *r = (struct row){.word = x->list.word[w->id],
                          .count = w->count,
                          .base_count = base,
                          .scored = w->scored,
                          .places = w->places,
                          .total = x->total,
                          .base_total = x->base_total,
                          .share = share(w->count, x->total),
                          .base_share = share(base, x->base_total),
                          .lift = lift_of(x, w),
                          .kept = share(w->count, base),
                          .log_beta = mean_log_beta(w)};
    }
    return err;
}

static int rows(struct frame *f, struct table *out, struct kvf_diag *d)
{
    const struct data *x = f->state;
    const struct options *o = x->o;
    (void)d;
    put_tokens(out, f->a, f->b, f->T);
    table_meta_str(out, "by", by_words[o->by]);
    table_meta_num(out, "step", (double)x->step);
    table_meta_str(out, "match", match_words[o->match]);
    table_meta_str(out, "sort", sort_words[o->sort]);
    table_meta_num(out, "min_count", (double)o->min_count);
    if (o->fold)
        table_meta_str(out, "fold", "lower case, without punctuation around words");
    table_meta_num(out, "heads", x->n_heads);
    table_meta_num(out, "words", (double)x->list.n_words);
    table_meta_num(out, "tokens_in_no_word", (double)x->list.left_out);
    if (x->log_beta >= 0)
        table_meta_num(out, "undefined", (double)x->undefined);
    if (o->by == BY_CLASS)
        classes_note(x->classes, out);
    return KVF_OK;
}

static void close(struct frame *f)
{
    struct data *x = f->state;
    word_list_free(&x->list);
    classes_close(x->classes);
}

#define AT(member) offsetof(struct row, member)
static const struct record_member members[] = {
    {"word", "", TABLE_STR, AT(word)},
    {"count", "", TABLE_INT, AT(count)},
    {"share", "", TABLE_REAL, AT(share)},
    {"base_count", "", TABLE_INT, AT(base_count)},
    {"base_share", "", TABLE_REAL, AT(base_share)},
    {"lift", "", TABLE_REAL, AT(lift)},
    {"kept", "", TABLE_REAL, AT(kept)},
    {"log_beta", "nat", TABLE_REAL, AT(log_beta)},
    {"scored", "entries", TABLE_INT, AT(scored)},
    {"places", "", TABLE_INT, AT(places)},
    {"total", "", TABLE_INT, AT(total)},
    {"base_total", "", TABLE_INT, AT(base_total)},
};

/* ---- for people */

static void describe_row(const struct table *t, int64_t r, struct buf *out)
{
    double lb = table_row_real(t, r, "log_beta");
    buf_printf(out, "  %-20s %8lld %8lld %8.4f %8.3f", table_row_str(t, r, "word"),
               (long long)table_row_int(t, r, "count"),
               (long long)table_row_int(t, r, "base_count"), table_row_real(t, r, "kept"),
               table_row_real(t, r, "lift"));
    if (!isnan(lb))
        buf_printf(out, " %10.4f", lb);
    buf_str(out, "\n");
}

static void describe(const struct table *t, struct buf *out)
{
    enum { SHOWN = 10 };
    int64_t n = table_rows(t);
    bool ends = n > 2 * SHOWN && strcmp(table_meta(t, "sort"), "retention") == 0;
    buf_printf(out, "%lld rows by %s, over %s heads, sorted by %s\n", (long long)n,
               table_meta(t, "by"), table_meta(t, "heads"), table_meta(t, "sort"));
    if (n)
        buf_printf(out, "  %-20s %8s %8s %8s %8s %10s\n", "", "count", "of", "kept", "lift",
                   "log beta");
    for (int64_t r = 0; r < n && r < SHOWN; r++)
        describe_row(t, r, out);
    if (ends)
        buf_str(out, "  ...\n");
    for (int64_t r = ends ? n - SHOWN : n; r < n; r++)
        describe_row(t, r, out);
}

const struct analyzer an_words = {
    .name = "words",
    .summary = "which words are cached more often than chance",
    .example = "kvfate tokens --as words run.kvf -o words.tsv",
    OPTIONS({OPT_WORD, 0, "by", offsetof(struct options, by), "UNIT", "unit of a row", "word",
             .words = by_words},
            {OPT_STR, 0, "step", offsetof(struct options, step), "N",
             "entries that query N sees, or entries cached at the end", "end"},
            {OPT_WORD, 0, "sort", offsetof(struct options, sort), "KEY",
             "the largest first, or by word", "count", .words = sort_words},
            {OPT_WORD, 0, "match", offsetof(struct options, match), "HOW",
             "a place counts as cached if this fraction of its tokens is cached", "any",
             .words = match_words},
            {OPT_INT, 0, "min-count", offsetof(struct options, min_count), "N",
             "only words with at least N places in the text", "1", .min = 1, .max = INT32_MAX},
            {OPT_FLAG, 0, "fold", offsetof(struct options, fold), NULL,
             "words in lower case and without punctuation around them"},
            CLASSES_OPTION(struct options, classes)),
    COLUMNS([EVICT] = COLUMN_EVICT_STEP,
            [ROLE] = {"tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_ASKED, "--by role"},
            {"log_beta", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED,
             "--sort retention; else log_beta is blank without it"}),
    HEADS(.space = KVF_SPACE_KV, .state_size = sizeof(struct data), FRAME_RECORDS(struct row),
          .choose = choose, .prepare = prepare, .finish = finish, .rows = rows, .close = close),
    .describe = describe,
    POOL(KEYS("word"), {"kept", "count", "base_count"}, {"log_beta"}),
};
