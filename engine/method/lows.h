/* lows.h - the few lowest scores of a head, remembered from decision to decision; private to
 * engine/method/.
 *
 * Of a score that knows single entries (`one` in struct score) a head remembers its LOWS lowest,
 * with a bound below each and a floor below all others.  A decision works out as few of them as it
 * needs, and those that have become candidates since.  What lies below the floor is exact and
 * complete; where too little does, all entries are scored and the list is made anew. */
#ifndef KVF_ENGINE_METHOD_LOWS_H
#define KVF_ENGINE_METHOD_LOWS_H

#include "engine/method/state.h"

enum {
    LOWS = 19,       /* with what else a head remembers four lines of memory */
    LOWS_STEPS = 16, /* for which the bounds of scores that fall hold */
    LOWS_CUTS = 4,   /* entries that leave at once at most, for the list to be worth it */
};

/* A score does not lie below the line between what it was when the list was made and what it will
 * be at its end. */
struct low {
    float then, end;
    int32_t slot;
};

struct lows {
    int n;
    float floor;            /* no candidate that is not listed lies below it */
    int32_t from, until;    /* queries for which a list is worth while, and this one holds */
    int32_t seen;           /* candidates at later positions were not looked at */
    struct low entry[LOWS]; /* in any order */
};

/* Whether the row keeps such lists. */
bool lows_kept(const struct method *m, const struct method_params *p);

/* Lists the k worst candidates of a head, or at least some of those that share their places, as
 * shortlist_fill does.  score: what eval gives goes there where the list had to be made anew.
 * False: nothing was listed, and the scores were not worked out. */
bool lows_fill(const struct round *r, const struct score_input *in, int k, float *score,
               float *scratch);

/* The entry of a slot leaves, moves, or all but those of keep[0..n) leave and close ranks. */
void lows_drop(struct method_state *s, int head, int slot);
void lows_move(struct method_state *s, int head, int from, int to);
void lows_keep(struct method_state *s, int head, const unsigned char *keep, int n);
void lows_forget(struct method_state *s); /* all heads */

#endif
