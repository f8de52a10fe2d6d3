/* progress.h - a progress line on a terminal: "prefill  512/1043  412 tok/s  ETA 0:01".
 *
 * It is shown only if stderr is a terminal. It is redrawn at most 10 times per second and never
 * wider than the terminal. It never writes to stdout.
 */
#ifndef KVF_BASE_PROGRESS_H
#define KVF_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A progress line. */
struct progress {
    const char *label, *unit;
    int64_t total;           /* 0 if unknown */
    double start, last_draw; /* seconds of the monotonic clock */
    bool on;
    int64_t done, from;
    double share; /* completed fraction of the present item, shown after progress_within() */
    bool shared;
};

double clock_seconds(void); /* seconds of the monotonic clock */
/* Sets the present columns and rows of the terminal fd; 0 if not known. */
void terminal_size(int fd, int *ret_columns, int *ret_rows);

/* Starts a line for `total` items of a unit. */
void progress_start(struct progress *p, const char *label, const char *unit, int64_t total);
/* Sets the number of items done before the start, which rate and remaining time exclude. */
void progress_from(struct progress *p, int64_t done);
/* Sets the number of items done. */
void progress_update(struct progress *p, int64_t done);
/* Calls progress_update() as a kvf_watch_fn; p is a struct progress. */
void progress_told(void *p, uint64_t done, uint64_t of);
/* Sets the number of items done, which need not be an integer. */
void progress_at(struct progress *p, double done);
/* Reports that `done` of `of` parts of the next item are complete, as a kvf_watch_fn; p is a
 * struct progress. A decreasing value, as in a second pass, is ignored. */
void progress_within(void *p, uint64_t done, uint64_t of);
/* call it before a message; the next update redraws */
void progress_clear(const struct progress *p);
/* Ends the line with the final count and rate. */
void progress_end(struct progress *p, int64_t done);

#endif
