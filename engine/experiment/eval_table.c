/* eval_table.c - makes the table of `kvfate eval`. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "engine/experiment/eval.h"

enum { SEED = 1 }; /* of the bootstrap, so that equal results give equal CI */

enum column {
    NLL,
    NLL_LOW,
    NLL_HIGH,
    KL,
    KL_LOW,
    KL_HIGH,
    AGREE,
    KV_END,
    KV_MEAN,
    KV_PEAK,
    TRIGGERS,
    RIGHT,
    RIGHT_LOW,
    RIGHT_HIGH,
    FLOOR,
    ABOVE,
    BELOW,
    P_FULL,
    KEPT,
    N_COLUMNS
};

static const struct {
    const char *name, *unit;
} column[N_COLUMNS] = {
    {"nll", "nats"},        {"nll_low", "nats"},    {"nll_high", "nats"}, {"kl", "nats"},
    {"kl_low", "nats"},     {"kl_high", "nats"},    {"top1_agree", ""},   {"kv_end", "entries"},
    {"kv_mean", "entries"}, {"kv_peak", "entries"}, {"triggers", ""},     {"right", ""},
    {"right_low", ""},      {"right_high", ""},     {"floor", ""},        {"above", "tasks"},
    {"below", "tasks"},     {"p_full", ""},         {"kept", ""},
};

static double field(const struct eval_result *r, enum column c)
{
    switch (c) {
    case NLL:
        return r->nll;
    case KL:
        return r->kl;
    case AGREE:
        return r->agree;
    case KV_END:
        return r->kv_end;
    case KV_MEAN:
        return r->kv_mean;
    case KV_PEAK:
        return r->kv_peak;
    case TRIGGERS:
        return (double)r->triggers;
    case RIGHT:
        return r->right;
    default:
        return NAN;
    }
}

/* Sets out[0] to the mean of a field over the documents of a cell. For fields with a CI, sets the
 * following two columns to it. */
static int summarise(const struct eval_result *r, int n, int docs, enum column c, double *v,
                     double *out, size_t stride)
{
    for (int i = 0; i < docs; i++)
        v[i] = field(&r[(size_t)i * (size_t)n], c);
    out[0] = stats_mean(v, (size_t)docs);
    if (c == RIGHT)
        stats_wilson(llround(out[0] * docs), docs, &out[stride], &out[2 * stride]);
    if (c != NLL && c != KL)
        return KVF_OK;
    return stats_mean_interval(v, (size_t)docs, EVAL_REPLICATES, SEED, &out[stride],
                               &out[2 * stride]);
}

/* Returns the row of the full cache; -1 if there is none. */
static int row_of_full(const struct eval_cell *cell, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(cell[i].label, "full") == 0)
            return i;
    return -1;
}

/* Counts the tasks that only this row solves and those that only the full cache solves. Computes
 * the two-sided exact p value of this split if both are equally likely (McNemar 1947): 2 P(X <=
 * k), where X is binomial with n and 1/2, and P(X <= k) = I_(1/2)(n - k, k + 1). */
static void compare_right(const struct eval_result *r, int n, int docs, int row, int full,
                          double *out, size_t stride)
{
    int above = 0, below = 0;
    for (int i = 0; i < docs; i++) {
        bool mine = r[(size_t)i * (size_t)n + (size_t)row].right > 0;
        bool its = r[(size_t)i * (size_t)n + (size_t)full].right > 0;
        above += mine && !its;
        below += its && !mine;
    }
    int k = above < below ? above : below, all = above + below;
    out[0] = above;
    out[stride] = below;
    out[2 * stride] = all == 0 ? 1 : fmin(1, 2 * stats_beta_cdf(0.5, all - k, k + 1));
}

/* Returns the mean of final entries / fed tokens over the tasks that a row solves (the token
 * retention ratio of G-KV, figure 6); NaN if it solves none. */
static double kept_of_right(const struct eval_result *r, int n, const int *fed, int docs)
{
    double sum = 0;
    int right = 0;
    for (int i = 0; i < docs; i++, r += n)
        if (r->right > 0) {
            sum += r->kv_end / fed[i];
            right++;
        }
    return right ? sum / right : NAN;
}

/* Adds the metadata entry "ranking". Tasks that the full cache does not solve better than chance
 * cannot rank methods. */
static void add_ranking(struct table *t, const double *right_low, double at_least, int full)
{
    if (full >= 0)
        table_meta_str(t, "ranking",
                       right_low[full] > at_least
                           ? "by tasks that the full cache can do"
                           : "none: the full cache is at the floor of these tasks");
}

static void add_meta(struct table *t, const struct eval *e)
{
    table_meta_str(t, "model", e->engine->config.name);
    table_meta_str(t, "model_hash", e->engine->hash);
    if (!e->answers) {
        table_meta_num(t, "prompt_tokens", e->prompt);
        table_meta_num(t, "score_tokens", e->score);
    }
    if (e->apart)
        table_meta_str(t, "question", "unknown");
    table_meta_str(t, "precision", engine_precision(e->engine));
    table_meta_str(t, "kv_type", kv_type_name(e->kv_type));
    engine_put_scale(e->engine, t);
    table_meta_str(t, "interval",
                   e->answers ? "95 % over tasks: none for fewer than 4, Student's t for 4 to 9, "
                                "bootstrap for more; of right: Wilson"
                              : "95 % over documents: none for fewer than 4, Student's t for 4 to "
                                "9, bootstrap for more");
}

/* Returns the entries of a cell's budget, for a fraction the mean over the texts. */
static double mean_entries(const struct eval_cell *c, const int *prompt, int docs)
{
    double sum = 0;
    if (!c->params.part)
        return c->params.budget;
    for (int i = 0; i < docs; i++)
        sum += budget_entries(c->params.part, prompt[i]);
    return sum / docs;
}

/* Adds "budget", in whole numbers unless there are fractions, and "budget_percent" if there are. */
static int add_budgets(struct table *t, const struct eval_cell *cell, int n, const int *prompt,
                       int docs)
{
    int64_t *number = MEM_NEW(int64_t, (size_t)n);
    double *mean = MEM_NEW(double, (size_t)n), *percent = MEM_NEW(double, (size_t)n);
    bool some = false, all = number && mean && percent;
    for (int i = 0; all && i < n; i++) {
        some |= cell[i].params.part > 0;
        number[i] = cell[i].params.budget;
        mean[i] = mean_entries(&cell[i], prompt, docs);
        percent[i] = cell[i].params.part ? (double)cell[i].params.part * 100 / (double)BUDGET_WHOLE
                                         : NAN;
    }
    if (all && some) {
        table_dense_real(t, "budget", "entries", mean);
        table_dense_real(t, "budget_percent", "%", percent);
    } else if (all) {
        table_dense_int(t, "budget", "entries", number);
    }
    mem_free(number);
    mem_free(mean);
    mem_free(percent);
    return all ? KVF_OK : KVF_E_NOMEM;
}

static int add_names(struct table *t, const struct eval *e, const struct eval_cell *cell, int n,
                     const int *prompt, int docs, const char **label)
{
    for (int i = 0; i < n; i++)
        label[i] = cell[i].label;
    table_dense_str(t, "method", "", label);
    int err = add_budgets(t, cell, n, prompt, docs);
    table_affine(t, "docs", "", docs, 0, 0);
    table_affine(t, "tokens", "", e->tokens, 0, 0);
    return err;
}

/* Sets *ret_least and *ret_most to the lengths of the shortest and the longest prompt. */
static void prompt_range(const int *prompt, int docs, int *ret_least, int *ret_most)
{
    *ret_least = *ret_most = prompt[0];
    for (int i = 0; i < docs; i++) {
        *ret_least = prompt[i] < *ret_least ? prompt[i] : *ret_least;
        *ret_most = prompt[i] > *ret_most ? prompt[i] : *ret_most;
    }
}

/* Returns an option of a cell; NaN if the method does not use it, or if it differs between texts,
 * whose budgets are between those of the shortest and the longest prompt. */
static double setting(const struct eval_cell *cell, const struct method_option *o, int least,
                      int most)
{
    struct eval_cell low = *cell, high = *cell;
    struct kvf_diag unused;
    if (!method_option_counts(o, &cell->row) || eval_cell_resolve(&low, least, &unused) != KVF_OK
        || eval_cell_resolve(&high, most, &unused) != KVF_OK)
        return NAN;
    double v = method_option_value(o, &low.params);
    return v == method_option_value(o, &high.params) ? v : NAN;
}

/* Adds the parameters of each row that have defaults derived from the budget; NaN if the method
 * does not use the parameter. */
static int add_settings(struct table *t, const struct eval_cell *cell, int n, const int *prompt,
                        int docs)
{
    int least, most;
    prompt_range(prompt, docs, &least, &most);
    static const char *const name[] = {"sinks", "recent", "window", "every", "local"};
    double *v = MEM_NEW(double, (size_t)n);
    for (size_t k = 0; v && k < sizeof name / sizeof *name; k++) {
        const struct method_option *o = method_options;
        while (strcmp(o->key, name[k]) != 0)
            o++;
        for (int i = 0; i < n; i++)
            v[i] = setting(&cell[i], o, least, most);
        table_dense_real(t, name[k], "", v);
    }
    mem_free(v);
    return v ? KVF_OK : KVF_E_NOMEM;
}

/* Appends the rows with the fewest and the most entries for each budget with unequal memory. held:
 * [n] entries of each row. */
static void put_difference(struct buf *b, const struct eval_cell *cell, int n, const char *what,
                           const double *held)
{
    for (int i = 0; i < n; i++) {
        int least = i, most = i;
        const struct method_params *p = &cell[i].params;
        const struct budget budget = {p->budget, p->part};
        char text[BUDGET_TEXT];
        bool first = p->budget > 0;
        budget_text(&budget, text);
        for (int k = 0; k < n; k++) {
            if (cell[k].params.budget != p->budget || cell[k].params.part != p->part)
                continue;
            first &= k >= i;
            least = held[k] < held[least] ? k : least;
            most = held[k] > held[most] ? k : most;
        }
        if (!first || held[most] <= (1 + EVAL_EQUAL_MEMORY) * held[least])
            continue;
        buf_str(b, b->len ? "; " : "");
        buf_printf(b, "budget %s: %s %s %.1f, %s %.1f", text, what, cell[least].label, held[least],
                   cell[most].label, held[most]);
    }
}

static int add_memory(struct table *t, const struct eval_cell *cell, int n, const double *out)
{
    struct buf b = {0};
    put_difference(&b, cell, n, "on average", out + (size_t)KV_MEAN * (size_t)n);
    put_difference(&b, cell, n, "at most", out + (size_t)KV_PEAK * (size_t)n);
    int err = b.err;
    if (!err && b.len)
        table_meta_str(t, "unequal_memory", b.data);
    buf_finish(&b);
    return err;
}

struct table *eval_table(const struct eval *e, const struct eval_cell *cell, int n,
                         const struct eval_result *result, const int *fed, const int *prompt,
                         int docs)
{
    struct table *t = table_create("eval", n);
    double *v = MEM_NEW(double, (size_t)docs), *out = MEM_NEW(double, N_COLUMNS *(size_t)n);
    const char **label = MEM_NEW(const char *, (size_t)n);
    int err = KVF_E_NOMEM;
    if (!t || !v || !out || !label)
        goto done;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_COLUMNS; c++) {
            if (c == NLL_LOW || c == NLL_HIGH || c == KL_LOW || c == KL_HIGH || c > RIGHT)
                continue;
            err = summarise(result + i, n, docs, (enum column)c, v, out + (size_t)c * (size_t)n + i,
                            (size_t)n);
            if (err)
                goto done;
        }
    int full = row_of_full(cell, n);
    for (int i = 0; i < n; i++) {
        double *at = out + (size_t)ABOVE * (size_t)n + i;
        out[(size_t)FLOOR * (size_t)n + (size_t)i] = e->floor;
        at[0] = at[n] = at[2 * n] = NAN;
        at[3 * n] = kept_of_right(result + i, n, fed, docs);
        if (e->answers && full >= 0 && full != i)
            compare_right(result, n, docs, i, full, at, (size_t)n);
    }
    add_meta(t, e);
    if (e->answers)
        add_ranking(t, out + (size_t)RIGHT_LOW * (size_t)n, e->floor, full);
    err = add_names(t, e, cell, n, prompt, docs, label);
    for (int c = 0; c < (e->answers ? (int)N_COLUMNS : (int)RIGHT); c++)
        table_dense_real(t, column[c].name, column[c].unit, out + (size_t)c * (size_t)n);
    if (!err)
        err = add_settings(t, cell, n, prompt, docs);
    if (!err)
        err = add_memory(t, cell, n, out);
    if (err)
        goto done;
    for (int i = 0; i < n; i++)
        label[i] = cell[i].gates ? gates_hash(cell[i].gates) : "";
    table_dense_str(t, "gates", "", label);
    err = table_err(t);

done:
    mem_free(v);
    mem_free(out);
    mem_free(label);
    if (!err)
        return t;
    table_destroy(t);
    return NULL;
}
