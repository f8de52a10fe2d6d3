/* figures.h - the figures, one file each, and parts that several share. */
#ifndef KVF_RENDER_FIGURES_H
#define KVF_RENDER_FIGURES_H

#include "render/axis.h"
#include "render/canvas.h"
#include "render/figure.h"
#include "render/palette.h"

extern const struct figure fig_eviction, fig_retention, fig_sparsity, fig_survival,
    fig_survival_map, fig_occupancy, fig_tokens;

/* Grid of alpha maps, one small square per head (grid.c).  end_of fills the end
 * of each of n tokens of a head whose rows start at row0. */
struct grid {
    const struct table *t;
    const char *label;  /* of the colour bar */
    void (*end_of)(const struct table *t, int64_t row0, int64_t n, double *end);
};
void grid_size(const struct table *t, double *ret_w, double *ret_h);
int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s);

/* Layer x head map of one value per head (layermap.c).  Rows are those for which
 * chosen(t, row) is true. */
void layermap_size(const struct table *t, double *ret_w, double *ret_h);
int layermap_draw(struct canvas *c, const struct table *t, const char *value, const char *label,
                  int (*chosen)(const struct table *t, int64_t row, const void *ctx),
                  const void *ctx, const struct figure_style *s);

/* Rows that share a value in the head column from row 0 on: rows per head, for
 * head-major tables. */
int64_t rows_per_head(const struct table *t);
void draw_title(struct canvas *c, const struct figure_style *s);
void draw_no_data(struct canvas *c);

#endif
