/* progress.h - a progress line on a terminal: "prefill  512/1043  412 tok/s  ETA 0:01".
 *
 * Silent unless stderr is a terminal.  Redraws at most 10 times a second, never wider than the
 * terminal is then.  Never writes to stdout. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label, *unit;
    int64_t total;           /* 0 = unknown */
    double start, last_draw; /* seconds of the monotonic clock */
    bool on;
    int64_t done, from;
    double share; /* of the current one; shown once it is known */
    bool shared;
};

double clock_seconds(void); /* monotonic */
/* Columns and rows of the terminal that fd is, as it is now; 0: not known. */
void terminal_size(int fd, int *ret_columns, int *ret_rows);

void progress_start(struct progress *p, const char *label, const char *unit, int64_t total);
/* So much was done before: the rate and the time left are of the work of this process. */
void progress_from(struct progress *p, int64_t done);
void progress_update(struct progress *p, int64_t done);
/* A kvf_watch_fn; p: a struct progress. */
void progress_told(void *p, uint64_t done, uint64_t of);
/* The same for a number that need not be an integer. */
void progress_at(struct progress *p, double done);
/* Of the next one, which takes long, `done` parts of `of` are done (a kvf_watch_fn; p: a struct
 * progress).  A value that falls, as in a second pass, is not shown. */
void progress_within(void *p, uint64_t done, uint64_t of);
void progress_clear(const struct progress *p); /* before a message; the next update redraws */
/* Ends the line, leaving the final count and rate. */
void progress_end(struct progress *p, int64_t done);
