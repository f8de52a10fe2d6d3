/* page_room.c - allocates pages of a cache from pieces of 2 MiB. */
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "engine/cache/page_room.h"

enum { PIECE_BYTES = 2 << 20, FIRST_PAGES = 4 };

/* Header of a piece, stored before its pages in a separate cache line. */
struct page_piece {
    atomic_size_t held; /* pages not yet returned, including unused ones */
};

/* Returns the distance between pages. */
static size_t stride(const struct page_room *r)
{
    size_t bytes = r->page_bytes + sizeof(struct page_tail);
    return (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}

/* Returns the pages of the next piece: as many as exist, to limit unused memory. */
static size_t pages_of_next(const struct page_room *r)
{
#ifdef __SANITIZE_ADDRESS__ /* finds accesses after a piece, not after a page of it */
    return 1;
#endif
    size_t most = (PIECE_BYTES - MEM_ALIGN) / stride(r);
    size_t n = r->bought > FIRST_PAGES ? r->bought : FIRST_PAGES;
    if (n * stride(r) > PIECE_BYTES / 2)
        n = most;
    return n > 0 ? n : 1;
}

/* Returns n pages of a piece, and frees the piece with its last page. */
static void return_pages(struct page_piece *piece, size_t n)
{
    if (atomic_fetch_sub_explicit(&piece->held, n, memory_order_acq_rel) == n)
        mem_free(piece);
}

static bool add_piece(struct page_room *r, size_t n)
{
    unsigned char *piece = mem_alloc_huge(MEM_ALIGN + n * stride(r), 1);
    if (!piece)
        return false;
    r->piece = (struct page_piece *)(void *)piece;
    atomic_init(&r->piece->held, n);
    r->next = piece + MEM_ALIGN;
    r->n_left = n;
    r->bought += n;
    r->zeros = false;
    return true;
}

/* A task fills a piece of 2 MiB, which is one huge page. */
static void zeros_task(void *ctx, int task, int thread)
{
    const struct page_room *r = ctx;
    size_t end = MEM_ALIGN + r->n_left * stride(r);
    size_t from = task ? (size_t)task * PIECE_BYTES : MEM_ALIGN;
    size_t to = end < (size_t)(task + 1) * PIECE_BYTES ? end : (size_t)(task + 1) * PIECE_BYTES;
    (void)thread;
    memset((unsigned char *)r->piece + from, 0, to - from);
}

int page_room_stock(struct page_room *r, size_t n, struct par *pool)
{
#ifdef __SANITIZE_ADDRESS__ /* see pages_of_next */
    n = 1;
#endif
    if (!add_piece(r, n))
        return KVF_E_NOMEM;
    size_t bytes = MEM_ALIGN + n * stride(r);
    par_run(pool, (int)((bytes + PIECE_BYTES - 1) / PIECE_BYTES), zeros_task, r);
    r->zeros = true;
    return KVF_OK;
}

unsigned char *page_room_take(struct page_room *r)
{
    if (r->n_left == 0 && !add_piece(r, pages_of_next(r)))
        return NULL;
    unsigned char *page = r->next;
    r->next += stride(r);
    r->n_left--;
    page_tail(r, page)->piece = r->piece;
    page_tail(r, page)->blank = !r->zeros;
    atomic_init(&page_tail(r, page)->holders, 1);
    return page;
}

void page_room_clear(const struct page_room *r, unsigned char *page)
{
    memset(page, 0, r->page_bytes);
    page_tail(r, page)->blank = false;
}

void page_room_give(const struct page_room *r, unsigned char *page)
{
    return_pages(page_tail(r, page)->piece, 1);
}

void page_room_close(struct page_room *r)
{
    if (r->n_left > 0)
        return_pages(r->piece, r->n_left);
    r->n_left = 0;
}
