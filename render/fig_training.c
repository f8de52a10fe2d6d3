/* fig_training.c - draws training curves, one panel above another: measured values as faint points,
 * their running mean as a line.  Columns that only validation writes are marked lines. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/cells.h"

enum {
    LEFT = 15,
    TOP = 3,
    RIGHT = 4,
    BOTTOM = 11,
    PANEL = 34,
    GAP = 6,
    MAX_PANELS = 6,
    MAX_RUNS = 64,
    MAX_DOTS = 1500,
    KEY = 4,
    LEAST = 10
};

struct training_style {
    int64_t smooth;   /* steps of the running mean; 0: 1/25 of the record */
    const char *show; /* columns joined by +; NULL: the default ones */
};

struct curves {
    const struct table *t;
    int col[MAX_PANELS], n_panels;
    int64_t row0[MAX_RUNS + 1]; /* first row of each run */
    int n_runs;
    int smooth;   /* steps; 0: 1/25 of the run */
    double *line; /* [rows] running mean of the panel */
};

static bool empty(const struct table *t, int col)
{
    for (int64_t r = 0; r < table_rows(t); r++)
        if (!isnan(table_real(t, col, r)))
            return false;
    return true;
}

static int add_panel(struct curves *v, const char *name, bool asked, struct kvf_diag *d)
{
    int col = table_find(v->t, name);
    bool number = col >= 0 && table_col_type(v->t, col) != TABLE_STR;
    if (number && v->n_panels < MAX_PANELS && !empty(v->t, col))
        v->col[v->n_panels++] = col;
    else if (asked)
        return kvf_fail(d, KVF_E_ARG,
                        "--style show=%s: no such numbers in this table, or more "
                        "than %d panels",
                        name, MAX_PANELS);
    return KVF_OK;
}

static int add_shown(struct curves *v, const char *list, struct kvf_diag *d)
{
    char name[CELL_TEXT];
    int err = KVF_OK;
    for (const char *s = list; !err && *s;) {
        size_t n = strcspn(s, "+");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        err = add_panel(v, name, true, d);
        s += n + (s[n] == '+');
    }
    return err;
}

/* Chooses the panels of the style, or the default columns that the table has. */
static int choose_panels(struct curves *v, const struct training_style *o, struct kvf_diag *d)
{
    static const char *const usual[] = {"loss", "limit", "mean_kl", "reward", "entropy"};
    int err = KVF_OK;
    v->smooth = (int)o->smooth;
    v->n_panels = 0;
    if (o->show)
        err = add_shown(v, o->show, d);
    for (size_t i = 0; !o->show && i < sizeof usual / sizeof *usual; i++)
        add_panel(v, usual[i], false, d);
    if (!err && !v->n_panels)
        err = kvf_fail(d, KVF_E_ARG, "the table has no numbers to draw");
    return err;
}

/* Finds the first row of each run.  Runs are adjacent in the table: a new run has another name, or
 * its steps start again. */
static void find_runs(struct curves *v)
{
    int run = table_find(v->t, "run"), step = table_find(v->t, "step");
    int64_t n = table_rows(v->t);
    v->n_runs = 0;
    for (int64_t r = 0; r < n; r++)
        if (v->n_runs < MAX_RUNS
            && (r == 0 || strcmp(table_str(v->t, run, r), table_str(v->t, run, r - 1)) != 0
                || table_int(v->t, step, r) <= table_int(v->t, step, r - 1)))
            v->row0[v->n_runs++] = r;
    v->row0[v->n_runs] = n;
}

static double panels_height(int n)
{
    return TOP + n * PANEL + (n - 1) * GAP + BOTTOM;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct curves v = {.t = t};
    struct kvf_diag unused;
    find_runs(&v);
    *w = 120;
    *h = panels_height(choose_panels(&v, s->own, &unused) == KVF_OK ? v.n_panels : 1)
         + KEY * v.n_runs;
}

/* Returns true if fewer than half of the rows have a value, as in columns of validation results. */
static bool is_sparse(const struct curves *v, int col)
{
    int64_t some = 0, n = table_rows(v->t);
    for (int64_t r = 0; r < n; r++)
        some += !isnan(table_real(v->t, col, r));
    return some * 2 < n;
}

/* Fills v->line with the centred running mean over the rows of each run that have a value, NaN
 * elsewhere. */
static void smooth(struct curves *v, int col)
{
    for (int run = 0; run < v->n_runs; run++) {
        int64_t a = v->row0[run], b = v->row0[run + 1], n = b - a;
        int64_t usual = n / 25 < 1000 ? n / 25 : 1000, half = (v->smooth ? v->smooth : usual) / 2;
        for (int64_t r = a; r < b; r++) {
            int64_t lo = r - half < a ? a : r - half, hi = r + half >= b ? b - 1 : r + half;
            double sum = 0, count = 0;
            for (int64_t k = lo; k <= hi; k++) {
                double x = table_real(v->t, col, k);
                sum += isnan(x) ? 0 : x;
                count += !isnan(x);
            }
            v->line[r] = isnan(table_real(v->t, col, r)) || count == 0 ? NAN : sum / count;
        }
    }
}

/* Computes the range of the lines and of 98 % of the points, with a margin. */
static int range(const struct curves *v, int col, double *lo, double *hi)
{
    int64_t rows = table_rows(v->t), n = 0;
    double *x = MEM_NEW(double, (size_t)rows);
    if (!x)
        return KVF_E_NOMEM;
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int64_t r = 0; r < rows; r++) {
        double value = table_real(v->t, col, r);
        if (!isnan(value))
            x[n++] = value;
        if (!isnan(v->line[r])) {
            *lo = fmin(*lo, v->line[r]);
            *hi = fmax(*hi, v->line[r]);
        }
    }
    qsort(x, (size_t)n, sizeof *x, order_double);
    *lo = fmin(*lo, x[n / 100]);
    *hi = fmax(*hi, x[n - 1 - n / 100]);
    mem_free(x);
    double margin = *hi > *lo ? 0.06 * (*hi - *lo) : fmax(fabs(*hi) * 0.1, 1e-6);
    *lo = *lo >= 0 && *lo < 2 * margin ? 0 : *lo - margin;
    *hi += margin;
    return KVF_OK;
}

/* Returns the dashes of a run, so that runs differ in grey too. */
static double dash_of(int run)
{
    static const double dashes[] = {0, 1.6, 0.7, 3};
    return dashes[run % 4];
}

static struct identity of_name(const struct curves *v, int run)
{
    return identity_of_run(table_str(v->t, table_find(v->t, "run"), v->row0[run]), run);
}

static bool same_colour(struct rgb a, struct rgb b)
{
    return a.r == b.r && a.g == b.g && a.b == b.b;
}

/* Returns the look of the method whose gates a run trains.  If two runs would share a colour, all
 * runs get looks by their index. */
static struct identity look_of(const struct curves *v, int run)
{
    static const enum mark marks[] = {MARK_SQUARE, MARK_DISC, MARK_TRIANGLE, MARK_DIAMOND};
    for (int a = 0; a < v->n_runs; a++)
        for (int b = 0; b < a; b++)
            if (same_colour(of_name(v, a).colour, of_name(v, b).colour))
                return (struct identity){palette_line(run), marks[run % 4], 0};
    return of_name(v, run);
}

/* Draws a point and returns true, or returns false if it is outside the axes. */
static bool dot(struct canvas *c, const struct axis_box *a, double step, double y, enum mark m,
                double side, struct rgb colour)
{
    bool within = y >= a->y0 && y <= a->y1;
    if (within)
        mark_draw(c, m, axis_x(a, step), axis_y(a, y), side, colour);
    return within;
}

static void draw_points(struct canvas *c, const struct curves *v, const struct axis_box *a, int col,
                        bool marks)
{
    int step = table_find(v->t, "step");
    int64_t beyond = 0;
    char text[48];
    for (int run = 0; run < v->n_runs; run++) {
        struct identity look = look_of(v, run);
        struct rgb k = look.colour;
        struct rgb faint = {1 - 0.3 * (1 - k.r), 1 - 0.3 * (1 - k.g), 1 - 0.3 * (1 - k.b)};
        int64_t n = v->row0[run + 1] - v->row0[run];
        int64_t every = marks ? 1 : (n + MAX_DOTS - 1) / MAX_DOTS;
        for (int64_t r = v->row0[run]; r < v->row0[run + 1]; r += every) {
            double y = table_real(v->t, col, r);
            if (!isnan(y))
                beyond += !dot(c, a, table_real(v->t, step, r), y, marks ? look.mark : MARK_SQUARE,
                               marks ? 1.4 : 0.55, marks ? k : faint);
        }
    }
    snprintf(text, sizeof text, "%lld point%s beyond the axis", (long long)beyond,
             beyond > 1 ? "s" : "");
    if (beyond)
        canvas_text(c, a->x + a->w - 1, a->y + 1.8, text, PT_SMALL, ALIGN_RIGHT,
                    (struct rgb){.35, .35, .35}, 0);
}

static int draw_lines(struct canvas *c, const struct curves *v, const struct axis_box *a)
{
    int step = table_find(v->t, "step");
    double *xy = MEM_NEW(double, 2 * (size_t)table_rows(v->t));
    if (!xy)
        return KVF_E_NOMEM;
    for (int run = 0; run < v->n_runs; run++) {
        int n = 0;
        for (int64_t r = v->row0[run]; r < v->row0[run + 1]; r++)
            if (!isnan(v->line[r])) {
                xy[2 * n] = axis_x(a, table_real(v->t, step, r));
                xy[2 * n++ + 1] = axis_y(a, v->line[r]);
            }
        canvas_dash(c, dash_of(run), .8);
        canvas_line(c, xy, n, 0.4, look_of(v, run).colour);
        canvas_dash(c, 0, 0);
    }
    mem_free(xy);
    return KVF_OK;
}

/* Returns a description of the default columns; other columns return their names. */
static const char *long_name(const char *column)
{
    if (strcmp(column, "limit") == 0)
        return "capacity or sparsity loss";
    return strcmp(column, "mean_kl") == 0 ? "KL of checks" : column;
}

static int draw_panel(struct canvas *c, struct curves *v, int i, double height, double last_step)
{
    int col = v->col[i];
    bool marks = is_sparse(v, col);
    const char *unit = table_col_unit(v->t, col);
    char label[80];
    snprintf(label, sizeof label, *unit ? "%.40s (%.20s)" : "%.40s",
             long_name(table_col_name(v->t, col)), unit);
    if (canvas_text_width(c, label, PT_LABEL, 0) > height + GAP - 1)
        snprintf(label, sizeof label, "%.40s", table_col_name(v->t, col));
    struct axis_box a = {.x = LEFT,
                         .y = TOP + i * (height + GAP),
                         .h = height,
                         .x1 = last_step,
                         .w = canvas_width(c) - LEFT - RIGHT,
                         .ylabel = label,
                         .whole_x = 1};
    int keep = v->smooth;
    v->smooth = marks ? 1 : keep;
    smooth(v, col);
    v->smooth = keep;
    int err = range(v, col, &a.y0, &a.y1);
    if (err)
        return err;
    a.xlabel = i + 1 == v->n_panels ? "step" : NULL;
    draw_points(c, v, &a, col, marks);
    err = draw_lines(c, v, &a);
    axis_draw(c, &a);
    return err;
}

static void draw_key(struct canvas *c, const struct curves *v)
{
    int run = table_find(v->t, "run");
    double y = canvas_height(c) - KEY * v->n_runs + KEY / 2.0 - 1;
    for (int i = 0; i < v->n_runs; i++, y += KEY) {
        double xy[] = {LEFT, y, LEFT + 6, y};
        struct identity look = look_of(v, i);
        canvas_dash(c, dash_of(i), .8);
        canvas_line(c, xy, 2, 0.5, look.colour);
        canvas_dash(c, 0, 0);
        mark_draw(c, look.mark, LEFT + 3, y, 1.4, look.colour);
        canvas_text(c, LEFT + 8, y, table_str(v->t, run, v->row0[i]), PT_TICK, ALIGN_LEFT, ink, 0);
    }
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct curves v = {.t = t};
    double last = 1;
    int step = table_find(t, "step"), err = choose_panels(&v, s->own, d);
    if (err)
        return err;
    find_runs(&v);
    err = canvas_room(c, "training", LEFT + RIGHT + 30,
                      panels_height(v.n_panels) - (PANEL - LEAST) * v.n_panels + KEY * v.n_runs, d);
    if (err)
        return err;
    for (int64_t r = 0; r < table_rows(t); r++)
        last = fmax(last, table_real(t, step, r));
    v.line = MEM_NEW(double, (size_t)table_rows(t));
    if (!v.line)
        return KVF_E_NOMEM;
    double room = canvas_height(c) - TOP - BOTTOM - KEY * v.n_runs - GAP * (v.n_panels - 1);
    double height = fmax(room / v.n_panels, 5);
    for (int i = 0; !err && i < v.n_panels; i++)
        err = draw_panel(c, &v, i, height, last);
    draw_key(c, &v);
    mem_free(v.line);
    return err;
}

const struct figure fig_training = {
    .name = "training",
    .table = "training",
    .summary = "training and validation curves: losses and limit",
    .needs = "run:text step tokens",
    STYLE(struct training_style,
          COUNT_KEY(struct training_style, smooth, 1, 1 << 20, "steps of the running mean",
                    .absent = "a 25th of the record"),
          TEXT_KEY(struct training_style, show, "A+B", "the columns that are drawn (up to 6)",
                   .absent = "loss+limit+mean_kl+reward+entropy")),
    .size = size,
    .draw = draw,
};
