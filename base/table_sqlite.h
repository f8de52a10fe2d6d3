/* table_sqlite.h - writes a table into an SQLite database; table_io.h describes its content. */
#ifndef KVF_BASE_TABLE_SQLITE_H
#define KVF_BASE_TABLE_SQLITE_H

#include <stdbool.h>

#include "base/table.h"

/* Returns true if a path names a database, FILE.sqlite, or a table in one, FILE.sqlite/NAME. */
bool table_sqlite_names(const char *path);

/* Writes the table into the database, with its own name or NAME. Creates a missing database and
 * keeps its other tables. The database is written as a temporary file and renamed, so it has the
 * complete table or is unchanged. Returns KVF_OK, KVF_E_FORMAT for a file that is not a database,
 * KVF_E_ARG for an impossible table name, KVF_E_IO or KVF_E_NOMEM. */
int table_sqlite_write(const struct table *t, const char *path, const struct teller *w,
                       struct kvf_diag *d);

#endif
