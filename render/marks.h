/* marks.h - signs of points that differ in shape, so that they differ in grey too, and text
 * that fits its place. */
#ifndef KVF_RENDER_MARKS_H
#define KVF_RENDER_MARKS_H

#include <stddef.h>

#include "render/canvas.h"

enum mark {
    MARK_DISC,
    MARK_SQUARE,
    MARK_TRIANGLE,
    MARK_DIAMOND,
    MARK_RING,
    MARK_FRAME,
    MARK_CROSS,
    MARK_DOWN,
    MARKS
};

/* Draws the sign of a point.  size: about the diameter, in mm.  Nothing is drawn at a place that is
 * NaN or infinite. */
void mark_draw(struct canvas *c, enum mark m, double x, double y, double size, struct rgb colour);

/* Returns s, or its beginning and an ellipsis (in out) where s is wider than room mm. */
const char *text_fit(struct canvas *c, const char *s, double pt, double room, char *out,
                     size_t cap);

/* The same for words of the figure's own, which no size may cut: canvas_cut notes it. */
const char *text_fit_own(struct canvas *c, const char *s, double pt, double room, char *out,
                         size_t cap);

/* Fills a rectangle with thin grey diagonals, pale enough to read letters on; those of rectangles
 * that adjoin go on. */
void hatch(struct canvas *c, double x, double y, double w, double h);

/* The colour v at the opacity a over white. */
struct rgb tint(struct rgb v, double a);
/* Black or white, whichever is legible on the colour. */
struct rgb ink_on(struct rgb v);

#endif
