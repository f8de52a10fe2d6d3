/* caption.c - writes two sentences about a figure from the numbers of its table. */
#include "render/caption.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/axis.h"
#include "render/plot.h"

const char *caption_percent(double fraction, char out[24])
{
    double v = 100 * fraction;
    int digits = fabs(v) >= 9.95 || v == 0 ? 0 : 1;
    if (fabs(v) >= 0.05 || v == 0)
        snprintf(out, 24, "%.*f %%", digits, v);
    else
        snprintf(out, 24, "%.1g %%", v);
    return out;
}

const char *caption_number(double v, char out[24])
{
    if (fabs(v) >= 1000)
        snprintf(out, 24, "%.0f", v);
    else
        snprintf(out, 24, "%.3g", v);
    return out;
}

int caption_runs(const struct table *t, struct caption_run ret[CAPTION_RUNS])
{
    int trace = table_find(t, "trace"), n = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        char cell[24], before[24], key[48];
        const char *name = trace < 0 ? "" : cell_text(t, trace, r, cell);
        if (r && (trace < 0 || strcmp(name, cell_text(t, trace, r - 1, before)) == 0)) {
            ret[n - 1].row1 = r + 1;
            continue;
        }
        if (n == CAPTION_RUNS)
            break;
        snprintf(key, sizeof key, "trace_%.24s", name);
        const char *of = trace >= 0 && table_col_type(t, trace) != TABLE_STR ? table_meta(t, key)
                                                                             : NULL;
        ret[n] = (struct caption_run){r, r + 1, "the run"};
        if (of || *name)
            snprintf(ret[n].name, CELL_TEXT, "%.60s", of ? of : name);
        n++;
    }
    return n;
}

static const char *heads_of(int64_t n, char out[32])
{
    snprintf(out, 32, "%lld head%s", (long long)n, n == 1 ? "" : "s");
    return out;
}

/* Returns the number of different heads of a head-major part of a table. */
static int64_t count_heads(const struct table *t, int64_t row0, int64_t row1)
{
    int head = table_find(t, "head");
    int64_t n = 0;
    for (int64_t r = row0; r < row1; r++)
        n += r == row0 || strcmp(table_str(t, head, r), table_str(t, head, r - 1)) != 0;
    return n;
}

/* ---- fates */

/* Returns the first row of the last step of a run. */
static int64_t last_step(const struct table *t, const struct caption_run *run)
{
    int step = table_find(t, "step");
    int64_t r = run->row1 - 1;
    while (r > run->row0 && table_real(t, step, r - 1) == table_real(t, step, run->row1 - 1))
        r--;
    return r;
}

/* Returns the mean of a column over the drawn tokens at the last step of a run. */
static double last_mean(const struct table *t, const struct caption_run *run, const char *column,
                        const bool *drawn)
{
    int64_t first = last_step(t, run);
    int col = table_find(t, column);
    double sum = 0, n = 0;
    for (int64_t r = first; r < run->row1; r++) {
        double v = table_real(t, col, r);
        if (!drawn[r - first] || isnan(v))
            continue;
        sum += v;
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

/* The drawn token whose cached fractions at the end differ most between runs. */
struct difference {
    int64_t row; /* in the first run; -1: the texts have no common token */
    int run[2];  /* the runs with the highest and the lowest fraction */
    double held[2];
};

static struct difference most_different(const struct table *t, const struct caption_run *run, int n,
                                        const bool *drawn)
{
    int held = table_find(t, "held"), token = table_find(t, "token"), text = table_find(t, "text");
    struct difference best = {.row = -1, .held = {0, 0}};
    int64_t last[CAPTION_RUNS];
    for (int k = 0; k < n; k++)
        last[k] = last_step(t, &run[k]);
    for (int64_t r = last[0]; r < run->row1; r++) {
        struct difference x = {.row = r, .held = {-INFINITY, INFINITY}};
        int seen = 0;
        for (int k = 0; drawn[r - last[0]] && k < n; k++) {
            int64_t row = last[k] + table_int(t, token, r) - table_int(t, token, last[k]);
            if (row < last[k] || row >= run[k].row1
                || strcmp(table_str(t, text, row), table_str(t, text, r)) != 0)
                continue;
            double v = table_real(t, held, row);
            for (int side = 0; side < 2; side++)
                if (side ? v < x.held[side] : v > x.held[side]) {
                    x.held[side] = v;
                    x.run[side] = k;
                }
            seen += !isnan(v);
        }
        if (seen > 1 && x.held[0] - x.held[1] > best.held[0] - best.held[1])
            best = x;
    }
    return best;
}

/* Writes the first and the last step of the ribbons: of each run, if they differ. */
static void put_steps(const struct table *t, const struct caption_run *run, int n, struct buf *out)
{
    int step = table_find(t, "step");
    bool same = true;
    for (int k = 1; k < n; k++)
        same &= table_int(t, step, run[k].row0) == table_int(t, step, run->row0)
                && table_int(t, step, run[k].row1 - 1) == table_int(t, step, run->row1 - 1);
    for (int k = 0; k < (same ? 1 : n); k++)
        buf_printf(out, "%sfrom step %lld at the top to step %lld at the bottom%s%s", k ? "; " : "",
                   (long long)table_int(t, step, run[k].row0),
                   (long long)table_int(t, step, run[k].row1 - 1), same ? "" : " in ",
                   same ? "" : run[k].name);
    buf_str(out, ". ");
}

void caption_fates(const struct table *t, const bool *drawn, struct buf *out)
{
    struct caption_run run[CAPTION_RUNS];
    int n = caption_runs(t, run);
    int64_t heads = table_meta_int(t, "heads", -1);
    const char *head = table_meta(t, "head");
    char a[24], b[24], of[32] = "the heads";
    if (heads >= 0)
        heads_of(heads, of);
    buf_printf(out, "Below each line of the text, %s ",
               n > 1 ? "a ribbon for each run shows" : "a ribbon shows");
    if (heads == 1)
        buf_printf(out, "when %s%.30s caches each token, ", head ? "head " : "a head",
                   head ? head : "");
    else
        buf_printf(out, "the fraction of %s that cache each token, ", of);
    put_steps(t, run, n, out);
    struct difference x = most_different(t, run, n, drawn);
    if (x.row >= 0) {
        buf_printf(out,
                   "The runs differ most about token %lld, \xe2\x80\x9c%.40s\xe2\x80\x9d: at the "
                   "end %s of the heads of %s cache it, and %s of the heads of %s.\n",
                   (long long)table_row_int(t, x.row, "token"), table_row_str(t, x.row, "joined"),
                   caption_percent(x.held[0], a), run[x.run[0]].name, caption_percent(x.held[1], b),
                   run[x.run[1]].name);
        return;
    }
    buf_printf(out, "At the end a head%s caches %s of these tokens on average",
               n > 1 ? " of each run" : "", caption_percent(last_mean(t, run, "held", drawn), a));
    double needed = last_mean(t, run, "needed", drawn);
    if (isnan(needed) || n > 1)
        buf_printf(out, ".\n");
    else
        buf_printf(out, ", and it evicted %s although later queries needed them.\n",
                   caption_percent(needed, b));
}

/* ---- eviction */

/* The cached fraction of each head at the end: the mean, and the heads at both ends. */
struct extremes {
    double sum, low, high;
    int64_t n;
    const char *low_name, *high_name;
};

static void extend(struct extremes *x, double v, const char *name)
{
    if (isnan(v))
        return;
    if (!x->n || v < x->low) {
        x->low = v;
        x->low_name = name;
    }
    if (!x->n || v > x->high) {
        x->high = v;
        x->high_name = name;
    }
    x->sum += v;
    x->n++;
}

/* Writes "X on average, from LOW (L0K1) to HIGH (L5K2)", or "X in every head". */
static void put_extremes(struct buf *out, const struct extremes *x,
                         const char *(*text)(double, char[24]))
{
    char a[24], b[24], c[24];
    if (x->high - x->low <= 1e-9 * fabs(x->high))
        buf_printf(out, "%s in every head", text(x->high, a));
    else
        buf_printf(out, "%s on average, from %s (%.24s) to %s (%.24s)",
                   text(x->sum / (double)x->n, a), text(x->low, b), x->low_name, text(x->high, c),
                   x->high_name);
}

void caption_eviction(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct caption_run run[CAPTION_RUNS];
    int n = caption_runs(t, run), head = table_find(t, "head"), evict = table_find(t, "evict_step");
    int64_t first = -1, heads = count_heads(t, run->row0, run->row1);
    struct extremes x = {.n = 0};
    double cached = 0, tokens = 0;
    char text[32];
    (void)s;
    for (int64_t r = run->row0; r < run->row1; r++) {
        int64_t step = table_int(t, evict, r);
        first = step >= 0 && (first < 0 || step < first) ? step : first;
        cached += step < 0;
        tokens++;
        if (r + 1 < run->row1 && strcmp(table_str(t, head, r + 1), table_str(t, head, r)) == 0)
            continue;
        extend(&x, cached / tokens, table_str(t, head, r));
        cached = tokens = 0;
    }
    buf_printf(
        out,
        "Each map shows which tokens (across) the queries (down) of a KV head still see (blue) "
        "and which it evicted (grey), for %s%s. ",
        heads_of(heads, text), n > 1 ? " of each run" : "");
    if (first < 0) {
        buf_printf(out, "Nothing was evicted.\n");
        return;
    }
    buf_printf(out,
               "The first eviction%s%s is at step %lld, and the cached fraction at the end is ",
               n > 1 ? " of " : "", n > 1 ? run->name : "", (long long)first);
    put_extremes(out, &x, caption_percent);
    buf_printf(out, ".\n");
}

/* ---- survival and hazard */

static bool is_line(const struct plot_rows *k, int64_t r)
{
    return row_pooled(k, r) && row_all_classes(k, r)
           && !strchr(table_str(k->t, k->criterion, r), '-');
}

/* Writes the name of the line of a row: its criterion, and its trace if the table has several. */
static void name_line(const struct plot_rows *k, int64_t r, char out[2 * PLOT_NAME])
{
    char criterion[PLOT_NAME];
    criterion_name(table_str(k->t, k->criterion, r), criterion);
    if (k->trace < 0)
        snprintf(out, 2 * PLOT_NAME, "%s", criterion);
    else
        snprintf(out, 2 * PLOT_NAME, "%s, %.60s", criterion, table_str(k->t, k->trace, r));
}

void caption_survival(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct plot_rows k = plot_rows_of(t);
    int half = table_find(t, "half_life");
    int64_t low = -1, high = -1;
    char a[24], b[24], name[2][2 * PLOT_NAME];
    bool held = false;
    (void)s;
    for (int64_t r = 0; half >= 0 && r < table_rows(t); r++) {
        double v = table_real(t, half, r);
        if (!is_line(&k, r))
            continue;
        held |= row_is(t, k.criterion, r, "held");
        if (!(v > 0))
            continue;
        low = low < 0 || v < table_real(t, half, low) ? r : low;
        high = high < 0 || v > table_real(t, half, high) ? r : high;
    }
    buf_printf(out, "The curves show the fraction of tokens that are still %s at each age. ",
               held ? "in the cache" : "selected by attention");
    if (low < 0) {
        buf_printf(out, "No curve of all heads falls to one half.\n");
        return;
    }
    name_line(&k, low, name[0]);
    name_line(&k, high, name[1]);
    buf_printf(out, "The half-life is %s steps (%s)", caption_number(table_real(t, half, low), a),
               name[0]);
    if (table_real(t, half, high) > table_real(t, half, low))
        buf_printf(out, " to %s steps (%s)", caption_number(table_real(t, half, high), b), name[1]);
    buf_printf(out, ".\n");
}

void caption_hazard(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct plot_rows k = plot_rows_of(t);
    int age = table_find(t, "low"), col = table_find(t, "hazard");
    int64_t first = -1, last = -1;
    char a[24], b[24], name[2 * PLOT_NAME];
    (void)s;
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (!is_line(&k, r) || table_real(t, age, r) < 1 || !(table_real(t, col, r) > 0))
            continue;
        if (first >= 0
            && (!row_is(t, k.criterion, r, table_str(t, k.criterion, first))
                || (k.trace >= 0 && !row_is(t, k.trace, r, table_str(t, k.trace, first)))))
            continue;
        first = first < 0 ? r : first;
        last = r;
    }
    buf_printf(out, "The curves show the risk per step that a token is not used again, by age. ");
    if (first < 0 || first == last) {
        buf_printf(out, "Too few tokens leave use to compare ages.\n");
        return;
    }
    double from = table_real(t, col, first), to = table_real(t, col, last);
    name_line(&k, first, name);
    buf_printf(
        out,
        "The risk of %s %s from %s at age %.0f to %s at age %.0f, so tokens that stay in use "
        "longer are %s likely to leave it.\n",
        name, to < from ? "falls" : "rises", caption_percent(from, a), table_real(t, age, first),
        caption_percent(to, b), table_real(t, age, last), to < from ? "less" : "more");
}

/* ---- retention, heads */

/* Returns the median of n numbers, which it sorts. */
static double median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, order_double);
    return n ? (v[(n - 1) / 2] + v[n / 2]) / 2 : NAN;
}

void caption_retention(const struct table *t, const struct figure_style *s, struct buf *out)
{
    bool gate = strcmp(table_row_str(t, 0, "source"), "gate") == 0;
    int col = table_find(t, gate ? "log_beta" : "last_use_age"), head = table_find(t, "head");
    struct extremes x = {.n = 0};
    double *v = MEM_NEW(double, (size_t)table_rows(t) + 1);
    char text[32];
    int64_t n = 0, heads = count_heads(t, 0, table_rows(t));
    (void)s;
    for (int64_t r = 0; v && r < table_rows(t); r++) {
        double y = table_real(t, col, r);
        if (!isnan(y))
            v[n++] = gate ? half_life(exp(y)) : fmax(y, 0);
        if (r + 1 < table_rows(t) && strcmp(table_str(t, head, r + 1), table_str(t, head, r)) == 0)
            continue;
        extend(&x, median(v, n), table_str(t, head, r));
        n = 0;
    }
    mem_free(v);
    if (gate)
        buf_printf(out,
                   "Each map shows the retention of tokens (across) at later queries (down) by the "
                   "gates of a head, for %s. ",
                   heads_of(heads, text));
    else
        buf_printf(out,
                   "Each map shows tokens (across) until the last query (down) that selects them, "
                   "for %s. ",
                   heads_of(heads, text));
    if (!x.n) {
        buf_printf(out, "No value is defined.\n");
        return;
    }
    buf_printf(out, gate ? "The median half-life of a token in steps is "
                         : "The median age at the last use in steps is ");
    put_extremes(out, &x, caption_number);
    buf_printf(out, ".\n");
}

void caption_heads(const struct table *t, const struct figure_style *s, struct buf *out)
{
    enum { KINDS = 32 };
    int col = table_find(t, "kind"), n = 0, first = 0, second = -1;
    const char *kind[KINDS];
    int64_t count[KINDS] = {0};
    (void)s;
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, col, r);
        int k = 0;
        while (k < n && strcmp(kind[k], name) != 0)
            k++;
        if (k == KINDS)
            continue;
        kind[k] = name;
        n = k == n ? n + 1 : n;
        count[k]++;
    }
    for (int k = 1; k < n; k++)
        first = count[k] > count[first] ? k : first;
    for (int k = 0; k < n; k++)
        if (k != first && (second < 0 || count[k] > count[second]))
            second = k;
    buf_printf(
        out, "Each cell is a head, layers across and heads down, with the colour and letter of its "
             "type. ");
    buf_printf(out, "The most frequent type is %s (%lld of %lld heads)", kind[first],
               (long long)count[first], (long long)table_rows(t));
    if (second >= 0)
        buf_printf(out, ", followed by %s (%lld)", kind[second], (long long)count[second]);
    buf_printf(out, ".\n");
}

/* ---- dilution */

void caption_dilution(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct plot_rows k = plot_rows_of(t);
    struct caption_run run[CAPTION_RUNS];
    int n = caption_runs(t, run), col = table_find(t, "dilution"), step = table_find(t, "step");
    int64_t from = -1, to = -1;
    struct extremes x = {.n = 0};
    char a[24], b[24];
    (void)s;
    for (int i = 0; i < n; i++) {
        double sum = 0, m = 0;
        for (int64_t r = run[i].row0; r < run[i].row1; r++) {
            double v = table_real(t, col, r);
            if (!row_pooled(&k, r) || isnan(v))
                continue;
            sum += v;
            m++;
            from = i == 0 && from < 0 ? r : from;
            to = i == 0 ? r : to;
        }
        extend(&x, m > 0 ? sum / m : NAN, run[i].name);
    }
    buf_printf(out, "Dilution is the fraction of attention that goes to irrelevant entries. ");
    if (!x.n || to < 0) {
        buf_printf(out, "The table has no value of all heads.\n");
    } else if (n > 1) {
        buf_printf(out, "Its mean is lowest in %s (%s) and highest in %s (%s).\n", x.low_name,
                   caption_number(x.low, a), x.high_name, caption_number(x.high, b));
    } else {
        buf_printf(out, "It is %s at step %.0f and %s at step %.0f.\n",
                   caption_number(table_real(t, col, from), a), value_at(t, step, from),
                   caption_number(table_real(t, col, to), b), value_at(t, step, to));
    }
}

/* ---- occupancy, compare */

void caption_occupancy(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct caption_run run[CAPTION_RUNS];
    int n = caption_runs(t, run), step = table_find(t, "step"), class = table_find(t, "class");
    int col = table_find(t, "entries"), head = table_find(t, "head");
    struct extremes x = {.n = 0};
    double last = -INFINITY;
    (void)s;
    for (int64_t r = run->row0; r < run->row1; r++)
        last = fmax(last, table_real(t, step, r));
    for (int64_t r = run->row0; r < run->row1; r++)
        if (table_real(t, step, r) == last
            && (class < 0 || strcmp(table_str(t, class, r), "all") == 0))
            extend(&x, table_real(t, col, r), table_str(t, head, r));
    buf_printf(out, "The colours show how many entries every KV head caches at each step. ");
    if (!x.n) {
        buf_printf(out, "The table has no rows of all classes.\n");
        return;
    }
    buf_printf(out, "At step %.0f the number of cached entries%s%s is ", last, n > 1 ? " of " : "",
               n > 1 ? run->name : "");
    put_extremes(out, &x, caption_number);
    buf_printf(out, ".\n");
}

void caption_compare(const struct table *t, const struct figure_style *s, struct buf *out)
{
    int matched = numeric_column(t, "matched"), far = table_find(t, "distance");
    double sum[2] = {0, 0}, n[2] = {0, 0}, same = 0;
    char a[24], b[24];
    (void)s;
    for (int64_t r = 0; r < table_rows(t); r++) {
        int k = matched >= 0 && table_int(t, matched, r) == 1;
        double v = table_real(t, far, r);
        if (table_row_int(t, r, "a") != table_row_int(t, 0, "a")
            || table_row_int(t, r, "b") != table_row_int(t, 0, "b") || isnan(v))
            continue;
        sum[k] += v;
        n[k]++;
        same += k && table_row_int(t, r, "layer_a") == table_row_int(t, r, "layer_b")
                && table_row_int(t, r, "index_a") == table_row_int(t, r, "index_b");
    }
    buf_printf(out,
               "The matrix shows the distance between each head of run %lld (down) and each "
               "head of run %lld (across), with the best assignment marked. ",
               (long long)table_row_int(t, 0, "a"), (long long)table_row_int(t, 0, "b"));
    buf_printf(out, "%.0f of %.0f heads are matched with the head at their own place", same, n[1]);
    if (n[0] > 0 && n[1] > 0)
        buf_printf(out, ", and the mean distance is %s in matched pairs and %s in all others",
                   caption_number(sum[1] / n[1], a), caption_number(sum[0] / n[0], b));
    buf_printf(out, ".\n");
}
