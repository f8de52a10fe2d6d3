/* fig_tokens_top.c - draws the words that a trace ranks first and last (TRIM-KV, figure 5b): the
 * mean of a number over all positions of a token's text, the highest on the left, the lowest on the
 * right, with the range of the positions.  The mean of beta is drawn as its half-life on a
 * logarithmic axis. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/note.h"

enum { TOP = 8, BOTTOM = 10, HALVES = 2, WIDTH = 120, EDGE = 3, LABEL = 128, NOTE = 512 };
static const double ROW = 4, MIN_ROW = 3, NAMES = 24;

static const char *const by_words[] = {"auto",      "beta", "retention", "kept",
                                       "residency", "nll",  NULL};
static const struct {
    const char *column, *label;
} shown[] = {{"", ""},
             {"mean_beta", "half-life of the mean \xce\xb2 (steps)"},
             {"mean_retention", "mean retention \xce\xb2^{t\xe2\x88\x92i}"},
             {"kept", "fraction of heads that cache it at the end"},
             {"mean_residency", "fraction of its life in the cache"},
             {"nll", "NLL (nats)"}};
struct top_style {
    int by;
    int64_t top, least;
};

struct word {
    const char *text;
    double sum, mean, low, high; /* over its positions */
    int64_t n;
};
struct ranking {
    struct word *word; /* owned; by decreasing mean */
    int64_t n;
    const char *label;
    bool half_lives, fractions;
};

static int by_mean(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    if (x->mean != y->mean)
        return x->mean < y->mean ? 1 : -1;
    return strcmp(x->text, y->text);
}

/* Chooses the ranked number.  Runs without gates rank by the number of heads that keep the
 * token. */
static int choose_number(const struct table *t, const struct figure_style *s)
{
    enum { AUTO, BETA, RETENTION, KEPT };
    int by = ((const struct top_style *)s->own)->by, beta = table_find(t, shown[BETA].column);
    for (int64_t r = 0; by == AUTO && r < table_rows(t); r++)
        if (isfinite(table_real(t, beta, r)))
            by = BETA;
    return by == AUTO ? KEPT : by;
}

/* Ranks the texts that have a number, one row per text. */
static int rank(const struct table *t, const struct figure_style *s, struct ranking *ret)
{
    int by = choose_number(t, s), value = table_find(t, shown[by].column),
        text = table_find(t, "joined");
    struct word *w = MEM_NEW(struct word, (size_t)table_rows(t));
    int64_t n = 0, m = 0;
    if (!w)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, value, r);
        if (isfinite(v) && table_str(t, text, r)[0])
            w[n++] = (struct word){table_str(t, text, r), v, 0, v, v, 1};
    }
    qsort(w, (size_t)n, sizeof *w, order_text);
    for (int64_t i = 0; i < n; i++) {
        if (m && strcmp(w[m - 1].text, w[i].text) == 0) {
            w[m - 1].sum += w[i].sum;
            w[m - 1].low = fmin(w[m - 1].low, w[i].low);
            w[m - 1].high = fmax(w[m - 1].high, w[i].high);
            w[m - 1].n++;
        } else {
            w[m++] = w[i];
        }
    }
    n = m;
    m = 0;
    for (int64_t i = 0; i < n; i++) {
        w[i].mean = w[i].sum / (double)w[i].n;
        if (w[i].n >= ((const struct top_style *)s->own)->least)
            w[m++] = w[i];
    }
    qsort(w, (size_t)m, sizeof *w, by_mean);
    *ret = (struct ranking){.word = w,
                            .n = m,
                            .label = shown[by].label,
                            .half_lives = strcmp(shown[by].column, "mean_beta") == 0,
                            .fractions = strcmp(shown[by].column, "nll") != 0};
    for (int64_t i = 0; ret->half_lives && i < m; i++) {
        w[i].mean = half_life(w[i].mean);
        w[i].low = half_life(w[i].low);
        w[i].high = half_life(w[i].high);
    }
    return KVF_OK;
}

/* Writes the heads of the table: "in head L11K1", "over 90 KV heads", or "in several heads". */
static void heads_of(const struct table *t, char out[CELL_TEXT])
{
    int head = table_find(t, "head");
    const char *first = head < 0 || !table_rows(t) ? "" : table_str(t, head, 0);
    bool one = *first;
    for (int64_t r = 1; one && r < table_rows(t); r++)
        one = strcmp(table_str(t, head, r), first) == 0;
    out[0] = 0;
    if (one && strcmp(first, "all") != 0)
        snprintf(out, CELL_TEXT, "in head %.40s", first);
    else if (one && table_meta_int(t, "heads", 0) > 0)
        snprintf(out, CELL_TEXT, "over %lld KV head%s", (long long)table_meta_int(t, "heads", 0),
                 table_meta_int(t, "heads", 0) == 1 ? "" : "s");
    else if (*first)
        snprintf(out, CELL_TEXT, "in several heads");
}

/* Writes the note: the run, the number of tokens, and the meaning of the marks. */
static void note_of(const struct table *t, const struct ranking *x, int64_t least, char out[NOTE])
{
    char run[NOTE_RUN], tokens[24], words[24], rare[48] = "";
    note_method(t, run);
    note_number((double)table_rows(t), tokens);
    note_number((double)x->n, words);
    if (least > 1)
        snprintf(rare, sizeof rare, " that occur %lld times or more", (long long)least);
    snprintf(out, NOTE,
             "%s%s%s tokens, %s different ones%s. \xc3\x97n: occurs n times; dot: mean; line: "
             "lowest to highest",
             run, *run ? "; " : "", tokens, words, rare);
}

static struct note place_of(double width)
{
    return (struct note){.left = EDGE, .right = width - EDGE, .pt = PT_TICK};
}

/* Returns the height of the axis title and the note.  c: NULL while the size is chosen. */
static double bottom_of(struct canvas *c, const struct table *t, const struct ranking *x,
                        const struct figure_style *s, double width)
{
    char note[NOTE];
    note_of(t, x, ((const struct top_style *)s->own)->least, note);
    struct note place = place_of(width);
    return BOTTOM + 1 + note_height(c, s, &place, note);
}

/* Returns the number of words per side, so that no word is on both. */
static int64_t side_of(const struct ranking *x, const struct figure_style *s)
{
    int64_t top = ((const struct top_style *)s->own)->top, half = (x->n + 1) / HALVES;
    return half < top ? half : top;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct ranking x = {.n = 0};
    *w = s->width_mm > 0 ? s->width_mm : WIDTH;
    *h = 60;
    if (rank(t, s, &x) == KVF_OK)
        *h = fmax(FIGURE_MIN_HEIGHT,
                  TOP + bottom_of(NULL, t, &x, s, *w) + ROW * (double)side_of(&x, s));
    mem_free(x.word);
}

/* Writes a word without its leading space, and its number of positions.  The spaces of a text of
 * spaces and line breaks are dots, as in the figure tokens; one space is the word. */
static void name_of(const struct word *w, char out[CELL_TEXT])
{
    char times[24] = "", text[CELL_TEXT];
    const char *word = *w->text == ' ' && w->text[1] ? w->text + 1 : w->text;
    bool blank = !w->text[strspn(w->text, " \xe2\x86\xb5")]; /* and the mark of a line break */
    if (w->n > 1)
        snprintf(times, sizeof times, " \xc3\x97%lld", (long long)w->n);
    snprintf(text, sizeof text, "%.30s", word);
    if (strcmp(w->text, " ") == 0) {
        snprintf(text, sizeof text, "(space)");
    } else if (blank) {
        size_t n = 0;
        for (const char *c = w->text; *c && n + 3 < 30; c++) {
            if (*c == ' ')
                text[n++] = '\xc2';
            text[n++] = *c == ' ' ? '\xb7' : *c;
        }
        text[n] = 0;
    }
    snprintf(out, CELL_TEXT, "%.40s%s", text, times);
}

static double on_axis(const struct axis_box *a, double v)
{
    return axis_x(a, fmax(a->x0, fmin(v, a->x1)));
}

static void draw_side(struct canvas *c, const struct word *word, int64_t n, struct axis_box a,
                      const char *heading, struct rgb colour)
{
    double row = a.h / (double)n;
    canvas_text(c, a.x + a.w / 2, a.y - 3.4, heading, PT_LABEL, ALIGN_CENTER, ink, 0);
    for (int64_t i = 0; i < n; i++) {
        double y = a.y + ((double)i + .5) * row;
        const double guide[] = {a.x, y, a.x + a.w, y};
        const double range[] = {on_axis(&a, word[i].low), y, on_axis(&a, word[i].high), y};
        char name[CELL_TEXT], fit[CELL_TEXT + 8];
        name_of(&word[i], name);
        canvas_dash(c, 0.3, 0.9);
        canvas_line(c, guide, 2, 0.12, tint(ink, .45));
        canvas_dash(c, 0, 0);
        if (word[i].n > 1)
            canvas_line(c, range, 2, 0.5, tint(colour, .5));
        canvas_disc(c, on_axis(&a, word[i].mean), y, 0.9, 0, colour);
        canvas_text(c, a.x - 1.5, y, text_fit(c, name, PT_TICK, NAMES - 2.5, fit, sizeof fit),
                    PT_TICK, ALIGN_RIGHT, ink, 0);
    }
    axis_ticks_x(c, &a);
    const double line[] = {a.x, a.y + a.h, a.x + a.w, a.y + a.h},
                 side[] = {a.x, a.y, a.x, a.y + a.h};
    canvas_line(c, line, 2, 0.18, ink);
    canvas_line(c, side, 2, 0.18, ink);
}

/* Computes the common range of both sides: 0 to 1 for fractions, the values of the drawn words for
 * half-lives.  Infinite ones are drawn at the end, which is then 1,000 steps or more. */
static void range_of(const struct ranking *x, int64_t n, const struct figure_style *s, double *lo,
                     double *hi)
{
    double low = 0, high = x->fractions ? 1 : 1.04 * x->word[0].mean;
    if (x->half_lives) {
        low = INFINITY;
        high = 0;
        for (int64_t i = 0; i < x->n; i++) {
            const struct word *w = &x->word[i];
            bool drawn = i < n || i >= x->n - n;
            low = drawn ? fmin(low, fmax(w->low, 1e-2)) : low;
            double end = isfinite(w->high) ? w->high : 1e3;
            high = drawn ? fmax(high, end) : high;
        }
        low = pow(10, floor(log10(fmin(low, 1e6)) * 2) / 2);
        high = pow(10, ceil(log10(fmax(high, 2 * low)) * 2) / 2); /* half decades */
    }
    *lo = axis_end(isnan(s->vmin) ? low : s->vmin);
    *hi = axis_end(isnan(s->vmax) ? high : s->vmax);
    *hi = *hi > *lo ? *hi : *lo + 1;
}

static int draw_sides(struct canvas *c, const struct table *t, struct ranking *x,
                      const struct figure_style *s, struct kvf_diag *d)
{
    char note[NOTE], of[CELL_TEXT], label[LABEL];
    int64_t n = side_of(x, s);
    double W = canvas_width(c), H = canvas_height(c), half = W / HALVES,
           below = bottom_of(c, t, x, s, W);
    int err = canvas_room(c, "tokens-top", 2 * NAMES + 30, TOP + below + MIN_ROW * (double)n, d);
    if (err)
        return err;
    struct axis_box a = {
        .x = NAMES, .y = TOP, .w = half - NAMES - 4, .h = H - TOP - below, .log_x = x->half_lives};
    range_of(x, n, s, &a.x0, &a.x1);
    if (x->half_lives && !(a.x0 > 0))
        return kvf_fail(d, KVF_E_ARG, "--vmin of half-lives is a number of steps above 0");
    draw_side(c, x->word, n, a, "highest", rgb_of(0x0072b2));
    a.x += half;
    draw_side(c, x->word + x->n - n, n, a, "lowest", rgb_of(0xd55e00));
    heads_of(t, of);
    bool zoomed = x->fractions && !x->half_lives && !(isnan(s->vmin) && isnan(s->vmax));
    snprintf(label, sizeof label, "%s%s%s%s", x->label, *of ? " " : "", of,
             zoomed ? ", zoomed" : "");
    raised_text(c, W / 2, H - below + BOTTOM - 2, label, PT_LABEL, ALIGN_CENTER, ink, 0);
    note_of(t, x, ((const struct top_style *)s->own)->least, note);
    struct note place = place_of(W);
    note_draw(c, &place, H - below + BOTTOM + 2, note);
    return KVF_OK;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct ranking x = {.n = 0};
    int err = rank(t, s, &x);
    if (!err && x.n == 0)
        err = kvf_fail(d, KVF_E_ARG,
                       "figure tokens-top: no token has a number in column %s and occurs %lld "
                       "times; --style by=kept, by=residency or by=nll ranks by others",
                       shown[choose_number(t, s)].column,
                       (long long)((const struct top_style *)s->own)->least);
    if (!err)
        err = draw_sides(c, t, &x, s, d);
    mem_free(x.word);
    return err;
}

const struct figure fig_tokens_top = {
    .name = "tokens-top",
    .table = "tokens",
    .summary = "the words that gates, or their fate in the cache, rank first and last",
    .needs = "joined:text mean_beta mean_retention kept mean_residency nll",
    STYLE(struct top_style,
          LIST_KEY(struct top_style, by, "auto", "the number that ranks; auto: beta, or else kept",
                   by_words),
          COUNT_KEY(struct top_style, top, 1, 40, "words on each side", .standard = "10"),
          COUNT_KEY(struct top_style, least, 1, 1e9, "occurrences of a word that is drawn",
                    .standard = "1")),
    .size = size,
    .draw = draw,
};
