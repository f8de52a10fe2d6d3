/* quiz.h - short questions whose answers can be checked, made from a seed.
 *
 *     facts  "Tom has a red ball. ... What does Tom have?"                 a red ball
 *     copy   "Say this: red cat sun"                                       red cat sun
 *     sums   "Tom has six cups. He gets two more and gives three away. ..." five cups
 *
 * The level is the number of facts, of words, or the largest number. */
#ifndef KVF_ENGINE_QUIZ_H
#define KVF_ENGINE_QUIZ_H

#include <stdbool.h>

#include "base/buf.h"

enum quiz_kind { QUIZ_FACTS, QUIZ_COPY, QUIZ_SUMS, QUIZ_KINDS };

extern const char *const quiz_kind_words[]; /* in this order, NULL behind them */

struct quiz {
    enum quiz_kind kind;
    int64_t level;
    uint64_t seed;
    bool test; /* a fifth of all questions is for tests, by their bytes: no training sees them */
};

/* KVF_OK, or KVF_E_ARG with a sentence for a level that the kind does not have. */
int quiz_check(const struct quiz *q, struct kvf_diag *d);

/* Question number i: the buffers are set.  value: what a right answer ends with. */
void quiz_make(const struct quiz *q, uint64_t i, struct buf *question, struct buf *answer,
               struct buf *value);

/* The share of right answers of one who knows the form of a question and guesses its value. */
double quiz_chance(const struct quiz *q);

/* Whether an answer ends with the words of a value; a full stop behind them, white space and the
 * case of ASCII letters do not matter. */
bool quiz_right(const char *answer, size_t n, const char *value);

#endif
