/* fig_predict.c - draws how well statistics predict an effect: Spearman's rho of each given the
 * layer (for entries: the position), with its 95 % interval.  Marks with a small q are filled. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/forest.h"
#include "render/cells.h"
#include "render/predict_units.h"
#include "render/note.h"

enum { TOP = 3, BOTTOM = 18, USUAL = 40, NOTES = 4 };
static const double ROW = 3.4, MIN_ROW = 2.5;

enum { SORT_SIZE, SORT_RHO, SORT_TABLE };

struct predict_style {
    int sort; /* SORT_ */
    int64_t top;
    double level;
};

struct candidates {
    struct forest_row *row; /* [n] */
    int n, left_out;        /* undefined candidates are counted in left_out */
    const struct predict_style *o;
};

static int by_size(const void *a, const void *b)
{
    const struct forest_row *p = a, *q = b;
    double x = fabs(p->value), y = fabs(q->value);
    return x != y ? (x < y) - (x > y) : strcmp(p->name, q->name);
}

static int by_rho(const void *a, const void *b)
{
    const struct forest_row *p = a, *q = b;
    return p->value != q->value ? (p->value < q->value) - (p->value > q->value)
                                : strcmp(p->name, q->name);
}

static struct forest_row row_of(const struct table *t, int64_t r, double level)
{
    char cell[24], reduced[24];
    struct forest_row x = {.value = table_real(t, table_find(t, "partial"), r),
                           .low = table_real(t, table_find(t, "low"), r),
                           .high = table_real(t, table_find(t, "high"), r)};
    double q = table_real(t, table_find(t, "q"), r);
    const char *reduce = cell_text(t, table_find(t, "reduce"), r, reduced);
    predict_name(cell_text(t, table_find(t, "candidate"), r, cell), reduce, x.name);
    snprintf(x.note, sizeof x.note, q < .001 ? "%+.2f  <.001" : "%+.2f  %.3f", x.value, q);
    if (fabs(x.value) < .005) /* a zero has no sign but the same width */
        snprintf(x.note, sizeof x.note,
                 "\xc2\xb1"
                 "0.00  %.3f",
                 q);
    minus_signs(x.note, sizeof x.note);
    x.colour = q < level ? palette_line(x.value < 0) : (struct rgb){.5, .5, .5};
    x.mark = q < level ? MARK_DISC : MARK_RING;
    return x;
}

static int read_candidates(const struct table *t, const struct figure_style *s,
                           struct candidates *x)
{
    *x = (struct candidates){.o = s->own};
    x->row = mem_alloc((size_t)table_rows(t), sizeof *x->row);
    if (!x->row)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++) {
        x->row[x->n] = row_of(t, r, x->o->level);
        if (isfinite(x->row[x->n].value))
            x->n++;
        else
            x->left_out++;
    }
    if (x->o->sort != SORT_TABLE)
        qsort(x->row, (size_t)x->n, sizeof *x->row, x->o->sort == SORT_RHO ? by_rho : by_size);
    return KVF_OK;
}

static int shown(const struct candidates *x)
{
    int top = x->o->top ? (int)x->o->top : USUAL;
    return x->n < top ? x->n : top;
}

static bool of_units(const struct table *t)
{
    return strcmp(table_name(t), "predict-units") == 0;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct candidates x;
    if (of_units(t)) {
        predict_units_size(t, ((const struct predict_style *)s->own)->top, w, h);
        return;
    }
    int n = read_candidates(t, s, &x) == KVF_OK ? shown(&x) : 1;
    mem_free(x.row);
    *w = 88;
    *h = TOP + 4 + BOTTOM + ROW * fmax(n, 3);
}

/* Writes the model, the numbers of units and texts, and the meaning of the marks. */
static void footnote(struct canvas *c, const struct table *t, const struct candidates *x, int n)
{
    char text[NOTE_TEXT];
    const char *model = table_meta(t, "model"), *units = table_meta(t, "units");
    const char *pairs = table_meta(t, "pairs"), *given = table_meta(t, "partial");
    int count = numeric_column(t, "n");
    bool entries = units && strcmp(units, "entries") == 0;
    double most = 0;
    int filled = 0;
    for (int i = 0; i < n; i++)
        filled += x->row[i].mark == MARK_DISC;
    for (int64_t r = 0; count >= 0 && r < table_rows(t); r++)
        most = fmax(most, table_real(t, count, r)); /* ignores NaN */
    int used = snprintf(text, sizeof text, "%.60s%s", model ? model : "", model ? "; " : "");
    if (most > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, "n = %.0f %.20s", most,
                         units ? units : "units");
    if (most > 0 && pairs)
        used += snprintf(text + used, sizeof text - (size_t)used, " of %.8s text%s", pairs,
                         strcmp(pairs, "1") == 0 ? "" : "s");
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "%sbars: 95 %% CI; %s q < %.3g (false discovery rate)", most > 0 ? "; " : "",
                     filled ? "filled:" : "no row has", x->o->level);
    used += snprintf(text + used, sizeof text - (size_t)used, "; effect of ablation: %.40s",
                     predict_effect(t));
    if (given)
        used += snprintf(text + used, sizeof text - (size_t)used, "; \xcf\x81: Spearman, %.60s",
                         given);
    if (units)
        used += snprintf(text + used, sizeof text - (size_t)used, "; mean, maximum: over %s",
                         entries ? "heads" : "the query heads of a KV head");
    if (x->n > n)
        snprintf(text + used, sizeof text - (size_t)used, "; %d more not shown", x->n - n);
    else if (x->left_out)
        snprintf(text + used, sizeof text - (size_t)used, "; %d undefined", x->left_out);
    struct note at = {2, canvas_width(c) - 2, canvas_width(c) / 2, .pitch = 2.6, .most = NOTES};
    note_draw_up(c, &at, canvas_height(c) - 1.8, text);
}

/* Draws the rows that fit, their axis and the headings of the numbers. */
static void draw_rows(struct canvas *c, const struct table *t, const struct candidates *x)
{
    double h = canvas_height(c) - TOP - 4 - BOTTOM, most = 0;
    int n = shown(x), fit = (int)fmax(1, h / MIN_ROW);
    struct forest f = {x->row, n < fit ? n : fit, 0, 0, 0, 0};
    forest_measure(c, &f, canvas_width(c) * .46);
    f.names = fmax(f.names, 8); /* axis numbers extend beyond both ends */
    for (int i = 0; i < f.n; i++)
        most = fmax(most,
                    fmax(fabs(x->row[i].value), fmax(fabs(x->row[i].low), fabs(x->row[i].high))));
    most = fmin(1, ceil(fmax(most, .1) * 10 - 1e-9) / 10);
    struct axis_box a = {.x = f.names + 3,
                         .y = TOP + 4,
                         .h = h,
                         .x0 = -most,
                         .x1 = most,
                         .w = canvas_width(c) - f.names - f.notes - 6,
                         .xlabel = "rank correlation with the effect (\xcf\x81)"};
    forest_draw(c, &a, &f);
    axis_ticks_x(c, &a);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    double half = canvas_text_width(c, a.xlabel, PT_LABEL, 0) / 2;
    canvas_text(c, fmin(a.x + a.w / 2, canvas_width(c) - 1 - half), a.y + a.h + 6, a.xlabel,
                PT_LABEL, ALIGN_CENTER, ink, 0);
    double second = canvas_text_width(c, "+0.00  ", PT_TICK, 0);
    canvas_text(c, a.x + a.w + 3, a.y - 2.2, "\xcf\x81", PT_TICK, ALIGN_LEFT, ink, 0);
    canvas_text(c, a.x + a.w + 3 + second, a.y - 2.2, "q", PT_TICK, ALIGN_LEFT, ink, 0);
    footnote(c, t, x, f.n);
    if (f.n == 0)
        canvas_text(c, a.x + a.w / 2, a.y + a.h / 2, "nothing is defined", PT_LABEL, ALIGN_CENTER,
                    quiet, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct candidates x;
    if (of_units(t))
        return predict_units_draw(c, t, ((const struct predict_style *)s->own)->top, d);
    if (numeric_column(t, "q") < 0)
        return kvf_fail(d, KVF_E_ARG, "figure predict needs numbers in column q of table %s",
                        table_name(t));
    int err = canvas_room(c, "predict", 80, TOP + 4 + BOTTOM + 3 * MIN_ROW, d);
    if (!err)
        err = read_candidates(t, s, &x);
    if (err)
        return err;
    draw_rows(c, t, &x);
    mem_free(x.row);
    return KVF_OK;
}

const struct figure fig_predict = {
    .name = "predict",
    .table = "predict",
    .also = "predict-units",
    .summary =
        "partial rank correlation of each statistic with the effect, or the effect of each unit",
    .needs = "candidate:text reduce:text partial low high",
    STYLE(struct predict_style,
          WORD_KEY(struct predict_style, sort, "size", "the order of the rows", "size", "rho",
                   "table"),
          COUNT_KEY(struct predict_style, top, 1, 1000, "maximum number of rows or panels",
                    .absent = "40 rows, or 6 panels of units"),
          REAL_KEY(struct predict_style, level, 0, 1, "rows with q below it are filled",
                   .standard = "0.05")),
    .size = size,
    .draw = draw,
};
