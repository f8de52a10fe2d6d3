/* fig_dilution.c - draws attention dilution (DBTrimKV, section 3.1): the attention to entries
 * outside the useful set U, dilution under retention, and the lower bound from near-ties.
 *
 * The x axis is the step, or the budget or the length of several traces.  Traces of one method and
 * budget whose lengths differ by at most a tenth are documents: a point is their mean, with a 95 %
 * CI over four or more. */
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

enum { QUANTITIES = 8, RESAMPLES = 2000, RUNS = 96 };

/* Columns that can be drawn, with their labels, also for 1 minus their values. */
static const char *const known[QUANTITIES][3] = {
    {"dilution", "dilution \xce\xb4", "all entries, cached or not"},
    {"dilution_retained", "attention outside U, under retention", "under retention"},
    {"dilution_oracle", "best set of that size", "best set of that size"},
    {"bound", "lower bound from near-ties", "upper bound from near-ties"},
    {"useful_mass", "attention on U"},
    {"rho_u", "retained fraction of U"},
    {"rho_d", "retained fraction of the rest"},
    {"bound_delta", "gap of the bound"},
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool heads;
    int x, trace, method, budget, n; /* budget, method: of several traces */
    int col[QUANTITIES], low[QUANTITIES], high[QUANTITIES], what[QUANTITIES];
    bool against_budget, steps;
    bool rest;          /* draw 1 minus the values, the attention to U, on a logarithmic axis */
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
        const char *line = known[v->what[q]][v->rest ? 2 : 1];
        int n = p->n_lines;
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

/* A point: rows of one method, budget and head whose lengths differ by at most a tenth. */
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
    char line[PLOT_NAME];
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
        for (int end = 0; end <= level; end++)
            plot_add(p, known[v->what[q]][v->rest ? 2 : 1], line, level ? ends[end] : k->x, mean,
                     low, high);
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
    const char *bars = most >= STATS_LEAST ? "; bars: 95 % CI of four runs or more" : "";
    if (most > least)
        snprintf(count, RUNS, "n = %lld to %lld runs a point%s", (long long)least, (long long)most,
                 bars);
    else if (most)
        snprintf(count, RUNS, "n = %lld run%s a point%s", (long long)most, most > 1 ? "s" : "",
                 bars);
    if (v->against_budget)
        for (int64_t k = 0; k < n; k++)
            plot_tick(p, table_real(v->t, v->budget, cell[k].row));
    plot_dodge(p, 0.025);
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

enum { FIRST_OF_U = 4 }; /* the first FIRST_OF_U quantities are fractions outside U */

/* Decides whether to draw the attention to U on a logarithmic axis.  It does so on request, or if
 * three quarters of the dilution values exceed 0.9 and would coincide at the edge. */
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

/* Returns true if a step lies between the first and the last point. */
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

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct view v;
    char count[RUNS] = "";
    const char *useful = table_meta(t, "useful"), *weights = table_meta(t, "weights");
    int step = table_find(t, "step");
    const struct dilution_style *o = s->own;
    int err = open_view(&v, t, o, d);
    if (err)
        return err;
    p->whole_x = true;
    p->xlabel = across[o->x].label;
    err = choose_rest(&v, o->y, d);
    if (err)
        return err;
    bool other = strstr(o->show, "rho") || strstr(o->show, "useful");
    bool span = useful && strncmp(useful, "span", 4) == 0;
    const char *set = span ? "the marked span" : "the useful entries";
    snprintf(p->text, sizeof p->text, "%s%s", v.rest ? "attention on " : "attention outside ", set);
    if (other)
        snprintf(p->text, sizeof p->text, "fraction");
    p->ylabel = p->text;
    p->log_x = !v.steps;
    p->log_y = v.rest;
    for (int64_t r = 0; r < table_rows(t); r++) {
        bool one = v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r);
        if (one && v.steps && table_real(t, step, r) >= 0)
            add_steps(p, &v, r);
    }
    if (!v.steps)
        add_runs(p, &v, count);
    if (v.rest)
        p->y1 = v.steps ? 1 : NAN;
    else
        limit_fractions(p, v.steps ? 1 : 1.05); /* a level at 1 is not hidden by the frame */
    const char *prompt = table_meta(t, "prompt_tokens");
    if (v.steps && prompt && seen_later(p, strtod(prompt, NULL)))
        p->upright = strtod(prompt, NULL);
    useful = useful ? useful : "?";
    useful = span ? "the marked span" : useful;
    bool gates = weights && strcmp(weights, "beta") == 0;
    snprintf(p->note, sizeof p->note, "useful entries U: %.60s; retention: %s; %s%s%s%s", useful,
             gates ? "of the gates" : "1 if cached, else 0",
             isnan(p->upright) ? "" : "dashed: end of the prompt; ",
             v.heads ? "one head a panel" : "means over heads", *count ? "; " : "", count);
    plot_hide_empty(p);
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
                   "log: the attention outside U, on a logarithmic axis; auto if it is small",
                   "auto", "linear", "log"),
          TEXT_KEY(struct dilution_style, show, "A+B", "the columns that are drawn",
                   .standard = "dilution+dilution_retained+dilution_oracle+bound")),
    .side_by_side = true);
