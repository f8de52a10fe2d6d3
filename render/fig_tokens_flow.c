/* fig_tokens_flow.c - draws the fraction of the entries of each token class that the caches keep: a
 * row per class, a dot per trace, and a line at the fraction of all entries. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/identity.h"

enum { TRACES = 16, CLASSES = 24 };
static const double TOP = 3, BOTTOM = 11, EDGE = 3, ROW = 4.6, MIN_ROW = 2.7, LINE = 3.6, DOT = 1.9,
                    KEY_GAP = 4;

struct kept {
    int traces, classes;
    char title[TRACES][CELL_TEXT];
    struct identity look[TRACES];
    const char *name[CLASSES];
    double sum[TRACES][CLASSES], n[TRACES][CLASSES]; /* kept fractions of tokens; tokens */
};

static int class_of(struct kept *x, const char *name)
{
    for (int k = 0; k < x->classes; k++)
        if (strcmp(x->name[k], name) == 0)
            return k;
    if (x->classes == CLASSES)
        return CLASSES - 1;
    x->name[x->classes] = name;
    return x->classes++;
}

static int add_trace(struct kept *x, const struct table *t, int64_t row, struct kvf_diag *d)
{
    char key[32];
    snprintf(key, sizeof key, "trace_%d", (int)table_row_int(t, row, "trace"));
    const char *name = table_meta(t, key) ? table_meta(t, key) : table_meta(t, "method");
    if (x->traces == TRACES)
        return kvf_fail(d, KVF_E_ARG, "figure tokens-flow: at most %d traces", TRACES);
    snprintf(x->title[x->traces++], CELL_TEXT, "%.60s", name ? name : "");
    return KVF_OK;
}

/* Sorts the classes by their number of tokens in the first trace. */
static void sort_classes(struct kept *x)
{
    for (int i = 1; i < x->classes; i++)
        for (int k = i; k > 0 && x->n[0][k] > x->n[0][k - 1]; k--) {
            const char *name = x->name[k];
            x->name[k] = x->name[k - 1];
            x->name[k - 1] = name;
            for (int p = 0; p < x->traces; p++) {
                double sum = x->sum[p][k], n = x->n[p][k];
                x->sum[p][k] = x->sum[p][k - 1];
                x->n[p][k] = x->n[p][k - 1];
                x->sum[p][k - 1] = sum;
                x->n[p][k - 1] = n;
            }
        }
}

static int read_kept(const struct table *t, struct kept *x, struct kvf_diag *d)
{
    int trace = table_find(t, "trace"), class = table_find(t, "class"),
        kept = table_find(t, "kept"), err = KVF_OK;
    for (int64_t r = 0; !err && r < table_rows(t); r++) {
        double v = table_real(t, kept, r);
        if (r == 0 || table_int(t, trace, r) != table_int(t, trace, r - 1))
            err = add_trace(x, t, r, d);
        if (err || isnan(v))
            continue;
        int k = class_of(x, table_str(t, class, r));
        x->sum[x->traces - 1][k] += fmin(fmax(v, 0), 1);
        x->n[x->traces - 1][k]++;
    }
    const char *name[TRACES];
    for (int p = 0; p < x->traces; p++)
        name[p] = x->title[p];
    identity_of_methods(x->traces, name, x->look);
    sort_classes(x);
    return err;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct kept *x = MEM_NEW(struct kept, 1);
    (void)s;
    *w = 88;
    *h = 60;
    if (x && read_kept(t, x, NULL) == KVF_OK)
        *h = TOP + BOTTOM + LINE * (1 + (x->traces - 1) / 3) + ROW * fmax(3, x->classes);
    mem_free(x);
}

/* Draws the names of the traces in lines from y down.  Returns the number of lines.  draw false:
 * only counts. */
static int draw_key(struct canvas *c, const struct kept *x, double y, bool draw)
{
    double at = EDGE, W = canvas_width(c);
    int lines = 1;
    for (int p = 0; p < x->traces; p++) {
        char fit[CELL_TEXT + 8];
        const char *name = text_fit(c, x->title[p], PT_TICK, W - 2 * EDGE - 4, fit, sizeof fit);
        double w = 3 + canvas_text_width(c, name, PT_TICK, 0);
        if (at > EDGE && at + w > W - EDGE) {
            at = EDGE;
            lines++;
        }
        if (draw) {
            double line_y = y + (lines - 1) * LINE;
            mark_draw(c, x->look[p].mark, at + 1, line_y, DOT, x->look[p].colour);
            canvas_text(c, at + 3, line_y, name, PT_TICK, ALIGN_LEFT, ink, 0);
        }
        at += w + KEY_GAP;
    }
    return lines;
}

/* Draws a vertical line at the kept fraction of all tokens of each trace. */
static void draw_means(struct canvas *c, const struct kept *x, const struct axis_box *a)
{
    for (int p = 0; p < x->traces; p++) {
        double sum = 0, n = 0;
        for (int k = 0; k < x->classes; k++) {
            sum += x->sum[p][k];
            n += x->n[p][k];
        }
        const double xy[] = {axis_x(a, sum / n), a->y, axis_x(a, sum / n), a->y + a->h};
        canvas_dash(c, 0.8, 0.8);
        if (n > 0)
            canvas_line(c, xy, 2, 0.25, x->look[p].colour);
        canvas_dash(c, 0, 0);
    }
}

/* Draws the rows.  Dots of several traces are below each other within a row, so that equal values
 * stay visible. */
static void draw_rows(struct canvas *c, const struct kept *x, const struct axis_box *a)
{
    double row = a->h / x->classes, step = fmin(0.9, 0.7 * row / x->traces);
    for (int k = 0; k < x->classes; k++) {
        char text[CELL_TEXT], fit[CELL_TEXT + 8];
        double y = a->y + (k + .5) * row;
        const double rule[] = {a->x, y, a->x + a->w, y};
        canvas_line(c, rule, 2, 0.12, (struct rgb){.85, .85, .87});
        snprintf(text, sizeof text, "%.40s (%.0f)", x->name[k], x->n[0][k]);
        canvas_text(c, a->x - 1.5, y, text_fit(c, text, PT_TICK, a->x - 2.5, fit, sizeof fit),
                    PT_TICK, ALIGN_RIGHT, ink, 0);
        for (int p = 0; p < x->traces; p++)
            if (x->n[p][k] > 0)
                mark_draw(c, x->look[p].mark, axis_x(a, x->sum[p][k] / x->n[p][k]),
                          y + step * (p - (x->traces - 1) / 2.0), DOT, x->look[p].colour);
    }
}

static int draw_all(struct canvas *c, const struct kept *x, struct kvf_diag *d)
{
    double names = 12;
    char text[CELL_TEXT];
    for (int k = 0; k < x->classes; k++) {
        snprintf(text, sizeof text, "%.40s (%.0f)", x->name[k], x->n[0][k]);
        names = fmax(names, canvas_text_width(c, text, PT_TICK, 0) + 3.5);
    }
    names = fmin(names, canvas_width(c) / 2.5);
    double top = TOP + LINE * draw_key(c, x, 0, false);
    int err = canvas_room(c, "tokens-flow", 50, top + BOTTOM + MIN_ROW * fmax(3, x->classes), d);
    if (err)
        return err;
    struct axis_box a = {.x = names,
                         .y = top,
                         .w = canvas_width(c) - names - EDGE,
                         .h = canvas_height(c) - top - BOTTOM,
                         .x1 = 1,
                         .xlabel = "fraction of entries cached at the end"};
    draw_key(c, x, TOP, true);
    draw_means(c, x, &a);
    if (x->classes)
        draw_rows(c, x, &a);
    axis_ticks_x(c, &a);
    canvas_text(c, a.x + a.w / 2, a.y + a.h + 5.6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    canvas_text(c, canvas_width(c) / 2, canvas_height(c) - 1.8,
                "dashed: all classes; numbers: tokens of a class", PT_SMALL, ALIGN_CENTER, quiet,
                0);
    return KVF_OK;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct kept *x = MEM_NEW(struct kept, 1);
    (void)s;
    if (!x)
        return KVF_E_NOMEM;
    int err = read_kept(t, x, d);
    if (!err)
        err = draw_all(c, x, d);
    mem_free(x);
    return err;
}

const struct figure fig_tokens_flow = {
    .name = "tokens-flow",
    .table = "tokens",
    .summary = "fraction of each token class that the caches keep, a dot for each trace",
    .needs = "trace:either class:text kept",
    .size = size,
    .draw = draw,
};
