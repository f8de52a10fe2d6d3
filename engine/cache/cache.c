/* cache.c - appends, evictions and compaction of the heads of a cache. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/cache/store.h"

/* Drops a reference to a page; returns true if it was the last one. */
static bool drop_reference(const struct cache *c, unsigned char *page)
{
    return atomic_fetch_sub_explicit(holders(c, page), 1, memory_order_acq_rel) == 1;
}

int64_t cache_bytes(const struct cache_config *cfg, int entries)
{
    int64_t pages = (int64_t)((entries + PAGE_SLOTS - 1) / PAGE_SLOTS);
    return 2 * (int64_t)kv_half_bytes(cfg->type, cfg->head_dim) * pages * cfg->n_layers
           * cfg->n_heads;
}

int cache_create(const struct cache_config *cfg, struct cache **ret_cache)
{
    struct cache *c = MEM_NEW(struct cache, 1);
    if (!c)
        return KVF_E_NOMEM;
    c->cfg = *cfg;
    c->half_bytes = kv_half_bytes(cfg->type, cfg->head_dim);
    c->room.page_bytes = 2 * c->half_bytes;
    c->stats.page_bytes = (int64_t)c->room.page_bytes;
    c->head = MEM_NEW(struct head, (size_t)cfg->n_layers * (size_t)cfg->n_heads);
    c->gone = MEM_NEW(int32_t, (size_t)cfg->n_layers * (size_t)cfg->n_heads * FEW_GONE);
    if (!c->head || !c->gone) {
        cache_destroy(c);
        return KVF_E_NOMEM;
    }
    *ret_cache = c;
    return KVF_OK;
}

void cache_destroy(struct cache *c)
{
    if (!c)
        return;
    for (int i = 0; c->head && i < c->cfg.n_layers * c->cfg.n_heads; i++) {
        struct head *h = &c->head[i];
        for (int p = 0; p < h->n_pages; p++)
            if (drop_reference(c, h->page[p]))
                page_room_give(&c->room, h->page[p]);
        mem_free_all(h->page, h->news, h->pos, h->until, h->list);
    }
    for (int64_t i = 0; i < c->n_free; i++)
        page_room_give(&c->room, c->free[i]);
    page_room_close(&c->room);
    mem_free_all(c->free, c->gone, c->head, c);
}

static int32_t *grow_ints(int32_t *old, int n, int cap)
{
    return mem_grow(old, (size_t)n, (size_t)cap, sizeof(int32_t));
}

int store_grow_head(struct head *h, int slots)
{
    int cap = h->cap ? h->cap : PAGE_SLOTS;
    while (cap < slots)
        cap *= 2;
    if (cap == h->cap)
        return KVF_OK;
    int32_t *pos = grow_ints(h->pos, used_slots(h), cap);
    if (!pos)
        return KVF_E_NOMEM;
    h->pos = pos;
    int32_t *until = grow_ints(h->until, used_slots(h), cap);
    if (!until)
        return KVF_E_NOMEM;
    h->until = until;
    int32_t *list = mem_alloc(2, (size_t)cap * sizeof *list);
    if (!list)
        return KVF_E_NOMEM;
    if (h->n > 0)
        memcpy(list, h->order, (size_t)h->n * sizeof *list);
    mem_free(h->list);
    h->list = h->order = list;
    unsigned char **page = mem_grow(h->page, (size_t)h->n_pages, (size_t)(cap / PAGE_SLOTS),
                                    sizeof *page);
    if (!page)
        return KVF_E_NOMEM;
    h->page = page;
    unsigned char *news = mem_grow(h->news, (size_t)(h->cap / PAGE_SLOTS),
                                   (size_t)(cap / PAGE_SLOTS), sizeof *news);
    if (!news)
        return KVF_E_NOMEM;
    h->news = news;
    h->cap = cap;
    return KVF_OK;
}

int store_grow_free(struct cache *c, int64_t pages)
{
    int64_t cap = c->free_cap ? c->free_cap : 64;
    while (cap < pages)
        cap *= 2;
    if (cap == c->free_cap)
        return KVF_OK;
    unsigned char **list = mem_grow(c->free, (size_t)c->n_free, (size_t)cap, sizeof *list);
    if (!list)
        return KVF_E_NOMEM;
    c->free = list;
    c->free_cap = cap;
    return KVF_OK;
}

static int new_page(struct cache *c, unsigned char **ret)
{
    if (c->n_free) {
        *ret = c->free[--c->n_free];
        return KVF_OK;
    }
    if (store_grow_free(c, c->n_pages + 1) != KVF_OK)
        return KVF_E_NOMEM;
    unsigned char *p = page_room_take(&c->room);
    if (!p)
        return KVF_E_NOMEM;
    c->n_pages++;
    *ret = p;
    return KVF_OK;
}

/* Moves the unused pages of the newest piece to the free list. */
static int free_the_rest(struct cache *c)
{
    int err = store_grow_free(c, c->n_pages + (int64_t)c->room.n_left);
    if (err)
        return err;
    while (c->room.n_left > 0) {
        c->free[c->n_free++] = page_room_take(&c->room);
        c->n_pages++;
    }
    return KVF_OK;
}

static int64_t pages_of_all(const struct cache *c, int entries)
{
    return (int64_t)((entries + PAGE_SLOTS - 1) / PAGE_SLOTS) * c->cfg.n_layers * c->cfg.n_heads;
}

int cache_stock(struct cache *c, int now, int ahead, struct par *pool)
{
    int64_t there = c->n_free + (int64_t)c->room.n_left;
    if (pages_of_all(c, now) <= there)
        return KVF_OK;
    int err = free_the_rest(c);
    return err ? err : page_room_stock(&c->room, (size_t)(pages_of_all(c, ahead) - there), pool);
}

/* Puts a page on the free list if this cache was its last user. */
static void return_page(struct cache *c, unsigned char *page)
{
    if (drop_reference(c, page)) {
        atomic_store_explicit(holders(c, page), 1, memory_order_relaxed);
        c->free[c->n_free++] = page;
    } else {
        c->n_pages--;
    }
}

/* Returns a page of a head for writing. */
static unsigned char *page_to_write(const struct cache *c, const struct head *h, int p)
{
    unsigned char *page = h->page[p];
    assert(!c->forked || is_private(c, page));
    if (page_tail(&c->room, page)->blank)
        page_room_clear(&c->room, page);
    return page;
}

/* Returns a page for writing and marks it as changed for a mirror of the cache. */
static unsigned char *news_to_write(const struct cache *c, const struct head *h, int p)
{
    h->news[p] = 1;
    return page_to_write(c, h, p);
}

static void move_entry(const struct cache *c, struct head *h, int from, int to)
{
    kv_copy(h->page[from / PAGE_SLOTS], from % PAGE_SLOTS, news_to_write(c, h, to / PAGE_SLOTS),
            to % PAGE_SLOTS, c->cfg.type, c->cfg.head_dim);
    h->pos[to] = h->pos[from];
    h->until[to] = h->until[from];
}

/* Moves keys and values of n entries from slot `from` down to slot `to`. */
static void move_run(const struct cache *c, struct head *h, int from, int to, int n)
{
    while (n > 0) {
        int i = from % PAGE_SLOTS, o = to % PAGE_SLOTS;
        int m = PAGE_SLOTS - (i > o ? i : o);
        m = m < n ? m : n;
        kv_move(h->page[from / PAGE_SLOTS], i, news_to_write(c, h, to / PAGE_SLOTS), o, m,
                c->cfg.type, c->cfg.head_dim);
        from += m;
        to += m;
        n -= m;
    }
}

/* Moves keys and values after compaction. */
static void move_up(const struct cache *c, struct head *h)
{
    const int32_t *gone = c->gone + (h - c->head) * FEW_GONE;
    int end = h->n + h->n_gone, to = gone[0];
    for (int i = 0; i < h->n_gone; i++) {
        int from = gone[i] + 1, n = (i + 1 < h->n_gone ? gone[i + 1] : end) - from;
        move_run(c, h, from, to, n);
        to += n;
    }
    h->n_gone = 0;
}

struct head *store_whole(const struct cache *c, int layer, int head)
{
    struct head *h = head_at(c, layer, head);
    if (h->n_gone)
        move_up(c, h);
    return h;
}

int cache_own(struct cache *c, int layer, int head, int from, int to)
{
    struct head *h = head_at(c, layer, head);
    for (int p = from / PAGE_SLOTS; c->forked && from < to && p * PAGE_SLOTS < to; p++) {
        unsigned char *copy;
        if (is_private(c, h->page[p]))
            continue;
        if (new_page(c, &copy) != KVF_OK)
            return KVF_E_NOMEM;
        if (!page_tail(&c->room, h->page[p])->blank) {
            memcpy(copy, h->page[p], 2 * c->half_bytes);
            page_tail(&c->room, copy)->blank = false;
        }
        return_page(c, h->page[p]);
        h->page[p] = copy;
    }
    return KVF_OK;
}

int cache_reserve(struct cache *c, int layer, int head, int n)
{
    struct head *h = head_at(c, layer, head);
    int err = store_grow_head(h, h->n + n);
    if (err)
        return err;
    int room = h->n_pages * PAGE_SLOTS; /* appends may continue in a shared page */
    err = cache_own(c, layer, head, used_slots(h), h->n + n < room ? h->n + n : room);
    if (err)
        return err;
    if (h->gap == GAP_OPEN && h->hole < h->n) {
        err = cache_own(c, layer, head, h->hole, h->hole + 1);
        if (err)
            return err;
    }
    while (h->n_pages * PAGE_SLOTS < h->n + n) {
        err = new_page(c, &h->page[h->n_pages]);
        if (err)
            break;
        h->n_pages++;
        c->stats.pages++;
    }
    if (c->stats.pages > c->stats.pages_peak)
        c->stats.pages_peak = c->stats.pages;
    return err;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Updates the counts of leading slots after an append. */
static void note_leading(struct head *h, int n, int slot, int32_t until)
{
    if (slot == n) {
        h->firm += h->firm == n && until == NEVER_EXPIRES;
        h->sorted += h->sorted == n;
    } else if (until != NEVER_EXPIRES) {
        h->firm = least(h->firm, slot);
    }
}

/* Returns space for one number per slot, in the half of the list that order[] does not use. */
static int32_t *number_buffer(struct head *h)
{
    if (h->order + h->n > h->list + h->cap) {
        memmove(h->list, h->order, (size_t)h->n * sizeof *h->list);
        h->order = h->list;
    }
    return h->list + h->cap;
}

/* Registers a newcomer and returns its slot. */
static int add_newcomer(struct head *h, int32_t pos, int32_t until)
{
    int n = h->n++, slot = h->gap == GAP_OPEN ? h->hole : n;
    h->pos[slot] = pos;
    h->until[slot] = until;
    if (n == 0 || until < h->soonest)
        h->soonest = until;
    h->moved |= pos != slot;
    h->gap = GAP_NONE;
    note_leading(h, n, slot, until);
    if (h->order + n == h->list + 2 * h->cap) {
        memcpy(h->list, h->order, (size_t)n * sizeof *h->list);
        h->order = h->list;
    }
    h->order[n] = slot; /* the newest position is the last in order */
    return slot;
}

int cache_append(struct cache *c, const struct kernels *k, int layer, int head,
                 const struct cache_entry *e)
{
    struct head *h = store_whole(c, layer, head);
    int slot = add_newcomer(h, e->pos, e->expires_at);
    unsigned char *page = news_to_write(c, h, slot / PAGE_SLOTS);
    k->kv_store(page, page + c->half_bytes, c->cfg.type, slot % PAGE_SLOTS, e->key, e->value,
                c->cfg.head_dim);
    return slot;
}

void cache_append_pages(struct cache *c, int layer, int head, int32_t pos, const int32_t *until,
                        int n, const unsigned char *pages)
{
    struct head *h = store_whole(c, layer, head);
    int first = h->n, end = first + n, page = first / PAGE_SLOTS;
    assert(h->gap != GAP_OPEN);
    for (; page * PAGE_SLOTS < end; page++, pages += 2 * c->half_bytes) {
        int from = page * PAGE_SLOTS < first ? first % PAGE_SLOTS : 0;
        int to = end - page * PAGE_SLOTS < PAGE_SLOTS ? end - page * PAGE_SLOTS : PAGE_SLOTS;
        unsigned char *own = page_to_write(c, h, page);
        if (from == 0 && to == PAGE_SLOTS)
            memcpy(own, pages, 2 * c->half_bytes);
        for (int s = from; s < to && (from > 0 || to < PAGE_SLOTS); s++)
            kv_copy(pages, s, own, s, c->cfg.type, c->cfg.head_dim);
    }
    for (int i = 0; i < n; i++)
        add_newcomer(h, pos + i, until[i]);
}

static void release_pages(struct cache *c, struct head *h)
{
    while ((h->n_pages - 1) * PAGE_SLOTS >= used_slots(h) && h->n_pages > 0) {
        return_page(c, h->page[--h->n_pages]);
        c->stats.pages--;
    }
}

static void find_soonest(struct head *h)
{
    int32_t soonest = NEVER_EXPIRES;
    while (h->firm < h->n && h->until[h->firm] == NEVER_EXPIRES)
        h->firm++;
    for (int s = h->firm; s < used_slots(h); s++) /* includes an open slot */
        soonest = h->until[s] < soonest ? h->until[s] : soonest;
    h->soonest = soonest;
}

/* Returns the index of a slot in order[]. It searches in blocks, so no inverse array is needed. */
static int place_of(const struct head *h, int slot)
{
    enum { BLOCK = 32 }; /* shorter loops are unrolled instead of vectorised */
    const int32_t *order = h->order;
    int at = 0, any = 0;
    for (; at + BLOCK <= h->n; at += BLOCK) {
        for (int i = 0; i < BLOCK; i++)
            any |= order[at + i] == slot;
        if (any)
            break;
    }
    while (h->order[at] != slot)
        at++;
    return at;
}

/* Removes an element of order[]; moves the shorter side. */
static void remove_from_order(struct head *h, int at)
{
    int behind = h->n - 1 - at;
    if (at < behind) {
        memmove(h->order + 1, h->order, (size_t)at * sizeof *h->order);
        h->order++;
    } else {
        memmove(h->order + at, h->order + at + 1, (size_t)behind * sizeof *h->order);
    }
}

void cache_evict(struct cache *c, int layer, int head, int slot)
{
    struct head *h = head_at(c, layer, head);
    bool some_go = h->soonest != NEVER_EXPIRES;
    bool first_to_go = some_go && h->until[slot] == h->soonest;
    assert(h->gap == GAP_NONE);
    remove_from_order(h, place_of(h, slot));
    h->n--;
    h->gap = GAP_OPEN;
    h->hole = slot;
    h->firm = least(h->firm, h->n);
    h->sorted = least(h->sorted, slot);
    if (some_go)
        h->until[slot] = NEVER_EXPIRES;
    if (first_to_go)
        find_soonest(h);
    release_pages(c, h);
}

enum cache_gap cache_gap(const struct cache *c, int layer, int head, int *ret_slot)
{
    const struct head *h = head_at(c, layer, head);
    if (ret_slot)
        *ret_slot = h->hole;
    return (enum cache_gap)h->gap;
}

bool cache_settle(struct cache *c, int layer, int head)
{
    struct head *h = store_whole(c, layer, head);
    bool moves = h->gap == GAP_OPEN && h->hole < h->n;
    if (moves) {
        h->order[place_of(h, h->n)] = h->hole;
        move_entry(c, h, h->n, h->hole);
        h->moved = true;
        if (h->until[h->hole] != NEVER_EXPIRES)
            h->firm = least(h->firm, h->hole);
    }
    if (h->gap == GAP_OPEN)
        h->gap = GAP_FILLED;
    release_pages(c, h);
    return moves;
}

bool cache_reopen(struct cache *c, int layer, int head)
{
    struct head *h = head_at(c, layer, head);
    bool moves = h->gap == GAP_FILLED && h->hole < h->n;
    if (moves) {
        h->order[place_of(h, h->hole)] = h->n;
        move_entry(c, h, h->hole, h->n);
        h->until[h->hole] = NEVER_EXPIRES;
    }
    if (h->gap == GAP_FILLED)
        h->gap = GAP_OPEN;
    return moves;
}

int cache_list_gone(const unsigned char *keep, int n, int most, int32_t *ret_gone)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        const unsigned char *at = memchr(keep + i, 0, (size_t)(n - i));
        if (!at)
            break;
        if (m == most)
            return -1;
        i = (int)(at - keep);
        ret_gone[m++] = i;
    }
    return m;
}

/* Returns true if keys and values can move later: few entries are evicted and no page becomes
 * free. */
static bool defer_moves(const struct cache *c, struct head *h, const unsigned char *keep, int end)
{
    int m = cache_list_gone(keep, end, FEW_GONE, c->gone + (h - c->head) * FEW_GONE);
    bool all_pages = m >= 0 && (h->n_pages - 1) * PAGE_SLOTS < end - m;
    h->n_gone = all_pages ? (unsigned char)m : 0;
    return all_pages;
}

/* Renumbers order[] for the slots from `first` on; -1: evicted. */
static void rename_order(struct head *h, const int32_t *renamed, int first, int n)
{
    int m = least(first, h->sorted);
    for (int i = m; i < h->n; i++) { /* filtering a sorted list keeps it sorted */
        int slot = h->order[i];
        if (slot >= first)
            slot = renamed[slot];
        if (slot >= 0)
            h->order[m++] = slot;
    }
    h->n = n;
    h->sorted = least(h->sorted, first);
    while (h->sorted < n && h->order[h->sorted] == h->sorted)
        h->sorted++;
}

void cache_close_ranks(struct cache *c, int layer, int head, const unsigned char *keep)
{
    struct head *h = store_whole(c, layer, head);
    int end = used_slots(h);
    const unsigned char *goes = memchr(keep, 0, (size_t)end);
    int first = goes ? (int)(goes - keep) : end, n = first;
    int32_t *renamed = number_buffer(h);
    bool later = defer_moves(c, h, keep, end);
    for (int s = first, run; s < end; s += run) {
        for (run = 1; s + run < end && !keep[s + run] == !keep[s];)
            run++;
        for (int i = 0; i < run; i++)
            renamed[s + i] = keep[s] ? n + i : -1;
        if (!keep[s])
            continue;
        h->moved = true;
        memmove(h->pos + n, h->pos + s, (size_t)run * sizeof *h->pos);
        memmove(h->until + n, h->until + s, (size_t)run * sizeof *h->until);
        if (!later)
            move_run(c, h, s, n, run);
        n += run;
    }
    rename_order(h, renamed, first, n);
    h->gap = GAP_CLOSED;
    h->firm = least(h->firm, first);
    find_soonest(h);
}

void cache_release(struct cache *c, int layer, int head)
{
    release_pages(c, head_at(c, layer, head));
}

void cache_keep(struct cache *c, int layer, int head, const unsigned char *keep)
{
    cache_close_ranks(c, layer, head, keep);
    cache_release(c, layer, head);
}
