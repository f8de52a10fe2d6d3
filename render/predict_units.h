/* predict_units.h - the form of the figure predict for tables of single units (predict --units). */
#pragma once

#include "render/figure.h"

/* Computes the size in mm. top: maximum number of panels, up to 12; 0: 6. */
void predict_units_size(const struct table *t, int64_t top, double *w, double *h);
/* Draws the panels.  Returns KVF_E_ARG with a message if a column is missing or the canvas is too
 * small. */
int predict_units_draw(struct canvas *c, const struct table *t, int64_t top, struct kvf_diag *d);
