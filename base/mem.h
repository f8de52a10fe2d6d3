/* mem.h - checked allocation: no n * size outside these functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { MEM_ALIGN = 64 }; /* one cache line, one AVX-512 register */

/* n * size zeroed bytes aligned to MEM_ALIGN, padded at the end to a multiple of it, so that vector
 * code may read the last partial register.  NULL on overflow or when memory is out; n == 0 gives a
 * valid pointer.  The caller owns it: mem_free(). */
void *mem_alloc(size_t n, size_t size);

/* As mem_alloc, but the bytes are neither zeroed nor touched: for memory that its threads write
 * before they read it. */
void *mem_alloc_raw(size_t n, size_t size);

/* As mem_alloc_raw, for memory that is used completely.  From a megabyte on it uses huge pages if
 * the system has them, which are mapped in a fifth of the time, to each thread as it writes the
 * first bytes of one. */
void *mem_alloc_huge(size_t n, size_t size);

/* As mem_alloc, for memory that is read here and there: on huge pages as mem_alloc_huge. */
void *mem_alloc_spread(size_t n, size_t size);

/* As realloc for a pointer from mem_alloc, or NULL for no elements: keeps old_n elements, zeroes
 * the rest.  On failure p is untouched and NULL is returned. */
void *mem_grow(void *p, size_t old_n, size_t new_n, size_t size);

/* An array [n_rows][cap][width] of elements of `size` bytes, from mem_alloc or its kin. */
struct mem_rows {
    void *at; /* the pointer to it */
    size_t n_rows, width, size;
};

/* Gives n arrays, at most 16, room for cap >= old_cap, which they have; new memory is zero.  If
 * memory is out, returns false and changes no array. */
bool mem_widen(const struct mem_rows *array, int n, size_t old_cap, size_t cap);

/* Accepts NULL. */
void mem_free(void *p);

/* Frees n memory blocks, of which any may be NULL. */
void mem_free_list(void *const *p, size_t n);
/* Frees each of its arguments.  It evaluates them once, before the first is freed. */
#define mem_free_all(...)                                                                          \
    mem_free_list((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))

/* A copy of the string; free with mem_free.  NULL when memory is out. */
char *mem_strdup(const char *s);

/* *ret = a * b; false (and *ret untouched) on overflow. */
bool mem_mul(size_t a, size_t b, size_t *ret);
bool mem_add(size_t a, size_t b, size_t *ret);

#define MEM_NEW(type, n) ((type *)mem_alloc((n), sizeof(type)))
#define MEM_RAW(type, n) ((type *)mem_alloc_raw((n), sizeof(type)))
