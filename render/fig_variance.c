/* fig_variance.c - draws the fraction of variance that each factor explains, as bars: over the
 * values of all heads, and as thin bars the mean of the per-head fractions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/cells.h"
#include "render/marks.h"
#include "render/note.h"

enum { MAX_BARS = 24, LEFT = 27, TOP = 8, RIGHT = 9, BOTTOM = 11, WIDTH = 110, EDGE = 3 };
enum { NOTE = 512 };
static const double ROW = 5.2, MIN_ROW = 4.6, THICK = 1.9, THIN = 1.3, KEY = 3.5;

#define AS_TOKEN "within a head: as token"

/* Names of the factors of the analysis, and why some have no value within a head. */
static const struct {
    const char *factor, *name, *why;
} known[] = {
    {"layer", "layer", "does not vary within a head"},
    {"head", "head", "does not vary within a head"},
    {"token", "token", NULL},
    {"class", "token class", NULL},
    {"role", "role (prompt, answer)", NULL},
    {"position", "position in the text", NULL},
    {"key_norm", "length of the key", NULL},
    {"head+token", "head + token", AS_TOKEN},
    {"head*token", "head \xc3\x97 token", AS_TOKEN},
};
enum { KNOWN = sizeof known / sizeof *known };

struct bars {
    int n;
    const char *name[MAX_BARS],
        *why[MAX_BARS]; /* why: without a value within a head; may be NULL */
    const char *alone;  /* a factor with one level, not drawn; NULL: none */
    double all[MAX_BARS], within[MAX_BARS];
    double all_end[MAX_BARS][2], within_end[MAX_BARS][2]; /* intervals; NaN: not drawn */
    double most;                                          /* longest */
};

static struct bars read_bars(const struct table *t)
{
    struct bars b = {.n = 0, .most = 0};
    int head = table_find(t, "head"), name = table_find(t, "factor");
    int all = table_find(t, "epsilon2"), within = table_find(t, "within");
    int levels = numeric_column(t, "levels");
    const int end[] = {numeric_column(t, "low"), numeric_column(t, "high"),
                       numeric_column(t, "within_low"), numeric_column(t, "within_high")};
    for (int64_t r = 0; r < table_rows(t) && b.n < MAX_BARS; r++) {
        if (strcmp(table_str(t, head, r), "all") != 0)
            continue;
        const char *factor = table_str(t, name, r);
        int f = 0;
        while (f < KNOWN && strcmp(factor, known[f].factor) != 0)
            f++;
        b.name[b.n] = f < KNOWN ? known[f].name : factor;
        b.why[b.n] = f < KNOWN ? known[f].why : NULL;
        if (levels >= 0 && table_int(t, levels, r) == 1) {
            b.alone = b.name[b.n];
            continue;
        }
        b.all[b.n] = table_real(t, all, r);
        b.within[b.n] = table_real(t, within, r);
        b.most = fmax(b.most, fmax(b.all[b.n], b.within[b.n])); /* fmax ignores NaN */
        for (int k = 0; k < 2; k++) {
            b.all_end[b.n][k] = end[k] < 0 ? NAN : table_real(t, end[k], r);
            b.within_end[b.n][k] = end[2 + k] < 0 ? NAN : table_real(t, end[2 + k], r);
            b.most = fmax(b.most, fmax(b.all_end[b.n][k], b.within_end[b.n][k]));
        }
        b.n++;
    }
    return b;
}

/* Writes the note: the run, the numbers of values, and the factors that are left out. */
static void note_of(const struct table *t, const struct bars *b, char out[NOTE])
{
    char run[NOTE_RUN], values[24], heads[24];
    const char *scale = table_meta(t, "scale");
    int n = 0;
    bool rate = scale && strcmp(scale, "rate") == 0;
    note_method(t, run);
    if (table_meta_int(t, "values", 0) > 0) {
        note_number(table_meta_real(t, "values", 0), values);
        note_number(table_meta_real(t, "heads", 0), heads);
        n = snprintf(out, NOTE, "%s values of %s heads%s", values, heads,
                     rate ? ", log of the decay rate \xe2\x88\x92ln \xce\xb2" : "");
    }
    if (*run)
        n += snprintf(out + n, NOTE - (size_t)n, "%s%s", n ? "; " : "", run);
    bool joint = false;
    for (int i = 0; i < b->n; i++)
        joint |= b->why[i] && strcmp(b->why[i], AS_TOKEN) == 0;
    if (joint)
        n += snprintf(out + n, NOTE - (size_t)n,
                      "%shead + token: the sum of two effects; head \xc3\x97 token: an effect for "
                      "each token of each head",
                      n ? "\n" : "");
    if (b->alone)
        snprintf(out + n, NOTE - (size_t)n, "%s%.40s is left out: it has one value", n ? "\n" : "",
                 b->alone);
}

static struct note place_of(double width)
{
    return (struct note){.left = EDGE, .right = width - EDGE, .pt = PT_TICK};
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct bars b = read_bars(t);
    char note[NOTE];
    *w = s->width_mm > 0 ? s->width_mm : WIDTH;
    note_of(t, &b, note);
    struct note place = place_of(*w);
    *h = TOP + BOTTOM + ROW * b.n + note_height(NULL, s, &place, note) + 1;
}

static double on_axis(const struct axis_box *a, double v)
{
    return axis_x(a, fmin(fmax(v, 0), a->x1));
}

/* Draws the interval of a bar.  Returns the right end of bar and interval. */
static double interval(struct canvas *c, const struct axis_box *a, double y, const double end[2],
                       double x)
{
    if (isnan(end[0]) || isnan(end[1]))
        return x;
    double low = on_axis(a, end[0]), high = on_axis(a, end[1]);
    const double line[] = {low, y, high, y};
    canvas_line(c, line, 2, 0.25, ink);
    for (int k = 0; k < 2; k++) {
        double at = k ? high : low;
        const double cap[] = {at, y - .45, at, y + .45};
        canvas_line(c, cap, 2, 0.25, ink);
    }
    return fmax(x, high);
}

/* Draws a bar and its number.  A fraction below 0 has no length.  A bar beyond the axis is cut, but
 * its number is complete. */
static void bar(struct canvas *c, const struct axis_box *a, double y, double thick, double v,
                const double ends[2], struct rgb colour)
{
    char text[24] = "undefined";
    double end = isnan(v) || v < 0 ? 0 : fmin(v, a->x1);
    if (!isnan(v))
        snprintf(text, sizeof text, "%.3f", v);
    minus_signs(text, sizeof text);
    canvas_rect(c, a->x, y - thick / 2, axis_x(a, end) - a->x, thick, colour);
    canvas_text(c, interval(c, a, y, ends, axis_x(a, end)) + 0.8, y, text, PT_SMALL, ALIGN_LEFT,
                ink, 0);
}

static const char *within_text(bool intervals)
{
    return intervals ? "within a head, mean; lines: 95 % CI" : "within a head, mean over heads";
}

/* Explains the two kinds of bars above the axis. */
static void legend(struct canvas *c, double x, double y, bool intervals)
{
    canvas_rect(c, x, y - THICK / 2, KEY, THICK, palette_line(0));
    canvas_text(c, x + KEY + 1, y, "all values", PT_TICK, ALIGN_LEFT, ink, 0);
    x += KEY + 4 + canvas_text_width(c, "all values", PT_TICK, 0);
    canvas_rect(c, x, y - THIN / 2, KEY, THIN, palette_line(1));
    canvas_text(c, x + KEY + 1, y, within_text(intervals), PT_TICK, ALIGN_LEFT, ink, 0);
}

/* Draws the name and the bars of factor i around y. */
static void draw_factor(struct canvas *c, const struct axis_box *a, const struct bars *b, int i,
                        double y, double row)
{
    char fit[96];
    bool two = !isnan(b->within[i]);
    canvas_text(c, a->x - 1.5, y, text_fit(c, b->name[i], PT_TICK, LEFT - 2, fit, sizeof fit),
                PT_TICK, ALIGN_RIGHT, ink, 0);
    bar(c, a, y - row * .18, THICK, b->all[i], b->all_end[i], palette_line(0));
    if (two)
        bar(c, a, y + row * .24, THIN, b->within[i], b->within_end[i], palette_line(1));
    else if (b->why[i])
        canvas_text(c, a->x + 0.8, y + row * .24, b->why[i], PT_SMALL, ALIGN_LEFT, quiet, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct bars b = read_bars(t);
    char note[NOTE];
    int intervals = 0;
    note_of(t, &b, note);
    double W = canvas_width(c);
    struct note place = place_of(W);
    double below = BOTTOM + note_height(c, s, &place, note) + 1;
    for (int i = 0; i < b.n; i++)
        intervals += isfinite(b.all_end[i][0]);
    double top = isnan(s->vmax) ? fmax(.1, ceil(b.most * 10 - 1e-9) / 10) : s->vmax;
    struct axis_box a = {.x = LEFT,
                         .y = TOP,
                         .w = W - LEFT - RIGHT,
                         .h = canvas_height(c) - TOP - below,
                         .x1 = top,
                         .y1 = 1,
                         .xlabel = "fraction of the variance explained (\xce\xb5\xc2\xb2)"};
    double row = a.h / (b.n ? b.n : 1);
    if (!(top > 0))
        return kvf_fail(d, KVF_E_ARG, "--vmax: shares start at 0");
    double key = 2 * KEY + 7 + canvas_text_width(c, "all values", PT_TICK, 0)
                 + canvas_text_width(c, within_text(intervals), PT_TICK, 0);
    double label = canvas_text_width(c, a.xlabel, PT_LABEL, 0);
    int err = canvas_room(c, "variance", fmax(fmax(EDGE + key, LEFT + 30), label + 2),
                          TOP + below + MIN_ROW * b.n, d);
    if (err)
        return err;
    for (int i = 0; i < b.n; i++)
        draw_factor(c, &a, &b, i, a.y + row * (i + .5), row);
    axis_ticks_x(c, &a);
    const double lines[] = {a.x, a.y, a.x, a.y + a.h, a.x + a.w, a.y + a.h};
    canvas_line(c, lines, 3, 0.18, ink);
    canvas_text(c, fmin(a.x + a.w / 2, W - label / 2 - 1), a.y + a.h + 6, a.xlabel, PT_LABEL,
                ALIGN_CENTER, ink, 0);
    legend(c, fmin(a.x, W - key), TOP / 2.0, intervals > 0);
    note_draw(c, &place, canvas_height(c) - below + BOTTOM + 1.5, note);
    return KVF_OK;
}

const struct figure fig_variance = {
    .name = "variance",
    .table = "variance",
    .summary = "fraction of the variance that each factor explains, over all heads and within one",
    .needs = "head:text factor:text epsilon2 within",
    .size = size,
    .draw = draw,
};
