/* layout.c - arranges several figures on a page, shares their axes, keys and colours, and draws
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/figure_fit.h"
#include "render/layout.h"
#include "render/plot.h"
#include "render/note.h"

static const double GAP = 3, LETTER_MM = 4.2, LETTER_PT = 9, WIDTH = 180, KEY_GAP = 1.5; /* mm */
static const double BAR = 18;
const char *const layout_letters[] = {"a", "(a)", "A", "none", NULL};

struct place {
    int row0, rows, col0, cols;
    struct figure_fit fit;
    struct plot plot; /* if the panel is a plot */
    bool plotted, ready;
    struct plot_shared shared;
    struct colour_share colours; /* of maps */
    double x, y, w, h;           /* mm */
};

struct page {
    const struct layout *l;
    const struct figure_style *s;
    int rows, cols;
    char cell[LAYOUT_SIDE][LAYOUT_SIDE];
    struct place place[LAYOUT_PANELS];
    double width, height, row_h[LAYOUT_SIDE], letter, key;
    char note[NOTE_TEXT]; /* drawn with the key */
    int keyed;            /* panel whose key is drawn at the bottom; -1: no key */
    int barred;           /* first panel whose common bar is drawn at the right; -1: no bar */
};

/* ---- the mosaic */

static int wrong(const char *mosaic, const char *why, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG,
                    "--layout '%.60s': %s; rows of letters divided by '/', such as ab/cc, a letter "
                    "for each table",
                    mosaic, why);
}

static int read_cells(struct page *p, struct kvf_diag *d)
{
    const char *s = p->l->mosaic;
    int row = 0, col = 0;
    for (; *s; s++) {
        if (*s == '/') {
            if (!col || (p->cols && col != p->cols))
                return wrong(p->l->mosaic, "its rows differ in length", d);
            p->cols = col;
            col = 0;
            row++;
        } else if (*s < 'a' || *s >= 'a' + p->l->n) {
            return wrong(p->l->mosaic, "a letter has no table", d);
        } else if (row >= LAYOUT_SIDE || col >= LAYOUT_SIDE) {
            return wrong(p->l->mosaic, "at most 16 rows and columns", d);
        } else {
            p->cell[row][col++] = *s;
        }
    }
    if (!col || (p->cols && col != p->cols))
        return wrong(p->l->mosaic, "its rows differ in length", d);
    p->cols = col;
    p->rows = row + 1;
    return KVF_OK;
}

/* Finds the rectangle of a letter.  Fails if its cells are not a rectangle. */
static int find_place(const struct page *p, char letter, struct place *at, struct kvf_diag *d)
{
    int n = 0, row1 = -1, col1 = -1;
    at->row0 = at->col0 = LAYOUT_SIDE;
    for (int r = 0; r < p->rows; r++)
        for (int c = 0; c < p->cols; c++) {
            if (p->cell[r][c] != letter)
                continue;
            n++;
            at->row0 = r < at->row0 ? r : at->row0;
            at->col0 = c < at->col0 ? c : at->col0;
            row1 = r;
            col1 = c > col1 ? c : col1;
        }
    if (!n)
        return wrong(p->l->mosaic, "a table has no letter", d);
    at->rows = row1 - at->row0 + 1;
    at->cols = col1 - at->col0 + 1;
    return n == at->rows * at->cols ? KVF_OK : wrong(p->l->mosaic, "a letter is no rectangle", d);
}

/* ---- settings that plots share */

static int make_plot(struct page *p, int k, struct kvf_diag *d)
{
    struct place *at = &p->place[k];
    const struct layout_panel *of = &p->l->panel[k];
    if (!of->f->build || table_rows(of->t) == 0)
        return KVF_OK;
    plot_init(&at->plot);
    at->plotted = true;
    int err = at->plot.err;
    if (!err)
        err = of->f->build(of->t, &at->fit.style, &at->plot, d);
    if (!err)
        plot_look_methods(&at->plot);
    if (!err)
        err = at->plot.err;
    return err ? err : plot_ranges(&at->plot, &at->fit.style, d);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_x(const struct plot *a, const struct plot *b)
{
    return same_text(a->xlabel, b->xlabel) && a->log_x == b->log_x;
}

static bool same_y(const struct plot *a, const struct plot *b)
{
    return same_text(a->ylabel, b->ylabel) && a->log_y == b->log_y;
}

static bool same_key(const struct plot *a, const struct plot *b)
{
    bool same = a->n_lines == b->n_lines && !a->ramp_label && !b->ramp_label;
    for (int i = 0; same && i < a->n_lines; i++)
        same = strcmp(a->line[i].name, b->line[i].name) == 0
               && a->line[i].hidden == b->line[i].hidden;
    return same;
}

/* Gives two plots their combined range. */
static void join(double *a0, double *a1, double *b0, double *b1)
{
    *a0 = *b0 = fmin(*a0, *b0);
    *a1 = *b1 = fmax(*a1, *b1);
}

static void share_ranges(struct page *p, int k, int other)
{
    struct plot *a = &p->place[k].plot, *b = &p->place[other].plot;
    if (same_x(a, b))
        join(&a->x0, &a->x1, &b->x0, &b->x1);
    if (same_y(a, b))
        join(&a->y0, &a->y1, &b->y0, &b->y1);
}

/* Decides which axis names a neighbour draws: the x axis of the panel below, the y axis of the
 * panel on the left. */
static void share_names(struct page *p, int k, int other)
{
    struct place *a = &p->place[k], *b = &p->place[other];
    if (a->col0 == b->col0 && a->cols == b->cols && a->row0 + a->rows == b->row0
        && same_x(&a->plot, &b->plot))
        a->shared.no_x = true;
    if (a->row0 == b->row0 && a->rows == b->rows && a->col0 == b->col0 + b->cols
        && same_y(&a->plot, &b->plot))
        a->shared.no_y = true;
}

/* Finds the parts that the notes of all panels with the common key have.  The page draws them. */
static void share_notes(struct page *p)
{
    snprintf(p->note, sizeof p->note, "%s", p->keyed >= 0 ? p->place[p->keyed].plot.note : "");
    for (int k = 0; k < p->l->n; k++)
        if (p->place[k].shared.no_key) {
            note_parts(p->note, p->place[k].plot.note, true);
            p->place[k].shared.note = p->note;
        }
}

static void share(struct page *p)
{
    int n = p->l->n;
    for (int pass = 0; pass < 2; pass++) /* twice, so that ranges reach all panels */
        for (int k = 0; k < n; k++)
            for (int other = 0; other < n; other++)
                if (other != k && p->place[k].plotted && p->place[other].plotted) {
                    share_ranges(p, k, other);
                    share_names(p, k, other);
                }
    p->keyed = -1;
    for (int k = 0; k < n; k++)
        for (int other = k + 1; other < n; other++)
            if (p->place[k].plotted && p->place[other].plotted && (p->keyed < 0 || p->keyed == k)
                && same_key(&p->place[k].plot, &p->place[other].plot)
                && plot_key(NULL, &p->place[k].plot, 0, 0, p->width) > 0) {
                p->keyed = k;
                p->place[k].shared.no_key = p->place[other].shared.no_key = true;
            }
    share_notes(p);
    for (int k = 0; k < n; k++) {
        struct place *at = &p->place[k];
        const struct plot *x = &at->plot;
        at->shared.x0 = at->plotted ? x->x0 : NAN;
        at->shared.x1 = at->plotted ? x->x1 : NAN;
        at->shared.y0 = at->plotted ? x->y0 : NAN;
        at->shared.y1 = at->plotted ? x->y1 : NAN;
        at->fit.style.shared = at->plotted ? &at->shared : NULL;
    }
}

/* ---- sizes */

static double across(const struct page *p, int cols)
{
    double room = p->width - (p->barred ? BAR : 0);
    return (room - (p->cols - 1) * GAP) / p->cols * cols + (cols - 1) * GAP;
}

static double down(const struct page *p, int row0, int rows)
{
    double h = (rows - 1) * GAP;
    for (int r = row0; r < row0 + rows; r++)
        h += p->row_h[r];
    return h;
}

static int too_small(int k, double mm, const char *side, int least, struct kvf_diag *d)
{
    return kvf_fail(
        d, KVF_E_ARG,
        "--layout: panel %c would be %.0f mm %s, of at least %d; choose a larger --size", 'a' + k,
        mm, side, least);
}

/* Computes the heights of rows from their figures, low spans first.  The last row of a high panel
 * gets the missing height. */
static int find_heights(struct page *p, struct kvf_diag *d)
{
    int err = KVF_OK;
    memset(p->row_h, 0, sizeof p->row_h);
    for (int span = 1; span <= p->rows; span++)
        for (int k = 0; !err && k < p->l->n; k++) {
            struct place *at = &p->place[k];
            double h = 0;
            if (at->rows != span)
                continue;
            at->w = at->fit.style.width_mm = across(p, at->cols);
            at->fit.style.height_mm = 0;
            err = at->w < FIGURE_MIN_WIDTH
                      ? too_small(k, at->w, "wide", FIGURE_MIN_WIDTH, d)
                      : figure_fit_size(&at->fit, p->l->panel[k].t, &at->w, &h, d);
            double *last = &p->row_h[at->row0 + at->rows - 1];
            *last += fmax(0, h + p->letter - down(p, at->row0, at->rows));
        }
    return err;
}

static int find_sizes(struct page *p, struct kvf_diag *d)
{
    int err = find_heights(p, d);
    double title = p->s->title ? FIGURE_TITLE : 0, fixed = title + p->key + (p->rows - 1) * GAP;
    double own = down(p, 0, p->rows) - (p->rows - 1) * GAP;
    double scale = p->s->height_mm > 0 ? (p->s->height_mm - fixed) / own : 1;
    double y = 0;
    for (int r = 0; r < p->rows; r++)
        p->row_h[r] *= scale;
    p->height = fixed + own * scale;
    for (int k = 0; !err && k < p->l->n; k++) {
        struct place *at = &p->place[k];
        at->x = at->col0 ? across(p, at->col0) + GAP : 0;
        at->y = at->row0 ? down(p, 0, at->row0) + GAP : y;
        at->h = down(p, at->row0, at->rows);
        if (!err && at->h - p->letter < FIGURE_MIN_HEIGHT)
            err = too_small(k, at->h - p->letter, "high", FIGURE_MIN_HEIGHT, d);
    }
    return err;
}

/* ---- drawing */

static void draw_letter(const struct page *p, struct canvas *c, int k)
{
    char text[8];
    enum layout_letters form = p->l->letters;
    if (form == LETTERS_NONE)
        return;
    snprintf(text, sizeof text, form == LETTERS_BRACKETS ? "(%c)" : "%c",
             (form == LETTERS_CAPITAL ? 'A' : 'a') + k);
    canvas_word(c, 0.8, 3.6, text, LETTER_PT, 1, ink);
}

static int draw_panel(const struct page *p, struct canvas *c, int k, struct kvf_diag *d)
{
    const struct place *at = &p->place[k];
    const struct layout_panel *of = &p->l->panel[k];
    struct kvf_diag own = {""};
    struct figure_style style = at->fit.style;
    style.height_mm = 0;
    canvas_panel(c, at->x, at->y, at->w, at->h);
    draw_letter(p, c, k);
    canvas_panel_end(c);
    double more = at->colours.barless ? at->colours.room - 2.5 : 0;
    canvas_panel(c, at->x, at->y + p->letter, at->w + more, at->h - p->letter);
    int err = figure_draw_on(c, of->f, of->t, &style, &own);
    canvas_panel_end(c);
    if (err && own.text[0])
        return kvf_fail(d, err, "--layout: panel %c, %s: %.400s", 'a' + k, of->f->name, own.text);
    return err;
}

/* ---- maps that share their colours */

/* Draws all panels once, small, so that maps store their colours. */
static int measure(struct page *p, struct kvf_diag *d)
{
    struct figure_style small = *p->s;
    struct canvas *c = NULL;
    small.dpi = 20;
    int err = figure_canvas(NULL, p->width, p->height, &small, &c, d);
    for (int k = 0; !err && k < p->l->n; k++) {
        struct place *at = &p->place[k];
        at->fit.style.colours = &at->colours;
        at->colours = (struct colour_share){.measured = false};
        err = at->plotted ? KVF_OK : draw_panel(p, c, k, d);
    }
    canvas_destroy(c);
    return err;
}

static bool same_colours(const struct page *p, int a, int b)
{
    const struct colour_share *x = &p->place[a].colours, *y = &p->place[b].colours;
    return p->l->panel[a].f == p->l->panel[b].f && x->measured && y->measured
           && strcmp(x->label, y->label) == 0 && strcmp(x->map, y->map) == 0 && x->logs == y->logs;
}

/* Gives maps with equal labels a common range. */
static void join_colours(struct page *p)
{
    for (int k = 0; k < p->l->n; k++)
        for (int i = 0; i < p->l->n; i++) {
            struct colour_share *a = &p->place[k].colours, *b = &p->place[i].colours;
            if (i != k && same_colours(p, i, k)) {
                join(&a->lo, &a->hi, &b->lo, &b->hi);
                a->common = b->common = true;
            }
        }
}

/* Returns the panel of the last column in row r if it shares its colours and no panel above it
 * does, else -1. */
static int bar_of_row(const struct page *p, int r)
{
    int k = p->cell[r][p->cols - 1] - 'a';
    for (int above = 0; above < r; above++)
        if (same_colours(p, k, p->cell[above][p->cols - 1] - 'a'))
            return -1;
    return p->place[k].colours.common ? k : -1;
}

/* Finds maps that share their colours.  If all panels of the last column do, their bars are drawn
 * once at the right of the page.  A range that the caller sets is common already. */
static int share_colours(struct page *p, struct kvf_diag *d)
{
    if (p->l->n < 2 || !isnan(p->s->vmin) || !isnan(p->s->vmax))
        return KVF_OK;
    int err = measure(p, d);
    if (err)
        return err;
    join_colours(p);
    for (int r = 0; r < p->rows; r++)
        if (!p->place[p->cell[r][p->cols - 1] - 'a'].colours.common)
            return KVF_OK;
    p->barred = true;
    for (int r = 0; r < p->rows; r++)
        for (int k = 0; k < p->l->n; k++)
            p->place[k].colours.barless |= k == p->cell[r][p->cols - 1] - 'a'
                                           || same_colours(p, k, p->cell[r][p->cols - 1] - 'a');
    return find_sizes(p, d);
}

/* ---- the page */

static void draw_bar(const struct page *p, struct canvas *c, int k)
{
    if (k < 0)
        return;
    const struct colour_share *own = &p->place[k].colours;
    struct colours colours = {own->map, own->lo, own->hi, .logs = own->logs};
    colours_bar(c, &colours, p->width - BAR + 2.5, p->place[k].y + p->letter + own->y, own->h,
                own->label);
}

/* Draws the common key and the common note from y down.  Returns their height in mm. */
static double draw_key(const struct page *p, struct canvas *c, double y)
{
    double key = plot_key(c, &p->place[p->keyed].plot, 1, y, p->width - 2);
    struct note n = {.left = 1, .right = p->width - 1, .middle = p->width / 2, .most = 5};
    if (c)
        note_draw(c, &n, y + key + 1.5, p->note);
    return key + note_height(c, p->s, &n, p->note);
}

static int draw_page(struct page *p, struct canvas *c, struct buf *out, struct kvf_diag *d)
{
    const struct layout_panel *first = p->l->panel;
    int err = KVF_OK;
    struct buf about = {0};
    if (p->s->title)
        figure_draw_title(c, p->s->title);
    for (int k = 0; !err && k < p->l->n; k++)
        err = draw_panel(p, c, k, d);
    for (int r = 0; !err && p->barred && r < p->rows; r++)
        draw_bar(p, c, bar_of_row(p, r));
    if (!err && p->keyed >= 0)
        draw_key(p, c, canvas_height(c) - p->key + KEY_GAP);
    if (!err)
        err = figure_about(c, first->f, first->t, p->s);
    for (int k = 0; k < p->l->n; k++) {
        buf_printf(&about, "panel %c: ", 'a' + k);
        figure_provenance(p->l->panel[k].t, &about);
    }
    if (!err)
        err = about.err ? about.err : canvas_finish(c, about.data, out);
    buf_finish(&about);
    return err;
}

static int prepare(struct page *p, struct kvf_diag *d)
{
    int err = read_cells(p, d);
    p->width = p->s->width_mm > 0 ? p->s->width_mm : WIDTH;
    p->letter = p->l->letters == LETTERS_NONE ? 0 : LETTER_MM;
    for (int k = 0; !err && k < p->l->n; k++) {
        struct figure_style style = *p->s;
        style.option = p->l->panel[k].option;
        style.title = NULL;
        err = find_place(p, (char)('a' + k), &p->place[k], d);
        if (!err)
            err = figure_fit(&p->place[k].fit, p->l->panel[k].f, p->l->panel[k].t, &style, d);
        if (!err)
            err = make_plot(p, k, d);
    }
    if (!err)
        share(p);
    return err;
}

int layout_write(const struct layout *l, const struct figure_style *s, const char *path,
                 struct kvf_diag *d)
{
    struct page *p = MEM_NEW(struct page, 1);
    struct canvas *c = NULL;
    struct buf out = {0};
    if (!p)
        return KVF_E_NOMEM;
    p->l = l;
    p->s = s;
    int err = prepare(p, d);
    if (!err && p->keyed >= 0)
        p->key = KEY_GAP + draw_key(p, NULL, 0) + 1;
    if (!err)
        err = find_sizes(p, d);
    if (!err)
        err = share_colours(p, d);
    if (!err)
        err = figure_canvas(path, p->width, p->height, s, &c, d);
    if (!err)
        err = draw_page(p, c, &out, d);
    if (!err)
        err = figure_write_bytes(path, &out, d);
    canvas_destroy(c);
    buf_finish(&out);
    for (int k = 0; k < l->n; k++) {
        if (p->place[k].plotted)
            plot_free(&p->place[k].plot);
        figure_fit_finish(&p->place[k].fit);
    }
    mem_free(p);
    return err;
}
