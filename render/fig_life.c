/* fig_life.c - draws the life of an entry over time: the attention received from each query, the
 * gate's prediction, and the time in the cache, with a panel per head and token. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/chart.h"
#include "render/figures.h"
#include "render/marks.h"

enum { LIVES = 12 };
static const double LEFT = 15, RIGHT = 3, TOP = 6, BOTTOM = 13, HELD = 2.2, GAP = 1.6, APART = 6,
                    MIN_W = 22, MIN_H = 14, PANEL = 46;
static const struct rgb blue = {0, .447, .698}, orange = {.835, .369, 0}, gone = {.9, .9, .92};

struct life {
    int64_t from, to; /* rows */
    int64_t evicted;  /* row of the first query after eviction; -1: not evicted */
};
struct lives {
    const struct table *t;
    int step, attention, seen, retention; /* columns */
    struct life life[LIVES];
    int n, left_out;
    bool gates;
    double low, high, first, last; /* positive attention; steps */
};

/* ---- reading the table */

static bool same(const struct table *t, int head, int token, int64_t a, int64_t b)
{
    return table_real(t, token, a) == table_real(t, token, b)
           && strcmp(table_str(t, head, a), table_str(t, head, b)) == 0;
}

/* Finds the first query after the entry's eviction, and the ranges. */
static void find_eviction(struct lives *x, struct life *l)
{
    l->evicted = -1;
    for (int64_t r = l->from; r < l->to; r++) {
        double v = table_real(x->t, x->attention, r), step = table_real(x->t, x->step, r);
        bool seen = table_real(x->t, x->seen, r) != 0;
        l->evicted = !seen && l->evicted < 0 ? r : l->evicted;
        l->evicted = seen ? -1 : l->evicted;
        x->low = v > 0 ? fmin(x->low, v) : x->low;
        x->high = v > 0 ? fmax(x->high, v) : x->high;
        x->first = fmin(x->first, step);
        x->last = fmax(x->last, step);
        x->gates = x->gates || isfinite(table_real(x->t, x->retention, r));
    }
}

static void find_lives(const struct table *t, struct lives *x)
{
    int head = table_find(t, "head"), token = table_find(t, "token");
    *x = (struct lives){.t = t, .low = INFINITY, .first = INFINITY, .last = -INFINITY};
    x->step = table_find(t, "step");
    x->attention = table_find(t, "attention");
    x->seen = table_find(t, "seen");
    x->retention = table_find(t, "retention");
    for (int64_t r = 0, next; r < table_rows(t); r = next) {
        for (next = r + 1; next < table_rows(t) && same(t, head, token, r, next); next++)
            ;
        x->left_out += x->n == LIVES;
        if (x->n == LIVES)
            continue;
        x->life[x->n] = (struct life){r, next, -1};
        find_eviction(x, &x->life[x->n++]);
    }
}

static int columns_of(int n)
{
    if (n == 4)
        return 2;
    return n < 3 ? n : 3;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct lives x;
    (void)s;
    find_lives(t, &x);
    int cols = columns_of(x.n), rows = (x.n + cols - 1) / cols;
    *w = cols == 1 ? 88 : LEFT + RIGHT + cols * 55;
    *h = BOTTOM + rows * (PANEL + TOP);
}

/* ---- drawing */

/* Draws a column over the steps as a line.  Attention of 0 is not drawn, because the axis is
 * logarithmic. */
static int draw_series(struct canvas *c, const struct axis_box *a, const struct lives *x,
                       const struct life *l, int col, struct rgb colour)
{
    size_t n = (size_t)(l->to - l->from);
    struct chart_line line = {.name = "", .x = MEM_NEW(double, n), .y = MEM_NEW(double, n)};
    const struct chart_look look = {.colour = colour, .width = .28};
    if (line.x && line.y)
        for (int64_t r = l->from; r < l->to; r++, line.n++) {
            line.x[line.n] = table_real(x->t, x->step, r);
            line.y[line.n] = table_real(x->t, col, r);
        }
    if (line.n)
        chart_draw_line(c, a, &line, &look);
    int err = line.x && line.y ? KVF_OK : KVF_E_NOMEM;
    mem_free_all(line.x, line.y);
    return err;
}

static void draw_held(struct canvas *c, const struct axis_box *a, const struct lives *x,
                      const struct life *l)
{
    double birth = axis_x(a, table_real(x->t, x->step, l->from)), end = a->x + a->w, leaves = end;
    if (l->evicted >= 0)
        leaves = axis_x(a, table_real(x->t, x->step, l->evicted));
    canvas_rect(c, birth, a->y, fmax(end - birth, 0), a->h, gone);
    canvas_rect(c, birth, a->y, fmax(leaves - birth, 0), a->h, ink);
}

static void draw_heading(struct canvas *c, const struct lives *x, const struct life *l,
                         const struct axis_box *a, double room)
{
    char text[160], fit[160], when[48] = "";
    const struct table *t = x->t;
    if (l->evicted >= 0)
        snprintf(when, sizeof when, ", evicted at %lld",
                 (long long)table_int(t, x->step, l->evicted));
    snprintf(text, sizeof text, "%.24s: \xe2\x80\x9c%.40s\xe2\x80\x9d %lld%s",
             table_str(t, table_find(t, "head"), l->from),
             table_str(t, table_find(t, "text"), l->from),
             (long long)table_int(t, table_find(t, "token"), l->from), when);
    canvas_text(c, a->x + a->w / 2, a->y - 2.2, text_fit(c, text, PT_TICK, room, fit, sizeof fit),
                PT_TICK, ALIGN_CENTER, ink, 0);
}

/* Writes the name of one of the three strips left of the first column. */
static void draw_name(struct canvas *c, const struct axis_box *a, const char *name, bool upright)
{
    char fit[64];
    double pt = upright ? PT_LABEL : PT_TICK;
    if (upright && raised_text_width(c, name, pt) > a->h)
        pt = PT_SMALL;
    if (upright && raised_text_width(c, name, pt) > a->h)
        name = strstr(name, "^{") ? "" : text_fit(c, name, pt, a->h, fit, sizeof fit);
    raised_text(c, upright ? 2.2 : a->x - 1.5, a->y + a->h / 2, name, pt,
                upright ? ALIGN_CENTER : ALIGN_RIGHT, ink, upright);
}

static int draw_life(struct canvas *c, const struct lives *x, int k, struct axis_box a, bool left,
                     bool low)
{
    const struct life *l = &x->life[k];
    double whole = a.h, gate = x->gates ? .28 * whole : 0;
    struct axis_box top = a, middle = a, held = a;
    draw_heading(c, x, l, &a, a.w + APART - 1);
    top.h = whole - HELD - GAP - (x->gates ? gate + GAP : 0);
    middle.y = top.y + top.h + GAP;
    middle.h = gate;
    middle.log_y = 0;
    middle.y0 = 0;
    middle.y1 = 1;
    held.y = a.y + whole - HELD;
    held.h = HELD;
    int err = draw_series(c, &top, x, l, x->attention, blue);
    if (!err && x->gates)
        err = draw_series(c, &middle, x, l, x->retention, orange);
    draw_held(c, &held, x, l);
    for (int strip = 0; strip < 2 + x->gates; strip++) {
        const struct axis_box *b = strip == 0 ? &top : &held;
        b = strip == 2 ? &middle : b;
        canvas_frame(c, b->x, b->y, b->w, b->h, .18, ink);
        if (left && b != &held)
            axis_ticks_y(c, b);
    }
    if (left) {
        draw_name(c, &top, "attention received", true);
        draw_name(c, &held, "cached", false);
    }
    if (left && x->gates)
        draw_name(c, &middle, "\xce\xb2^{t\xe2\x88\x92i}", true);
    if (low)
        axis_ticks_x(c, &held);
    return err;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct lives x;
    char note[96], more[32] = "";
    (void)s;
    find_lives(t, &x);
    int cols = columns_of(x.n), rows = (x.n + cols - 1) / cols;
    double w = (canvas_width(c) - LEFT - RIGHT - (cols - 1) * APART) / cols;
    double h = (canvas_height(c) - BOTTOM) / rows - TOP;
    int err = canvas_room(c, "life", LEFT + RIGHT + cols * MIN_W + (cols - 1) * APART,
                          BOTTOM + rows * (TOP + MIN_H), d);
    struct axis_box a = {.w = w, .h = h, .x0 = x.first, .x1 = x.last, .log_y = 1, .whole_x = 1};
    a.x1 = a.x1 > a.x0 ? a.x1 : a.x0 + 1;
    a.y0 = isfinite(x.low) ? x.low : .1;
    a.y1 = x.high > a.y0 ? x.high : 2 * a.y0;
    double space = pow(a.y1 / a.y0, .04); /* the frame must not cut a line */
    a.y0 /= space;
    a.y1 *= space;
    for (int k = 0; !err && k < x.n; k++) {
        a.x = LEFT + k % cols * (w + APART);
        a.y = TOP + k / cols * (h + TOP);
        err = draw_life(c, &x, k, a, k % cols == 0, k + cols >= x.n);
    }
    if (err)
        return err;
    canvas_text(c, LEFT + (canvas_width(c) - LEFT - RIGHT) / 2, canvas_height(c) - 6.4,
                "query step t", PT_LABEL, ALIGN_CENTER, ink, 0);
    snprintf(more, sizeof more, "; %d more not shown", x.left_out);
    snprintf(note, sizeof note, "white: before the token; black: cached; grey: evicted%s",
             x.left_out ? more : "");
    canvas_text(c, LEFT + (canvas_width(c) - LEFT - RIGHT) / 2, canvas_height(c) - 2.2, note,
                PT_SMALL, ALIGN_CENTER, quiet, 0);
    return KVF_OK;
}

const struct figure fig_life = {
    .name = "life",
    .table = "received",
    .summary = "one entry over time: attention received, its gate, and the time of its eviction",
    .needs = "head:text token text:text step seen attention retention",
    .size = size,
    .draw = draw,
};
