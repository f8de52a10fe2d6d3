/* table.h - tables of named, typed columns, which analyzers pass to figures and writers.
 *
 * A table is a list of columns of equal length. Columns need not be stored completely. Most values
 * that an analyzer reports per (head, token) are constant within a head or equal for all heads. A
 * column is therefore dense, or repeats with a stride, or is read on demand from its source. A
 * table of 90 heads x 128k tokens then stores only the few columns that differ everywhere. The row
 * order is the analyzer's and documented in docs/reference/analyzers.md. Head-major tables have
 * all rows of a head together, and `blocks` gives figures the start of each head.
 *
 * NaN in a float column means "not defined": `nan` in TSV, null in JSON. Integer columns have no
 * NaN; analyzers use -1 if the documentation of the column says so.
 */
#ifndef KVF_BASE_TABLE_H
#define KVF_BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/teller.h"

struct table;

enum table_type { TABLE_INT, TABLE_REAL, TABLE_STR };

/* Fills out[0..n) with rows row0.. of a lazily read column. It must not fail: sources are checked
 * when the table is made. */
typedef void (*table_read_fn)(void *ctx, int64_t row0, int64_t n, double *out);

/* Creates an empty table of n_rows. name: that of the analyzer ("eviction"). Returns NULL if
 * memory is exhausted. Destroy it with table_destroy(), which accepts NULL. */
struct table *table_create(const char *name, int64_t n_rows);
void table_rename(struct table *t, const char *name);
void table_destroy(struct table *t);

/* Add a column. name and unit are copied ("" = no unit), and data is copied. Value of row r:
 *   dense   data[r]                         n_rows values
 *   block   data[r / rows_per_block]        for example one value per head
 *   cycle   data[r % n]                     the same n values for every head
 *   affine  start + step * (r % period)     period 0 = no wrap
 * Failures (no memory, a wrong length) are sticky: see table_err().
 */
void table_dense_int(struct table *t, const char *name, const char *unit, const int64_t *data);
void table_dense_real(struct table *t, const char *name, const char *unit, const double *data);
void table_dense_str(struct table *t, const char *name, const char *unit, const char *const *data);
void table_block_int(struct table *t, const char *name, const char *unit, const int64_t *data,
                     int64_t n_blocks);
void table_block_real(struct table *t, const char *name, const char *unit, const double *data,
                      int64_t n_blocks);
void table_block_str(struct table *t, const char *name, const char *unit, const char *const *data,
                     int64_t n_blocks);
void table_cycle_int(struct table *t, const char *name, const char *unit, const int64_t *data,
                     int64_t n);
void table_cycle_real(struct table *t, const char *name, const char *unit, const double *data,
                      int64_t n);
void table_cycle_str(struct table *t, const char *name, const char *unit, const char *const *data,
                     int64_t n);
void table_affine(struct table *t, const char *name, const char *unit, int64_t start, int64_t step,
                  int64_t period);
/* Adds a column of type INT or REAL that is read on demand. ctx must outlive the table, or be
 * passed to table_own(). */
void table_lazy(struct table *t, const char *name, const char *unit, enum table_type type,
                table_read_fn read, void *ctx);

/* Adds a text column with few distinct texts: row r is text[code[r]], with n_texts texts. The
 * texts are copied, but not the codes: they must outlive the table, or be passed to table_own(). */
void table_coded_str(struct table *t, const char *name, const char *unit, const uint8_t *code,
                     const char *const *text, int n_texts);

/* Makes table_destroy() call destroy(ctx), for sources that lazy columns read. */
void table_own(struct table *t, void *ctx, void (*destroy)(void *ctx));

/* Sets metadata on provenance (model, method, prompt id, command, conventions), as text or number.
 * Keys are unique and a later value replaces an earlier one; the order of first setting is kept. */
void table_meta_str(struct table *t, const char *key, const char *value);
void table_meta_num(struct table *t, const char *key, double value);
const char *table_meta(const struct table *t, const char *key); /* as text; NULL if missing */
double table_meta_real(const struct table *t, const char *key, double otherwise);
/* Returns metadata as an integer; `otherwise` if it is missing or outside int64_t. */
int64_t table_meta_int(const struct table *t, const char *key, int64_t otherwise);
int table_meta_count(const struct table *t);
const char *table_meta_key(const struct table *t, int i);

/* Stores a number that its maker knows and that would take a pass over all rows to compute, for
 * summaries. It is not metadata: it is not written to files. */
void table_keep(struct table *t, const char *key, double value);
double table_kept(const struct table *t, const char *key, double otherwise);

int table_err(const struct table *t); /* KVF_OK or the first failure */

/* Ends a function that makes a table: returns t. If err or table_err(t) is a failure, destroys t
 * and returns NULL. Accepts NULL. */
struct table *table_made(struct table *t, int err);
/* Ends a function that returns an error and a table: sets *ret to t, or destroys t if err is an
 * error.  Returns err.  Accepts NULL with an error. */
int table_deliver(struct table *t, int err, struct table **ret);

/* Reading. */
const char *table_name(const struct table *t);
int64_t table_rows(const struct table *t);
int table_cols(const struct table *t);
int table_find(const struct table *t, const char *name); /* column number, or -1 */
/* Returns the number in the column that is nearest to `want`, the first among ties; NaN if the
 * column has none. */
double table_nearest(const struct table *t, int col, double want);
const char *table_col_name(const struct table *t, int col);
const char *table_col_unit(const struct table *t, int col);
enum table_type table_col_type(const struct table *t, int col);
/* Return rows row0 .. row0 + n - 1 of INT and REAL columns as numbers; integers are exact up to
 * 2^53. STR columns give NaN, or -1 as an integer. An integer of magnitude 2^62 or more gives -1,
 * too, so that differences of two integers do not overflow. Rows out of range are a programming
 * error. */
void table_get(const struct table *t, int col, int64_t row0, int64_t n, double *out);
double table_real(const struct table *t, int col, int64_t row);
int64_t table_int(const struct table *t, int col, int64_t row);
/* Return texts of STR columns, "" for other columns; borrowed until the table is destroyed. Rows
 * of one block or cycle, and rows with a text from one address, usually share a pointer. */
void table_get_str(const struct table *t, int col, int64_t row0, int64_t n, const char **out);
const char *table_str(const struct table *t, int col, int64_t row);

/* Return the value of a row in the column with this name, which must exist. */
static inline double table_row_real(const struct table *t, int64_t row, const char *name)
{
    return table_real(t, table_find(t, name), row);
}
static inline int64_t table_row_int(const struct table *t, int64_t row, const char *name)
{
    return table_int(t, table_find(t, name), row);
}
static inline const char *table_row_str(const struct table *t, int64_t row, const char *name)
{
    return table_str(t, table_find(t, name), row);
}

#endif
