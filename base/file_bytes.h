/* file_bytes.h - reads an open file into memory.
 *
 * A file that is mapped and shrinks meanwhile ends the process with SIGBUS; one that was read does
 * not. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* The first n bytes of the file; mem_free(*ret).  KVF_E_NOMEM, or KVF_E_IO where it has fewer of
 * them, or cannot be read. */
int file_bytes(int fd, size_t n, unsigned char **ret);

/* Opens a regular file for reading: a descriptor, and its size in *ret_size.  -1 and errno if it
 * cannot be opened; -1 and errno 0 if it is a folder, a device or a pipe, which never waits. */
int file_regular(const char *path, size_t *ret_size);

/* Opens a file that is read to its end; a pipe is one.  NULL and errno: ENODEV for a device. */
FILE *file_with_end(const char *path);
