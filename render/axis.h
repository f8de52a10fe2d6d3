/* axis.h - ticks, axes and colour bars. */
#pragma once

#include <stddef.h>

#include "render/canvas.h"

/* Font sizes of all figures in points, legible at column width. */
#define PT_TICK 6.5
#define PT_LABEL 7.5
#define PT_SMALL 5.5

extern const struct rgb ink, quiet; /* of axes and text; of secondary text */

/* Moves n sorted positions so that they are at least `pitch` apart and within [top, bottom]. Each
 * position moves as little as its neighbours allow. */
void spread_places(double *at, int n, double pitch, double top, double bottom);

/* Computes about `want` ticks within [lo, hi], at steps of 1, 2 or 5 times a power of ten.  Writes
 * at most max ticks to out and returns their number. */
int ticks_linear(double lo, double hi, int want, double *out, int max);

/* A pair of axes: their rectangle on the page and the data range that they show. */
struct axis_box {
    double x, y, w, h;     /* plot area, mm */
    double x0, x1, y0, y1; /* data range; y0 is at the bottom and may be the larger */
    int log_x;
    const char *xlabel, *ylabel; /* may be NULL */
    int log_y;
    int whole_x, whole_y; /* counts and positions: no fractions in labels */
    const double *at_x;   /* the n_at_x increasing ticks of the x axis; 0: chosen from the range */
    int n_at_x;
};

/* Draws text like canvas_text.  A part ^{...} is raised and smaller, for example an exponent. */
void raised_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn);
/* Returns the width of such text in mm. */
double raised_text_width(struct canvas *c, const char *s, double pt);

/* Rounds a number above 0 up to 1, 2, 3 or 5 times a power of ten. */
double round_up(double v);
/* Clamps v to +-1e300, so that the distance between two axis ends is finite.  Larger values lie
 * beyond the axis. */
double axis_end(double v);
/* Convert a data value to mm on the page.  The result is not finite if the axis cannot show v. */
double axis_x(const struct axis_box *a, double v);
double axis_y(const struct axis_box *a, double v);
/* Draws both axes with ticks, numbers and names. */
void axis_draw(struct canvas *c, const struct axis_box *a);
/* Draw the ticks of one axis with their numbers; axis_draw calls both. */
void axis_ticks_x(struct canvas *c, const struct axis_box *a);
void axis_ticks_y(struct canvas *c, const struct axis_box *a);
/* Returns the width in mm of the widest number that axis_ticks_y draws. */
double axis_width_y(struct canvas *c, const struct axis_box *a);

/* Computes the ticks of a logarithmic axis: v[i] is labelled with name[i] unless it is "". room:
 * how many numbers fit.  Returns the number of ticks, at most max. */
int ticks_log(double lo, double hi, double room, double *v, char (*name)[24], int max);

/* Draws a vertical bar with its range and label.  An optional note below it is wrapped at the
 * canvas edge (NULL or "": no note). */
void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note);

/* Draws a colour bar with n ticks at fractions at[i] in 0 .. 1 of its height. */
void colour_bar_ticks(struct canvas *c, double x, double y, double w, double h, const char *map,
                      const double *at, char (*name)[24], int n, const char *label,
                      const char *note);

/* Draws the name of the y axis, left of its numbers. */
void axis_name_y(struct canvas *c, const struct axis_box *a);

/* Formats a tick number: "0.5", "12", "20,000". From a million on, and where it is shorter, this is
 * a power of ten with raised digits. */
void tick_text(double v, char out[24]);
/* Formats the n ticks of one axis, in order.  It uses as many digits (at most 9) as distinguish
 * each tick from the next. */
void tick_texts(const double *v, int n, char (*name)[24]);
/* Draws a colour bar for layers or positions.  Its ticks are whole numbers, at most `last`. */
void colour_bar_whole(struct canvas *c, double x, double y, double w, double h, const char *map,
                      double lo, double hi, double last, const char *label);

/* Replaces the hyphens of negative numbers in s by minus signs, which are as wide as a plus.  It
 * keeps a hyphen if s has no space for the sign.  Zero gets no sign: -0.00 becomes 0.00. */
void minus_signs(char *s, size_t cap);
