/* eval_state.h - an append-only file of finished results of an evaluation.
 *
 * The file is a TSV: a header that contains every setting that the results depend on, then a row
 * for each (document, method, budget). The header and each row end with a checksum. The process
 * may be killed at any time. A row counts if its line is complete; bytes after the last complete
 * line are dropped when the file is opened again. A damaged line is an error.
 */
#ifndef KVF_ENGINE_EVAL_STATE_H
#define KVF_ENGINE_EVAL_STATE_H

#include "engine/experiment/eval.h"

struct eval_state;

/* Opens or creates the file; path is borrowed. With path NULL no result is stored or found. seed:
 * seed of the choice of documents. Returns KVF_OK; KVF_E_FORMAT for a file of another kind or with
 * other settings; KVF_E_IO, also if another process has locked it; or KVF_E_NOMEM. */
int eval_state_open(const char *path, const struct eval *e, uint64_t seed, const char *version,
                    struct eval_state **ret_state, struct kvf_diag *d);
void eval_state_close(struct eval_state *s); /* accepts NULL */

/* Finds the result of a cell on document number `doc` with ids of this hash. Returns 1 if it
 * exists, 0 if not, or KVF_E_FORMAT with a sentence if the file has that document with another
 * text. */
int eval_state_find(const struct eval_state *s, int doc, uint64_t hash,
                    const struct eval_cell *cell, struct eval_result *ret_result,
                    struct kvf_diag *d);

/* Writes one row. Returns KVF_OK or KVF_E_IO. */
int eval_state_add(struct eval_state *s, int doc, uint64_t hash, const struct eval_cell *cell,
                   const struct eval_result *result, struct kvf_diag *d);

/* Merges the rows of n files with equal settings, sorted by document and key, into a new file
 * `out`, which may be one of them. The order of the files does not matter. A row that occurs in
 * several files must be equal in all of them. Returns KVF_OK; KVF_E_FORMAT with a sentence for
 * other settings, different rows or files of another kind; KVF_E_IO or KVF_E_NOMEM. */
int eval_states_merge(char *const *path, int n, const char *out, struct kvf_diag *d);

/* Returns true if a file begins as a result file. */
bool eval_state_is(const char *path);

#endif
