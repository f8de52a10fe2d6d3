/* common.h - the options that every command takes: -q, -v, -o, --overwrite, --json and -t.
 *
 * A command declares those that it handles itself. This file adds the others: it handles -q, -v,
 * -o and --overwrite, and rejects --json and -t with the reason. */
#ifndef KVF_CLI_COMMON_H
#define KVF_CLI_COMMON_H

#include "base/replace.h"
#include "cli/commands.h"

/* The values of the options that a command does not handle itself, and what they changed. */
struct common {
    bool quiet, verbose, overwrite;
    const char *out;     /* file that receives the standard output; NULL if not given */
    struct replace file; /* that file while it is written */
    double start;        /* seconds of clock_seconds() at which the command began */
};

/* Sets *ret to the common options that neither the command nor the analyzer a (may be NULL)
 * declares. Their values are a struct common. */
void common_options(const struct command *c, const struct analyzer *a,
                    struct opt ret[COMMON_OPTIONS + 1]);

/* Applies the options before a command runs. It may not write to its n operands. Returns KVF_OK, or
 * an error with a sentence. */
int common_begin(struct common *x, char *const *operand, int n, struct kvf_diag *d);
/* Completes the file of -o, and prints time and memory with -v. Returns the exit status, which is
 * EXIT_FAILED instead of EXIT_OK if the file cannot be written. */
int common_end(const struct command *self, struct common *x, int status);

#endif
