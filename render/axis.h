/* axis.h - ticks, axes and colour bars. */
#ifndef KVF_RENDER_AXIS_H
#define KVF_RENDER_AXIS_H

#include "render/canvas.h"

/* Up to max tick values within [lo, hi] at steps of 1, 2 or 5 times a power of
 * ten; returns how many. */
int ticks_linear(double lo, double hi, int want, double *out, int max);

struct axis_box {
    double x, y, w, h;          /* plot area, mm */
    double x0, x1, y0, y1;      /* data range; y0 at the bottom */
    int log_x;
    const char *xlabel, *ylabel;
};

double axis_x(const struct axis_box *a, double v); /* data to mm */
double axis_y(const struct axis_box *a, double v);
void axis_draw(struct canvas *c, const struct axis_box *a, double pt);

/* A vertical bar with its range and label; notes what was clipped. */
void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note, double pt);

/* "0.5", "12", "1e-05": short form of a tick. */
void tick_text(double v, char out[24]);

#endif
