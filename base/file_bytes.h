/* file_bytes.h - the whole of an open file, in memory of one's own.
 *
 * A file that is mapped and shrinks meanwhile ends the process with SIGBUS; one that was read does
 * not. */
#ifndef KVF_BASE_FILE_BYTES_H
#define KVF_BASE_FILE_BYTES_H

#include <stddef.h>

/* The first n bytes of the file; mem_free(*ret).  KVF_E_NOMEM, or KVF_E_IO where it has fewer of
 * them, or cannot be read. */
int file_bytes(int fd, size_t n, unsigned char **ret);

#endif
