/* resume.h - checks that a run can continue an unfinished trace. */
#ifndef KVF_CLI_RESUME_H
#define KVF_CLI_RESUME_H

#include "engine/experiment/prompt.h"

/* Checks that the trace belongs to the same run. Returns KVF_OK. Returns KVF_E_ARG with a sentence
 * that names the first difference, which is a key of the run header or a token of the prompt.
 * Returns other errors if the trace cannot be read. */
int resume_same(const char *path, const char *header, const struct prompt *prompt,
                struct kvf_diag *d);
/* Checks the unfinished trace of `out` as resume_same() does. */
int resume_check(const char *out, const char *header, const struct prompt *prompt,
                 struct kvf_diag *d);

#endif
