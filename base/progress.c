/* progress.c - draws a progress line on the terminal (progress.h). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/progress.h"

enum { BAR = 24, LEAST_BAR = 4, LINE = 256 };

struct line {
    char text[LINE];
    size_t len;
};

double clock_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void terminal_size(int fd, int *ret_columns, int *ret_rows)
{
    struct winsize w;
    bool known = ioctl(fd, TIOCGWINSZ, &w) == 0;
    *ret_columns = known ? w.ws_col : 0;
    *ret_rows = known ? w.ws_row : 0;
}

static void add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->len, LINE - l->len, format, args);
    va_end(args);
    if (n > 0)
        l->len = l->len + (size_t)n < LINE ? l->len + (size_t)n : LINE - 1;
}

/* Appends the part after the bar: count, rate and remaining time. */
static void add_numbers(struct line *l, const struct progress *p, double now)
{
    double done = (double)p->done + p->share, rate = 0;
    if (now > p->start)
        rate = (done - (double)p->from) / (now - p->start);
    if (p->shared)
        add(l, "%.1f", done);
    else
        add(l, "%lld", (long long)p->done);
    if (p->total > 0)
        add(l, "/%lld", (long long)p->total);
    add(l, rate > 0 && rate < 1 ? "  %.2g %s/s" : "  %.0f %s/s", rate, p->unit);
    if ((double)p->total > done && rate > 0) {
        double eta = fmin(((double)p->total - done) / rate + 0.5, 1e9);
        add(l, "  ETA %lld:%02lld", (long long)eta / 60, (long long)eta % 60);
    }
}

static void add_bar(struct line *l, const struct progress *p, int width)
{
    int fill = (int)(width * ((double)p->done + p->share) / (double)p->total);
    add(l, "[");
    for (int i = 0; i < width; i++)
        add(l, i < fill ? "#" : ".");
    add(l, "] ");
}

static void draw(const struct progress *p, double now)
{
    struct line numbers = {.len = 0}, line = {.len = 0};
    int columns, rows, bar = BAR;
    terminal_size(STDERR_FILENO, &columns, &rows);
    add_numbers(&numbers, p, now);
    add(&line, "%-10s ", p->label);
    /* The last column stays empty, because some terminals would start a new line after it. */
    int width_left = columns > 0 ? columns - 1 : LINE;
    int left = width_left - (int)(line.len + strlen("[] ") + numbers.len);
    bar = left < bar ? left : bar;
    if (p->total > 0 && bar >= LEAST_BAR)
        add_bar(&line, p, bar);
    add(&line, "%s", numbers.text);
    fprintf(stderr, "\r%.*s\x1b[K", width_left, line.text);
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

static void redraw(struct progress *p)
{
    double now = clock_seconds();
    if (!p->on || now - p->last_draw < 0.1)
        return;
    p->last_draw = now;
    draw(p, now);
}

void progress_from(struct progress *p, int64_t done)
{
    p->from = p->done = done;
}

void progress_update(struct progress *p, int64_t done)
{
    p->done = done;
    p->share = 0;
    redraw(p);
}

void progress_told(void *p, uint64_t done, uint64_t of)
{
    (void)of;
    progress_update(p, (int64_t)done);
}

void progress_at(struct progress *p, double done)
{
    p->done = (int64_t)done;
    p->share = done - (double)p->done;
    p->shared = true;
    redraw(p);
}

void progress_within(void *progress, uint64_t done, uint64_t of)
{
    struct progress *p = progress;
    double share = of > 0 ? (double)done / (double)of : 0;
    p->shared = true;
    p->share = share > p->share ? share : p->share;
    redraw(p);
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
    p->done = done;
    p->share = 0;
    p->shared = false;
    draw(p, clock_seconds());
    fputc('\n', stderr);
}
