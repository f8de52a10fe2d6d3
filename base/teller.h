/* teller.h - an optional callback that receives progress. */
#ifndef KVF_BASE_TELLER_H
#define KVF_BASE_TELLER_H

#include <stddef.h>
#include <stdint.h>

/* A callback with its context. */
struct teller {
    /* a kvf_watch_fn; NULL if progress is not reported */
    void (*fn)(void *ctx, uint64_t done, uint64_t of);
    void *ctx;
};

static inline void teller_tell(const struct teller *w, int64_t done, int64_t of)
{
    if (w && w->fn)
        w->fn(w->ctx, (uint64_t)done, (uint64_t)of);
}

#endif
