/* copies.h - how much a query head copies: retrieval heads (Wu et al. 2024), induction heads by
 * prefix matching (Olsson et al. 2022), duplicate-token and previous-token heads.
 *
 * The numbers come from the columns of the probe `copies`. With x_i the token at position i, C_t
 * the positions j < t with x_j = x_t, and A_t the weights of query t:
 *     previous      = mean of A_t[t - 1] over t >= 1
 *     duplicate     = mean of sum of A_t[j] over j in C_t, over queries with a copy
 *     induction     = mean of all A_t[j + 1], j in C_t: prefix matching, a mean of entries
 *     induction_sum = mean of sum of A_t[j + 1] over j in C_t, over queries with a copy
 *     retrieval     = distinct needle tokens that are copied / tokens of the needle
 * A head copies the needle token i when the query that predicts a token w of the answer has its
 * largest weight on i and x_i = w. */
#pragma once

#include "analyzers/common.h"

/* The published limits: Wu et al. 2024; Crosbie and Shutova 2024. */
#define COPIES_RETRIEVAL 0.1
#define COPIES_INDUCTION 0.3
#define COPIES_SUCCESS 0.5 /* a run counts if its recall is above this */

/* The columns of the probe; `when` is a string literal: when they are read. */
#define COPIES_COLUMNS(when)                                                                       \
    {"copy.top", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, when},                              \
        {"copy.previous", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, when},                     \
        {"copy.duplicate", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, when},                    \
    {                                                                                              \
        "copy.follower", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, when                        \
    }

/* The scores of a head. NaN: no query defines the value. */
struct copies {
    double previous, duplicate, induction, induction_sum;
    double retrieval; /* NaN without a needle, an answer or success */
    int64_t copied;   /* needle tokens that the head copied in the answer */
};

/* Facts that all heads of a trace share. */
struct copies_text {
    struct copies uniform; /* scores of a head that weighs all visible entries equally */
    const char *needle;    /* name of the span; NULL: the trace has no such span */
    int64_t needle_tokens; /* distinct tokens of the span */
    int64_t answer_tokens; /* recorded tokens of the answer */
    double recall;         /* fraction of the needle's words in the answer (ROUGE-1, no stemming) */
};

struct copies_source;

/* Opens the copying evidence of a trace, which must outlive it. *ret is NULL if the trace has no
 * column copy.*. needle: a span of the run header; NULL: "needle", if there is one. Queries outside
 * of [a, b) count only for the retrieval score.
 * KVF_OK; KVF_E_ARG with a sentence if there is no such span, or no column for it; others. */
int copies_open(struct kvf_trace *t, const char *needle, int64_t a, int64_t b,
                struct copies_source **ret, struct kvf_diag *d);
void copies_close(struct copies_source *s); /* accepts NULL */
const struct copies_text *copies_text(const struct copies_source *s);

/* Reads the scores of a query head. KVF_OK or an error of reading. */
int copies_read(struct copies_source *s, const struct head *h, struct copies *ret,
                struct kvf_diag *d);
