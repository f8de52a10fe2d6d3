/* scores.h - the score parts, one file each. */
#ifndef KVF_ENGINE_SCORES_H
#define KVF_ENGINE_SCORES_H

#include "engine/method/method.h"

extern const struct score score_position;   /* score_position.c */
extern const struct score score_received;   /* score_received.c */
extern const struct score score_window;     /* score_window.c */
extern const struct score score_keydiff;    /* score_keydiff.c */
extern const struct score score_random;     /* score_random.c */
extern const struct score score_variance;   /* score_variance.c */
extern const struct score score_below;      /* score_below.c */
extern const struct score score_knorm;      /* score_knorm.c */
extern const struct score score_redundancy; /* score_redundancy.c */
extern const struct score score_expected;   /* score_expected.c */
extern const struct score score_retention, score_write_gate, score_importance; /* score_gates.c */
extern const struct score score_remaining, score_next;                         /* score_twin.c */

#endif
