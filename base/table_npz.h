/* table_npz.h - a table as numpy's .npz; table_io.h describes the content. */
#ifndef KVF_BASE_TABLE_NPZ_H
#define KVF_BASE_TABLE_NPZ_H

#include "base/replace.h"
#include "base/table.h"

enum { NPZ_MOST_COMMENT = 65535 }; /* bytes of the comment of an archive */

/* Writes to an opened file; comment: of the archive, at most NPZ_MOST_COMMENT bytes.  The file
 * keeps a failure to write for replace_finish.  KVF_OK, KVF_E_NOMEM or, with a sentence,
 * KVF_E_LIMIT.  Arrays are made while they are packed, some rows at a time. */
int table_npz_write(const struct table *t, const char *comment, const struct progress_callback *w,
                    struct replace *to, struct kvf_diag *d);

#endif
