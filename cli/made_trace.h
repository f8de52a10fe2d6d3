/* made_trace.h - what the commands that make traces out of traces share: where the new one goes,
 * and what is said of it. */
#ifndef KVF_CLI_MADE_TRACE_H
#define KVF_CLI_MADE_TRACE_H

#include <stdbool.h>

#include <kvf/copy.h>

#include "base/opt.h"
#include "cli/commands.h"

struct made_trace {
    const char *out;
    bool overwrite;
};

/* -o and --overwrite, which fill a struct made_trace; the group is called "made trace". */
extern const struct opt made_trace_options[];

/* KVF_E_ARG with a sentence unless -o was given. */
int made_trace_check(const struct made_trace *m, struct kvf_diag *d);
struct kvf_copy_options made_trace_how(const struct made_trace *m);

/* One line on the standard output: its name, how many tokens and bytes it has, and what was left
 * out. */
void made_trace_print(const char *out, const struct kvf_copied *c);

/* KVF_E_NOTFOUND with a sentence where the trace holds no steps, of which no piece can be taken. */
int made_trace_needs_steps(const struct kvf_trace *t, struct kvf_diag *d);
/* kvf_copy that shows how far it is, and that line. */
int made_trace_copy(const struct command *self, struct kvf_trace *t, const struct kvf_piece *piece,
                    const char *out, const struct kvf_copy_options *how, struct kvf_copied *ret,
                    struct kvf_diag *d);

/* What a command makes of an open trace: KVF_OK or an error with a sentence. */
typedef int (*made_trace_fn)(const struct command *self, const void *request, struct kvf_trace *t,
                             struct kvf_diag *d);
/* The rest of a command whose options were found to be `err`: opens the trace, makes what is to be
 * made of it, and says what it lacked.  The exit status. */
int made_trace_run(const struct command *self, const void *request, int err, const char *path,
                   made_trace_fn make, struct kvf_diag *d);

#endif
