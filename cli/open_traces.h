/* open_traces.h - opens traces that a command reads, and sets its exit status if one of them is
 * incomplete. */
#ifndef KVF_CLI_OPEN_TRACES_H
#define KVF_CLI_OPEN_TRACES_H

#include <stdbool.h>

#include <kvf/trace.h>

#include "cli/commands.h"

/* Opens a trace and calls trace_check_complete(). If the trace was not closed, opens its last
 * snapshot. Returns KVF_OK or an error with a sentence. */
int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d);

/* Opens two traces for a comparison. The caller closes both, also after an error, when either may
 * be NULL. */
int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d);

/* Prints a line on the standard error for each trace that has the prompt of the first trace but a
 * different answer. Methods are then compared on different texts. */
void traces_report_diverged(const struct command *self, struct kvf_trace *const *t, int n);

/* Prints a line on the standard error if heads of the trace have other numbers than in the complete
 * run (`kvfate trace trim --head`). */
void trace_report_heads(const struct command *self, const struct kvf_trace *t);
/* Prints trace_report_heads(), and a line on the standard error if the trace is a piece of a run
 * (`kvfate trace trim --tokens`, `split`). The line explains the meaning of its values. */
void trace_report_piece(const struct command *self, const struct kvf_trace *t);

/* Returns true if a trace was not closed, has no steps, or was repaired. */
bool trace_is_partial(const struct kvf_trace *t);
/* If the trace is partial, prints one line on the standard error, such as "kvfate NAME: PATH was
 * not closed: DOING its last snapshot", and records this for traces_partial(). */
void trace_check_complete(const struct command *self, const struct kvf_trace *t, const char *doing);

/* Prints the line and records it as trace_check_complete() does, for a trace that is already
 * closed. `path` is its name. */
void trace_report_partial(const char *command, const char *path);
/* Returns true if a partial trace was recorded. A command that succeeded then ends with
 * EXIT_LOST. */
bool traces_partial(void);

#endif
