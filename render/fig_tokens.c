/* fig_tokens.c - running text: tokens kept at the end bold blue, evicted grey, by
 * the share of heads that kept them (TRIM-KV, figures 17 to 26).  A long text is
 * folded in the middle.  Options: by=kept|residency. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"

enum { WIDTH = 170, MARGIN = 5, MAX_LINES = 110 };
static const double PT = 6.5, LINE = 3.3;

struct flow {
    struct canvas *c; /* NULL: only measure */
    double x;
    int line, fold_from, fold_to; /* lines [from, to) are left out */
};

/* Blue #3232ff at 1, grey #c4c4c4 at 0. */
static struct rgb shade(double v)
{
    v = isnan(v) ? 0 : v < 0 ? 0 : v > 1 ? 1 : v;
    return (struct rgb){0.77 + v * (0.196 - 0.77), 0.77 + v * (0.196 - 0.77),
                        0.77 + v * (1 - 0.77)};
}

static void newline(struct flow *f)
{
    f->x = MARGIN;
    f->line++;
}

static void word(struct flow *f, const char *s, double value, double width)
{
    int bold = value >= 0.5, line = f->line;
    if (f->x + width > WIDTH - MARGIN && f->x > MARGIN)
        newline(f), line = f->line;
    if (f->c && (line < f->fold_from || line >= f->fold_to)) {
        int shown = line < f->fold_from ? line : line - (f->fold_to - f->fold_from) + 1;
        canvas_word(f->c, f->x, MARGIN + 4 + shown * LINE, s, PT, bold, shade(value));
    }
    f->x += width;
    if (strstr(s, "\xe2\x86\xb5")) /* the mark of a line break */
        newline(f);
}

/* Width of a token without a canvas: close enough to count lines. */
static double rough_width(const char *s)
{
    size_t n = 0, wide = 0;
    for (; *s; s++) {
        n += ((unsigned char)*s >> 6) != 2;
        wide += (unsigned char)*s >= 0xe3;
    }
    return (0.60 * (double)n + 0.5 * (double)wide) * PT * 25.4 / 72;
}

static void lay_out(struct flow *f, const struct table *t, int col)
{
    int text = table_find(t, "text");
    char cut[256];
    f->x = MARGIN;
    f->line = 0;
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *s = table_str(t, text, r);
        if (strlen(s) >= sizeof cut) { /* hostile or strange: show the start */
            snprintf(cut, sizeof cut, "%.200s\xe2\x80\xa6", s);
            s = cut;
        }
        word(f, s, table_real(t, col, r), rough_width(s));
    }
}

static int column_of(const struct table *t, const struct figure_style *s)
{
    return table_find(t, s->option && strcmp(s->option, "by=residency") == 0 ? "mean_residency"
                                                                             : "kept");
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct flow f = {.c = NULL};
    lay_out(&f, t, column_of(t, s));
    int lines = f.line + 1 > MAX_LINES ? MAX_LINES + 1 : f.line + 1;
    *w = WIDTH;
    *h = 2 * MARGIN + 8 + lines * LINE;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct flow f = {.c = NULL};
    int col = column_of(t, s);
    char note[96];
    (void)d;
    lay_out(&f, t, col);
    int lines = f.line + 1;
    f.c = c;
    f.fold_from = lines > MAX_LINES ? MAX_LINES / 2 : lines;
    f.fold_to = lines > MAX_LINES ? lines - MAX_LINES / 2 : lines;
    lay_out(&f, t, col);
    if (f.fold_to > f.fold_from) {
        snprintf(note, sizeof note, "\xe2\x80\xa6 %d lines left out \xe2\x80\xa6",
                 f.fold_to - f.fold_from);
        canvas_word(c, MARGIN, MARGIN + 4 + f.fold_from * LINE, note, PT, 0,
                    (struct rgb){0.8, 0.3, 0});
    }
    canvas_word(c, MARGIN, MARGIN - 2, col == table_find(t, "kept")
                ? "kept at the end by: all heads (bold blue) \xe2\x80\xa6 none (grey)"
                : "mean share of its life in the cache: 1 (bold blue) \xe2\x80\xa6 0 (grey)", 6, 0,
                (struct rgb){0.3, 0.3, 0.3});
    return KVF_OK;
}

static const char *const needs[] = {"text", "kept", "mean_residency", NULL};

const struct figure fig_tokens = {
    .name = "tokens",
    .table = "tokens",
    .summary = "the text, kept tokens bold blue and evicted ones grey",
    .needs = needs,
    .size = size,
    .draw = draw,
};
