/* run_json.h - what --json says of a run. */
#ifndef KVF_CLI_RUN_JSON_H
#define KVF_CLI_RUN_JSON_H

#include "base/buf.h"
#include "cli/run.h"

/* n things in so many seconds, per second; NaN where there is nothing to divide. */
double run_rate(double n, double seconds);

/* Adds one JSON object and a line feed to b, which keeps what goes wrong.  The run has ended, and
 * its session is still open.  id: of a line of --jsonl, or NULL. */
void run_json(const struct run *u, const char *id, struct buf *b);

#endif
