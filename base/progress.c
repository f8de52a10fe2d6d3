#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/progress.h"

double clock_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void draw(const struct progress *p, int64_t done, double now)
{
    enum { WIDTH = 24 };
    double rate = now > p->start ? (double)done / (now - p->start) : 0;
    fprintf(stderr, "\r%-10s ", p->label);
    if (p->total > 0) {
        int fill = (int)((double)WIDTH * (double)done / (double)p->total);
        fputc('[', stderr);
        for (int i = 0; i < WIDTH; i++)
            fputc(i < fill ? '#' : '.', stderr);
        fprintf(stderr, "] %lld/%lld", (long long)done, (long long)p->total);
    } else {
        fprintf(stderr, "%lld", (long long)done);
    }
    fprintf(stderr, "  %.0f %s/s", rate, p->unit);
    if (p->total > done && rate > 0) {
        int eta = (int)((double)(p->total - done) / rate + 0.5);
        fprintf(stderr, "  ETA %d:%02d", eta / 60, eta % 60);
    }
    fputs("\x1b[K", stderr);
    fflush(stderr);
}

void progress_start(struct progress *p, const char *label, const char *unit, int64_t total)
{
    double now = clock_seconds();
    *p = (struct progress){.label = label,
                           .unit = unit,
                           .total = total,
                           .start = now,
                           .last_draw = now - 1,
                           .on = isatty(STDERR_FILENO)};
    progress_update(p, 0);
}

void progress_update(struct progress *p, int64_t done)
{
    double now = clock_seconds();
    if (!p->on || now - p->last_draw < 0.1)
        return;
    p->last_draw = now;
    draw(p, done, now);
}

void progress_clear(const struct progress *p)
{
    if (p->on)
        fputs("\r\x1b[K", stderr);
}

void progress_end(struct progress *p, int64_t done)
{
    if (!p->on)
        return;
    draw(p, done, clock_seconds());
    fputc('\n', stderr);
}
