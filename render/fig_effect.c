/* fig_effect.c - draws how much predictions degrade without a head's KV cache: a layer x head map,
 * or the heads with the largest effects and their intervals.
 *
 * KL spans orders of magnitude and is drawn on a logarithmic scale; --style scale=linear draws it
 * on a linear one. In the mirror experiment all heads except one are ablated.  The effect of a head
 * is then the KL of all heads minus the KL of that row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/forest.h"
#include "render/cells.h"
#include "render/note.h"

enum { TOP = 3, BOTTOM = 13, ALL = -1, MAX_DECIMALS = 5 };
static const double ROW = 3.4, MIN_ROW = 2.5;

struct effect_style {
    int scale; /* 0: log, 1: linear */
    int form;  /* 0: map, 1: bars */
    int64_t top;
    int marks; /* 0: yes, 1: no */
};

struct effect_view {
    const struct table *t;
    int layer, kl, low, high, dnll_low, dnll_high;
    int64_t all; /* row of all heads, or ALL */
    bool mirror, linear, marks;
    int form; /* 0 map, 1 bars */
    int top;
};

/* Returns true if the row is of one head, not of all heads. */
static int one_head(const struct table *t, int64_t row, const void *ctx)
{
    const struct effect_view *v = ctx;
    return table_int(t, v->layer, row) >= 0;
}

static double restored(const struct table *t, int64_t row, const void *ctx)
{
    const struct effect_view *v = ctx;
    return table_real(t, v->kl, v->all) - table_real(t, v->kl, row);
}

/* Returns true if the effect of a head is significant.  For one head the interval of the
 * log-likelihood loss must exclude 0. In the mirror experiment the intervals of the head and of all
 * heads must not overlap. */
static int is_significant(const struct table *t, int64_t row, const void *ctx)
{
    const struct effect_view *v = ctx;
    if (v->mirror)
        return table_real(t, v->high, row) < table_real(t, v->low, v->all)
               || table_real(t, v->low, row) > table_real(t, v->high, v->all);
    return table_real(t, v->dnll_low, row) > 0 || table_real(t, v->dnll_high, row) < 0;
}

static int read_view(const struct table *t, const struct figure_style *s, struct effect_view *v,
                     struct kvf_diag *d)
{
    const struct effect_style *o = s->own;
    const char *held = table_meta(t, "held");
    *v = (struct effect_view){.t = t,
                              .layer = table_find(t, "layer"),
                              .all = ALL,
                              .kl = table_find(t, "kl"),
                              .low = numeric_column(t, "kl_low"),
                              .high = numeric_column(t, "kl_high"),
                              .dnll_low = numeric_column(t, "dnll_low"),
                              .dnll_high = numeric_column(t, "dnll_high")};
    for (int64_t r = table_rows(t) - 1; r >= 0 && v->all == ALL; r--)
        v->all = table_int(t, v->layer, r) < 0 ? r : ALL;
    v->mirror = held && strncmp(held, "all heads but", 13) == 0 && v->all != ALL;
    v->linear = o->scale == 1 || v->mirror;
    v->form = o->form;
    v->top = (int)o->top;
    v->marks = o->marks == 0
               && (v->mirror ? v->low >= 0 && v->high >= 0 : v->dnll_low >= 0 && v->dnll_high >= 0);
    if (v->form == 1 && (v->low < 0 || v->high < 0))
        return kvf_fail(d, KVF_E_ARG, "--style: form=bars needs kl_low and kl_high");
    return KVF_OK;
}

static int64_t heads_of(const struct effect_view *v)
{
    int64_t n = 0;
    for (int64_t r = 0; r < table_rows(v->t); r++)
        n += table_int(v->t, v->layer, r) >= 0;
    return n;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct effect_view v;
    struct kvf_diag unused;
    layermap_size(t, w, h);
    if (read_view(t, s, &v, &unused) != KVF_OK)
        return;
    *h += LAYERMAP_NOTE * ((v.marks ? 1 : 0) + (table_meta(t, "recent") ? 1 : 0));
    if (v.form == 1) {
        *w = 88;
        *h = TOP + BOTTOM + ROW * fmax(3, fmin(v.top, (double)heads_of(&v)) + (v.all != ALL));
    }
}

/* Writes what is done to a head, and what the dots are. */
static void write_note(const struct effect_view *v, char *out, size_t cap)
{
    const char *sinks = table_meta(v->t, "sinks"), *recent = table_meta(v->t, "recent");
    const char *steps = table_meta(v->t, "score_tokens");
    int n = 0;
    out[0] = 0;
    if (recent)
        n = snprintf(out, cap, "%s %.10s sinks, %.10s recent entries; %.10s scored steps%s",
                     v->mirror ? "all heads but one keep" : "one head at a time keeps",
                     sinks ? sinks : "0", recent, steps ? steps : "?", v->marks ? "\n" : "");
    if (v->marks)
        snprintf(out + n, cap - (size_t)n, "%s",
                 v->mirror ? "dots: intervals of the head and of all heads do not meet"
                           : "dots: the 95 % CI of \xce\x94NLL excludes 0");
}

static int draw_map(struct canvas *c, const struct effect_view *v, const struct figure_style *s)
{
    struct layermap m = {.t = v->t,
                         .value = "kl",
                         .chosen = one_head,
                         .ctx = v,
                         .logs = !v->linear,
                         .number = v->mirror ? restored : NULL,
                         .label = v->linear ? "KL (nats per step)" : "KL (nats per step, log)"};
    if (v->mirror)
        m.label = "KL restored (nats per step)";
    struct figure_style own = *s;
    char note[2 * NOTE_RUN];
    m.note = note;
    write_note(v, note, sizeof note);
    if (v->marks)
        m.marked = is_significant;
    if (v->mirror && s->usual_cmap)
        own.cmap = "redblue";
    return layermap_draw(c, &m, &own);
}

/* ---- the heads with the largest effects */

struct head {
    double size;
    int64_t row;
};

static int by_size(const void *a, const void *b)
{
    const struct head *p = a, *q = b;
    return p->size != q->size ? (p->size < q->size) - (p->size > q->size)
                              : (p->row > q->row) - (p->row < q->row);
}

static struct forest_row bar_of(const struct effect_view *v, int64_t r, bool all)
{
    char cell[24];
    struct forest_row x = {.value = table_real(v->t, v->kl, r),
                           .low = table_real(v->t, v->low, r),
                           .high = table_real(v->t, v->high, r),
                           .mark = MARK_DISC};
    bool out = !all && v->marks && is_significant(v->t, r, v);
    snprintf(x.name, sizeof x.name, "%.60s",
             all ? "all heads" : cell_text(v->t, table_find(v->t, "head"), r, cell));
    x.mark = out || !v->marks ? MARK_DISC : MARK_RING;
    x.mark = all ? MARK_DIAMOND : x.mark;
    x.colour = all ? (struct rgb){.3, .3, .3} : palette_line(0);
    return x;
}

static int read_bars(const struct effect_view *v, struct forest_row **ret, int *ret_n)
{
    size_t n = 0;
    struct head *h = MEM_NEW(struct head, (size_t)table_rows(v->t));
    *ret = mem_alloc((size_t)v->top + 1, sizeof **ret);
    *ret_n = 0;
    for (int64_t r = 0; h && *ret && r < table_rows(v->t); r++) {
        double kl = table_real(v->t, v->kl, r);
        if (table_int(v->t, v->layer, r) >= 0 && isfinite(kl))
            h[n++] = (struct head){v->mirror ? -kl : kl, r};
    }
    int err = h && *ret ? KVF_OK : KVF_E_NOMEM;
    if (!err)
        qsort(h, n, sizeof *h, by_size);
    for (size_t k = 0; !err && k < n && k < (size_t)v->top; k++)
        (*ret)[(*ret_n)++] = bar_of(v, h[k].row, false);
    if (!err && v->all != ALL)
        (*ret)[(*ret_n)++] = bar_of(v, v->all, true);
    mem_free(h);
    return err;
}

/* Writes the numbers next to the bars, all with as many decimals as the smallest needs for two
 * digits. */
static void notes(struct forest_row *row, int n)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(row[i].value) && row[i].value != 0) {
            least = fmin(least, fabs(row[i].value));
            most = fmax(most, fabs(row[i].value));
        }
    int decimals = isinf(least) ? 0 : (int)fmax(0, 1 - floor(log10(least)));
    bool power = decimals > MAX_DECIMALS || most >= 1e6;
    for (int i = 0; i < n; i++) {
        snprintf(row[i].note, sizeof row[i].note, power ? "%.*e" : "%.*f", power ? 1 : decimals,
                 row[i].value);
        minus_signs(row[i].note, sizeof row[i].note);
    }
}

/* Computes the range of all values and intervals; for a logarithmic axis only of positive ones. */
static void range(const struct forest_row *row, int n, bool log, double *lo, double *hi)
{
    *lo = *hi = NAN;
    for (int i = 0; i < n; i++) {
        const double v[] = {row[i].value, row[i].low, row[i].high};
        for (int k = 0; k < 3; k++)
            if (isfinite(v[k]) && (!log || v[k] > 0)) {
                *lo = fmin(*lo, v[k]);
                *hi = fmax(*hi, v[k]);
            }
    }
    double grow = log ? pow(*hi / *lo, .04) : .04 * (*hi - *lo);
    if (isnan(*lo) || !(*hi > *lo))
        grow = log ? 2 : 1;
    double below = log ? *lo / grow : *lo - grow, above = log ? *hi * grow : *hi + grow;
    double none = log ? .1 : 0;
    *lo = isnan(*lo) ? none : below;
    *hi = isnan(*hi) ? 1 : above;
}

static int draw_bars(struct canvas *c, const struct effect_view *v)
{
    struct forest f = {.null_low = NAN, .null_high = NAN};
    struct forest_row *row = NULL;
    int n, err = read_bars(v, &row, &n), fit = (int)((canvas_height(c) - TOP - BOTTOM) / MIN_ROW);
    if (!err) {
        f.row = row;
        f.n = n < fit ? n : (int)fmax(fit, 1);
        notes(row, f.n);
        forest_measure(c, &f, .35 * canvas_width(c));
        struct axis_box a = {.x = f.names + 4,
                             .y = TOP,
                             .h = canvas_height(c) - TOP - BOTTOM,
                             .w = canvas_width(c) - f.names - f.notes - 9,
                             .log_x = !v->linear,
                             .xlabel = "KL to the full cache (nats per step)"};
        range(row, f.n, !v->linear, &a.x0, &a.x1);
        forest_draw(c, &a, &f);
        axis_ticks_x(c, &a);
        canvas_frame(c, a.x, a.y, a.w, a.h, .18, ink);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
        canvas_text(c, a.x + a.w / 2, a.y + a.h + 9.8,
                    v->mirror
                        ? "all other heads limited; bars: 95 % CI; filled: differs from all heads"
                        : "bars: 95 % CI; filled: the CI of \xce\x94NLL excludes 0",
                    PT_SMALL, ALIGN_CENTER, (struct rgb){.35, .35, .35}, 0);
    }
    mem_free(row);
    return err;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct effect_view v;
    int err = read_view(t, s, &v, d);
    if (!err && v.form)
        err = canvas_room(c, "effect", 70, TOP + BOTTOM + 3 * MIN_ROW, d);
    if (err)
        return err;
    return v.form ? draw_bars(c, &v) : draw_map(c, &v, s);
}

const struct figure fig_effect = {
    .name = "effect",
    .table = "effect",
    .summary = "layer x head map of the KL to the full cache, or the heads that matter most",
    .needs = "head:text layer index kl",
    .cmap = "viridis",
    STYLE(struct effect_style,
          WORD_KEY(struct effect_style, scale, "log", "colours of the map", "log", "linear"),
          WORD_KEY(struct effect_style, form, "map", "all heads, or the largest with intervals",
                   "map", "bars"),
          COUNT_KEY(struct effect_style, top, 1, 1000, "most bars", .standard = "20"),
          WORD_KEY(struct effect_style, marks, "yes", "dots on heads with a significant effect",
                   "yes", "no")),
    .size = size,
    .draw = draw,
};
