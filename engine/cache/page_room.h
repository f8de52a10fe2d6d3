/* page_room.h - the memory of the pages of a cache; private to engine/cache/.
 *
 * Pages come from pieces of memory, the first of a few pages and later ones of 2 MiB, which are
 * huge pages where the system has them: a step over a long cache reads all of it, and the
 * processor would otherwise wait for the addresses of 4 KiB at a time.  A piece is freed with its
 * last page, whichever cache gives that up. */
#ifndef KVF_ENGINE_PAGE_ROOM_H
#define KVF_ENGINE_PAGE_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/par.h"

struct page_piece;

/* Lies behind the bytes of each page. */
struct page_tail {
    atomic_int holders; /* caches that hold the page */
    bool blank;         /* nothing was ever written to it, not even zeros */
    struct page_piece *piece;
};

struct page_room {
    size_t page_bytes; /* of keys and values */
    size_t bought;     /* pages of all pieces so far */
    bool zeros;        /* the pages that nobody has had are zeros already */
    struct page_piece *piece;
    unsigned char *next; /* of the n_left pages of the newest piece that nobody has had yet */
    size_t n_left;
};

static inline struct page_tail *page_tail(const struct page_room *r, unsigned char *page)
{
    return (struct page_tail *)(void *)(page + r->page_bytes);
}

/* Buys n > 0 pages at once, where none is left, and fills them with zeros in parallel.  KVF_OK or
 * KVF_E_NOMEM. */
int page_room_stock(struct page_room *r, size_t n, struct par *pool);
/* A blank page with one holder; NULL: memory is out. */
unsigned char *page_room_take(struct page_room *r);
/* Zeros for a page before it is written first: so its memory comes to the thread that writes. */
void page_room_clear(const struct page_room *r, unsigned char *page);
/* Gives up a page that nobody holds, of this room or another with pages of that size.  Rooms may
 * give up pages of one piece at once. */
void page_room_give(const struct page_room *r, unsigned char *page);
/* The pages that were taken stay. */
void page_room_close(struct page_room *r);

#endif
