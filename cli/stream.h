/* stream.h - traces that come from the standard input or go to the standard output.
 *
 * A trace is read and written in no order, so a stream passes through a file: one without a name
 * for what comes in, one in a folder of its own, which is taken away again, for what goes out. */
#ifndef KVF_CLI_STREAM_H
#define KVF_CLI_STREAM_H

#include "base/buf.h"
#include <kvf/err.h>

/* Of n operands that name traces one may be "-", the standard input: it is read to its end, and
 * names a file then that lives as long as the process.  KVF_OK; KVF_E_ARG where several are; or
 * KVF_E_IO with a sentence. */
int stream_operands(int n, char **operand, struct kvf_diag *d);

/* The name of a file that does not exist yet, in a new folder for temporary files.  KVF_OK,
 * KVF_E_NOMEM; KVF_E_ARG where the standard output is a terminal; or KVF_E_IO. */
int stream_out_open(struct buf *ret_path, struct kvf_diag *d);
/* Copies the file to the standard output.  KVF_OK, or KVF_E_IO with a sentence. */
int stream_out_send(const struct buf *path, struct kvf_diag *d);
/* Takes the folder away with all that a trace leaves in it; accepts an empty name. */
void stream_out_close(struct buf *path);

#endif
