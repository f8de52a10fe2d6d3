/* eval_state.h - finished results of an evaluation, in a file that only grows.
 *
 * A TSV: a header that names everything the results depend on, then a row for each
 * (document, method, budget).  The header and each row end with a checksum.  A process may be
 * killed at any point: a row counts when its line is complete, and what follows the last complete
 * line is dropped when the file is opened again.  A damaged line is an error. */
#ifndef KVF_ENGINE_EVAL_STATE_H
#define KVF_ENGINE_EVAL_STATE_H

#include "engine/experiment/eval.h"

struct eval_state;

/* Opens or makes the file; path (borrowed) NULL: nothing is kept and nothing
 * found.  seed: that of the choice of documents.
 * KVF_OK; KVF_E_FORMAT for a file of another kind or of other settings; KVF_E_IO,
 * also when another process works on it; KVF_E_NOMEM. */
int eval_state_open(const char *path, const struct eval *e, uint64_t seed, const char *version,
                    struct eval_state **ret_state, struct kvf_diag *d);
void eval_state_close(struct eval_state *s); /* accepts NULL */

/* The result of a cell on document number `doc`, whose ids have this hash.  Returns 1
 * when there is one, 0 when not, KVF_E_FORMAT when the file has that document with
 * other text. */
int eval_state_find(const struct eval_state *s, int doc, uint64_t hash,
                    const struct eval_cell *cell, struct eval_result *ret_result,
                    struct kvf_diag *d);

/* Writes one row.  KVF_OK or KVF_E_IO. */
int eval_state_add(struct eval_state *s, int doc, uint64_t hash, const struct eval_cell *cell,
                   const struct eval_result *result, struct kvf_diag *d);

/* Puts the rows of n files of the same settings together, by document and key, in a new file `out`,
 * which may be one of them; the order of the files is of no matter.  A row that several have must
 * be the same in all.  KVF_OK; KVF_E_FORMAT with a sentence for other settings, rows that differ
 * and files of another kind; KVF_E_IO, KVF_E_NOMEM. */
int eval_states_merge(char *const *path, int n, const char *out, struct kvf_diag *d);

/* Whether a file begins as one of these does. */
bool eval_state_is(const char *path);

#endif
