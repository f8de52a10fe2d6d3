/* corpus_out.h - writes or draws the table of a corpus, for `kvfate corpus` and `kvfate corpus
 * merge`. */
#ifndef KVF_CLI_CORPUS_OUT_H
#define KVF_CLI_CORPUS_OUT_H

#include <stdbool.h>

#include "cli/figure_options.h"
#include "studies/corpus.h"
#include "studies/corpus_pairs.h"

/* Options for the output of a corpus. */
struct corpus_target {
    const char *out;    /* -o; NULL if not given */
    const char *figure; /* --figure; NULL for the figure with the name of the analysis */
    bool json;
    struct figure_options look;
};

/* Checks that OUT has the name of a table or of a figure of the analysis, and that the options of
 * the figure are consistent. Returns KVF_OK, or KVF_E_ARG with a sentence. */
int corpus_out_check(const struct analyzer *a, struct corpus_target *t, struct kvf_diag *d);

/* Writes the table as JSON or TSV to stdout, or draws or writes it to OUT. Prints a summary unless
 * stdout received the table or a figure. */
int corpus_out(struct corpus *c, const struct corpus_target *to, struct kvf_diag *d);
/* Writes the table of a comparison of pairs as corpus_out() does. This table has no figure. */
int pairs_out(struct corpus_pairs *pairs, const struct corpus_target *to, struct kvf_diag *d);

#endif
