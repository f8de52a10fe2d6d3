/* fig_head_types.c - draws the fraction and the depth of each head type in several models, with
 * intervals over documents.  The note names types with less than FEW of the heads of every model,
 * which have no rows. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/forest.h"
#include "render/note.h"

enum { TOP = 2, BOTTOM = 9, GAP = 5, NOTES = 4 };
static const double ROW = 3.4, MIN_ROW = 2.9, NOTE = 2.7, FEW = .01;

struct types {
    struct forest_row *fraction, *depth; /* [n] */
    char (*type)[CELL_TEXT];             /* [n]: name of the type that begins at a row, or "" */
    int n;
    char few[160];       /* names of the types without rows */
    bool no_depth;       /* a model with few heads of a type has no depth */
    bool no_bar;         /* a depth has no interval, although its fraction has one */
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

/* Adds a row: of a model, or named after the type if the table has one model. */
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
    bool few = row.value < FEW;
    x->depth[x->n].value = few ? NAN : number(t, "depth", r);
    x->depth[x->n].low = few ? NAN : number(t, "depth_low", r);
    x->depth[x->n].high = few ? NAN : number(t, "depth_high", r);
    x->no_depth |= few;
    x->no_bar |= isfinite(x->depth[x->n].value) && isnan(x->depth[x->n].low) && isfinite(row.low);
    snprintf(row.name, sizeof row.name, "%.90s", cell_text(t, model, r, cell));
    if (isnan(row.low))
        snprintf(row.note, sizeof row.note, "%.3f", row.value);
    else
        snprintf(row.note, sizeof row.note, "%.3f (%.3f .. %.3f)", row.value, row.low, row.high);
    x->fraction[x->n++] = row;
}

/* Adds the models of the type of row r, or its name to the types without rows. */
static void add_type(struct types *x, const struct table *t, int64_t r)
{
    char cell[CELL_TEXT];
    int kind = table_find(t, "kind");
    const char *name = cell_text(t, kind, r, cell);
    double most = 0;
    size_t n = strlen(x->few);
    for (int64_t k = r; k < table_rows(t); k++)
        if (first_of(t, kind, k) == r)
            most = fmax(most, number(t, "fraction", k)); /* ignores NaN */
    if (most < FEW) {
        if (most > 0)
            snprintf(x->few + n, sizeof x->few - n, "%s%.60s", n ? ", " : "", name);
        return;
    }
    if (!x->single)
        snprintf(x->type[x->n], sizeof x->type[x->n], "%s", name);
    for (int64_t k = r; k < table_rows(t); k++)
        if (first_of(t, kind, k) == r)
            add_model(x, t, k);
}

static int read_types(const struct table *t, struct types *x)
{
    int kind = table_find(t, "kind");
    *x = (struct types){.documents = {INFINITY, 0}};
    size_t rows = (size_t)table_rows(t);
    x->single = rank_of(t, table_find(t, "model"), table_rows(t)) == 1;
    x->fraction = mem_alloc(rows, sizeof *x->fraction);
    x->depth = mem_alloc(rows, sizeof *x->depth);
    x->type = mem_alloc(rows, sizeof *x->type);
    if (!x->fraction || !x->depth || !x->type)
        return KVF_E_NOMEM;
    memset(x->type, 0, rows * sizeof *x->type);
    for (int64_t r = 0; r < table_rows(t); r++)
        if (first_of(t, kind, r) == r)
            add_type(x, t, r);
    return KVF_OK;
}

static void free_types(struct types *x)
{
    mem_free_all(x->fraction, x->depth, x->type);
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct types x;
    (void)s;
    int n = read_types(t, &x) == KVF_OK ? x.n : 1;
    free_types(&x);
    *w = 180;
    *h = fmin(320, TOP + BOTTOM + 2 * NOTE + ROW * fmax(n, 3));
}

/* Draws the forest of one quantity in a box, with its axis. */
static void panel(struct canvas *c, const struct forest *f, struct axis_box *a, const char *name)
{
    forest_draw(c, a, f);
    axis_ticks_x(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    canvas_text(c, a->x + a->w / 2, a->y + a->h + 6.2, name, PT_LABEL, ALIGN_CENTER, ink, 0);
}

/* Writes the note: the model of a table with one, the documents, and the types without rows. */
static void write_note(const struct types *x, const struct table *t, int shown,
                       char note[NOTE_TEXT])
{
    double low = x->documents[0], high = x->documents[1];
    const char *layers = table_meta(t, "layers"), *heads = table_meta(t, "query_heads");
    char cell[CELL_TEXT];
    int n = 0;
    if (x->single)
        n = snprintf(note, NOTE_TEXT, "%.60s; ", cell_text(t, table_find(t, "model"), 0, cell));
    if (high >= STATS_LEAST)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "bars: 95 %% CI over documents; ");
    if (x->single && layers && heads && high > 0)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "n = %ld heads in ",
                      strtol(layers, NULL, 10) * strtol(heads, NULL, 10));
    else if (high > 0)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "n = ");
    if (high > 0 && low < high)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "%.0f to %.0f documents; ", low, high);
    else if (high > 0)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "%.0f document%s; ", high,
                      high > 1 ? "s" : "");
    if (x->no_bar)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "no bar: too few documents have the type; ");
    if (x->no_depth)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "depth: of types from 1 %% on; ");
    if (*x->few)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "below 1 %% and not shown: %s; ", x->few);
    if (x->n > shown)
        n += snprintf(note + n, NOTE_TEXT - (size_t)n, "%d more rows not shown; ", x->n - shown);
    note[n > 2 ? n - 2 : 0] = 0;
}

/* Writes the names of the types left of their models, with lines between the types. */
static void draw_names(struct canvas *c, const struct types *x, int shown, const struct axis_box *a,
                       double right)
{
    for (int i = 0; i < shown; i++) {
        double y = a->y + i * a->h / shown;
        const double xy[] = {1.5, y, right, y};
        if (!x->type[i][0])
            continue;
        canvas_text(c, 1.5, y + a->h / shown / 2, x->type[i], PT_LABEL, ALIGN_LEFT, ink, 0);
        if (i)
            canvas_line(c, xy, 2, .12, quiet);
    }
}

static void draw_types(struct canvas *c, const struct types *x, const struct table *t)
{
    char note[NOTE_TEXT];
    double types = 0, h = canvas_height(c) - TOP - BOTTOM - 2 * NOTE;
    int fit = (int)fmax(1, h / MIN_ROW);
    struct forest f = {x->fraction, x->n < fit ? x->n : fit, NAN, NAN, 0, 0};
    struct forest g = {x->depth, f.n, NAN, NAN, 0, 0};
    forest_measure(c, &f, canvas_width(c) * .24);
    for (int i = 0; i < f.n; i++)
        types = fmax(types, canvas_text_width(c, x->type[i], PT_LABEL, 0) + 2);
    types = x->single ? 0 : types;
    double w = (canvas_width(c) - types - f.names - f.notes - 2 * GAP - 6) / 2;
    struct axis_box a = {.x = types + f.names + 3,
                         .y = TOP,
                         .w = w,
                         .h = fmin(h, f.n * 2 * ROW),
                         .x1 = x->most > 0 ? fmin(1, 1.05 * x->most) : 1};
    a.x0 = -.02 * a.x1; /* the frame must not cut marks at 0 */
    panel(c, &f, &a, "fraction of the heads");
    draw_names(c, x, f.n, &a, 2 * (a.x + w) + f.notes + GAP - a.x);
    a.x += w + f.notes + GAP;
    a.x0 = -.02;
    a.x1 = 1.02;
    panel(c, &g, &a, "mean depth (0: first layer, 1: last)");
    write_note(x, t, f.n, note);
    struct note at = {1.5, canvas_width(c) - 1.5, canvas_width(c) / 2, .pitch = NOTE,
                      .most = NOTES};
    note_draw_up(c, &at, canvas_height(c) - 2.2, note);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct types x;
    (void)s;
    int err = read_types(t, &x);
    if (!err)
        err = canvas_room(c, "head-types", 130, TOP + BOTTOM + 2 * NOTE + 3 * MIN_ROW, d);
    if (!err)
        draw_types(c, &x, t);
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
