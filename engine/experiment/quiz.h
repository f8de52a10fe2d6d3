/* quiz.h - makes short questions with known answers from a seed.
 *
 *     facts  "Tom has a red ball. ... What does Tom have?"                 a red ball
 *     copy   "Say this: red cat sun"                                       red cat sun
 *     sums   "Tom has six cups. He gets two more and gives three away. ..." five cups
 *
 * The level is the number of facts or words, or the largest number.
 */
#ifndef KVF_ENGINE_QUIZ_H
#define KVF_ENGINE_QUIZ_H

#include <stdbool.h>

#include "base/buf.h"

enum quiz_kind { QUIZ_FACTS, QUIZ_COPY, QUIZ_SUMS, QUIZ_KINDS };

extern const char *const quiz_kind_words[]; /* in the order of the enum, ended by NULL */

/* A set of questions. */
struct quiz {
    enum quiz_kind kind;
    int64_t level;
    uint64_t seed;
    /* questions for tests. A hash of its bytes assigns a question to tests (a fifth) or to
     * training */
    bool test;
    bool apart; /* the facts and the question about them are separate */
};

/* Returns KVF_OK, or KVF_E_ARG with a sentence if the kind does not have this level, or has no
 * facts that are separate from the question. */
int quiz_check(const struct quiz *q, struct kvf_diag *d);

/* Makes question number i and sets the buffers. value is the end of a right answer. Returns the
 * length of the facts that the question begins with, 0 for other kinds than facts. */
size_t quiz_make(const struct quiz *q, uint64_t i, struct buf *question, struct buf *answer,
                 struct buf *value);

/* Returns the probability of a right answer by guessing the value, given the form of the answer. */
double quiz_chance(const struct quiz *q);

/* Returns true if an answer ends with the words of a value. Ignores a final full stop, white space
 * and the case of ASCII letters. */
bool quiz_right(const char *answer, size_t n, const char *value);

#endif
