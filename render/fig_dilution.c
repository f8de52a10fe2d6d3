/* fig_dilution.c - draws attention dilution (DBTrimKV, section 3.1): the attention to entries
 * outside the useful set U, dilution under retention, and the lower bound from near-ties.
 *
 * The x axis is the step, or the budget or the length of several traces. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

enum { QUANTITIES = 8 };

/* Columns that can be drawn, with their labels, also for 1 minus their values. */
static const char *const known[QUANTITIES][3] = {
    {"dilution", "dilution \xce\xb4", "weights of the run"},
    {"dilution_retained", "under retention, \xce\xb4\xca\xb3", "under retention"},
    {"dilution_oracle", "best set of that size", "best set of that size"},
    {"bound", "lower bound from near-ties", "lower bound from near-ties"},
    {"useful_mass", "useful mass, 1 \xe2\x88\x92 \xce\xb4"},
    {"rho_u", "retained in U, \xcf\x81(U)"},
    {"rho_d", "retained outside, \xcf\x81(D)"},
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

/* Adds a row of a plot against budget or length: a panel per quantity, a line per method.  A method
 * without a budget is a horizontal line across all budgets. */
static void add_runs(struct plot *p, const struct view *v, int64_t r)
{
    char line[PLOT_NAME];
    double budget = value_at(v->t, v->budget, r), x = table_real(v->t, v->x, r);
    const char *method = table_str(v->t, v->method, r);
    bool level = v->against_budget && !(budget > 0);
    const double ends[] = {v->least, v->most};
    if (v->against_budget || !(budget > 0))
        snprintf(line, sizeof line, "%.60s", method);
    else
        snprintf(line, sizeof line, "%.60s, budget %.0f", method, budget);
    for (int q = 0; q < v->n; q++)
        for (int end = 0; end <= level; end++)
            plot_add(p, known[v->what[q]][1], line, level ? ends[end] : x,
                     table_real(v->t, v->col[q], r), NAN, NAN);
    struct plot_line *l = plot_line(p, line);
    if (!l)
        return;
    l->method = true;
    l->look.points = !level;
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
    if (!err && !v->steps && (v->x < 0 || v->method < 0))
        err = kvf_fail(d, KVF_E_ARG,
                       "--style: x=%s needs the table of several traces, made with "
                       "--mean",
                       v->against_budget ? "budget" : "length");
    return err;
}

/* Starts the y axis at 0 or ends it at 1 if values are near that end. */
static void limit_fractions(struct plot *p)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++) {
            lo = fmin(lo, p->series[i].data.y[k]);
            hi = fmax(hi, p->series[i].data.y[k]);
        }
    p->y0 = lo < .35 && lo >= 0 ? 0 : NAN;
    p->y1 = hi > .8 && hi <= 1 ? 1 : NAN;
}

enum { FIRST_OF_U = 4 }; /* the first FIRST_OF_U quantities are fractions outside U */

/* Decides whether to draw the attention to U on a logarithmic axis.  It does so on request, or if
 * three quarters of the dilution values exceed 0.9 and would coincide at the edge. */
static int choose_rest(struct view *v, int y, struct kvf_diag *d)
{
    int64_t above = 0, of = 0;
    int col = table_find(v->t, "dilution");
    bool can = v->steps;
    for (int q = 0; q < v->n; q++)
        can &= v->what[q] < FIRST_OF_U;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        double share = table_real(v->t, col, r);
        of += isfinite(share);
        above += share > 0.9;
    }
    v->rest = can && (y == Y_LOG || (y == Y_AUTO && of && 4 * above > 3 * of));
    return can || y != Y_LOG
               ? KVF_OK
               : kvf_fail(d, KVF_E_ARG,
                          "--style: y=log draws the attention outside U over the steps, only for "
                          "dilution, dilution_retained, dilution_oracle and bound");
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct view v;
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
    const char *outside = v.rest ? "attention on" : "attention outside";
    snprintf(p->text, sizeof p->text, "%s U = %.60s", other ? "shares;" : outside,
             useful ? useful : "?");
    p->ylabel = p->text;
    p->log_x = !v.steps;
    p->log_y = v.rest;
    for (int64_t r = 0; r < table_rows(t); r++) {
        bool one = v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r);
        if (one && v.steps && table_real(t, step, r) >= 0)
            add_steps(p, &v, r);
        else if (one && !v.steps && table_real(t, step, r) < 0)
            add_runs(p, &v, r);
    }
    if (v.rest)
        p->y1 = 1;
    else
        limit_fractions(p);
    snprintf(p->note, sizeof p->note, "useful entries U: %.60s; retention: %.20s; %s",
             useful ? useful : "?", weights ? weights : "?",
             v.heads ? "one head a panel" : "means over heads");
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
