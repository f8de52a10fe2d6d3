/* text_pages.c - arranges token texts in columns, bands and pages. */
#include "render/text_pages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/room.h"
#include "render/axis.h"

enum { NAME_MM = 4, BAND_GAP = 3, MIN_LINES = 3, MIN_FOLDED = 5, MIN_COLUMN = 42 };
static const struct rgb note_ink = {0.68, 0.28, 0};

/* ---- panels */

static bool same_panel(const struct table *t, int trace, int head, int64_t a, int64_t b)
{
    return (trace < 0 || table_int(t, trace, a) == table_int(t, trace, b))
           && (head < 0 || strcmp(table_str(t, head, a), table_str(t, head, b)) == 0);
}

static int add_panel(struct text_sheet *s, int64_t row0, int64_t row1)
{
    if (!mem_room(&s->panel, (size_t)s->n, &s->room, 16, sizeof *s->panel))
        return KVF_E_NOMEM;
    s->panel[s->n++] = (struct text_panel){row0, row1, -1, ""};
    return KVF_OK;
}

/* Names the panels: by head if the heads differ, by trace if the traces differ.  A table without
 * these columns is one text. */
static void name_panels(struct text_sheet *s, int trace, int head)
{
    const struct table *t = s->t;
    bool traces = false, heads = false;
    s->one &= head >= 0;
    if (trace < 0 || head < 0)
        return;
    for (int p = 1; p < s->n; p++) {
        int64_t a = s->panel[0].row0, b = s->panel[p].row0;
        traces |= table_int(t, trace, a) != table_int(t, trace, b);
        heads |= strcmp(table_str(t, head, a), table_str(t, head, b)) != 0;
    }
    for (int p = 0; p < s->n; p++) {
        struct text_panel *x = &s->panel[p];
        char key[24], number[24];
        snprintf(key, sizeof key, "trace_%d", (int)table_int(t, trace, x->row0));
        snprintf(number, sizeof number, "trace %d", (int)table_int(t, trace, x->row0));
        const char *named = table_meta(t, key) ? table_meta(t, key) : number;
        const char *of = traces ? named : "";
        snprintf(x->name, sizeof x->name, "%.60s%s%.30s", of, traces && heads ? ": " : "",
                 heads ? table_str(t, head, x->row0) : "");
        s->one &= strcmp(table_str(t, head, x->row0), "all") != 0;
    }
    s->head = s->n && s->one && !heads ? table_str(t, head, s->panel[0].row0) : NULL;
}

int text_sheet_init(struct text_sheet *s, const struct table *t)
{
    int trace = table_find(t, "trace"), head = table_find(t, "head"), err = KVF_OK;
    int64_t n = table_rows(t);
    *s = (struct text_sheet){.t = t, .one = true};
    for (int64_t r = 0, next; !err && r < n; r = next) {
        for (next = r + 1; next < n && same_panel(t, trace, head, r, next); next++)
            ;
        err = add_panel(s, r, next);
    }
    if (!err)
        name_panels(s, trace, head);
    return err;
}

void text_sheet_finish(struct text_sheet *s)
{
    mem_free(s->panel);
}

void text_sheet_columns(struct text_sheet *s, double width, int columns)
{
    double w = width - 2 * MARGIN_MM;
    int fit = (int)fmax(1, (w + 4) / (MIN_COLUMN + 4)), most = columns ? columns : fit;
    int bands = (s->n + most - 1) / most;
    s->columns = columns ? columns : (s->n + bands - 1) / bands; /* as even as possible */
    s->bands = (s->n + s->columns - 1) / s->columns;
    s->gap = fmin(4, 0.2 * w / s->columns);
    s->width = (w - (s->columns - 1) * s->gap) / s->columns;
    s->pt = s->columns > 2 ? PT_TICK : 7;
    s->pitch = s->columns > 2 ? 3.3 : 3.5;
}

/* ---- heights */

static double name_of(const struct text_sheet *s)
{
    return s->n > 1 ? NAME_MM : 0;
}

static int count(struct text_sheet *s, struct text_panel *p, int64_t most)
{
    if (p->lines >= 0)
        return KVF_OK;
    struct text_flow f = s->flow;
    f.pt = s->pt;
    f.width = s->width;
    text_flow_open(&f, s->t, p->row0, p->row1);
    int err = text_flow_run(&f, most, false, 0, 0, 0);
    if (f.at < most)
        p->lines = f.at;
    text_flow_close(&f);
    return err;
}

/* Finds the lines of the longest text of a band, at most `most`. */
static int band_lines(struct text_sheet *s, int band, int64_t most, int64_t *ret)
{
    int err = KVF_OK;
    *ret = 1;
    for (int p = band * s->columns; !err && p < s->n && p < (band + 1) * s->columns; p++) {
        err = count(s, &s->panel[p], most);
        int64_t lines = s->panel[p].lines < 0 ? most : s->panel[p].lines;
        *ret = lines > *ret ? lines : *ret;
    }
    return err;
}

int text_sheet_height(struct text_sheet *s, double most, double *ret)
{
    double h = s->top + MARGIN_MM - 1;
    int err = KVF_OK;
    for (int b = 0; !err && b < s->bands && h < most; b++) {
        int64_t lines = 0;
        err = band_lines(s, b, (int64_t)(most / s->pitch) + 1, &lines);
        h += name_of(s) + (double)lines * s->pitch + (b ? BAND_GAP : 0);
    }
    *ret = fmin(h, most);
    return err;
}

/* ---- slices */

static int add_slice(struct text_slices *x, struct text_slice v)
{
    if (!mem_room(&x->item, (size_t)x->n, &x->room, 16, sizeof *x->item))
        return KVF_E_NOMEM;
    x->item[x->n++] = v;
    return KVF_OK;
}

static int64_t lines_in(const struct text_sheet *s, double mm)
{
    return (int64_t)floor(mm / s->pitch + 1e-6);
}

int text_slices_pages(struct text_sheet *s, struct text_slices *ret)
{
    double y = s->top;
    int page = 0, err = KVF_OK;
    for (int b = 0; !err && b < s->bands; b++) {
        int64_t lines = 0, at = 0;
        err = band_lines(s, b, INT64_MAX, &lines);
        while (!err && at < lines) {
            int64_t room = lines_in(s, s->bottom - y - name_of(s)), left = lines - at;
            if (room < (left < MIN_LINES ? left : MIN_LINES) && y > s->top) {
                page++;
                y = s->top;
                continue;
            }
            if (room < 1)
                canvas_cut(s->flow.c);
            int64_t most = room > 0 ? room : 1, take = left < room ? left : most;
            err = add_slice(ret, (struct text_slice){page, b, at, at + take, 0, y, true});
            y += name_of(s) + (double)take * s->pitch + BAND_GAP;
            at += take;
        }
    }
    ret->pages = page + 1;
    ret->bands = s->bands;
    return err;
}

/* Adds a band in `rows` lines.  A longer band loses its middle. */
static int fold_band(struct text_sheet *s, int band, int64_t lines, int64_t rows, double y,
                     struct text_slices *ret)
{
    int64_t a = lines > rows ? rows / 2 : lines, b = rows - 1 - a;
    if (lines > rows && b < 1)
        canvas_cut(s->flow.c); /* no lines remain before or after the note */
    int err = add_slice(ret, (struct text_slice){0, band, 0, a, 0, y, true});
    if (err || lines <= rows)
        return err;
    y += name_of(s) + (double)a * s->pitch;
    err = add_slice(ret, (struct text_slice){0, band, a, lines - b, lines - b - a, y, false});
    if (!err && b > 0)
        err = add_slice(ret,
                        (struct text_slice){0, band, lines - b, lines, 0, y + s->pitch, false});
    return err;
}

/* Finds how many bands fit in h mm with their lines, or with MIN_FOLDED of more lines; at least
 * 1. */
static int bands_within(struct text_sheet *s, double h, int *ret)
{
    double need = 0;
    int fit = 0, err = KVF_OK;
    for (; !err && fit < s->bands; fit++) {
        int64_t lines = 0;
        err = band_lines(s, fit, MIN_FOLDED, &lines);
        need += name_of(s) + BAND_GAP + fmin((double)lines, MIN_FOLDED) * s->pitch;
        if (need > h + 1e-6)
            break;
    }
    *ret = fit < 1 ? 1 : fit;
    return err;
}

int text_slices_fold(struct text_sheet *s, struct text_slices *ret)
{
    double each = name_of(s) + BAND_GAP, h = s->bottom - s->top + BAND_GAP, y = s->top;
    int err = bands_within(s, h, &ret->bands);
    h -= ret->bands < s->bands ? s->pitch : 0; /* for a note */
    int64_t rows = lines_in(s, h - ret->bands * each);
    for (int b = 0; !err && b < ret->bands; b++) {
        int64_t lines = 0, share = rows / (ret->bands - b);
        share = share < 1 ? 1 : share;
        err = band_lines(s, b, INT64_MAX, &lines);
        if (!err)
            err = fold_band(s, b, lines, share, y, ret);
        int64_t used = lines < share ? lines : share;
        rows -= used;
        y += each + (double)used * s->pitch;
    }
    ret->pages = 1;
    return err;
}

/* ---- drawing */

static double column_x(const struct text_sheet *s, int column)
{
    return MARGIN_MM + column * (s->width + s->gap);
}

static void draw_names(const struct text_sheet *s, struct canvas *c, const struct text_slice *v)
{
    for (int k = 0; k < s->columns && v->band * s->columns + k < s->n; k++) {
        const char *name = s->panel[v->band * s->columns + k].name;
        double w = canvas_text_width(c, name, PT_LABEL, 1), x = column_x(s, k);
        canvas_word(c, x, v->y + 2.4, name, PT_LABEL * fmin(1, s->width / w), 1, ink);
        canvas_rect(c, x, v->y + NAME_MM - 0.6, s->width, 0.1, (struct rgb){0.6, 0.6, 0.6});
    }
}

static void draw_note(const struct text_sheet *s, struct canvas *c, const struct text_slice *v,
                      int column)
{
    char note[64];
    snprintf(note, sizeof note, "\xe2\x80\xa6 %lld lines left out \xe2\x80\xa6",
             (long long)v->left_out);
    double fit = fmin(1, s->width / canvas_text_width(c, note, s->pt, 0));
    canvas_word(c, column_x(s, column), v->y + 0.7 * s->pitch, note, s->pt * fit, 0, note_ink);
}

/* Draws a slice of one panel.  The text of a panel stays open while its band continues. */
static int draw_panel(struct text_sheet *s, const struct text_slice *v, int column, bool draw,
                      struct text_flow *f)
{
    const struct text_panel *p = &s->panel[v->band * s->columns + column];
    if (v->from == 0) {
        text_flow_close(f);
        *f = s->flow;
        f->pt = s->pt;
        f->width = s->width;
        text_flow_open(f, s->t, p->row0, p->row1);
    }
    if (draw && v->left_out && p->lines > v->from)
        draw_note(s, f->c, v, column);
    double y = v->y + (v->named ? name_of(s) : 0) + 0.7 * s->pitch;
    return text_flow_run(f, v->to, draw && !v->left_out, column_x(s, column), y, s->pitch);
}

int text_sheet_draw(struct text_sheet *s, const struct text_slices *of, int page, bool draw,
                    struct text_flow *open)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < of->n; i++) {
        const struct text_slice *v = &of->item[i];
        if (v->page != page)
            continue;
        if (draw && v->named && s->n > 1)
            draw_names(s, s->flow.c, v);
        for (int k = 0; !err && k < s->columns && v->band * s->columns + k < s->n; k++)
            err = draw_panel(s, v, k, draw, &open[k]);
    }
    return err;
}
