/* files.h - reads the input files of a command, and checks that outputs do not overwrite them. */
#ifndef KVF_BASE_FILES_H
#define KVF_BASE_FILES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/opt.h"

/* Appends the bytes of a file to out, at most 64 MiB; path "-" is stdin. Returns KVF_OK or an
 * error with a sentence. */
int file_read(const char *path, struct buf *out, struct kvf_diag *d);

/* Returns true if two paths refer to one file. */
bool file_same(const char *a, const char *b);

/* Returns KVF_E_ARG with a sentence if `out` is the input file, otherwise KVF_OK. The input may be
 * NULL. An output NULL or "-" overwrites no file. */
int file_keep(const char *out, const char *in, struct kvf_diag *d);
/* Checks n inputs as file_keep() does. */
int files_keep(const char *out, char *const *in, int n, struct kvf_diag *d);

/* Returns KVF_E_IO with a sentence if `out` exists and must not be replaced, otherwise KVF_OK.
 * Call it before long computations. NULL and "-" are not files. */
int file_vacant(const char *out, bool overwrite, struct kvf_diag *d);

/* Calls each(ctx, path) for the files that an operand stands for. A folder stands for its files
 * with this ending that do not begin with a dot, sorted by name. "@LIST" stands for the names in
 * the file LIST, one per line, except lines that begin with '#'. Any other operand stands for
 * itself. Returns KVF_OK, the first error of each(), KVF_E_NOMEM, or KVF_E_IO with a sentence. */
int files_each(const char *operand, const char *ending, int (*each)(void *ctx, const char *path),
               void *ctx, struct kvf_diag *d);

/* Adds n operands to the files of --data. Returns KVF_OK, or KVF_E_ARG with a sentence. */
int files_of_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d);

/* Returns true if the standard output is a regular file, so that its output cannot mix with a
 * progress line. */
bool stdout_is_file(void);

#endif
