/* corpus_out.h - what becomes of the table of a corpus: shared by corpus and merge. */
#ifndef KVF_CLI_CORPUS_OUT_H
#define KVF_CLI_CORPUS_OUT_H

#include <stdbool.h>

#include "analyzers/corpus.h"

/* KVF_E_ARG with a sentence unless OUT (NULL: none) can be written: a table, or a figure of
 * that analysis. */
int corpus_out_check(const struct analyzer *a, const char *out, struct kvf_diag *d);

/* The table as JSON to stdout, or to OUT; a few lines for people unless stdout has it. */
int corpus_out(struct corpus *c, const char *out, bool json, struct kvf_diag *d);

#endif
