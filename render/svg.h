/* svg.h - SVG by hand: shapes, pictures and text that stays text.
 *
 * The user unit is the point (1/72 inch); arguments are millimetres.  The same calls give the
 * same bytes.  Strokes carry a transform and keep mm; errors of memory are sticky in the
 * buffers. */
#ifndef KVF_RENDER_SVG_H
#define KVF_RENDER_SVG_H

#include "base/buf.h"
#include "render/canvas.h"

#define SVG_PT (72 / 25.4) /* points in a millimetre */

struct svg_fonts; /* svg_fonts.h */

struct svg {
    double w, h;    /* mm */
    double dx, dy;  /* where x = 0 and y = 0 lie, mm */
    double dash[2]; /* mm; dash[0] = 0: solid */
    int crisp;      /* edges of areas are not softened */
    struct buf body;
    struct svg_fonts *fonts; /* owned; NULL: no text yet */
};

void svg_finish(struct svg *s); /* frees; accepts a zeroed struct */

/* "fill:rgb(12%,0%,100%);fill-opacity:1;" with what = "fill" */
void svg_colour(struct buf *b, const char *what, struct rgb v, double alpha);

/* Draws a line through n points, broken at NaN. */
void svg_line(struct svg *s, const double *xy, int n, double width, struct rgb colour);
void svg_frame(struct svg *s, double x, double y, double w, double h, double width,
               struct rgb colour);
/* Fills the area within n points. */
void svg_area(struct svg *s, const double *xy, int n, struct rgb fill, double alpha);
void svg_disc(struct svg *s, double x, double y, double radius, double width, struct rgb colour);
void svg_clip(struct svg *s, double x, double y, double w, double h);
void svg_unclip(struct svg *s);

/* Embeds a picture, the bytes of a PNG file, which is not interpolated. */
void svg_image(struct svg *s, double x, double y, double w, double h, int cols, int rows,
               const struct buf *png);

/* Appends the whole file, with title and description. */
int svg_write(struct svg *s, const char *title, const char *about, struct buf *out);

void svg_escape(struct buf *b, const char *s, size_t n); /* text of an element */

#endif
