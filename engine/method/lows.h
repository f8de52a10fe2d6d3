/* lows.h - a list of the lowest scores of each head that is reused across decisions; private to
 * engine/method/.
 *
 * For a score that can score single entries (`one` in struct score), each head stores its LOWS
 * lowest entries.  Each has a lower bound, and all unlisted candidates have a common lower bound,
 * the floor.  A decision scores as few listed entries as it needs, and adds new candidates.  The
 * scores below the floor are exact and complete.  If there are too few of them, all entries are
 * scored and the list is rebuilt. */
#ifndef KVF_ENGINE_METHOD_LOWS_H
#define KVF_ENGINE_METHOD_LOWS_H

#include "engine/method/state.h"

enum {
    LOWS = 19,       /* struct lows fits four cache lines */
    LOWS_STEPS = 16, /* steps for which the bounds of falling scores are valid */
    LOWS_CUTS = 4,   /* maximum evictions at once for which the list is faster */
};

/* A listed entry.  Its score is not below the line from `then`, its score when the list was built,
 * to `end`, its score at lows.until. */
struct low {
    float then, end;
    int32_t slot;
};

/* The list of a head. */
struct lows {
    int n;
    float floor;            /* no unlisted candidate has a lower score */
    int32_t from, until;    /* first query that may use a list; last query for which it is valid */
    int32_t seen;           /* candidates at this position or later are not considered yet */
    struct low entry[LOWS]; /* in any order */
};

/* Returns true if the preset uses such lists. */
bool lows_kept(const struct method *m, const struct method_params *p);

/* Lists the k worst candidates of a head as shortlist_fill() does.  If heads share a budget, the
 * list may be shorter.  score: receives the scores of eval if the list had to be rebuilt.  Returns
 * false if it did not list the candidates; the caller must then score all entries. */
bool lows_fill(const struct round *r, const struct score_input *in, int k, float *score,
               float *scratch);

/* Removes the entry of a slot from the list of head `head` of L * H. */
void lows_drop(struct method_state *s, int head, int slot);
/* Updates the list after the entry of slot `from` moved to slot `to`. */
void lows_move(struct method_state *s, int head, int from, int to);
/* Updates the list after the slots with keep[slot] != 0, of n, were compacted. */
void lows_keep(struct method_state *s, int head, const unsigned char *keep, int n);
/* Clears the lists of all heads. */
void lows_forget(struct method_state *s);

#endif
