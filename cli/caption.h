/* caption.h - prints the caption of a figure. */
#ifndef KVF_CLI_CAPTION_H
#define KVF_CLI_CAPTION_H

#include "cli/figure_options.h"

/* Prints the caption of a figure on the standard output if --caption was given.  The figure has one
 * (preview_check). */
int caption_print(const struct figure_options *o, const struct figure *f, const struct table *t,
                  struct kvf_diag *d);

#endif
