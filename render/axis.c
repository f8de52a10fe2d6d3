#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/axis.h"
#include "render/palette.h"

const struct rgb ink = {0.12, 0.12, 0.12};
static const double WIDTH = 0.18, TICK = 0.9;

void minus_signs(char *s, size_t cap)
{
    size_t n = strlen(s);
    for (char *p = s; (p = strchr(p, '-')) && n + 3 <= cap; p += 3, n += 2) {
        memmove(p + 3, p + 1, n - (size_t)(p - s));
        memcpy(p, "\xe2\x88\x92", 3);
    }
}

void tick_text(double v, char out[24])
{
    double size = fabs(v);
    int whole = v == floor(v);
    if (size < 1e-12)
        snprintf(out, 24, "0");
    else if (size >= 1e6 && fmod(size, 1e5) == 0)
        snprintf(out, 24, "%.4ge6", v / 1e6);
    else if (whole && size >= 1e4 && size < 1e6)
        snprintf(out, 24, "%d,%03d", (int)(v / 1000), (int)fmod(size, 1000));
    else
        snprintf(out, 24, whole && size < 1e9 ? "%.0f" : "%.4g", v);
    minus_signs(out, 24);
}

int ticks_linear(double lo, double hi, int want, double *out, int max)
{
    if (!(hi > lo) || !isfinite(hi - lo) || want < 1)
        return 0;
    double raw = (hi - lo) / want, power = pow(10, floor(log10(raw) + 1e-9)),
           f = raw / power - 1e-9;
    double step = power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
    int n = 0;
    for (double k = ceil(lo / step - 1e-9); k * step <= hi + 1e-9 * step && n < max; k++)
        out[n++] = k * step;
    return n;
}

double axis_x(const struct axis_box *a, double v)
{
    double f = a->log_x ? log(v / a->x0) / log(a->x1 / a->x0) : (v - a->x0) / (a->x1 - a->x0);
    return a->x + f * a->w;
}

double axis_y(const struct axis_box *a, double v)
{
    double f = a->log_y ? log(v / a->y0) / log(a->y1 / a->y0) : (v - a->y0) / (a->y1 - a->y0);
    return a->y + a->h - f * a->h;
}

static void mark_x(struct canvas *c, const struct axis_box *a, double v, double length)
{
    double x = axis_x(a, v), xy[] = {x, a->y + a->h, x, a->y + a->h + length};
    canvas_line(c, xy, 2, WIDTH, ink);
}

static void tick_x(struct canvas *c, const struct axis_box *a, double v)
{
    char text[24];
    mark_x(c, a, v, TICK);
    tick_text(v, text);
    canvas_text(c, axis_x(a, v), a->y + a->h + 2.5, text, PT_TICK, ALIGN_CENTER, ink, 0);
}

static void mark_y(struct canvas *c, const struct axis_box *a, double v, double length)
{
    double y = axis_y(a, v), xy[] = {a->x - length, y, a->x, y};
    canvas_line(c, xy, 2, WIDTH, ink);
}

static void tick_y(struct canvas *c, const struct axis_box *a, double v)
{
    char text[24];
    mark_y(c, a, v, TICK);
    tick_text(v, text);
    canvas_text(c, a->x - 1.5, axis_y(a, v), text, PT_TICK, ALIGN_RIGHT, ink, 0);
}

/* How many ticks fit into mm of axis when one takes `each`. */
static int fitting(double mm, double each)
{
    double n = mm / each;
    return n < 1 ? 1 : n > 6 ? 6 : (int)n;
}

/* Decades with their numbers, or every few of them where they are many, and 2 .. 9 between as
 * short marks; on short axes 2 and 5 get numbers too. */
static void log_ticks(struct canvas *c, const struct axis_box *a, double lo, double hi, int room,
                      void (*tick)(struct canvas *c, const struct axis_box *a, double v),
                      void (*mark)(struct canvas *c, const struct axis_box *a, double v, double mm))
{
    double decades = log10(hi / lo);
    int first = (int)floor(log10(lo) + 1e-9), every = (int)ceil(decades / room);
    if (!(decades > 0 && decades < 700))
        return;
    for (int e = first; pow(10, e) <= hi * (1 + 1e-9); e++)
        for (int k = 1; k < 10; k++) {
            double v = k * pow(10, e);
            if (v < lo * (1 - 1e-9) || v > hi * (1 + 1e-9))
                continue;
            if ((k == 1 && e % every == 0) || (decades < 1.954 && (k == 2 || k == 5)))
                tick(c, a, v);
            else if (k == 1 || every == 1)
                mark(c, a, v, 0.55 * TICK);
        }
}

void axis_ticks_x(struct canvas *c, const struct axis_box *a)
{
    double v[16];
    if (a->log_x) {
        log_ticks(c, a, a->x0, a->x1, (int)fmax(1, a->w / 8), tick_x, mark_x);
        return;
    }
    int n = ticks_linear(fmin(a->x0, a->x1), fmax(a->x0, a->x1), fitting(a->w, 10), v, 16);
    for (int i = 0; i < n; i++)
        tick_x(c, a, v[i]);
}

void axis_ticks_y(struct canvas *c, const struct axis_box *a)
{
    double v[16];
    if (a->log_y) {
        log_ticks(c, a, a->y0, a->y1, (int)fmax(1, a->h / 4), tick_y, mark_y);
        return;
    }
    int n = ticks_linear(fmin(a->y0, a->y1), fmax(a->y0, a->y1), fitting(a->h, 6), v, 16);
    for (int i = 0; i < n; i++)
        tick_y(c, a, v[i]);
}

void axis_draw(struct canvas *c, const struct axis_box *a)
{
    axis_ticks_x(c, a);
    axis_ticks_y(c, a);
    canvas_frame(c, a->x, a->y, a->w, a->h, WIDTH, ink);
    if (a->xlabel)
        canvas_text(c, a->x + a->w / 2, a->y + a->h + 6, a->xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    if (a->ylabel)
        canvas_text(c, a->x - 9.5, a->y + a->h / 2, a->ylabel, PT_LABEL, ALIGN_CENTER, ink, 1);
}

enum { LABEL_LINES = 3, LABEL_BYTES = 96 };

/* Breaks s at spaces into lines of at most `room` mm, from line[n] on; returns how many there
 * are then.  The last one takes what is left. */
static int wrap(struct canvas *c, const char *s, double room, char line[][LABEL_BYTES], int n)
{
    for (; *s && n < LABEL_LINES; n++) {
        char *gap;
        snprintf(line[n], LABEL_BYTES, "%s", s);
        while (n + 1 < LABEL_LINES && canvas_text_width(c, line[n], PT_LABEL, 0) > room
               && (gap = strrchr(line[n], ' ')))
            *gap = 0;
        s += strlen(line[n]);
        s += *s == ' ';
    }
    return n;
}

/* One line, or two when the bar is short and the label has a bracket; more where the canvas
 * itself is too low for a line.  Nothing is moved beyond its edges. */
static void bar_label(struct canvas *c, double x, double y, double h, const char *label)
{
    const char *second = strstr(label, " (");
    char line[LABEL_LINES][LABEL_BYTES], first[LABEL_BYTES];
    double room = canvas_height(c) - 1;
    int n = 0;
    if (!second || canvas_text_width(c, label, PT_LABEL, 0) <= h + 3) {
        n = wrap(c, label, room, line, n);
    } else {
        snprintf(first, sizeof first, "%.*s", (int)(second - label), label);
        n = wrap(c, first, room, line, n);
        n = wrap(c, second + 1, room, line, n);
    }
    for (int k = 0; k < n; k++) {
        double half = canvas_text_width(c, line[k], PT_LABEL, 0) / 2 + 0.5;
        double at = fmax(fmin(y, canvas_height(c) - half), half);
        canvas_text(c, x + 3 * k, at, line[k], PT_LABEL, ALIGN_CENTER, ink, 1);
    }
}

void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note)
{
    uint32_t px[256];
    double v[16], widest = 0;
    char text[24];
    for (int i = 0; i < 256; i++)
        px[i] = palette_argb(map, 1 - i / 255.0);
    canvas_image(c, x, y, w, h, px, 1, 256);
    canvas_frame(c, x, y, w, h, WIDTH, ink);
    int n = ticks_linear(lo, hi, fitting(h, 6), v, 16);
    for (int i = 0; i < n; i++) {
        double at = y + h - (v[i] - lo) / (hi - lo) * h, xy[] = {x + w, at, x + w + TICK, at};
        canvas_line(c, xy, 2, WIDTH, ink);
        tick_text(v[i], text);
        canvas_text(c, x + w + 1.5, at, text, PT_TICK, ALIGN_LEFT, ink, 0);
        widest = fmax(widest, canvas_text_width(c, text, PT_TICK, 0));
    }
    bar_label(c, x + w + 1.5 + widest + 2.2, y + h / 2, h, label);
    if (note && *note)
        canvas_text(c, x, y + h + 2.5, note, PT_SMALL, ALIGN_LEFT, ink, 0);
}
