/* predict_units.c - draws a statistic against an effect: a panel per candidate, the largest rank
 * correlation first, and a point per head (coloured by layer) or entry. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/chart.h"
#include "render/clamp.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/predict_units.h"

enum {
    MOST = 12,
    USUAL = 6,
    LEFT = 15,
    TOP = 9,
    BOTTOM = 9,
    GAP_X = 12,
    GAP_Y = 15,
    BAR = 19,
    COLUMNS = 3,
    DECADES = 100 /* largest / smallest statistic from which the axis is logarithmic */
};
static const double PANEL_W = 36, PANEL_H = 30, LEAST = 16;

struct candidate {
    int64_t from, to; /* rows */
    double size;      /* |rho|; -1: undefined */
};

struct scatter {
    const struct table *t;
    int statistic, effect, layer, rho, low, high;
    struct candidate c[MOST];
    int n, more;
    bool log_y;
    double y0, y1;
    double layers; /* last layer; -1: entries */
};

static bool same(const struct table *t, int64_t a, int64_t b)
{
    static const char *const names[] = {"candidate", "reduce"};
    char x[24], y[24];
    for (int k = 0; k < 2; k++) {
        int col = table_find(t, names[k]);
        if (strcmp(cell_text(t, col, a, x), cell_text(t, col, b, y)) != 0)
            return false;
    }
    return true;
}

/* Inserts a candidate if it is one of the `top` largest so far.  The order of equal ones is
 * kept. */
static void insert_candidate(struct scatter *s, struct candidate c, int top)
{
    int at = s->n;
    while (at > 0 && s->c[at - 1].size < c.size)
        at--;
    s->more += s->n == top;
    if (at >= top)
        return;
    s->n += s->n < top;
    for (int k = s->n - 1; k > at; k--)
        s->c[k] = s->c[k - 1];
    s->c[at] = c;
}

static void ranges(struct scatter *s)
{
    s->y0 = s->y1 = NAN;
    s->log_y = true;
    s->layers = -1;
    for (int64_t r = 0; r < table_rows(s->t); r++) {
        double y = table_real(s->t, s->effect, r);
        s->layers = fmax(s->layers, table_real(s->t, s->layer, r));
        if (isfinite(y)) {
            s->log_y &= y > 0;
            s->y0 = fmin(s->y0, y);
            s->y1 = fmax(s->y1, y);
        }
    }
    double grow = s->log_y ? pow(s->y1 / s->y0, .05) : .05 * (s->y1 - s->y0);
    if (isnan(s->y0) || !(s->y1 > s->y0))
        grow = s->log_y ? 2 : 1;
    double below = s->log_y ? s->y0 / grow : s->y0 - grow;
    double above = s->log_y ? s->y1 * grow : s->y1 + grow;
    s->y0 = isnan(s->y0) ? .1 : below;
    s->y1 = isnan(s->y1) ? 1 : above;
}

/* A statistic: the start of its name up to a criterion, and its plain name. */
static const struct {
    const char *raw, *plain;
} statistics[] = {{"sink_contrib", "contribution of sinks"},
                  {"sink_mass", "attention on sinks"},
                  {"mass.sum", "attention received, sum"},
                  {"mass.max", "attention received, largest"},
                  {"contrib.sum", "contribution, sum"},
                  {"contrib.max", "contribution, largest"},
                  {"sparsity.beta", "sparsity of the gates"},
                  {"beta", "gate beta"},
                  {"mean_retention", "mean retention"},
                  {"write_gate", "write gate"},
                  {"entropy", "entropy (nats)"},
                  {"saliency", "saliency (nats)"},
                  {"entries_held", "cached entries"},
                  {"steps_held", "steps in the cache"},
                  {"survival.", "survival"},
                  {"sparsity.use.", "sparsity"},
                  {"last_use.", "step of the last use"}};

void predict_name(const char *raw, const char *reduce, char out[PLOT_NAME])
{
    char set[PLOT_NAME];
    const char *of = strcmp(reduce, "max") == 0 ? "largest" : reduce;
    size_t n = 0;
    for (size_t k = 0; !n && k < sizeof statistics / sizeof *statistics; k++) {
        size_t start = strlen(statistics[k].raw);
        bool criterion = statistics[k].raw[start - 1] == '.';
        if (strncmp(raw, statistics[k].raw, start) != 0 || (!criterion && raw[start]))
            continue;
        criterion_name(raw + start, set);
        n = (size_t)snprintf(out, PLOT_NAME, criterion ? "%s, %.30s" : "%s", statistics[k].plain,
                             set);
    }
    if (!n)
        n = (size_t)snprintf(out, PLOT_NAME, "%.60s", raw);
    if (strcmp(reduce, "none") != 0)
        snprintf(out + n, PLOT_NAME - n, ", %.16s", of);
}

static struct scatter scatter_of(const struct table *t, int64_t top)
{
    int most = (int)clamp_whole(top ? top : USUAL, 1, MOST);
    struct scatter s = {.t = t,
                        .statistic = table_find(t, "statistic"),
                        .effect = table_find(t, "effect"),
                        .layer = table_find(t, "layer"),
                        .rho = table_find(t, "partial"),
                        .low = table_find(t, "low"),
                        .high = table_find(t, "high")};
    for (int64_t r = 0, to; r < table_rows(t); r = to) {
        double rho = table_real(t, s.rho, r);
        for (to = r + 1; to < table_rows(t) && same(t, r, to);)
            to++;
        insert_candidate(&s, (struct candidate){r, to, isnan(rho) ? -1 : fabs(rho)}, most);
    }
    ranges(&s);
    return s;
}

static int columns_of(const struct scatter *s)
{
    return (int)clamp_whole(s->n, 1, COLUMNS);
}

static int rows_of(const struct scatter *s)
{
    return s->n ? (s->n + COLUMNS - 1) / COLUMNS : 1;
}

void predict_units_size(const struct table *t, int64_t top, double *w, double *h)
{
    struct scatter s = scatter_of(t, top);
    int nx = columns_of(&s), ny = rows_of(&s);
    *w = fmax(88, LEFT + nx * PANEL_W + (nx - 1) * GAP_X + BAR);
    *h = TOP + ny * PANEL_H + (ny - 1) * GAP_Y + BOTTOM;
}

static void title(struct canvas *c, const struct scatter *s, const struct candidate *k,
                  const struct axis_box *a)
{
    const struct table *t = s->t;
    char one[24], two[24], text[PLOT_NAME], fit[128];
    const char *reduce = cell_text(t, table_find(t, "reduce"), k->from, two);
    predict_name(cell_text(t, table_find(t, "candidate"), k->from, one), reduce, text);
    canvas_text(c, a->x + a->w / 2, a->y - 5.4,
                text_fit(c, text, PT_TICK, a->w + GAP_X - 2, fit, sizeof fit), PT_TICK,
                ALIGN_CENTER, ink, 0);
    snprintf(text, sizeof text, "partial \xcf\x81 %.2f (%.2f to %.2f)",
             table_real(t, s->rho, k->from), table_real(t, s->low, k->from),
             table_real(t, s->high, k->from));
    if (k->size < 0)
        snprintf(text, sizeof text, "\xcf\x81 not defined");
    minus_signs(text, sizeof text);
    canvas_text(c, a->x + a->w / 2, a->y - 2.3,
                text_fit_own(c, text, PT_SMALL, a->w + GAP_X - 2, fit, sizeof fit), PT_SMALL,
                ALIGN_CENTER, (struct rgb){.35, .35, .35}, 0);
}

static void panel(struct canvas *c, const struct scatter *s, const struct candidate *k,
                  struct axis_box *a)
{
    double lo = NAN, hi = NAN;
    for (int64_t r = k->from; r < k->to; r++) {
        double x = table_real(s->t, s->statistic, r);
        if (isfinite(x)) {
            lo = fmin(lo, x);
            hi = fmax(hi, x);
        }
    }
    a->log_x = lo > 0 && hi > DECADES * lo;
    double grow = hi > lo ? .05 * (hi - lo) : 1, times = pow(hi / lo, .05);
    a->x0 = isnan(lo) ? 0 : lo - grow;
    a->x1 = isnan(hi) ? 1 : hi + grow;
    if (a->log_x) {
        a->x0 = lo / times;
        a->x1 = hi * times;
    }
    axis_ticks_x(c, a);
    axis_ticks_y(c, a);
    if (a->ylabel)
        axis_name_y(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    for (int64_t r = k->from; r < k->to; r++) {
        double layer = table_real(s->t, s->layer, r);
        double x = table_real(s->t, s->statistic, r), y = table_real(s->t, s->effect, r);
        struct rgb colour = s->layers > 0 ? palette_at(NULL, .92 * layer / s->layers)
                                          : palette_line(0);
        if (isfinite(x) && isfinite(y))
            mark_draw(c, MARK_DISC, axis_x(a, x), axis_y(a, y), 1.1, colour);
    }
    title(c, s, k, a);
}

/* Writes the number of points, and of candidates without a panel. */
static void note(const struct scatter *s, char *out, size_t room)
{
    int64_t n = s->n ? s->c[0].to - s->c[0].from : 0;
    size_t used = (size_t)snprintf(out, room, "n = %lld %s; in brackets: 95 %% CI", (long long)n,
                                   s->layers < 0 ? "entries" : "heads");
    if (s->more && used < room)
        snprintf(out + used, room - used, "; %d more not shown", s->more);
}

int predict_units_draw(struct canvas *c, const struct table *t, int64_t top, struct kvf_diag *d)
{
    static const char *const needs[] = {"layer", "statistic", "effect"};
    for (int i = 0; i < 3; i++)
        if (numeric_column(t, needs[i]) < 0)
            return kvf_fail(d, KVF_E_ARG, "figure predict needs numbers in column %s of table %s",
                            needs[i], table_name(t));
    struct scatter s = scatter_of(t, top);
    char label[96], more[96];
    int nx = columns_of(&s), ny = rows_of(&s);
    double w = (canvas_width(c) - LEFT - BAR - (nx - 1) * GAP_X) / nx;
    double h = (canvas_height(c) - TOP - BOTTOM - (ny - 1) * GAP_Y) / ny;
    int err = canvas_room(c, "predict", LEFT + BAR + (nx - 1) * GAP_X + nx * LEAST,
                          TOP + BOTTOM + (ny - 1) * GAP_Y + ny * LEAST, d);
    if (err)
        return err;
    const char *value = table_meta(t, "value");
    const char *effect = value ? value : "?";
    effect = strcmp(effect, "kl") == 0 ? "KL, nats" : effect;
    effect = strcmp(effect, "dnll") == 0 ? "change of NLL, nats" : effect;
    snprintf(label, sizeof label, "effect (%.40s)", effect);
    for (int k = 0; k < s.n; k++) {
        struct axis_box a = {.x = LEFT + k % COLUMNS * (w + GAP_X),
                             .w = w,
                             .h = h,
                             .y0 = s.y0,
                             .y = TOP + k / COLUMNS * (h + GAP_Y),
                             .y1 = s.y1,
                             .log_y = s.log_y,
                             .ylabel = k % COLUMNS == 0 ? label : NULL};
        panel(c, &s, &s.c[k], &a);
    }
    if (s.layers > 0) /* not the palest colours */
        colour_bar_whole(c, LEFT + nx * w + (nx - 1) * GAP_X + 2.5, TOP, 2.6, h, NULL, 0,
                         s.layers / .92, s.layers, "layer");
    note(&s, more, sizeof more);
    canvas_text(c, LEFT + (nx * (w + GAP_X) - GAP_X) / 2, canvas_height(c) - 2, more, PT_SMALL,
                ALIGN_CENTER, (struct rgb){.35, .35, .35}, 0);
    return KVF_OK;
}
