/* any_analysis.h - fuzz bytes as an analysis of a trace that they describe too (any_trace.h). */
#ifndef KVF_TESTS_FUZZ_ANY_ANALYSIS_H
#define KVF_TESTS_FUZZ_ANY_ANALYSIS_H

#include "analyzers/analyzer.h"
#include "any_trace.h"

/* An open trace that lies in memory. */
struct any_open {
    struct kvf_trace *t; /* NULL: it was refused, with a sentence */
    int fd;
};
struct any_open any_open(struct source *s);
void any_close(struct any_open *o);

/* Which analyzer, with which options, heads and tokens. */
struct any_analysis {
    const struct analyzer *a;
    struct analyzer_args args;
    struct analyzer_options options;
    char text[4][32]; /* what options borrow */
};
/* False: the options are refused, with a sentence. */
bool any_analysis(struct source *s, struct any_analysis *ret);
/* The table, or NULL: refused, with a sentence.  Destroy it before the trace is closed. */
struct table *any_run(const struct any_analysis *x, struct kvf_trace *t, struct kvf_diag *d);

#endif
