#include "cli/watcher.h"

struct watcher watcher_begin(const char *label)
{
    return (struct watcher){.label = label, .since = clock_seconds()};
}

void watcher_see(void *ctx, uint64_t done, uint64_t of)
{
    struct watcher *w = ctx;
    if (!w->begun && clock_seconds() - w->since < 0.5)
        return;
    if (!w->begun)
        progress_start(&w->bar, w->label, "MB", (int64_t)(of >> 20));
    w->begun = true;
    w->bar.start = w->since;
    w->bar.total = (int64_t)(of >> 20);
    progress_update(&w->bar, (int64_t)(done >> 20));
}

void watcher_end(const struct watcher *w)
{
    if (w->begun)
        progress_clear(&w->bar);
}
