/* axis.h - ticks, axes and colour bars. */
#ifndef KVF_RENDER_AXIS_H
#define KVF_RENDER_AXIS_H

#include <stddef.h>

#include "render/canvas.h"

/* Font sizes of all figures, in points: what stays legible at column width. */
#define PT_TICK 6.5
#define PT_LABEL 7.5
#define PT_SMALL 5.5

extern const struct rgb ink, quiet; /* of axes and text; of text that matters less */

/* Moves n places, sorted, at least `pitch` apart and within [top, bottom], each as near to where it
 * was as those beside it allow. */
void spread_places(double *at, int n, double pitch, double top, double bottom);

/* Up to max tick values within [lo, hi] at steps of 1, 2 or 5 times a power of
 * ten, about `want` of them; returns how many. */
int ticks_linear(double lo, double hi, int want, double *out, int max);

struct axis_box {
    double x, y, w, h;     /* plot area, mm */
    double x0, x1, y0, y1; /* data range; y0 at the bottom (it may be the larger) */
    int log_x;
    const char *xlabel, *ylabel; /* NULL: none */
    int log_y;
    int whole_x, whole_y; /* counts and positions: no number between two of them */
};

/* Draws a text like canvas_text in which a part ^{...} is raised and smaller, such as the exponent
 * of a power; its width. */
void raised_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn);
double raised_text_width(struct canvas *c, const char *s, double pt);

/* v held within +-1e300, so that the distance of two ends of an axis is a number, too.  What lies
 * further out is beyond the axis. */
double axis_end(double v);
double axis_x(const struct axis_box *a, double v); /* data to mm; not finite: no place on it */
double axis_y(const struct axis_box *a, double v);
void axis_draw(struct canvas *c, const struct axis_box *a);
/* The parts of axis_draw: ticks with their numbers; names further out. */
void axis_ticks_x(struct canvas *c, const struct axis_box *a);
void axis_ticks_y(struct canvas *c, const struct axis_box *a);
/* mm that the widest number of axis_ticks_y takes. */
double axis_width_y(struct canvas *c, const struct axis_box *a);

/* Ticks of a logarithmic axis: v[i] with its number where name[i] is not "".  room: how many
 * numbers fit.  Returns how many there are, at most max. */
int ticks_log(double lo, double hi, double room, double *v, char (*name)[24], int max);

/* A vertical bar with its range and label; below it a note, in
 * lines no wider than the canvas has room for (NULL or "": none). */
void colour_bar(struct canvas *c, double x, double y, double w, double h, const char *map,
                double lo, double hi, const char *label, const char *note);

/* As colour_bar, with ticks at[i] in 0 .. 1 of its height. */
void colour_bar_ticks(struct canvas *c, double x, double y, double w, double h, const char *map,
                      const double *at, char (*name)[24], int n, const char *label,
                      const char *note);

/* The name of the y axis, left of its numbers. */
void axis_name_y(struct canvas *c, const struct axis_box *a);

/* The one form of numbers at ticks: "0.5", "12", "20,000"; from a million on, and where it is
 * shorter, a power of ten with raised digits. */
void tick_text(double v, char out[24]);
/* The same for the n ticks of one axis, in their order, with as many digits (9 at most) as it takes
 * to tell each from the next. */
void tick_texts(const double *v, int n, char (*name)[24]);
/* As colour_bar, for numbers of layers or positions: the ticks are whole numbers alone, none beyond
 * last. */
void colour_bar_whole(struct canvas *c, double x, double y, double w, double h, const char *map,
                      double lo, double hi, double last, const char *label);

/* Hyphens of numbers in s become minus signs, as wide as a plus; what has no room stays.  Zero
 * has no sign: -0.00 becomes 0.00. */
void minus_signs(char *s, size_t cap);

#endif
