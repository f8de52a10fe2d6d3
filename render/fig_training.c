/* fig_training.c - draws training curves, one panel above another: measured values as faint points,
 * their running mean as a line.  Columns that only validation writes are marked lines.  A method
 * has one colour.  Runs "MODEL-METHOD" of several models that train the same method are next to
 * each other, a column of panels for each model. */
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
#include "render/marks.h"
#include "render/note.h"

enum {
    LEFT = 15,
    TOP = 3,
    RIGHT = 4,
    BOTTOM = 11,
    PANEL = 34,
    GAP = 6,
    HEADING = 5,
    COLUMN = 44,
    LEAST_COLUMN = 26,
    MAX_COLUMNS = 4,
    NOTE = 160,
    SMALL = 5, /* a scale starts at 0 if its range is above 1 / SMALL of its end */
    MAX_PANELS = 6,
    MAX_RUNS = 64,
    MAX_DOTS = 1500,
    KEY = 4,
    LEAST = 10
};

struct training_style {
    int64_t smooth;   /* steps of the running mean; 0: 1/25 of the record */
    const char *show; /* columns joined by +; NULL: the default ones */
    int y;            /* 0: linear, 1: logarithmic */
    int columns;      /* of panels; 0: one for each model if they share a method, 1: one */
};

struct curves {
    const struct table *t;
    int col[MAX_PANELS], n_panels;
    int64_t row0[MAX_RUNS + 1]; /* first row of each run */
    int n_runs;
    struct identity look[MAX_RUNS];
    int column[MAX_RUNS];              /* of panels, of each run */
    int first[MAX_COLUMNS], n_columns; /* the first run of each column */
    int smooth;                        /* steps; 0: 1/25 of the run */
    int log_y;                         /* 1: the vertical axes are logarithmic */
    double *line;                      /* [rows] running mean of the panel */
};

static const char *name_of_run(const struct curves *v, int run)
{
    return table_str(v->t, table_find(v->t, "run"), v->row0[run]);
}

/* Returns the length of the model in "MODEL-METHOD", or of the whole name without a '-'. */
static size_t model_of(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash ? (size_t)(dash - name) : strlen(name);
}

static bool same_model(const char *a, const char *b)
{
    return model_of(a) == model_of(b) && strncmp(a, b, model_of(a)) == 0;
}

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

/* Computes the range of the lines and of 98 % of the points, with a margin.  A logarithmic axis
 * also has the points above. */
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
    *hi = fmax(*hi, x[n - 1 - (v->log_y ? 0 : n / 100)]);
    mem_free(x);
    double margin = *hi > *lo ? 0.06 * (*hi - *lo) : fmax(fabs(*hi) * 0.1, 1e-6);
    if (v->log_y && *lo > 0) {
        double wider = pow(*hi / *lo, .06);
        *lo /= fmax(wider, 1.01);
        *hi *= fmax(wider, 1.01);
        return KVF_OK;
    }
    bool from_zero = *lo >= 0 && (*lo < 2 * margin || SMALL * (*hi - *lo) > *hi);
    *lo = from_zero ? 0 : *lo - margin;
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

/* Returns true if two runs of the same column, or of any column, have one colour. */
static bool colours_meet(const struct curves *v, bool same_column)
{
    for (int a = 0; a < v->n_runs; a++)
        for (int b = 0; b < a; b++)
            if (same_colour(of_name(v, a).colour, of_name(v, b).colour)
                && (!same_column || v->column[a] == v->column[b]))
                return true;
    return false;
}

/* Assigns a column of panels to each run: one for all, or one for each model if models share a
 * method. */
static void find_columns(struct curves *v, bool one)
{
    bool apart = !one && colours_meet(v, false);
    v->n_columns = 0;
    for (int run = 0; apart && run < v->n_runs; run++) {
        int k = 0;
        while (k < v->n_columns && !same_model(name_of_run(v, run), name_of_run(v, v->first[k])))
            k++;
        apart = k < MAX_COLUMNS;
        if (apart && k == v->n_columns)
            v->first[v->n_columns++] = run;
        v->column[run] = k;
    }
    if (apart && !colours_meet(v, true))
        return;
    memset(v->column, 0, sizeof v->column);
    v->n_columns = 1;
}

/* Gives each run the look of the method whose gates it trains.  If two runs of a column would share
 * a colour, all runs get looks by their index. */
static void find_looks(struct curves *v)
{
    static const enum mark marks[] = {MARK_SQUARE, MARK_DISC, MARK_TRIANGLE, MARK_DIAMOND};
    bool meet = colours_meet(v, true);
    for (int run = 0; run < v->n_runs; run++) {
        v->look[run] = of_name(v, run);
        if (meet)
            v->look[run] = (struct identity){palette_line(run), marks[run % 4], 0};
        if (v->n_columns == 1)
            v->look[run].dash = dash_of(run);
    }
}

/* Returns the name of a run in the key: without its model if the columns have it.  NULL: an earlier
 * run has the same. */
static const char *key_name(const struct curves *v, int run)
{
    const char *name = name_of_run(v, run);
    if (v->n_columns == 1)
        return name;
    name += model_of(name);
    for (int k = 0; k < run; k++) {
        const char *other = name_of_run(v, k);
        if (strcmp(other + model_of(other), name) == 0)
            return NULL;
    }
    return name + (*name == '-');
}

static int key_lines(const struct curves *v)
{
    int n = 0;
    for (int i = 0; i < v->n_runs; i++)
        n += key_name(v, i) != NULL;
    return n;
}

/* Returns the height of n rows of panels with their axis, and with headings above columns. */
static double panels_height(const struct curves *v, int n)
{
    return TOP + (v->n_columns > 1 ? HEADING : 0) + n * PANEL + (n - 1) * GAP + BOTTOM;
}

/* Reads the runs of the table and the keys of the style. */
static int read(struct curves *v, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct training_style *o = s->own;
    *v = (struct curves){.t = t, .log_y = o->y};
    find_runs(v);
    find_columns(v, o->columns == 1);
    find_looks(v);
    return choose_panels(v, o, d);
}

/* Explains points and lines.  Values of single steps are points. */
static void note_of(const struct curves *v, char out[NOTE])
{
    char mean[48] = "a 25th of the steps";
    bool each = false;
    for (int i = 0; i < v->n_panels; i++)
        each |= !is_sparse(v, v->col[i]);
    if (v->smooth)
        snprintf(mean, sizeof mean, "%d steps", v->smooth);
    snprintf(out, NOTE,
             each ? "pale points: single steps; lines without marks: running mean over %s"
                  : "marks: checks during the training",
             mean);
}

/* Returns the height of the key and the note.  c: NULL while the size is chosen. */
static double foot_of(struct canvas *c, const struct curves *v, const struct figure_style *s,
                      double width)
{
    char note[NOTE];
    struct note n = {.left = LEFT, .right = width - RIGHT, .pt = PT_TICK};
    note_of(v, note);
    return KEY * key_lines(v) + note_height(c, s, &n, note) + 2;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct curves v;
    struct kvf_diag unused;
    bool good = read(&v, t, s, &unused) == KVF_OK;
    *w = s->width_mm;
    if (!(*w > 0))
        *w = v.n_columns == 1 ? 120 : LEFT + RIGHT + COLUMN * v.n_columns + GAP * (v.n_columns - 1);
    *h = panels_height(&v, good ? v.n_panels : 1) + foot_of(NULL, &v, s, *w);
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
                        int column, bool marks)
{
    int step = table_find(v->t, "step");
    int64_t beyond = 0;
    char text[48];
    for (int run = 0; run < v->n_runs; run++) {
        struct identity look = v->look[run];
        struct rgb k = look.colour;
        if (v->column[run] != column)
            continue;
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

static int draw_lines(struct canvas *c, const struct curves *v, const struct axis_box *a,
                      int column)
{
    int step = table_find(v->t, "step");
    double *xy = MEM_NEW(double, 2 * (size_t)table_rows(v->t));
    if (!xy)
        return KVF_E_NOMEM;
    for (int run = 0; run < v->n_runs; run++) {
        int n = 0;
        for (int64_t r = v->row0[run]; v->column[run] == column && r < v->row0[run + 1]; r++)
            if (!isnan(v->line[r])) {
                xy[2 * n] = axis_x(a, table_real(v->t, step, r));
                xy[2 * n++ + 1] = axis_y(a, v->line[r]);
            }
        canvas_dash(c, v->look[run].dash, .8);
        canvas_line(c, xy, n, 0.4, v->look[run].colour);
        canvas_dash(c, 0, 0);
    }
    mem_free(xy);
    return KVF_OK;
}

/* Writes a description of a column: of losses and of "kl_64"; other columns have their names. */
static void long_name(const char *column, char out[64])
{
    static const char *const known[][2] = {
        {"limit", "capacity or sparsity loss"}, {"mean_kl", "KL of checks"}, {"loss", "loss"}};
    char end;
    int budget;
    snprintf(out, 64, "%.60s", column);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(column, known[i][0]) == 0)
            snprintf(out, 64, "%s", known[i][1]);
    if (sscanf(column, "kl_%d%c", &budget, &end) == 1)
        snprintf(out, 64, "KL, budget %d", budget);
}

/* Returns the end of the horizontal axis of a column, shortly after its last step. */
static double end_of(const struct curves *v, int column)
{
    double last = 1;
    int step = table_find(v->t, "step");
    for (int run = 0; run < v->n_runs; run++)
        for (int64_t r = v->row0[run]; v->column[run] == column && r < v->row0[run + 1]; r++)
            last = fmax(last, table_real(v->t, step, r));
    return 1.02 * last;
}

/* Draws the panels of a row, which have one vertical axis. */
static int draw_row(struct canvas *c, struct curves *v, int i, double y, double height)
{
    int col = v->col[i], keep = v->smooth;
    bool marks = is_sparse(v, col);
    const char *unit = table_col_unit(v->t, col);
    char name[64], label[96];
    double width = (canvas_width(c) - LEFT - RIGHT - GAP * (v->n_columns - 1))
                   / (double)v->n_columns;
    long_name(table_col_name(v->t, col), name);
    snprintf(label, sizeof label, *unit ? "%.60s (%.20s)" : "%.60s", name, unit);
    if (canvas_text_width(c, label, PT_LABEL, 0) > height + GAP - 1)
        snprintf(label, sizeof label, "%.40s", table_col_name(v->t, col));
    struct axis_box a = {.x = LEFT,
                         .y = y,
                         .h = height,
                         .w = width,
                         .ylabel = label,
                         .xlabel = i + 1 == v->n_panels ? "step" : NULL,
                         .whole_x = 1};
    v->smooth = marks ? 1 : keep;
    smooth(v, col);
    v->smooth = keep;
    int err = range(v, col, &a.y0, &a.y1);
    a.log_y = v->log_y && a.y0 > 0;
    for (int k = 0; !err && k < v->n_columns; k++, a.x += width + GAP) {
        a.x1 = end_of(v, k);
        draw_points(c, v, &a, col, k, marks);
        err = draw_lines(c, v, &a, k);
        if (k == 0) {
            axis_draw(c, &a);
            continue;
        }
        axis_ticks_x(c, &a);
        canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
        if (a.xlabel)
            canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    }
    return err;
}

/* Writes the models above their columns. */
static void draw_headings(struct canvas *c, const struct curves *v)
{
    double width = (canvas_width(c) - LEFT - RIGHT - GAP * (v->n_columns - 1))
                   / (double)v->n_columns;
    for (int k = 0; v->n_columns > 1 && k < v->n_columns; k++) {
        const char *name = name_of_run(v, v->first[k]);
        char model[96], fit[104];
        snprintf(model, sizeof model, "%.*s", (int)(model_of(name) < 90 ? model_of(name) : 90),
                 name);
        canvas_text(c, LEFT + k * (width + GAP) + width / 2, TOP + HEADING / 2.0 - 1,
                    text_fit(c, model, PT_LABEL, width + GAP - 1, fit, sizeof fit), PT_LABEL,
                    ALIGN_CENTER, ink, 0);
    }
}

static void draw_key(struct canvas *c, const struct curves *v, double y)
{
    for (int i = 0; i < v->n_runs; i++) {
        double xy[] = {LEFT, y, LEFT + 6, y};
        struct identity look = v->look[i];
        const char *name = key_name(v, i);
        if (!name)
            continue;
        canvas_dash(c, look.dash, .8);
        canvas_line(c, xy, 2, 0.5, look.colour);
        canvas_dash(c, 0, 0);
        mark_draw(c, look.mark, LEFT + 3, y, 1.4, look.colour);
        canvas_text(c, LEFT + 8, y, name, PT_TICK, ALIGN_LEFT, ink, 0);
        y += KEY;
    }
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct curves v;
    double W = canvas_width(c), H = canvas_height(c);
    char note[NOTE];
    int err = read(&v, t, s, d);
    if (err)
        return err;
    double foot = foot_of(c, &v, s, W), top = TOP + (v.n_columns > 1 ? HEADING : 0);
    err = canvas_room(c, "training",
                      LEFT + RIGHT + LEAST_COLUMN * v.n_columns + GAP * (v.n_columns - 1),
                      panels_height(&v, v.n_panels) - (PANEL - LEAST) * v.n_panels + foot, d);
    if (err)
        return err;
    v.line = MEM_NEW(double, (size_t)table_rows(t));
    if (!v.line)
        return KVF_E_NOMEM;
    double height = (H - top - BOTTOM - foot - GAP * (v.n_panels - 1)) / v.n_panels;
    draw_headings(c, &v);
    for (int i = 0; !err && i < v.n_panels; i++)
        err = draw_row(c, &v, i, top + i * (height + GAP), height);
    draw_key(c, &v, H - foot + KEY / 2.0);
    note_of(&v, note);
    struct note n = {.left = LEFT, .right = W - RIGHT, .pt = PT_TICK};
    note_draw(c, &n, H - foot + KEY * key_lines(&v) + 2.5, note);
    mem_free(v.line);
    return err;
}

const struct figure fig_training = {
    .name = "training",
    .table = "training",
    .summary = "training and validation curves: losses and limit",
    .needs = "run:text step tokens",
    STYLE(
        struct training_style,
        COUNT_KEY(struct training_style, smooth, 1, 1 << 20, "steps of the running mean",
                  .absent = "a 25th of the record"),
        WORD_KEY(struct training_style, y, "linear", "scale of the vertical axes", "linear", "log"),
        WORD_KEY(struct training_style, columns, "model",
                 "columns of panels: one for each MODEL of runs MODEL-METHOD if models share a "
                 "method, or one",
                 "model", "one"),
        TEXT_KEY(struct training_style, show, "A+B", "the columns that are drawn (up to 6)",
                 .absent = "loss+limit+mean_kl+reward+entropy")),
    .size = size,
    .draw = draw,
};
