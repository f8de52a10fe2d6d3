#include "cli/watcher.h"

struct watcher watcher_begin(const char *label)
{
    return (struct watcher){.label = label, .unit = "MB", .shift = 20, .since = clock_seconds()};
}

struct watcher watcher_count(const char *label, const char *unit)
{
    return (struct watcher){.label = label, .unit = unit, .since = clock_seconds()};
}

void watcher_see(void *ctx, uint64_t done, uint64_t of)
{
    struct watcher *w = ctx;
    if (done < w->last || w->pass == 0)
        w->pass = w->last ? clock_seconds() : w->since;
    w->last = done;
    if (!w->begun && clock_seconds() - w->since < 0.5)
        return;
    if (!w->begun)
        progress_start(&w->bar, w->label, w->unit, (int64_t)(of >> w->shift));
    w->begun = true;
    w->bar.start = w->pass;
    w->bar.total = (int64_t)(of >> w->shift);
    progress_update(&w->bar, (int64_t)(done >> w->shift));
}

void watcher_end(const struct watcher *w)
{
    if (w->begun)
        progress_clear(&w->bar);
}
