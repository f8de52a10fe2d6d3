/* stream.h - reads traces from the standard input and writes them to the standard output.
 *
 * A trace is read and written in random order, so a stream is copied through a temporary file.
 * Input uses a file without a name. Output uses a file in its own temporary folder, which is
 * removed afterwards.
 */
#ifndef KVF_CLI_STREAM_H
#define KVF_CLI_STREAM_H

#include "base/buf.h"
#include <kvf/err.h>

/* One of n operands that name traces may be "-", the standard input. Copies it to a temporary file
 * that exists until the process ends, and replaces the operand by the path of that file. Returns
 * KVF_OK, KVF_E_ARG with a sentence if several operands are "-", or KVF_E_IO with a sentence. */
int stream_operands(int n, char **operand, struct kvf_diag *d);

/* Sets *ret_path to a file that does not exist yet, in a new temporary folder. Returns KVF_OK,
 * KVF_E_NOMEM, KVF_E_ARG with a sentence if the standard output is a terminal, or KVF_E_IO with a
 * sentence. */
int stream_out_open(struct buf *ret_path, struct kvf_diag *d);
/* Does so for a trace that is not written to the standard output. */
int temporary_trace(struct buf *ret_path, struct kvf_diag *d);
/* Copies the file to the standard output. Returns KVF_OK, or KVF_E_IO with a sentence. */
int stream_out_send(const struct buf *path, struct kvf_diag *d);
/* Removes the temporary folder and all its files, and frees the path; accepts an empty path. */
void stream_out_close(struct buf *path);

#endif
