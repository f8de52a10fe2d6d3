/* fig_words.c - draws the words that the caches keep: bars of each word's fraction of the kept
 * tokens, compared with its fraction of the text.  For several documents, bars show the kept
 * fraction of each word, compared with that of all words. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/words_list.h"

enum { TOP = 7, BOTTOM = 14, MIN_BARS = 3 };
static const double ROW = 3.4, MIN_ROW = 2.5;
static const struct rgb base_grey = {.35, .35, .35}, lighter = {.62, .74, .84};

enum { VALUE_AUTO, VALUE_SHARE, VALUE_KEPT };

struct words_style {
    int sort; /* enum words_sort */
    int64_t top;
    int value; /* VALUE_ */
};

struct bars {
    struct words_list list;
    bool kept;
    int n;
    double names, top; /* mm of the names; the longest bar */
};

static int read_bars(const struct table *t, const struct figure_style *s, struct bars *b,
                     struct kvf_diag *d)
{
    const struct words_style *o = s->own;
    *b = (struct bars){.n = 0};
    int err = words_read(t, (enum words_sort)o->sort, &b->list);
    if (!err && o->value == VALUE_SHARE && b->list.pooled)
        err = kvf_fail(d, KVF_E_ARG, "--style: this table has no shares; value=kept");
    b->kept = o->value == VALUE_KEPT || (o->value == VALUE_AUTO && b->list.pooled);
    b->n = (int)(b->list.n < o->top ? b->list.n : o->top);
    return err;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct bars b;
    struct kvf_diag unused;
    int n = read_bars(t, s, &b, &unused) == KVF_OK ? b.n : 1;
    words_free(&b.list);
    *w = 88;
    *h = fmin(240, TOP + BOTTOM + ROW * fmax(n, MIN_BARS));
}

static double value_of(const struct bars *b, const struct word_row *r)
{
    return b->kept ? r->kept : r->share;
}

static double base_of(const struct bars *b, const struct word_row *r)
{
    return b->kept ? b->list.rate : r->base_share;
}

/* Draws the bar of a word, a tick at its fraction of the text, and the interval if there is one. */
static void bar(struct canvas *c, const struct axis_box *a, const struct bars *b,
                const struct word_row *r, double y, double pitch)
{
    char fit[64], lift[32];
    double v = value_of(b, r), base = base_of(b, r), h = fmin(2.2, pitch * .66);
    bool more = r->lift >= 1;
    canvas_text(c, a->x - 1.5, y, text_fit(c, r->word, PT_TICK, b->names, fit, sizeof fit), PT_TICK,
                ALIGN_RIGHT, ink, 0);
    if (isfinite(v))
        canvas_rect(c, a->x, y - h / 2, axis_x(a, fmin(v, a->x1)) - a->x, h,
                    more ? palette_line(0) : lighter);
    if (b->kept && isfinite(r->low) && isfinite(r->high)) {
        const double xy[] = {axis_x(a, r->low), y, axis_x(a, r->high), y};
        canvas_line(c, xy, 2, 0.3, ink);
    }
    if (!b->kept && isfinite(base)) {
        double x = axis_x(a, base);
        const double xy[] = {x, y - .45 * pitch, x, y + .45 * pitch};
        canvas_line(c, xy, 2, 0.5, (struct rgb){1, 1, 1});
        canvas_line(c, xy, 2, 0.3, palette_line(1));
    }
    if (isfinite(r->lift))
        snprintf(lift, sizeof lift, "\xc3\x97%.2f  ", r->lift);
    else
        snprintf(lift, sizeof lift, "undefined  ");
    tick_text(r->count, fit);
    canvas_text(c, a->x + a->w + 1.5, y, lift, PT_TICK, ALIGN_LEFT, ink, 0);
    canvas_text(c, canvas_width(c) - 1.5, y, fit, PT_TICK, ALIGN_RIGHT, base_grey, 0);
}

static void notes(struct canvas *c, const struct axis_box *a, const struct bars *b)
{
    char text[96];
    double y = a->y + a->h + 10, x = a->x;
    bool pale = false;
    for (int k = 0; k < b->n; k++)
        pale |= b->list.row[k].lift < 1;
    const double tick[] = {x + .6, y - 1.3, x + .6, y + 1.3};
    canvas_line(c, tick, 2, 0.3, b->kept ? base_grey : palette_line(1));
    snprintf(text, sizeof text, b->kept ? "of all words: %.3g" : "fraction of the text",
             b->list.rate);
    canvas_text(c, x + 2.2, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    x += 4 + canvas_text_width(c, text, PT_SMALL, 0);
    if (pale) {
        canvas_rect(c, x, y - .9, 2.6, 1.8, lighter);
        canvas_text(c, x + 3.6, y, "lift below 1", PT_SMALL, ALIGN_LEFT, ink, 0);
        x += 5 + canvas_text_width(c, "lift below 1", PT_SMALL, 0);
    }
    if (b->list.n > b->n) {
        snprintf(text, sizeof text, "%lld more words not shown", (long long)(b->list.n - b->n));
        double wide = canvas_text_width(c, text, PT_SMALL, 0), right = canvas_width(c) - 1.5;
        bool below = right - wide < x;
        canvas_text(c, right, below ? y + 2.8 : y, text, PT_SMALL, ALIGN_RIGHT, base_grey, 0);
    }
}

static void prepare(struct canvas *c, struct bars *b, double h)
{
    b->n = b->n < (int)(h / MIN_ROW) ? b->n : (int)fmax(1, h / MIN_ROW);
    for (int k = 0; k < b->n; k++) {
        const struct word_row *r = &b->list.row[k];
        b->names = fmax(b->names, canvas_text_width(c, r->word, PT_TICK, 0));
        b->top = fmax(b->top, fmax(value_of(b, r), b->kept ? r->high : base_of(b, r)));
    }
    b->names = fmin(b->names, .36 * canvas_width(c)) + .01;
    b->top = b->top > 0 ? 1.04 * b->top : 1;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct bars b;
    int err = read_bars(t, s, &b, d);
    if (!err)
        err = canvas_room(c, "words", 64, TOP + BOTTOM + MIN_BARS * MIN_ROW, d);
    if (!err) {
        double h = canvas_height(c) - TOP - BOTTOM;
        prepare(c, &b, h);
        struct axis_box a = {.x = b.names + 3,
                             .y = TOP,
                             .h = h,
                             .x1 = b.top,
                             .xlabel = b.kept ? "cached fraction of the word"
                                              : "fraction of the cached tokens"};
        a.w = canvas_width(c) - a.x - 22;
        double pitch = a.h / fmax(b.n, 1), x = axis_x(&a, b.list.rate);
        const double rate[] = {x, a.y, x, a.y + a.h},
                     edge[] = {a.x, a.y, a.x, a.y + a.h, a.x + a.w, a.y + a.h};
        for (int k = 0; k < b.n; k++)
            bar(c, &a, &b, &b.list.row[k], a.y + (k + .5) * pitch, pitch);
        if (b.kept && b.list.rate <= b.top)
            canvas_line(c, rate, 2, 0.3, base_grey);
        canvas_line(c, edge, 3, 0.18, ink);
        axis_ticks_x(c, &a);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
        canvas_text(c, a.x + a.w + 1.5, a.y - 2.5, "lift", PT_TICK, ALIGN_LEFT, ink, 0);
        canvas_text(c, canvas_width(c) - 1.5, a.y - 2.5, "count", PT_TICK, ALIGN_RIGHT, base_grey,
                    0);
        notes(c, &a, &b);
    }
    words_free(&b.list);
    return err;
}

const struct figure fig_words = {
    .name = "words",
    .table = "words",
    .summary = "bars of the cached words, compared with the words of the text",
    .needs = "word:text count base_count",
    STYLE(struct words_style,
          WORD_KEY(struct words_style, sort, "count", "the order of the bars", "ratio", "count",
                   "table"),
          COUNT_KEY(struct words_style, top, 1, 1000, "most bars", .standard = "20"),
          WORD_KEY(struct words_style, value, "auto",
                   "the fraction of all cached tokens, or the cached fraction of the word", "auto",
                   "share", "kept")),
    .size = size,
    .draw = draw,
};
