/* fig_tokens_sets.c - draws which entries several runs keep in common at the end, as an UpSet plot.
 *
 * There is a bar per combination of runs and a filled dot for each run that keeps the entries.  A
 * line shows the count expected by chance, if runs of these sizes chose independently.  Bars of
 * ABOVE times that or more are dark and have the quotient.  Next to the names are the sizes of the
 * runs, unless they are equal.  A table of all heads counts tokens that at least half of the heads
 * keep. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/identity.h"

enum { SETS = 8, MASKS = 1 << SETS, NAME_BYTES = 64 };
static const double ROW = 4.2, COLUMN = 6, MIN_COLUMN = 3.4, NAMES = 24, SIZES = 18, TOP = 5,
                    BARS = 26, BOTTOM = 3, LEFT = 12, MIN_BARS = 18, NOTE_W = 33;
static const double ABOVE = 1.1; /* quotient from which a bar is dark */
static const struct rgb dark = {.33, .37, .44};

struct sets_style {
    int64_t top;
};

struct sets {
    int n;
    char name[SETS][NAME_BYTES];
    struct identity look[SETS];
    bool tokens; /* rows are of all heads */
    bool equal;  /* all runs have the same size */
    int64_t items, size[SETS], count[MASKS];
    int order[MASKS], shown; /* drawn combinations */
};

static void name_set(const struct table *t, int trace, int64_t row, char out[NAME_BYTES])
{
    char key[32];
    snprintf(key, sizeof key, "trace_%d", (int)table_int(t, trace, row));
    const char *name = table_meta(t, key) ? table_meta(t, key) : table_meta(t, "method");
    snprintf(out, NAME_BYTES, "%.60s", name ? name : key);
}

/* Finds the rows of each trace.  All traces have as many rows as the first, in the same order of
 * heads and tokens. */
static int find_sets(const struct table *t, int64_t *start, struct sets *x, struct kvf_diag *d)
{
    int trace = table_find(t, "trace");
    int64_t rows = table_rows(t);
    for (int64_t r = 0; r < rows; r++) {
        if (r && table_int(t, trace, r) == table_int(t, trace, r - 1))
            continue;
        if (x->n == SETS)
            return kvf_fail(d, KVF_E_ARG, "figure tokens-sets: at most %d traces", SETS);
        name_set(t, trace, r, x->name[x->n]);
        start[x->n++] = r;
    }
    start[x->n] = rows;
    x->items = start[1] - start[0];
    for (int k = 1; k < x->n; k++)
        x->items = start[k + 1] - start[k] < x->items ? start[k + 1] - start[k] : x->items;
    return KVF_OK;
}

static int larger(const struct sets *x, int a, int b)
{
    return x->count[a] != x->count[b] ? x->count[a] > x->count[b] : a < b;
}

/* Sorts the largest combinations, without the empty one. */
static void sort_masks(struct sets *x, int64_t most)
{
    for (int mask = 1; mask < 1 << x->n; mask++) {
        int at = x->shown;
        if (!x->count[mask] || (at == most && !larger(x, mask, x->order[at - 1])))
            continue;
        at -= at == most;
        for (; at > 0 && larger(x, mask, x->order[at - 1]); at--)
            x->order[at] = x->order[at - 1];
        x->order[at] = mask;
        x->shown += x->shown < most;
    }
}

static int read_sets(const struct table *t, const struct figure_style *s, struct sets *x,
                     struct kvf_diag *d)
{
    int kept = table_find(t, "kept"), token = table_find(t, "token");
    int head = table_find(t, "head");
    char cell[24];
    x->tokens = head >= 0 && table_rows(t) > 0 && strcmp(cell_text(t, head, 0, cell), "all") == 0;
    int64_t start[SETS + 1] = {0}, items = 0;
    int err = find_sets(t, start, x, d);
    for (int64_t i = 0; !err && i < x->items; i++) {
        int mask = 0;
        bool all = true;
        for (int k = 0; k < x->n; k++) {
            double v = table_real(t, kept, start[k] + i);
            all = all && !isnan(v)
                  && table_real(t, token, start[k] + i) == table_real(t, token, start[0] + i);
            mask |= v >= .5 ? 1 << k : 0;
        }
        if (!all)
            continue;
        items++;
        x->count[mask]++;
        for (int k = 0; k < x->n; k++)
            x->size[k] += mask >> k & 1;
    }
    x->items = items;
    x->equal = true;
    for (int k = 1; k < x->n; k++)
        x->equal &= x->size[k] == x->size[0];
    const char *name[SETS];
    for (int k = 0; k < x->n; k++)
        name[k] = x->name[k];
    identity_of_methods(x->n, name, x->look);
    sort_masks(x, ((const struct sets_style *)s->own)->top);
    return err;
}

static double by_chance(const struct sets *x, int mask)
{
    double n = (double)x->items;
    for (int k = 0; k < x->n && x->items; k++) {
        double p = (double)x->size[k] / (double)x->items;
        n *= mask >> k & 1 ? p : 1 - p;
    }
    return n;
}

/* Returns the width in mm of the names, with the bars of sizes.  The note is above them. */
static double names_width(const struct sets *x)
{
    return x->equal ? NOTE_W : NAMES + SIZES;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct sets *x = MEM_NEW(struct sets, 1);
    *w = 88;
    *h = 60;
    if (x && read_sets(t, s, x, NULL) == KVF_OK) {
        *w = fmax(70, names_width(x) + LEFT + COLUMN * fmax(x->shown, 4) + 3);
        *h = TOP + BARS + 2 + ROW * x->n + BOTTOM;
    }
    mem_free(x);
}

/* ---- drawing */

struct place {
    double x, y, column, row, matrix; /* the dot matrix begins at x and `matrix` */
    struct axis_box bars;
};

static void draw_names(struct canvas *c, const struct sets *x, const struct place *p)
{
    double most = 1, names = x->equal ? NOTE_W : NAMES;
    for (int k = 0; k < x->n; k++)
        most = fmax(most, (double)x->size[k]);
    for (int k = 0; k < x->n; k++) {
        double y = p->matrix + (k + .5) * p->row, w = (SIZES - 10) * (double)x->size[k] / most;
        char fit[NAME_BYTES + 8], number[24];
        struct rgb colour = x->look[k].colour;
        if (k % 2 == 0)
            canvas_rect(c, p->x - .5, y - p->row / 2, p->column * x->shown + 1, p->row,
                        (struct rgb){.95, .95, .96});
        canvas_text(c, names - 1, y, text_fit(c, x->name[k], PT_TICK, names - 2, fit, sizeof fit),
                    PT_TICK, ALIGN_RIGHT, ink, 0);
        if (x->equal)
            continue;
        canvas_rect(c, NAMES, y - .3 * p->row, w, .6 * p->row, colour);
        tick_text((double)x->size[k], number);
        canvas_text(c, NAMES + w + .8, y, number, PT_SMALL, ALIGN_LEFT, ink, 0);
    }
}

static void draw_combination(struct canvas *c, const struct sets *x, const struct place *p, int i)
{
    int mask = x->order[i], first = -1, last = -1;
    double at = p->x + (i + .5) * p->column, top = axis_y(&p->bars, (double)x->count[mask]);
    double chance = fmin(by_chance(x, mask), p->bars.y1), y = axis_y(&p->bars, chance);
    double half = .32 * p->column;
    const double tick[] = {at - half - .5, y, at + half + .5, y};
    double ratio = (double)x->count[mask] / by_chance(x, mask);
    bool above = x->n > 1 && ratio >= ABOVE;
    char times[24];
    canvas_rect(c, at - half, top, 2 * half, p->bars.y + p->bars.h - top,
                above ? dark : (struct rgb){.72, .73, .76});
    canvas_line(c, tick, 2, 0.4, ink);
    if (above) {
        snprintf(times, sizeof times, ratio < 9.95 ? "%.1f\xc3\x97" : "%.0f\xc3\x97", ratio);
        canvas_text(c, at, top - 1.4, times, PT_SMALL, ALIGN_CENTER, ink, 0);
    }
    for (int k = 0; k < x->n; k++) {
        bool in = mask >> k & 1;
        first = in && first < 0 ? k : first;
        last = in ? k : last;
    }
    const double join[] = {at, p->matrix + (first + .5) * p->row, at,
                           p->matrix + (last + .5) * p->row};
    canvas_line(c, join, 2, 0.35, ink);
    for (int k = 0; k < x->n; k++) {
        bool in = mask >> k & 1;
        struct rgb colour = in ? x->look[k].colour : (struct rgb){.8, .8, .82};
        canvas_disc(c, at, p->matrix + (k + .5) * p->row, in ? 1.05 : .6, 0, colour);
    }
}

/* Draws the note above the names, in short lines. */
static void draw_note(struct canvas *c, const struct sets *x, const struct table *t)
{
    enum { LINES = 7 };
    char note[LINES][64], fit[64], number[24];
    const char *model = table_meta(t, "model"), *heads = table_meta(t, "heads");
    const char *range = table_meta(t, "tokens");
    double tokens = table_meta_real(t, "T", 0);
    int n = 0, all = 0;
    for (int mask = 1; mask < 1 << x->n; mask++)
        all += x->count[mask] > 0;
    if (model)
        snprintf(note[n++], sizeof *note, "%.60s", model);
    if (tokens > 0 && (range || !x->tokens)) {
        tick_text(tokens, number);
        if (range)
            snprintf(note[n++], sizeof *note, "tokens %.20s of %s", range, number);
        else
            snprintf(note[n++], sizeof *note, "text of %s tokens", number);
    }
    tick_text((double)x->items, number);
    snprintf(note[n], sizeof *note, "%s %s", number, x->tokens ? "tokens" : "entries");
    if (heads && !x->tokens)
        snprintf(note[n] + strlen(note[n]), 24, " in %.12s head%s", heads,
                 strcmp(heads, "1") == 0 ? "" : "s");
    n++;
    if (x->tokens)
        snprintf(note[n++], sizeof *note, "cached: in half of the heads");
    tick_text((double)x->count[0], number);
    snprintf(note[n++], sizeof *note, "cached by no run: %s", number);
    snprintf(note[n++], sizeof *note, "line: expected by chance");
    snprintf(note[n++], sizeof *note, "dark: %.1f times that or more", ABOVE);
    for (int i = 0; i < n; i++) {
        const char *line = i == 0 && model
                               ? text_fit(c, note[i], PT_SMALL, NOTE_W - 1, fit, sizeof fit)
                               : text_fit_own(c, note[i], PT_SMALL, NOTE_W - 1, fit, sizeof fit);
        canvas_text(c, 2, TOP - 1 + 2.7 * i, line, PT_SMALL, ALIGN_LEFT, quiet, 0);
    }
    if (x->shown < all) {
        snprintf(note[0], sizeof *note, "largest %d of %d combinations", x->shown, all);
        canvas_text(c, canvas_width(c) - 3, TOP - 1,
                    text_fit_own(c, note[0], PT_SMALL, 50, fit, sizeof fit), PT_SMALL, ALIGN_RIGHT,
                    quiet, 0);
    }
}

static int draw_all(struct canvas *c, const struct sets *x, const struct table *t,
                    struct kvf_diag *d)
{
    double W = canvas_width(c), H = canvas_height(c), most = 1;
    int err = canvas_room(c, "tokens-sets", names_width(x) + LEFT + MIN_COLUMN * x->shown + 3,
                          TOP + MIN_BARS + 2 + 3 * x->n + BOTTOM, d);
    if (err)
        return err;
    for (int i = 0; i < x->shown; i++)
        most = fmax(most, fmax((double)x->count[x->order[i]], by_chance(x, x->order[i])));
    struct place p = {.x = names_width(x) + LEFT};
    p.column = fmin((W - p.x - 3) / fmax(x->shown, 1), 12);
    p.row = fmin(ROW, (H - TOP - MIN_BARS - 2 - BOTTOM) / x->n);
    p.matrix = H - BOTTOM - p.row * x->n;
    p.bars = (struct axis_box){.x = p.x,
                               .y = TOP,
                               .w = p.column * x->shown,
                               .x1 = 1,
                               .h = p.matrix - 2 - TOP,
                               .y1 = 1.1 * most,
                               .whole_y = 1};
    const double side[] = {p.x, p.bars.y, p.x, p.bars.y + p.bars.h};
    axis_ticks_y(c, &p.bars);
    canvas_line(c, side, 2, 0.18, ink);
    canvas_text(c, fmin(p.x - 9.5, p.x - 3.5 - axis_width_y(c, &p.bars)), p.bars.y + p.bars.h / 2,
                x->tokens ? "cached tokens" : "cached entries", PT_LABEL, ALIGN_CENTER, ink, 1);
    draw_names(c, x, &p);
    for (int i = 0; i < x->shown; i++)
        draw_combination(c, x, &p, i);
    draw_note(c, x, t);
    return KVF_OK;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct sets *x = MEM_NEW(struct sets, 1);
    if (!x)
        return KVF_E_NOMEM;
    int err = read_sets(t, s, x, d);
    if (!err)
        err = draw_all(c, x, t, d);
    mem_free(x);
    return err;
}

const struct figure fig_tokens_sets = {
    .name = "tokens-sets",
    .table = "tokens",
    .summary = "entries that several runs cache, by combination of runs, and by chance",
    .needs = "token kept trace:either",
    STYLE(struct sets_style, COUNT_KEY(struct sets_style, top, 1, 60,
                                       "combinations, the largest first", .standard = "15")),
    .size = size,
    .draw = draw,
};
