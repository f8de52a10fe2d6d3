/* axis.c - computes ticks and draws axes, tick numbers and colour bars. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "render/axis.h"
#include "render/clamp.h"
#include "render/marks.h"
#include "render/palette.h"

const struct rgb ink = {0.12, 0.12, 0.12}, quiet = {0.38, 0.38, 0.38};
static const double WIDTH = 0.18, TICK = 0.9, MIN_LINE = 2.3;

/* Returns true if the digits at p are the zeros of a number that is 0: "0.00" but not "0.001". */
static bool is_zero(const char *p)
{
    size_t n = strspn(p, "0.");
    return *p == '0' && !strchr("123456789eE", p[n] ? p[n] : ' ');
}

void minus_signs(char *s, size_t cap)
{
    size_t n = strlen(s);
    for (char *p = strchr(s, '-'); p && n + 3 <= cap; p = strchr(p, '-'), n = strlen(s)) {
        if (is_zero(p + 1) && (p == s || p[-1] == ' ' || p[-1] == '(')) {
            memmove(p, p + 1, n - (size_t)(p - s));
            continue;
        }
        memmove(p + 3, p + 1, n - (size_t)(p - s));
        memcpy(p, "\xe2\x88\x92", 3);
        p += 3;
    }
}

/* Writes "10^e", or "m * 10^e" if m is not "1", with raised digits. */
static void power_text(int exponent, const char *m, char out[24])
{
    static const char *const digit[] = {
        "\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",     "\xc2\xb3",     "\xe2\x81\xb4",
        "\xe2\x81\xb5", "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8", "\xe2\x81\xb9"};
    int n = exponent < 0 ? -exponent : exponent;
    bool one = strcmp(m, "1") == 0 || strcmp(m, "-1") == 0;
    if (one)
        m = *m == '-' ? "-" : "";
    snprintf(out, 24, "%.10s%s10%s%s%s%s", m, one ? "" : "\xc2\xb7",
             exponent < 0 ? "\xe2\x81\xbb" : "", n >= 100 ? digit[n / 100 % 10] : "",
             n >= 10 ? digit[n / 10 % 10] : "", digit[n % 10]);
}

/* Writes v as a power of ten, with at most `digits` digits before it. */
static void short_power(double v, int digits, char out[24])
{
    char text[24], m[24];
    snprintf(text, sizeof text, "%.*e", digits - 1, v);
    char *e = strchr(text, 'e');
    *e = 0;
    snprintf(m, sizeof m, "%.*g", digits, strtod(text, NULL));
    power_text((int)strtol(e + 1, NULL, 10), m, out);
}

static void number_text(double v, int digits, char out[24])
{
    double size = fabs(v);
    if (size < 1e-12)
        snprintf(out, 24, "0");
    else if (isfinite(v) && (size >= 1e6 || size < 1e-4))
        short_power(v, digits, out);
    else if (v == floor(v) && size >= 1e4 && isfinite(v))
        snprintf(out, 24, "%d,%03d", (int)(v / 1000), (int)fmod(size, 1000));
    else
        snprintf(out, 24, "%.*g", digits, v);
    minus_signs(out, 24);
}

void tick_text(double v, char out[24])
{
    number_text(v, 4, out);
}

/* Returns true if `digits` digits do not distinguish tick i from the tick before it, or move it by
 * a tenth of the step between them. */
static bool digits_short(const double *v, int i, int digits)
{
    double step = fabs(v[i] - v[i - 1]), size = fmax(fabs(v[i]), fabs(v[i - 1]));
    return pow(10, floor(log10(size)) + 1 - digits) / 2 > step / 10;
}

void tick_texts(const double *v, int n, char (*name)[24])
{
    enum { MAX_DIGITS = 9 };
    bool equal = true;
    for (int digits = 4; equal && digits <= MAX_DIGITS; digits++) {
        equal = false;
        for (int i = 0; i < n; i++) {
            number_text(v[i], digits, name[i]);
            equal |= i > 0 && digits_short(v, i, digits);
        }
    }
}

void spread_places(double *at, int n, double pitch, double top, double bottom)
{
    for (int i = 0; i < n; i++)
        at[i] = fmax(at[i], i ? at[i - 1] + pitch : top);
    for (int i = n - 1; i >= 0; i--)
        at[i] = fmin(at[i], i + 1 < n ? at[i + 1] - pitch : bottom);
}

int ticks_linear(double lo, double hi, int want, double *out, int max)
{
    if (!(hi > lo) || !isfinite(hi - lo) || want < 1)
        return 0;
    static const double nice[] = {1, 2, 5};
    double raw = (hi - lo) / want, power = pow(10, floor(log10(raw) + 1e-9)),
           f = raw / power - 1e-9;
    double step = 10 * power;
    for (int i = 2; i >= 0; i--)
        step = f <= nice[i] ? nice[i] * power : step;
    int n = 0;
    for (double k = ceil(lo / step - 1e-9); k * step <= hi + 1e-9 * step && n < max; k++)
        out[n++] = k * step;
    return n;
}

/* Keeps the ticks that are whole numbers, up to rounding.  Returns their number. */
static int keep_whole(double *v, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (fabs(v[i] - round(v[i])) < 1e-6)
            v[m++] = round(v[i]);
    return m;
}

/* Computes at least two ticks, because a single number is no scale.  It retries with smaller steps,
 * as long as the ticks fit. */
static int ticks_two(double lo, double hi, int want, double room, bool whole, double *v, int max)
{
    int n = ticks_linear(lo, hi, want, v, max);
    n = whole ? keep_whole(v, n) : n;
    while (n < 2 && want < 6) {
        double more[16];
        int m = ticks_linear(lo, hi, ++want, more, max < 16 ? max : 16);
        m = whole ? keep_whole(more, m) : m;
        if (m > room)
            break;
        memcpy(v, more, (size_t)m * sizeof *v);
        n = m;
    }
    return n;
}

double round_up(double v)
{
    double power = pow(10, floor(log10(v)));
    static const double nice[] = {1, 2, 3, 5, 10};
    for (int i = 0; i < 5; i++)
        if (nice[i] * power >= v * (1 - 1e-9))
            return nice[i] * power;
    return 10 * power;
}

double axis_end(double v)
{
    return clamp(v, -1e300, 1e300);
}

/* Returns the position of v between a and b on a logarithmic scale, 0 to 1. It subtracts logarithms
 * if the quotients over- or underflow. */
static double along_log(double v, double a, double b)
{
    if (!isnormal(b / a) || !isnormal(v / a))
        return (log(v) - log(a)) / (log(b) - log(a));
    return log(v / a) / log(b / a);
}

double axis_x(const struct axis_box *a, double v)
{
    double f = a->log_x ? along_log(v, a->x0, a->x1) : (v - a->x0) / (a->x1 - a->x0);
    return a->x + f * a->w;
}

double axis_y(const struct axis_box *a, double v)
{
    double f = a->log_y ? along_log(v, a->y0, a->y1) : (v - a->y0) / (a->y1 - a->y0);
    return a->y + a->h - f * a->h;
}

static void mark_x(struct canvas *c, const struct axis_box *a, double v, double length)
{
    double x = axis_x(a, v), xy[] = {x, a->y + a->h, x, a->y + a->h + length};
    canvas_line(c, xy, 2, WIDTH, ink);
}

/* Labels every tick if fewer than two have labels and all labels fit. */
static void name_all(const double *v, char (*name)[24], int n, double room)
{
    int named = 0;
    for (int i = 0; i < n; i++)
        named += name[i][0] != 0;
    if (named < 2 && n <= room)
        tick_texts(v, n, name);
}

/* Computes ticks at round numbers, for a range without any two-digit number times a power of
 * ten. */
static int ticks_between(double lo, double hi, double room, double *v, char (*name)[24], int max)
{
    int n = ticks_two(lo, hi, (int)clamp(room, 1, 6), room, false, v, max);
    tick_texts(v, n, name);
    return n;
}

int ticks_log(double lo, double hi, double room, double *v, char (*name)[24], int max)
{
    if (!(lo > 0 && hi > lo && isfinite(hi)))
        return 0;
    double decades = log10(hi) - log10(lo);
    int first = (int)floor(log10(lo) + 1e-9), last = (int)floor(log10(hi) + 1e-9), n = 0;
    int every = (int)ceil((decades + 1) / fmax(room, 1));
    /* one axis uses a single number format, unless 1 and 10 are close */
    bool powers = first < -4 || last > 6;
    bool few = decades < log10(90) && room >= 3 * decades, fine = every == 1 && decades < 9;
    for (int e = first; e <= last; e++)
        for (int k = 1; k < 10 && n < max; k++) {
            double at = k * pow(10, e);
            if (at < lo * (1 - 1e-9) || at > hi * (1 + 1e-9) || (k > 1 && !fine)
                || (every > 8 && (e - first) % every)) /* more marks than a reader can count */
                continue;
            v[n] = at;
            name[n][0] = 0;
            if (k == 1 ? (e - first) % every == 0 : few && (k == 2 || k == 5)) {
                if (powers && (e < 0 || e > 1))
                    power_text(e, (const char[]){(char)('0' + k), 0}, name[n]);
                else
                    tick_text(at, name[n]);
            }
            n++;
        }
    name_all(v, name, n, room);
    return n < 2 ? ticks_between(lo, hi, room, v, name, max) : n;
}

enum { TICKS = 128 };

/* Draws one number of the x axis, unless it would overlap the number before it. */
static void number_x(struct canvas *c, double x, double y, const char *text, double *end)
{
    double half = canvas_text_width(c, text, PT_TICK, 0) / 2;
    if (x - half < *end + 0.8)
        return;
    canvas_text(c, x, y, text, PT_TICK, ALIGN_CENTER, ink, 0);
    *end = x + half;
}

/* Returns the number of ticks of width `each` that fit on an axis of mm, 1 to 6. */
static int fitting(double mm, double each)
{
    return (int)clamp(mm / each, 1, 6);
}

/* Works like ticks_log; `whole` omits ticks at fractions. */
static int ticks_log_of(double lo, double hi, double room, bool whole, double *v, char (*name)[24])
{
    int n = ticks_log(lo, hi, room, v, name, TICKS), m = 0;
    for (int i = 0; i < n; i++)
        if (!whole || fabs(v[i] - round(v[i])) < 1e-6) {
            v[m] = v[i];
            memmove(name[m++], name[i], sizeof *name);
        }
    return m;
}

/* Draws the ticks of a logarithmic x axis.  Decades have numbers; 2 to 9 times a decade are short
 * marks.  On short axes 2 and 5 have numbers too. */
static void log_ticks(struct canvas *c, const struct axis_box *a)
{
    double v[TICKS], end = -INFINITY;
    char name[TICKS][24];
    int n = ticks_log_of(a->x0, a->x1, a->w / 5, a->whole_x, v, name);
    for (int i = 0; i < n; i++) {
        mark_x(c, a, v[i], name[i][0] ? TICK : 0.55 * TICK);
        if (name[i][0])
            number_x(c, axis_x(a, v[i]), a->y + a->h + 2.5, name[i], &end);
    }
}

/* Draws the ticks that the figure chose, without numbers that would overlap. */
static void chosen_ticks(struct canvas *c, const struct axis_box *a)
{
    double end = -INFINITY;
    for (int i = 0; i < a->n_at_x; i++) {
        char name[24];
        if (a->at_x[i] < a->x0 || a->at_x[i] > a->x1)
            continue;
        tick_text(a->at_x[i], name);
        mark_x(c, a, a->at_x[i], TICK);
        number_x(c, axis_x(a, a->at_x[i]), a->y + a->h + 2.5, name, &end);
    }
}

void axis_ticks_x(struct canvas *c, const struct axis_box *a)
{
    double v[16], end = -INFINITY;
    char name[16][24];
    if (a->n_at_x) {
        chosen_ticks(c, a);
        return;
    }
    if (a->log_x) {
        log_ticks(c, a);
        return;
    }
    int want = a->w < 20 && a->w > 12 ? 2 : fitting(a->w, 10);
    int n = ticks_two(fmin(a->x0, a->x1), fmax(a->x0, a->x1), want, a->w / 5, a->whole_x, v, 16);
    tick_texts(v, n, name);
    for (int i = 0; i < n; i++) {
        mark_x(c, a, v[i], TICK);
        number_x(c, axis_x(a, v[i]), a->y + a->h + 2.5, name[i], &end);
    }
}

static int ticks_of_y(const struct axis_box *a, double *v, char (*name)[24])
{
    if (a->log_y)
        return ticks_log_of(a->y0, a->y1, a->h / 3.2, a->whole_y, v, name);
    int n = ticks_two(fmin(a->y0, a->y1), fmax(a->y0, a->y1), fitting(a->h, 6), a->h / 2.6,
                      a->whole_y, v, 16);
    tick_texts(v, n, name);
    return n;
}

void axis_ticks_y(struct canvas *c, const struct axis_box *a)
{
    double v[TICKS], last = -INFINITY;
    char name[TICKS][24];
    int n = ticks_of_y(a, v, name);
    for (int i = 0; i < n; i++) {
        double y = axis_y(a, v[i]), length = name[i][0] ? TICK : 0.55 * TICK;
        double xy[] = {a->x - length, y, a->x, y};
        canvas_line(c, xy, 2, WIDTH, ink);
        /* otherwise it would overlap the last number */
        if (name[i][0] && fabs(y - last) >= MIN_LINE) {
            canvas_text(c, a->x - 1.5, y, name[i], PT_TICK, ALIGN_RIGHT, ink, 0);
            last = y;
        }
    }
}

double axis_width_y(struct canvas *c, const struct axis_box *a)
{
    double v[TICKS], widest = 0;
    char name[TICKS][24];
    int n = ticks_of_y(a, v, name);
    for (int i = 0; i < n; i++)
        widest = fmax(widest, canvas_text_width(c, name[i], PT_TICK, 0));
    return widest;
}

void axis_name_y(struct canvas *c, const struct axis_box *a)
{
    double x = fmin(a->x - 9.5, a->x - 1.5 - axis_width_y(c, a) - 2);
    canvas_text(c, fmax(x, 1.9), a->y + a->h / 2, a->ylabel, PT_LABEL, ALIGN_CENTER, ink, 1);
}

void axis_draw(struct canvas *c, const struct axis_box *a)
{
    axis_ticks_x(c, a);
    axis_ticks_y(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, WIDTH, ink);
    if (a->xlabel)
        canvas_text(c, a->x + a->w / 2, a->y + a->h + 6, a->xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    if (a->ylabel)
        axis_name_y(c, a);
}

enum { PARTS = 3, PART_BYTES = 96 };
static const double RAISED = 0.72; /* relative size of raised text */

/* Splits s into the text before ^{...}, inside it and after it. */
static void cut_raised(const char *s, char part[PARTS][PART_BYTES])
{
    const char *open = strstr(s, "^{"), *close = open ? strchr(open, '}') : NULL;
    size_t before = close ? (size_t)(open - s) : strlen(s);
    snprintf(part[0], PART_BYTES, "%.*s", (int)before, s);
    part[1][0] = part[2][0] = 0;
    if (!close)
        return;
    snprintf(part[1], PART_BYTES, "%.*s", (int)(close - open - 2), open + 2);
    snprintf(part[2], PART_BYTES, "%s", close + 1);
}

double raised_text_width(struct canvas *c, const char *s, double pt)
{
    char part[PARTS][PART_BYTES];
    double w = 0;
    cut_raised(s, part);
    for (int k = 0; k < PARTS; k++)
        if (part[k][0])
            w += canvas_text_width(c, part[k], k == 1 ? RAISED * pt : pt, 0);
    return w;
}

void raised_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn)
{
    static const double before[] = {0, 0.5, 1}; /* by enum text_align */
    char part[PARTS][PART_BYTES];
    double along = -before[align] * raised_text_width(c, s, pt);
    if (!strstr(s, "^{")) {
        canvas_text(c, x, y, s, pt, align, colour, turn);
        return;
    }
    cut_raised(s, part);
    for (int k = 0; k < PARTS; k++) {
        double size = k == 1 ? RAISED * pt : pt, up = k == 1 ? 0.12 * pt : 0; /* mm */
        if (!part[k][0])
            continue;
        canvas_text(c, turn ? x - up : x + along, turn ? y - along : y - up, part[k], size,
                    ALIGN_LEFT, colour, turn);
        along += canvas_text_width(c, part[k], size, 0);
    }
}

enum { LABEL_LINES = 3, LABEL_BYTES = 96 };

/* Breaks s at spaces into lines of at most `room` mm at pt, starting at line[n]. Returns the number
 * of lines.  The last line receives the remaining text. */
static int wrap(struct canvas *c, const char *s, double pt, double room, char line[][LABEL_BYTES],
                int n)
{
    for (; *s && n < LABEL_LINES; n++) {
        snprintf(line[n], LABEL_BYTES, "%s", s);
        char *gap = strrchr(line[n], ' ');
        while (gap && n + 1 < LABEL_LINES && canvas_text_width(c, line[n], pt, 0) > room) {
            *gap = 0;
            gap = strrchr(line[n], ' ');
        }
        s += strlen(line[n]);
        s += *s == ' ';
    }
    return n;
}

/* Breaks the label of a bar into lines and returns their number.  It uses one line, two if the bar
 * is short and the label has a bracket, and more if the canvas is low. */
static int label_lines(struct canvas *c, const char *label, double h, char line[][LABEL_BYTES])
{
    const char *second = strstr(label, " (");
    double room = canvas_height(c) - 1;
    char first[LABEL_BYTES];
    if (!second || canvas_text_width(c, label, PT_LABEL, 0) <= h + 3)
        return wrap(c, label, PT_LABEL, room, line, 0);
    snprintf(first, sizeof first, "%.*s", (int)(second - label), label);
    return wrap(c, second + 1, PT_LABEL, room, line, wrap(c, first, PT_LABEL, room, line, 0));
}

/* Draws the label of a bar from x to the right.  If its lines do not fit, it is cut to one line.
 * Lines never cross the canvas edge. */
static void bar_label(struct canvas *c, double x, double y, double h, const char *label)
{
    char line[LABEL_LINES][LABEL_BYTES], fit[LABEL_BYTES];
    double most = canvas_width(c) - 1.9; /* half a line and a margin */
    int n = label_lines(c, label, h, line);
    if (n > 1 && x + 3 * (n - 1) > most + 0.8) {
        snprintf(line[0], LABEL_BYTES, "%s",
                 text_fit_own(c, label, PT_LABEL, canvas_height(c) - 1, fit, sizeof fit));
        n = 1;
    }
    x = fmin(x, most - 3 * (n - 1));
    for (int k = 0; k < n; k++) {
        double half = raised_text_width(c, line[k], PT_LABEL) / 2 + 0.5;
        double at = fmax(fmin(y, canvas_height(c) - half), half);
        raised_text(c, x + 3 * k, at, line[k], PT_LABEL, ALIGN_CENTER, ink, 1);
    }
}

/* Draws the note below a bar, wrapped at the right edge. */
static void bar_note(struct canvas *c, double x, double y, const char *note)
{
    char line[LABEL_LINES][LABEL_BYTES];
    int n = wrap(c, note, PT_SMALL, canvas_width(c) - x - 0.5, line, 0);
    for (int k = 0; k < n; k++)
        canvas_text(c, x, y + 2.6 * k, line[k], PT_SMALL, ALIGN_LEFT, ink, 0);
}

void colour_bar_ticks(struct canvas *c, double x, double y, double w, double h, const char *map,
                      const double *at, char (*name)[24], int n, const char *label,
                      const char *note)
{
    uint32_t px[256];
    double widest = 0;
    for (int i = 0; i < 256; i++)
        px[i] = palette_argb(map, 1 - i / 255.0);
    canvas_image(c, x, y, w, h, px, 1, 256);
    canvas_frame(c, x, y, w, h, WIDTH, ink);
    for (int i = 0; i < n; i++) {
        double place = y + h - at[i] * h, xy[] = {x + w, place, x + w + TICK, place};
        canvas_line(c, xy, 2, WIDTH, ink);
        canvas_text(c, x + w + 1.5, place, name[i], PT_TICK, ALIGN_LEFT, ink, 0);
        widest = fmax(widest, canvas_text_width(c, name[i], PT_TICK, 0));
    }
    bar_label(c, x + w + 1.5 + widest + 2.2, y + h / 2, h, label);
    bar_note(c, x, y + h + 2.5, note ? note : "");
}

void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note)
{
    double v[16];
    char name[16][24];
    int n = ticks_two(lo, hi, fitting(h, 6), 16, false, v, 16);
    tick_texts(v, n, name);
    for (int i = 0; i < n; i++)
        v[i] = (v[i] - lo) / (hi - lo);
    colour_bar_ticks(c, x, y, w, h, map, v, name, n, label, note);
}

void colour_bar_whole(struct canvas *c, double x, double y, double w, double h, const char *map,
                      double lo, double hi, double last, const char *label)
{
    double v[16];
    char name[16][24];
    int n = ticks_linear(lo, last, fitting(h, 6), v, 16);
    if (n > 1 && v[1] - v[0] < 1) { /* step 1 */
        for (n = 0; n < 16 && lo + n <= last; n++)
            v[n] = lo + n;
    } else if (n < 2) { /* only the two ends */
        v[0] = lo;
        v[1] = last;
        n = last > lo ? 2 : 1;
    }
    for (int i = 0; i < n; i++) {
        tick_text(v[i], name[i]);
        v[i] = (v[i] - lo) / (hi - lo);
    }
    colour_bar_ticks(c, x, y, w, h, map, v, name, n, label, NULL);
}
