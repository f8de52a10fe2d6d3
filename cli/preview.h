/* preview.h - draws figures on the terminal. */
#ifndef KVF_CLI_PREVIEW_H
#define KVF_CLI_PREVIEW_H

#include "cli/figure_options.h"

/* Returns true if the standard output receives a figure: --preview was given, or -o - (out) on a
 * terminal, and the table has a figure. */
bool preview_wanted(const struct figure_options *look, const struct figure *f, const char *out);

/* Returns KVF_E_ARG with a sentence if --preview was given and there is no figure, or if --caption
 * was given and the figure has no caption.  Returns KVF_OK otherwise. */
int preview_check(const struct figure_options *look, const struct figure *f, struct kvf_diag *d);

/* Draws a figure on the standard output. Its width is COLUMNS, the width of the terminal, or 80
 * characters. It has no colours if NO_COLOR is set and not empty, or if TERM is dumb. Returns
 * KVF_OK or an error with a sentence. */
int preview_draw(const struct figure_options *look, const struct figure *f, const struct table *t,
                 struct kvf_diag *d);

#endif
