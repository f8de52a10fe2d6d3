/* fig_tokens.c - running text: each token from grey to blue by the share of heads
 * that kept it, bold from one half on (TRIM-KV, figures 17 to 26); emoji are
 * underlined so.  A text longer than the page is folded in the middle.  Options:
 * by=kept|residency|beta|retention. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "render/figures.h"

enum { WIDTH = 180, MARGIN = 4, HEAD = 9, MAX_LINES = 66 };
static const double PT = 7, LINE = 3.5;

struct flow {
    struct canvas *c;
    bool measure;                  /* only count the lines */
    double lo, hi;                 /* values at grey and at blue */
    double right, x;
    int line, fold_from, fold_to;  /* lines [from, to) are left out */
};

/* Grey at 0, blue at 1; both keep their distance to white paper. */
static struct rgb shade(double v)
{
    v = isnan(v) ? 0 : v < 0 ? 0 : v > 1 ? 1 : v;
    return (struct rgb){0.64 - 0.56 * v, 0.64 - 0.48 * v, 0.64 + 0.20 * v};
}

static void newline(struct flow *f)
{
    f->x = MARGIN;
    f->line++;
}

/* Emoji: beyond the basic plane, where fonts bring their own colours. */
static bool has_own_colours(const char *s)
{
    while (*s && (unsigned char)*s < 0xf0)
        s++;
    return *s != 0;
}

static void word(struct flow *f, const char *s, double raw)
{
    double value = (raw - f->lo) / (f->hi - f->lo);
    int bold = value >= 0.5;
    double width = canvas_text_width(f->c, s, PT, bold);
    if (f->x + width > f->right && f->x > MARGIN) {
        newline(f);
        if (*s == ' ') { /* a line starts with its word */
            s++;
            width = canvas_text_width(f->c, s, PT, bold);
        }
    }
    if (!f->measure && (f->line < f->fold_from || f->line >= f->fold_to)) {
        int shown = f->line < f->fold_from ? f->line : f->line - (f->fold_to - f->fold_from) + 1;
        double base = MARGIN + HEAD + shown * LINE;
        canvas_word(f->c, f->x, base, s, PT, bold, shade(value));
        if (has_own_colours(s))
            canvas_rect(f->c, f->x, base + 0.65, width, 0.3, shade(value));
    }
    f->x += width;
    if (strstr(s, "\xe2\x86\xb5")) /* the mark of a line break */
        newline(f);
}

/* At most `room` bytes of s, cut between characters. */
static const char *shorten(const char *s, char *out, size_t room)
{
    if (strlen(s) < room)
        return s;
    size_t n = room - 4;
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    snprintf(out, room, "%.*s\xe2\x80\xa6", (int)n, s);
    return out;
}

static int lay_out(struct flow *f, const struct table *t, int col)
{
    int text = table_find(t, "joined");
    char cut[160];
    f->x = MARGIN;
    f->line = 0;
    for (int64_t r = 0, next; r < table_rows(t); r = next) {
        double sum = table_real(t, col, r);
        for (next = r + 1; next < table_rows(t) && !*table_str(t, text, next); next++)
            sum += table_real(t, col, next); /* tokens of one character: their mean */
        word(f, shorten(table_str(t, text, r), cut, sizeof cut), sum / (double)(next - r));
    }
    return f->x > MARGIN || f->line == 0 ? f->line + 1 : f->line;
}

static const struct colouring {
    const char *by, *column, *label;
    bool share; /* colours span 0 to 1, not the range of the table */
} colourings[] = {
    {"kept", "kept", "share of KV heads that hold the token at the end", true},
    {"residency", "mean_residency", "mean share of its life that the token was held", true},
    {"beta", "mean_beta", "mean over KV heads of \xce\xb2, the share retained from step to step",
     false},
    {"retention", "mean_retention", "mean over KV heads and steps of the retention", false},
};

/* Values at the two ends of the colours. */
static void span(const struct table *t, const struct colouring *by, const struct figure_style *s,
                 struct flow *f)
{
    int col = table_find(t, by->column);
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t r = 0; !by->share && r < table_rows(t); r++) {
        double v = table_real(t, col, r);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    f->lo = lo < hi ? lo : 0;
    f->hi = lo < hi ? hi : 1;
    if (!isnan(s->vmin))
        f->lo = s->vmin;
    if (!isnan(s->vmax))
        f->hi = s->vmax;
    if (!(f->hi > f->lo)) /* one end was given, beyond the other */
        f->hi = f->lo + 1;
}

/* What colours the tokens; NULL: an option unknown. */
static const struct colouring *colouring_of(const struct figure_style *s)
{
    const char *rest = s->option ? s->option : "";
    const struct colouring *found = &colourings[0];
    char key[32], value[32];
    int more;
    while ((more = opt_pair(&rest, key, value, 32)) == 1) {
        found = NULL;
        for (size_t i = 0; i < sizeof colourings / sizeof *colourings; i++)
            if (strcmp(key, "by") == 0 && strcmp(value, colourings[i].by) == 0)
                found = &colourings[i];
        if (!found)
            return NULL;
    }
    return more < 0 ? NULL : found;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct canvas *ruler = NULL;
    const struct colouring *by = colouring_of(s);
    int lines = 1;
    *w = s->width_mm > 0 ? s->width_mm : WIDTH;
    if (by && canvas_create(CANVAS_PNG, 10, 10, 72, &ruler, NULL) == KVF_OK) {
        struct flow f = {.c = ruler, .measure = true, .right = *w - MARGIN};
        span(t, by, s, &f);
        lines = lay_out(&f, t, table_find(t, by->column));
    }
    canvas_destroy(ruler);
    *h = fmax(26, MARGIN + HEAD + (lines > MAX_LINES ? MAX_LINES + 1 : lines) * LINE + 1);
}

/* What the colours mean: a bar from grey to blue. */
static void legend(struct canvas *c, const struct flow *f, const char *label)
{
    char lo[32], hi[32];
    snprintf(lo, sizeof lo, "%.4g", f->lo);
    snprintf(hi, sizeof hi, "%.4g", f->hi);
    const struct rgb grey = {0.3, 0.3, 0.3};
    double w = canvas_width(c), x = w - MARGIN - 32 - canvas_text_width(c, hi, PT_TICK, 0);
    for (int i = 0; i < 60; i++)
        canvas_cell(c, x + 0.5 * i, MARGIN - 1, 0.5, 2, shade((i + 0.5) / 60));
    canvas_frame(c, x, MARGIN - 1, 30, 2, 0.12, grey);
    canvas_text(c, x - 1, MARGIN, lo, PT_TICK, ALIGN_RIGHT, ink, 0);
    canvas_text(c, x + 31, MARGIN, hi, PT_TICK, ALIGN_LEFT, ink, 0);
    canvas_text(c, x - 3 - canvas_text_width(c, lo, PT_TICK, 0), MARGIN, label, PT_TICK,
                ALIGN_RIGHT, ink, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct flow f = {.c = c, .measure = true, .right = canvas_width(c) - MARGIN};
    const struct colouring *by = colouring_of(s);
    int room = (int)((canvas_height(c) - MARGIN - HEAD) / LINE);
    char note[96];
    if (!by)
        return kvf_fail(d, KVF_E_ARG, "--style: tokens knows by=kept, residency, beta, retention");
    span(t, by, s, &f);
    int col = table_find(t, by->column);
    int lines = lay_out(&f, t, col);
    f.measure = false;
    f.fold_from = lines > room ? room / 2 : lines;
    f.fold_to = lines > room ? lines - (room - 1 - room / 2) : lines;
    lay_out(&f, t, col);
    if (f.fold_to > f.fold_from) {
        snprintf(note, sizeof note, "\xe2\x80\xa6 %d lines left out \xe2\x80\xa6",
                 f.fold_to - f.fold_from);
        canvas_word(c, MARGIN, MARGIN + HEAD + f.fold_from * LINE, note, PT, 0,
                    (struct rgb){0.8, 0.3, 0});
    }
    legend(c, &f, by->label);
    return KVF_OK;
}

static const char *const needs[] = {"joined", "kept", "mean_residency", "mean_beta",
                                    "mean_retention", NULL};

const struct figure fig_tokens = {
    .name = "tokens",
    .table = "tokens",
    .summary = "the text, kept tokens bold blue and evicted ones grey",
    .needs = needs,
    .size = size,
    .draw = draw,
};
