/* saved_table.h - tables that were written before, for figures. */
#ifndef KVF_CLI_SAVED_TABLE_H
#define KVF_CLI_SAVED_TABLE_H

#include "base/table.h"

/* Reads the table at path, of which figures rely on what analyses promise: rows of a head together,
 * layers rising.  KVF_OK, what table_read gives, or KVF_E_ARG with a sentence. */
int saved_table_open(const char *path, struct table **ret, struct kvf_diag *d);

#endif
