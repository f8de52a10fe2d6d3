/* info_blobs.h - lists the blobs of a trace for `kvfate trace info`, one line per kind. */
#ifndef KVF_CLI_INFO_BLOBS_H
#define KVF_CLI_INFO_BLOBS_H

#include <kvf/trace.h>

#include "base/buf.h"

/* Returns the name of a type, such as "f32"; "?" for an unknown type. */
const char *dtype_name(int dtype);
/* Appends a line for each kind of blob: name, type, and shape without the first dimension. Appends
 * no text if the trace has no blobs. Returns KVF_OK, an error of kvf_blob(), or KVF_E_NOMEM. On an
 * error the kinds found before it are appended. */
int info_blobs_text(struct buf *b, struct kvf_trace *t, struct kvf_diag *d);
/* Appends the kinds of blobs as a JSON array of objects. Returns as info_blobs_text() does. */
int info_blobs_json(struct buf *b, struct kvf_trace *t, struct kvf_diag *d);

#endif
