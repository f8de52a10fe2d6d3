/* plot_draw.c - arranges the panels, axes and key of a plot, and draws them. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/clamp.h"
#include "render/marks.h"
#include "render/palette.h"
#include "render/plot.h"
#include "render/note.h"

static const double EDGE = 2, HEAD = 3.6, GAP_X = 5.5, GAP_Y = 2, TICKS = 4.4, LABEL = 4, NOTE = 3,
                    KEY_LINE = 3.5, KEY_SAMPLE = 6, KEY_GAP = 3, KEY_MAX = 62, RAMP = 15,
                    MIN_W = 10, MIN_H = 8;
/* mm that the name of a panel may extend beyond its frame: less than to the numbers of the y axis
 */
static const double OVERHANG = 1.5; /* mm */
static const struct rgb pale = {0.55, 0.55, 0.55}, white = {1, 1, 1}, note_ink = {0.35, 0.35, 0.35};

struct layout {
    int cols, rows;
    double x, y, w, h;     /* of the first panel */
    double step_x, step_y; /* from panel to panel */
    int n_keys, key_cols, key_rows;
    double key_x, key_y, key_w;
    bool beside, ramp;
    int notes;   /* lines of the note */
    double foot; /* y of the text below the ticks */
};

static int columns_of(int n)
{
    static const int few[] = {1, 1, 2, 3, 2, 3, 3, 4, 4, 3, 5};
    return n <= 10 ? few[n] : (int)ceil(sqrt(1.4 * n) - 1e-9);
}

static bool headed(const struct plot *p)
{
    for (int i = 0; i < p->n_panels; i++)
        if (p->panel[i][0])
            return true;
    return false;
}

static int keys_of(const struct plot *p)
{
    int n = 0;
    for (int i = 0; i < p->n_lines; i++)
        n += !p->line[i].hidden && p->line[i].name[0];
    return n;
}

enum { NOTES = 5, MAX_BESIDE = 64 }; /* maximum lines of a note, and of a key next to the panel */

/* Returns the number of lines of a note w mm wide, assuming letters of 1.1 mm, a little more than
 * their mean. */
static int lines_of_note(const char *note, double w)
{
    return (int)clamp(ceil(1.1 * (double)strlen(note) / w), 0, NOTES);
}

/* Computes the size of a plot without a canvas, assuming letters 1.4 mm wide. */
void plot_size(const struct plot *p, double *ret_w, double *ret_h)
{
    static const double width[] = {88, 130, 180}, height[] = {46, 38, 34, 27, 24, 20, 20, 17};
    int panels = p->n_panels ? p->n_panels : 1;
    int cols = columns_of(p->n_panels), rows = (panels + cols - 1) / cols;
    int n = keys_of(p);
    double longest = 0, each = height[(int)fmin(cols, 8) - 1];
    each = p->panel_h > 0 ? p->panel_h : each;
    for (int i = 0; i < p->n_lines; i++)
        if (!p->line[i].hidden)
            longest = fmax(longest, (double)strlen(p->line[i].name));
    *ret_w = width[cols < 3 ? cols - 1 : 2];
    double wide = fmin(KEY_SAMPLE + 1.4 * longest, KEY_MAX);
    double fit = fmax(1, floor((*ret_w - 2 * EDGE + KEY_GAP) / (wide + KEY_GAP)));
    bool beside = p->n_panels <= 1 && wide < .33 * *ret_w && n * KEY_LINE < each;
    *ret_h = EDGE + rows * each + (rows - 1) * GAP_Y + (headed(p) ? rows * HEAD : 1.5) + TICKS
             + LABEL + NOTE * fmax(1, lines_of_note(p->note, *ret_w - 2 * EDGE) - 1) + EDGE
             + (beside ? 0 : ceil(n / fit) * KEY_LINE + 1);
}

static struct note note_of(struct canvas *c, double middle, int most)
{
    return (struct note){EDGE, canvas_width(c) - EDGE, middle, .pitch = NOTE, .most = most};
}

static void draw_note(struct canvas *c, const struct plot *p, const struct layout *l, double middle)
{
    struct note n = note_of(c, middle, l->notes);
    if (l->notes)
        note_draw(c, &n, l->foot + (p->xlabel ? LABEL : 0) + 1.2, p->note);
}

/* Draws a text around a position, within 0 to end.  A text that does not fit is drawn smaller, and
 * then cut. */
static void label(struct canvas *c, double x, double y, const char *s, double end, int turn)
{
    char text[256];
    double pt = PT_LABEL, wide = canvas_text_width(c, s, PT_LABEL, 0), room = end - 2;
    if (wide > room)
        pt = fmax(PT_SMALL, PT_LABEL * room / wide);
    s = text_fit_own(c, s, pt, room, text, sizeof text);
    double half = canvas_text_width(c, s, pt, 0) / 2, *at = turn ? &y : &x;
    *at = fmax(1 + half, fmin(*at, end - 1 - half));
    canvas_text(c, x, y, s, pt, ALIGN_CENTER, ink, turn);
}

static void widen(double *lo, double *hi, double v, bool logarithmic)
{
    if (!isfinite(v) || (logarithmic && v <= 0))
        return;
    *lo = isnan(*lo) || v < *lo ? v : *lo;
    *hi = isnan(*hi) || v > *hi ? v : *hi;
}

/* Extends a range to a positive length around the data.  Ends that the figure set stay. */
static void settle(double *lo, double *hi, double d0, double d1, bool logarithmic, double pad)
{
    if (isnan(d0))
        d0 = d1 = logarithmic ? 1 : 0;
    double a = axis_end(isnan(*lo) ? d0 : *lo), b = axis_end(isnan(*hi) ? d1 : *hi);
    if (logarithmic) {
        double f = b > a * (1 + 1e-9) ? exp(pad * (log(b) - log(a))) : 2;
        a = fmax(isnan(*lo) ? a / f : a, DBL_MIN);
        b = isnan(*hi) ? b * f : b;
        *lo = a;
        *hi = b > a ? b : 2 * a;
        return;
    }
    double size = fmax(fabs(a), fabs(b));
    double more = size > 0 ? .5 * size : .5;
    more = b - a > 1e-9 * size ? pad * (b - a) : more;
    *lo = axis_end(isnan(*lo) ? a - more : a);
    *hi = axis_end(isnan(*hi) ? b + more : b);
    if (!(*hi > *lo))
        *hi = *lo + (size > 0 ? size : 1);
}

int plot_ranges(struct plot *p, const struct figure_style *s, struct kvf_diag *d)
{
    double x0 = NAN, x1 = NAN, y0 = NAN, y1 = NAN;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; k < l->n; k++) {
            if (isfinite(l->y[k]) || l->low)
                widen(&x0, &x1, l->x[k], p->log_x);
            widen(&y0, &y1, l->y[k], p->log_y);
            if (l->low) {
                widen(&y0, &y1, l->low[k], p->log_y);
                widen(&y0, &y1, l->high[k], p->log_y);
            }
        }
    }
    widen(&y0, &y1, p->level, p->log_y);
    widen(&x0, &x1, p->upright, p->log_x);
    p->y0 = isnan(s->vmin) ? p->y0 : s->vmin;
    p->y1 = isnan(s->vmax) ? p->y1 : s->vmax;
    if (p->log_y && (p->y0 <= 0 || p->y1 <= 0))
        return kvf_fail(d, KVF_E_ARG, "--vmin, --vmax: a logarithmic axis begins above 0");
    settle(&p->x0, &p->x1, x0, x1, p->log_x, 0);
    settle(&p->y0, &p->y1, y0, y1, p->log_y, 0.04);
    return KVF_OK;
}

static void tell(struct plot *p, long n, long all, const char *what)
{
    size_t at = strlen(p->note);
    if (n)
        snprintf(p->note + at, sizeof p->note - at, "%s%ld of %ld points %s", at ? "; " : "",
                 n / p->copies, all / p->copies, what);
}

/* Writes the number of points outside the axis, of other points with an interval that ends outside,
 * and of points that a logarithmic axis cannot show. */
static void note_clipped(struct plot *p)
{
    double slack = 1e-9 * (p->y1 - p->y0);
    long n = 0, ends = 0, none = 0, all = 0;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; k < l->n; k++) {
            double lo = l->low && isfinite(l->low[k]) ? l->low[k] : l->y[k];
            double hi = l->low && isfinite(l->high[k]) ? l->high[k] : l->y[k];
            all += !isnan(l->y[k]);
            if (p->log_y && l->y[k] <= 0)
                none++;
            else if (l->y[k] < p->y0 - slack || l->y[k] > p->y1 + slack)
                n++;
            else
                ends += !isnan(l->y[k]) && (lo < p->y0 - slack || hi > p->y1 + slack);
        }
    }
    tell(p, n, all, "beyond the axis");
    tell(p, ends, all, "have intervals that end beyond the axis");
    tell(p, none, all, "at or below 0 not shown");
}

static void ring_text(const struct plot_mark *m, char text[24])
{
    bool short_one = m->x < 9.95 && m->x != floor(m->x);
    snprintf(text, 24, short_one ? "%.1f" : "%.0f", m->x);
}

/* Writes the number of a line's ring into text, or "" if it has none.  Returns its width in mm,
 * including the gap before it. */
static double ring_of(struct canvas *c, const struct plot *p, int line, char text[24])
{
    text[0] = 0;
    for (int k = 0; p->ring_values && p->n_panels <= 1 && k < p->n_marks; k++)
        if (p->mark[k].line == line && !p->mark[k].cross)
            ring_text(&p->mark[k], text);
    return *text ? canvas_text_width(c, text, PT_SMALL, 0) + 1.5 : 0;
}

static double key_width(struct canvas *c, const struct plot *p)
{
    double widest = 0;
    char ring[24];
    for (int i = 0; i < p->n_lines; i++)
        if (!p->line[i].hidden)
            widest = fmax(widest, canvas_text_width(c, p->line[i].name, PT_TICK, 0)
                                      + ring_of(c, p, i, ring));
    return KEY_SAMPLE + fmin(widest + .2, fmin(KEY_MAX, canvas_width(c) - 2 * EDGE) - KEY_SAMPLE);
}

static void place_key(struct canvas *c, const struct plot *p, struct layout *l)
{
    double W = canvas_width(c);
    l->n_keys = keys_of(p);
    l->key_w = l->n_keys ? key_width(c, p) : 0;
    l->beside = p->n_panels <= 1 && !l->ramp && l->n_keys && l->n_keys <= MAX_BESIDE
                && l->key_w < .36 * W
                && l->n_keys * KEY_LINE + 2 < canvas_height(c) - 2 * EDGE - TICKS - LABEL;
    l->key_cols = (int)floor((W - 2 * EDGE + KEY_GAP) / (l->key_w + KEY_GAP));
    l->key_cols = (int)clamp_whole(l->key_cols, 1, l->n_keys);
    l->key_rows = !l->n_keys || l->beside ? 0 : (l->n_keys + l->key_cols - 1) / l->key_cols;
}

static struct axis_box axis_of(const struct plot *p, const struct layout *l, int i)
{
    return (struct axis_box){.x = l->x + l->step_x * (i % l->cols),
                             .y = l->y + l->step_y * (i / l->cols),
                             .w = l->w,
                             .h = l->h,
                             .x0 = p->x0,
                             .x1 = p->x1,
                             .y0 = p->y0,
                             .y1 = p->y1,
                             .log_x = p->log_x,
                             .log_y = p->log_y,
                             .whole_x = p->whole_x,
                             .whole_y = p->whole_y,
                             .at_x = p->tick_x,
                             .n_at_x = p->n_ticks > 0 ? p->n_ticks : 0};
}

static int arrange(struct canvas *c, const struct plot *p, int max_notes, struct layout *l,
                   struct kvf_diag *d)
{
    double W = canvas_width(c), H = canvas_height(c), head = headed(p) ? HEAD : 1.5;
    int n = p->n_panels ? p->n_panels : 1;
    *l = (struct layout){.cols = columns_of(n), .ramp = p->ramp_label != NULL};
    l->rows = (n + l->cols - 1) / l->cols;
    place_key(c, p, l);
    struct note note = note_of(c, 0, max_notes);
    l->notes = (int)round(note_height(c, NULL, &note, p->note) / NOTE);
    double margin = l->ramp ? RAMP : 1.5, right = EDGE + (l->beside ? l->key_w + 2 : margin);
    double below = EDGE + TICKS + (p->xlabel ? LABEL : 0) + l->notes * NOTE
                   + (l->key_rows ? l->key_rows * KEY_LINE + 1 : 0);
    l->y = EDGE + head;
    l->h = (H - EDGE - below - l->rows * head - (l->rows - 1) * GAP_Y) / l->rows;
    struct axis_box a = axis_of(p, l, 0);
    a.h = fmax(l->h, MIN_H); /* a lower panel is an error, which reports the space needed */
    l->x = EDGE + (p->ylabel ? 3.6 : 0) + axis_width_y(c, &a) + 1.6;
    l->w = (W - l->x - right - (l->cols - 1) * GAP_X) / l->cols;
    l->step_x = l->w + GAP_X;
    l->step_y = l->h + head + GAP_Y;
    l->foot = l->y + (l->rows - 1) * l->step_y + l->h + TICKS;
    double keys = l->key_cols * (l->key_w + KEY_GAP) - KEY_GAP, middle = (l->x + W - right) / 2;
    l->key_x = l->beside ? W - right + 2 : fmax(EDGE, fmin(middle - keys / 2, W - EDGE - keys));
    double under = l->foot + (p->xlabel ? LABEL : 0) + l->notes * NOTE + 1 + KEY_LINE / 2;
    l->key_y = l->beside ? l->y + 2 : under;
    if (l->w >= MIN_W && l->h >= MIN_H)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "--size: %d panel%s and a key of %d line%s need at least %.0f x "
                    "%.0f mm",
                    n, n > 1 ? "s" : "", l->n_keys, l->n_keys == 1 ? "" : "s",
                    ceil(W + fmax(0, MIN_W - l->w) * l->cols),
                    ceil(H + fmax(0, MIN_H - l->h) * l->rows));
}

/* Returns true if a ring is inside the axes. */
static bool in_axes(const struct axis_box *a, double x, double y)
{
    return x >= a->x - .1 && x <= a->x + a->w + .1 && y >= a->y - .1 && y <= a->y + a->h + .1;
}

/* Covers the line and signs below the rings of a panel, so that rings do not cover each other. */
static void clear_rings(struct canvas *c, const struct plot *p, const struct axis_box *a, int panel)
{
    for (int k = 0; k < p->n_marks; k++) {
        const struct plot_mark *m = &p->mark[k];
        double x = axis_x(a, m->x), y = axis_y(a, m->y);
        if (m->panel == panel && !m->cross && in_axes(a, x, y))
            canvas_disc(c, x, y, p->line[m->line].look.sign ? 1.1 : 0.75, 0, white);
    }
}

/* Draws a cross or a ring.  Rings with values are around earlier rings at the same place. */
static void draw_mark(struct canvas *c, const struct plot *p, const struct axis_box *a, int k)
{
    const struct plot_mark *m = &p->mark[k];
    struct rgb colour = p->line[m->line].look.colour;
    double x = axis_x(a, m->x), y = axis_y(a, m->y), r = 0.75;
    if (!in_axes(a, x, y))
        return;
    if (m->cross) {
        double one[] = {x - r, y - r, x + r, y + r}, two[] = {x - r, y + r, x + r, y - r};
        canvas_line(c, one, 2, 0.3, colour);
        canvas_line(c, two, 2, 0.3, colour);
        return;
    }
    for (int i = 0; p->ring_values && i < k; i++)
        if (p->mark[i].panel == m->panel && !p->mark[i].cross
            && fabs(axis_x(a, p->mark[i].x) - x) < .2 && fabs(axis_y(a, p->mark[i].y) - y) < .2)
            r += 0.45;
    canvas_disc(c, x, y, r, 0.3, colour);
}

/* Writes the number of a ring, to its lower left or to its upper right.  Near an edge it moves
 * inside the panel. */
static void ring_value(struct canvas *c, const struct axis_box *a, const struct plot_mark *m,
                       bool below)
{
    char text[24];
    ring_text(m, text);
    double wide = canvas_text_width(c, text, PT_SMALL, 0), side = below ? -1.1 : 1.1;
    double x = axis_x(a, m->x) + side, y = axis_y(a, m->y) + (below ? 1.5 : -1.5);
    double left = fmin(below ? x - wide : x, a->x + a->w - .5 - wide);
    left = fmax(left, a->x + .5);
    if (y > a->y + 1.5 && y < a->y + a->h - 1.5)
        canvas_text(c, left, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
}

static void ring_values(struct canvas *c, const struct plot *p, const struct axis_box *a, int panel)
{
    const struct plot_mark *first = NULL, *last = NULL;
    for (int k = 0; k < p->n_marks; k++) {
        const struct plot_mark *m = &p->mark[k];
        if (m->panel != panel || m->cross)
            continue;
        first = !first || m->x < first->x ? m : first;
        last = !last || m->x >= last->x ? m : last;
    }
    if (first && last != first)
        ring_value(c, a, first, true);
    if (last)
        ring_value(c, a, last, false);
}

static void level(struct canvas *c, const struct axis_box *a, double v)
{
    double y = axis_y(a, v), xy[] = {a->x, y, a->x + a->w, y};
    if (!(y >= a->y && y <= a->y + a->h))
        return;
    canvas_dash(c, 0.3, 0.6);
    canvas_line(c, xy, 2, 0.2, pale);
    canvas_dash(c, 0, 0);
}

static void upright(struct canvas *c, const struct axis_box *a, double v)
{
    double x = axis_x(a, v), xy[] = {x, a->y, x, a->y + a->h};
    if (!(x >= a->x && x <= a->x + a->w))
        return;
    canvas_dash(c, 1.2, 0.8);
    canvas_line(c, xy, 2, 0.25, ink);
    canvas_dash(c, 0, 0);
}

static bool any_point(const struct plot *p, int panel)
{
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; p->series[i].panel == panel && k < p->series[i].data.n; k++)
            if (isfinite(p->series[i].data.y[k]))
                return true;
    return false;
}

static void draw_panel(struct canvas *c, const struct plot *p, const struct layout *l, int i)
{
    struct axis_box a = axis_of(p, l, i);
    char text[256];
    level(c, &a, p->level);
    upright(c, &a, p->upright);
    for (int back = 1; back >= 0; back--)
        for (int k = 0; k < p->n_series; k++)
            if (p->series[k].panel == i && p->line[p->series[k].line].back == back)
                chart_draw_line(c, &a, &p->series[k].data, &p->line[p->series[k].line].look);
    clear_rings(c, p, &a, i);
    for (int k = 0; k < p->n_marks; k++)
        if (p->mark[k].panel == i)
            draw_mark(c, p, &a, k);
    if (p->ring_values && !l->beside)
        ring_values(c, p, &a, i);
    if (i + l->cols >= p->n_panels)
        axis_ticks_x(c, &a);
    if (i % l->cols == 0)
        axis_ticks_y(c, &a);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.18, ink);
    if (!any_point(p, i))
        chart_empty(c, &a, "not defined");
    if (p->n_panels && p->panel[i][0]) {
        const char *name = text_fit_own(c, p->panel[i], PT_TICK, a.w + 2 * OVERHANG, text,
                                        sizeof text);
        canvas_text(c, a.x + a.w / 2, a.y - 1.9, name, PT_TICK, ALIGN_CENTER, ink, 0);
    }
}

/* Returns the y of the last point of a line in the single panel, or of the middle of its interval.
 * Lines without a point return the bottom. */
static double end_of_line(const struct plot *p, const struct axis_box *a, int line)
{
    double y = INFINITY;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; p->series[i].line == line && k < l->n; k++) {
            double v = isfinite(l->y[k]) || !l->low ? l->y[k] : (l->low[k] + l->high[k]) / 2;
            double at = axis_y(a, v);
            y = isfinite(at) && isfinite(axis_x(a, l->x[k])) ? at : y;
        }
    }
    return fmax(a->y, fmin(y, a->y + a->h));
}

/* Returns the x of a line's ring whose number the key has, INFINITY for a line without one. */
static double ring_at(const struct plot *p, int line)
{
    double x = INFINITY;
    for (int k = 0; p->ring_values && k < p->n_marks; k++)
        if (p->mark[k].line == line && !p->mark[k].cross)
            x = p->mark[k].x;
    return x;
}

/* Draws the key next to a single panel, at the heights of the ends of lines.  Names are in the
 * order of these ends, or of the numbers that the key has. */
static void draw_names(struct canvas *c, const struct plot *p, const struct layout *l)
{
    struct axis_box a = axis_of(p, l, 0);
    double at[MAX_BESIDE];
    int line[MAX_BESIDE], n = 0;
    char text[256], ring[24];
    for (int k = 0; k < p->n_lines; k++) {
        if (p->line[k].hidden || !p->line[k].name[0])
            continue;
        double y = end_of_line(p, &a, k);
        int i = n++;
        for (; i > 0 && at[i - 1] > y; i--) {
            at[i] = at[i - 1];
            line[i] = line[i - 1];
        }
        at[i] = y;
        line[i] = k;
    }
    for (int i = 1; i < n; i++) /* a stable sort */
        for (int j = i; j > 0 && ring_at(p, line[j]) > ring_at(p, line[j - 1]); j--) {
            int other = line[j];
            line[j] = line[j - 1];
            line[j - 1] = other;
        }
    spread_places(at, n, KEY_LINE, l->y + 2, fmax(l->y + l->h, l->y + 2 + (n - 1) * KEY_LINE));
    for (int i = 0; i < n; i++) {
        double number = ring_of(c, p, line[i], ring);
        double room = l->key_w - KEY_SAMPLE - number + 0.1;
        const char *name = text_fit_own(c, p->line[line[i]].name, PT_TICK, room, text, sizeof text);
        chart_key(c, l->key_x, at[i], name, &p->line[line[i]].look);
        canvas_text(c, l->key_x + l->key_w, at[i], ring, PT_SMALL, ALIGN_RIGHT, note_ink, 0);
    }
}

static void draw_key(struct canvas *c, const struct plot *p, const struct layout *l)
{
    char text[256];
    double each = fmax(l->key_w, 0) + KEY_GAP;
    int n = 0;
    for (int k = 0; k < p->n_lines; k++) {
        const struct plot_line *i = &p->line[p->key_upwards ? p->n_lines - 1 - k : k];
        if (i->hidden || !i->name[0])
            continue;
        double room = l->key_w - KEY_SAMPLE + 0.1;
        const char *name = text_fit_own(c, i->name, PT_TICK, room, text, sizeof text);
        int col = n % l->key_cols, row = n / l->key_cols;
        chart_key(c, l->key_x + col * each, l->key_y + row * KEY_LINE, name, &i->look);
        n++;
    }
}

double plot_key(struct canvas *c, const struct plot *p, double x, double y, double w)
{
    struct layout l = {.n_keys = keys_of(p), .key_x = x, .key_y = y + KEY_LINE / 2};
    double longest = 0;
    if (!l.n_keys)
        return 0;
    for (int i = 0; i < p->n_lines; i++)
        if (!p->line[i].hidden)
            longest = fmax(longest, (double)strlen(p->line[i].name));
    l.key_w = fmin(KEY_SAMPLE + 1.4 * longest, fmin(KEY_MAX, w));
    l.key_cols = (int)clamp_whole((int)floor((w + KEY_GAP) / (l.key_w + KEY_GAP)), 1, l.n_keys);
    l.key_x += fmax(0, (w - l.key_cols * (l.key_w + KEY_GAP) + KEY_GAP) / 2);
    if (c)
        draw_key(c, p, &l);
    return (l.n_keys + l.key_cols - 1) / l.key_cols * KEY_LINE;
}

static void draw_ramp(struct canvas *c, const struct plot *p, const struct layout *l,
                      const struct figure_style *s)
{
    double h = (l->rows - 1) * l->step_y + l->h;
    colour_bar_whole(c, l->x + (l->cols - 1) * l->step_x + l->w + 2.5, l->y, 2.6, fmin(h, 60),
                     s->cmap, p->ramp_lo, p->ramp_hi > p->ramp_lo ? p->ramp_hi : p->ramp_lo + 1,
                     p->ramp_hi, p->ramp_label);
}

int plot_draw(struct canvas *c, struct plot *p, const struct figure_style *s, struct kvf_diag *d)
{
    struct layout l;
    if (p->err == KVF_E_LIMIT)
        return kvf_fail(d, KVF_E_ARG,
                        "more than %d panels or %d lines; choose fewer with --head, "
                        "--style or the options of the analysis",
                        PLOT_PANELS, PLOT_LINES);
    if (p->err)
        return p->err;
    int err = plot_ranges(p, s, d);
    if (err)
        return err;
    note_clipped(p);
    err = arrange(c, p, NOTES, &l, d);
    if (err) /* shorten a long note first */
        err = arrange(c, p, 1, &l, d);
    if (err)
        return err;
    double across = l.w + (l.cols - 1) * l.step_x, down = l.h + (l.rows - 1) * l.step_y;
    for (int i = 0; i < (p->n_panels ? p->n_panels : 1); i++)
        draw_panel(c, p, &l, i);
    if (p->xlabel)
        label(c, l.x + across / 2, l.foot + 1.6, p->xlabel, canvas_width(c), 0);
    if (p->ylabel)
        label(c, EDGE + 1.2, l.y + down / 2, p->ylabel, l.foot + (p->xlabel ? LABEL : 0), 1);
    draw_note(c, p, &l, l.x + across / 2);
    if (l.beside)
        draw_names(c, p, &l);
    else
        draw_key(c, p, &l);
    if (l.ramp)
        draw_ramp(c, p, &l, s);
    return KVF_OK;
}

/* Applies the ranges of the page, and removes the parts that other panels or the page draw. */
static void apply_shared(struct plot *p, const struct plot_shared *s)
{
    p->x0 = isnan(s->x0) ? p->x0 : s->x0;
    p->x1 = isnan(s->x1) ? p->x1 : s->x1;
    p->y0 = isnan(s->y0) ? p->y0 : s->y0;
    p->y1 = isnan(s->y1) ? p->y1 : s->y1;
    for (int i = 0; s->no_key && i < p->n_lines; i++)
        p->line[i].hidden = true;
    if (s->note)
        note_parts(p->note, s->note, false);
    if (s->no_x)
        p->xlabel = NULL;
    if (s->no_y)
        p->ylabel = NULL;
}

void plot_figure_size(const struct table *t, const struct figure_style *s, double *ret_w,
                      double *ret_h)
{
    struct plot p;
    struct kvf_diag ignored = {""};
    plot_init(&p);
    *ret_w = 88;
    *ret_h = 60;
    int err = p.err ? p.err : s->figure->build(t, s, &p, &ignored);
    err = err ? err : p.err;
    if (!err)
        plot_note_documents(&p, t);
    if (!err && s->shared)
        apply_shared(&p, s->shared);
    if (!err) /* otherwise plot_figure_draw fails too, unless memory is free again */
        plot_size(&p, ret_w, ret_h);
    if (err == KVF_E_NOMEM)
        *ret_w = *ret_h = NAN;
    plot_free(&p);
}

int plot_figure_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                     struct kvf_diag *d)
{
    struct plot p;
    plot_init(&p);
    int err = p.err;
    if (!err)
        err = s->figure->build(t, s, &p, d);
    if (!err)
        plot_look_methods(&p);
    if (!err)
        plot_note_documents(&p, t);
    if (!err && s->shared)
        apply_shared(&p, s->shared);
    if (!err)
        err = plot_draw(c, &p, s, d);
    plot_free(&p);
    return err;
}
