/* os.h - functions that POSIX does not define. One file of base, os_NAME.c, implements them:
 * `meson setup -Dos=NAME`. os_posix.c uses no feature of a specific system. A port to a new system
 * starts as its copy. */
#ifndef KVF_BASE_OS_H
#define KVF_BASE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Sleeps while *word == seen; may return early. After changing *word, a thread calls
 * os_wake_all(). */
void os_wait(_Atomic uint32_t *word, uint32_t seen);
void os_wake_all(_Atomic uint32_t *word);

/* Returns the number of processors that this process may use, which is smaller than the machine's
 * if the process is bound to some. */
int os_processors(void);

/* Returns the bytes of memory of the machine; 0 if not known. */
uint64_t os_memory(void);

/* Fills n <= 256 bytes with unpredictable random data. Returns 0 or an errno. */
int os_random(void *out, size_t n);

/* Hints that the memory will be written completely. */
void os_huge_pages(void *p, size_t bytes);

/* Writes the path of the running program to out, without a terminator. Returns its length, cap if
 * it was truncated, or -1 if it is not known. */
ssize_t os_program_path(char *out, size_t cap);

/* Returns true if this is an aarch64 processor with dot products of bytes. */
bool os_has_dot_products(void);

/* Returns true if this process may use the tiles of an x86-64 processor (AMX), and requests them
 * if necessary. */
bool os_may_use_tiles(void);

#endif
