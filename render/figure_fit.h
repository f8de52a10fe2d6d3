/* figure_fit.h - the steps of drawing one figure, used by figure.c and by layout.c for pages of
 * several figures. */
#pragma once

#include "render/canvas.h"
#include "render/figure.h"

enum { FIGURE_TITLE = 7 }; /* height of a title, mm */

/* A figure style completed with the figure's defaults and keys. */
struct figure_fit {
    struct figure_style style; /* the caller's style with the figure's defaults */
    struct buf text;           /* texts that `own` points to */
    void *own;                 /* [style_bytes] */
};

/* Checks table and style, and reads the figure's keys.  x: zeroed by the caller; figure_fit_finish
 * frees it, also after a failure. */
int figure_fit(struct figure_fit *x, const struct figure *f, const struct table *t,
               const struct figure_style *s, struct kvf_diag *d);
void figure_fit_finish(struct figure_fit *x);

/* Returns the size in mm that the style asks for, or else the figure's own size. */
int figure_fit_size(const struct figure_fit *x, const struct table *t, double *ret_w, double *ret_h,
                    struct kvf_diag *d);

/* Creates a canvas for the file at path.  Returns KVF_E_ARG if the extension is not a figure
 * format. */
int figure_canvas(const char *path, double w, double h, const struct figure_style *s,
                  struct canvas **ret, struct kvf_diag *d);
void figure_draw_title(struct canvas *c, const char *title);
/* Draws the figure, or "no data" for a table without rows. s: from figure_fit. */
int figure_draw_on(struct canvas *c, const struct figure *f, const struct table *t,
                   const struct figure_style *s, struct kvf_diag *d);

/* Sets the title and the keywords of the metadata. */
int figure_about(struct canvas *c, const struct figure *f, const struct table *t,
                 const struct figure_style *s);
/* Appends the provenance of the table to out. */
void figure_provenance(const struct table *t, struct buf *out);

/* Writes a complete file, or leaves the path unchanged on error. */
int figure_write_bytes(const char *path, const struct buf *data, struct kvf_diag *d);
