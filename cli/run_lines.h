/* run_lines.h - what kvfate run and generate make of the lines of --jsonl: many at a time. */
#ifndef KVF_CLI_RUN_LINES_H
#define KVF_CLI_RUN_LINES_H

#include "cli/run.h"

struct run_lines;

/* For the opened model and the options of u, which is borrowed.  *ret is set on failure, too. */
int run_lines_open(struct run *u, struct run_lines **ret, struct kvf_diag *d);
void run_lines_close(struct run_lines *a); /* accepts NULL; what is not done stays unfinished */

/* The functions of struct jsonl; ctx: the struct run_lines. */
int run_lines_begin(void *ctx, const struct jsonl_line *line, const char *out, jsonl_done done,
                    void *loop);
int run_lines_rest(void *ctx, jsonl_done done, void *loop);
int run_lines_check(void *ctx, const struct jsonl_line *line, const char *trace,
                    struct kvf_diag *d);

#endif
