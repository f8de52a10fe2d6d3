/* svg.h - writes SVG directly: shapes, pictures and text elements.
 *
 * The user unit is the point (1/72 inch); arguments are millimetres.  Equal calls give equal bytes.
 * Strokes carry a transform and stay in mm.  Memory errors are sticky in the buffers. */
#pragma once

#include "base/buf.h"
#include "render/canvas.h"

#define SVG_PT (72 / 25.4) /* points per millimetre */

struct svg_fonts; /* svg_fonts.h */

/* The body of an SVG file and its drawing state. */
struct svg {
    double w, h;    /* mm */
    double dx, dy;  /* origin, mm */
    double dash[2]; /* mm; dash[0] = 0: solid */
    int crisp;      /* do not antialias the edges of areas */
    struct buf body;
    struct svg_fonts *fonts; /* owned; NULL: no text yet */
};

void svg_finish(struct svg *s); /* frees; accepts a zeroed struct */

/* Appends a colour, "fill:rgb(12%,0%,100%);fill-opacity:1;" with what = "fill". */
void svg_colour(struct buf *b, const char *what, struct rgb v, double alpha);

/* Draws a line through n points, broken at NaN. */
void svg_line(struct svg *s, const double *xy, int n, double width, struct rgb colour);
void svg_frame(struct svg *s, double x, double y, double w, double h, double width,
               struct rgb colour);
/* Fills the polygon of n points. */
void svg_area(struct svg *s, const double *xy, int n, struct rgb fill, double alpha);
void svg_disc(struct svg *s, double x, double y, double radius, double width, struct rgb colour);
void svg_clip(struct svg *s, double x, double y, double w, double h);
void svg_unclip(struct svg *s);

/* Embeds the bytes of a PNG file, not interpolated. */
void svg_image(struct svg *s, double x, double y, double w, double h, int cols, int rows,
               const struct buf *png);

/* Appends the complete file, with title and description.  Returns KVF_OK or the first error. */
int svg_write(struct svg *s, const char *title, const char *about, struct buf *out);

void svg_escape(struct buf *b, const char *s, size_t n); /* text of an element */
