/* fig_dynamics.c - shows how stable the process of a head's queries is.
 *
 * Each head has a row of panels: eigenvalues in the unit circle, running means, tails of the
 * whitened innovations against two laws, and the held-out R2. Each is compared with shuffled
 * steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/chart.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"

enum {
    PANELS = 4,
    TOP = 6,
    BOTTOM = 15,
    LEFT = 17,
    RIGHT = 2,
    MAX_HEADS = 24,
    PROMPTS = 7,
    NAMED = 3, /* prompts with an entry of the key each */
    RUNS = 512
};
static const double ROW = 34, GAP_X = 12.5, GAP_Y = 5, MIN_PANEL = 14;
static const struct rgb grey = {.55, .55, .55};

struct dynamics_style {
    int64_t heads; /* maximum number of drawn heads */
};

struct columns {
    const struct table *t;
    int head, prompt, rollout, surrogate, quantity, index, x, value;
};

/* One head and its rows [from, to) of the table. */
struct one {
    const char *head;
    int64_t from, to;
};

struct dynamics_view {
    struct columns k;
    struct one one[MAX_HEADS];
    int n, more;
    int64_t prompts; /* their number */
};

static bool is(const struct columns *k, int64_t r, const char *quantity, int surrogate)
{
    return strcmp(table_str(k->t, k->quantity, r), quantity) == 0
           && (surrogate < 0 || table_int(k->t, k->surrogate, r) == surrogate);
}

/* Returns the mark of a prompt, which distinguishes prompts in grey. */
static enum mark mark_of(int64_t prompt)
{
    static const enum mark marks[PROMPTS] = {MARK_DISC,  MARK_SQUARE, MARK_TRIANGLE, MARK_DIAMOND,
                                             MARK_CROSS, MARK_DOWN,   MARK_FRAME};
    return marks[prompt < 0 ? 0 : prompt % PROMPTS];
}

static struct rgb colour_of(int64_t prompt)
{
    return prompt < 0 ? ink : palette_line((int)(prompt % PROMPTS));
}

static void read_view(const struct table *t, const struct figure_style *s, struct dynamics_view *v)
{
    const struct dynamics_style *o = s->own;
    *v = (struct dynamics_view){.n = 0};
    v->k = (struct columns){.t = t,
                            .head = table_find(t, "head"),
                            .prompt = table_find(t, "prompt"),
                            .rollout = table_find(t, "rollout"),
                            .surrogate = table_find(t, "surrogate"),
                            .quantity = table_find(t, "quantity"),
                            .index = table_find(t, "index"),
                            .x = table_find(t, "x"),
                            .value = table_find(t, "value")};
    for (int64_t r = 0; r < table_rows(t); r++) {
        const char *head = table_str(t, v->k.head, r);
        bool new = r == 0 || strcmp(head, table_str(t, v->k.head, r - 1)) != 0;
        if (new && v->n < (int)o->heads)
            v->one[v->n++] = (struct one){head, r, r};
        else
            v->more += new;
        if (!v->more)
            v->one[v->n - 1].to = r + 1;
        int64_t prompt = table_int(t, v->k.prompt, r) + 1;
        v->prompts = prompt > v->prompts ? prompt : v->prompts;
    }
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct dynamics_view v;
    read_view(t, s, &v);
    int n = v.n ? v.n : 1;
    *w = 180;
    *h = TOP + n * ROW + (n - 1) * GAP_Y + BOTTOM;
}

/* ---- the panels */

/* Writes the number of points outside the axes into the corner of a panel. */
static void beyond(struct canvas *c, const struct axis_box *a, int n, const char *where)
{
    char text[48];
    snprintf(text, sizeof text, "%d %s", n, where);
    if (n)
        canvas_text(c, a->x + a->w - 1, a->y + a->h - 1.6, text, PT_SMALL, ALIGN_RIGHT, ink, 0);
}

/* Draws a value of a prompt or of shuffled steps. */
static void point(struct canvas *c, bool shuffled, int64_t prompt, double x, double y)
{
    mark_draw(c, shuffled ? MARK_RING : mark_of(prompt), x, y, 1.2,
              shuffled ? grey : colour_of(prompt));
}

static void eigenvalues(struct canvas *c, const struct dynamics_view *v, const struct one *o,
                        struct axis_box *a)
{
    const struct columns *k = &v->k;
    double side = fmin(a->w, a->h), most = 1.08;
    int far = 0;
    for (int64_t r = o->from; r < o->to; r++)
        if (is(k, r, "eigenvalue.modulus", -1)) {
            double modulus = table_real(k->t, k->value, r);
            most = fmax(most, fmin(2, 1.05 * modulus));
            far += modulus > 2;
        }
    a->x += (a->w - side) / 2;
    a->w = a->h = side;
    a->x0 = a->y0 = -most;
    a->x1 = a->y1 = most;
    double cx = axis_x(a, 0), cy = axis_y(a, 0);
    const double across[] = {a->x, cy, a->x + side, cy}, down[] = {cx, a->y, cx, a->y + side};
    canvas_line(c, across, 2, .12, (struct rgb){.8, .8, .8});
    canvas_line(c, down, 2, .12, (struct rgb){.8, .8, .8});
    canvas_disc(c, cx, cy, axis_x(a, 1) - cx, .25, grey);
    canvas_clip(c, a->x, a->y, side, side);
    for (int pass = 1; pass >= 0; pass--) /* shuffled steps first, at the bottom */
        for (int64_t r = o->from; r + 1 < o->to; r++)
            if (is(k, r, "eigenvalue.real", pass) && is(k, r + 1, "eigenvalue.imaginary", pass))
                point(c, pass, table_int(k->t, k->prompt, r),
                      axis_x(a, table_real(k->t, k->value, r)),
                      axis_y(a, table_real(k->t, k->value, r + 1)));
    canvas_unclip(c);
    beyond(c, a, far, "of modulus > 2");
}

static void widen(double *lo, double *hi, double v)
{
    if (isfinite(v)) {
        *lo = fmin(*lo, v); /* ignores NaN */
        *hi = fmax(*hi, v);
    }
}

static void mean_ranges(const struct dynamics_view *v, const struct one *o, struct axis_box *a)
{
    const struct columns *k = &v->k;
    a->x0 = a->x1 = a->y0 = a->y1 = NAN;
    for (int64_t r = o->from; r < o->to; r++)
        if (is(k, r, "running_mean", 0) && table_real(k->t, k->x, r) > 0) {
            widen(&a->x0, &a->x1, table_real(k->t, k->x, r));
            widen(&a->y0, &a->y1, table_real(k->t, k->value, r));
        }
    double grow = a->y1 > a->y0 ? .05 * (a->y1 - a->y0) : 1;
    a->y0 -= grow;
    a->y1 += grow;
    a->log_x = 1;
    if (!(a->x1 > a->x0))
        a->x1 = 2 * a->x0;
    if (isnan(a->x0) || isnan(a->y0))
        *a = (struct axis_box){
            .x = a->x, .y = a->y, .w = a->w, .h = a->h, .x0 = 1, .x1 = 10, .y1 = 1, .log_x = 1};
}

/* Draws the running means: a line per rollout and prompt, whose rows alternate in the table. */
static void running_means(struct canvas *c, const struct dynamics_view *v, const struct one *o,
                          struct axis_box *a)
{
    const struct columns *k = &v->k;
    struct {
        double x, y;
    } last[2][RUNS];
    int n = 0;
    for (int i = 0; i < RUNS; i++)
        last[0][i].x = last[0][i].y = last[1][i].x = last[1][i].y = NAN;
    mean_ranges(v, o, a);
    canvas_clip(c, a->x, a->y, a->w, a->h);
    for (int64_t r = o->from; r < o->to; r++) {
        if (!is(k, r, "running_mean", 0))
            continue;
        int64_t prompt = table_int(k->t, k->prompt, r), rollout = table_int(k->t, k->rollout, r);
        bool mean = rollout < 0;
        int64_t line = mean ? prompt : rollout;
        if (line < 0 || line >= RUNS)
            continue;
        double x = axis_x(a, table_real(k->t, k->x, r));
        double y = axis_y(a, table_real(k->t, k->value, r));
        const double xy[] = {last[mean][line].x, last[mean][line].y, x, y};
        canvas_line(c, xy, 2, mean ? .5 : .22,
                    mean ? colour_of(prompt) : tint(colour_of(prompt), .5));
        last[mean][line].x = x;
        last[mean][line].y = y;
        n++;
    }
    canvas_unclip(c);
    for (int i = 0; i < RUNS; i++) /* the end of a mean has the mark of its prompt */
        mark_draw(c, mark_of(i), last[1][i].x, last[1][i].y, 1.3, colour_of(i));
    if (n == 0)
        chart_empty(c, a, "no data");
}

struct tail {
    const char *quantity;
    double dash;
    bool points;
};
static const struct tail tails[] = {{"tail.gaussian", 1.3, false},
                                    {"tail.exponential", .5, false},
                                    {"tail.train", 0, false},
                                    {"tail.test", 0, true}};

static struct rgb tail_colour(int i)
{
    return i < 2 ? (struct rgb){.45, .45, .45} : ink; /* other colours are prompts */
}

/* Returns the smallest fraction of any tail, because all heads share one axis. */
static double min_share(const struct dynamics_view *v)
{
    const struct columns *k = &v->k;
    double least = .1;
    for (int i = 0; i < v->n; i++)
        for (int64_t r = v->one[i].from; r < v->one[i].to; r++) {
            double share = table_real(k->t, k->value, r);
            if ((is(k, r, "tail.train", 0) || is(k, r, "tail.test", 0)) && share > 0)
                least = fmin(least, share);
        }
    return least;
}

/* Draws the tail of the innovations.  A fraction of 0 has no logarithm and ends the line. */
static void innovations(struct canvas *c, const struct dynamics_view *v, const struct one *o,
                        struct axis_box *a)
{
    const struct columns *k = &v->k;
    double least = min_share(v);
    *a = (struct axis_box){.x = a->x,
                           .y = a->y,
                           .w = a->w,
                           .h = a->h,
                           .x1 = 6,
                           .y0 = fmax(1e-9, least / 2),
                           .y1 = 1.5,
                           .log_y = 1};
    canvas_clip(c, a->x, a->y, a->w, a->h);
    for (int i = 0; i < 4; i++) {
        double last[2] = {NAN, NAN};
        for (int64_t r = o->from; r < o->to; r++) {
            if (!is(k, r, tails[i].quantity, 0))
                continue;
            double value = table_real(k->t, k->value, r);
            double x = axis_x(a, table_real(k->t, k->x, r)), y = value > 0 ? axis_y(a, value) : NAN;
            const double xy[] = {last[0], last[1], x, y};
            canvas_dash(c, tails[i].dash, .7);
            if (!tails[i].points)
                canvas_line(c, xy, 2, .35, tail_colour(i));
            canvas_dash(c, 0, 0);
            if (tails[i].points)
                mark_draw(c, MARK_DISC, x, y, .9, tail_colour(i));
            last[0] = x, last[1] = y;
        }
    }
    canvas_unclip(c);
}

/* Sets the range of the held-out R2, which all heads share. */
static void held_out_range(const struct dynamics_view *v, struct axis_box *a)
{
    const struct columns *k = &v->k;
    double lo = 0, hi = .1;
    for (int i = 0; i < v->n; i++)
        for (int64_t r = v->one[i].from; r < v->one[i].to; r++)
            if (is(k, r, "r2.test", -1))
                widen(&lo, &hi, table_real(k->t, k->value, r));
    a->x0 = -.6, a->x1 = 1.6;
    a->y0 = fmax(-1, floor(lo * 10 - .2) / 10), a->y1 = fmin(1, ceil(hi * 10 + .2) / 10);
}

/* Draws the held-out R2. Each prompt has two points, measured steps on the left and shuffled steps
 * on the right.  A bar marks the median of the prompts. */
static void held_out(struct canvas *c, const struct dynamics_view *v, const struct one *o,
                     struct axis_box *a)
{
    const struct columns *k = &v->k;
    double left = NAN;
    int far = 0;
    held_out_range(v, a);
    for (int64_t r = o->from; r < o->to; r++)
        far += is(k, r, "r2.test", -1) && table_real(k->t, k->value, r) < -1
               && table_int(k->t, k->prompt, r) >= 0;
    double zero = axis_y(a, 0);
    const double base[] = {a->x, zero, a->x + a->w, zero};
    canvas_line(c, base, 2, .2, (struct rgb){.7, .7, .7});
    canvas_clip(c, a->x, a->y, a->w, a->h);
    for (int64_t r = o->from; r < o->to; r++) {
        int64_t prompt = table_int(k->t, k->prompt, r), shuffled = table_int(k->t, k->surrogate, r);
        double x = axis_x(a, (double)shuffled), y = axis_y(a, table_real(k->t, k->value, r));
        const double bar[] = {x - 3, y, x + 3, y};
        if (!is(k, r, "r2.test", -1))
            continue;
        if (prompt < 0)
            canvas_line(c, bar, 2, .5, shuffled ? grey : ink);
        else
            point(c, shuffled, prompt, x + .8 * (double)(prompt % PROMPTS) - 1, y);
        left = shuffled ? left : y;
    }
    canvas_unclip(c);
    beyond(c, a, far,
           "below \xe2\x88\x92"
           "1");
    if (isnan(left))
        chart_empty(c, a, "undefined");
}

/* ---- the page */

static const char *const titles[PANELS] = {"eigenvalues of A", "running mean, component 1",
                                           "P(|residual| > x)", "held-out R\xc2\xb2"};
static const char *const xlabels[PANELS] = {"real part", "step", "x (standard deviations)", NULL};
static void (*const panels[PANELS])(struct canvas *, const struct dynamics_view *,
                                    const struct one *, struct axis_box *) = {
    eigenvalues, running_means, innovations, held_out};

static void panel_axes(struct canvas *c, struct axis_box *a, int p, bool last)
{
    axis_ticks_y(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    if (p < 3)
        axis_ticks_x(c, a);
    for (int k = 0; p == 3 && k < 2; k++)
        canvas_text(c, axis_x(a, k), a->y + a->h + 2.5, k ? "shuffled" : "fit", PT_TICK,
                    ALIGN_CENTER, ink, 0);
    if (last && xlabels[p])
        canvas_text(c, a->x + a->w / 2, a->y + a->h + 6, xlabels[p], PT_LABEL, ALIGN_CENTER, ink,
                    0);
}

static void head_row(struct canvas *c, const struct dynamics_view *v, int i, double y, double w,
                     double h)
{
    for (int p = 0; p < PANELS; p++) {
        struct axis_box a = {.x = LEFT + p * (w + GAP_X), .y = y, .w = w, .h = h};
        double middle = a.x + w / 2;
        panels[p](c, v, &v->one[i], &a);
        panel_axes(c, &a, p, i == v->n - 1);
        if (i == 0)
            canvas_text(c, middle, y - 2.6, titles[p], PT_LABEL, ALIGN_CENTER, ink, 0);
    }
    canvas_text(c, 3, y + h / 2, v->one[i].head, PT_LABEL, ALIGN_CENTER, ink, 1);
}

/* Draws a line, or a point, and its text.  Returns the x after them. */
static double sample(struct canvas *c, double x, double y, const struct tail *k, double width,
                     struct rgb colour, const char *text)
{
    const double long_one = k->points ? 1.2 : 6, xy[] = {x, y, x + long_one, y};
    canvas_dash(c, k->dash, .7);
    if (!k->points)
        canvas_line(c, xy, 2, width, colour);
    canvas_dash(c, 0, 0);
    if (k->points)
        mark_draw(c, MARK_DISC, x + long_one / 2, y, .9, colour);
    canvas_text(c, x + long_one + 1, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    return x + long_one + 4 + canvas_text_width(c, text, PT_SMALL, 0);
}

/* Draws a mark and its text.  Returns the x after them. */
static double sign(struct canvas *c, double x, double y, enum mark mark, struct rgb colour,
                   const char *text)
{
    mark_draw(c, mark, x + .6, y, 1.2, colour);
    canvas_text(c, x + 2.2, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    return x + 4.8 + canvas_text_width(c, text, PT_SMALL, 0);
}

/* Draws the marks of the prompts: each with its number, or the first of many.  Returns the x after
 * them. */
static double prompts(struct canvas *c, const struct dynamics_view *v, double x, double y)
{
    char text[32];
    if (v->prompts > NAMED) {
        for (int i = 0; i < NAMED - 1; i++, x += 1.6)
            mark_draw(c, mark_of(i), x + .6, y, 1.2, colour_of(i));
        return sign(c, x, y, mark_of(NAMED - 1), colour_of(NAMED - 1), "... prompts");
    }
    for (int i = 0; i < v->prompts; i++) {
        snprintf(text, sizeof text, "prompt %d", i + 1);
        x = sign(c, x, y, mark_of(i), colour_of(i), text);
    }
    return x;
}

static void key(struct canvas *c, const struct dynamics_view *v)
{
    static const char *const texts[] = {"Gaussian", "exponential", "training", "held out"};
    double y = canvas_height(c) - 5.5, x = prompts(c, v, 3, y);
    const struct tail plain = {.dash = 0};
    char text[64];
    x = sign(c, x, y, MARK_RING, grey, "steps shuffled");
    x = sample(c, x, y, &plain, .22, tint(colour_of(0), .5), "one run");
    x = sample(c, x, y, &plain, .5, ink, "mean of runs; bar: median");
    y = canvas_height(c) - 2.5;
    canvas_disc(c, 4, y, 1, .25, grey);
    canvas_text(c, 6, y, "modulus 1", PT_SMALL, ALIGN_LEFT, ink, 0);
    x = 9 + canvas_text_width(c, "modulus 1", PT_SMALL, 0);
    for (int i = 0; i < 4; i++)
        x = sample(c, x, y, &tails[i], .35, tail_colour(i), texts[i]);
    snprintf(text, sizeof text, "%d more head%s not shown", v->more, v->more > 1 ? "s" : "");
    if (v->more)
        canvas_text(c, canvas_width(c) - RIGHT, 1.6, text, PT_SMALL, ALIGN_RIGHT, quiet, 0);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct dynamics_view v;
    read_view(t, s, &v);
    double w = (canvas_width(c) - LEFT - RIGHT - (PANELS - 1) * GAP_X) / PANELS;
    double h = (canvas_height(c) - TOP - BOTTOM - (v.n - 1) * GAP_Y) / v.n;
    if (w < MIN_PANEL || h < MIN_PANEL)
        return kvf_fail(d, KVF_E_ARG, "--size: %d heads need at least %.0f x %.0f mm", v.n,
                        ceil(LEFT + RIGHT + (PANELS - 1) * GAP_X + PANELS * MIN_PANEL),
                        ceil(TOP + BOTTOM + v.n * MIN_PANEL + (v.n - 1) * GAP_Y));
    canvas_text(c, LEFT - 9.4, TOP + (v.n * (h + GAP_Y) - GAP_Y) / 2, "imaginary part", PT_TICK,
                ALIGN_CENTER, ink, 1);
    for (int i = 0; i < v.n; i++)
        head_row(c, &v, i, TOP + i * (h + GAP_Y), w, h);
    key(c, &v);
    return KVF_OK;
}

const struct figure fig_dynamics = {
    .name = "dynamics",
    .table = "dynamics",
    .summary = "eigenvalues, running means, innovations and test R2, a row for each head",
    .needs = "head:text prompt rollout surrogate quantity:text index x value",
    STYLE(struct dynamics_style, COUNT_KEY(struct dynamics_style, heads, 1, MAX_HEADS,
                                           "most heads that are drawn", .standard = "6")),
    .size = size,
    .draw = draw,
};
