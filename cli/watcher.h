/* watcher.h - shows a progress line on a terminal for operations that take longer than half a
 * second: decoded bytes of a trace, or a count of items. */
#ifndef KVF_CLI_WATCHER_H
#define KVF_CLI_WATCHER_H

#include <kvf/trace.h>

#include "base/progress.h"

/* A progress line and the operation that it shows. */
struct watcher {
    const char *label, *unit;
    int shift;          /* a displayed unit is 1 << shift counts */
    double since, pass; /* start time of the watcher and of the present pass, in seconds */
    uint64_t last, of;  /* last count, and the total */
    bool begun;
    struct progress bar;
};

/* Starts a watcher of bytes (shown in MB), or of items of a unit. */
struct watcher watcher_begin(const char *label);
struct watcher watcher_count(const char *label, const char *unit);
/* Reports that `done` of `of` are complete; a kvf_watch_fn with ctx a struct watcher. A count that
 * decreases starts a new pass. */
void watcher_update(void *ctx, uint64_t done, uint64_t of);
/* Reports that `done` of `of` parts of the next unit are complete; a kvf_watch_fn. */
void watcher_part(void *ctx, uint64_t done, uint64_t of);
/* Reports `done` tokens of a prompt of w->of tokens; a session_progress_fn. */
int watcher_tokens(void *ctx, int done);
/* Removes the progress line. */
void watcher_end(const struct watcher *w);

#endif
