/* table_read.h - tables from files that table_write made (TSV, CSV and JSON).
 *
 * Input is not trusted.  Limits: 64 MiB of TSV (16 MiB of JSON, json.h), TABLE_MOST_COLUMNS
 * columns, TABLE_MOST_CELLS cells, TABLE_MOST_META lines of metadata.  Text must be UTF-8 without
 * NUL, rows have a cell for each column, the last line ends with a newline.
 *
 * TSV has no types: a column with only integers is INT, one with only numbers, `nan`, `inf` or
 * `-inf` is REAL, any other STR, also a column that the reader names as text.  A column of no rows
 * is REAL.  Only JSON has units. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/table.h"

enum {
    TABLE_MOST_COLUMNS = 256,
    TABLE_MOST_CELLS = 4 << 20,
    TABLE_MOST_META = 1024,
    TABLE_MOST_BYTES = 64 << 20
};

/* Whether columns of a name hold text, also where all of it looks like numbers: words, tokens,
 * names.  NULL: the cells alone say it. */
typedef bool (*table_text_fn)(const char *column);

/* By the extension of path, .tsv, .csv or .json (any other: KVF_E_ARG).  A TSV file may lack
 * metadata; what a line "# key: value" given twice counts the last time.  Name and metadata of a
 * CSV file are in its sidecar (TABLE_SIDECAR), which may be missing, or in such lines, as earlier
 * versions wrote them.  On success the caller owns *ret: table_destroy.  KVF_OK, KVF_E_IO,
 * KVF_E_FORMAT, KVF_E_CORRUPT (its checksum differs), KVF_E_LIMIT or KVF_E_NOMEM with a sentence
 * that begins with the path. */
int table_read(const char *path, table_text_fn is_text, struct table **ret, struct kvf_diag *d);

/* The same of bytes in memory; sentences name the line. */
int table_parse_tsv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d);
int table_parse_csv(const char *text, size_t n, table_text_fn is_text, struct table **ret,
                    struct kvf_diag *d);
/* Name and metadata of a table from the sidecar of its CSV, which must name the same columns. */
int table_parse_about(struct table *t, const char *text, size_t n, struct kvf_diag *d);
int table_parse_json(const char *text, size_t n, struct table **ret, struct kvf_diag *d);
