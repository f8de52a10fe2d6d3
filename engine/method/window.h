/* window.h - the reduction of attention rows, for scores: the rows of the last w queries, reduced
 * over the group of query heads and over the window; private to engine/method/. */
#ifndef KVF_ENGINE_WINDOW_H
#define KVF_ENGINE_WINDOW_H

#include "engine/method/method_state.h"

/* Returns the range of the unprotected entries C in view.order, where they are contiguous. */
void window_candidates(const struct score_input *in, int *ret_first, int *ret_n);

/* Returns the rows of the queries with these ages in the form of kernels.h.  One age may be -1: no
 * row. */
struct window_pair window_pair(const struct score_input *in, int query_head, int enters,
                               int leaves);

/* How to update sums over the window that were computed after `known` rows (-1: never): add the
 * newest n_enter queries, and subtract the query of age `leaves` (-1: no query).  After one new
 * query, this reads only its row and the row that it replaces in the window. */
struct window_turn {
    int taken, n_enter, leaves;
    bool afresh; /* start from sums of 0 */
};
struct window_turn window_turn(const struct score_input *in, int query_head, int known);

/* Returns the distance, in heads, to the head that this thread scores next. */
size_t window_next(const struct score_input *in);

/* Writes the rows of the window, reduced by the parameters group, across and support, to out[slot].
 * scratch: n floats. */
void window_reduce(const struct score_input *in, float *out, float *scratch);

/* Returns the sum of a row's weights over the candidates.  Entries after the query count as 0. */
double window_candidates_sum(const struct score_input *in, const struct window_pair *p);
/* Returns the factor for the rows of query heads from g0 on after the reduction over the window. */
float window_last_scale(const struct score_input *in, int g0, int n_group);

/* Pools v[0..n) in place.  At the edges, missing neighbours count as -inf for the maximum and as 0
 * for the average (as count_include_pad does). */
void window_pool(const struct kernels *k, float *v, float *copy, int n, int width,
                 enum pool_kind kind);

/* Copies the candidates C of v (by slot) to out[0 ..] in order of time.  Returns their number. */
int window_ranks(const struct score_input *in, const float *v, float *out);
/* Copies the candidates C of v (by slot) to out[0 ..] in order of time, and pools them.  Sinks are
 * left out, since pooling would spread their weight.  Returns the number of candidates.  scratch: n
 * floats. */
int window_pool_ranks(const struct score_input *in, const float *v, float *out, float *scratch);
/* Pools the candidates C of v (by slot) in place.  scratch: 2 * n floats. */
void window_pool_candidates(const struct score_input *in, float *v, float *scratch);

#endif
