/* canvas.h - drawing in millimetres onto PNG, SVG, PDF or a terminal (ansi.h); canvas.c,
 * canvas_file.c, canvas_text.c, svg_fonts.c and svg_text.c are the only files that include cairo
 * and pango.  y runs down.  Errors are sticky: canvas_finish returns the first one. */
#ifndef KVF_RENDER_CANVAS_H
#define KVF_RENDER_CANVAS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct canvas;

enum canvas_format { CANVAS_PNG, CANVAS_SVG, CANVAS_PDF, CANVAS_ANSI, CANVAS_NONE };
enum text_align { ALIGN_LEFT, ALIGN_CENTER, ALIGN_RIGHT };

struct rgb {
    double r, g, b; /* 0..1 */
};

/* Starts to read fontconfig's lists of fonts, in a thread that Pango has for it. */
void canvas_prepare(void);

/* Sizes in mm, at most 5,000; dpi 20..2400 and at most 20,000 pixels a side for
 * PNG.  KVF_OK, KVF_E_ARG, KVF_E_NOMEM. */
int canvas_create(enum canvas_format f, double w_mm, double h_mm, int dpi, struct canvas **ret,
                  struct kvf_diag *d);
void canvas_destroy(struct canvas *c); /* accepts NULL */

/* Sets the font family of all text to come.  KVF_E_ARG where no such family is installed,
 * with a sentence that names the one that would stand in. */
int canvas_font(struct canvas *c, const char *family, struct kvf_diag *d);

/* Title and keywords for the metadata; without: "kvfate figure" and none. */
void canvas_about(struct canvas *c, const char *title, const char *keywords);

/* On a terminal: shades instead of colours. */
void canvas_shades(struct canvas *c);
/* PNG is compressed on so many threads at most; 0, the default: as many as there are cores. */
void canvas_threads(struct canvas *c, int most);

/* Where text is told that no installed font has all of, and that shows boxes: *ret becomes true. */
void canvas_boxes(struct canvas *c, bool *ret);

/* Notes that some text of the figure's own was cut or left out, or lies beyond the edges of the
 * canvas; texts that reach beyond the edges are noted by the canvas itself.  Never on a terminal.
 */
void canvas_cut(struct canvas *c);
bool canvas_is_cut(const struct canvas *c);

/* For what cannot be drawn: canvas_finish returns the first error. */
void canvas_fail(struct canvas *c, int err);

/* The finished file's bytes.  provenance: "key: value" lines for the metadata. */
int canvas_finish(struct canvas *c, const char *provenance, struct buf *out);

double canvas_width(const struct canvas *c);
double canvas_height(const struct canvas *c);
double canvas_pixel(const struct canvas *c); /* size in mm of a raster pixel at the chosen dpi */

/* Takes a strip of mm off the top: y = 0 is below it from here on. */
void canvas_reserve_top(struct canvas *c, double mm);

/* Makes a rectangle of the page the whole canvas, until the end of the panel; does not nest.  What
 * is drawn is not clipped, and no page follows. */
void canvas_panel(struct canvas *c, double x, double y, double w, double h);
void canvas_panel_end(struct canvas *c);

void canvas_rect(struct canvas *c, double x, double y, double w, double h, struct rgb fill);
/* A rectangle that adjoins others of its kind without a seam. */
void canvas_cell(struct canvas *c, double x, double y, double w, double h, struct rgb fill);
void canvas_frame(struct canvas *c, double x, double y, double w, double h, double width,
                  struct rgb colour);
/* A line through n points (x0, y0, x1, y1, ...); NaN breaks it. */
void canvas_line(struct canvas *c, const double *xy, int n, double width, struct rgb colour);

/* The area within n points, see-through at alpha below 1; NaN ends it. */
void canvas_area(struct canvas *c, const double *xy, int n, struct rgb fill, double alpha);
/* A filled disc, or a ring of that line width when width > 0. */
void canvas_disc(struct canvas *c, double x, double y, double radius, double width,
                 struct rgb colour);
/* Nothing is drawn outside of the rectangle until canvas_unclip; does not nest. */
void canvas_clip(struct canvas *c, double x, double y, double w, double h);
void canvas_unclip(struct canvas *c);

/* Dashes of the lines to come, mm; on = 0: solid again. */
void canvas_dash(struct canvas *c, double on, double off);

/* Text with its baseline box centred on y; pt: font size; turn: quarter turns to
 * the left.  s need not be valid UTF-8. */
void canvas_text(struct canvas *c, double x, double y, const char *s, double pt,
                 enum text_align align, struct rgb colour, int turn);
double canvas_text_width(struct canvas *c, const char *s, double pt, int bold);
/* One word from its left end, y = baseline: for running text, bold or not. */
void canvas_word(struct canvas *c, double x, double y, const char *s, double pt, int bold,
                 struct rgb colour);

/* w x h pixels of 0xAARRGGBB, colours multiplied by alpha; not interpolated. */
void canvas_image(struct canvas *c, double x, double y, double w_mm, double h_mm,
                  const uint32_t *argb, int w, int h);

#endif
