/* mem.h - checked memory allocation. Only these functions compute n * size. */
#ifndef KVF_BASE_MEM_H
#define KVF_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

enum { MEM_ALIGN = 64 }; /* a cache line, and an AVX-512 register */

/* Returns n * size zeroed bytes aligned to MEM_ALIGN. The allocation is padded to a multiple of
 * MEM_ALIGN, so that vector code may read beyond the last element. Returns NULL on overflow or if
 * memory is exhausted; n == 0 gives a valid pointer. The caller frees it with mem_free(). */
void *mem_alloc(size_t n, size_t size);

/* Allocates as mem_alloc() does, but neither zeroes nor touches the bytes. For memory that threads
 * write before they read it. */
void *mem_alloc_raw(size_t n, size_t size);

/* Allocates as mem_alloc_raw() does, for memory that is used completely. A megabyte or more is
 * placed on huge pages if the system has them. These are allocated in a fifth of the time, when a
 * thread first writes to a page. */
void *mem_alloc_huge(size_t n, size_t size);

/* Allocates as mem_alloc() does, for memory with random access; uses huge pages as
 * mem_alloc_huge() does. */
void *mem_alloc_spread(size_t n, size_t size);

/* Resizes an allocation of mem_alloc(), or NULL with old_n 0. Keeps old_n elements and zeroes the
 * rest. On failure returns NULL, and p is unchanged. */
void *mem_grow(void *p, size_t old_n, size_t new_n, size_t size);

/* An array [n_rows][cap][width] of elements of `size` bytes, allocated by a function of mem.h. */
struct mem_rows {
    void *at; /* address of the pointer to the array */
    size_t n_rows, width, size;
};

/* Enlarges n <= 16 arrays from old_cap to cap >= old_cap; new elements are zero. Returns false if
 * memory is exhausted, and then all arrays are unchanged. */
bool mem_widen(const struct mem_rows *array, int n, size_t old_cap, size_t cap);

/* Frees memory; accepts NULL. */
void mem_free(void *p);

/* Returns a copy of the string, to be freed with mem_free(); NULL if memory is exhausted. */
char *mem_strdup(const char *s);

/* Sets *ret to a * b or a + b. Returns false on overflow, and then *ret is unchanged. */
bool mem_mul(size_t a, size_t b, size_t *ret);
bool mem_add(size_t a, size_t b, size_t *ret);

#define MEM_NEW(type, n) ((type *)mem_alloc((n), sizeof(type)))
#define MEM_RAW(type, n) ((type *)mem_alloc_raw((n), sizeof(type)))

#endif
