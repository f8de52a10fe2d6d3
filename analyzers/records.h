/* records.h - rows as an array of structs, for tables with only dense columns. */
#pragma once

#include <stddef.h>

#include "base/table.h"

/* A member of the struct: int64_t, double or const char *, by type. */
struct record_member {
    const char *name, *unit;
    enum table_type type;
    size_t offset;
};

/* Adds a column for each of n members, in their order.  rows: table_rows(out) structs of `size`
 * bytes.  KVF_OK, KVF_E_NOMEM, or table_err(out). */
int records_put(struct table *out, const void *rows, size_t size,
                const struct record_member *member, size_t n);
