/* file_bytes.h - reads an open file into memory.
 *
 * A mapped file that is truncated ends the process with SIGBUS; a file that was read does not.
 */
#ifndef KVF_BASE_FILE_BYTES_H
#define KVF_BASE_FILE_BYTES_H

#include <stddef.h>
#include <stdio.h>

/* Reads the first n bytes of the file into *ret, to be freed with mem_free(). Returns KVF_OK,
 * KVF_E_NOMEM, or KVF_E_IO if the file is shorter or cannot be read. */
int file_bytes(int fd, size_t n, unsigned char **ret);

/* Opens a regular file for reading. Returns a descriptor, and the size in *ret_size. Returns -1
 * and sets errno if it cannot be opened. Returns -1 with errno 0 for a folder, a device or a pipe,
 * and never blocks. */
int file_regular(const char *path, size_t *ret_size);

/* Opens a file that has an end, which includes pipes. Returns NULL and sets errno on failure,
 * ENODEV for a device. */
FILE *file_with_end(const char *path);

#endif
