/* training_table.h - records of `train` (GATES.log.jsonl) as one table. */
#ifndef KVF_CLI_TRAINING_TABLE_H
#define KVF_CLI_TRAINING_TABLE_H

#include "base/table.h"

/* One row a step, file after file: run (the file's name without .log.jsonl or .jsonl), step,
 * tokens (of the packs of all steps so far), loss, the quality terms that any file has,
 * limit, value, lr, norm, and what checks found: kl_B for each budget and mean_kl.  What a
 * step or a file lacks is NaN; a check without a step of its own has a row of its own.
 *
 * KVF_OK, KVF_E_IO, KVF_E_FORMAT (no record; d names file and line), KVF_E_LIMIT, KVF_E_NOMEM. */
int training_table(char *const *path, int n, struct table **ret_table, struct kvf_diag *d);

#endif
