/* needle.h - writes texts with hidden facts and a question about them. The facts are keys with
 * numbers in unrelated sentences, or chains of variables that pass on a number. */
#ifndef KVF_ENGINE_NEEDLE_H
#define KVF_ENGINE_NEEDLE_H

#include <stdbool.h>

#include "base/buf.h"

enum haystack { HAYSTACK_PROSE, HAYSTACK_NOISE, HAYSTACK_NEEDLES };

/* The parameters of a text. */
struct needle_task {
    int64_t keys, values, queries; /* hidden keys, values of each key, keys that are asked for */
    int64_t digits;                /* digits of a value */
    int64_t hops;                  /* nonzero for chains of hops + 1 variables instead of keys */
    enum haystack haystack;
    /* relative position of the needles that are asked for, 0 .. 1; NaN for random positions */
    double depth;
    uint64_t seed;
};

enum { NEEDLE_MOST = 512 }; /* maximum needles: keys * values */

/* Checks that the parameters of a task are consistent. Returns KVF_OK, or KVF_E_ARG with a
 * sentence. */
int needle_check(const struct needle_task *t, struct kvf_diag *d);

/* Appends the text with n_sentences of filler. Unless spans is NULL, appends to it the members
 * "answers", "reply" (a right answer, {"text", "values": bytes of the numbers in it}) and "spans"
 * of a JSON object. The texts for different n_sentences differ only in the number of filler
 * sentences before each needle. Errors are stored in text->err and spans->err. */
void needle_write(const struct needle_task *t, int n_sentences, struct buf *text,
                  struct buf *spans);

/* Appends the text of a task with hops as needle_write() does. */
void needle_write_chains(const struct needle_task *t, int n_sentences, struct buf *text,
                         struct buf *spans);

/* Returns the probability of a right answer by guessing, given the question and the form of its
 * answer. All numbers with the given digits, or all names of five letters, are equally likely, and
 * each is named once. */
double needle_chance(const struct needle_task *t);

#endif
