/* run_json.h - what --json says of a run. */
#ifndef KVF_CLI_RUN_JSON_H
#define KVF_CLI_RUN_JSON_H

#include "base/buf.h"
#include "cli/run.h"

/* n things in so many seconds, per second; NaN where there is nothing to divide. */
double run_rate(double n, double seconds);
/* Tokens of the prompt that were fed: fewer than it has where somebody interrupted it. */
int run_prefilled(const struct run *u);

/* Adds one JSON object and a line feed to b, which keeps what goes wrong.  The run has ended, and
 * its session is still open.  id: of a line of --jsonl, or NULL. */
void run_json(const struct run *u, const char *id, struct buf *b);

#endif
