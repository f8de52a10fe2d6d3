/* table_npz.h - a table as numpy's .npz; table_io.h says what is in it. */
#ifndef KVF_BASE_TABLE_NPZ_H
#define KVF_BASE_TABLE_NPZ_H

#include "base/table.h"

/* Writes to path, which need not be whole when this fails.  Arrays are made while they are packed,
 * some rows at a time. */
int table_npz_write(const struct table *t, const char *path, struct kvf_diag *d);

#endif
