/* table_stack.h - stacks tables of one kind. */
#ifndef KVF_BASE_TABLE_STACK_H
#define KVF_BASE_TABLE_STACK_H

#include "base/table.h"

/* The rows of t[0], t[1], ...  with a first column `key` of name[i]; the columns that all have, in
 * the order of the first; integers and reals become reals, and columns with text in some tables and
 * numbers in others are left out.  Metadata: the metadata that all tables share.  Values are
 * copied.  w, unless NULL, is called with the number of columns done.  KVF_OK, KVF_E_LIMIT (over 8
 * million rows) or KVF_E_NOMEM. */
int table_stack(const struct table *const *t, const char *const *name, int n, const char *key,
                const struct progress_callback *w, struct table **ret, struct kvf_diag *d);

#endif
