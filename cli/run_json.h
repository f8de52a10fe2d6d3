/* run_json.h - the JSON object of a run (--json). */
#ifndef KVF_CLI_RUN_JSON_H
#define KVF_CLI_RUN_JSON_H

#include "base/buf.h"
#include "cli/run.h"

/* Returns n / seconds; NaN if n or seconds is not positive. */
double run_rate(double n, double seconds);
/* Returns the number of prompt tokens that were fed, which is smaller than the prompt if the run
 * was interrupted. */
int run_prefilled(const struct run *u);

/* Appends the member "ids", the tokens of the answer, if the prompt was given as ids. */
void run_put_ids(const struct run *u, struct buf *b);

/* Appends one JSON object and a line feed to b; an error is stored in b->err. The run must have
 * ended, with its session still open. id: the id of a line of --jsonl, or NULL. */
void run_json(const struct run *u, const char *id, struct buf *b);

#endif
