/* run_lines.h - runs several lines of --jsonl at a time for kvfate run and generate. */
#ifndef KVF_CLI_RUN_LINES_H
#define KVF_CLI_RUN_LINES_H

#include "cli/run.h"

struct run_lines;

/* Opens a batch for the open model and the options in u, which is borrowed. Sets *ret also on
 * failure. Returns KVF_OK or an error with a sentence. */
int run_lines_open(struct run *u, struct run_lines **ret, struct kvf_diag *d);
/* accepts NULL; traces of lines that are not done stay unfinished */
void run_lines_close(struct run_lines *a);

/* The functions make, rest and check of a struct jsonl. ctx is the struct run_lines. */
int run_lines_begin(void *ctx, const struct jsonl_line *line, const char *out, jsonl_done done,
                    void *loop);
int run_lines_rest(void *ctx, jsonl_done done, void *loop);
int run_lines_check(void *ctx, const struct jsonl_line *line, const char *trace,
                    struct kvf_diag *d);

#endif
