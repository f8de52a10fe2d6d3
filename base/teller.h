/* teller.h - a watcher of progress. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct teller {
    void (*fn)(void *ctx, uint64_t done, uint64_t of); /* a kvf_watch_fn; NULL: not called */
    void *ctx;
};

static inline void teller_tell(const struct teller *w, int64_t done, int64_t of)
{
    if (w && w->fn)
        w->fn(w->ctx, (uint64_t)done, (uint64_t)of);
}
