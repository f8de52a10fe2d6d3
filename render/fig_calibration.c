/* fig_calibration.c - draws the reliability of retention gates over all heads: observed fraction
 * against predicted probability.
 *
 * Calibrated gates are on the diagonal.  There is one panel per event and one colour per horizon.
 * Dots have 95 % intervals, and their size shows the number of entries in the bin.  The scores of
 * each horizon over all entries can be added below.  With several traces there is one colour per
 * trace, at one horizon, or a panel per horizon if there is a single event. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/plot.h"
#include "render/note.h"

enum { MAX_SERIES = 8, MAX_PANELS = 8, USUAL = 16 };
enum { LEFT = 13, TOP = 8, BOTTOM = 10, GAP = 5, KEY = 25, EDGE = 3, NOTE = 640 };
static const double PANEL = 48, DOT_MIN = 0.5, DOT_MAX = 2.2; /* mm */
/* Minimum size of a panel, including its name and axes; line pitch of the key and the gap between
 * its two parts. */
static const double MIN_WIDTH = 22, MIN_HEIGHT = 19, LINE = 3.4, KEY_GAP = 5;
static const double SCORE_LINE = 2.7; /* line pitch of the scores below */
static const double KEY_MAX = 48;

struct calibration_style {
    int64_t horizon; /* 0: all; for several traces, one */
    int scores;      /* 1: scores below the panels */
};

struct layout {
    const struct table *t;
    int head, kind, event, horizon, predicted, observed, low, high, n;
    int trace; /* column; -1: one trace */
    struct {
        const char *event;
        int64_t horizon; /* for several traces */
    } panel[MAX_PANELS];
    int64_t series[MAX_SERIES]; /* one row per series */
    int n_panels, n_series;
    int64_t only;           /* the drawn horizon; -1: all */
    bool more;              /* more series than colours */
    double key;             /* width of the key, mm */
    double most;            /* largest n of a bin */
    int brier, base, auroc; /* columns; -1 if missing */
    double below;           /* height of the scores, mm */
    double note;            /* height of the note, mm */
};

/* Writes the meaning of an event of age n. */
static const char *event_text(const char *event)
{
    static const char *const known[][2] = {{"ever-again", "used at age n or later"},
                                           {"at-age", "used at age n"},
                                           {"no-exit", "used at every age up to n"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(event, known[i][0]) == 0)
            return known[i][1];
    return event;
}

/* Writes the note: when a token is used, what a point is, and the run. */
static void note_of(const struct table *t, char out[NOTE])
{
    const char *criterion = table_meta(t, "criterion"), *group = table_meta(t, "group");
    char plain[PLOT_NAME], set[PLOT_NAME + 16], run[NOTE_RUN];
    int k;
    criterion_name(criterion ? criterion : "?", plain);
    snprintf(set, sizeof set, "selected by %.90s", plain);
    if (criterion && sscanf(criterion, "top%d", &k) == 1)
        snprintf(set, sizeof set, "among the %d largest attention weights", k);
    note_method(t, run);
    snprintf(out, NOTE,
             "used: %s, %.60s; point: entries with similar prediction in all heads, "
             "with 95\xc2\xa0%% CI; dashed: observed = predicted%s%s",
             set, group ? group : "?", *run ? "\n" : "", run);
}

/* Returns true if a row is drawn: it is of the given kind (a bin or a summary) and of all heads. */
static bool is_drawn(const struct layout *l, int64_t r, const char *kind)
{
    return strcmp(table_str(l->t, l->head, r), "all") == 0
           && strcmp(table_str(l->t, l->kind, r), kind) == 0
           && (l->only < 0 || table_int(l->t, l->horizon, r) == l->only);
}

static int panel_of(const struct layout *l, int64_t r)
{
    const char *event = table_str(l->t, l->event, r);
    int64_t n = table_int(l->t, l->horizon, r);
    int k = 0;
    while (
        k < l->n_panels
        && (strcmp(l->panel[k].event, event) != 0 || (l->trace >= 0 && l->panel[k].horizon != n)))
        k++;
    return k;
}

static bool same_series(const struct layout *l, int64_t a, int64_t b)
{
    return l->trace < 0 ? table_int(l->t, l->horizon, a) == table_int(l->t, l->horizon, b)
                        : strcmp(table_str(l->t, l->trace, a), table_str(l->t, l->trace, b)) == 0;
}

static int series_of(const struct layout *l, int64_t r)
{
    int k = 0;
    while (k < l->n_series && !same_series(l, l->series[k], r))
        k++;
    return k;
}

/* Returns the row with the scores of one panel and one series over all tokens, or -1. */
static int64_t summary_of(const struct layout *l, int panel, int series)
{
    for (int64_t r = 0; r < table_rows(l->t); r++)
        if (is_drawn(l, r, "summary") && panel_of(l, r) == panel && series_of(l, r) == series)
            return r;
    return -1;
}

/* Returns the horizon that compares several traces, the nearest to the usual one, or -1 to draw all
 * horizons of a single event. */
static int64_t one_horizon(const struct layout *l)
{
    const char *event = NULL;
    int64_t best = -1;
    bool events = false;
    for (int64_t r = 0; r < table_rows(l->t); r++) {
        if (!is_drawn(l, r, "bin"))
            continue;
        int64_t n = table_int(l->t, l->horizon, r);
        event = event ? event : table_str(l->t, l->event, r);
        events |= strcmp(event, table_str(l->t, l->event, r)) != 0;
        if (n > 0 && (best < 0 || fabs(log((double)n / USUAL)) < fabs(log((double)best / USUAL))))
            best = n;
    }
    return events ? best : -1;
}

/* Returns the name of a series in the key. */
static const char *series_name(const struct layout *l, int k, char out[24])
{
    if (l->trace >= 0)
        return table_str(l->t, l->trace, l->series[k]);
    tick_text((double)table_int(l->t, l->horizon, l->series[k]), out);
    return out;
}

static void collect(struct layout *l)
{
    for (int64_t r = 0; r < table_rows(l->t); r++) {
        if (!is_drawn(l, r, "bin"))
            continue;
        if (panel_of(l, r) == l->n_panels && l->n_panels < MAX_PANELS) {
            l->panel[l->n_panels].event = table_str(l->t, l->event, r);
            l->panel[l->n_panels++].horizon = table_int(l->t, l->horizon, r);
        }
        if (series_of(l, r) == l->n_series) {
            l->more |= l->n_series == MAX_SERIES;
            if (l->n_series < MAX_SERIES)
                l->series[l->n_series++] = r;
        }
        l->most = fmax(l->most, table_real(l->t, l->n, r));
    }
}

static struct layout layout_of(const struct table *t, const struct figure_style *s, int64_t only)
{
    struct layout l = {.t = t,
                       .head = table_find(t, "head"),
                       .kind = table_find(t, "kind"),
                       .event = table_find(t, "event"),
                       .horizon = table_find(t, "horizon"),
                       .predicted = table_find(t, "predicted"),
                       .low = table_find(t, "low"),
                       .observed = table_find(t, "observed"),
                       .high = table_find(t, "high"),
                       .n = table_find(t, "n"),
                       .trace = table_find(t, "trace"),
                       .key = KEY,
                       .only = only};
    char name[24];
    if (l.trace >= 0 && table_col_type(t, l.trace) != TABLE_STR)
        l.trace = -1;
    if (l.trace >= 0 && only < 0)
        l.only = one_horizon(&l);
    collect(&l);
    for (int k = 0; k < l.n_series && l.trace >= 0; k++) /* letters of 1.35 mm */
        l.key = fmax(l.key, fmin(KEY_MAX, 7 + 1.35 * (double)strlen(series_name(&l, k, name))));
    l.brier = numeric_column(t, "brier");
    l.base = numeric_column(t, "brier_base");
    l.auroc = numeric_column(t, "auroc");
    bool asked = ((const struct calibration_style *)s->own)->scores;
    bool scores = asked && l.brier >= 0 && l.auroc >= 0 && l.n_series > 0
                  && summary_of(&l, 0, 0) >= 0;
    l.below = scores ? 1.5 + SCORE_LINE * (l.n_series + 1) : 0;
    return l;
}

/* Sets *ret_only to the horizon of the style, or -1 if the style has none.  Fails if the table
 * lacks that horizon. */
static int read_style(const struct table *t, const struct figure_style *s, int64_t *ret_only,
                      struct kvf_diag *d)
{
    const struct calibration_style *o = s->own;
    int col = table_find(t, "horizon");
    *ret_only = -1;
    for (int64_t r = 0; o->horizon && *ret_only < 0 && r < table_rows(t); r++)
        if (table_int(t, col, r) == o->horizon)
            *ret_only = o->horizon;
    if (o->horizon && *ret_only < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--style: the table has no horizon %lld; --horizon of the "
                        "analysis makes it",
                        (long long)o->horizon);
    return KVF_OK;
}

static struct note place_of(double width)
{
    return (struct note){.left = EDGE, .right = width - EDGE, .pt = PT_TICK};
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    int64_t only = -1;
    struct kvf_diag ignored = {""}; /* `draw` reports the same error */
    read_style(t, s, &only, &ignored);
    struct layout l = layout_of(t, s, only);
    int n = l.n_panels ? l.n_panels : 1;
    char note[NOTE];
    note_of(t, note);
    *w = s->width_mm > 0 ? s->width_mm : LEFT + n * PANEL + (n - 1) * GAP + l.key;
    struct note place = place_of(*w);
    *h = TOP + BOTTOM + l.below + (*w - LEFT - l.key - (n - 1) * GAP) / n
         + note_height(NULL, s, &place, note) + 1;
}

/* Returns the distance in mm from the top of the canvas to the last line of the key. */
static double key_bottom(const struct layout *l)
{
    int lines = l->n_series + l->more + (l->most > 0 ? 2 : 0);
    return TOP + 1.5 + lines * LINE + KEY_GAP + LINE / 2;
}

static int check_room(const struct layout *l, const struct canvas *c, const char *title,
                      struct kvf_diag *d)
{
    int n = l->n_panels ? l->n_panels : 1;
    double w = ceil(LEFT + n * MIN_WIDTH + (n - 1) * GAP + l->key);
    double h = ceil(fmax(TOP + MIN_HEIGHT + BOTTOM, key_bottom(l)) + l->note);
    if (canvas_width(c) >= w && canvas_height(c) >= h)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "--size: %d panel%s and a key of %d %s%s need at least "
                    "%.0f x %.0f mm%s",
                    n, n > 1 ? "s" : "", l->n_series, l->trace < 0 ? "horizon" : "trace",
                    l->n_series != 1 ? "s" : "", w, h, title ? " below the title" : "");
}

static double dot_size(const struct layout *l, double n)
{
    return l->most > 0 ? fmax(DOT_MIN, DOT_MAX * sqrt(n / l->most)) : DOT_MIN;
}

static void square(struct canvas *c, double x, double y, double d, struct rgb colour)
{
    canvas_rect(c, x - d / 2, y - d / 2, d, d, colour);
}

/* Returns the mark of a series, so that series differ in grey too. */
static enum mark mark_of(int k)
{
    static const enum mark m[] = {MARK_SQUARE, MARK_DISC, MARK_TRIANGLE, MARK_DIAMOND, MARK_DOWN};
    return m[k % 5];
}

/* Draws a dot with its interval.  A white rim separates overlapping dots. */
static void point(struct canvas *c, const struct layout *l, const struct axis_box *a, int64_t r,
                  int series)
{
    struct rgb colour = palette_line(series);
    double x = axis_x(a, table_real(l->t, l->predicted, r));
    double y = axis_y(a, table_real(l->t, l->observed, r));
    double bar[] = {x, axis_y(a, table_real(l->t, l->low, r)), x,
                    axis_y(a, table_real(l->t, l->high, r))};
    double d = dot_size(l, table_real(l->t, l->n, r));
    canvas_line(c, bar, 2, 0.25, colour);
    mark_draw(c, mark_of(series), x, y, 1.13 * d + 0.25, (struct rgb){1, 1, 1});
    mark_draw(c, mark_of(series), x, y, 1.13 * d, colour); /* approximately the area of d squared */
}

/* Draws the line between two dots.  Lines of several traces also differ in dashes, because their
 * dots are close. */
static void line(struct canvas *c, const struct layout *l, const double xy[4], int series)
{
    struct chart_look look = plot_look(series);
    if (l->trace >= 0 && look.dash > 0)
        canvas_dash(c, look.dash, look.gap);
    canvas_line(c, xy, 2, 0.25, palette_line(series));
    canvas_dash(c, 0, 0);
}

static void points(struct canvas *c, const struct layout *l, const struct axis_box *a, int panel)
{
    double last[2] = {NAN, NAN};
    int previous = -1;
    for (int pass = 0; pass < 2; pass++) /* draw lines below the dots */
        for (int64_t r = 0; r < table_rows(l->t); r++) {
            int k = is_drawn(l, r, "bin") ? series_of(l, r) : l->n_series;
            if (k == l->n_series || panel_of(l, r) != panel
                || isnan(table_real(l->t, l->observed, r)))
                continue;
            double x = axis_x(a, table_real(l->t, l->predicted, r));
            double y = axis_y(a, table_real(l->t, l->observed, r)), xy[] = {last[0], last[1], x, y};
            if (pass == 1)
                point(c, l, a, r, k);
            else if (k == previous)
                line(c, l, xy, k);
            previous = k;
            last[0] = x;
            last[1] = y;
        }
}

static void panel(struct canvas *c, const struct layout *l, int k, double width, double height)
{
    struct axis_box a = {.x = LEFT + k * (width + GAP),
                         .y = TOP,
                         .w = width,
                         .h = height,
                         .x1 = 1,
                         .y1 = 1,
                         .xlabel = "predicted fraction \xce\xb2\xe2\x81\xbf",
                         .ylabel = k ? NULL : "observed fraction"};
    double diagonal[] = {axis_x(&a, 0), axis_y(&a, 0), axis_x(&a, 1), axis_y(&a, 1)};
    canvas_dash(c, 1, 0.8);
    canvas_line(c, diagonal, 2, 0.2, (struct rgb){0.55, 0.55, 0.55});
    canvas_dash(c, 0, 0);
    axis_ticks_x(c, &a);
    if (k == 0)
        axis_ticks_y(c, &a);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    if (a.ylabel)
        axis_name_y(c, &a);
    char name[96], fit[96];
    snprintf(name, sizeof name, l->trace < 0 ? "%.60s" : "%.60s, n = %lld",
             event_text(l->panel[k].event), (long long)l->panel[k].horizon);
    canvas_text(c, a.x + a.w / 2, a.y - 3,
                text_fit(c, name, PT_LABEL, a.w + GAP - 1, fit, sizeof fit), PT_LABEL, ALIGN_CENTER,
                ink, 0);
    points(c, l, &a, k);
}

/* Draws the key: the colours of horizons or traces, and the dot sizes of two counts. */
static void key(struct canvas *c, const struct layout *l, double x)
{
    char text[48], fit[128];
    double y = TOP + 1.5;
    canvas_text(c, x, y, l->trace < 0 ? "age n (steps)" : "gates of", PT_TICK, ALIGN_LEFT, ink, 0);
    for (int k = 0; k < l->n_series; k++) {
        const char *name = series_name(l, k, text);
        mark_draw(c, mark_of(k), x + 1.2, y += LINE, 1.8, palette_line(k));
        canvas_text(c, x + 3.4, y, text_fit(c, name, PT_TICK, l->key - 7, fit, sizeof fit), PT_TICK,
                    ALIGN_LEFT, ink, 0);
    }
    if (l->more)
        canvas_text(c, x, y += LINE, "more not shown", PT_SMALL, ALIGN_LEFT, ink, 0);
    canvas_text(c, x, y += KEY_GAP, "entries in the bin", PT_TICK, ALIGN_LEFT, ink, 0);
    for (int k = 0; k < 2 && l->most > 0; k++) {
        double n = k ? l->most / 10 : l->most, d = dot_size(l, n);
        tick_text(floor(n), text);
        square(c, x + 1.2, y += LINE, d, (struct rgb){0.4, 0.4, 0.4});
        canvas_text(c, x + 3.4, y, text, PT_TICK, ALIGN_LEFT, ink, 0);
    }
}

static void score(struct canvas *c, const struct layout *l, int64_t r, int col, double x, double y)
{
    char text[16] = "\xe2\x80\x93"; /* undefined */
    if (r >= 0 && col >= 0 && isfinite(table_real(l->t, col, r)))
        snprintf(text, sizeof text, fabs(table_real(l->t, col, r)) < 100 ? "%.3f" : "%.1e",
                 table_real(l->t, col, r));
    canvas_text(c, x, y, text, PT_SMALL, ALIGN_RIGHT, ink, 0);
}

/* Writes one line of scores per series below panel k: the Brier score, the Brier score of a
 * constant prediction at the observed fraction, and the area under the ROC curve. */
static void scores(struct canvas *c, const struct layout *l, int k, double x, double width,
                   double y)
{
    static const char *const names[] = {"Brier", "if constant", "AUROC"};
    const int col[] = {l->brier, l->base, l->auroc};
    double step = (width - 6) / 3;
    for (int i = 0; i < 3; i++)
        canvas_text(c, x + 6 + (i + 1) * step, y, names[i], PT_SMALL, ALIGN_RIGHT,
                    (struct rgb){0.35, 0.35, 0.35}, 0);
    for (int s = 0; s < l->n_series; s++) {
        int64_t r = summary_of(l, k, s);
        char text[24];
        y += SCORE_LINE;
        mark_draw(c, mark_of(s), x + .8, y, 1.3, palette_line(s));
        if (l->trace < 0)
            canvas_text(c, x + 2.2, y, series_name(l, s, text), PT_SMALL, ALIGN_LEFT, ink, 0);
        for (int i = 0; i < 3; i++)
            score(c, l, r, col[i], x + 6 + (i + 1) * step, y);
    }
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    int64_t only;
    int err = read_style(t, s, &only, d);
    if (err)
        return err;
    struct layout l = layout_of(t, s, only);
    int n = l.n_panels ? l.n_panels : 1;
    char note[NOTE];
    note_of(t, note);
    struct note place = place_of(canvas_width(c));
    l.note = note_height(c, s, &place, note) + 1;
    double width = (canvas_width(c) - LEFT - l.key - (n - 1) * GAP) / n;
    double least = fmax(MIN_HEIGHT, key_bottom(&l) - TOP - BOTTOM);
    if (canvas_height(c) < TOP + least + BOTTOM + l.below + l.note || width < 26)
        l.below = 0; /* no space for the scores */
    double height = canvas_height(c) - TOP - BOTTOM - l.below - l.note;
    err = check_room(&l, c, s->title, d);
    if (err)
        return err;
    for (int k = 0; k < l.n_panels; k++)
        panel(c, &l, k, width, height);
    for (int k = 0; k < l.n_panels && l.below > 0; k++)
        scores(c, &l, k, LEFT + k * (width + GAP), width, TOP + height + 10);
    if (l.most == 0)
        canvas_text(c, canvas_width(c) / 2, TOP + height / 2, "no token at risk", PT_LABEL,
                    ALIGN_CENTER, quiet, 0);
    if (l.n_panels)
        key(c, &l, LEFT + n * width + (n - 1) * GAP + 3);
    note_draw(c, &place, canvas_height(c) - l.note + 1.5, note);
    return KVF_OK;
}

const struct figure fig_calibration = {
    .name = "calibration",
    .table = "calibration",
    .summary = "predicted against observed retention, pooled over heads, a panel per event",
    .needs = "head:text kind:text event:text horizon n predicted observed low high",
    STYLE(struct calibration_style,
          COUNT_KEY(struct calibration_style, horizon, 1, 1e12, "the only horizon of the curves",
                    .absent = "all"),
          WORD_KEY(struct calibration_style, scores, "no",
                   "write the Brier score, that of a constant, and the AUROC below the panels",
                   "no", "yes")),
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
