/* corpus_out.h - what becomes of the table of a corpus: shared by corpus and merge. */
#ifndef KVF_CLI_CORPUS_OUT_H
#define KVF_CLI_CORPUS_OUT_H

#include <stdbool.h>

#include "cli/figure_options.h"
#include "studies/corpus.h"
#include "studies/corpus_pairs.h"

struct corpus_target {
    const char *out;    /* NULL: none */
    const char *figure; /* NULL: that of the analysis's name */
    bool json;
    struct figure_options look;
};

/* KVF_E_ARG with a sentence unless OUT can be written, a table or a figure of that analysis, and
 * the options of the figure make sense. */
int corpus_out_check(const struct analyzer *a, struct corpus_target *t, struct kvf_diag *d);

/* Writes the table as JSON to stdout, or to OUT, and prints a few lines for people unless stdout
 * has the table. */
int corpus_out(struct corpus *c, const struct corpus_target *to, struct kvf_diag *d);
/* The same of a comparison of pairs, which has no figure. */
int pairs_out(struct corpus_pairs *pairs, const struct corpus_target *to, struct kvf_diag *d);

#endif
