/* spans.h - named ranges of the prompt (--spans), converted from bytes to tokens. */
#ifndef KVF_ENGINE_SPANS_H
#define KVF_ENGINE_SPANS_H

#include "base/buf.h"
#include "engine/experiment/prompt.h"
#include "engine/probe/probe.h"

/* All ranges with one name. */
struct span_name {
    char name[20];
    bool useful;
    int n;
    int32_t (*range)[2]; /* [n] tokens [a, b), increasing and disjoint */
};

/* The spans of a file. */
struct spans {
    const char *file; /* --spans; NULL if not given */

    struct span_name *name; /* [n] in the order of the file */
    int n;
    struct span_name all;                       /* all useful ranges together */
    struct probe_span_set set[PROBE_SPAN_SETS]; /* [n_sets] sets for probes */
    int n_sets;
};

/* Reads the file for an open prompt. Returns KVF_OK, or an error with a sentence. */
int spans_open(struct spans *s, const struct prompt *p, const struct tokenizer *names,
               struct kvf_diag *d);
void spans_close(struct spans *s); /* accepts a zeroed struct */

/* Appends "spans" of the run header after a comma. Appends no text without a file. */
void spans_put(const struct spans *s, struct buf *b);

#endif
