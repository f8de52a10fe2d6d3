/* answer.h - the hidden number of a prompt, and the answer that the model gave.
 *
 * A run that was recorded with `kvfate run --spans NAME.json` names stretches of its prompt in the
 * run header. `kvfate tasks needle` calls the hidden sentence "needle" and the number in it
 * "value". */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"

/* Sets mark[i] to 1 for each token i < T of the spans of this name; other elements keep their
 * value. *ret_found tells whether the run header has such a span. The errors of run_header. */
int span_mark(const struct kvf_trace *t, const char *name, int64_t T, unsigned char *mark,
              bool *ret_found, struct kvf_diag *d);

/* The needle, the right answer and the model's answer. */
struct answer {
    unsigned char *needle;     /* [T] 1: a token of the needle; owned */
    struct buf text, expected; /* control characters are blanks; numbers are joined by ", " */
    bool judged;               /* the right answer is known */
    bool right;                /* the text contains every number of `expected` */
};

/* Reads the answer of a trace of T steps. needle: name of the span that holds the answer, a phrase
 * of the prompt that a right answer contains, or "none" for a prompt without a known answer, which
 * is not judged. With a span, the spans "value" have the right answer. It is right by the scorer
 * "ruler-all" of `kvfate tasks score`: every value occurs in the text, in upper or lower case.
 * Returns KVF_OK, KVF_E_ARG with a sentence if the run has neither such spans nor the phrase,
 * KVF_E_NOTFOUND with a sentence if the trace has no answer. Call answer_finish in either case. */
int answer_read(struct kvf_trace *t, const char *needle, int64_t T, struct answer *ret,
                struct kvf_diag *d);
void answer_finish(struct answer *x); /* accepts a zeroed struct */
