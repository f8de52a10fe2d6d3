/* mem.c - checked allocation (mem.h). */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/room.h"

bool mem_mul(size_t a, size_t b, size_t *ret)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

bool mem_add(size_t a, size_t b, size_t *ret)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

/* *ret becomes the bytes that there are. */
static void *reserve(size_t n, size_t size, size_t *ret)
{
    size_t bytes;
    if (!mem_mul(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
#ifdef KVF_MEM_EXACT /* no padding, so that sanitizers see the first byte after the end */
    void *p = NULL;
    if (posix_memalign(&p, MEM_ALIGN, bytes ? bytes : 1) != 0)
        return NULL;
#else
    bytes = (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    if (bytes == 0)
        bytes = MEM_ALIGN;
    void *p = aligned_alloc(MEM_ALIGN, bytes);
#endif
    *ret = bytes;
    return p;
}

void *mem_alloc(size_t n, size_t size)
{
    size_t bytes;
    void *p = reserve(n, size, &bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

void *mem_alloc_raw(size_t n, size_t size)
{
    size_t bytes;
    return reserve(n, size, &bytes);
}

void *mem_alloc_huge(size_t n, size_t size)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t bytes;
    if (!mem_mul(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    if (bytes < HUGE_PAGE / 2)
        return mem_alloc_raw(n, size);
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *p = aligned_alloc(HUGE_PAGE, bytes);
    if (p)
        os_huge_pages(p, bytes);
    return p;
}

void *mem_alloc_spread(size_t n, size_t size)
{
    void *p = mem_alloc_huge(n, size);
    return p ? memset(p, 0, n * size) : NULL;
}

void *mem_grow(void *p, size_t old_n, size_t new_n, size_t size)
{
    void *q = mem_alloc(new_n, size);
    if (!q)
        return NULL;
    if (old_n)
        memcpy(q, p, (old_n < new_n ? old_n : new_n) * size);
    mem_free(p);
    return q;
}

bool mem_room(void *array, size_t n, size_t *cap, size_t least, size_t size)
{
    void *p;
    if (n < *cap)
        return true;
    memcpy(&p, array, sizeof p); /* any pointer to an object */
    size_t more = *cap ? 2 * *cap : least;
    p = mem_grow(p, n, more, size);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = more;
    return true;
}

static void *widened(const struct mem_rows *a, const unsigned char *old, size_t old_cap, size_t cap)
{
    size_t row, was = old_cap * a->width * a->size;
    unsigned char *q = mem_mul(cap, a->width * a->size, &row) ? mem_alloc_spread(a->n_rows, row)
                                                              : NULL;
    for (size_t r = 0; old && q && was && r < a->n_rows; r++)
        memcpy(q + r * row, old + r * was, was);
    return q;
}

bool mem_widen(const struct mem_rows *array, int n, size_t old_cap, size_t cap)
{
    enum { MOST = 16 };
    void *old[MOST], *wide[MOST];
    int made = 0;
    assert(n <= MOST);
    for (bool short_of = false; made < n && !short_of; made += !short_of) {
        memcpy(&old[made], array[made].at, sizeof *old);
        wide[made] = widened(&array[made], old[made], old_cap, cap);
        short_of = !wide[made];
    }
    bool all = made == n;
    for (int i = 0; i < made; i++) {
        mem_free(all ? old[i] : wide[i]);
        if (all)
            memcpy(array[i].at, &wide[i], sizeof *wide);
    }
    return all;
}

void mem_free(void *p)
{
    free(p);
}

void mem_free_list(void *const *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(p[i]);
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = mem_alloc(n, 1);
    return p ? memcpy(p, s, n) : NULL;
}
