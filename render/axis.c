#include <math.h>
#include <stdio.h>

#include "render/axis.h"
#include "render/palette.h"

static const struct rgb ink = {0.15, 0.15, 0.15};

void tick_text(double v, char out[24])
{
    snprintf(out, 24, "%.4g", fabs(v) < 1e-12 ? 0.0 : v);
}

int ticks_linear(double lo, double hi, int want, double *out, int max)
{
    if (!(hi > lo) || want < 1)
        return 0;
    double raw = (hi - lo) / want, power = pow(10, floor(log10(raw))), f = raw / power;
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
    return a->y + a->h - (v - a->y0) / (a->y1 - a->y0) * a->h;
}

static void x_tick(struct canvas *c, const struct axis_box *a, double v, double pt)
{
    char text[24];
    double x = axis_x(a, v), xy[] = {x, a->y + a->h, x, a->y + a->h + 1};
    canvas_line(c, xy, 2, 0.15, ink);
    tick_text(v, text);
    canvas_text(c, x, a->y + a->h + 2.6, text, pt, ALIGN_CENTER, ink, 0);
}

void axis_draw(struct canvas *c, const struct axis_box *a, double pt)
{
    double v[16];
    char text[24];
    int n = a->log_x ? 0 : ticks_linear(a->x0, a->x1, 5, v, 16);
    for (double p = 1; a->log_x && p <= a->x1; p *= 10)
        if (p >= a->x0)
            x_tick(c, a, p, pt);
    for (int i = 0; i < n; i++)
        x_tick(c, a, v[i], pt);
    n = ticks_linear(a->y0, a->y1, 5, v, 16);
    for (int i = 0; i < n; i++) {
        double y = axis_y(a, v[i]), xy[] = {a->x - 1, y, a->x, y};
        canvas_line(c, xy, 2, 0.15, ink);
        tick_text(v[i], text);
        canvas_text(c, a->x - 1.6, y, text, pt, ALIGN_RIGHT, ink, 0);
    }
    canvas_frame(c, a->x, a->y, a->w, a->h, 0.2, ink);
    if (a->xlabel)
        canvas_text(c, a->x + a->w / 2, a->y + a->h + 6.6, a->xlabel, pt + 1, ALIGN_CENTER, ink, 0);
    if (a->ylabel)
        canvas_text(c, a->x - 10.5, a->y + a->h / 2, a->ylabel, pt + 1, ALIGN_CENTER, ink, 1);
}

void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note, double pt)
{
    uint32_t px[256];
    double v[16];
    char text[24];
    for (int i = 0; i < 256; i++)
        px[i] = palette_argb(map, 1 - i / 255.0);
    canvas_image(c, x, y, w, h, px, 1, 256);
    canvas_frame(c, x, y, w, h, 0.15, ink);
    int n = ticks_linear(lo, hi, 5, v, 16);
    for (int i = 0; i < n; i++) {
        double at = y + h - (v[i] - lo) / (hi - lo) * h, xy[] = {x + w, at, x + w + 0.8, at};
        canvas_line(c, xy, 2, 0.15, ink);
        tick_text(v[i], text);
        canvas_text(c, x + w + 1.3, at, text, pt, ALIGN_LEFT, ink, 0);
    }
    canvas_text(c, x + w + 9.5, y + h / 2, label, pt + 1, ALIGN_CENTER, ink, 1);
    if (note && *note)
        canvas_text(c, x + w, y + h + 3, note, pt - 0.5, ALIGN_RIGHT, ink, 0);
}
