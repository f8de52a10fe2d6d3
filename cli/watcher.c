/* watcher.c - shows a progress line for operations that take longer than half a second. */
#include "cli/watcher.h"

enum { MOMENT_MS = 500 };

/* Time since which no line was shown, in seconds. A sequence of short operations shares this time,
 * so that together they show a line. */
static double silent_since;

static double now(void)
{
    double t = clock_seconds();
    silent_since = silent_since > 0 ? silent_since : t;
    return t;
}

struct watcher watcher_begin(const char *label)
{
    return (struct watcher){.label = label, .unit = "MB", .shift = 20, .since = now()};
}

struct watcher watcher_count(const char *label, const char *unit)
{
    return (struct watcher){.label = label, .unit = unit, .since = now()};
}

/* Shows or updates the line if it is due. Returns true if it is shown. */
static bool begin(struct watcher *w)
{
    if (!w->begun && clock_seconds() - silent_since < MOMENT_MS / 1e3)
        return false;
    if (!w->begun)
        progress_start(&w->bar, w->label, w->unit, (int64_t)(w->of >> w->shift));
    w->begun = true;
    w->bar.start = w->pass;
    w->bar.total = (int64_t)(w->of >> w->shift);
    return true;
}

void watcher_update(void *ctx, uint64_t done, uint64_t of)
{
    struct watcher *w = ctx;
    if (done < w->last || w->pass == 0)
        w->pass = w->last ? clock_seconds() : w->since;
    w->last = done;
    w->of = of;
    if (begin(w))
        progress_update(&w->bar, (int64_t)(done >> w->shift));
}

void watcher_part(void *ctx, uint64_t done, uint64_t of)
{
    struct watcher *w = ctx;
    if (w->pass == 0)
        w->pass = w->since;
    if (begin(w))
        progress_within(&w->bar, done, of);
}

int watcher_tokens(void *ctx, int done)
{
    struct watcher *w = ctx;
    watcher_update(w, (uint64_t)done, w->of);
    return 0;
}

void watcher_end(const struct watcher *w)
{
    if (!w->begun)
        return;
    progress_clear(&w->bar);
    silent_since = clock_seconds();
}
