/* info_blobs.h - what blobs a trace holds, those of one kind in a line. */
#ifndef KVF_CLI_INFO_BLOBS_H
#define KVF_CLI_INFO_BLOBS_H

#include <kvf/trace.h>

#include "base/buf.h"

/* "f32"; "?" where there is no such type. */
const char *dtype_name(int dtype);
/* A line for each kind of blobs: name, type and shape without its first length.  Nothing where
 * there are none.  Results as kvf_blob, KVF_E_NOMEM: then what was found before is there. */
int info_blobs_text(struct buf *b, struct kvf_trace *t, struct kvf_diag *d);
/* The same as a JSON array of objects. */
int info_blobs_json(struct buf *b, struct kvf_trace *t, struct kvf_diag *d);

#endif
