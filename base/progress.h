/* progress.h - a progress line on a terminal: "prefill  512/1043  412 tok/s  ETA 0:01".
 *
 * Silent unless stderr is a terminal.  Redraws at most 10 times a
 * second.  Never writes to stdout. */
#ifndef KVF_BASE_PROGRESS_H
#define KVF_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label, *unit;
    int64_t total;           /* 0 = unknown */
    double start, last_draw; /* seconds of the monotonic clock */
    bool on;
};

double clock_seconds(void); /* monotonic */

void progress_start(struct progress *p, const char *label, const char *unit, int64_t total);
void progress_update(struct progress *p, int64_t done);
void progress_clear(const struct progress *p); /* before a message; the next update redraws */
/* Ends the line, leaving the final count and rate. */
void progress_end(struct progress *p, int64_t done);

#endif
