/* watcher.h - a line of progress, on a terminal, for what takes longer than a moment: how much of
 * what a trace decodes to was decoded, or how many things were done. */
#ifndef KVF_CLI_WATCHER_H
#define KVF_CLI_WATCHER_H

#include <kvf/trace.h>

#include "base/progress.h"

struct watcher {
    const char *label, *unit;
    int shift;          /* a unit is 1 << shift of what is told */
    double since, pass; /* when it began, and what is told now */
    uint64_t last, of;  /* what was told last */
    bool begun;
    struct progress bar;
};

struct watcher watcher_begin(const char *label); /* of bytes, in MB */
struct watcher watcher_count(const char *label, const char *unit);
/* A kvf_watch_fn; ctx: a struct watcher.  What is told begins anew where it falls. */
void watcher_see(void *ctx, uint64_t done, uint64_t of);
/* Of the next of what is told, parts are done (a kvf_watch_fn). */
void watcher_within(void *ctx, uint64_t done, uint64_t of);
/* A session_progress_fn of a prompt of w->of tokens. */
int watcher_fed(void *ctx, int done);
/* Takes the line away. */
void watcher_end(const struct watcher *w);

#endif
