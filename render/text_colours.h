/* text_colours.h - colours of text and of its background. */
#pragma once

#include "render/canvas.h"

/* Returns the colour at fraction v in [0, 1] between two colours in CIELAB, where equal steps look
 * equal. */
struct rgb lab_between(struct rgb a, struct rgb b, double v);

/* Returns the contrast ratio of WCAG 2: from 1 for equal lightness to 21 for black on white. */
double contrast_ratio(struct rgb a, struct rgb b);

/* Returns black or white, whichever has the higher contrast on fill: a ratio of at least 4.58. */
struct rgb contrast_ink(struct rgb fill);
