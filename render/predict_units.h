/* predict_units.h - the form of the figure predict for tables of single units (predict --units). */
#pragma once

#include "render/figure.h"
#include "render/plot.h"

/* Writes the plain name of a statistic, for example "sparsity, mass 0.95, mean" for
 * sparsity.use.mass.95 with the reduction `mean`.  Other names are unchanged. */
void predict_name(const char *raw, const char *reduce, char out[PLOT_NAME]);
/* Returns the effect that a table predicts, with its unit. */
const char *predict_effect(const struct table *t);
/* Computes the size in mm. top: maximum number of panels, up to 12; 0: 6. */
void predict_units_size(const struct table *t, int64_t top, double *w, double *h);
/* Draws the panels.  Returns KVF_E_ARG with a message if a column is missing or the canvas is too
 * small. */
int predict_units_draw(struct canvas *c, const struct table *t, int64_t top, struct kvf_diag *d);
