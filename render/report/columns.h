/* columns.h - a column of a table as the page holds it: the shortest of a few exact forms.
 *
 * Rows come in blocks of equal length, one for each head, where the table has a column `head`
 * that says so; else all rows are one block.  A column is one of
 *   "constant":v                 the same value in all rows; null: NaN
 *   "affine":[start,step]        start + step * (row within its block)
 *   "strings":[...]              text, one for each block ("by":"block") or row ("row")
 *   "quotient":[a,b]             column a / column b, NaN where b is 0
 *   "age":[a,b]                  a < 0 ? -1 : a - b
 *   "derived":"..."              not embedded: what it follows from
 *   "type":..,"by":..,"at":[..]  packed numbers (pack.h): one for each block, a "cycle" that all
 *                                blocks repeat, or all rows; `at`: where chunks begin: one, or
 *                                one for each block of a large column.  With "dict":[...] they
 *                                are indices of texts. */
#ifndef KVF_RENDER_REPORT_COLUMNS_H
#define KVF_RENDER_REPORT_COLUMNS_H

#include "base/buf.h"
#include "base/table.h"

struct page_column {
    char name[64];   /* of the column */
    struct buf json; /* its description without the braces, in the page's list of columns */
    struct buf text; /* packed numbers; empty: none */
};

/* Rows of a block: those of the first head, if all heads have as many. */
int64_t columns_block(const struct table *t);

/* w is told how much of it is done.  ret: zeroed; page_column_finish frees it, after a failure too.
 * KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT. */
int column_pack(const struct table *t, int col, int64_t block, const struct teller *w,
                struct page_column *ret);
void page_column_finish(struct page_column *p);

#endif
