/* fig_pareto.c - draws quality against cache size: a line per method with 95 % intervals and its
 * name at its end, the Pareto front, and the full cache.  Methods that are not named are grey. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/chart.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/cells.h"
#include "render/note.h"

enum { LEFT = 15, TOP = 3, BOTTOM = 11, FEW = 8, FEW_TICKS = 6, NOTES = 5 };
static const double KEY_LINE = 3.1, NOTE = 2.7, BESIDE = .75, SAMPLE = 9, DOT = 1.6, NEAR = .005,
                    KEY_SHARE = .4, LEADER = 5, KEY_DASH = 6.5,
                    MIN_AXES = 37; /* mm, including adjacent text */
static const struct rgb front_grey = {.25, .25, .25}, front_pale = {.8, .8, .8},
                        other_grey = {.72, .72, .72}, band_grey = {.92, .92, .92};

struct quality {
    struct chart h;
    int order[CHART_LINES]; /* of the key: best mean first */
    double mean[CHART_LINES];
    bool strong[CHART_LINES]; /* named; other lines are grey */
    struct identity look[CHART_LINES];
    double full[3]; /* value of the full cache and its interval, NaN if missing */
    double beside; /* mm between lines with intervals at one x, 0 unless methods are chosen and x is
                    * their budget */
    const struct table *t;
    int x; /* its column */
    bool log_x, log_y, more_is_better, front, kept;
    int64_t off;            /* points that a logarithmic axis cannot show */
    int64_t unknown;        /* rows without x or y, which have no point */
    int64_t unjudged;       /* of kept answers: rows without a fraction of correct answers */
    double tick[FEW_TICKS]; /* budgets on the x axis, if there are few; n_ticks = 0: other ticks */
    int n_ticks;
    char ylabel[96]; /* names the protocol if methods do not see the question */
};

/* Columns of the y and x axes with their labels, in the order of the keys' words. */
enum { KL, NLL, TOP1, RIGHT, KEPT };
static const char *const ys[] = {"kl", "nll", "top1_agree", "right", "kept", NULL};
static const char *const y_label[] = {
    "KL to the full cache (nats per token)", "negative log likelihood (nats per token)",
    "fraction of equal top-1 tokens", "fraction of correct answers",
    "cached fraction, mean over correct answers"};
enum { KV_MEAN, BUDGET, KV_END, KV_PEAK, X_KEPT };
static const char *const xs[] = {"kv_mean", "budget", "kv_end", "kv_peak", "kept", NULL};
static const char *const x_label[] = {"cached entries per head, mean", "budget (entries per head)",
                                      "cached entries per head at the end",
                                      "cached entries per head, maximum",
                                      "cached fraction of the text, mean over correct answers"};

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

static void read_full(const struct table *t, const struct chart_columns *k, double ret[3])
{
    const int column[] = {k->y, k->low, k->high};
    for (int e = 0; e < 3; e++) {
        ret[e] = NAN;
        for (int64_t r = 0; r < table_rows(t) && isnan(ret[e]); r++)
            if (is_full(t, r) && column[e] >= 0)
                ret[e] = table_real(t, column[e], r);
    }
}

/* Returns the number of rows without x or y; unjudged: of those whose answers were not judged. */
static int64_t count_unknown(const struct table *t, int x, int y, bool unjudged)
{
    int64_t n = 0;
    int right = numeric_column(t, "right");
    for (int64_t r = 0; r < table_rows(t); r++)
        n += !is_full(t, r) && !(table_real(t, x, r) > 0 && isfinite(table_real(t, y, r)))
             && (!unjudged || (right >= 0 && isnan(table_real(t, right, r))));
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
                          .beside = o->methods && o->x == BUDGET ? BESIDE : 0,
                          .kept = o->y == KEPT || o->x == X_KEPT,
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
    q->unjudged = q->kept ? count_unknown(t, k.x, k.y, true) : 0;
    q->unknown = count_unknown(t, k.x, k.y, false) - q->unjudged;
    if (o->x == BUDGET)
        find_ticks(q);
    read_full(t, &k, q->full);
    for (int e = 0; e < 3; e++)
        if (isfinite(q->full[e]) && (!q->log_y || q->full[e] > 0)) {
            q->h.y0 = fmin(q->full[e], q->h.y0);
            q->h.y1 = fmax(q->full[e], q->h.y1);
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
    *h = fmin(180, fmax(62, TOP + BOTTOM + (n + 2) * KEY_LINE)) + 2 * NOTE;
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

/* Returns the distance in mm of a named line from its x, which separates intervals at equal
 * budgets. */
static double shift_of(const struct quality *q, int line)
{
    int before = 0, n = 0;
    for (int i = 0; i < q->h.n; i++) {
        before += q->strong[i] && i < line;
        n += q->strong[i];
    }
    return q->strong[line] ? q->beside * (before - (n - 1) / 2.0) : 0;
}

/* Draws the interval of the full cache as a band. */
static void draw_band(struct canvas *c, const struct axis_box *a, const struct quality *q)
{
    double low = axis_y(a, q->full[1]), high = axis_y(a, q->full[2]);
    if (isfinite(low) && isfinite(high) && low > high)
        canvas_rect(c, a->x, high, a->w, low - high, band_grey);
}

/* Draws the full cache as a horizontal dashed line, with its name above or below it on the left. */
static void draw_full(struct canvas *c, const struct axis_box *a, const struct quality *q)
{
    double y = axis_y(a, q->full[0]), xy[] = {a->x, y, a->x + a->w, y};
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

/* Rejects a list "a+b" with a name that no line has. */
static int check_listed(const struct quality *q, const char *list, struct kvf_diag *d)
{
    for (const char *s = list; *s; s += strcspn(s, "+"), s += *s == '+') {
        char one[CELL_TEXT];
        bool found = false;
        snprintf(one, sizeof one, "%.*s", (int)strcspn(s, "+"), s);
        for (int i = 0; i < q->h.n && !found; i++)
            found = is_listed(one, q->h.line[i].name);
        if (!found)
            return kvf_fail(d, KVF_E_ARG, "--style methods: the table has no line of '%s'", one);
    }
    return KVF_OK;
}

/* Chooses the named lines: the requested ones, else lines with a point on the front (already
 * marked), else all lines if there are few. */
static int emphasise(struct quality *q, const struct pareto_style *o, struct kvf_diag *d)
{
    bool all = o->methods && strcmp(o->methods, "all") == 0;
    for (int i = 0; i < q->h.n; i++) {
        if (o->methods)
            q->strong[i] = all || is_listed(o->methods, q->h.line[i].name);
        else
            q->strong[i] |= q->h.n <= FEW;
    }
    return o->methods && !all ? check_listed(q, o->methods, d) : KVF_OK;
}

static struct identity look_of(const struct quality *q, int i)
{
    return q->strong[i] ? q->look[i] : (struct identity){other_grey, MARK_DISC, 0};
}

/* Returns the column with the number of documents or tasks, or -1. */
static int count_column(const struct table *t)
{
    int docs = numeric_column(t, "docs");
    return docs < 0 ? numeric_column(t, "tasks") : docs;
}

/* Returns the number of correct answers of a row, or NaN. */
static double correct_of(const struct table *t, int64_t r)
{
    int right = numeric_column(t, "right"), n = count_column(t);
    return right < 0 || n < 0 ? NAN : round(table_real(t, right, r) * table_real(t, n, r));
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
        mark_draw(c, k.mark, axis_x(a, l->x[i]) + shift, axis_y(a, l->y[i]), strong ? DOT : DOT / 2,
                  k.colour);
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

/* Finds the named lines that have a point, the best first, at most `fit` of them.  Returns their
 * number. */
static int choose_tags(const struct axis_box *a, const struct quality *q, int fit, struct tag *tag)
{
    int n = 0;
    for (int k = 0; k < q->h.n && n < fit; k++) {
        int i = q->order[k];
        if (q->strong[i] && last_point(a, &q->h.line[i], &tag[n])) {
            tag[n].x += shift_of(q, i);
            tag[n++].line = i;
        }
    }
    return n;
}

static void draw_tag(struct canvas *c, const struct axis_box *a, const struct quality *q,
                     const struct tag *t, double room)
{
    struct identity k = look_of(q, t->line);
    char text[64];
    double left = a->x + a->w + LEADER;
    const double leader[] = {t->x + 1, t->y, a->x + a->w + 1, t->at, left - 0.6, t->at};
    const double key[] = {left, t->at, left + KEY_DASH, t->at};
    canvas_line(c, leader, 3, 0.15, k.colour);
    canvas_dash(c, k.dash, 0.7);
    canvas_line(c, key, 2, 0.3, k.colour);
    canvas_dash(c, 0, 0);
    mark_draw(c, k.mark, left + KEY_DASH / 2, t->at, DOT, k.colour);
    canvas_text(c, left + SAMPLE - 1.5, t->at,
                text_fit(c, q->h.line[t->line].name, PT_TICK, room - SAMPLE, text, sizeof text),
                PT_TICK, ALIGN_LEFT, ink, 0);
}

/* Writes the names of the lines at their ends, and below them the number of other lines. */
static void draw_names(struct canvas *c, const struct axis_box *a, const struct quality *q,
                       double room)
{
    struct tag tag[CHART_LINES];
    double at[CHART_LINES], left = a->x + a->w + LEADER, bottom = a->y + a->h;
    const double sample[] = {left, bottom - KEY_LINE / 2, left + KEY_DASH, bottom - KEY_LINE / 2};
    int strong = 0, fit = (int)(a->h / KEY_LINE);
    char text[64];
    for (int i = 0; i < q->h.n; i++)
        strong += q->strong[i];
    bool more = strong > fit || strong < q->h.n;
    int n = choose_tags(a, q, fit - more, tag);
    qsort(tag, (size_t)n, sizeof *tag, by_y);
    for (int i = 0; i < n; i++)
        at[i] = tag[i].y;
    spread_places(at, n, KEY_LINE, a->y + KEY_LINE / 2, bottom - (more ? 1.5 : .5) * KEY_LINE);
    for (int i = 0; i < n; i++) {
        tag[i].at = at[i];
        draw_tag(c, a, q, &tag[i], room);
    }
    if (!more)
        return;
    snprintf(text, sizeof text, "%d others", q->h.n - n);
    if (strong < q->h.n)
        canvas_line(c, sample, 2, 0.3, other_grey);
    canvas_text(c, left + SAMPLE - 1.5, sample[1], text, PT_TICK, ALIGN_LEFT, quiet, 0);
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
    double rim = .05 + q->beside * (q->h.n - 1) / 2 / w; /* lines beside their x */
    double grow = a.log_x ? exp((log(a.x1) - log(a.x0)) * rim) : (a.x1 - a.x0) * rim;
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
    double w = canvas_text_width(c, "10 others", PT_TICK, 0);
    for (int i = 0; i < q->h.n; i++)
        if (q->strong[i])
            w = fmax(w, canvas_text_width(c, q->h.line[i].name, PT_TICK, 0));
    return w + SAMPLE;
}

static void draw_points(struct canvas *c, const struct axis_box *a, const struct quality *q,
                        const double *xy, int n)
{
    canvas_clip(c, a->x, a->y, a->w, a->h);
    draw_band(c, a, q);
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

/* Appends a part to the note. */
static void __attribute__((format(printf, 2, 3)))
add_note(char note[NOTE_TEXT], const char *form, ...)
{
    size_t n = strlen(note);
    va_list list;
    va_start(list, form);
    if (n)
        n += (size_t)snprintf(note + n, NOTE_TEXT - n, "; ");
    if (n < NOTE_TEXT)
        vsnprintf(note + n, NOTE_TEXT - n, form, list);
    va_end(list);
}

/* Writes the number of correct answers behind the points. */
static void note_correct(const struct quality *q, char note[NOTE_TEXT])
{
    double least = INFINITY, most = 0;
    for (int64_t r = 0; r < table_rows(q->t); r++) {
        double n = is_full(q->t, r) ? 0 : correct_of(q->t, r);
        least = n > 0 ? fmin(least, n) : least;
        most = fmax(most, n);
    }
    if (most > 0)
        add_note(note, "means over %.0f to %.0f correct answers", least, most);
}

/* Writes the model, the number of documents or tasks behind the means, the budgets of the points,
 * and the number of points that are not drawn: points that a logarithmic axis cannot show and rows
 * without a number. */
static void write_note(const struct quality *q, bool budgets, char note[NOTE_TEXT])
{
    const struct table *t = q->t;
    int column = count_column(t);
    const char *model = table_meta(t, "model");
    bool bars = false, all = true;
    double docs = table_rows(t) && column >= 0 ? table_real(t, column, 0) : NAN;
    double low = INFINITY, high = 0;
    note[0] = 0;
    if (model && *model)
        add_note(note, "%.60s", model);
    if (docs >= 1)
        add_note(note, "n = %.0f %s", docs, numeric_column(t, "docs") < 0 ? "tasks" : "texts");
    for (int i = 0; i < q->h.n; i++) {
        bars |= q->strong[i] && q->h.line[i].low && q->h.line[i].high;
        all &= q->strong[i];
    }
    if (bars)
        add_note(note, "%s%s: 95 %% CI", all ? "bars" : "bars of named methods",
                 isfinite(q->full[1]) ? " and grey band" : "");
    for (int64_t r = 0; r < table_rows(t); r++) {
        double b = table_real(t, table_find(t, "budget"), r);
        low = b > 0 ? fmin(low, b) : low;
        high = fmax(high, b); /* ignores NaN */
    }
    if (budgets && high > low)
        add_note(note, "points of a line: budgets %.0f to %.0f", low, high);
    if (q->kept)
        note_correct(q, note);
    if (q->off)
        add_note(note, "%lld point%s at 0 not shown", (long long)q->off, q->off > 1 ? "s" : "");
    if (q->unknown)
        add_note(note, "%lld %s%s without %s not shown", (long long)q->unknown,
                 q->kept ? "combination" : "row", q->unknown > 1 ? "s" : "",
                 q->kept ? "a correct answer" : "a number");
    if (q->unjudged)
        add_note(note, "%lld combination%s without judged answers not shown",
                 (long long)q->unjudged, q->unjudged > 1 ? "s" : "");
    if (!q->off && q->log_y && q->full[0] == 0)
        add_note(note, "full cache: 0");
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct pareto_style *o = s->own;
    struct quality q;
    char note[NOTE_TEXT];
    double *xy = NULL;
    int n = 0, err = read_quality(t, s, &q, d);
    if (err)
        goto done;
    err = front(&q, &xy, &n);
    err = err ? err : emphasise(&q, o, d);
    if (err)
        goto done;
    double names = widest_name(c, &q), room = fmin(names, KEY_SHARE * canvas_width(c));
    double least = fmin(names, KEY_SHARE / (1 - KEY_SHARE) * (LEFT + LEADER + MIN_AXES));
    err = canvas_room(c, "pareto", LEFT + LEADER + least + MIN_AXES, 55, d);
    if (err)
        goto done;
    q.log_x = o->x != X_KEPT && q.h.n > 0 && q.h.x1 > 1.5 * q.h.x0;
    write_note(&q, o->x != BUDGET, note);
    struct note at = {1.5, canvas_width(c) - 1.5, canvas_width(c) / 2, .pitch = NOTE,
                      .most = NOTES};
    struct axis_box a = axes(&q, o, canvas_width(c) - LEFT - LEADER - 1.5 - room,
                             canvas_height(c) - TOP - BOTTOM - note_height(c, NULL, &at, note));
    if (isnan(q.h.y0)) {
        canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
        chart_empty(c, &a, "no point");
    } else {
        draw_points(c, &a, &q, xy, n);
        axis_draw(c, &a);
        draw_names(c, &a, &q, room);
    }
    note_draw_up(c, &at, canvas_height(c) - 2.2, note);
done:
    mem_free(xy);
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
                   "the methods that are named and not grey, or all of them: all",
                   .absent = "those on the front; all of up to 8")),
    .size = size,
    .draw = draw,
};
