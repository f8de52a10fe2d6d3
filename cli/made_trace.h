/* made_trace.h - common code of the commands that make traces from traces: split, trim, compact,
 * cat and repair. */
#ifndef KVF_CLI_MADE_TRACE_H
#define KVF_CLI_MADE_TRACE_H

#include <stdbool.h>

#include <kvf/copy.h>

#include "base/opt.h"
#include "cli/commands.h"

/* Options of the output. */
struct made_trace {
    const char *out;
    bool overwrite;
};

/* -o and --overwrite, which fill a struct made_trace; the group is called "made trace". */
extern const struct opt made_trace_options[];

/* KVF_E_ARG with a sentence unless -o was given. */
int made_trace_check(const struct made_trace *m, struct kvf_diag *d);
/* A request with the output and no source. */
struct kvf_copy_request made_trace_request(const struct made_trace *m);

/* Prints one line: the name of the new trace, its tokens and bytes, and the number of columns and
 * records that were left out. */
void made_trace_print(const char *out, const struct kvf_copied *c);

/* KVF_E_NOTFOUND with a sentence if the trace has no steps, so that it has no piece. */
int made_trace_needs_steps(const struct kvf_trace *t, struct kvf_diag *d);
/* Writes the trace of a request with progress, and prints made_trace_print unless it is a repair.
 */
int made_trace_write(const struct command *self, const struct kvf_copy_request *q,
                     struct kvf_copied *ret, struct kvf_diag *d);

/* Makes traces from the open traces t: KVF_OK or an error with a sentence. */
typedef int (*made_trace_fn)(const struct command *self, const void *request,
                             struct kvf_trace *const *t, struct kvf_diag *d);
/* Completes a command after its checks returned err. Opens n traces, calls make, and prints a line
 * for each trace that was not closed or was repaired. `doing` is a verb for that line, such as
 * "copying". Returns the exit status. */
int made_trace_run(const struct command *self, const void *request, int err, int n, char **path,
                   const char *doing, made_trace_fn make, struct kvf_diag *d);

#endif
