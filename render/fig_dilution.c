/* fig_dilution.c - draws attention dilution (DBTrimKV, section 3.1): the attention to entries
 * outside the useful set U, dilution under retention, and the lower bound from near-ties.
 *
 * The x axis is the step, or the budget or the length of several traces.  Traces of one method and
 * budget are documents if their lengths differ by at most a tenth.  A point is their mean, with a
 * 95 % CI over four or more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "render/caption.h"
#include "render/figures.h"
#include "render/plot.h"

enum { OVER_STEPS, OVER_BUDGET, OVER_LENGTH };

/* The x axes, in the order of OVER_STEPS and the other constants. */
static const struct {
    const char *column, *label;
} across[] = {{"step", "query step t (context length)"},
              {"budget", "budget (entries)"},
              {"T", "length T (tokens)"}};

struct dilution_style {
    int by;           /* enum plot_by */
    int x;            /* OVER_ */
    int y;            /* Y_ */
    const char *show; /* columns joined by + */
};
enum { Y_AUTO, Y_LINEAR, Y_LOG };

enum { QUANTITIES = 8, RESAMPLES = 2000, RUNS = 256, SET = 40 };
enum { RETAINED = 1, BOUND = 3, FIRST_OF_U = 4, RHO_U = 5, RHO_D = 6 };

/* Columns that can be drawn, with their labels; %s is the useful set.  The first FIRST_OF_U are
 * fractions of attention outside it. */
static const char *const known[QUANTITIES][2] = {
    {"dilution", "all entries, also evicted ones"},
    {"dilution_retained", "cached entries only"},
    {"dilution_oracle", "best set of as many entries"},
    {"bound", "lower bound from near-ties"},
    {"useful_mass", "attention on %s"},
    {"rho_u", "kept attention on %s"},
    {"rho_d", "kept attention on other tokens"},
    {"bound_delta", "gap of the bound"},
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool heads;
    int x, trace, method, budget, n; /* budget, method: of several traces */
    int col[QUANTITIES], low[QUANTITIES], high[QUANTITIES], what[QUANTITIES];
    bool against_budget, steps;
    bool gates;         /* the gates give the retention weights */
    bool rest;          /* draw 1 minus the values, the attention to U */
    char set[SET];      /* the useful set in words */
    double least, most; /* budgets */
};

/* Returns true if some row has a value of the column.  Quantities that the run did not record have
 * no values and are omitted. */
static bool defined(const struct table *t, int col)
{
    for (int64_t r = 0; col >= 0 && r < table_rows(t); r++)
        if (isfinite(table_real(t, col, r)))
            return true;
    return false;
}

static int add_quantity(struct view *v, const char *name, size_t n, struct kvf_diag *d)
{
    char end[48];
    for (int i = 0; i < QUANTITIES; i++) {
        if (strlen(known[i][0]) != n || strncmp(known[i][0], name, n) != 0)
            continue;
        v->what[v->n] = i;
        v->col[v->n] = table_find(v->t, known[i][0]);
        snprintf(end, sizeof end, i ? "%s_low" : "low", known[i][0]);
        v->low[v->n] = table_find(v->t, end);
        snprintf(end, sizeof end, i ? "%s_high" : "high", known[i][0]);
        v->high[v->n] = table_find(v->t, end);
        if (v->n + 1 < QUANTITIES && defined(v->t, v->col[v->n]))
            v->n++;
        return KVF_OK;
    }
    return kvf_fail(d, KVF_E_ARG,
                    "--style: show takes columns of the table joined by +, such as "
                    "dilution+bound, not '%.*s'",
                    (int)n, name);
}

/* Writes the name of quantity `what`: of a line, or of a panel against budget or length. */
static void name_quantity(const struct view *v, int what, char out[PLOT_NAME])
{
    if (what == RETAINED && v->gates)
        snprintf(out, PLOT_NAME, "entries weighted by the gates");
    else if (what == BOUND && v->rest)
        snprintf(out, PLOT_NAME, "upper bound from near-ties");
    else
        snprintf(out, PLOT_NAME, known[what][1], v->set);
}

static void style_of(struct plot *p, const char *line, int what)
{
    static const int place[QUANTITIES] = {0, 1, 2, 6, 3, 0, 1, 2};
    static const double dash[QUANTITIES] = {[2] = 1.6, [3] = .5};
    struct plot_line *l = plot_line(p, line);
    if (!l)
        return;
    l->look = plot_look(place[what]);
    l->look.width = what == 0 ? .5 : .25; /* two lines coincide before the first eviction */
    l->look.dash = dash[what];
}

/* Adds a row of a plot over steps: a line per quantity, a panel per head or trace. */
static void add_steps(struct plot *p, const struct view *v, int64_t r)
{
    int names = v->heads ? v->k.head : v->trace;
    const char *panel = names >= 0 ? table_str(v->t, names, r) : "";
    for (int q = 0; q < v->n; q++) {
        char line[PLOT_NAME];
        int n = p->n_lines;
        name_quantity(v, v->what[q], line);
        double y = table_real(v->t, v->col[q], r), low = value_at(v->t, v->low[q], r);
        double high = value_at(v->t, v->high[q], r);
        if (v->rest)
            plot_add(p, panel, line, table_real(v->t, v->x, r), 1 - y, 1 - high, 1 - low);
        else
            plot_add(p, panel, line, table_real(v->t, v->x, r), y, low, high);
        plot_documents(p, value_at(v->t, v->k.documents, r));
        if (p->n_lines > n)
            style_of(p, line, v->what[q]);
    }
}

/* ---- against budget or length */

/* A point: rows of one method, budget and head, with lengths that differ by at most a tenth. */
struct cell {
    int64_t row, n; /* the first row, and the number of rows */
    double x;       /* mean of their x values */
};

static bool same_cell(const struct view *v, int64_t a, int64_t b)
{
    int length = table_find(v->t, across[OVER_LENGTH].column);
    double p = value_at(v->t, length, a), q = value_at(v->t, length, b);
    double one = value_at(v->t, v->budget, a), other = value_at(v->t, v->budget, b);
    return strcmp(table_str(v->t, v->method, a), table_str(v->t, v->method, b)) == 0
           && strcmp(table_str(v->t, v->k.head, a), table_str(v->t, v->k.head, b)) == 0
           && (one == other || (isnan(one) && isnan(other)))
           && (isnan(p) || isnan(q) || fabs(p - q) <= 0.1 * fmax(p, q));
}

static int by_x(const void *a, const void *b)
{
    const struct cell *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? -1 : 1;
    return (p->row > q->row) - (p->row < q->row);
}

/* Writes the name of the line of a row: the method, and its budget unless x is the budget. */
static void name_run(const struct view *v, int64_t r, char out[PLOT_NAME])
{
    double budget = value_at(v->t, v->budget, r);
    const char *method = table_str(v->t, v->method, r);
    if (v->against_budget || !(budget > 0))
        snprintf(out, PLOT_NAME, "%.60s", method);
    else
        snprintf(out, PLOT_NAME, "%.60s, budget %.0f", method, budget);
}

/* Adds the point of a cell to the panel of each quantity.  A method without a budget is a
 * horizontal line across all budgets.  row: the m rows that are drawn; y: [m] scratch. */
static void add_cell(struct plot *p, const struct view *v, const struct cell *k, const int64_t *row,
                     int64_t m, double *y)
{
    char line[PLOT_NAME], panel[PLOT_NAME] = "";
    bool level = v->against_budget && !(value_at(v->t, v->budget, k->row) > 0);
    const double ends[] = {v->least, v->most};
    name_run(v, k->row, line);
    for (int q = 0; q < v->n; q++) {
        double low = NAN, high = NAN;
        size_t n = 0;
        for (int64_t i = 0; i < m; i++) {
            double value = table_real(v->t, v->col[q], row[i]);
            if (isfinite(value) && same_cell(v, k->row, row[i]))
                y[n++] = v->rest ? 1 - value : value;
        }
        double mean = stats_mean(y, n);
        int err = stats_mean_interval(y, n, RESAMPLES, 0, &low, &high);
        p->err = p->err ? p->err : err;
        if (v->n > 1) /* a single quantity is on the axis */
            name_quantity(v, v->what[q], panel);
        for (int end = 0; end <= level; end++)
            plot_add(p, panel, line, level ? ends[end] : k->x, mean, low, high);
    }
    struct plot_line *l = plot_line(p, line);
    if (!l)
        return;
    l->method = true;
    l->look.points = !level;
    l->look.bars = !level;
}

/* Finds the cells of the m rows.  cell: [m].  Returns their number. */
static int64_t find_cells(const struct view *v, const int64_t *row, int64_t m, struct cell *cell)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m; i++) {
        int64_t k = 0;
        while (k < n && !same_cell(v, cell[k].row, row[i]))
            k++;
        if (k == n)
            cell[n++] = (struct cell){row[i], 0, 0};
        cell[k].x += table_real(v->t, v->x, row[i]);
        cell[k].n++;
    }
    for (int64_t k = 0; k < n; k++)
        cell[k].x /= (double)cell[k].n;
    qsort(cell, (size_t)n, sizeof *cell, by_x);
    return n;
}

/* Returns the number of lines with intervals at both ends.  Sets *ret_apart to the number of them
 * with intervals that do not overlap. */
static int compare_ends(const struct plot *p, int *ret_apart)
{
    int n = 0;
    *ret_apart = 0;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        int last = l->n - 1;
        if (last < 1 || !l->low || !isfinite(l->low[0]) || !isfinite(l->low[last]))
            continue;
        n++;
        *ret_apart += l->low[0] > l->high[last] || l->low[last] > l->high[0];
    }
    return n;
}

/* Writes the range of lengths of the traces, unless they are equal or on the axis. */
static void write_lengths(const struct view *v, char out[64])
{
    double least = INFINITY, most = 0;
    int length = table_find(v->t, across[OVER_LENGTH].column);
    for (int64_t r = 0; length >= 0 && r < table_rows(v->t); r++) {
        least = fmin(least, table_real(v->t, length, r));
        most = fmax(most, table_real(v->t, length, r));
    }
    out[0] = 0;
    if (v->against_budget && least < most)
        snprintf(out, 64, "; texts of %.0f to %.0f tokens", least, most);
}

/* Writes the number of runs of a point, and whether the lines show a trend. */
static void count_runs(const struct plot *p, const struct view *v, int64_t least, int64_t most,
                       char count[RUNS])
{
    int apart, lines = compare_ends(p, &apart);
    char range[48] = "", lengths[64];
    write_lengths(v, lengths);
    const char *bars = most >= STATS_LEAST ? "; bars: 95 % CI of the mean" : "", *trend = "";
    if (most > least)
        snprintf(range, sizeof range, "%lld to ", (long long)least);
    if (lines && !v->against_budget && apart == lines)
        trend = "; intervals of the shortest and longest texts do not overlap";
    else if (lines && !v->against_budget)
        trend = apart ? "; intervals of the shortest and longest texts overlap in some lines"
                      : "; intervals of the shortest and longest texts overlap: no trend is proven";
    if (most)
        snprintf(count, RUNS, "; n = %s%lld run%s a point%s%s%s", range, (long long)most,
                 most > 1 ? "s" : "", lengths, bars, trend);
}

/* Draws means over documents against budget or length: a panel per quantity, a line per method.
 * Adds the number of runs of a point to the note. */
static void add_runs(struct plot *p, const struct view *v, char count[RUNS])
{
    size_t rows = (size_t)table_rows(v->t) + 1;
    int64_t *row = MEM_NEW(int64_t, rows), m = 0, least = INT64_MAX, most = 0;
    struct cell *cell = MEM_NEW(struct cell, rows);
    double *y = MEM_NEW(double, rows);
    int step = table_find(v->t, "step");
    if (!row || !cell || !y)
        p->err = KVF_E_NOMEM;
    for (int64_t r = 0; !p->err && r < table_rows(v->t); r++)
        if ((v->heads ? row_head(&v->k, r) : row_pooled(&v->k, r)) && table_real(v->t, step, r) < 0)
            row[m++] = r;
    int64_t n = p->err ? 0 : find_cells(v, row, m, cell);
    double first = v->least, last = v->most;
    if (!v->against_budget && n) {
        first = cell[0].x;
        last = cell[n - 1].x;
    }
    if (first > 0 && last > first && isfinite(last)) { /* space for the marks at both ends */
        p->x0 = first / 1.1;
        p->x1 = last * 1.1;
    }
    for (int64_t k = 0; k < n; k++) {
        add_cell(p, v, &cell[k], row, m, y);
        least = cell[k].n < least ? cell[k].n : least;
        most = cell[k].n > most ? cell[k].n : most;
    }
    count_runs(p, v, least, most, count);
    double tick = 0; /* the last one */
    for (int64_t k = 0; k < n; k++)
        if (v->against_budget) {
            plot_tick(p, table_real(v->t, v->budget, cell[k].row));
        } else if (cell[k].x > 1.1 * tick) {
            tick = round(cell[k].x);
            plot_tick(p, tick);
        }
    plot_dodge(p, 0.018);
    mem_free_all(row, cell, y);
}

static void budgets_of(struct view *v)
{
    v->least = INFINITY;
    for (int64_t r = 0; v->budget >= 0 && r < table_rows(v->t); r++) {
        double b = table_real(v->t, v->budget, r);
        v->least = b > 0 ? fmin(v->least, b) : v->least;
        v->most = fmax(v->most, b);
    }
    if (v->least == v->most) { /* give a horizontal line some length */
        v->least /= 2;
        v->most *= 2;
    }
}

/* Returns true if the table has rows of --mean, whose step is -1. */
static bool has_means(const struct table *t)
{
    int step = table_find(t, "step");
    bool found = false;
    for (int64_t r = 0; !found && r < table_rows(t); r++)
        found = table_real(t, step, r) < 0;
    return found;
}

/* Returns true if the table has rows of --mean and no others. */
static bool has_only_means(const struct table *t)
{
    int step = table_find(t, "step");
    bool others = false;
    for (int64_t r = 0; !others && r < table_rows(t); r++)
        others = table_real(t, step, r) >= 0;
    return !others && has_means(t);
}

static int open_view(struct view *v, const struct table *t, const struct dilution_style *o,
                     struct kvf_diag *d)
{
    *v = (struct view){.t = t,
                       .k = plot_rows_of(t),
                       .heads = o->by == BY_HEAD,
                       .trace = table_find(t, "trace"),
                       .method = table_find(t, "method"),
                       .budget = table_find(t, "budget"),
                       .against_budget = o->x == OVER_BUDGET,
                       .steps = o->x == OVER_STEPS};
    v->x = table_find(t, across[o->x].column);
    int err = KVF_OK;
    budgets_of(v);
    for (const char *s = o->show; !err && *s; s += strcspn(s, "+"), s += *s == '+')
        err = add_quantity(v, s, strcspn(s, "+"), d);
    if (!err && v->steps && has_only_means(t))
        err = kvf_fail(d, KVF_E_ARG,
                       "the table has means over the steps (--mean); draw it with --figure map, or "
                       "of several traces with --style x=budget or x=length");
    if (!err && !v->steps && (v->x < 0 || v->method < 0 || !has_means(t)))
        err = kvf_fail(d, KVF_E_ARG,
                       "--style: x=%s needs the table of several traces, made with "
                       "--mean",
                       v->against_budget ? "budget" : "length");
    return err;
}

/* Starts the y axis at 0 or ends it at `top`, 1 or more, if values are near that end. */
static void limit_fractions(struct plot *p, double top)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++) {
            lo = fmin(lo, p->series[i].data.y[k]);
            hi = fmax(hi, p->series[i].data.y[k]);
        }
    p->y0 = lo < .35 && lo >= 0 ? 0 : NAN;
    p->y1 = hi > .8 && hi <= 1 ? top : NAN;
}

/* Decides whether to draw the attention to U.  It does so for a logarithmic axis, or if three
 * quarters of the dilution values exceed 0.9 and would coincide at the edge. */
static int choose_rest(struct view *v, int y, struct kvf_diag *d)
{
    int64_t above = 0, of = 0;
    int col = table_find(v->t, "dilution");
    bool can = true;
    for (int q = 0; q < v->n; q++)
        can &= v->what[q] < FIRST_OF_U;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        double share = table_real(v->t, col, r);
        of += isfinite(share);
        above += share > 0.9;
    }
    v->rest = can && (y == Y_LOG || (y == Y_AUTO && of && 4 * above > 3 * of));
    return can || y != Y_LOG ? KVF_OK
                             : kvf_fail(d, KVF_E_ARG,
                                        "--style: y=log draws the attention on U, only for "
                                        "dilution, dilution_retained, dilution_oracle and bound");
}

/* Returns true if a step is between the first and the last point. */
static bool seen_later(const struct plot *p, double step)
{
    bool before = false, after = false;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++) {
            before |= p->series[i].data.x[k] < step;
            after |= p->series[i].data.x[k] > step;
        }
    return before && after;
}

/* Sets the words for the useful set. */
static void name_set(struct view *v)
{
    const char *useful = table_meta(v->t, "useful");
    if (!useful)
        snprintf(v->set, SET, "U");
    else if (strncmp(useful, "span:", 5) == 0)
        snprintf(v->set, SET, "the %.24s", useful + 5);
    else if (strcmp(useful, "span") == 0)
        snprintf(v->set, SET, "the marked span");
    else if (strncmp(useful, "topk:", 5) == 0)
        snprintf(v->set, SET, "the %.8s largest weights", useful + 5);
    else if (strcmp(useful, "plan") == 0)
        snprintf(v->set, SET, "the entries of the plan");
    else
        snprintf(v->set, SET, "U = %.24s", useful);
}

/* Sets the name of the y axis: the quantity, or a word for several kinds. */
static void name_axis(struct plot *p, const struct view *v)
{
    bool outside = true, kept = true;
    for (int q = 0; q < v->n; q++) {
        outside &= v->what[q] < FIRST_OF_U;
        kept &= v->what[q] == RHO_U || v->what[q] == RHO_D;
    }
    if (outside)
        snprintf(p->text, sizeof p->text, "attention %s %s", v->rest ? "on" : "outside", v->set);
    else if (v->n == 1)
        name_quantity(v, v->what[0], p->text);
    else
        snprintf(p->text, sizeof p->text, kept ? "kept fraction" : "fraction");
    p->ylabel = p->text;
}

/* Writes the note, of which `count` is the end. */
static void note(struct plot *p, const struct view *v, const char *count)
{
    const char *which = "";
    double tokens = table_meta_real(v->t, "mean_useful_entries", NAN);
    const char *useful = table_meta(v->t, "useful");
    char size[64] = "", heads[64] = "one head a panel", count_of[HEADS_TEXT];
    if (useful && strncmp(useful, "span", 4) == 0 && tokens > 0)
        snprintf(size, sizeof size, "%s: %.0f tokens; ", v->set, tokens);
    if (!v->steps && v->n == 1 && v->what[0] == RETAINED)
        which = v->gates ? "weighted by the gates; " : "cached entries only; ";
    if (!v->heads)
        snprintf(heads, sizeof heads, "means over %s", plot_heads_text(&v->k, count_of));
    snprintf(p->note, sizeof p->note, "%s%s%s%s%s",
             isnan(p->upright) ? "" : "dashed: end of the prompt; ", size, which, heads, count);
    plot_note_run(p, v->t);
    plot_hide_empty(p);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct view v;
    char count[RUNS] = "";
    const char *weights = table_meta(t, "weights"), *prompt = table_meta(t, "prompt_tokens");
    int step = table_find(t, "step");
    const struct dilution_style *o = s->own;
    int err = open_view(&v, t, o, d);
    if (!err)
        err = choose_rest(&v, o->y, d);
    if (err)
        return err;
    v.gates = weights && strcmp(weights, "beta") == 0;
    name_set(&v);
    name_axis(p, &v);
    p->whole_x = true;
    p->xlabel = across[o->x].label;
    p->log_x = !v.steps;
    p->log_y = o->y == Y_LOG;
    for (int64_t r = 0; r < table_rows(t); r++) {
        bool one = v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r);
        if (one && v.steps && table_real(t, step, r) >= 0)
            add_steps(p, &v, r);
    }
    if (!v.steps)
        add_runs(p, &v, count);
    if (v.rest)
        p->y0 = p->log_y ? NAN : 0;
    else
        limit_fractions(p, v.steps ? 1 : 1.05); /* a level at 1 is not hidden by the frame */
    if (v.steps && prompt && seen_later(p, strtod(prompt, NULL)))
        p->upright = strtod(prompt, NULL) - .5; /* before the first query of the answer */
    note(p, &v, count);
    return KVF_OK;
}

PLOT_FIGURE(
    fig_dilution, .name = "dilution", .caption = caption_dilution, .table = "dilution",
    .summary = "attention past the useful entries: over the steps, or against budget or length",
    .needs = "head:text step dilution",
    STYLE(struct dilution_style,
          WORD_KEY(struct dilution_style, by, "all", "unit of a panel", "all", "head"),
          WORD_KEY(struct dilution_style, x, "step",
                   "horizontal axis; all except step: of several traces", "step", "budget",
                   "length"),
          WORD_KEY(struct dilution_style, y, "auto",
                   "linear: the attention outside U; log: the attention on it; auto: the "
                   "latter on a linear axis if it is small",
                   "auto", "linear", "log"),
          TEXT_KEY(struct dilution_style, show, "A+B", "the columns that are drawn",
                   .standard = "dilution+dilution_retained+dilution_oracle")),
    .side_by_side = true);
