/* table_npz.h - writes a table as numpy's .npz; table_io.h describes its content. */
#ifndef KVF_BASE_TABLE_NPZ_H
#define KVF_BASE_TABLE_NPZ_H

#include "base/replace.h"
#include "base/table.h"

enum { NPZ_MOST_COMMENT = 65535 }; /* maximum bytes of the comment of an archive */

/* Writes a table to an open file. comment: of the archive, at most NPZ_MOST_COMMENT bytes. A write
 * failure is stored in `to` for replace_finish(). Arrays are compressed while they are produced,
 * some rows at a time. Returns KVF_OK, KVF_E_NOMEM, or KVF_E_LIMIT with a sentence. */
int table_npz_write(const struct table *t, const char *comment, const struct teller *w,
                    struct replace *to, struct kvf_diag *d);

#endif
