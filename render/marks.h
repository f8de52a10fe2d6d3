/* marks.h - draws point signs that differ in shape, and fits text into a width. */
#pragma once

#include <stdbool.h>
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

/* Draws the sign of a point.  size: approximate diameter in mm.  It draws no sign if x or y is not
 * finite. */
void mark_draw(struct canvas *c, enum mark m, double x, double y, double size, struct rgb colour);

/* Returns s, or its beginning with an ellipsis (in out) if s is wider than `limit` mm. */
const char *text_fit(struct canvas *c, const char *s, double pt, double limit, char *out,
                     size_t cap);

/* Works like text_fit for the figure's own words, which must not be cut: it reports a cut to
 * canvas_cut. */
const char *text_fit_own(struct canvas *c, const char *s, double pt, double limit, char *out,
                         size_t cap);

/* Fills a rectangle with thin pale grey diagonals on which letters stay legible.  The diagonals of
 * adjacent rectangles meet. */
void hatch(struct canvas *c, double x, double y, double w, double h);

/* Returns colour v at opacity a over white. */
struct rgb tint(struct rgb v, double a);
/* Returns black or white, whichever is more legible on v. */
struct rgb ink_on(struct rgb v);
