/* fig_head_types.c - draws the fraction and the depth of each head type in several models, with
 * intervals over documents. Types that no model has are left out. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/forest.h"

enum { TOP = 7, BOTTOM = 12, GAP = 5 };
static const double ROW = 3.8, MIN_ROW = 3.1;

struct types {
    struct forest_row *fraction, *depth; /* [n] */
    int n;
    double most;         /* the largest end of an interval of a fraction */
    double documents[2]; /* the smallest and the largest number of documents of a row */
    bool single;         /* the table has one model */
};

/* Returns the row of the first place of a cell's text in its column. */
static int64_t first_of(const struct table *t, int column, int64_t r)
{
    char one[CELL_TEXT], other[CELL_TEXT];
    const char *name = cell_text(t, column, r, one);
    int64_t k = 0;
    while (k < r && strcmp(cell_text(t, column, k, other), name) != 0)
        k++;
    return k;
}

/* Returns the number of different texts of a column above a row. */
static int rank_of(const struct table *t, int column, int64_t r)
{
    int n = 0;
    for (int64_t k = 0; k < r; k++)
        n += first_of(t, column, k) == k;
    return n;
}

static double number(const struct table *t, const char *name, int64_t r)
{
    return table_real(t, table_find(t, name), r);
}

/* Adds a row: of a model below the heading of its type, or named after the type if the table has
 * one model. */
static void add_model(struct types *x, const struct table *t, int64_t r)
{
    char cell[CELL_TEXT];
    int documents = numeric_column(t, "documents");
    double n = documents < 0 ? NAN : table_real(t, documents, r);
    int model = table_find(t, "model"), i = rank_of(t, model, first_of(t, model, r));
    struct forest_row row = {.value = number(t, "fraction", r),
                             .low = number(t, "low", r),
                             .high = number(t, "high", r),
                             .colour = palette_line(i),
                             .mark = (enum mark)(i % MARKS)};
    x->most = fmax(x->most, fmax(row.value, row.high)); /* ignores NaN */
    x->documents[0] = fmin(x->documents[0], n);
    x->documents[1] = fmax(x->documents[1], n);
    model = x->single ? table_find(t, "kind") : model;
    x->depth[x->n] = row;
    x->depth[x->n].value = number(t, "depth", r);
    x->depth[x->n].low = number(t, "depth_low", r);
    x->depth[x->n].high = number(t, "depth_high", r);
    snprintf(row.name, sizeof row.name, "%.90s", cell_text(t, model, r, cell));
    if (isnan(row.low))
        snprintf(row.note, sizeof row.note, "%.3f", row.value);
    else
        snprintf(row.note, sizeof row.note, "%.3f (%.3f .. %.3f)", row.value, row.low, row.high);
    x->fraction[x->n++] = row;
}

/* Adds a heading for the type of row r, and its models. */
static void add_type(struct types *x, const struct table *t, int64_t r)
{
    char cell[CELL_TEXT];
    int kind = table_find(t, "kind");
    bool any = false;
    for (int64_t k = r; k < table_rows(t); k++)
        any = any || (first_of(t, kind, k) == r && number(t, "fraction", k) > 0);
    if (!any)
        return;
    if (!x->single) {
        x->fraction[x->n] = x->depth[x->n] = (struct forest_row){.heading = true, .value = NAN};
        snprintf(x->fraction[x->n].name, sizeof x->fraction->name, "%.90s",
                 cell_text(t, kind, r, cell));
        x->n++;
    }
    for (int64_t k = r; k < table_rows(t); k++)
        if (first_of(t, kind, k) == r)
            add_model(x, t, k);
}

static int read_types(const struct table *t, struct types *x)
{
    int kind = table_find(t, "kind");
    *x = (struct types){.documents = {INFINITY, 0}};
    int64_t rows = table_rows(t);
    x->single = rank_of(t, table_find(t, "model"), rows) == 1;
    x->fraction = mem_alloc(2 * (size_t)table_rows(t), sizeof *x->fraction);
    x->depth = mem_alloc(2 * (size_t)table_rows(t), sizeof *x->depth);
    if (!x->fraction || !x->depth)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (first_of(t, kind, r) == r)
            add_type(x, t, r);
    return KVF_OK;
}

static void free_types(struct types *x)
{
    mem_free_all(x->fraction, x->depth);
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct types x;
    (void)s;
    int n = read_types(t, &x) == KVF_OK ? x.n : 1;
    free_types(&x);
    *w = 180;
    *h = fmin(320, TOP + BOTTOM + ROW * fmax(n, 3));
}

/* Draws the forest of one quantity in a box, with its axis. */
static void panel(struct canvas *c, const struct forest *f, struct axis_box *a, const char *name)
{
    forest_draw(c, a, f);
    axis_ticks_x(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    canvas_text(c, a->x + a->w / 2, a->y + a->h + 6.2, name, PT_LABEL, ALIGN_CENTER, ink, 0);
}

/* Writes the number of documents behind a row, and if there are intervals. */
static void note_documents(const struct types *x, char *out, size_t room)
{
    double low = x->documents[0], high = x->documents[1];
    const char *ci = high >= STATS_LEAST ? "bars: 95 % CI over documents; " : "";
    if (!(high > 0))
        snprintf(out, room, "%s", "");
    else if (low < high)
        snprintf(out, room, "%sn = %.0f to %.0f documents", ci, low, high);
    else
        snprintf(out, room, "%sn = %.0f document%s", ci, high, high > 1 ? "s" : "");
}

static void draw_types(struct canvas *c, const struct types *x)
{
    double h = canvas_height(c) - TOP - BOTTOM;
    int fit = (int)fmax(1, h / MIN_ROW);
    struct forest f = {x->fraction, x->n < fit ? x->n : fit, NAN, NAN, 0, 0};
    struct forest g = {x->depth, f.n, NAN, NAN, 0, 0};
    char more[64];
    forest_measure(c, &f, canvas_width(c) * .24);
    double w = (canvas_width(c) - f.names - f.notes - 2 * GAP - 6) / 2;
    struct axis_box a = {.x = f.names + 3,
                         .y = TOP,
                         .w = w,
                         .h = fmin(h, f.n * 2 * ROW),
                         .x1 = x->most > 0 ? fmin(1, 1.05 * x->most) : 1};
    a.x0 = -.02 * a.x1; /* the frame must not cut marks at 0 */
    panel(c, &f, &a, "fraction of the heads");
    a.x += w + f.notes + GAP;
    a.x0 = -.02;
    a.x1 = 1.02;
    panel(c, &g, &a, "depth: 0 = first layer");
    snprintf(more, sizeof more, "%d more rows not shown", x->n - f.n);
    if (x->n > f.n)
        canvas_text(c, 2, canvas_height(c) - 2, more, PT_SMALL, ALIGN_LEFT, ink, 0);
    note_documents(x, more, sizeof more);
    canvas_text(c, canvas_width(c) - 2, canvas_height(c) - 1.6, more, PT_SMALL, ALIGN_RIGHT, quiet,
                0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct types x;
    (void)s;
    int err = read_types(t, &x);
    if (!err)
        err = canvas_room(c, "head-types", 130, TOP + BOTTOM + 3 * MIN_ROW, d);
    if (!err)
        draw_types(c, &x);
    free_types(&x);
    return err;
}

const struct figure fig_head_types = {
    .name = "head-types",
    .table = "head-types",
    .summary = "fraction and depth of each head type in several models, with intervals",
    .needs = "model:text kind:text fraction low high depth depth_low depth_high",
    .size = size,
    .draw = draw,
};
