/* corpus_ranks.h - sums of a corpus that the ranks of a crew kept in files. */
#ifndef KVF_CLI_CORPUS_RANKS_H
#define KVF_CLI_CORPUS_RANKS_H

#include "studies/corpus.h"

/* Adds to c what a rank kept beside `state` (crew_file), if there is such a file, and removes the
 * file. Sums that have a document of c are left out: that rank was thought dead, and others did its
 * work. KVF_OK, or what corpus_read and corpus_merge give; c is then not to be used any more. */
int corpus_take_rank(struct corpus *c, const char *state, int rank, struct kvf_diag *d);

#endif
