/* needle.h - texts in which something is hidden: keys with numbers among sentences that have
 * nothing to do with them, and a question about some of the keys; or variables that pass a number
 * on, and the question which of them hold it. */
#ifndef KVF_ENGINE_NEEDLE_H
#define KVF_ENGINE_NEEDLE_H

#include <stdbool.h>

#include "base/buf.h"

enum haystack { HAYSTACK_PROSE, HAYSTACK_NOISE, HAYSTACK_NEEDLES };

struct needle_task {
    int64_t keys, values, queries; /* keys hidden, values of each, keys asked for */
    int64_t digits;                /* of a value */
    int64_t hops;                  /* not 0: keys are chains of hops + 1 variables */
    enum haystack haystack;
    double depth; /* where the needles asked for are, 0 .. 1; NaN: anywhere */
    uint64_t seed;
};

enum { NEEDLE_MOST = 512 }; /* most needles: keys * values */

/* Checks the numbers of a task.  KVF_OK, or KVF_E_ARG with a sentence when they do not fit
 * together. */
int needle_check(const struct needle_task *t, struct kvf_diag *d);

/* Appends the text with n_sentences of filler, and to spans (unless NULL) the members "answers",
 * "reply" (a right answer, {"text", "values": bytes of the numbers in it}) and "spans" of a JSON
 * object.  Everything but the number of filler sentences before a
 * needle is the same for any n_sentences.  Failures are in text->err and spans->err. */
void needle_write(const struct needle_task *t, int n_sentences, struct buf *text,
                  struct buf *spans);

/* The same of a task with hops. */
void needle_write_chains(const struct needle_task *t, int n_sentences, struct buf *text,
                         struct buf *spans);

/* The probability of a right answer for one who knows the question and its form, not the text:
 * every number of so many digits, or every name of five letters, is as likely, and each is told
 * once. */
double needle_chance(const struct needle_task *t);

#endif
