/* training_table.h - reads records of `kvfate train` (GATES.log.jsonl) into one table. */
#ifndef KVF_CLI_TRAINING_TABLE_H
#define KVF_CLI_TRAINING_TABLE_H

#include "base/table.h"

/* Makes a table with one row per step, file after file. Its columns are run (file name without
 * .log.jsonl or .jsonl), step, tokens (of the packs of all steps so far), loss, the quality terms
 * that occur in any file, limit, value, lr, norm, and the results of checks: kl_B for each budget,
 * and mean_kl. A value that a step or a file lacks is NaN. A check without a step has its own row.
 *
 * Returns KVF_OK, KVF_E_IO, KVF_E_FORMAT (not a record; d names file and line), KVF_E_LIMIT or
 * KVF_E_NOMEM.
 */
int training_table(char *const *path, int n, struct table **ret_table, struct kvf_diag *d);

#endif
