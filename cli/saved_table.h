/* saved_table.h - reads saved tables for figures. */
#ifndef KVF_CLI_SAVED_TABLE_H
#define KVF_CLI_SAVED_TABLE_H

#include <stdbool.h>

#include "base/table.h"

/* Reads the table at path.  With `figure` it also checks the order of rows that figures rely on:
 * the rows of a head are adjacent, and layers increase.  Returns KVF_OK, an error of table_read(),
 * or KVF_E_ARG with a sentence. */
int saved_table_open(const char *path, bool figure, struct table **ret, struct kvf_diag *d);

#endif
