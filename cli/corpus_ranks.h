/* corpus_ranks.h - collects the sums that the ranks of a crew stored in files. */
#ifndef KVF_CLI_CORPUS_RANKS_H
#define KVF_CLI_CORPUS_RANKS_H

#include "studies/corpus.h"

/* Adds to c the sums of a rank, which are stored in crew_file(state, rank), and removes the file.
 * Does nothing if there is no such file. Sums that share a document with c are dropped: the crew
 * had counted that rank as dead and given its work to other ranks. Returns KVF_OK, or an error of
 * corpus_read() or corpus_merge(), after which c must not be used. */
int corpus_add_rank(struct corpus *c, const char *state, int rank, struct kvf_diag *d);

#endif
