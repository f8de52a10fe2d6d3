/* made_trace.h - what the commands that make traces out of traces share: where the new one goes,
 * and what is said of it. */
#ifndef KVF_CLI_MADE_TRACE_H
#define KVF_CLI_MADE_TRACE_H

#include <stdbool.h>

#include <kvf/copy.h>

#include "base/opt.h"

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

#endif
