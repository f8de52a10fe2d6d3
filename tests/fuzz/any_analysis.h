/* any_analysis.h - turns fuzz bytes into an analysis of a trace, which the bytes also define
 * (any_trace.h). */
#ifndef KVF_TESTS_FUZZ_ANY_ANALYSIS_H
#define KVF_TESTS_FUZZ_ANY_ANALYSIS_H

#include "analyzers/analyzer.h"
#include "any_trace.h"

/* An open trace in memory. */
struct any_open {
    struct kvf_trace *t; /* NULL: rejected with a message */
    int fd;
};
struct any_open any_open(struct source *s);
void any_close(struct any_open *o);

/* An analyzer with options, heads and tokens. */
struct any_analysis {
    const struct analyzer *a;
    struct analyzer_args args;
    struct analyzer_options options;
    char text[4][32]; /* storage for option values */
};
/* Reads the analysis from the source. Returns false if the options are rejected with a message. */
bool any_analysis(struct source *s, struct any_analysis *ret);
/* Returns the table, or NULL if the analysis was rejected with a message. Destroy it before the
 * trace is closed. */
struct table *any_run(const struct any_analysis *x, struct kvf_trace *t, struct kvf_diag *d);

#endif
