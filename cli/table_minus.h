/* table_minus.h - the difference of two tables, head by head. */
#ifndef KVF_CLI_TABLE_MINUS_H
#define KVF_CLI_TABLE_MINUS_H

#include <stdint.h>

#include "base/table.h"

struct table_minus {
    const char *value; /* the column that is subtracted */
    const char *where; /* "key=value,...": rows of both that count; NULL: all */
};

/* Rows of a and b are matched by what names them (head, layer, index, criterion, horizon, ...).
 * On success the caller owns *ret, the table "difference" with the columns head, layer, index,
 * minuend, subtrahend and difference, in the order of a; *ret_alone counts rows of either that
 * have no partner.  KVF_OK, KVF_E_ARG with a sentence, KVF_E_NOMEM. */
int table_minus(const struct table *a, const struct table *b, const struct table_minus *q,
                struct table **ret, int64_t *ret_alone, struct kvf_diag *d);

#endif
