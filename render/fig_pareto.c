/* fig_pareto.c - quality against memory of every method: a line each with 95 % intervals, and
 * the front of those points that no other beats with less. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/chart.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/style.h"

enum { LEFT = 15, TOP = 3, BOTTOM = 11 };
static const double KEY_LINE = 3.3, SAMPLE = 6, DOT = 1.5, NEAR = .005, KEY_SHARE = .4,
                    LEAST_AXES = 37; /* mm, with what is beside them */
static const struct rgb front_grey = {.25, .25, .25};

struct quality {
    struct chart h;
    int order[CHART_LINES]; /* of the key: best mean first */
    double mean[CHART_LINES];
    bool log_x, log_y, more_is_better, front;
    int64_t off; /* points that a logarithm cannot show */
};

/* Columns that go up and across, and what they are called; all in the order of the keys' words. */
enum { KL, NLL, TOP1, RIGHT };
static const char *const ys[] = {"kl", "nll", "top1_agree", "right", NULL};
static const char *const y_label[] = {
    "KL to the full cache (nats per token)", "negative log likelihood (nats per token)",
    "share of equal most likely tokens", "share of right answers"};
static const char *const xs[] = {"kv_mean", "budget", "kv_end", "kv_peak", NULL};
static const char *const x_label[] = {"entries held, mean (per head)", "budget (entries per head)",
                                      "entries held at the end (per head)",
                                      "entries held, most (per head)"};

struct pareto_style {
    int y, x;
    int front; /* 0: yes, 1: no */
    int scale; /* 0: log, 1: linear */
};

/* Whether a row has a place across: rows of a method without a budget have none when the budget
 * goes across. */
static bool has_place(const struct table *t, int64_t r, const void *ctx)
{
    const int *col = ctx;
    return table_real(t, *col, r) > 0;
}

static int interval_column(const struct table *t, const char *y, const char *end)
{
    char name[CELL_TEXT + 8];
    snprintf(name, sizeof name, "%s_%s", y, end);
    return numeric_column(t, name);
}

/* Sorts the points of a line by x.  Points are few and mostly sorted already. */
static void sort_line(struct chart_line *l)
{
    double *part[] = {l->x, l->y, l->low, l->high};
    for (int i = 1; i < l->n; i++)
        for (int k = i; k > 0 && l->x[k] < l->x[k - 1]; k--)
            for (int a = 0; a < 4; a++)
                if (part[a]) {
                    double v = part[a][k];
                    part[a][k] = part[a][k - 1];
                    part[a][k - 1] = v;
                }
}

/* Finds the means, the order of the key, the range of y, and counts what a logarithm cannot show.
 */
static void finish(struct quality *q)
{
    q->h.y0 = q->h.y1 = NAN;
    for (int i = 0; i < q->h.n; i++) {
        struct chart_line *l = &q->h.line[i];
        double sum = 0;
        sort_line(l);
        for (int k = 0; k < l->n; k++) {
            if (q->log_y && l->y[k] <= 0) {
                l->y[k] = NAN;
                q->off++;
            }
            const double v[] = {l->y[k], l->low ? l->low[k] : NAN, l->high ? l->high[k] : NAN};
            for (int e = 0; e < 3; e++)
                if (isfinite(v[e]) && !isnan(l->y[k]) && (!q->log_y || v[e] > 0)) {
                    q->h.y0 = fmin(v[e], q->h.y0); /* fmin and fmax pass over NaN */
                    q->h.y1 = fmax(v[e], q->h.y1);
                }
            sum += l->y[k];
        }
        q->mean[i] = l->n ? sum / l->n : NAN;
        int at = i;
        for (; at > 0; at--) { /* NaN last */
            double before = q->mean[q->order[at - 1]];
            if (isnan(q->mean[i])
                || (q->more_is_better ? before >= q->mean[i] : before <= q->mean[i]))
                break;
            q->order[at] = q->order[at - 1];
        }
        q->order[at] = i;
    }
}

static int read_quality(const struct table *t, const struct figure_style *s, struct quality *q,
                        struct kvf_diag *d)
{
    const struct pareto_style *o = s->own;
    *q = (struct quality){.more_is_better = o->y == TOP1 || o->y == RIGHT,
                          .log_y = o->y == KL && o->scale == 0,
                          .front = o->front == 0};
    const char *y = ys[o->y], *x = xs[o->x];
    struct chart_columns k = {.key = table_find(t, "method"),
                              .x = numeric_column(t, x),
                              .y = numeric_column(t, y),
                              .low = interval_column(t, y, "low"),
                              .high = interval_column(t, y, "high"),
                              .keep = has_place,
                              .ctx = &k.x};
    if (k.x < 0 || k.y < 0)
        return kvf_fail(d, KVF_E_ARG, "figure pareto: table %s has no numbers %s and %s",
                        table_name(t), x, y);
    int err = chart_collect(t, &k, &q->h, d);
    if (!err)
        finish(q);
    return err;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct quality q;
    struct kvf_diag unused;
    int n = read_quality(t, s, &q, &unused) == KVF_OK ? q.h.n : 0;
    size_t longest = 0; /* name */
    for (int i = 0; i < n; i++)
        longest = strlen(q.h.line[i].name) > longest ? strlen(q.h.line[i].name) : longest;
    chart_destroy(&q.h);
    *w = n > 6 || longest > 18 ? 130 : 88;
    *h = fmin(180, fmax(62, TOP + BOTTOM + (n + 2) * KEY_LINE));
}

/* ---- the front */

struct point {
    double x, y;
};

static int by_x(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

/* Points that no other point beats with as few entries (to NEAR: methods that cut in groups
 * hold a little less than their budget), as a staircase. */
static int front(const struct quality *q, double **ret_xy, int *ret_n)
{
    size_t all = 0, n = 0;
    for (int i = 0; i < q->h.n; i++)
        all += (size_t)q->h.line[i].n;
    struct point *p = MEM_NEW(struct point, all + 1);
    *ret_xy = MEM_NEW(double, 2 * all + 2);
    *ret_n = 0;
    if (!p || !*ret_xy) {
        mem_free(p);
        return KVF_E_NOMEM;
    }
    for (int i = 0; i < q->h.n; i++)
        for (int k = 0; k < q->h.line[i].n; k++)
            if (isfinite(q->h.line[i].y[k]))
                p[n++] = (struct point){q->h.line[i].x[k],
                                        q->more_is_better ? -q->h.line[i].y[k] : q->h.line[i].y[k]};
    qsort(p, n, sizeof *p, by_x);
    double best = INFINITY, near = INFINITY;
    for (size_t k = 0, ahead = 0; k < n; k++) {
        for (; ahead < n && p[ahead].x <= p[k].x * (1 + NEAR); ahead++)
            near = fmin(near, p[ahead].y);
        if (p[k].y < best && p[k].y <= near) {
            best = p[k].y;
            (*ret_xy)[2 * *ret_n] = p[k].x;
            (*ret_xy)[2 * (*ret_n)++ + 1] = q->more_is_better ? -best : best;
        }
    }
    mem_free(p);
    return KVF_OK;
}

/* Draws the front as a staircase behind the lines: no point is below it, or above it where more is
 * better. */
static int draw_front(struct canvas *c, const struct axis_box *a, const struct quality *q)
{
    double *xy;
    int n, err = front(q, &xy, &n);
    double last = NAN;
    for (int k = 0; !err && k <= n; k++) {
        double x = k < n ? axis_x(a, xy[2 * k]) : a->x + a->w;
        double y = k < n ? axis_y(a, xy[2 * k + 1]) : last;
        const double step[] = {k ? axis_x(a, xy[2 * k - 2]) : NAN, last, x, last, x, y};
        canvas_line(c, step, 3, 0.9, (struct rgb){.8, .8, .8});
        last = y;
    }
    for (int k = 0; !err && k < n; k++)
        canvas_disc(c, axis_x(a, xy[2 * k]), axis_y(a, xy[2 * k + 1]), 1.35, 0.3, front_grey);
    mem_free(xy);
    return err;
}

/* ---- lines and their key */

struct look {
    struct rgb colour;
    enum mark mark;
    double dash;
};

/* Seven colours and five shapes differ in 35 pairs; dashes help where colours do not. */
static struct look look_of(int i)
{
    static const enum mark marks[] = {MARK_DISC, MARK_SQUARE, MARK_TRIANGLE, MARK_DIAMOND,
                                      MARK_RING};
    static const double dashes[] = {0, 1.6, 0.8};
    return (struct look){palette_line(i % 7), marks[i % 5], dashes[i / 7 % 3]};
}

static void draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                      struct look k)
{
    for (int i = 0; i < l->n; i++) {
        double x = axis_x(a, l->x[i]), y = axis_y(a, l->y[i]);
        if (l->low && l->high && isfinite(l->y[i])) {
            double low = a->log_y && l->low[i] <= 0 ? a->y0 : l->low[i];
            const double bar[] = {x, axis_y(a, low), x, axis_y(a, l->high[i])};
            canvas_line(c, bar, 2, 0.2, tint(k.colour, .6));
        }
        if (i > 0) {
            const double xy[] = {axis_x(a, l->x[i - 1]), axis_y(a, l->y[i - 1]), x, y};
            canvas_dash(c, k.dash, 0.7);
            canvas_line(c, xy, 2, 0.3, k.colour);
            canvas_dash(c, 0, 0);
        }
    }
    for (int i = 0; i < l->n; i++)
        mark_draw(c, k.mark, axis_x(a, l->x[i]), axis_y(a, l->y[i]), DOT, k.colour);
}

static void key_line(struct canvas *c, double x, double y, double room, const char *name,
                     struct look k)
{
    char fit[64];
    const double xy[] = {x, y, x + SAMPLE, y};
    canvas_dash(c, k.dash, 0.7);
    canvas_line(c, xy, 2, 0.3, k.colour);
    canvas_dash(c, 0, 0);
    mark_draw(c, k.mark, x + SAMPLE / 2, y, DOT, k.colour);
    canvas_text(c, x + SAMPLE + 1, y,
                text_fit(c, name, PT_TICK, room - SAMPLE - 1, fit, sizeof fit), PT_TICK, ALIGN_LEFT,
                ink, 0);
}

/* Draws the lines of the key, the best method first; the last line says for how many there is no
 * room. */
static void draw_key(struct canvas *c, const struct quality *q, double x, double room, double h)
{
    bool marked = q->front;
    int fit = (int)(h / KEY_LINE) - marked - 1;
    char text[48];
    double y = TOP + KEY_LINE / 2;
    for (int k = 0; k < q->h.n && k < fit; k++, y += KEY_LINE)
        key_line(c, x, y, room, q->h.line[q->order[k]].name, look_of(q->order[k]));
    if (q->h.n > fit) {
        snprintf(text, sizeof text, "and %d more", q->h.n - fit);
        canvas_text(c, x, y, text, PT_TICK, ALIGN_LEFT, ink, 0);
        y += KEY_LINE;
    }
    if (marked) {
        const double xy[] = {x, y, x + SAMPLE, y};
        canvas_line(c, xy, 2, 0.9, (struct rgb){.8, .8, .8});
        canvas_disc(c, x + SAMPLE / 2, y, 1.35, 0.3, front_grey);
        canvas_text(c, x + SAMPLE + 1, y, "Pareto front", PT_TICK, ALIGN_LEFT, ink, 0);
    }
}

static struct axis_box axes(const struct quality *q, const struct pareto_style *o, double w,
                            double h)
{
    struct axis_box a = {.x = LEFT,
                         .y = TOP,
                         .w = w,
                         .h = h,
                         .x0 = axis_end(q->h.x0),
                         .x1 = axis_end(q->h.x1),
                         .y0 = axis_end(q->h.y0),
                         .y1 = axis_end(q->h.y1),
                         .log_x = q->log_x,
                         .log_y = q->log_y,
                         .xlabel = x_label[o->x],
                         .ylabel = y_label[o->y]};
    double grow = a.log_x ? exp((log(a.x1) - log(a.x0)) * .05) : (a.x1 - a.x0) * .05;
    if (!(a.x1 > a.x0))
        grow = a.log_x ? 2 : 1;
    a.x0 = a.log_x ? a.x0 / grow : a.x0 - grow;
    a.x1 = a.log_x ? a.x1 * grow : a.x1 + grow;
    grow = a.log_y ? exp((log(a.y1) - log(a.y0)) * .04) : (a.y1 - a.y0) * .04;
    if (!(a.y1 > a.y0))
        grow = a.log_y ? 2 : fmax(fabs(a.y1) * .1, 1e-9);
    a.y0 = a.log_y ? a.y0 / grow : a.y0 - grow;
    a.y1 = axis_end(a.log_y ? a.y1 * grow : a.y1 + grow);
    return a;
}

static double widest_name(struct canvas *c, const struct quality *q)
{
    double w = canvas_text_width(c, "Pareto front", PT_TICK, 0);
    for (int i = 0; i < q->h.n; i++)
        w = fmax(w, canvas_text_width(c, q->h.line[i].name, PT_TICK, 0));
    return w + SAMPLE + 1;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct pareto_style *o = s->own;
    struct quality q;
    char note[64];
    int err = read_quality(t, s, &q, d);
    if (err)
        goto done;
    double names = widest_name(c, &q), room = fmin(names, KEY_SHARE * canvas_width(c));
    double least = fmin(names, KEY_SHARE / (1 - KEY_SHARE) * (LEFT + LEAST_AXES));
    err = canvas_room(c, "pareto", LEFT + least + LEAST_AXES, 55, d);
    if (err)
        goto done;
    q.log_x = q.h.n > 0 && q.h.x1 > 1.5 * q.h.x0;
    struct axis_box a = axes(&q, o, canvas_width(c) - LEFT - 5 - room,
                             canvas_height(c) - TOP - BOTTOM);
    if (isnan(q.h.y0)) {
        canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
        chart_empty(c, &a, "no point");
    } else {
        canvas_clip(c, a.x, a.y, a.w, a.h);
        if (q.front)
            err = draw_front(c, &a, &q);
        for (int k = q.h.n - 1; k >= 0; k--) /* the best on top */
            draw_line(c, &a, &q.h.line[q.order[k]], look_of(q.order[k]));
        canvas_unclip(c);
        axis_draw(c, &a);
    }
    draw_key(c, &q, a.x + a.w + 2.5, room, a.h);
    if (q.off) {
        snprintf(note, sizeof note, "%lld point%s at 0 not shown", (long long)q.off,
                 q.off > 1 ? "s" : "");
        canvas_text(c, a.x + a.w - 1, a.y + 2, note, PT_SMALL, ALIGN_RIGHT, ink, 0);
    }
done:
    chart_destroy(&q.h);
    return err;
}

static const struct opt style[] = {
    LIST_KEY(struct pareto_style, y, "kl", "the column that goes up", ys),
    LIST_KEY(struct pareto_style, x, "kv_mean", "the column that goes across", xs),
    WORD_KEY(struct pareto_style, front, "yes", "the points that no other beats with less", "yes",
             "no"),
    WORD_KEY(struct pareto_style, scale, "log", "the axis of KL", "log", "linear"),
    {.type = OPT_END},
};

static const struct figure_column needs[] = {
    {"method", COLUMN_TEXT}, {"budget", COLUMN_NUMBER}, {NULL, COLUMN_NUMBER}};

const struct figure fig_pareto = {
    .name = "pareto",
    .table = "eval",
    .summary = "quality against the entries held, a line per method, with the Pareto front",
    .needs = needs,
    .style = style,
    .style_bytes = sizeof(struct pareto_style),
    .size = size,
    .draw = draw,
};
