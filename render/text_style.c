/* text_style.c - chooses the colours of tokens by a column and draws their legend. */
#include "render/text_style.h"
#include "render/note.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/cells.h"
#include "render/clamp.h"
#include "render/marks.h"
#include "render/text_colours.h"
#include "render/plot.h"

/* In the order of the words of the key `by`, after "auto". */
static const struct text_colouring colourings[] = {
    {"kept", "fraction of KV heads that cache the token at the end",
     "at the end of the run:", KIND_SHARE, "a run with the probe evict"},
    {"mean_residency", "fraction of its life that the token was cached, mean of KV heads",
     "fraction of its life that the token was cached", KIND_SHARE, "a run with the probe evict"},
    {"state", "at the end of the run:", "at the end of the run:", KIND_STATE,
     "a run with the probe evict"},
    {"mean_beta", "half-life of the mean \xce\xb2 of KV heads, steps, log scale",
     "half-life of \xce\xb2, steps, log scale", KIND_HALF, "a run with retention gates"},
    {"mean_retention", "retention, mean over steps and KV heads", "retention, mean over steps",
     KIND_FRACTION, "a run with retention gates"},
    {"last_use_age", "age at last use by any head, steps, log scale",
     "age at last use, steps, log scale", KIND_AGE, "a run with the probe survival"},
    {"saliency", "saliency (negative: line below), nats, mean of KV heads",
     "saliency (negative: line below), nats", KIND_SIGNED, "kvfate ablate --as saliency"},
    {"nll", "negative log likelihood, nats", "negative log likelihood, nats", KIND_RANGE,
     "a run with the probe nll"},
    {"kl", "KL to the full cache after the token is evicted, nats",
     "KL to the full cache after the token is evicted, nats", KIND_SKEWED, "kvfate ablate"},
    {"dnll", "NLL that the token saves (blue) or costs (red, line below), nats",
     "NLL that the token saves (blue) or costs (red, line below), nats", KIND_SIGNED,
     "kvfate ablate"},
};
_Static_assert(sizeof colourings / sizeof *colourings == TEXT_BY_EFFECT + 1,
               "two colourings of effects, counted from 1");

/* Every ink has a contrast of at least 4.5 to its background (WCAG 2, AA). */
static const struct rgb paper = {1, 1, 1}, black = {0, 0, 0}, grey = {0.46, 0.46, 0.46},
                        blue = {0.04, 0.18, 0.72}, orange = {0.68, 0.28, 0},
                        held = {0.42, 0.66, 0.92}, middle_blue = {0.25, 0.53, 0.82},
                        dark_blue = {0.03, 0.25, 0.55}, missing = {0.85, 0.85, 0.85},
                        on_missing = {0.3, 0.3, 0.3};

/* ---- the keys */

enum { BY_AUTO, MARK_AUTO = 0, MARK_TEXT, MARK_FILL };
static const char *const by_words[] = {"auto", "kept",      "residency", "state",
                                       "beta", "retention", "last-use",  "saliency",
                                       "nll",  NULL}; /* further words belong to effect-text */

const struct opt text_style_keys[] = {
    LIST_KEY(struct tokens_style, by, "auto",
             "quantity shown for each token; auto is kept, without an error if it is unknown",
             by_words),
    WORD_KEY(struct tokens_style, mark, "auto", "colour of the letters, or of the background",
             "auto", "text", "fill"),
    COUNT_KEY(struct tokens_style, page, 1, 100000, "the page that a PNG or SVG shows",
              .absent = "the complete text in the space available"),
    COUNT_KEY(struct tokens_style, columns, 1, 100000, "texts side by side",
              .absent = "as many as fit"),
    {.type = OPT_END},
};

/* ---- values */

static enum text_kind kind_of(const struct text_style *x)
{
    return x->by->kind;
}

/* The scale of half-lives: 1 to 1,000 steps.  If all are below 100 steps, it ends at the next round
 * number. */
static const double MIDDLE = 0.6;
enum { HALF_DECADES = 3, NARROW_DECADES = 2 };

/* Returns the position of a value on the colour scale: a logarithm for ages, with "never" as age 0,
 * and for half-lives.  NaN stays NaN. */
static double scaled(const struct text_style *x, double v)
{
    if (kind_of(x) == KIND_HALF)
        return clamp(log10(half_life(v)), -HALF_DECADES, 2 * HALF_DECADES);
    return kind_of(x) == KIND_AGE ? log10(1 + clamp(v, 0, INFINITY)) : v;
}

/* Returns the value of tokens [row0, row1), which share a character: the mean, or the largest of
 * ages. */
static double value_of(const struct text_style *x, int64_t row0, int64_t row1)
{
    double sum = 0, most = -1;
    for (int64_t r = row0; r < row1; r++) {
        double v = table_real(x->t, x->column, r);
        sum += v;
        most = v > most ? v : most;
    }
    double mean = sum / (double)(row1 - row0);
    return kind_of(x) == KIND_AGE && !isnan(mean) ? most : mean;
}

/* Returns the state of tokens [row0, row1), which share a character: evicted if one of them is,
 * else kept if they differ. */
static const char *state_of(const struct text_style *x, int64_t row0, int64_t row1)
{
    const char *first = table_str(x->t, x->column, row0);
    bool differ = false, evicted = strcmp(first, "evicted") == 0;
    for (int64_t r = row0 + 1; r < row1; r++) {
        const char *s = table_str(x->t, x->column, r);
        differ |= strcmp(s, first) != 0;
        evicted |= strcmp(s, "evicted") == 0;
    }
    if (!differ)
        return first;
    return evicted ? "evicted" : "kept";
}

/* Returns true if the method made no choice about tokens [row0, row1): they are sinks, in the
 * recent window, or newer than the last eviction. */
static bool is_protected(const struct text_style *x, int64_t row0, int64_t row1)
{
    for (int64_t r = row0; r < row1; r++) {
        const char *s = table_str(x->t, x->state, r);
        if (strcmp(s, "sink") != 0 && strcmp(s, "recent") != 0 && strcmp(s, "new") != 0)
            return false;
    }
    return true;
}

/* Reads the values that have a colour, in colour-scale units, and sorts them.  Counts the other
 * values for the legend.  Returns the number of values.  value: [rows]. */
static int64_t read_values(struct text_style *x, double *value)
{
    int64_t n = 0;
    for (int64_t r = 0; r < table_rows(x->t); r++) {
        double v = table_real(x->t, x->column, r);
        bool guarded = x->hatched && is_protected(x, r, r + 1);
        x->unknown += isnan(v);
        x->never += kind_of(x) == KIND_AGE && v < 0;
        x->guarded += guarded;
        if (isfinite(v) && !guarded)
            value[n++] = scaled(x, v);
    }
    qsort(value, (size_t)n, sizeof *value, order_double);
    return n;
}

static void count_states(struct text_style *x)
{
    for (int64_t r = 0; r < table_rows(x->t); r++) {
        x->mixed += strcmp(table_str(x->t, x->column, r), "mixed") == 0;
        x->unknown += !*table_str(x->t, x->column, r);
    }
}

/* Returns the reach around 0 that covers 19/20 of n sorted values. */
static double reach_of_max(const double *v, int64_t n)
{
    int64_t a = 0, b = n - 1;
    for (int64_t k = n / 20; k > 0; k--)
        if (fabs(v[a]) > fabs(v[b]))
            a++;
        else
            b--;
    return fmax(fabs(v[a]), fabs(v[b]));
}

/* Sets the colour range for n sorted values: 0 to 1 for fractions.  If a few other values are more
 * than twice the other 19/20, the range covers only the 19/20. */
static void find_range(struct text_style *x, const double *v, int64_t n,
                       const struct figure_style *s)
{
    double lo = n ? v[0] : INFINITY, hi = n ? v[n - 1] : -INFINITY;
    struct figure_style own = *s;
    bool share = kind_of(x) == KIND_SHARE || kind_of(x) == KIND_FRACTION;
    bool age = kind_of(x) == KIND_AGE, far = kind_of(x) == KIND_SKEWED, narrow = false;
    if (kind_of(x) == KIND_SIGNED) {
        double reach = fmax(fabs(lo), fabs(hi)), most = n ? reach_of_max(v, n) : reach;
        x->open = most > 0 && most < reach / 2 && isnan(s->vmax) && isnan(s->vmin);
        hi = x->open ? most : reach;
        double asked = fmax(fabs(s->vmin), fabs(s->vmax)); /* NaN if both are NaN */
        hi = asked > 0 ? asked : hi;
        lo = own.vmin = -hi; /* 0 stays in the middle */
        own.vmax = hi;
    }
    if (share || (!n && age)) {
        lo = 0;
        hi = 1;
    } else if (far && n && v[n - 1 - n / 20] > lo && v[n - 1 - n / 20] < hi / 2) {
        hi = v[n - 1 - n / 20];
        x->open = isnan(s->vmax);
    }
    if (kind_of(x) == KIND_HALF) {
        lo = 0;
        hi = HALF_DECADES;
        narrow = n && v[n - 1] < NARROW_DECADES && isnan(s->vmax);
        if (narrow)
            hi = log10(round_up(pow(10, fmax(.3, v[n - 1]))));
        own.vmin = log10(s->vmin);
        own.vmax = log10(s->vmax);
        x->open = !narrow && isnan(s->vmin) && isnan(s->vmax);
    }
    if (lo > 0 && lo < .01 * hi) /* start the scale at 0, not at 5.7e-06 */
        lo = 0;
    if (age) {
        lo = 0;
        own.vmin = scaled(x, s->vmin);
        own.vmax = scaled(x, s->vmax);
    }
    x->range = colours_make(&own, lo, hi);
    x->range.zoomed = share && (x->range.lo > lo || x->range.hi < hi);
    for (int64_t i = 0; i < n; i++)
        colours_at(&x->range, v[i]);
    x->open |= x->range.clipped > 0 && isnan(s->vmin)
               && (kind_of(x) == KIND_SIGNED || kind_of(x) == KIND_SKEWED);
}

static int survey(struct text_style *x, const struct figure_style *s)
{
    if (kind_of(x) == KIND_STATE) {
        count_states(x);
        return KVF_OK;
    }
    double *value = MEM_NEW(double, (size_t)table_rows(x->t) + 1);
    if (!value)
        return KVF_E_NOMEM;
    find_range(x, value, read_values(x, value), s);
    mem_free(value);
    return KVF_OK;
}

int text_style_read(struct text_style *x, const struct table *t, const struct figure_style *s,
                    struct kvf_diag *d)
{
    const struct tokens_style *o = s->own;
    bool named = o->by != BY_AUTO;
    x->t = t;
    x->by = &colourings[named ? o->by - 1 : 0];
    x->page = (int)o->page;
    x->columns = (int)o->columns;
    x->column = table_find(t, x->by->column);
    x->state = table_find(t, "state");
    x->fill = o->mark != MARK_TEXT;
    x->hatched = x->fill && kind_of(x) == KIND_SHARE;
    if (kind_of(x) == KIND_HALF && (s->vmin <= 0 || s->vmax <= 0))
        return kvf_fail(d, KVF_E_ARG,
                        "--vmin and --vmax of half-lives are numbers of steps above 0");
    int err = survey(x, s);
    if (err)
        return err;
    if (named && table_rows(t) > 0 && x->unknown == table_rows(t))
        return kvf_fail(d, KVF_E_ARG, "--style by=%s: no token has a value of %s; %s gives it",
                        o->by < TEXT_BY_EFFECT ? by_words[o->by] : x->by->column, x->by->column,
                        x->by->from);
    return KVF_OK;
}

/* ---- looks */

/* Returns true if the value is the fate in one head: kept or not. */
static bool is_whole(const struct text_style *x)
{
    return x->one && strcmp(x->by->column, "kept") == 0;
}

/* Returns the colour of the background: lightness falls evenly from white over a saturated blue,
 * which is at MIDDLE, to dark blue. */
static struct rgb fill_at(const struct text_style *x, double v)
{
    if (x->range.map)
        return palette_at(x->range.map, v);
    if (kind_of(x) == KIND_SIGNED)
        return palette_at("redblue", v);
    if (is_whole(x))
        return lab_between(paper, held, v);
    return v < MIDDLE ? lab_between(paper, middle_blue, v / MIDDLE)
                      : lab_between(middle_blue, dark_blue, (v - MIDDLE) / (1 - MIDDLE));
}

static struct rgb ink_at(const struct text_style *x, double v)
{
    if (!x->fill)
        return lab_between(grey, blue, v);
    bool plain = is_whole(x) && !x->range.map;
    return plain ? lab_between(grey, black, v) : contrast_ink(fill_at(x, v));
}

static const struct text_look protected_look = {
    .ink = {0, 0, 0}, .fill = {1, 1, 1}, .filled = true, .hatched = true};

static struct text_look look_of_state(const struct text_style *x, const char *state)
{
    bool kept = strcmp(state, "kept") == 0, evicted = strcmp(state, "evicted") == 0;
    if (strcmp(state, "mixed") == 0 || !*state)
        return (struct text_look){.ink = on_missing, .fill = missing, .filled = x->fill || !*state};
    if (kept)
        return (struct text_look){.ink = x->fill ? black : blue, .fill = held, .filled = x->fill};
    if (evicted)
        return (struct text_look){.ink = grey, .fill = paper};
    if (x->fill)
        return protected_look;
    return (struct text_look){.ink = orange, .underlined = true};
}

/* Returns true if a colour shows a negative value that is not nearly 0, which a line below the text
 * shows in grey too.  v: colour-scale position. */
static bool is_negative(const struct text_style *x, double v)
{
    return kind_of(x) == KIND_SIGNED && v < 0.45;
}

/* Returns the look for v, a colour-scale position in 0 .. 1. */
static struct text_look look_at(const struct text_style *x, double v)
{
    if (isnan(v))
        return (struct text_look){.ink = on_missing, .fill = missing, .filled = true};
    return (struct text_look){.ink = ink_at(x, v),
                              .fill = fill_at(x, v),
                              .filled = x->fill,
                              .underlined = is_negative(x, v)};
}

static const struct text_look unused = {.ink = {0.46, 0.46, 0.46}};

struct text_look text_style_look(const void *style, int64_t row0, int64_t row1)
{
    const struct text_style *x = style;
    if (kind_of(x) == KIND_STATE)
        return look_of_state(x, state_of(x, row0, row1));
    if (x->hatched && is_protected(x, row0, row1))
        return protected_look;
    struct colours range = x->range;
    double v = value_of(x, row0, row1);
    if (kind_of(x) == KIND_AGE && v < 0)
        return unused;
    v = colours_at(&range, scaled(x, v));
    return look_at(x, isnan(v) ? v : fmin(fmax(v, 0), 1));
}

bool text_style_bold(const void *style, int64_t row0, int64_t row1)
{
    const struct text_style *x = style;
    struct colours range = x->range;
    if (kind_of(x) == KIND_STATE)
        return strcmp(state_of(x, row0, row1), "kept") == 0;
    return colours_at(&range, scaled(x, value_of(x, row0, row1))) >= 0.5;
}

/* ---- legend */

struct legend {
    const struct text_style *x;
    struct canvas *c;
    double left, right, less, y, at; /* at: start of the next item */
    int row;
    bool draw;
};

enum { GAP = 3 };

/* Moves the legend to a place for an item of that width.  Returns its x. */
static double place(struct legend *g, double w)
{
    double right = g->row ? g->right : g->right - g->less;
    if (g->at + w > right && g->at > g->left) {
        g->at = g->left;
        g->row++;
    }
    double x = g->at;
    g->at += w + GAP;
    return x;
}

static double middle(const struct legend *g)
{
    return g->y + (g->row + 0.5) * LEGEND_PITCH;
}

static void write_part(struct legend *g, const char *s)
{
    double w = canvas_text_width(g->c, s, PT_TICK, 0);
    double most = g->right - g->left - (g->row ? 0 : g->less);
    double pt = w > most ? PT_TICK * most / w : PT_TICK, x = place(g, fmin(w, most));
    if (g->draw)
        canvas_text(g->c, x, middle(g), s, pt, ALIGN_LEFT, ink, 0);
}

/* Writes a text into the legend, in several rows if necessary. */
static void write_text(struct legend *g, const char *s)
{
    char part[192];
    while (*s) {
        double most = g->right - g->left - (g->row ? 0 : g->less);
        size_t n = (size_t)snprintf(part, sizeof part, "%s", s);
        n = n < sizeof part ? n : sizeof part - 1;
        while (canvas_text_width(g->c, part, PT_TICK, 0) > most && strrchr(part, ' '))
            part[n = (size_t)(strrchr(part, ' ') - part)] = 0;
        write_part(g, part);
        s += n + strspn(s + n, " ");
        if (*s) {
            g->at = g->left;
            g->row++;
        }
    }
}

/* Writes a word of the legend in the look that it describes. */
static void sample(struct legend *g, const char *s, struct text_look look, int bold)
{
    double w = canvas_text_width(g->c, s, PT_TICK, bold), pad = look.filled ? 0.6 : 0;
    double x = place(g, w + 2 * pad), y = middle(g), base = y + 0.8;
    if (!g->draw)
        return;
    if (look.filled)
        canvas_rect(g->c, x, y - 1.5, w + 2 * pad, 3, look.fill);
    if (look.hatched)
        hatch(g->c, x, y - 1.5, w + 2 * pad, 3);
    canvas_word(g->c, x + pad, base, s, PT_TICK, bold, look.ink);
    if (look.underlined)
        canvas_rect(g->c, x + pad, base + 0.5, w, 0.23, look.ink);
}

static double unscaled(const struct text_style *x, double v)
{
    if (kind_of(x) == KIND_HALF)
        return pow(10, v);
    return kind_of(x) == KIND_AGE ? pow(10, v) - 1 : v;
}

/* Formats a number of the legend. sign: prefix of a range end that values exceed. */
static void number(const struct text_style *x, double v, const char *sign, char out[24])
{
    char text[20];
    const char *digits = x->open ? "%.3g" : "%.4g";
    digits = kind_of(x) == KIND_SHARE ? "%.2g" : digits;
    if (kind_of(x) == KIND_HALF)
        digits = "%.5g";
    snprintf(text, 16, digits, kind_of(x) == KIND_AGE ? round(unscaled(x, v)) : unscaled(x, v));
    minus_signs(text, sizeof text);
    snprintf(out, 24, "%s%s", sign, text);
}

/* Draws the colour bar between the numbers at its ends. */
static void bar(struct legend *g)
{
    const struct text_style *x = g->x;
    char lo[24], hi[24];
    bool both = x->open && (kind_of(x) == KIND_SIGNED || kind_of(x) == KIND_HALF);
    number(x, x->range.lo, both ? "\xe2\x89\xa4" : "", lo);
    number(x, x->range.hi, x->open ? "\xe2\x89\xa5" : "", hi);
    double a = canvas_text_width(g->c, lo, PT_TICK, 0), b = canvas_text_width(g->c, hi, PT_TICK, 0);
    double w = fmin(30, fmax(8, g->right - g->left - a - b - 2)), at = place(g, a + w + b + 2);
    double y = middle(g);
    if (!g->draw)
        return;
    canvas_text(g->c, at, y, lo, PT_TICK, ALIGN_LEFT, ink, 0);
    canvas_text(g->c, at + a + w + 2, y, hi, PT_TICK, ALIGN_LEFT, ink, 0);
    for (int i = 0; i < 60; i++) {
        struct text_look look = look_at(x, (i + 0.5) / 60);
        canvas_cell(g->c, at + a + 1 + i * w / 60, y - 1, (i < 59 ? 2 : 1) * w / 60, 2,
                    x->fill ? look.fill : look.ink); /* the next rectangle covers the other half */
    }
    canvas_frame(g->c, at + a + 1, y - 1, w, 2, 0.12, on_missing);
}

static const char guarded_name[] = "protected (sink, recent) or not yet compressed";

static void states(struct legend *g)
{
    const struct text_style *x = g->x;
    sample(g, "kept", look_of_state(x, "kept"), !x->fill);
    sample(g, "evicted", look_of_state(x, "evicted"), 0);
    sample(g, guarded_name, look_of_state(x, "sink"), 0);
    if (x->mixed)
        sample(g, "differs between heads", look_of_state(x, "mixed"), 0);
}

/* Writes the meaning of the colours, for example "L5K1: age at last use, steps, log scale
 * (top-64)". */
static void write_meaning(struct legend *g)
{
    const struct text_style *x = g->x;
    const char *set = kind_of(x) == KIND_AGE ? table_meta(x->t, "criterion") : NULL;
    const char *head = strcmp(x->by->column, "nll") == 0 ? NULL : x->head; /* not of a head */
    char text[192], plain[PLOT_NAME];
    criterion_name(set ? set : "", plain);
    snprintf(text, sizeof text, "%.30s%s%s%s%.40s%s", head ? head : "", head ? ": " : "",
             x->one ? x->by->of_head : x->by->label, set ? " (" : "", set ? plain : "",
             set ? ")" : "");
    write_text(g, text);
}

/* Writes the run, and the tokens that are drawn of it, into a row of their own. */
static void write_run(struct legend *g)
{
    const struct table *t = g->x->t;
    const char *tokens = table_meta(t, "tokens");
    long long a = 0, b = 0, T = (long long)table_meta_int(t, "T", 0);
    int64_t steps = table_meta_int(t, "score_tokens", 0);
    char run[NOTE_RUN], text[NOTE_RUN + 128], of[24], total[32] = "", part[96] = "",
                                                      answer[64] = "";
    note_method(t, run);
    note_number((double)T, of);
    bool range = tokens && sscanf(tokens, "%lld:%lld", &a, &b) == 2;
    if (T > 0)
        snprintf(total, sizeof total, " of %s", of);
    if (range && a == 0)
        snprintf(part, sizeof part, "; the first %lld%s token%s", b, total,
                 b == 1 && T <= 0 ? "" : "s");
    else if (range)
        snprintf(part, sizeof part, "; tokens %lld to %lld%s", a, b - 1, total);
    if (steps > 0)
        snprintf(answer, sizeof answer, "; mean of %lld steps of the answer", (long long)steps);
    snprintf(text, sizeof text, "%s%s%s", *run ? run : "run", part, answer);
    if (!*run && !*part && !*answer)
        return;
    g->at = g->left;
    g->row++;
    write_text(g, text);
}

int text_style_legend(const struct text_style *x, struct canvas *c, double left, double right,
                      double less, double y, bool draw)
{
    struct legend g = {x, c, left, right, less, y, left, 0, draw};
    char note[COLOURS_NOTE];
    write_meaning(&g);
    if (kind_of(x) == KIND_STATE) {
        states(&g);
    } else if (is_whole(x)) {
        sample(&g, "kept", look_at(x, 1), !x->fill);
        sample(&g, "evicted", look_at(x, 0), 0);
    } else {
        bar(&g);
        if (!x->fill)
            sample(&g, "bold: half or more", look_at(x, 0.5), 1);
    }
    if (x->guarded)
        sample(&g, guarded_name, protected_look, 0);
    if (x->never)
        sample(&g, "never used", unused, 0);
    if (x->unknown)
        sample(&g, "not defined", look_at(x, NAN), 0);
    if ((x->range.zoomed || (x->range.clipped && !x->open)) && kind_of(x) != KIND_STATE) {
        colours_note(&x->range, note);
        write_text(&g, note);
    }
    write_run(&g);
    return g.row + 1;
}
