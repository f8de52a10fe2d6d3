/* spans.h - named stretches of the prompt (--spans): bytes of its text to tokens. */
#ifndef KVF_ENGINE_SPANS_H
#define KVF_ENGINE_SPANS_H

#include "base/buf.h"
#include "engine/experiment/prompt.h"
#include "engine/probe/probe.h"

struct span_name {
    char name[20];
    bool useful;
    int n;
    int32_t (*range)[2]; /* [n] tokens [a, b), rising and apart */
};

struct spans {
    const char *file; /* --spans; NULL: none */

    struct span_name *name; /* [n] in the file's order */
    int n;
    struct span_name all;                       /* those that are useful, together */
    struct probe_span_set set[PROBE_SPAN_SETS]; /* [n_sets] for probes */
    int n_sets;
};

/* Reads the file for an opened run.  KVF_OK, or an error with a sentence. */
int spans_open(struct spans *s, const struct prompt *p, const struct tokenizer *names,
               struct kvf_diag *d);
void spans_close(struct spans *s); /* accepts a zeroed struct */

/* "spans" of the run header, with a comma before it; nothing without a file. */
void spans_put(const struct spans *s, struct buf *b);

#endif
