/* figure_fit.h - the steps of drawing a figure, for figure.c and for pages of several (layout.c).
 */
#ifndef KVF_RENDER_FIGURE_FIT_H
#define KVF_RENDER_FIGURE_FIT_H

#include "render/canvas.h"
#include "render/figure.h"

enum { FIGURE_TITLE = 7 }; /* mm that a title takes */

/* A style with what the figure makes of it. */
struct figure_fit {
    struct figure_style style; /* the caller's, with what is the figure's own */
    struct buf text;           /* the texts in `own` */
    void *own;                 /* [style_bytes] */
};

/* Checks table and style, and reads the figure's keys.  x: zeroed; figure_fit_finish frees it,
 * after a failure too. */
int figure_fit(struct figure_fit *x, const struct figure *f, const struct table *t,
               const struct figure_style *s, struct kvf_diag *d);
void figure_fit_finish(struct figure_fit *x);

/* The size in mm that the style asks for, or else the figure's own. */
int figure_fit_size(const struct figure_fit *x, const struct table *t, double *ret_w, double *ret_h,
                    struct kvf_diag *d);

/* A canvas for the file at path.  KVF_E_ARG where no figure has its extension. */
int figure_canvas(const char *path, double w, double h, const struct figure_style *s,
                  struct canvas **ret, struct kvf_diag *d);
void figure_draw_title(struct canvas *c, const char *title);
/* Draws the figure, or that there is no data; a style of figure_fit. */
int figure_draw_on(struct canvas *c, const struct figure *f, const struct table *t,
                   const struct figure_style *s, struct kvf_diag *d);

/* Sets the title and the keywords of the metadata; appends where the table comes from. */
int figure_about(struct canvas *c, const struct figure *f, const struct table *t,
                 const struct figure_style *s);
void figure_provenance(const struct table *t, struct buf *out);

/* Writes the whole file, or leaves the path as it was. */
int figure_write_bytes(const char *path, const struct buf *data, struct kvf_diag *d);

#endif
