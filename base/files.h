/* files.h - reads the input files of a command and protects them from its output. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/opt.h"

/* Appends the bytes of a file to `out`, at most 64 MiB. The path "-" is the standard input. Returns
 * KVF_OK or an error with a sentence. */
int file_read(const char *path, struct buf *out, struct kvf_diag *d);

/* Returns true if two paths lead to the same file. */
bool file_same(const char *a, const char *b);

/* Returns KVF_E_ARG with a sentence if the output is the input, otherwise KVF_OK. Either may be
 * NULL, and an output "-" never replaces a file. */
int file_keep(const char *out, const char *in, struct kvf_diag *d);
/* Checks n inputs with file_keep(). */
int files_keep(const char *out, char *const *in, int n, struct kvf_diag *d);

/* Returns KVF_E_IO with a sentence if `out` exists and `overwrite` is false. Call it before long
 * work. NULL and "-" are not files. */
int file_vacant(const char *out, bool overwrite, struct kvf_diag *d);

/* Calls each(ctx, path) for every file of an operand. A folder gives its files with this ending, in
 * the order of their names, without names that begin with a dot. "@LIST" gives the names in the
 * file LIST, one a line; lines that begin with '#' are comments. Any other operand is one file.
 * Returns KVF_OK, the first error of `each`, KVF_E_NOMEM, or KVF_E_IO with a sentence. */
int files_each(const char *operand, const char *ending, int (*each)(void *ctx, const char *path),
               void *ctx, struct kvf_diag *d);

/* Appends the n operands to the files of --data. Returns KVF_OK, KVF_E_ARG or KVF_E_NOMEM. */
int files_of_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d);

/* Returns true if the standard output is a regular file, so that output and the line of progress
 * cannot mix. */
bool stdout_is_file(void);
