/* head_kind.h - the kind of a head by stated rules (docs/reference/analyses/heads.md).
 *
 * A condition "x from A to B" is 0 up to A, 1 from B on, straight between, and 1/2 halfway, where
 * the rule changes its mind; of an x that is not defined 0.  A kind's score is the least of its
 * conditions.  The kind has the largest score if that reaches 1/2, the first of equal ones; else
 * mixed, with 1 - that score. */
#pragma once

#include "analyzers/signature.h"

enum head_kind {
    HEAD_WINDOW,
    HEAD_WINDOWS,
    HEAD_SINK,
    HEAD_A_SHAPE,
    HEAD_CONTEXT,
    HEAD_GIST,
    HEAD_NUMBER,
    HEAD_INSTRUCTION,
    HEAD_FILLER,
    N_RULES,
    HEAD_MIXED = N_RULES,
    HEAD_UNKNOWN,
    N_HEAD_KINDS
};

const char *head_kind_name(enum head_kind k);

/* The kind of the head with this signature.  It is HEAD_UNKNOWN, with a score of NaN, where the
 * signature has no sink_mass because the text was too short. */
enum head_kind head_kind_of(const struct signature *s, double ret_scores[N_RULES],
                            double *ret_score);
