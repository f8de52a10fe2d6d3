/* progress_callback.h - a function that receives the progress of an operation. */
#ifndef KVF_BASE_PROGRESS_CALLBACK_H
#define KVF_BASE_PROGRESS_CALLBACK_H

#include <stddef.h>
#include <stdint.h>

/* A callback with its context. */
struct progress_callback {
    void (*fn)(void *ctx, uint64_t done, uint64_t of); /* a kvf_watch_fn; NULL: not called */
    void *ctx;
};

/* Reports that `done` of `of` parts are complete. w may be NULL. */
static inline void progress_report(const struct progress_callback *w, int64_t done, int64_t of)
{
    if (w && w->fn)
        w->fn(w->ctx, (uint64_t)done, (uint64_t)of);
}

#endif
