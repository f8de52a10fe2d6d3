/* fig_dynamics.c - shows how stable the process of a head's queries is.
 *
 * Each head has a row of the panels that the style shows: eigenvalues in the unit circle, running
 * means, tails of the whitened innovations against two laws, and the held-out R2. Eigenvalues and
 * R2 are compared with shuffled steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/chart.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/note.h"

enum {
    PANELS = 4,
    TOP = 6,
    BOTTOM = 8, /* ticks and names of the horizontal axes */
    KEY_LINE = 3,
    LEFT = 17,
    RIGHT = 2,
    MAX_HEADS = 24,
    PROMPTS = 7,
    NAMED = 3, /* prompts with an entry of the key each */
    RUNS = 512,
    NOTE = 320
};
enum { EIGENVALUES, MEANS, TAILS, R2 }; /* panels */
static const double ROW = 34, PANEL = 36, GAP_X = 12.5, GAP_Y = 5, MIN_PANEL = 14;
static const struct rgb grey = {.55, .55, .55};

struct dynamics_style {
    int64_t heads;    /* maximum number of drawn heads */
    const char *show; /* panels joined by + */
};
static const char *const panel_words[PANELS] = {"eigenvalues", "means", "tails", "r2"};

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
    int panel[PANELS], n_panels;
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

/* Reads the panels that the style shows, each once. */
static int read_panels(const struct dynamics_style *o, struct dynamics_view *v, struct kvf_diag *d)
{
    bool shown[PANELS] = {false};
    for (const char *w = o->show; *w; w += strcspn(w, "+"), w += *w == '+') {
        size_t n = strcspn(w, "+");
        int p = 0;
        while (p < PANELS && (strlen(panel_words[p]) != n || strncmp(w, panel_words[p], n) != 0))
            p++;
        if (p == PANELS)
            return kvf_fail(d, KVF_E_ARG,
                            "--style show=%.60s: the panels are eigenvalues, means, tails and r2, "
                            "joined by +",
                            o->show);
        shown[p] = true;
    }
    for (int p = 0; p < PANELS; p++)
        if (shown[p])
            v->panel[v->n_panels++] = p;
    return v->n_panels ? KVF_OK : kvf_fail(d, KVF_E_ARG, "--style show= names no panel");
}

static bool shows(const struct dynamics_view *v, int panel)
{
    bool found = false;
    for (int i = 0; i < v->n_panels; i++)
        found |= v->panel[i] == panel;
    return found;
}

static int read_view(const struct table *t, const struct figure_style *s, struct dynamics_view *v,
                     struct kvf_diag *d)
{
    const struct dynamics_style *o = s->own;
    *v = (struct dynamics_view){.n = 0};
    int err = read_panels(o, v, d);
    if (err)
        return err;
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
    return KVF_OK;
}

/* Writes the note: the model, and the numbers of runs, prompts and queries. */
static void note_of(const struct table *t, char out[NOTE])
{
    char run[NOTE_RUN], fit[24], rest[24];
    double all = table_meta_real(t, "vectors", NAN),
           train = table_meta_real(t, "vectors_train", NAN);
    note_method(t, run);
    int n = snprintf(out, NOTE, "%s", run);
    note_number(train, fit);
    note_number(all - train, rest);
    long long m = (long long)table_meta_int(t, "components", 0);
    if (m > 0)
        n += snprintf(out + n, NOTE - (size_t)n,
                      "%sA: fit of query t + 1 = A query t + b, in %lld components", n ? "; " : "",
                      m);
    if (all >= train)
        snprintf(out + n, NOTE - (size_t)n,
                 "%s%lld runs of %lld prompts; for each head %s queries for the fit, %s held out",
                 n ? "; " : "", (long long)table_meta_int(t, "runs", 0),
                 (long long)table_meta_int(t, "prompts", 0), fit, rest);
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

static const char *const titles[PANELS] = {"eigenvalues of A", "running mean of component 1",
                                           "fraction of |residuals| > x", "held-out R\xc2\xb2"};
static const char *const xlabels[PANELS] = {"real part", "step", "x (standard deviations)", NULL};
static void (*const panels[PANELS])(struct canvas *, const struct dynamics_view *,
                                    const struct one *, struct axis_box *) = {
    eigenvalues, running_means, innovations, held_out};

static void panel_axes(struct canvas *c, struct axis_box *a, int p, bool last)
{
    axis_ticks_y(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    if (p != R2)
        axis_ticks_x(c, a);
    for (int k = 0; p == R2 && k < 2; k++)
        canvas_text(c, axis_x(a, k), a->y + a->h + 2.5, k ? "shuffled" : "in order", PT_TICK,
                    ALIGN_CENTER, ink, 0);
    if (last && xlabels[p])
        canvas_text(c, a->x + a->w / 2, a->y + a->h + 6, xlabels[p], PT_LABEL, ALIGN_CENTER, ink,
                    0);
}

static void head_row(struct canvas *c, const struct dynamics_view *v, int i, double y, double w,
                     double h)
{
    for (int k = 0; k < v->n_panels; k++) {
        int p = v->panel[k];
        struct axis_box a = {.x = LEFT + k * (w + GAP_X), .y = y, .w = w, .h = h};
        double middle = a.x + w / 2;
        panels[p](c, v, &v->one[i], &a);
        panel_axes(c, &a, p, i == v->n - 1);
        if (i == 0)
            canvas_text(c, middle, y - 2.6, titles[p], PT_LABEL, ALIGN_CENTER, ink, 0);
    }
    canvas_text(c, 3, y + h / 2, v->one[i].head, PT_LABEL, ALIGN_CENTER, ink, 1);
    if (shows(v, EIGENVALUES))
        canvas_text(c, LEFT - 9.4, y + h / 2, "imaginary part", PT_TICK, ALIGN_CENTER, ink, 1);
}

/* The place of the next entry of the key, and whether it is drawn. */
struct key_place {
    struct canvas *c;
    double x, y, right;
    bool draw;
};

/* Moves to the next line if an entry of that width does not fit. */
static void place(struct key_place *k, double w)
{
    if (k->x > 3 && k->x + w > k->right) {
        k->x = 3;
        k->y += KEY_LINE;
    }
}

/* Draws a line, or a point, and its text. */
static void sample(struct key_place *k, const struct tail *of, double width, struct rgb colour,
                   const char *text)
{
    const double long_one = of->points ? 1.2 : 6,
                 w = long_one + 1 + canvas_text_width(k->c, text, PT_TICK, 0);
    place(k, w);
    const double xy[] = {k->x, k->y, k->x + long_one, k->y};
    if (k->draw) {
        canvas_dash(k->c, of->dash, .7);
        if (!of->points)
            canvas_line(k->c, xy, 2, width, colour);
        canvas_dash(k->c, 0, 0);
        if (of->points)
            mark_draw(k->c, MARK_DISC, k->x + long_one / 2, k->y, .9, colour);
        canvas_text(k->c, k->x + long_one + 1, k->y, text, PT_TICK, ALIGN_LEFT, ink, 0);
    }
    k->x += w + 3;
}

/* Draws a mark and its text. */
static void sign(struct key_place *k, enum mark mark, struct rgb colour, const char *text)
{
    double w = 2.2 + canvas_text_width(k->c, text, PT_TICK, 0);
    place(k, w);
    if (k->draw) {
        mark_draw(k->c, mark, k->x + .6, k->y, 1.2, colour);
        canvas_text(k->c, k->x + 2.2, k->y, text, PT_TICK, ALIGN_LEFT, ink, 0);
    }
    k->x += w + 3;
}

/* Draws the marks of the prompts: each with its number, or the first of many. */
static void prompts(struct key_place *k, const struct dynamics_view *v)
{
    char text[32];
    for (int i = 0; i < v->prompts && i < NAMED; i++) {
        bool more = i == NAMED - 1 && v->prompts > NAMED;
        snprintf(text, sizeof text, more ? "prompt %d, ..." : "prompt %d", i + 1);
        sign(k, mark_of(i), colour_of(i), text);
    }
}

/* Draws the key of the shown panels between the left and the right margin, from y down.  Returns
 * its height.  draw false: only computes. */
static double draw_key(struct canvas *c, const struct dynamics_view *v, double y, bool draw)
{
    static const char *const texts[] = {"Gaussian", "exponential", "training", "held out"};
    const struct tail plain = {.dash = 0};
    struct key_place k = {c, 3, y + KEY_LINE / 2.0, canvas_width(c) - RIGHT, draw};
    prompts(&k, v);
    if (shows(v, EIGENVALUES) || shows(v, R2))
        sign(&k, MARK_RING, grey, "steps shuffled");
    if (shows(v, EIGENVALUES))
        sign(&k, MARK_RING, grey, "large circle: modulus 1, beyond it the process is not stable");
    if (shows(v, MEANS)) {
        sample(&k, &plain, .22, tint(colour_of(0), .5), "one run");
        sample(&k, &plain, .5, colour_of(0), "mean of the runs of a prompt");
    }
    if (shows(v, R2))
        sample(&k, &plain, .5, ink, "median of prompts");
    for (int i = 0; i < 4 && shows(v, TAILS); i++)
        sample(&k, &tails[i], .35, tail_colour(i), texts[i]);
    return k.y - y + KEY_LINE / 2.0 + 1;
}

static struct note place_of(double width)
{
    return (struct note){.left = 3, .right = width - 3, .pt = PT_TICK};
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct dynamics_view v;
    char note[NOTE];
    struct kvf_diag ignored = {""}; /* `draw` reports the same error */
    if (read_view(t, s, &v, &ignored))
        v.n_panels = 1;
    int n = v.n ? v.n : 1;
    note_of(t, note);
    *w = s->width_mm > 0 ? s->width_mm
                         : LEFT + RIGHT + v.n_panels * PANEL + (v.n_panels - 1) * GAP_X;
    double key = 2 * KEY_LINE;
    struct canvas *ruler = NULL;
    if (canvas_create(CANVAS_PNG, *w, 10, 72, &ruler, NULL) == KVF_OK
        && (!s->font || canvas_font(ruler, s->font, NULL) == KVF_OK))
        key = draw_key(ruler, &v, 0, false);
    canvas_destroy(ruler);
    struct note place = place_of(*w);
    *h = TOP + n * ROW + (n - 1) * GAP_Y + BOTTOM + key + note_height(NULL, s, &place, note);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct dynamics_view v;
    char note[NOTE], text[64];
    int err = read_view(t, s, &v, d);
    if (err)
        return err;
    note_of(t, note);
    double W = canvas_width(c), H = canvas_height(c);
    struct note place = place_of(W);
    double below = note_height(c, s, &place, note);
    double foot = BOTTOM + draw_key(c, &v, 0, false) + below;
    double w = (W - LEFT - RIGHT - (v.n_panels - 1) * GAP_X) / v.n_panels;
    double h = (H - TOP - foot - (v.n - 1) * GAP_Y) / v.n;
    if (w < MIN_PANEL || h < MIN_PANEL)
        return kvf_fail(d, KVF_E_ARG, "--size: %d heads need at least %.0f x %.0f mm", v.n,
                        ceil(LEFT + RIGHT + (v.n_panels - 1) * GAP_X + v.n_panels * MIN_PANEL),
                        ceil(TOP + foot + v.n * MIN_PANEL + (v.n - 1) * GAP_Y));
    for (int i = 0; i < v.n; i++)
        head_row(c, &v, i, TOP + i * (h + GAP_Y), w, h);
    draw_key(c, &v, H - foot + BOTTOM, true);
    note_draw(c, &place, H - below + 1.5, note);
    snprintf(text, sizeof text, "%d more head%s not shown", v.more, v.more > 1 ? "s" : "");
    if (v.more)
        canvas_text(c, W - RIGHT, 1.6, text, PT_SMALL, ALIGN_RIGHT, quiet, 0);
    return KVF_OK;
}

const struct figure fig_dynamics = {
    .name = "dynamics",
    .table = "dynamics",
    .summary = "eigenvalues, running means, innovations and test R2, a row for each head",
    .needs = "head:text prompt rollout surrogate quantity:text index x value",
    STYLE(struct dynamics_style,
          COUNT_KEY(struct dynamics_style, heads, 1, MAX_HEADS, "most heads that are drawn",
                    .standard = "6"),
          TEXT_KEY(struct dynamics_style, show, "A+B",
                   "panels of a head, of eigenvalues, means, tails and r2",
                   .standard = "eigenvalues+r2")),
    .size = size,
    .draw = draw,
};
