/* text_kind.h - distinguishes text from other files by the first bytes. */
#pragma once

#include <stddef.h>

#include <kvf/err.h>

/* Checks that the n bytes at the start of a file can be UTF-8 text, and sets *ret_mark to the
 * bytes of its byte-order mark, 3 or 0, which are not part of the text.  KVF_E_FORMAT with a
 * sentence that names the path, the type of the file and a remedy.  Rejected types: UTF-16 and
 * UTF-32 text, compressed files, archives, tables and other binary files. */
int text_kind_check(const char *path, const char *s, size_t n, size_t *ret_mark,
                    struct kvf_diag *d);
