/* predict_units.c - draws a statistic against an effect: a panel per candidate, and a point per
 * head (coloured by layer) or entry.  The candidates with the largest rank correlation of their
 * statistic come first, then the others. */
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
#include "render/note.h"

enum {
    MOST = 12,
    USUAL = 6,
    LEFT = 15,
    TOP = 6,
    BOTTOM = 10,
    GAP_X = 12,
    GAP_Y = 14,
    BAR = 19,
    RIGHT = 3,
    NOTES = 3,
    COLUMNS = 3,
    DECADES = 10 /* largest / smallest statistic from which the axis is logarithmic */
};
static const double PANEL_W = 36, PANEL_H = 30, LEAST = 16, NOTE = 2.7; /* mm */

struct candidate {
    int64_t from, to; /* rows */
    double size;      /* |rho|, plus 1 for the first of a statistic; -1: undefined */
};

struct scatter {
    const struct table *t;
    int statistic, effect, layer, rho, low, high, q;
    struct candidate c[MOST];
    int n, more;
    bool log_y;
    double y0, y1;
    double layers; /* last layer; -1: entries */
};

const char *predict_effect(const struct table *t)
{
    const char *value = table_meta(t, "value");
    if (value && strcmp(value, "kl") == 0)
        return "KL, nats";
    if (value && strcmp(value, "dnll") == 0)
        return "change of NLL, nats";
    return value ? value : "?";
}

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
                  {"mass.sum", "total attention received"},
                  {"mass.max", "largest attention received"},
                  {"contrib.sum", "total contribution"},
                  {"contrib.max", "largest contribution"},
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

/* Returns the index of a candidate's statistic, or -1. */
static int statistic_of(const char *raw)
{
    for (int k = 0; k < (int)(sizeof statistics / sizeof *statistics); k++) {
        size_t start = strlen(statistics[k].raw);
        bool criterion = statistics[k].raw[start - 1] == '.';
        if (strncmp(raw, statistics[k].raw, start) == 0 && (criterion || !raw[start]))
            return k;
    }
    return -1;
}

void predict_name(const char *raw, const char *reduce, char out[PLOT_NAME])
{
    char set[PLOT_NAME];
    const char *of = strcmp(reduce, "max") == 0 ? "maximum" : reduce;
    size_t n = 0;
    int k = statistic_of(raw);
    if (k >= 0) {
        criterion_name(raw + strlen(statistics[k].raw), set);
        n = (size_t)snprintf(out, PLOT_NAME, *set ? "%s, %.30s" : "%s", statistics[k].plain, set);
    } else
        n = (size_t)snprintf(out, PLOT_NAME, "%.60s", raw);
    if (strcmp(reduce, "none") != 0)
        snprintf(out + n, PLOT_NAME - n, ", %.16s", of);
}

/* Inserts a candidate if it is one of the `top` first so far.  The order of equal ones is kept. */
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

static struct scatter scatter_of(const struct table *t, int64_t top)
{
    enum { STATISTICS = sizeof statistics / sizeof *statistics };
    int most = (int)clamp_whole(top ? top : USUAL, 1, MOST), name = table_find(t, "candidate");
    struct scatter s = {.t = t,
                        .statistic = table_find(t, "statistic"),
                        .effect = table_find(t, "effect"),
                        .layer = table_find(t, "layer"),
                        .rho = table_find(t, "partial"),
                        .low = table_find(t, "low"),
                        .high = table_find(t, "high"),
                        .q = numeric_column(t, "q")};
    double best[STATISTICS] = {0}; /* largest |rho| of each statistic */
    char cell[24];
    for (int64_t r = 0; r < table_rows(t); r++) {
        int k = statistic_of(cell_text(t, name, r, cell));
        if (k >= 0)
            best[k] = fmax(best[k], fabs(table_real(t, s.rho, r))); /* ignores NaN */
    }
    bool drawn[STATISTICS] = {false};
    for (int64_t r = 0, to; r < table_rows(t); r = to) {
        double size = fabs(table_real(t, s.rho, r));
        int k = statistic_of(cell_text(t, name, r, cell));
        for (to = r + 1; to < table_rows(t) && same(t, r, to);)
            to++;
        if (isnan(size))
            size = -1;
        else if (k < 0 || (size >= best[k] && !drawn[k]))
            size += 1; /* |rho| is at most 1: before the second candidates of all statistics */
        if (k >= 0 && size >= 1)
            drawn[k] = true;
        insert_candidate(&s, (struct candidate){r, to, size}, most);
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

/* Returns the width of the colour bar for layers, which entries do not have. */
static double bar_width(const struct scatter *s)
{
    return s->layers > 0 ? BAR : RIGHT;
}

void predict_units_size(const struct table *t, int64_t top, double *w, double *h)
{
    struct scatter s = scatter_of(t, top);
    int nx = columns_of(&s), ny = rows_of(&s);
    *w = fmax(88, LEFT + nx * PANEL_W + (nx - 1) * GAP_X + bar_width(&s));
    *h = TOP + ny * PANEL_H + (ny - 1) * GAP_Y + BOTTOM + NOTE * (*w < 120 ? 3 : 2);
}

/* Writes the correlation above a panel and the name of the statistic below its axis. */
static void title(struct canvas *c, const struct scatter *s, const struct candidate *k,
                  const struct axis_box *a)
{
    const struct table *t = s->t;
    char one[24], two[24], text[PLOT_NAME], fit[128];
    double q = s->q < 0 ? NAN : table_real(t, s->q, k->from), room = a->w + GAP_X - 2;
    const char *reduce = cell_text(t, table_find(t, "reduce"), k->from, two);
    predict_name(cell_text(t, table_find(t, "candidate"), k->from, one), reduce, text);
    canvas_text(c, a->x + a->w / 2, a->y + a->h + 6.2,
                text_fit(c, text, PT_TICK, room, fit, sizeof fit), PT_TICK, ALIGN_CENTER, ink, 0);
    int n = snprintf(text, sizeof text, "\xcf\x81 = %.2f (%.2f to %.2f)",
                     table_real(t, s->rho, k->from), table_real(t, s->low, k->from),
                     table_real(t, s->high, k->from));
    if (q >= 0)
        snprintf(text + n, sizeof text - (size_t)n, q < .001 ? ", q < 0.001" : ", q = %.3f", q);
    if (k->size < 0)
        snprintf(text, sizeof text, "\xcf\x81 not defined");
    minus_signs(text, sizeof text);
    canvas_text(c, a->x + a->w / 2, a->y - 2.3,
                text_fit_own(c, text, PT_SMALL, room, fit, sizeof fit), PT_SMALL, ALIGN_CENTER, ink,
                0);
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

/* Writes the model, the number of points, the correlation, and the candidates without a panel. */
static void note(const struct scatter *s, char out[NOTE_TEXT])
{
    const char *model = table_meta(s->t, "model"), *given = table_meta(s->t, "partial");
    int64_t n = s->n ? s->c[0].to - s->c[0].from : 0;
    int used = snprintf(out, NOTE_TEXT, "%.60s%sn = %lld %s; \xcf\x81: partial rank correlation",
                        model ? model : "", model ? "; " : "", (long long)n,
                        s->layers < 0 ? "entries" : "heads");
    if (given)
        used += snprintf(out + used, NOTE_TEXT - (size_t)used, " %.60s", given);
    used += snprintf(out + used, NOTE_TEXT - (size_t)used,
                     " (95 %% CI), q: false discovery rate; mean, maximum: over %s",
                     s->layers < 0 ? "heads" : "the query heads of a KV head");
    if (s->more)
        snprintf(out + used, NOTE_TEXT - (size_t)used, "; %d more not shown", s->more);
}

int predict_units_draw(struct canvas *c, const struct table *t, int64_t top, struct kvf_diag *d)
{
    static const char *const needs[] = {"layer", "statistic", "effect"};
    for (int i = 0; i < 3; i++)
        if (numeric_column(t, needs[i]) < 0)
            return kvf_fail(d, KVF_E_ARG, "figure predict needs numbers in column %s of table %s",
                            needs[i], table_name(t));
    struct scatter s = scatter_of(t, top);
    char label[96], more[NOTE_TEXT];
    note(&s, more);
    struct note at = {2, canvas_width(c) - 2, canvas_width(c) / 2, .pitch = NOTE, .most = NOTES};
    int nx = columns_of(&s), ny = rows_of(&s);
    double w = (canvas_width(c) - LEFT - bar_width(&s) - (nx - 1) * GAP_X) / nx;
    double rest = TOP + BOTTOM + note_height(c, NULL, &at, more) + (ny - 1) * GAP_Y,
           h = (canvas_height(c) - rest) / ny;
    int err = canvas_room(c, "predict", LEFT + bar_width(&s) + (nx - 1) * GAP_X + nx * LEAST,
                          rest + ny * LEAST, d);
    if (err)
        return err;
    snprintf(label, sizeof label, "effect of ablation (%.40s)", predict_effect(t));
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
    note_draw_up(c, &at, canvas_height(c) - 2, more);
    return KVF_OK;
}
