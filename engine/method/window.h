/* window.h - what the scores from attention rows share: the last w queries' rows,
 * reduced over the group of query heads and over the window; private to
 * engine/method/. */
#ifndef KVF_ENGINE_WINDOW_H
#define KVF_ENGINE_WINDOW_H

#include "engine/method/method_state.h"

/* Where the unprotected entries C lie in view.order: they are neighbours there. */
void window_candidates(const struct score_input *in, int *ret_first, int *ret_n);

/* The rows of two queries of these ages (-1: none, not both), as kernels.h takes them. */
struct window_pair window_pair(const struct score_input *in, int query_head, int enters,
                               int leaves);

/* How sums over the window, made when `known` rows had been taken (-1: never), become those
 * of now: the newest n_enter queries enter, the one of age `leaves` (-1: none) leaves.
 * Where one query has come since, no row but its own and that of the one that left is read. */
struct window_turn {
    int taken, n_enter, leaves;
    bool afresh; /* from 0 */
};
struct window_turn window_turn(const struct score_input *in, int query_head, int known);

/* How many heads farther on is the one that this thread scores next. */
size_t window_next(const struct score_input *in);

/* out[slot] = the rows of the window reduced as the params say (group, across,
 * support).  scratch: n floats. */
void window_reduce(const struct score_input *in, float *out, float *scratch);

/* What a row gave to the candidates, 0 of those that came later. */
double window_candidates_sum(const struct score_input *in, const struct window_pair *p);
/* What the rows of query heads from g0 on, reduced over the window, are multiplied with. */
float window_last_scale(const struct score_input *in, int g0, int n_group);

/* Pools v[0..n) in place; edges: missing neighbours count as -inf for the maximum
 * and as 0 for the average (as count_include_pad does). */
void window_pool(const struct kernels *k, float *v, float *copy, int n, int width,
                 enum pool_kind kind);

/* out[0 ..] = the C of v (by slot) in order of time; returns how many. */
int window_ranks(const struct score_input *in, const float *v, float *out);
/* out[0 ..] = the C of v (by slot), pooled in order of time: a sink would lend its weight to the
 * entries behind it.  Returns how many.  scratch: n floats. */
int window_pool_ranks(const struct score_input *in, const float *v, float *out, float *scratch);
/* Pools the C of v in place.  scratch: 2 * n floats. */
void window_pool_candidates(const struct score_input *in, float *v, float *scratch);

#endif
