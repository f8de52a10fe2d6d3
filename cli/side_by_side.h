/* side_by_side.h - an analysis of one trace, of several: their tables one after the other,
 * for figures that draw traces side by side. */
#ifndef KVF_CLI_SIDE_BY_SIDE_H
#define KVF_CLI_SIDE_BY_SIDE_H

#include "analyzers/analyzer.h"

enum { SIDE_BY_SIDE_MOST = 16 };

/* Runs a on each trace; column `trace` of the table says the name of its file, without folder
 * and extension, or path[i] where these are not all different.  KVF_OK or the first failure. */
int side_by_side(const struct analyzer *a, struct kvf_trace *const *trace, char *const *path, int n,
                 const struct analyzer_args *args, struct table **ret, struct kvf_diag *d);

#endif
