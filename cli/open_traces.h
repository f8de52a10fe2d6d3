/* open_traces.h - traces that a command reads, and what becomes of its exit status when one of
 * them holds less than a whole run. */
#ifndef KVF_CLI_OPEN_TRACES_H
#define KVF_CLI_OPEN_TRACES_H

#include <stdbool.h>

#include <kvf/trace.h>

#include "cli/commands.h"

/* Opens a trace, of one that was not closed its last snapshot, and judges it. */
int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d);

/* Opens two traces to be compared; the caller closes both, also after an error, when either may be
 * NULL. */
int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d);

/* One line on the standard error for each trace whose answer parts from that of the first, both
 * having the same prompt: methods are then compared on different texts. */
void traces_say_parted(const struct command *self, struct kvf_trace *const *t, int n);

/* Says of a piece of a run (`kvfate trim --tokens`, `split`) one line on the standard error: what
 * its values mean there. */
void trace_say_piece(const struct command *self, const struct kvf_trace *t);

/* Whether a trace was not closed, holds no steps, or was repaired. */
bool trace_is_partial(const struct kvf_trace *t);
/* Says of such a trace one line on the standard error, "kvfate NAME: PATH was not closed: DOING its
 * last snapshot", and remembers it. */
void trace_judge(const struct command *self, const struct kvf_trace *t, const char *doing);

/* The same of a trace that is closed again, whose name this is. */
void trace_say_partial(const char *command, const char *path);
/* Whether one was: a command that succeeded ends with EXIT_LOST then. */
bool traces_partial(void);

#endif
