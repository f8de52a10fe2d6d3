/* os.h - functions that POSIX lacks and each system has in its own form.  One file of base,
 * os_NAME.c, gives it: `meson setup -Dos=NAME`.  os_posix.c uses only POSIX; a new system starts as
 * its copy. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Sleeps while *word == seen; may return early.  Code that changes *word calls os_wake_all after
 * it. */
void os_wait(_Atomic uint32_t *word, uint32_t seen);
void os_wake_all(_Atomic uint32_t *word);

/* Processors that this process may use: fewer than the machine has where it is bound to some. */
int os_processors(void);

/* Bytes of memory that the machine has; 0: not known. */
uint64_t os_memory(void);

/* Fills n <= 256 unpredictable bytes.  0 or an errno. */
int os_random(void *out, size_t n);

/* Memory that will be written completely: a hint. */
void os_huge_pages(void *p, size_t bytes);

/* The path of the running program, not ended by a zero byte: its length, cap where it was cut;
 * -1: not known. */
ssize_t os_program_path(char *out, size_t cap);

/* Whether an aarch64 processor has dot products of bytes; false for others. */
bool os_has_dot_products(void);

/* Whether this process may use the tiles of an x86-64 processor, which it asks for where that is
 * needed; false for other processors. */
bool os_may_use_tiles(void);
