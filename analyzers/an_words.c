/* an_words.c - the words that caches hold beside those of the text.  Over the heads chosen and
 * the places where a word stands: base_count counts all of them, count those whose entries the
 * head holds at a step or at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>

#include "analyzers/common.h"
#include "analyzers/word_list.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/stats.h"

enum { OPT_BY, OPT_STEP, OPT_SORT, OPT_MATCH, OPT_MIN_COUNT, OPT_FOLD, OPT_CLASSES };
static const struct analyzer_option options[] = {
    {"by", "UNIT", "word", "word, token, class or role"},
    {"step", "N", "end", "what query N sees (default: what is left at the end)"},
    {"sort", "KEY", "count", "count, kept, lift or retention, the largest first; word"},
    {"match", "HOW", "any", "a place is held when any of its tokens is, or all"},
    {"min-count", "N", "1", "only words that stand at N places of the text or more"},
    {"fold", NULL, NULL, "words in lower case and without punctuation around them"},
    CLASSES_OPTION,
    {NULL, NULL, NULL, NULL},
};

extern const struct analyzer an_words;

static const char *const by_names[N_WORDS_BY] = {"word", "token", "class", "role"};
enum { SORT_COUNT, SORT_KEPT, SORT_LIFT, SORT_RETENTION, SORT_WORD, N_SORTS };
static const char *const sort_names[N_SORTS] = {"count", "kept", "lift", "retention", "word"};

struct word {
    int64_t places, count, scored;
    struct sum log_beta;
    int64_t id;
    double key; /* of the order: rising */
};

struct data {
    struct kvf_trace *t;
    struct head_list heads;
    struct classes *classes;
    struct word_list list;
    struct word *word; /* [list.n_words]; those of the table are the first n_rows */
    int64_t a, b, step, min_count, n_rows;
    int64_t total, base_total, undefined;
    int by, sort, match;
    int evict, role, log_beta; /* columns, or -1 */
    bool fold;
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
    return x->match ? n == p->end - p->first : n > 0;
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

static int read_heads(struct data *x, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(x->t);
    double *v = MEM_NEW(double, T);
    int err = v ? KVF_OK : KVF_E_NOMEM;
    for (int h = 0; !err && T && h < x->heads.n; h++) {
        const struct head *head = &x->heads.head[h];
        err = read_evict(x->t, x->evict, head, T, v, d);
        if (!err)
            count_head(x, v);
        if (err || x->log_beta < 0)
            continue;
        err = kvf_read_f64(x->t, x->log_beta, head->layer, head->index, 0, T, v, d);
        if (!err)
            score_head(x, v);
    }
    mem_free(v);
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
    return share(w->count, x->total) / share(w->places * x->heads.n, x->base_total);
}

static double key_of(const struct data *x, const struct word *w)
{
    double lb = mean_log_beta(w);
    switch (x->sort) {
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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->text, ((const struct named *)b)->text);
}

/* Keys that put the words in the order of their bytes. */
static int take_names(struct data *x)
{
    struct named *e = MEM_NEW(struct named, (size_t)x->n_rows);
    if (!e)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < x->n_rows; r++)
        e[r] = (struct named){x->list.word[x->word[r].id], r};
    qsort(e, (size_t)x->n_rows, sizeof *e, by_name);
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
        x->base_total += x->word[w].places * x->heads.n;
        x->word[w].id = w;
    }
    for (int64_t w = 0; w < x->list.n_words; w++)
        if (x->word[w].places >= x->min_count)
            x->word[n++] = x->word[w];
    x->n_rows = n;
    for (int64_t r = 0; r < n; r++)
        x->word[r].key = key_of(x, &x->word[r]);
    if (x->sort == SORT_WORD)
        err = take_names(x);
    qsort(x->word, (size_t)n, sizeof *x->word, by_key);
    return err;
}

/* ---- the table */

static void put_notes(const struct data *x, struct table *out)
{
    put_provenance(out, x->t);
    put_tokens(out, x->a, x->b, kvf_n_steps(x->t));
    table_meta_str(out, "by", by_names[x->by]);
    table_meta_num(out, "step", (double)x->step);
    table_meta_str(out, "match", x->match ? "all" : "any");
    table_meta_str(out, "sort", sort_names[x->sort]);
    table_meta_num(out, "min_count", (double)x->min_count);
    if (x->fold)
        table_meta_str(out, "fold", "lower case, without punctuation around words");
    table_meta_num(out, "heads", x->heads.n);
    table_meta_num(out, "words", (double)x->list.n_words);
    table_meta_num(out, "tokens_in_no_word", (double)x->list.left_out);
    if (x->log_beta >= 0)
        table_meta_num(out, "undefined", (double)x->undefined);
    if (x->by == BY_CLASS)
        classes_note(x->classes, out);
}

enum { COUNT, PLACES, BASE, SCORED, N_COUNTS };
enum { SHARE, BASE_SHARE, LIFT, KEPT, LOG_BETA, N_REALS };

static int build(const struct data *x, struct table *out)
{
    size_t n = (size_t)x->n_rows;
    const char **text = MEM_NEW(const char *, n);
    int64_t *count = MEM_NEW(int64_t, N_COUNTS * n);
    double *real = MEM_NEW(double, (N_REALS * n));
    int err = text && count && real ? KVF_OK : KVF_E_NOMEM;
    for (size_t r = 0; !err && r < n; r++) {
        const struct word *w = &x->word[r];
        int64_t base = w->places * x->heads.n;
        text[r] = x->list.word[w->id];
        count[COUNT * n + r] = w->count;
        count[PLACES * n + r] = w->places;
        count[BASE * n + r] = base;
        count[SCORED * n + r] = w->scored;
        real[SHARE * n + r] = share(w->count, x->total);
        real[BASE_SHARE * n + r] = share(base, x->base_total);
        real[LIFT * n + r] = lift_of(x, w);
        real[KEPT * n + r] = share(w->count, base);
        real[LOG_BETA * n + r] = mean_log_beta(w);
    }
    if (!err) {
        int64_t one = n > 0;
        put_notes(x, out);
        table_dense_str(out, "word", "", text);
        table_dense_int(out, "count", "", count + COUNT * n);
        table_dense_real(out, "share", "", real + SHARE * n);
        table_dense_int(out, "base_count", "", count + BASE * n);
        table_dense_real(out, "base_share", "", real + BASE_SHARE * n);
        table_dense_real(out, "lift", "", real + LIFT * n);
        table_dense_real(out, "kept", "", real + KEPT * n);
        table_dense_real(out, "log_beta", "nat", real + LOG_BETA * n);
        table_dense_int(out, "scored", "entries", count + SCORED * n);
        table_dense_int(out, "places", "", count + PLACES * n);
        table_cycle_int(out, "total", "", &x->total, one);
        table_cycle_int(out, "base_total", "", &x->base_total, one);
        err = table_err(out);
    }
    mem_free((void *)text);
    mem_free(count);
    mem_free(real);
    return err;
}

/* ---- what is asked for */

static int choose(const struct analyzer_args *args, int option, const char *const *names, int n,
                  int *ret, struct kvf_diag *d)
{
    const char *text = option_text(&an_words, args, option);
    int k = 0;
    while (k < n && strcmp(text, names[k]) != 0)
        k++;
    if (k == n)
        return kvf_fail(d, KVF_E_ARG, "--%s: no '%s'; see -h", options[option].name, text);
    *ret = k;
    return KVF_OK;
}

static int choose_options(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    static const char *const match_names[] = {"any", "all"};
    const char *least = option_text(&an_words, args, OPT_MIN_COUNT);
    int err = choose(args, OPT_BY, by_names, N_WORDS_BY, &x->by, d);
    if (!err)
        err = choose(args, OPT_SORT, sort_names, N_SORTS, &x->sort, d);
    if (!err)
        err = choose(args, OPT_MATCH, match_names, 2, &x->match, d);
    if (!err && (!opt_int(least, &x->min_count) || x->min_count < 1))
        err = kvf_fail(d, KVF_E_ARG, "--min-count needs a whole number from 1, not '%s'", least);
    x->fold = option_text(&an_words, args, OPT_FOLD) != NULL;
    if (!err && x->fold && x->by != BY_WORD)
        err = kvf_fail(d, KVF_E_ARG, "--fold is for words: say --by word");
    if (!err && option_text(&an_words, args, OPT_CLASSES) && x->by != BY_CLASS)
        err = kvf_fail(d, KVF_E_ARG, "--classes are of use with --by class");
    return err;
}

static int prepare(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    int err = choose_options(x, args, d);
    if (!err)
        err = step_select(option_text(&an_words, args, OPT_STEP), kvf_n_steps(x->t), &x->step, d);
    if (!err)
        err = tokens_select(x->t, args, &x->a, &x->b, d);
    if (!err)
        err = column_need(x->t, "evict_step", "evict", &x->evict, d);
    if (!err)
        err = column_need(x->t, "tokens.role", "lean", &x->role, d);
    x->log_beta = kvf_find(x->t, "log_beta");
    if (!err && (x->sort == SORT_RETENTION || x->log_beta >= 0)) {
        err = log_beta_need(x->t, &x->log_beta, d);
        if (!err)
            err = column_of_heads(x->t, x->log_beta, KVF_SPACE_KV, d);
    }
    return err ? err : heads_select(x->t, KVF_SPACE_KV, args->heads, &x->heads, d);
}

static int read_list(struct data *x, const struct analyzer_args *args, struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(x->t);
    uint8_t *class = MEM_NEW(uint8_t, T);
    double *role = MEM_NEW(double, T);
    const char *own = option_text(&an_words, args, OPT_CLASSES);
    int err = class && role ? classes_open(own, &x->classes, d) : KVF_E_NOMEM;
    if (!err)
        err = classes_of_trace(x->classes, x->t, class, d);
    if (!err && T)
        err = kvf_read_f64(x->t, x->role, 0, 0, 0, T, role, d);
    const struct word_source s = {x->t,    x->classes, class, role, (enum words_by)x->by,
                                  x->fold, x->a,       x->b};
    if (!err)
        err = word_list_make(&s, &x->list);
    if (!err && !(x->word = MEM_NEW(struct word, (size_t)x->list.n_words)))
        err = KVF_E_NOMEM;
    mem_free(class);
    mem_free(role);
    return err;
}

static int run(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d)
{
    struct data x = {.t = traces[0]};
    struct table *out = NULL;
    (void)n_traces;
    int err = prepare(&x, args, d);
    if (err)
        return err;
    err = read_list(&x, args, d);
    if (!err) {
        count_places(&x);
        err = read_heads(&x, d);
    }
    if (!err)
        err = choose_rows(&x);
    if (!err)
        err = (out = table_create("words", x.n_rows)) ? build(&x, out) : KVF_E_NOMEM;
    mem_free(x.word);
    word_list_free(&x.list);
    classes_close(x.classes);
    heads_free(&x.heads);
    if (err)
        table_destroy(out);
    else
        *ret_table = out;
    return err;
}

/* ---- for people */

static void describe_row(const struct table *t, int64_t r, struct buf *out)
{
    double lb = table_real(t, table_find(t, "log_beta"), r);
    buf_printf(out, "  %-20s %8lld %8lld %8.4f %8.3f", table_str(t, table_find(t, "word"), r),
               (long long)table_int(t, table_find(t, "count"), r),
               (long long)table_int(t, table_find(t, "base_count"), r),
               table_real(t, table_find(t, "kept"), r), table_real(t, table_find(t, "lift"), r));
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

static const char *const keys[] = {"word", NULL};
static const struct analyzer_measure measures[] = {
    {"kept", "count", "base_count"},
    {"log_beta", NULL, NULL},
    {NULL, NULL, NULL},
};
static const struct analyzer_pool pool = {keys, measures};

const struct analyzer an_words = {
    .name = "words",
    .summary = "words that caches hold, against those of the text",
    .options = options,
    .max_traces = 1,
    .run = run,
    .describe = describe,
    .pool = &pool,
};
