/* history.h - the global score of G-KV, which combines the scores of successive evictions; private
 * to engine/method/. */
#ifndef KVF_ENGINE_HISTORY_H
#define KVF_ENGINE_HISTORY_H

#include "engine/method/method_state.h"

/* Returns the maximum of v over the m candidates from `first` on, or -infinity if m is 0.  v is
 * indexed by slot or, if order is NULL, by rank in time. */
float history_largest(const float *v, const int32_t *order, int first, int m);

/* Divides v[slot] of all entries by its maximum over the candidates, if that is positive. */
void history_normalise(const struct score_input *in, float *v);

/* Replaces v[slot], the scores of this eviction, by the global score F (parameters history, fold),
 * and stores F for the candidates.  Does nothing without a history. */
void history_fold(const struct score_input *in, float *v);

#endif
