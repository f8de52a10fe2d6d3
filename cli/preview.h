/* preview.h - figures on the terminal. */
#ifndef KVF_CLI_PREVIEW_H
#define KVF_CLI_PREVIEW_H

#include "cli/figure_options.h"

/* Whether the standard output gets a picture: --preview, or -o - (out) on a terminal, if there
 * is a figure. */
bool preview_wanted(const struct figure_options *look, const struct figure *f, const char *out);

/* KVF_E_ARG with a sentence where --preview has no figure. */
int preview_check(const struct figure_options *look, const struct figure *f, struct kvf_diag *d);

/* Draws on the standard output: as wide as the terminal, COLUMNS or 80; without colours when
 * NO_COLOR is set and not empty, or TERM is dumb. */
int preview(const struct figure_options *look, const struct figure *f, const struct table *t,
            struct kvf_diag *d);

#endif
