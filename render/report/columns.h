/* columns.h - packs a column of a table for the page, in the shortest of several exact forms.
 *
 * Rows form blocks of equal length, one per head, if the table has a column `head` with equally
 * many rows per head.  Otherwise all rows are one block.  A column is one of
 *
 *   "constant":v                 one value in all rows; null: NaN
 *   "affine":[start,step]        start + step * (row within its block)
 *   "strings":[...]              text, one per block ("by":"block") or row ("row")
 *   "quotient":[a,b]             column a / column b, NaN if b is 0
 *   "age":[a,b]                  a < 0 ? -1 : a - b
 *   "derived":"..."              not embedded: the source that it follows from
 *   "type":..,"by":..,"at":[..]  packed numbers (pack.h): one per block, a "cycle" that all blocks
 *                                repeat, or all rows; `at`: starts of chunks: one, or one per
 *                                block of a large column. With "dict":[...] they are indices
 *                                of texts. */
#ifndef KVF_RENDER_REPORT_COLUMNS_H
#define KVF_RENDER_REPORT_COLUMNS_H

#include "base/buf.h"
#include "base/table.h"

/* A packed column. */
struct page_column {
    char name[64];   /* of the column */
    struct buf json; /* its description without braces, for the page's list of columns */
    struct buf text; /* packed numbers; empty if there are none */
};

/* Returns the rows per block: the rows of the first head, if all heads have equally many, else all
 * rows. */
int64_t columns_block(const struct table *t);

/* Packs a column into ret, which the caller zeroes; page_column_finish frees it, also after a
 * failure.  Progress is reported to w.  Returns KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT. */
int column_pack(const struct table *t, int col, int64_t block, const struct progress_callback *w,
                struct page_column *ret);
void page_column_finish(struct page_column *p);

#endif
