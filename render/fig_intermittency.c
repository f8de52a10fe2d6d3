/* fig_intermittency.c - draws how attention to tokens stops and returns (G-KV, section 3):
 * fractions of tokens with n or more selections, returns, queries in a gap, and steps before the
 * first exit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/cells.h"
#include "render/figures.h"
#include "render/plot.h"

struct intermittency_style {
    struct choice_style rows; /* the first member, so that its keys keep their offsets */
    const char *quantity;     /* NULL: all, or longest-gap of heads */
};

/* Returns the heading of the panel of a quantity. */
static const char *heading(const char *quantity)
{
    static const char *const name[][2] = {{"selected", "queries that select the token"},
                                          {"returns", "returns"},
                                          {"longest-gap", "longest gap (queries)"},
                                          {"first-exit", "age at the first exit (steps)"}};
    for (int i = 0; i < 4; i++)
        if (strcmp(quantity, name[i][0]) == 0)
            return name[i][1];
    return quantity;
}

/* Writes the heading of a panel: the quantity, after the trace if the lines are not traces. */
static const char *panel_of(const struct row_choice *v, int64_t r, const char *quantity,
                            char out[PLOT_NAME])
{
    bool named = v->k.trace >= 0 && !v->traces;
    snprintf(out, PLOT_NAME, "%.50s%s%.40s", named ? table_str(v->k.t, v->k.trace, r) : "",
             named ? ": " : "", heading(quantity));
    return out;
}

/* Makes a line of one trace cross 1/2 at its median, unless the median is a point of the line.  k:
 * the last point, which is after the median. */
static void pass_median(struct plot *p, int k, double median)
{
    struct chart_line *l = &p->series[p->last].data;
    const struct plot_series *s = &p->series[p->last];
    if (l->low || median == l->x[k - 1] || !(l->y[k - 1] >= .5 && l->y[k] <= .5))
        return;
    plot_add(p, p->panel[s->panel], p->line[s->line].name, l->x[k], l->y[k], NAN, NAN);
    if (p->err)
        return;
    l = &p->series[p->last].data;
    l->x[k] = median;
    l->y[k] = .5;
}

/* Marks the median with a ring on the line of the last added point, once two points enclose it.
 * The x axis is logarithmic. */
static void mark_median(struct plot *p, double median)
{
    int k = p->last < 0 ? 0 : p->series[p->last].data.n - 1;
    const struct chart_line *l = k > 0 ? &p->series[p->last].data : NULL;
    if (!l || !(median >= l->x[k - 1] && median < l->x[k]))
        return;
    pass_median(p, k, median);
    const struct plot_series *s = &p->series[p->last];
    const double *x = s->data.x + k - 1, *y = s->data.y + k - 1;
    double part = log(median / x[0]) / log(x[1] / x[0]), at = y[0] + part * (y[1] - y[0]);
    if (p->log_y)
        at = exp(log(y[0]) + part * (log(y[1]) - log(y[0])));
    if (x[1] == median)
        at = y[1];
    plot_mark(p, p->panel[s->panel], p->line[s->line].name, median, at, false);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    int quantity = table_find(t, "quantity"), above = table_find(t, "above");
    int y = table_find(t, "share"), low = table_find(t, "low"), high = table_find(t, "high");
    int tokens = table_find(t, "tokens"), median = numeric_column(t, "q50");
    const struct intermittency_style *o = s->own;
    int err = choice_open(&v, t, &o->rows, d);
    if (err)
        return err;
    if ((v.traces || v.classes) && !v.criterion) /* panels are quantities, not criteria */
        v.criterion = table_str(t, v.k.criterion, 0);
    char panel[PLOT_NAME];
    double most = 0;
    bool left_out = false;
    const char *only = v.heads && !o->quantity ? "longest-gap" : o->quantity;
    plot_by_steps(p, o->rows.y == CHOICE_LOG,
                  only ? heading(only) : "n (queries, returns or steps)",
                  "fraction of tokens with n or more");
    p->y0 = p->log_y ? NAN : -0.02; /* a point at 0 keeps off the frame */
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *name = table_str(t, quantity, r);
        if (!choice_has(&v, r) || (only && strcmp(only, name) != 0))
            continue;
        /* few tokens are observed for many steps, and their fraction may rise with n */
        if (r == 0 || table_real(t, above, r) <= table_real(t, above, r - 1))
            most = value_at(t, tokens, r);
        if (value_at(t, tokens, r) < most / 10) {
            left_out = true;
            continue;
        }
        choice_add(p, &v, r, only ? NULL : panel_of(&v, r, name, panel),
                   table_real(t, above, r) + 1, table_real(t, y, r), value_at(t, low, r),
                   value_at(t, high, r));
        mark_median(p, value_at(t, median, r));
    }
    if (only && !p->n_series)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no quantity '%s'", only);
    for (int i = 0; i < p->n_lines; i++)
        p->line[i].look.points = true;
    choice_note(&v, p, p->note);
    char bands[48];
    size_t n = strlen(p->note);
    snprintf(p->note + n, sizeof p->note - n, "%s",
             low >= 0 ? bands_text(t, p, bands) : "each token of each head counts once");
    p->ring_values = true;
    n = strlen(p->note);
    if (p->n_marks)
        snprintf(p->note + n, sizeof p->note - n, "; rings, numbers: medians");
    n = strlen(p->note);
    if (left_out)
        snprintf(p->note + n, sizeof p->note - n,
                 "; lines end before n with fewer than a tenth of the tokens");
    choice_note_run(&v, p);
    plot_pad(p);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(
    fig_intermittency, .name = "intermittency", .table = "intermittency",
    .summary = "how often tokens are selected, return, stay away, and when they are evicted",
    .needs = "head:text criterion:text quantity:text above share",
    STYLE(struct intermittency_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
          TEXT_KEY(struct intermittency_style, quantity, "NAME", "the only quantity that is drawn",
                   .absent = "all"),
          CHOICE_Y),
    .side_by_side = true);
