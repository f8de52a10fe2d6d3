/* table_read.h - reads tables from files that table_write() made (TSV, CSV and JSON).
 *
 * The input is not trusted. Limits: 64 MiB of TSV (16 MiB of JSON, json.h), TABLE_MOST_COLUMNS
 * columns, TABLE_MOST_CELLS cells, TABLE_MOST_META lines of metadata. Text must be UTF-8 without
 * NUL, rows must have a cell for each column, and the last line must end with a newline.
 *
 * TSV has no types. A column is INT if all its cells are integers, and REAL if all its cells are
 * numbers, `nan`, `inf` or `-inf`. Any other column is STR, and so are columns that the reader
 * declares as text. A column without rows is REAL. Only JSON has units.
 */
#ifndef KVF_BASE_TABLE_READ_H
#define KVF_BASE_TABLE_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/table.h"

enum {
    TABLE_MOST_COLUMNS = 256,
    TABLE_MOST_CELLS = 4 << 20,
    TABLE_MOST_META = 1024,
    TABLE_MOST_BYTES = 64 << 20
};

/* Returns true if columns with this name are text, even if all cells look like numbers: words,
 * tokens, names. NULL lets the cells decide. */
typedef bool (*table_text_fn)(const char *column);

/* Reads a table by the extension of path, .tsv, .csv or .json (any other: KVF_E_ARG). A TSV file
 * may lack metadata; of a repeated "# key: value" the last value counts. Name and metadata of a
 * CSV file are in its second file (TABLE_SIDECAR), which may be missing, or in such lines, as in
 * files of earlier versions. On success the caller owns *ret (table_destroy). Returns KVF_OK, or
 * with a sentence that begins with the path KVF_E_IO, KVF_E_FORMAT, KVF_E_CORRUPT (its checksum
 * differs), KVF_E_LIMIT or KVF_E_NOMEM. */
int table_read(const char *path, table_text_fn is_text, struct table **ret, struct kvf_diag *d);

/* Parse n bytes in memory as table_read() does; sentences name the line. */
int table_parse_tsv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d);
int table_parse_csv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d);
/* Reads name and metadata of a table from the second file of its CSV, which must name the same
 * columns. */
int table_parse_about(struct table *t, const char *text, size_t n, struct kvf_diag *d);
int table_parse_json(const char *text, size_t n, struct table **ret, struct kvf_diag *d);

#endif
