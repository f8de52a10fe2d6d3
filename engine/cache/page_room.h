/* page_room.h - the memory of the pages of a cache; private to engine/cache/.
 *
 * Pages come from pieces of memory, the first of a few pages and later ones of 2 MiB, which are
 * huge pages where the system has them: a step over a long cache reads all of it, and the
 * processor would otherwise wait for the addresses of 4 KiB at a time.  A piece is freed with its
 * last page, whichever cache gives that up. */
#ifndef KVF_ENGINE_PAGE_ROOM_H
#define KVF_ENGINE_PAGE_ROOM_H

#include <stdatomic.h>
#include <stddef.h>

struct page_piece;

/* Lies behind the bytes of each page. */
struct page_tail {
    atomic_int holders; /* caches that hold the page */
    struct page_piece *piece;
};

struct page_room {
    size_t page_bytes; /* of keys and values */
    size_t bought;     /* pages of all pieces so far */
    struct page_piece *piece;
    unsigned char *next; /* of the n_left pages of the newest piece that nobody has had yet */
    size_t n_left;
};

static inline struct page_tail *page_tail(const struct page_room *r, unsigned char *page)
{
    return (struct page_tail *)(void *)(page + r->page_bytes);
}

/* A zeroed page with one holder; NULL: memory is out. */
unsigned char *page_room_take(struct page_room *r);
/* Gives up a page that nobody holds, of this room or another with pages of that size.  Rooms may
 * give up pages of one piece at once. */
void page_room_give(const struct page_room *r, unsigned char *page);
/* The pages that were taken stay. */
void page_room_close(struct page_room *r);

#endif
