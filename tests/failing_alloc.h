/* failing_alloc.h - an allocation that fails, for programs linked with --wrap=aligned_alloc. */
#ifndef KVF_TESTS_FAILING_ALLOC_H
#define KVF_TESTS_FAILING_ALLOC_H

#include <stddef.h>

static long allocs_left = -1; /* allocations before the failing one; < 0: no failure */

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    if (allocs_left == 0) {
        allocs_left = -1;
        return NULL;
    }
    allocs_left -= allocs_left > 0;
    return __real_aligned_alloc(align, n);
}

#endif
