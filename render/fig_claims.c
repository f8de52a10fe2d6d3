/* fig_claims.c - the claims of a register: the statistic with its interval against the null,
 * sorted by paper.  Statistics have different units, so each row has a scale of its own: the
 * null in the middle, the claimed side right, the farthest of value and interval at the rim. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/forest.h"
#include "render/cells.h"

enum { TOP = 9, BOTTOM = 6, VERDICTS = 4 };
static const double ROW = 4.2, LEAST_ROW = 3.2, RIM = 1.08;
static const char *const verdicts[VERDICTS] = {"supported", "contradicted", "undecided",
                                               "unspecific"};

struct register_view {
    struct forest_row *row;
    int n, n_of[VERDICTS], not_comparable, rest;
};

static int verdict_of(const struct table *t, int64_t r)
{
    char cell[24];
    const char *v = cell_text(t, table_find(t, "verdict"), r, cell);
    for (int k = 0; k < VERDICTS; k++)
        if (strcmp(v, verdicts[k]) == 0)
            return k;
    return VERDICTS;
}

static struct rgb colour_of(int verdict)
{
    return verdict == 2 ? (struct rgb){.5, .5, .5} : palette_line(verdict);
}

static enum mark mark_of(int verdict)
{
    static const enum mark marks[VERDICTS] = {MARK_DISC, MARK_DIAMOND, MARK_RING, MARK_SQUARE};
    return marks[verdict];
}

static double number(const struct table *t, const char *name, int64_t r)
{
    return table_real(t, table_find(t, name), r);
}

/* Where a value stands in its row: 0 at the null, positive on the side that is claimed.  Where the
 * claim is that the value lies between two ends, the claimed side is that within, and the place is
 * the distance to the nearer end. */
static double place(double v, const char *than, double null, double high)
{
    if (strcmp(than, "between") == 0)
        return fmin(v - null, high - v);
    return strcmp(than, "<") == 0 ? null - v : v - null;
}

static struct forest_row row_of(const struct table *t, int64_t r, int verdict)
{
    char cell[24], than_cell[24];
    const char *than = cell_text(t, table_find(t, "than"), r, than_cell);
    double null = number(t, "null", r), high = number(t, "null_high", r), v = number(t, "value", r);
    double a = number(t, "low", r), b = number(t, "high", r);
    bool between = strcmp(than, "between") == 0;
    struct forest_row x = {.value = place(v, than, null, high),
                           .colour = colour_of(verdict),
                           .mark = mark_of(verdict)};
    double low = place(a, than, null, high), top = place(b, than, null, high);
    x.low = fmin(fmin(low, top), x.value);
    x.high = fmax(fmax(low, top), x.value);
    if (isnan(a) || isnan(b))
        x.low = x.high = NAN;
    double most = fmax(fabs(x.value), fmax(fabs(x.low), fabs(x.high)));
    double scale = most > 0 && isfinite(most) ? 1 / most : 1;
    x.value *= scale;
    x.low *= scale;
    x.high *= scale;
    snprintf(x.name, sizeof x.name, "%.90s", cell_text(t, table_find(t, "id"), r, cell));
    int n = snprintf(x.note, sizeof x.note, "%.3g", v);
    if (!isnan(a))
        n += snprintf(x.note + n, sizeof x.note - (size_t)n, " (%.3g .. %.3g)", a, b);
    if (between)
        snprintf(x.note + n, sizeof x.note - (size_t)n, " in %.3g .. %.3g", null, high);
    else
        snprintf(x.note + n, sizeof x.note - (size_t)n, " %.2s %.3g", than, null);
    minus_signs(x.note, sizeof x.note);
    return x;
}

static void add_claim(struct register_view *x, const struct table *t, int64_t r)
{
    int v = verdict_of(t, r);
    if (v == VERDICTS) {
        char cell[24];
        const char *said = cell_text(t, table_find(t, "verdict"), r, cell);
        if (strcmp(said, "not comparable here") == 0)
            x->not_comparable++;
        else
            x->rest++;
        return;
    }
    x->n_of[v]++;
    x->row[x->n++] = row_of(t, r, v);
}

/* Adds a heading for the paper of row r, and below it all claims of that paper from row r on. */
static void add_paper(struct register_view *x, const struct table *t, int64_t r, char *done)
{
    int paper = table_find(t, "paper"), head = x->n++;
    char one[24], other[24];
    const char *name = cell_text(t, paper, r, one);
    x->row[head] = (struct forest_row){.heading = true, .value = NAN};
    snprintf(x->row[head].name, sizeof x->row[head].name, "%.90s", name);
    for (int64_t k = r; k < table_rows(t); k++)
        if (!done[k] && strcmp(cell_text(t, paper, k, other), name) == 0) {
            done[k] = 1;
            add_claim(x, t, k);
        }
    if (x->n == head + 1)
        x->n = head; /* none was judged */
}

static int read_register(const struct table *t, struct register_view *x)
{
    size_t n = (size_t)table_rows(t);
    *x = (struct register_view){.n = 0};
    x->row = mem_alloc(2 * n, sizeof *x->row);
    char *done = MEM_NEW(char, n);
    for (size_t r = 0; x->row && done && r < n; r++)
        if (!done[r])
            add_paper(x, t, (int64_t)r, done);
    mem_free(done);
    return x->row && done ? KVF_OK : KVF_E_NOMEM;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct register_view x;
    int n = read_register(t, &x) == KVF_OK ? x.n : 1;
    (void)s;
    mem_free(x.row);
    *w = 180;
    *h = fmin(320, TOP + BOTTOM + ROW * fmax(n, 4));
}

static void key(struct canvas *c, const struct register_view *x, double left)
{
    char text[64];
    for (int k = 0; k < VERDICTS; k++) {
        snprintf(text, sizeof text, "%s (%d)", verdicts[k], x->n_of[k]);
        mark_draw(c, mark_of(k), left + 1, 2.4, 1.7, colour_of(k));
        canvas_text(c, left + 3, 2.4, text, PT_TICK, ALIGN_LEFT, ink, 0);
        left += 7 + canvas_text_width(c, text, PT_TICK, 0);
    }
    if (x->rest + x->not_comparable) {
        snprintf(text, sizeof text, "not comparable (%d), not judged (%d)", x->not_comparable,
                 x->rest);
        canvas_text(c, left, 2.4, text, PT_TICK, ALIGN_LEFT, quiet, 0);
    }
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)s;
    struct register_view x = {.n = 0};
    char more[48];
    int err = read_register(t, &x);
    if (!err)
        err = canvas_room(c, "claims", 130, TOP + BOTTOM + 4 * LEAST_ROW, d);
    if (err) {
        mem_free(x.row);
        return err;
    }
    double h = canvas_height(c) - TOP - BOTTOM;
    int fit = (int)fmax(1, h / LEAST_ROW);
    struct forest f = {x.row, x.n < fit ? x.n : fit, 0, 0, 0, 0};
    forest_measure(c, &f, canvas_width(c) * .36);
    struct axis_box a = {.x = f.names + 3,
                         .y = TOP,
                         .h = fmin(h, f.n * 2 * ROW),
                         .x0 = -RIM,
                         .x1 = RIM,
                         .w = canvas_width(c) - f.names - f.notes - 6};
    forest_draw(c, &a, &f);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    canvas_text(c, a.x + a.w / 2, a.y - 1.8,
                "\xe2\x86\x90 against   null   as claimed \xe2\x86\x92", PT_TICK, ALIGN_CENTER, ink,
                0);
    double wide = canvas_text_width(c, "value (95 %)", PT_TICK, 0);
    canvas_text(c, fmin(a.x + a.w + 1.5, canvas_width(c) - wide - 0.5), a.y - 1.8, "value (95 %)",
                PT_TICK, ALIGN_LEFT, ink, 0);
    key(c, &x, 2);
    canvas_text(c, a.x + a.w / 2, a.y + a.h + 2.6, "each row on its own scale", PT_SMALL,
                ALIGN_CENTER, (struct rgb){.35, .35, .35}, 0);
    snprintf(more, sizeof more, "%d more rows not shown", x.n - f.n);
    if (x.n > f.n)
        canvas_text(c, 2, a.y + a.h + 2.6, more, PT_SMALL, ALIGN_LEFT, ink, 0);
    mem_free(x.row);
    return KVF_OK;
}

static const struct figure_column needs[] = {{"id", COLUMN_EITHER},        {"paper", COLUMN_TEXT},
                                             {"verdict", COLUMN_TEXT},     {"than", COLUMN_TEXT},
                                             {"value", COLUMN_NUMBER},     {"low", COLUMN_NUMBER},
                                             {"high", COLUMN_NUMBER},      {"null", COLUMN_NUMBER},
                                             {"null_high", COLUMN_NUMBER}, {NULL, COLUMN_NUMBER}};

const struct figure fig_claims = {
    .name = "claims",
    .table = "claims",
    .summary = "claims of a register: statistics with intervals against their nulls",
    .needs = needs,
    .size = size,
    .draw = draw,
};
