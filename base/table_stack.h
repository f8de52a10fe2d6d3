/* table_stack.h - concatenates tables of one kind. */
#ifndef KVF_BASE_TABLE_STACK_H
#define KVF_BASE_TABLE_STACK_H

#include "base/table.h"

/* Concatenates the rows of t[0], t[1], ... and adds a first column `key` with name[i]. Keeps the
 * columns that all tables have, in the order of the first one. A column that is integer in some
 * tables and real in others becomes real. A column that is text in some and numeric in others is
 * omitted. Keeps metadata that is equal in all tables. Values are copied. Unless w is NULL,
 * reports the finished columns to it. Returns KVF_OK, KVF_E_LIMIT (over 8 million rows) or
 * KVF_E_NOMEM. */
int table_stack(const struct table *const *t, const char *const *name, int n, const char *key,
                const struct teller *w, struct table **ret, struct kvf_diag *d);

#endif
