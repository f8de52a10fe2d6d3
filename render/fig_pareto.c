/* fig_pareto.c - draws quality against cache size: a line per method with 95 % intervals and its
 * name at its end, the Pareto front, and the full cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/chart.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/cells.h"

enum { LEFT = 15, TOP = 3, BOTTOM = 11, FEW = 8, FEW_TICKS = 6 };
static const double KEY_LINE = 3.1, BESIDE = .55, SAMPLE = 9, DOT = 1.6, NEAR = .005,
                    KEY_SHARE = .4, PALE = .42, LEADER = 5, KEY_DASH = 6.5,
                    MIN_AXES = 37; /* mm, including adjacent text */
static const struct rgb front_grey = {.25, .25, .25}, front_pale = {.8, .8, .8};

struct quality {
    struct chart h;
    int order[CHART_LINES]; /* of the key: best mean first */
    double mean[CHART_LINES];
    bool strong[CHART_LINES]; /* not pale */
    struct identity look[CHART_LINES];
    double full;   /* value of the full cache, NaN if missing */
    double beside; /* mm between lines with intervals at one x, 0 except for methods=all */
    const struct table *t;
    int x; /* its column */
    bool log_x, log_y, more_is_better, front, kept;
    int64_t off;            /* points that a logarithmic axis cannot show */
    int64_t unknown;        /* rows without x or y, which have no point */
    double tick[FEW_TICKS]; /* budgets on the x axis, if there are few; n_ticks = 0: other ticks */
    int n_ticks;
    char ylabel[96]; /* names the protocol if methods do not see the question */
};

/* Columns of the y and x axes with their labels, in the order of the keys' words. */
enum { KL, NLL, TOP1, RIGHT, KEPT };
static const char *const ys[] = {"kl", "nll", "top1_agree", "right", "kept", NULL};
static const char *const y_label[] = {
    "KL to the full cache (nats per token)", "negative log likelihood (nats per token)",
    "fraction of equal top-1 tokens", "accuracy", "cached fraction, mean over correct answers"};
enum { KV_MEAN, BUDGET };
static const char *const xs[] = {"kv_mean", "budget", "kv_end", "kv_peak", NULL};
static const char *const x_label[] = {"cached entries per head, mean", "budget (entries per head)",
                                      "cached entries per head at the end",
                                      "cached entries per head, maximum"};

struct pareto_style {
    int y, x;
    int front;           /* 0: yes, 1: no */
    int scale;           /* 0: log, 1: linear */
    const char *methods; /* "A+B"; NULL: methods on the front */
};

static bool is_full(const struct table *t, int64_t r)
{
    return strcmp(table_row_str(t, r, "method"), "full") == 0;
}

/* Returns true if a row is a point of a line.  Methods without a budget have no point if the x axis
 * is the budget.  The full cache is a horizontal line instead. */
static bool has_place(const struct table *t, int64_t r, const void *ctx)
{
    const int *col = ctx;
    return table_real(t, *col, r) > 0 && !is_full(t, r);
}

static double full_cache(const struct table *t, int y)
{
    for (int64_t r = 0; r < table_rows(t); r++)
        if (is_full(t, r))
            return table_real(t, y, r);
    return NAN;
}

static int64_t count_unknown(const struct table *t, int x, int y)
{
    int64_t n = 0;
    for (int64_t r = 0; r < table_rows(t); r++)
        n += !is_full(t, r) && !(table_real(t, x, r) > 0 && isfinite(table_real(t, y, r)));
    return n;
}

static int interval_column(const struct table *t, const char *y, const char *end)
{
    char name[CELL_TEXT + 8];
    snprintf(name, sizeof name, "%s_%s", y, end);
    return numeric_column(t, name);
}

/* Sorts the points of a line by x.  There are few points, mostly in order. */
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

/* Computes the means, the order of the key and the range of y, and counts points that a logarithmic
 * axis cannot show. */
static void finish(struct quality *q)
{
    q->h.y0 = q->h.y1 = NAN;
    for (int i = 0; i < q->h.n; i++) {
        struct chart_line *l = &q->h.line[i];
        double sum = 0;
        int known = 0;
        sort_line(l);
        for (int k = 0; k < l->n; k++) {
            if (q->log_y && l->y[k] <= 0) {
                l->y[k] = NAN;
                q->off++;
            }
            const double v[] = {l->y[k], l->low ? l->low[k] : NAN, l->high ? l->high[k] : NAN};
            for (int e = 0; e < 3; e++)
                if (isfinite(v[e]) && !isnan(l->y[k]) && (!q->log_y || v[e] > 0)) {
                    q->h.y0 = fmin(v[e], q->h.y0); /* fmin and fmax ignore NaN */
                    q->h.y1 = fmax(v[e], q->h.y1);
                }
            sum += isnan(l->y[k]) ? 0 : l->y[k];
            known += !isnan(l->y[k]);
        }
        q->mean[i] = known ? sum / known : NAN;
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

/* Finds the budgets of the points, in increasing order, if at most FEW_TICKS exist. */
static void find_ticks(struct quality *q)
{
    for (int i = 0; i < q->h.n; i++)
        for (int k = 0; k < q->h.line[i].n; k++) {
            double x = q->h.line[i].x[k];
            int at = 0;
            while (at < q->n_ticks && q->tick[at] < x)
                at++;
            if (at < q->n_ticks && q->tick[at] == x)
                continue;
            if (q->n_ticks == FEW_TICKS) {
                q->n_ticks = 0;
                return;
            }
            memmove(q->tick + at + 1, q->tick + at, sizeof *q->tick * (size_t)(q->n_ticks - at));
            q->tick[at] = x;
            q->n_ticks++;
        }
}

static int read_quality(const struct table *t, const struct figure_style *s, struct quality *q,
                        struct kvf_diag *d)
{
    const struct pareto_style *o = s->own;
    *q = (struct quality){.more_is_better = o->y == TOP1 || o->y == RIGHT || o->y == KEPT,
                          .log_y = o->y == KL && o->scale == 0,
                          .beside = o->methods && strcmp(o->methods, "all") == 0 ? BESIDE : 0,
                          .kept = o->y == KEPT,
                          .front = o->front == 0};
    const char *y = ys[o->y], *x = xs[o->x], *question = table_meta(t, "question");
    snprintf(q->ylabel, sizeof q->ylabel, "%s%s%s", y_label[o->y], question ? ", question " : "",
             question ? question : "");
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
    if (err)
        return err;
    finish(q);
    const char *name[CHART_LINES];
    for (int i = 0; i < q->h.n; i++)
        name[i] = q->h.line[i].name;
    identity_of_methods(q->h.n, name, q->look);
    q->t = t;
    q->x = k.x;
    q->unknown = count_unknown(t, k.x, k.y);
    if (o->x == BUDGET)
        find_ticks(q);
    q->full = full_cache(t, k.y);
    if (isfinite(q->full) && (!q->log_y || q->full > 0)) {
        q->h.y0 = fmin(q->full, q->h.y0);
        q->h.y1 = fmax(q->full, q->h.y1);
    }
    return KVF_OK;
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
    /* space for wide letters */
    *w = n > 6 ? 130 : fmin(130, 88 + 2.2 * fmax(0, (double)longest - 11));
    *h = fmin(180, fmax(62, TOP + BOTTOM + (n + 2) * KEY_LINE));
}

/* ---- the front */

struct point {
    double x, y;
    int line;
};

static int by_x(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

/* Finds the points that no other point beats with as few entries, as a staircase.  The tolerance is
 * NEAR, because methods that evict in groups cache slightly less than their budget. */
static int front(struct quality *q, double **ret_xy, int *ret_n)
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
                                        q->more_is_better ? -q->h.line[i].y[k] : q->h.line[i].y[k],
                                        i};
    qsort(p, n, sizeof *p, by_x);
    double best = INFINITY, near = INFINITY;
    for (size_t k = 0, ahead = 0; k < n; k++) {
        for (; ahead < n && p[ahead].x <= p[k].x * (1 + NEAR); ahead++)
            near = fmin(near, p[ahead].y);
        if (p[k].y < best && p[k].y <= near) {
            best = p[k].y;
            q->strong[p[k].line] = true;
            (*ret_xy)[2 * *ret_n] = p[k].x;
            (*ret_xy)[2 * (*ret_n)++ + 1] = q->more_is_better ? -best : best;
        }
    }
    mem_free(p);
    return KVF_OK;
}

/* Draws the front of n points as a staircase below the lines.  No point is below it, or above it if
 * more is better. */
static void draw_front(struct canvas *c, const struct axis_box *a, const double *xy, int n)
{
    double last = NAN;
    for (int k = 0; k <= n; k++) {
        double x = k < n ? axis_x(a, xy[2 * k]) : a->x + a->w;
        double y = k < n ? axis_y(a, xy[2 * k + 1]) : last;
        const double step[] = {k ? axis_x(a, xy[2 * k - 2]) : NAN, last, x, last, x, y};
        canvas_line(c, step, 3, 0.9, front_pale);
        last = y;
    }
    for (int k = 0; k < n; k++)
        canvas_disc(c, axis_x(a, xy[2 * k]), axis_y(a, xy[2 * k + 1]), 1.35, 0.3, front_grey);
}

/* Draws the key of the front in the corner below or above it. */
static void front_key(struct canvas *c, const struct axis_box *a, const struct quality *q)
{
    double wide = 7 + canvas_text_width(c, "Pareto front", PT_SMALL, 0), y = a->y + a->h - 2.4;
    double x = q->more_is_better ? a->x + a->w - wide - 1 : a->x + 1.5;
    const double xy[] = {x, y, x + 5, y};
    if (wide + 3 > a->w)
        return;
    canvas_line(c, xy, 2, 0.9, front_pale);
    canvas_disc(c, x + 2.5, y, 1.35, 0.3, front_grey);
    canvas_text(c, x + 6, y, "Pareto front", PT_SMALL, ALIGN_LEFT, ink, 0);
}

/* Returns the distance in mm of a line from its x, which separates intervals at equal budgets. */
static double shift_of(const struct quality *q, int line)
{
    return q->beside * (line - (q->h.n - 1) / 2.0);
}

/* Draws the full cache as a horizontal dashed line, with its name above or below it on the left. */
static void draw_full(struct canvas *c, const struct axis_box *a, const struct quality *q)
{
    double y = axis_y(a, q->full), xy[] = {a->x, y, a->x + a->w, y};
    if (!(y >= a->y && y <= a->y + a->h))
        return;
    canvas_dash(c, 1.2, 0.8);
    canvas_line(c, xy, 2, 0.25, ink);
    canvas_dash(c, 0, 0);
    canvas_text(c, a->x + 1.5, y + (y - a->y > 6 ? -1.6 : 1.8), "full cache", PT_SMALL, ALIGN_LEFT,
                ink, 0);
}

/* ---- lines and their names */

/* Returns true if a list "a+b" has the name, with or without its options. */
static bool is_listed(const char *list, const char *name)
{
    size_t bare = strcspn(name, ":"), whole = strlen(name);
    for (const char *s = list; *s; s += strcspn(s, "+"), s += *s == '+') {
        size_t n = strcspn(s, "+");
        if ((n == bare || n == whole) && strncmp(s, name, n) == 0)
            return true;
    }
    return false;
}

/* Chooses the emphasised lines: the requested ones, else lines with a point on the front (already
 * marked), else all lines if there are few. */
static int emphasise(struct quality *q, const struct pareto_style *o, struct kvf_diag *d)
{
    int n = 0;
    for (int i = 0; i < q->h.n; i++) {
        if (q->beside > 0)
            q->strong[i] = true;
        else if (o->methods)
            q->strong[i] = is_listed(o->methods, q->h.line[i].name);
        else
            q->strong[i] |= q->h.n <= FEW;
        n += q->strong[i];
    }
    if (o->methods && !n)
        return kvf_fail(d, KVF_E_ARG, "--style methods: the table has no rows of '%s'", o->methods);
    return KVF_OK;
}

static struct identity look_of(const struct quality *q, int i)
{
    struct identity k = q->look[i];
    k.colour = q->strong[i] ? k.colour : tint(k.colour, PALE);
    return k;
}

/* Returns the number of correct answers of a row, or NaN. */
static double correct_of(const struct table *t, int64_t r)
{
    int right = numeric_column(t, "right"), tasks = numeric_column(t, "tasks");
    return right < 0 || tasks < 0 ? NAN : round(table_real(t, right, r) * table_real(t, tasks, r));
}

/* Returns the size of the mark of point i: its area grows with the correct answers behind a mean
 * over these. */
static double size_of(const struct quality *q, const struct chart_line *l, int i)
{
    double most = 0, own = NAN;
    for (int64_t r = 0; q->kept && r < table_rows(q->t); r++) {
        double n = is_full(q->t, r) ? NAN : correct_of(q->t, r);
        most = fmax(most, n); /* fmax ignores NaN */
        if (strcmp(table_row_str(q->t, r, "method"), l->name) == 0
            && table_real(q->t, q->x, r) == l->x[i])
            own = n;
    }
    return most > 0 && own >= 0 ? 1.7 * DOT * sqrt(own / most) : DOT;
}

static void draw_line(struct canvas *c, const struct axis_box *a, const struct quality *q, int line)
{
    const struct chart_line *l = &q->h.line[line];
    struct identity k = look_of(q, line);
    bool strong = q->strong[line];
    double shift = shift_of(q, line);
    for (int i = 0; i < l->n; i++) {
        double x = axis_x(a, l->x[i]) + shift, y = axis_y(a, l->y[i]);
        if (strong && l->low && l->high && isfinite(l->y[i])) {
            double low = a->log_y && l->low[i] <= 0 ? a->y0 : l->low[i];
            const double bar[] = {x, axis_y(a, low), x, axis_y(a, l->high[i])};
            canvas_line(c, bar, 2, 0.2, tint(k.colour, .6));
        }
        if (i > 0) {
            const double xy[] = {axis_x(a, l->x[i - 1]) + shift, axis_y(a, l->y[i - 1]), x, y};
            canvas_dash(c, k.dash, 0.7);
            canvas_line(c, xy, 2, strong ? 0.42 : 0.22, k.colour);
            canvas_dash(c, 0, 0);
        }
    }
    for (int i = 0; i < l->n; i++)
        mark_draw(c, k.mark, axis_x(a, l->x[i]) + shift, axis_y(a, l->y[i]),
                  (strong ? 1 : 0.75) * size_of(q, l, i), k.colour);
}

/* The name of a line, next to its last point. */
struct tag {
    int line;
    double x, y, at; /* of that point; y of the name */
};

static int by_y(const void *a, const void *b)
{
    const struct tag *p = a, *q = b;
    return p->y != q->y ? (p->y > q->y) - (p->y < q->y) : (p->line > q->line) - (p->line < q->line);
}

/* Assigns a text line between top and bottom to each of n sorted tags.  Strong tags get the line
 * next to the end of their curve; pale ones fill the rest in order. */
static void spread(const struct quality *q, struct tag *t, int n, double top, double bottom)
{
    bool taken[CHART_LINES] = {false};
    double want[CHART_LINES];
    int lines = (int)fmin(CHART_LINES, floor((bottom - top) / KEY_LINE + 1e-9)), strong = 0;
    for (int i = 0; i < n; i++)
        if (q->strong[t[i].line])
            want[strong++] = (t[i].y - top) / KEY_LINE - .5;
    spread_places(want, strong, 1, 0, lines - 1);
    for (int i = 0, k = 0, least = 0; i < n; i++)
        if (q->strong[t[i].line]) {
            int line = (int)fmax(least, fmin(round(want[k]), lines - strong + k));
            taken[line] = true;
            t[i].at = top + (line + .5) * KEY_LINE;
            least = line + 1;
            k++;
        }
    for (int i = 0, k = 0; i < n; i++)
        if (!q->strong[t[i].line]) {
            while (k + 1 < lines && taken[k])
                k++;
            t[i].at = top + (k++ + .5) * KEY_LINE;
        }
}

/* Finds the last point of a line inside the axes.  Returns false if it has none. */
static bool last_point(const struct axis_box *a, const struct chart_line *l, struct tag *t)
{
    for (int k = l->n - 1; k >= 0; k--) {
        t->x = axis_x(a, l->x[k]);
        t->y = axis_y(a, l->y[k]);
        if (isfinite(t->x) && isfinite(t->y))
            return true;
    }
    return false;
}

/* Chooses the lines that get a name: strong ones first, then better ones.  Returns their number. */
static int choose_tags(const struct axis_box *a, const struct quality *q, int fit, struct tag *tag)
{
    int n = 0;
    for (int strong = 1; strong >= 0; strong--)
        for (int k = 0; k < q->h.n && n < fit; k++) {
            int i = q->order[k];
            if (q->strong[i] == strong && last_point(a, &q->h.line[i], &tag[n])) {
                tag[n].x += shift_of(q, i);
                tag[n++].line = i;
            }
        }
    return n;
}

/* Writes the names of the lines at their ends, the best method first.  The last line counts the
 * names without space. */
static void draw_names(struct canvas *c, const struct axis_box *a, const struct quality *q,
                       double room)
{
    struct tag tag[CHART_LINES];
    double left = a->x + a->w + LEADER, bottom = a->y + a->h;
    int fit = (int)(a->h / KEY_LINE), n;
    char text[64];
    fit = q->h.n > fit ? fit - 1 : fit;
    n = choose_tags(a, q, fit, tag);
    qsort(tag, (size_t)n, sizeof *tag, by_y);
    spread(q, tag, n, a->y, q->h.n > fit ? bottom - KEY_LINE : bottom);
    for (int o = 0; o < q->h.n; o++)
        for (int i = 0; i < n; i++) {
            struct identity k = look_of(q, tag[i].line);
            const double leader[] = {tag[i].x + 1, tag[i].y,   a->x + a->w + 1,
                                     tag[i].at,    left - 0.6, tag[i].at};
            if (tag[i].line != q->order[o])
                continue;
            if (q->strong[tag[i].line]) /* leader lines of all methods would hide the curves */
                canvas_line(c, leader, 3, 0.15, k.colour);
            const double key[] = {left, tag[i].at, left + KEY_DASH, tag[i].at};
            canvas_dash(c, k.dash, 0.7);
            canvas_line(c, key, 2, 0.3, k.colour);
            canvas_dash(c, 0, 0);
            mark_draw(c, k.mark, left + KEY_DASH / 2, tag[i].at, DOT, k.colour);
            canvas_text(
                c, left + SAMPLE - 1.5, tag[i].at,
                text_fit(c, q->h.line[tag[i].line].name, PT_TICK, room - SAMPLE, text, sizeof text),
                PT_TICK, ALIGN_LEFT, q->strong[tag[i].line] ? ink : quiet, 0);
        }
    snprintf(text, sizeof text, "and %d more", q->h.n - fit);
    if (q->h.n > fit)
        canvas_text(c, left, bottom - KEY_LINE / 2, text, PT_TICK, ALIGN_LEFT, quiet, 0);
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
                         .at_x = q->tick,
                         .n_at_x = q->n_ticks,
                         .log_y = q->log_y,
                         .xlabel = x_label[o->x],
                         .ylabel = q->ylabel};
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
    double w = canvas_text_width(c, "and 10 more", PT_TICK, 0);
    for (int i = 0; i < q->h.n; i++)
        w = fmax(w, canvas_text_width(c, q->h.line[i].name, PT_TICK, 0));
    return w + SAMPLE;
}

static int draw_points(struct canvas *c, const struct axis_box *a, struct quality *q,
                       const struct pareto_style *o, struct kvf_diag *d)
{
    double *xy;
    int n, err = front(q, &xy, &n);
    if (!err)
        err = emphasise(q, o, d);
    if (!err) {
        canvas_clip(c, a->x, a->y, a->w, a->h);
        if (q->front)
            draw_front(c, a, xy, n);
        for (int strong = 0; strong < 2; strong++)
            for (int k = q->h.n - 1; k >= 0; k--) /* the best on top */
                if (q->strong[q->order[k]] == strong)
                    draw_line(c, a, q, q->order[k]);
        canvas_unclip(c);
        draw_full(c, a, q);
        if (q->front)
            front_key(c, a, q);
    }
    mem_free(xy);
    return err;
}

/* Writes the number of correct answers behind the points. */
static size_t note_correct(const struct quality *q, char *out, size_t room)
{
    double least = INFINITY, most = 0;
    for (int64_t r = 0; r < table_rows(q->t); r++) {
        double n = is_full(q->t, r) ? 0 : correct_of(q->t, r);
        least = n > 0 ? fmin(least, n) : least;
        most = fmax(most, n);
    }
    return most > 0 ? (size_t)snprintf(out, room, "; area of a mark: %.0f to %.0f correct answers",
                                       least, most)
                    : 0;
}

/* Draws the parts of a note in lines of at most `room` mm, right-aligned.  y: of the last line if
 * `up`, else of the first. */
static void draw_note(struct canvas *c, double right, double y, double room, bool up, char *note)
{
    static const double LINE = 2.4;
    char *line[4] = {note};
    int n = 1, most = sizeof line / sizeof *line;
    for (char *gap = strstr(note, "; "); gap && n < most; gap = strstr(gap + 2, "; ")) {
        char *next = strstr(gap + 2, "; ");
        if (next)
            *next = 0;
        bool fits = canvas_text_width(c, line[n - 1], PT_SMALL, 0) <= room;
        if (next)
            *next = ';';
        if (fits)
            continue;
        *gap = 0;
        line[n++] = gap + 2;
    }
    for (int i = 0; i < n; i++)
        canvas_text(c, right, up ? y - (n - 1 - i) * LINE : y + i * LINE, line[i], PT_SMALL,
                    ALIGN_RIGHT, ink, 0);
}

/* Writes the number of documents or tasks behind the means and the number of points that are not
 * drawn. These are points that a logarithmic axis cannot show and rows without a number.  The note
 * is in a corner that rising or falling lines do not use. */
static void note_left_out(struct canvas *c, const struct axis_box *a, const struct quality *q,
                          const struct table *t)
{
    char zero[48] = "", unknown[48] = "", note[224] = "";
    int docs_column = numeric_column(t, "docs");
    int column = docs_column < 0 ? numeric_column(t, "tasks") : docs_column;
    bool bars = false;
    double docs = table_rows(t) && column >= 0 ? table_real(t, column, 0) : NAN;
    size_t n = 0;
    if (docs >= 1)
        n = (size_t)snprintf(note, sizeof note, "n = %.0f %s", docs,
                             docs_column < 0 ? "tasks" : "texts");
    for (int i = 0; i < q->h.n; i++)
        bars |= q->strong[i] && q->h.line[i].low && q->h.line[i].high;
    if (q->kept)
        n += note_correct(q, note + n, sizeof note - n);
    if (bars)
        n += (size_t)snprintf(note + n, sizeof note - n, "%sbars: 95 %% CI", n ? "; " : "");
    if (q->off)
        snprintf(zero, sizeof zero, "%lld point%s at 0", (long long)q->off, q->off > 1 ? "s" : "");
    if (q->unknown)
        snprintf(unknown, sizeof unknown, "%lld %s%s without %s", (long long)q->unknown,
                 q->kept ? "combination" : "row", q->unknown > 1 ? "s" : "",
                 q->kept ? "a correct answer" : "a number");
    if (*zero || *unknown)
        snprintf(note + n, sizeof note - n, "%s%s%s%s not shown", n ? "; " : "", zero,
                 *zero && *unknown ? ", " : "", unknown);
    else if (q->log_y && q->full == 0)
        snprintf(note + n, sizeof note - n, "%sfull cache: 0", n ? "; " : "");
    if (!note[0])
        return;
    double y = q->more_is_better ? a->y + a->h - 5.6 : a->y + 2;
    draw_note(c, a->x + a->w - 1, y, .62 * a->w, q->more_is_better, note);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct pareto_style *o = s->own;
    struct quality q;
    int err = read_quality(t, s, &q, d);
    if (err)
        goto done;
    double names = widest_name(c, &q), room = fmin(names, KEY_SHARE * canvas_width(c));
    double least = fmin(names, KEY_SHARE / (1 - KEY_SHARE) * (LEFT + LEADER + MIN_AXES));
    err = canvas_room(c, "pareto", LEFT + LEADER + least + MIN_AXES, 55, d);
    if (err)
        goto done;
    q.log_x = q.h.n > 0 && q.h.x1 > 1.5 * q.h.x0;
    struct axis_box a = axes(&q, o, canvas_width(c) - LEFT - LEADER - 1.5 - room,
                             canvas_height(c) - TOP - BOTTOM);
    if (isnan(q.h.y0)) {
        canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
        chart_empty(c, &a, "no point");
    } else {
        err = draw_points(c, &a, &q, o, d);
        if (err)
            goto done;
        axis_draw(c, &a);
        draw_names(c, &a, &q, room);
    }
    note_left_out(c, &a, &q, t);
done:
    chart_destroy(&q.h);
    return err;
}

static void caption(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct quality q;
    const struct pareto_style *o = s->own;
    int best = -1, worst = -1;
    char a[24], b[24];
    int err = read_quality(t, s, &q, NULL);
    for (int i = 0; !err && i < q.h.n; i++) {
        double v = q.h.line[i].n ? q.h.line[i].y[q.h.line[i].n - 1] : NAN;
        if (isnan(v))
            continue;
        double sign = q.more_is_better ? -1 : 1, of_best = 0, of_worst = 0;
        if (best >= 0) {
            of_best = q.h.line[best].y[q.h.line[best].n - 1];
            of_worst = q.h.line[worst].y[q.h.line[worst].n - 1];
        }
        best = best < 0 || sign * v < sign * of_best ? i : best;
        worst = worst < 0 || sign * v > sign * of_worst ? i : worst;
    }
    buf_printf(out, "Each line is a cache method: %s against %s. ", err ? "quality" : q.ylabel,
               x_label[o->x]);
    if (best < 0)
        buf_printf(out, "No method has a value.\n");
    else
        buf_printf(out, "With its largest cache, %s is the best (%s), and %s is the worst (%s).\n",
                   q.h.line[best].name, caption_number(q.h.line[best].y[q.h.line[best].n - 1], a),
                   q.h.line[worst].name,
                   caption_number(q.h.line[worst].y[q.h.line[worst].n - 1], b));
    chart_destroy(&q.h);
}

const struct figure fig_pareto = {
    .name = "pareto",
    .caption = caption,
    .table = "eval",
    .also = "tasks",
    .summary = "quality against the cached entries, a line per method, with the Pareto front",
    .needs = "method:text budget",
    STYLE(struct pareto_style,
          LIST_KEY(struct pareto_style, y, "kl", "column on the vertical axis", ys),
          LIST_KEY(struct pareto_style, x, "kv_mean", "column on the horizontal axis", xs),
          WORD_KEY(struct pareto_style, front, "yes", "the points that no other beats with less",
                   "yes", "no"),
          WORD_KEY(struct pareto_style, scale, "log", "the axis of KL", "log", "linear"),
          TEXT_KEY(struct pareto_style, methods, "A+B",
                   "the methods that are not pale, or all of them: all",
                   .absent = "those on the front; all of up to 8")),
    .size = size,
    .draw = draw,
};
