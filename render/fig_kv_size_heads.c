/* fig_kv_size_heads.c - draws the distribution of the heads' cache sizes per run (G-KV, figure 6,
 * over heads): a dot per head, in rows of similar sizes, with the median and the quartiles. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/note.h"

enum { RUNS = 16 };
static const double LEFT = 13, RIGHT = 3, TOP = 3, BOTTOM = 12, DOT = 0.9, EACH = 22, LEAST = 10;

static const char *const value_words[] = {"ratio", "size", NULL};
static const char *const at_words[] = {"end", "prefill", "mean", "answer", "peak", NULL};
struct heads_style {
    int value, at;
};

struct run {
    char name[CELL_TEXT];
    int64_t from, n; /* of the numbers */
    struct rgb colour;
};
struct runs {
    struct run run[RUNS];
    int n;
    double *number; /* owned; sorted per run */
};

static bool other_run(const struct table *t, int trace, int64_t row)
{
    char one[24], other[24];
    return row == 0
           || (trace >= 0
               && strcmp(cell_text(t, trace, row, one), cell_text(t, trace, row - 1, other)) != 0);
}

static int read_runs(const struct table *t, const struct figure_style *s, struct runs *x,
                     struct kvf_diag *d)
{
    const struct heads_style *k = s->own;
    int trace = table_find(t, "trace"), at = table_find(t, "at"), layer = table_find(t, "layer");
    int value = table_find(t, value_words[k->value]);
    int64_t n = 0;
    x->number = MEM_NEW(double, (size_t)table_rows(t));
    if (!x->number)
        return KVF_E_NOMEM;
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (other_run(t, trace, r)) {
            const char *method = table_meta(t, "method");
            char cell[24];
            if (x->n == RUNS)
                return kvf_fail(d, KVF_E_ARG, "figure kv-size-heads: at most %d traces", RUNS);
            struct run *next = &x->run[x->n++];
            const char *name = trace < 0 ? method : cell_text(t, trace, r, cell);
            *next = (struct run){.from = n};
            snprintf(next->name, CELL_TEXT, "%.60s", name ? name : "");
        }
        double v = table_real(t, value, r);
        if (strcmp(table_str(t, at, r), at_words[k->at]) != 0 || table_real(t, layer, r) < 0
            || !isfinite(v))
            continue;
        x->number[n++] = v;
        x->run[x->n - 1].n++;
    }
    const char *name[RUNS];
    struct identity look[RUNS];
    for (int i = 0; i < x->n; i++)
        name[i] = x->run[i].name;
    identity_of_methods(x->n, name, look);
    for (int i = 0; i < x->n; i++)
        x->run[i].colour = look[i].colour;
    for (int i = 0; i < x->n; i++)
        qsort(x->number + x->run[i].from, (size_t)x->run[i].n, sizeof *x->number, order_double);
    return KVF_OK;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct runs x = {.n = 0};
    *w = 88;
    *h = 55;
    if (read_runs(t, s, &x, NULL) == KVF_OK)
        *w = fmin(180, fmax(60, LEFT + RIGHT + EACH * x.n));
    mem_free(x.number);
}

static double quantile(const double *v, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)at, high = low + 1 < n ? low + 1 : low;
    return v[low] + (at - (double)low) * (v[high] - v[low]);
}

/* Draws a dot for each of n sorted numbers.  Numbers within one dot of the first of a row share the
 * row, with a smaller pitch if they exceed the width. */
static void draw_dots(struct canvas *c, const struct axis_box *a, const double *v, int64_t n,
                      double middle, double room, struct rgb colour)
{
    for (int64_t i = 0, next; i < n; i = next) {
        double y = axis_y(a, v[i]);
        for (next = i + 1; next < n && fabs(axis_y(a, v[next]) - y) < DOT; next++)
            ;
        double pitch = fmin(DOT, room / (double)(next - i));
        for (int64_t k = i; k < next; k++)
            canvas_disc(c, middle + pitch * ((double)(k - i) - (double)(next - i - 1) / 2),
                        axis_y(a, v[k]), DOT / 2.4, 0, colour);
    }
}

static void draw_run(struct canvas *c, const struct axis_box *a, const struct runs *x, int k)
{
    const struct run *r = &x->run[k];
    const double *v = x->number + r->from;
    double each = a->w / x->n, middle = a->x + (k + .5) * each, half = .4 * each;
    struct rgb colour = r->colour;
    char fit[CELL_TEXT + 8];
    canvas_text(c, middle, a->y + a->h + 2.8,
                text_fit(c, r->name, PT_TICK, each - 1, fit, sizeof fit), PT_TICK, ALIGN_CENTER,
                ink, 0);
    if (r->n == 0)
        return;
    double y[3];
    for (int q = 0; q < 3; q++)
        y[q] = axis_y(a, quantile(v, r->n, .25 * (q + 1)));
    canvas_rect(c, middle - half, y[2], 2 * half, fmax(y[0] - y[2], 0), tint(colour, .16));
    const double median[] = {middle - half, y[1], middle + half, y[1]};
    canvas_line(c, median, 2, 0.45, ink);
    draw_dots(c, a, v, r->n, middle, 1.6 * half, colour);
}

static int draw_all(struct canvas *c, const struct table *t, const struct runs *x,
                    const struct figure_style *s, struct kvf_diag *d)
{
    const struct heads_style *k = s->own;
    static const char *const when[] = {"at the end", "after the prompt", "mean", "in the answer",
                                       "maximum"};
    double most = 0;
    char label[96], about[NOTE_RUN];
    int err = canvas_room(c, "kv-size-heads", LEFT + RIGHT + LEAST * x->n, TOP + BOTTOM + 15, d);
    if (err)
        return err;
    for (int i = 0; i < x->n; i++)
        for (int64_t r = x->run[i].from; r < x->run[i].from + x->run[i].n; r++)
            most = fmax(most, x->number[r]);
    struct axis_box a = {.x = LEFT,
                         .y = TOP,
                         .w = canvas_width(c) - LEFT - RIGHT,
                         .h = canvas_height(c) - TOP - BOTTOM,
                         .x1 = 1,
                         .y0 = isnan(s->vmin) ? 0 : axis_end(s->vmin)};
    a.y1 = most > 0 ? axis_end(1.04 * most) : 1;
    if (!isnan(s->vmax))
        a.y1 = axis_end(s->vmax);
    a.y1 = a.y1 > a.y0 ? a.y1 : a.y0 + 1;
    snprintf(label, sizeof label, "cached fraction%s, %s", k->value ? " of all tokens" : "",
             when[k->at]);
    a.ylabel = label;
    axis_ticks_y(c, &a);
    axis_name_y(c, &a);
    canvas_clip(c, a.x, a.y, a.w, a.h + BOTTOM);
    for (int i = 0; i < x->n; i++)
        draw_run(c, &a, x, i);
    canvas_unclip(c);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    struct note n = note_below(canvas_width(c) / 2, canvas_width(c) - 1);
    note_draw(c, &n, canvas_height(c) - 5, "a dot: a KV head; line and box: median and quartiles");
    note_draw(c, &n, canvas_height(c) - 2, note_run(t, about));
    return KVF_OK;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct runs x = {.n = 0};
    int err = read_runs(t, s, &x, d);
    if (!err)
        err = draw_all(c, t, &x, s, d);
    mem_free(x.number);
    return err;
}

const struct figure fig_kv_size_heads = {
    .name = "kv-size-heads",
    .table = "kv-size",
    .summary = "the caches of heads as a distribution for each run, a dot for each head",
    .needs = "at:text layer ratio size",
    STYLE(struct heads_style,
          LIST_KEY(struct heads_style, value, "ratio", "of the text so far, or of all of it",
                   value_words),
          LIST_KEY(struct heads_style, at, "end", "when", at_words)),
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
