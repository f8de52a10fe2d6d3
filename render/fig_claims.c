/* fig_claims.c - draws the claims of a register as a forest plot, sorted by paper: each statistic
 * with its interval against the null.
 *
 * Statistics have different units, so each row has its own scale.  The null is in the middle and
 * the claimed side on the right.  The farther of value and interval end is at the edge. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/forest.h"
#include "render/cells.h"

enum { TOP = 9, BOTTOM = 6, VERDICTS = 5, CLAIM = 40 };
static const double ROW = 4.2, MIN_ROW = 3.2, RIM = 1.08;
static const char *const verdicts[VERDICTS] = {"supported", "contradicted", "undecided",
                                               "unspecific", "unguarded"};
static const char *const verdict_words[VERDICTS] = {
    "supported", "contradicted", "undecided", "also true of null data", "true, null data missing"};

struct register_view {
    struct forest_row *row;
    char (*claim)[CLAIM]; /* one per row: "> 0.2" */
    int *verdict;         /* one per row */
    int n, n_of[VERDICTS], not_comparable, rest;
    double documents[2]; /* the smallest and the largest number behind a row */
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
    static const enum mark marks[VERDICTS] = {MARK_DISC, MARK_DIAMOND, MARK_RING, MARK_SQUARE,
                                              MARK_TRIANGLE};
    return marks[verdict];
}

static double number(const struct table *t, const char *name, int64_t r)
{
    return table_real(t, table_find(t, name), r);
}

/* Returns the position of a value in its row: 0 at the null, positive on the claimed side.  For a
 * claim of a value between two ends, the claimed side is the inside, and the position is the
 * distance to the nearer end. */
static double place(double v, const char *than, double null, double high)
{
    if (strcmp(than, "between") == 0)
        return fmin(v - null, high - v);
    return strcmp(than, "<") == 0 ? null - v : v - null;
}

/* Writes a value and its interval, rounded to two digits of the interval's width. */
static void value_text(double v, double low, double high, char out[96])
{
    double width = high - low;
    int places = width > 0 && isfinite(width) ? (int)ceil(1 - log10(width) - 1e-9) : -1;
    places = places > 6 ? 6 : places;
    if (isnan(low))
        snprintf(out, 96, "%.3g", v);
    else if (places < 0 || fabs(v) >= 1e6)
        snprintf(out, 96, "%.3g (%.3g .. %.3g)", v, low, high);
    else
        snprintf(out, 96, "%.*f (%.*f .. %.*f)", places, v, places, low, places, high);
    minus_signs(out, 96);
}

/* Returns the row of a claim, and writes the claimed range of the value to claim. */
static struct forest_row row_of(const struct table *t, int64_t r, int verdict, char claim[CLAIM])
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
    int titles = table_find(t, "title");
    const char *title = titles < 0 ? "" : cell_text(t, titles, r, cell);
    snprintf(x.name, sizeof x.name, "%.90s",
             *title ? title : cell_text(t, table_find(t, "id"), r, cell));
    for (char *p = x.name; *p && !*title; p++)
        *p = *p == '-' ? ' ' : *p;
    value_text(v, a, b, x.note);
    if (between)
        snprintf(claim, CLAIM, "in %.3g .. %.3g", null, high);
    else
        snprintf(claim, CLAIM, "%.2s %.3g", than, null);
    minus_signs(claim, CLAIM);
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
    int column = numeric_column(t, "documents");
    double documents = column < 0 ? 0 : table_real(t, column, r);
    if (documents > 0) {
        x->documents[0] = fmin(x->documents[0], documents);
        x->documents[1] = fmax(x->documents[1], documents);
    }
    x->n_of[v]++;
    x->row[x->n] = row_of(t, r, v, x->claim[x->n]);
    x->verdict[x->n++] = v;
}

/* Sorts the rows from index `from` on by verdict.  The sort is stable. */
static void sort_rows(struct register_view *x, int from)
{
    char claim[CLAIM];
    for (int i = from + 1; i < x->n; i++)
        for (int k = i; k > from && x->verdict[k] < x->verdict[k - 1]; k--) {
            struct forest_row row = x->row[k];
            int verdict = x->verdict[k];
            memcpy(claim, x->claim[k], CLAIM);
            x->row[k] = x->row[k - 1];
            x->verdict[k] = x->verdict[k - 1];
            memcpy(x->claim[k], x->claim[k - 1], CLAIM);
            x->row[k - 1] = row;
            x->verdict[k - 1] = verdict;
            memcpy(x->claim[k - 1], claim, CLAIM);
        }
}

/* Adds a heading for the paper of row r, then all its claims from row r on. */
static void add_paper(struct register_view *x, const struct table *t, int64_t r, char *done)
{
    int paper = table_find(t, "paper"), heading_row = x->n++;
    char one[24], other[24];
    const char *name = cell_text(t, paper, r, one);
    x->row[heading_row] = (struct forest_row){.heading = true, .value = NAN};
    snprintf(x->row[heading_row].name, sizeof x->row[heading_row].name, "%.90s", name);
    for (int64_t k = r; k < table_rows(t); k++)
        if (!done[k] && strcmp(cell_text(t, paper, k, other), name) == 0) {
            done[k] = 1;
            add_claim(x, t, k);
        }
    if (x->n == heading_row + 1)
        x->n = heading_row; /* no claim was tested */
    else
        sort_rows(x, heading_row + 1);
}

static int read_register(const struct table *t, struct register_view *x)
{
    size_t n = (size_t)table_rows(t);
    *x = (struct register_view){.documents = {INFINITY, 0}};
    x->row = mem_alloc(2 * n, sizeof *x->row);
    x->claim = mem_alloc(2 * n, sizeof *x->claim);
    x->verdict = mem_alloc(2 * n, sizeof *x->verdict);
    bool room = x->row && x->claim && x->verdict;
    char *done = MEM_NEW(char, n);
    for (size_t r = 0; room && done && r < n; r++)
        if (!done[r])
            add_paper(x, t, (int64_t)r, done);
    mem_free(done);
    return room && done ? KVF_OK : KVF_E_NOMEM;
}

static void free_register(struct register_view *x)
{
    mem_free_all(x->row, x->claim, x->verdict);
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct register_view x;
    int n = read_register(t, &x) == KVF_OK ? x.n : 1;
    (void)s;
    free_register(&x);
    *w = 180;
    *h = fmin(320, TOP + BOTTOM + ROW * fmax(n, 4));
}

static void key(struct canvas *c, const struct register_view *x, double left)
{
    char text[64];
    for (int k = 0; k < VERDICTS; k++) {
        if (!x->n_of[k])
            continue;
        snprintf(text, sizeof text, "%s (%d)", verdict_words[k], x->n_of[k]);
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

/* Returns the number of rows with this verdict below the heading `head`. */
static int count_of(const struct register_view *x, int heading_row, int verdict)
{
    int n = 0;
    for (int i = heading_row + 1; i < x->n && !x->row[i].heading; i++)
        n += x->verdict[i] == verdict;
    return n;
}

/* Writes the number of claims per verdict next to the name of a paper. */
static void draw_counts(struct canvas *c, const struct axis_box *a, const struct register_view *x,
                        int rows)
{
    char text[16];
    for (int i = 0; i < rows; i++) {
        double y = a->y + (i + .5) * a->h / rows, left = a->x + 2;
        for (int k = 0; x->row[i].heading && k < VERDICTS; k++) {
            int n = count_of(x, i, k);
            snprintf(text, sizeof text, "%d", n);
            if (!n || left > a->x + a->w / 2 - 6)
                continue;
            mark_draw(c, mark_of(k), left, y, 1.7, colour_of(k));
            canvas_text(c, left + 1.6, y, text, PT_TICK, ALIGN_LEFT, ink, 0);
            left += 4.6 + canvas_text_width(c, text, PT_TICK, 0);
        }
    }
}

/* Writes the claimed range of each value at the right. */
static void draw_claims(struct canvas *c, const struct axis_box *a, const struct register_view *x,
                        int rows, double room)
{
    char fit[CLAIM + 4];
    double right = canvas_width(c) - 1;
    for (int i = 0; i < rows; i++)
        if (!x->row[i].heading)
            canvas_text(c, right, a->y + (i + .5) * a->h / rows,
                        text_fit(c, x->claim[i], PT_TICK, room + .01, fit, sizeof fit), PT_TICK,
                        ALIGN_RIGHT, ink, 0);
    canvas_text(c, right, a->y - 1.8, "claimed", PT_TICK, ALIGN_RIGHT, ink, 0);
}

static double claims_width(struct canvas *c, const struct register_view *x)
{
    double w = canvas_text_width(c, "claimed", PT_TICK, 0);
    for (int i = 0; i < x->n; i++)
        w = fmax(w, canvas_text_width(c, x->claim[i], PT_TICK, 0));
    return fmin(w, .16 * canvas_width(c));
}

static void draw_register(struct canvas *c, const struct register_view *x)
{
    char more[96];
    double h = canvas_height(c) - TOP - BOTTOM, claims = claims_width(c, x);
    int fit = (int)fmax(1, h / MIN_ROW);
    struct forest f = {x->row, x->n < fit ? x->n : fit, 0, 0, 0, 0};
    forest_measure(c, &f, canvas_width(c) * .31);
    f.notes = fmax(f.notes, canvas_text_width(c, "value (95 % CI)", PT_TICK, 0));
    struct axis_box a = {.x = f.names + 3,
                         .y = TOP,
                         .h = fmin(h, f.n * 2 * ROW),
                         .x0 = -RIM,
                         .x1 = RIM,
                         .w = canvas_width(c) - f.names - f.notes - claims - 9};
    double middle = a.x + a.w / 2;
    forest_draw(c, &a, &f);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    draw_counts(c, &a, x, f.n);
    draw_claims(c, &a, x, f.n, claims);
    const char *sides = "\xe2\x86\x90 against   null   as claimed \xe2\x86\x92";
    canvas_text(c, middle, a.y - 1.8, sides, PT_TICK, ALIGN_CENTER, ink, 0);
    canvas_text(c, a.x + a.w + 1.5, a.y - 1.8, "value (95 % CI)", PT_TICK, ALIGN_LEFT, ink, 0);
    key(c, x, 2);
    int n = snprintf(more, sizeof more, "each row on its own scale");
    if (x->documents[0] < x->documents[1])
        snprintf(more + n, sizeof more - (size_t)n, "; n = %.0f to %.0f documents", x->documents[0],
                 x->documents[1]);
    else if (x->documents[1] > 0)
        snprintf(more + n, sizeof more - (size_t)n, "; n = %.0f documents", x->documents[1]);
    canvas_text(c, middle, a.y + a.h + 2.6, more, PT_SMALL, ALIGN_CENTER, quiet, 0);
    snprintf(more, sizeof more, "%d more rows not shown", x->n - f.n);
    if (x->n > f.n)
        canvas_text(c, 2, a.y + a.h + 2.6, more, PT_SMALL, ALIGN_LEFT, ink, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)s;
    struct register_view x = {.n = 0};
    int err = read_register(t, &x);
    if (!err)
        err = canvas_room(c, "claims", 130, TOP + BOTTOM + 4 * MIN_ROW, d);
    if (!err)
        draw_register(c, &x);
    free_register(&x);
    return err;
}

const struct figure fig_claims = {
    .name = "claims",
    .table = "claims",
    .summary = "claims of a register: statistics with intervals against their nulls",
    .needs = "id:either paper:text verdict:text than:text value low high null null_high",
    .size = size,
    .draw = draw,
};
