/* table_minus.h - subtracts two tables, head by head. */
#ifndef KVF_CLI_TABLE_MINUS_H
#define KVF_CLI_TABLE_MINUS_H

#include <stdint.h>

#include "base/table.h"

/* The column and the rows of a difference. */
struct table_minus {
    const char *value; /* the column that is subtracted */
    const char *where; /* "key=value,...": selects rows of both tables; NULL selects all rows */
};

/* Subtracts rows of b from rows of a with equal keys (head, layer, index, criterion, horizon,
 * ...). On success the caller owns *ret, the table "difference" with the columns head, layer,
 * index, minuend, subtrahend and difference, in the order of a. *ret_alone counts rows of a and b
 * that have no partner. Returns KVF_OK, KVF_E_ARG with a sentence, or KVF_E_NOMEM. */
int table_minus(const struct table *a, const struct table *b, const struct table_minus *q,
                struct table **ret, int64_t *ret_alone, struct kvf_diag *d);

#endif
