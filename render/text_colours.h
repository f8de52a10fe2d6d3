/* text_colours.h - colours for text and for what lies behind it. */
#ifndef KVF_RENDER_TEXT_COLOURS_H
#define KVF_RENDER_TEXT_COLOURS_H

#include "render/canvas.h"

/* A colour on the straight line between two colours in CIELAB, where equal steps of v in [0, 1]
 * look equal. */
struct rgb lab_between(struct rgb a, struct rgb b, double v);

/* The contrast ratio of WCAG 2: from 1 for the same lightness to 21 for black on white. */
double contrast_ratio(struct rgb a, struct rgb b);

/* Black or white, whichever is read better on it: a ratio of 4.58 at the least. */
struct rgb contrast_ink(struct rgb fill);

#endif
