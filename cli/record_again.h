/* record_again.h - records the run of a trace again, with columns that the trace lacks. */
#pragma once

#include <kvf/trace.h>

#include "base/buf.h"

enum { AGAIN_WORDS = 96 };

/* A command line of `kvfate run`. Zero-initialise; free with again_free(). */
struct again {
    char *word[AGAIN_WORDS]; /* ends with NULL; the first is the path of the program */
    int n;
};

/* Makes the command that records the run of trace t again, into the file `out`. `lacks` is the
 * sentence of columns_refuse() (analyzers/columns.h), which names the options of the missing
 * columns. model: value of -m; NULL: the listed model in the cache folder that the run header
 * names. Returns KVF_OK, or KVF_E_NOTFOUND with a sentence if the run cannot be repeated. */
int again_plan(const struct kvf_trace *t, const char *lacks, const char *model, const char *out,
               struct again *ret, struct kvf_diag *d);
/* Appends the command as the user types it. */
void again_show(const struct again *a, struct buf *out);
/* Runs the command. Returns KVF_OK, or KVF_E_NOTFOUND with a sentence. */
int again_run(const struct again *a, struct kvf_diag *d);
/* Checks that `now` is the run of `was`: the same model, method, precision and number of tokens.
 * Returns KVF_OK, or KVF_E_FORMAT with a sentence that names the first difference. */
int again_same(const struct kvf_trace *was, const struct kvf_trace *now, struct kvf_diag *d);
void again_free(struct again *a);
