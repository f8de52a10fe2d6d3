/* fig_survival.c - draws survival curves: the product-limit estimate with its half-life as a ring,
 * or the fraction of tokens at risk (DBTrimKV, figures 2a and 9). The axis of ages is logarithmic
 * and starts at 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/caption.h"
#include "render/figures.h"
#include "render/plot.h"

enum { SURVIVAL, FRACTION };
static const char *const shares[] = {"survival", "fraction", NULL};
struct survival_style {
    struct choice_style choice;
    int share;    /* SURVIVAL or FRACTION */
    int64_t mark; /* an age; 0: no mark */
};

/* Returns true if the estimate is drawn.  Tables of other times and of gaps have no estimate. */
static bool has_estimate(const struct table *t, const struct row_choice *v,
                         const struct survival_style *o)
{
    return o->share == SURVIVAL && !v->gaps && table_find(t, "survival") >= 0;
}

static void add_rows(struct plot *p, const struct row_choice *v, const struct table *t,
                     bool estimate)
{
    int x = table_find(t, "horizon"), y = table_find(t, estimate ? "survival" : "fraction");
    int low = table_find(t, estimate ? "survival_low" : "low");
    int high = table_find(t, estimate ? "survival_high" : "high");
    int at_risk = table_find(t, "at_risk");
    for (int64_t r = 0; r < table_rows(t); r++) {
        /* lines in the background have no band */
        bool band = !estimate || row_pooled(&v->k, r) || v->heads;
        if (!choice_has(v, r) || table_real(t, x, r) < 1)
            continue;
        choice_add(p, v, r, NULL, table_real(t, x, r), table_real(t, y, r),
                   band ? value_at(t, low, r) : NAN, band ? value_at(t, high, r) : NAN);
        plot_of(p, value_at(t, at_risk, r));
    }
}

/* Extends a line that ends above 1/2 to its half-life x, because the ages of the table are sparse.
 * Points after its end are not defined, and the first of them is replaced. */
static void reach_half(struct plot *p, const char *panel, const char *line, double x)
{
    for (int i = 0; i < p->n_series; i++) {
        struct chart_line *l = &p->series[i].data;
        int k = l->n - 1;
        if (strcmp(p->panel[p->series[i].panel], panel) != 0
            || strcmp(p->line[p->series[i].line].name, line) != 0)
            continue;
        while (k >= 0 && !isfinite(l->y[k]))
            k--;
        if (k < 0 || l->x[k] >= x || l->y[k] <= .5)
            return;
        if (k + 1 == l->n)
            plot_add(p, panel, line, x, .5, NAN, NAN);
        else
            l->x[k + 1] = x, l->y[k + 1] = .5;
        return;
    }
}

/* Adds a ring at the half-life of each line that has one.  The half-life of several documents is a
 * mean, which need not be on the line. */
static void add_half_lives(struct plot *p, const struct row_choice *v, const struct table *t)
{
    char panel[PLOT_NAME], line[PLOT_NAME], last[2 * PLOT_NAME + 1] = "", now[sizeof last];
    int col = table_find(t, "half_life");
    for (int64_t r = 0; col >= 0 && r < table_rows(t); r++) {
        double x = table_real(t, col, r);
        if (!(x >= 1) || !choice_has(v, r) || !choice_name(v, r, panel, line))
            continue;
        snprintf(now, sizeof now, "%s\n%s", panel, line);
        if (strcmp(now, last) != 0 && !table_meta(t, "documents"))
            reach_half(p, panel, line, x);
        if (strcmp(now, last) != 0)
            plot_mark(p, panel, line, x, .5, false);
        memcpy(last, now, sizeof now);
    }
}

/* Returns the last age of a line. */
static double last_age(const struct plot *p)
{
    double last = 0;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++)
            last = fmax(last, p->series[i].data.x[k]);
    return last;
}

/* Indexed by enum choice_about. */
static const char *const estimates[] = {"fraction of tokens still in use",
                                        "fraction of tokens still cached",
                                        "fraction of tokens still in use or cached"};
static const char *const fractions[] = {"fraction selected at age \xe2\x89\xa5 n",
                                        "fraction cached at age n",
                                        "fraction selected or cached at age \xe2\x89\xa5 n"};

static void put_note(const struct table *t, bool estimate, enum choice_about about,
                     const char *begin, struct plot *p)
{
    char bands[48], of[96];
    const char *of_which = table_meta(t, "denominator"), *grace = table_meta(t, "grace");
    const char *ends = "";
    bool all = of_which && strcmp(of_which, "all tokens") == 0;
    if (estimate && about == ABOUT_CACHE)
        snprintf(of, sizeof of, "age counts from the token's own step");
    else if (estimate)
        snprintf(of, sizeof of, "in use: selected again within %.20s steps%s",
                 grace ? grace : "some", about == ABOUT_BOTH ? "" : "");
    else
        snprintf(of, sizeof of, "%.60s",
                 all ? "of all tokens" : "of tokens with n or more later steps");
    if (table_find(t, "low") >= 0)
        ends = bands_text(t, p, bands);
    else if (estimate)
        ends = plot_bands(p);
    snprintf(p->note, sizeof p->note, "%s%s%s%s%s", begin, of,
             p->n_marks ? "; rings, numbers: half-life in steps" : "", *ends ? "; " : "", ends);
}

static void note_mark(struct plot *p, int64_t mark)
{
    size_t n = strlen(p->note);
    if (mark > 0)
        snprintf(p->note + n, sizeof p->note - n, "; vertical dashed line: age %lld",
                 (long long)mark);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    char begin[PLOT_NAME];
    const struct survival_style *own = s->own;
    const struct choice_style *o = &own->choice;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    p->whole_x = true;
    p->xlabel = "age n (steps)";
    bool estimate = has_estimate(t, &v, own);
    enum choice_about about = choice_about(&v);
    p->ylabel = estimate ? estimates[about] : fractions[about];
    if (v.gaps)
        p->ylabel = "difference of the fractions";
    p->log_x = true;
    p->log_y = o->y == CHOICE_LOG && !v.gaps;
    p->y0 = v.gaps || p->log_y ? NAN : 0;
    p->y1 = v.gaps ? NAN : 1;
    p->level = v.gaps ? 0 : NAN;
    p->upright = own->mark > 0 ? (double)own->mark : NAN;
    add_rows(p, &v, t, estimate);
    if (estimate || (!v.gaps && table_find(t, "survival") < 0))
        add_half_lives(p, &v, t);
    choice_note(&v, p, begin);
    p->ring_values = true;
    p->lacking = "too few tokens";
    put_note(t, estimate, about, begin, p);
    note_mark(p, own->mark);
    plot_note_few(p);
    choice_note_run(&v, p);
    plot_hide_empty(p);
    for (int i = 0; i < p->n_marks; i++) /* a ring keeps off the frame */
        p->x1 = fmax(p->x1, 1.25 * p->mark[i].x);
    if (p->x1 < last_age(p))
        p->x1 = NAN;
    return KVF_OK;
}

PLOT_FIGURE(fig_survival, .name = "survival", .caption = caption_survival, .table = "survival",
            .summary = "survival curves by criterion, class, head or trace; half-lives; gaps",
            .needs = "head:text criterion:text horizon fraction",
            STYLE(struct survival_style, CHOICE_BY("criterion", "class", "head", "trace", "gap"),
                  CHOICE_ONE, CHOICE_HEADS, CHOICE_Y,
                  LIST_KEY(struct survival_style, share, "survival",
                           "the estimate, or the fraction of tokens at risk", shares),
                  COUNT_KEY(struct survival_style, mark, 1, INT32_MAX,
                            "an age that is marked by a dashed line", .absent = "none")),
            .side_by_side = true);
