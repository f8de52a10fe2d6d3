/* history.h - the global score of G-KV: scores that outlive the cut they were made for; private to
 * engine/method/. */
#ifndef KVF_ENGINE_HISTORY_H
#define KVF_ENGINE_HISTORY_H

#include "engine/method/method_state.h"

/* The largest of v over the m candidates from `first` on, by slot or (order == NULL) by rank in
 * time; -infinity where there are none. */
float history_largest(const float *v, const int32_t *order, int first, int m);

/* Divides v[slot] of all entries by its largest among the candidates, where that is positive. */
void history_normalise(const struct score_input *in, float *v);

/* v[slot], the scores of this cut, becomes the global score F (params: history, fold), which the
 * candidates remember.  Without a history nothing happens. */
void history_fold(const struct score_input *in, float *v);

#endif
