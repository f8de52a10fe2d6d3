/* saved_table.h - tables that were written before, for figures. */
#ifndef KVF_CLI_SAVED_TABLE_H
#define KVF_CLI_SAVED_TABLE_H

#include <stdbool.h>

#include "base/table.h"

/* Reads the table at path.  figure: checks also what figures rely on: rows of a head together,
 * layers rising.  KVF_OK, what table_read gives, or KVF_E_ARG with a sentence. */
int saved_table_open(const char *path, bool figure, struct table **ret, struct kvf_diag *d);

#endif
