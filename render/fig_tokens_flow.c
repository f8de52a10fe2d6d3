/* fig_tokens_flow.c - draws the tokens that the cache keeps as flows: token classes on the left, as
 * high as they are frequent, and the fate of their entries on the right, with a panel per trace. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/identity.h"

enum { PANELS = 4, CLASSES = 24, CURVE = 24 };
static const double TOP = 7, BOTTOM = 3, NAMES = 27, LEADER = 4, SHARES = 19, BAR = 2.2, GAP = 5,
                    LEAST = 12, APART = 0.5, LINE = 2.7;

struct flow {
    int panels, classes;
    char title[PANELS][CELL_TEXT];
    const char *name[CLASSES];
    double kept[PANELS][CLASSES], gone[PANELS][CLASSES]; /* mean number of entries per head */
    double all[PANELS];
};

static int class_of(struct flow *x, const char *name)
{
    for (int k = 0; k < x->classes; k++)
        if (strcmp(x->name[k], name) == 0)
            return k;
    if (x->classes == CLASSES)
        return CLASSES - 1;
    x->name[x->classes] = name;
    return x->classes++;
}

/* Sorts the classes by their frequency in the first panel. */
static void sort_classes(struct flow *x)
{
    for (int i = 1; i < x->classes; i++)
        for (int k = i;
             k > 0 && x->kept[0][k] + x->gone[0][k] > x->kept[0][k - 1] + x->gone[0][k - 1]; k--) {
            const char *name = x->name[k];
            x->name[k] = x->name[k - 1];
            x->name[k - 1] = name;
            for (int p = 0; p < x->panels; p++) {
                double kept = x->kept[p][k], gone = x->gone[p][k];
                x->kept[p][k] = x->kept[p][k - 1];
                x->gone[p][k] = x->gone[p][k - 1];
                x->kept[p][k - 1] = kept;
                x->gone[p][k - 1] = gone;
            }
        }
}

static int read_flow(const struct table *t, struct flow *x, struct kvf_diag *d)
{
    int trace = table_find(t, "trace"), class = table_find(t, "class"),
        kept = table_find(t, "kept");
    for (int64_t r = 0; r < table_rows(t); r++) {
        double v = table_real(t, kept, r);
        if (r == 0 || table_int(t, trace, r) != table_int(t, trace, r - 1)) {
            char key[32];
            snprintf(key, sizeof key, "trace_%d", (int)table_int(t, trace, r));
            const char *name = table_meta(t, key) ? table_meta(t, key) : table_meta(t, "method");
            if (x->panels == PANELS)
                return kvf_fail(d, KVF_E_ARG, "figure tokens-flow: at most %d traces", PANELS);
            snprintf(x->title[x->panels++], CELL_TEXT, "%.60s", name ? name : "");
        }
        if (isnan(v))
            continue;
        int k = class_of(x, table_str(t, class, r));
        v = fmin(fmax(v, 0), 1);
        x->kept[x->panels - 1][k] += v;
        x->gone[x->panels - 1][k] += 1 - v;
        x->all[x->panels - 1]++;
    }
    sort_classes(x);
    return KVF_OK;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct flow *x = MEM_NEW(struct flow, 1);
    (void)s;
    *w = 88;
    *h = 70;
    if (x && read_flow(t, x, NULL) == KVF_OK)
        *w = x->panels < 2 ? 88 : fmin(180, NAMES + x->panels * 48);
    mem_free(x);
}

/* Draws a band of height `high` from y0 at x0 to y1 at x1 along a smooth curve. */
static void band(struct canvas *c, double x0, double y0, double x1, double y1, double high,
                 struct rgb colour)
{
    double xy[4 * CURVE + 4];
    for (int i = 0; i <= CURVE; i++) {
        double f = (double)i / CURVE, smooth = f * f * (3 - 2 * f), y = y0 + smooth * (y1 - y0);
        int back = 2 * CURVE + 1 - i;
        xy[2 * i] = xy[2 * back] = x0 + f * (x1 - x0);
        xy[2 * i + 1] = y;
        xy[2 * back + 1] = y + high;
    }
    canvas_area(c, xy, 2 * CURVE + 2, colour, 1);
}

static void draw_share(struct canvas *c, const struct flow *x, int p, double at, double y,
                       double high, bool kept)
{
    char text[48];
    double n = 0;
    for (int k = 0; k < x->classes; k++)
        n += kept ? x->kept[p][k] : x->gone[p][k];
    snprintf(text, sizeof text, "%s %.0f %%", kept ? "kept" : "gone",
             x->all[p] > 0 ? 100 * n / x->all[p] : 0);
    canvas_rect(c, at, y, BAR, high, kept ? ink : (struct rgb){.75, .75, .77});
    canvas_text(c, at + BAR + 1, y + high / 2, text, PT_TICK, ALIGN_LEFT, ink, 0);
}

/* Draws the flows of a panel between x0 and x1: kept entries end at the top, evicted ones below. */
static void draw_flows(struct canvas *c, const struct flow *x, int p, double x0, double x1,
                       double high)
{
    double unit = x->all[p] > 0 ? (high - APART * (x->classes - 1)) / x->all[p] : 0, y = TOP,
           kept = 0;
    for (int k = 0; k < x->classes; k++)
        kept += x->kept[p][k] * unit;
    double to[2] = {TOP, TOP + kept + fmax(APART, high - (x->all[p] * unit))},
           end[2] = {to[0], to[1]};
    for (int k = 0; k < x->classes; k++) {
        struct rgb colour = identity_of_class(x->name[k], k);
        double part[2] = {x->kept[p][k] * unit, x->gone[p][k] * unit};
        canvas_rect(c, x0, y, BAR, part[0] + part[1], colour);
        band(c, x0 + BAR, y + part[0], x1, to[1], part[1], tint(colour, .22));
        band(c, x0 + BAR, y, x1, to[0], part[0], tint(colour, .75));
        to[0] += part[0];
        to[1] += part[1];
        y += part[0] + part[1] + APART;
    }
    draw_share(c, x, p, x1, end[0], to[0] - end[0], true);
    draw_share(c, x, p, x1, end[1], to[1] - end[1], false);
}

/* Draws a line in the colour of the class from its name at y0 to the middle of its bar at y1. */
static void leader(struct canvas *c, double y0, double y1, struct rgb colour)
{
    double x0 = NAMES - LEADER - .6, x1 = NAMES - .3;
    const double xy[] = {x0, y0, x0 + .6, y0, x1 - .6, y1, x1, y1};
    canvas_line(c, xy, 4, 0.3, colour);
}

/* Draws class names next to their bars in the first panel, at least a text line apart, with lines
 * to the bars. */
static void draw_names(struct canvas *c, const struct flow *x, double high)
{
    double unit = x->all[0] > 0 ? (high - APART * (x->classes - 1)) / x->all[0] : 0, y = TOP;
    double at[CLASSES], bar[CLASSES];
    int n = 0;
    for (int k = 0; k < x->classes; k++) {
        double h = (x->kept[0][k] + x->gone[0][k]) * unit;
        at[n] = bar[n] = y + h / 2;
        n++;
        y += h + APART;
    }
    spread_places(at, n, LINE, TOP, TOP + high);
    for (int k = 0; k < n; k++) {
        char text[CELL_TEXT], fit[CELL_TEXT + 8];
        snprintf(text, sizeof text, "%.40s %.0f", x->name[k], x->kept[0][k] + x->gone[0][k]);
        canvas_text(c, NAMES - LEADER - 1.2, at[k],
                    text_fit(c, text, PT_TICK, NAMES - LEADER - 2.2, fit, sizeof fit), PT_TICK,
                    ALIGN_RIGHT, ink, 0);
        leader(c, at[k], bar[k], identity_of_class(x->name[k], k));
    }
}

static int draw_all(struct canvas *c, const struct flow *x, struct kvf_diag *d)
{
    double W = canvas_width(c), high = canvas_height(c) - TOP - BOTTOM;
    double each = (W - NAMES - GAP * (x->panels - 1)) / x->panels;
    int err = canvas_room(c, "tokens-flow",
                          NAMES + x->panels * (LEAST + BAR + SHARES) + GAP * (x->panels - 1),
                          TOP + BOTTOM + fmax(12, LINE * (x->classes + 1)), d);
    if (err)
        return err;
    draw_names(c, x, high);
    for (int p = 0; p < x->panels; p++) {
        double x0 = NAMES + p * (each + GAP);
        char fit[CELL_TEXT + 8];
        draw_flows(c, x, p, x0, x0 + each - SHARES, high);
        canvas_text(c, x0 + (each - SHARES) / 2, TOP - 3.4,
                    text_fit(c, x->title[p], PT_LABEL, each, fit, sizeof fit), PT_LABEL,
                    ALIGN_CENTER, ink, 0);
    }
    return KVF_OK;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct flow *x = MEM_NEW(struct flow, 1);
    (void)s;
    if (!x)
        return KVF_E_NOMEM;
    int err = read_flow(t, x, d);
    if (!err)
        err = draw_all(c, x, d);
    mem_free(x);
    return err;
}

const struct figure fig_tokens_flow = {
    .name = "tokens-flow",
    .table = "tokens",
    .summary = "flows from the classes of tokens to cached and evicted",
    .needs = "trace:either class:text kept",
    .size = size,
    .draw = draw,
};
