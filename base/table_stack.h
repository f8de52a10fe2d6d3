/* table_stack.h - tables of one kind, one after the other. */
#ifndef KVF_BASE_TABLE_STACK_H
#define KVF_BASE_TABLE_STACK_H

#include "base/table.h"

/* The rows of t[0], t[1], ... with a first column `key` that says name[i]; the columns that
 * all have, in the order of the first; integers beside reals become reals, columns of which
 * some hold text and some numbers are left out.  Metadata: what all tables say alike.
 * Values are copied.  w, unless NULL, is told how many columns are.  KVF_OK, KVF_E_LIMIT (over 8
 * million rows) or KVF_E_NOMEM. */
int table_stack(const struct table *const *t, const char *const *name, int n, const char *key,
                const struct teller *w, struct table **ret, struct kvf_diag *d);

#endif
