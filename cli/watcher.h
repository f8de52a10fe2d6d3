/* watcher.h - a line of progress, on a terminal, for what takes longer than a moment: how much of
 * what a trace decodes to was decoded. */
#ifndef KVF_CLI_WATCHER_H
#define KVF_CLI_WATCHER_H

#include <kvf/trace.h>

#include "base/progress.h"

struct watcher {
    const char *label;
    double since;
    bool begun;
    struct progress bar;
};

struct watcher watcher_begin(const char *label);
/* A kvf_watch_fn; ctx: a struct watcher. */
void watcher_see(void *ctx, uint64_t done, uint64_t of);
/* Takes the line away. */
void watcher_end(const struct watcher *w);

#endif
