/* table_io.h - writes tables as files: TSV, CSV, JSON, NPZ, SQLite.
 *
 * TSV: provenance in leading "# key: value" lines, one header row, then the rows. Tab, newline, CR
 * and backslash in text are escaped as \t \n \r \\. NaN is `nan`, and reals have the fewest digits
 * that read back equal.
 *
 * CSV: only the header row and the rows, for programs that do not know comments. Text is quoted as
 * in RFC 4180, also if it is empty or contains '#'. The provenance is in a second file, with
 * TABLE_SIDECAR appended to the name: the JSON below without "data".
 *
 * JSON: {"name","meta":{},"columns":[{"name","unit","type"}],"data":{column:[...]}}; NaN is null.
 *
 * NPZ: one array per column (int64, float64, or fixed-width UTF-32 text as numpy's <U), with fixed
 * dates. The comment of the archive is this JSON without "data", unless it exceeds the maximum
 * length of a comment.
 *
 * SQLite: FILE.sqlite receives a table with the name of this table, and FILE.sqlite/NAME a table
 * NAME, in addition to its existing tables. Columns are INTEGER, REAL and TEXT, and NaN is NULL.
 * The table kvfate_meta has table_name, key and value of the provenance, and kvfate_columns has
 * table_name, column_name and unit.
 *
 * A TSV, CSV or JSON file has a checksum (table_seal.h), which table_read() compares; output to a
 * pipe has none.
 *
 * Equal tables give equal bytes. A database contains a change counter, so only its content is
 * equal.
 */
#ifndef KVF_BASE_TABLE_IO_H
#define KVF_BASE_TABLE_IO_H

#include <stdbool.h>

#include "base/table.h"

#define TABLE_SIDECAR ".meta.json"

enum table_format { TABLE_TSV, TABLE_CSV, TABLE_JSON, TABLE_NPZ, TABLE_SQLITE, TABLE_FORMAT_NONE };

/* Returns the format for the extension of path (".tsv", ".csv", ".json", ".npz", ".sqlite"),
 * ignoring case; TABLE_FORMAT_NONE for any other. */
enum table_format table_format_of(const char *path);

/* Writes a table to path ("-" = stdout; not for NPZ and SQLite). The file appears completely or
 * not at all (replace.h). The second file of a CSV is written first, so that no CSV lacks it.
 * Returns KVF_OK, KVF_E_IO with a sentence if it cannot be written, or another error. */
int table_write(const struct table *t, enum table_format f, const char *path, struct kvf_diag *d);

/* Writes as table_write() does, and reports the rows written to w. For formats that store columns
 * one by one, rows are counted per column. */
int table_write_watched(const struct table *t, enum table_format f, const char *path,
                        const struct teller *w, struct kvf_diag *d);

#endif
