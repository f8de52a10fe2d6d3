/* table_sqlite.h - a table within an SQLite database; table_io.h describes the content. */
#ifndef KVF_BASE_TABLE_SQLITE_H
#define KVF_BASE_TABLE_SQLITE_H

#include <stdbool.h>

#include "base/table.h"

/* Whether a path names a database, FILE.sqlite, or a table of one, FILE.sqlite/NAME. */
bool table_sqlite_names(const char *path);

/* Puts the table, under its own name or NAME, into the database, which is made where it is
 * missing.  Existing tables stay.  The database is written under a temporary name and renamed: it
 * has the complete table, or is unchanged.  KVF_OK; KVF_E_FORMAT for a file that is no database;
 * KVF_E_ARG for a name that no table can have; KVF_E_IO, KVF_E_NOMEM. */
int table_sqlite_write(const struct table *t, const char *path, const struct progress_callback *w,
                       struct kvf_diag *d);

#endif
