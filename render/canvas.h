/* canvas.h - draws in millimetres onto PNG, SVG, PDF or a terminal (ansi.h).
 *
 * Only canvas.c, canvas_file.c, canvas_text.c, svg_fonts.c and svg_text.c include cairo and pango.
 * y runs down.  Errors are sticky: canvas_finish returns the first one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct canvas;

enum canvas_format { CANVAS_PNG, CANVAS_SVG, CANVAS_PDF, CANVAS_ANSI, CANVAS_NONE };
enum text_align { ALIGN_LEFT, ALIGN_CENTER, ALIGN_RIGHT };

/* A colour in sRGB. */
struct rgb {
    double r, g, b; /* 0..1 */
};

/* Starts a Pango thread that reads the font lists of fontconfig. */
void canvas_prepare(void);

/* Creates a canvas of w_mm x h_mm, each at most 5,000. dpi: 20..2400, and at most 20,000 pixels per
 * side for PNG. Returns KVF_OK, KVF_E_ARG or KVF_E_NOMEM. */
int canvas_create(enum canvas_format f, double w_mm, double h_mm, int dpi, struct canvas **ret,
                  struct kvf_diag *d);
void canvas_destroy(struct canvas *c); /* accepts NULL */

/* Sets the font family of all later text.  Returns KVF_E_ARG if the family is not installed; the
 * message names the substitute. */
int canvas_font(struct canvas *c, const char *family, struct kvf_diag *d);

/* Sets title and keywords of the metadata.  The defaults are "kvfate figure" and no keywords. */
void canvas_about(struct canvas *c, const char *title, const char *keywords);

/* Draws shades instead of colours, on a terminal. */
void canvas_shades(struct canvas *c);
/* Sets the maximum number of threads that compress PNG; 0, the default, uses all cores. */
void canvas_threads(struct canvas *c, int most);

/* Sets *ret to true later if no installed font can draw some text, which then shows boxes.  ret is
 * borrowed. */
void canvas_boxes(struct canvas *c, bool *ret);

/* Records that text of the figure's own was cut, left out or drawn beyond the canvas edges.  The
 * canvas itself records texts that cross its edges.  Terminals record no cut. */
void canvas_cut(struct canvas *c);
bool canvas_is_cut(const struct canvas *c);

/* Records an error for canvas_finish, which returns the first one. */
void canvas_fail(struct canvas *c, int err);

/* Appends the bytes of the finished file to out.  provenance: "key: value" lines for the metadata.
 * Returns KVF_OK or the first error. */
int canvas_finish(struct canvas *c, const char *provenance, struct buf *out);

double canvas_width(const struct canvas *c);
double canvas_height(const struct canvas *c);
double canvas_pixel(const struct canvas *c); /* size in mm of a raster pixel at the chosen dpi */

/* Reserves a strip of mm at the top: later drawing has y = 0 below it. */
void canvas_reserve_top(struct canvas *c, double mm);

/* Make a rectangle of the page the canvas, until canvas_panel_end.  Panels do not nest.  Drawing is
 * not clipped to the panel, and a panel has no further pages. */
void canvas_panel(struct canvas *c, double x, double y, double w, double h);
void canvas_panel_end(struct canvas *c);

void canvas_rect(struct canvas *c, double x, double y, double w, double h, struct rgb fill);
/* Fills a rectangle that joins adjacent cells without a seam. */
void canvas_cell(struct canvas *c, double x, double y, double w, double h, struct rgb fill);
void canvas_frame(struct canvas *c, double x, double y, double w, double h, double width,
                  struct rgb colour);
/* Draws a line through n points (x0, y0, x1, y1, ...).  NaN breaks the line. */
void canvas_line(struct canvas *c, const double *xy, int n, double width, struct rgb colour);

/* Fills the polygon of n points with opacity alpha.  The polygon ends at NaN. */
void canvas_area(struct canvas *c, const double *xy, int n, struct rgb fill, double alpha);
/* Draws a filled disc, or a ring with line width `width` if width > 0. */
void canvas_disc(struct canvas *c, double x, double y, double radius, double width,
                 struct rgb colour);
/* Clip later drawing to the rectangle until canvas_unclip.  Clips do not nest. */
void canvas_clip(struct canvas *c, double x, double y, double w, double h);
void canvas_unclip(struct canvas *c);

/* Sets the dash and gap lengths of later lines in mm; on = 0 draws solid lines. */
void canvas_dash(struct canvas *c, double on, double off);

/* Draws text whose line box is centred on y.  pt: font size; turn: quarter turns to the left.  s
 * need not be valid UTF-8. */
void canvas_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn);
double canvas_text_width(struct canvas *c, const char *s, double pt, int bold);
/* Draws one word of running text from its left end, with the baseline at y. */
void canvas_word(struct canvas *c, double x, double y, const char *s, double pt, int bold,
                 struct rgb colour);

/* Draws w x h pixels 0xAARRGGBB with premultiplied alpha, not interpolated. */
void canvas_image(struct canvas *c, double x, double y, double w_mm, double h_mm,
                  const uint32_t *argb, int w, int h);
