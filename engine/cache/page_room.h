/* page_room.h - allocates the pages of a cache. Private to engine/cache/.
 *
 * Pages are parts of larger allocations (pieces): the first has a few pages, later ones have 2 MiB
 * and use huge pages if the system has them. A step over a long cache reads all of it, and would
 * otherwise spend time on address translation of 4 KiB pages. A piece is freed with its last page,
 * by whichever cache returns that page. */
#ifndef KVF_ENGINE_PAGE_ROOM_H
#define KVF_ENGINE_PAGE_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/par.h"

/* A piece of memory with several pages. */
struct page_piece;

/* Stored after the bytes of each page. */
struct page_tail {
    atomic_int holders; /* number of caches that use the page */
    bool blank;         /* never written, not even with zeros */
    struct page_piece *piece;
};

/* The allocator of a cache. */
struct page_room {
    size_t page_bytes; /* bytes of keys and values */
    size_t bought;     /* pages of all pieces so far */
    bool zeros;        /* unused pages are already zero */
    struct page_piece *piece;
    unsigned char *next; /* the first of the n_left unused pages of the newest piece */
    size_t n_left;
};

static inline struct page_tail *page_tail(const struct page_room *r, unsigned char *page)
{
    return (struct page_tail *)(void *)(page + r->page_bytes);
}

/* If no page is left, allocates n > 0 pages and fills them with zeros in parallel. Returns KVF_OK
 * or KVF_E_NOMEM. */
int page_room_stock(struct page_room *r, size_t n, struct par *pool);
/* Returns a blank page with one user, or NULL if memory is short. */
unsigned char *page_room_take(struct page_room *r);
/* Fills a page with zeros before its first write, so that its memory is local to the writing
 * thread. */
void page_room_clear(const struct page_room *r, unsigned char *page);
/* Returns an unused page of this room, or of another one with equal page size. Threads may return
 * pages of one piece concurrently. */
void page_room_give(const struct page_room *r, unsigned char *page);
/* Frees the unused pages. Pages in use stay valid. */
void page_room_close(struct page_room *r);

#endif
