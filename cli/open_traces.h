/* open_traces.h - traces that a command reads. */
#ifndef KVF_CLI_OPEN_TRACES_H
#define KVF_CLI_OPEN_TRACES_H

#include <kvf/trace.h>

#include "cli/commands.h"

/* Opens a trace, of one that was not closed its last snapshot, and says so on the standard error:
 * "kvfate NAME: PATH was not closed: DOING its last snapshot". */
int open_trace(const struct command *self, const char *path, const char *doing,
               struct kvf_trace **ret, struct kvf_diag *d);

/* Opens two traces to be compared; the caller closes both, also after an error, when either may be
 * NULL. */
int open_both(const struct command *self, char *const path[2], struct kvf_trace *ret[2],
              struct kvf_diag *d);

#endif
