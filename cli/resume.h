/* resume.h - whether a run may go on with an unfinished trace. */
#ifndef KVF_CLI_RESUME_H
#define KVF_CLI_RESUME_H

#include "engine/experiment/prompt.h"

/* The trace must be of the same run: KVF_OK; KVF_E_ARG with a sentence that names the first key of
 * the run header, or the first token of the prompt, that differs; other errors where it cannot be
 * read. */
int resume_same(const char *path, const char *header, const struct prompt *prompt,
                struct kvf_diag *d);
/* The same of the unfinished trace of `out`. */
int resume_check(const char *out, const char *header, const struct prompt *prompt,
                 struct kvf_diag *d);

#endif
