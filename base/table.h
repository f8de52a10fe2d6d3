/* table.h - named typed columns: the output of analyzers for figures and writers.
 *
 * A table is a list of columns of equal length.  Columns need not be stored: most values of an
 * analyzer for each (head, token) are constant within a head or the same for every head, so a
 * column is dense, or repeats with a stride, or is read on demand from its source.  90 heads x 128k
 * tokens then cost only the few columns that really differ.  Row order is the analyzer's and
 * documented in docs/reference/analyses/README.md; head-major tables put all rows of one head
 * together, and `blocks` has the start of each head for figures.
 *
 * NaN in a float column means "not defined": `nan` in TSV, null in JSON.  Integer columns have no
 * NaN; analyzers use -1 in documented columns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/progress_callback.h"

struct table;

enum table_type { TABLE_INT, TABLE_REAL, TABLE_STR };

/* Fills out[0..n) with rows row0.. of a lazily read column.  Must not fail:
 * sources are checked when the table is made. */
typedef void (*table_read_fn)(void *ctx, int64_t row0, int64_t n, double *out);

/* An empty table of n_rows.  name: the analyzer's ("eviction").
 * NULL when memory is out.  Destroy with table_destroy (accepts NULL). */
struct table *table_create(const char *name, int64_t n_rows);
void table_rename(struct table *t, const char *name);
void table_destroy(struct table *t);

/* Adding columns.  name and unit are copied ("" = no unit); data is copied unless the function
 * "takes" it.  Value of row r:
 *   dense   data[r]                         n_rows values
 *   block   data[r / rows_per_block]        for example one value per head
 *   cycle   data[r % n]                     the same n values for every head
 *   affine  start + step * (r % period)     period 0 = no wrap
 * Failures (no memory, a length that does not fit) are sticky: table_err. */
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
/* type INT or REAL.  ctx must outlive the table, or be given to table_own. */
void table_lazy(struct table *t, const char *name, const char *unit, enum table_type type,
                table_read_fn read, void *ctx);

/* Texts of few kinds: row r has text[code[r]], of n_texts.  The texts are copied, the codes
 * are not: they must outlive the table, or be given to table_own. */
void table_coded_str(struct table *t, const char *name, const char *unit, const uint8_t *code,
                     const char *const *text, int n_texts);

/* destroy(ctx) is called by table_destroy: for sources that lazy columns read. */
void table_own(struct table *t, void *ctx, void (*destroy)(void *ctx));

/* Metadata: provenance (model, method, prompt id, command, conventions).  Text
 * or number; keys are unique, later wins; order of first setting is kept. */
void table_meta_str(struct table *t, const char *key, const char *value);
void table_meta_num(struct table *t, const char *key, double value);
const char *table_meta(const struct table *t, const char *key); /* as text; NULL: none */
double table_meta_real(const struct table *t, const char *key, double otherwise);
/* The same as an integer; `otherwise` also for values beyond int64_t. */
int64_t table_meta_int(const struct table *t, const char *key, int64_t otherwise);
int table_meta_count(const struct table *t);
const char *table_meta_key(const struct table *t, int i);

/* A number that its maker knows and that would take all rows to compute again, for summaries of the
 * table.  No metadata: it is not written, and a table that was read lacks it. */
void table_keep(struct table *t, const char *key, double value);
double table_kept(const struct table *t, const char *key, double otherwise);

int table_err(const struct table *t); /* KVF_OK or the first failure */

/* The end of a function that makes a table: t, or NULL after destroying it where err or
 * table_err(t) is a failure.  Accepts NULL. */
struct table *table_made(struct table *t, int err);
/* Ends a function that returns an error and a table: sets *ret to t, or destroys t if err is an
 * error.  Returns err.  Accepts NULL with an error. */
int table_deliver(struct table *t, int err, struct table **ret);

/* Reading. */
const char *table_name(const struct table *t);
int64_t table_rows(const struct table *t);
int table_cols(const struct table *t);
int table_find(const struct table *t, const char *name); /* column number, or -1 */
/* The number in the column that is nearest to `want`, the first of such; NaN: there is none. */
double table_nearest(const struct table *t, int col, double want);
const char *table_col_name(const struct table *t, int col);
const char *table_col_unit(const struct table *t, int col);
enum table_type table_col_type(const struct table *t, int col);
/* Rows row0 .. row0+n-1 as numbers (INT and REAL columns; integers are exact to
 * 2^53); of STR columns NaN, and -1 as an integer, as is a number of 2^62 or more: differences of
 * two integers fit.  Out of range rows are a programming error. */
void table_get(const struct table *t, int col, int64_t row0, int64_t n, double *out);
double table_real(const struct table *t, int col, int64_t row);
int64_t table_int(const struct table *t, int col, int64_t row);
/* STR columns, "" of others; borrowed until the table is destroyed.  Rows of one block or cycle,
 * and rows with a text from one address, share a pointer as a rule. */
void table_get_str(const struct table *t, int col, int64_t row0, int64_t n, const char **out);
const char *table_str(const struct table *t, int col, int64_t row);

/* The cell of a row in the column of that name, which the table must have. */
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
