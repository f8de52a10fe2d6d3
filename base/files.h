/* files.h - the files that a command reads, and those that it must not overwrite. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/opt.h"

/* The bytes of a file, - is stdin, appended to out; at most 64 MiB.  KVF_OK or an error with
 * a sentence. */
int file_read(const char *path, struct buf *out, struct kvf_diag *d);

/* Whether two paths lead to the same file. */
bool file_same(const char *a, const char *b);

/* KVF_E_ARG with a sentence when out is the input.  An input NULL is none, and an output NULL or
 * "-" overwrites nothing. */
int file_keep(const char *out, const char *in, struct kvf_diag *d);
/* The same for n inputs. */
int files_keep(const char *out, char *const *in, int n, struct kvf_diag *d);

/* KVF_E_IO with a sentence when something is at `out` and may not be replaced: for what is told
 * before work that takes long.  NULL and "-" are no files. */
int file_vacant(const char *out, bool overwrite, struct kvf_diag *d);

/* Calls each(ctx, path) for an operand that stands for several files: for those of a folder whose
 * names have this ending and do not begin with a dot, in the order of their names; with "@LIST" for
 * the names that a file has one a line, but for lines that begin with '#'; else for the operand
 * itself.  KVF_OK, the first error of `each`, KVF_E_NOMEM, or KVF_E_IO with a sentence. */
int files_each(const char *operand, const char *ending, int (*each)(void *ctx, const char *path),
               void *ctx, struct kvf_diag *d);

/* The n operands are further files of --data.  KVF_OK, KVF_E_ARG or KVF_E_NOMEM. */
int files_of_data(struct opt_list *data, char *const *operand, int n, struct kvf_diag *d);

/* Whether the standard output is a file, so that nothing of it meets a line of progress. */
bool stdout_is_file(void);
