/* table_io.h - tables as files: TSV, CSV, JSON, NPZ, SQLite.
 *
 * TSV: provenance in leading "# key: value" lines, one header row, then rows; tab, newline, CR and
 * backslash in text are escaped as \t \n \r \\.  CSV: only the header row and the rows, for
 * programs that know no comments; text is quoted as in RFC 4180, also if it is empty or has a '#'.
 * Its provenance is in a second file, with TABLE_SIDECAR added to the name: the JSON below without
 * "data".  NaN is `nan`; reals are printed with the fewest digits that read back equal.  JSON:
 * {"name","meta":{},"columns":[{"name","unit", "type"}],"data":{column:[...]}}, NaN is null.  NPZ:
 * one array per column (int64, float64, or fixed-width UTF-32 text as numpy's <U), fixed dates; the
 * comment of the archive is this JSON without "data", unless it is longer than a comment can be.
 *
 * SQLite: FILE.sqlite gets a table of this table's name, FILE.sqlite/NAME one of that name, in
 * addition to its tables.  INTEGER, REAL and TEXT columns, NaN is NULL; the table kvfate_meta has
 * table_name, key and value of the provenance, kvfate_columns table_name, column_name and unit.
 *
 * A TSV, CSV or JSON that is a file has a checksum (table_seal.h), which table_read compares;
 * output to a pipe lacks it.
 *
 * Same table, same bytes; a database counts its changes, and is equal only in content. */
#ifndef KVF_BASE_TABLE_IO_H
#define KVF_BASE_TABLE_IO_H

#include <stdbool.h>

#include "base/table.h"

#define TABLE_SIDECAR ".meta.json"

enum table_format { TABLE_TSV, TABLE_CSV, TABLE_JSON, TABLE_NPZ, TABLE_SQLITE, TABLE_FORMAT_NONE };

/* From the extension of path (".tsv", ".csv", ".json", ".npz", ".sqlite"), any case;
 * TABLE_FORMAT_NONE for everything else. */
enum table_format table_format_of(const char *path);

/* Writes to path ("-" = stdout; not for NPZ and SQLite).  The file appears whole or not at
 * all: it is written beside path and renamed.  KVF_E_IO with a sentence when it
 * cannot be written.  The file beside a CSV comes first, so that no CSV lacks it. */
int table_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d);

/* The same, and w is called with the number of rows written, counted for each column if columns
 * follow each other. */
int table_write_watched(const struct table *t, enum table_format f, const char *path,
                        const struct progress_callback *w, struct kvf_diag *d);

#endif
