/* peaks.h - a list of the lowest scores of each head for scores with across=max and
 * support=candidates, so that a decision reads only a part of the window; private to
 * engine/method/.
 *
 * Such a score is an entry's largest weight over the window's queries.  Each query's weights are
 * divided by their sum over the candidates.  A head stores the weights of some candidates in
 * contiguous memory (`column`), including those with the lowest scores.  It also stores each
 * query's sum over all candidates.  The score of every unlisted candidate was at least a floor, by
 * queries that are still in the window after a number of steps.  Later changes of these queries'
 * sums scale the floor.  The scores below the scaled floor are exact and complete.  If there are
 * too few of them, the window is read and the list is rebuilt. */
#ifndef KVF_ENGINE_METHOD_PEAKS_H
#define KVF_ENGINE_METHOD_PEAKS_H

#include "engine/method/state.h"

enum {
    PEAKS = 64,        /* maximum number of listed candidates; a multiple of any vector width */
    PEAKS_FREE = 5,    /* places for later candidates */
    PEAKS_STRIDE = 4,  /* steps for which one floor is valid */
    PEAKS_STRIDES = 2, /* floors after that of the first step */
    PEAKS_STEPS = PEAKS_STRIDE * PEAKS_STRIDES, /* maximum steps for which a list is valid */
    PEAKS_CUTS = 4, /* maximum evictions at once for which the list is faster */
};

/* The list of a KV head. */
struct peaks {
    int known, made; /* rows received when it was last updated and when built; -1: no list */
    int32_t seen;    /* candidates at this position or later are not considered yet */
    float floor[PEAKS_STRIDES + 1];  /* for the first step, up to one stride, up to two, ... */
    int32_t slot[PEAKS], pos[PEAKS]; /* slot -1: the place is free */
};

/* The lists of all heads. */
struct peaks_state {
    int rows;           /* rows of the rings of a KV head's query heads */
    struct peaks *head; /* [L * H] */
    double *sum;        /* [L * H][rows][2] sum over the candidates, and its maximum so far */
    float *scale;       /* [L * H][rows][2] 1 / sum, now and when the list was built */
    float *column;      /* [L * H][rows][PEAKS] weights; 0 for entries after the query */
};

/* Returns true if the preset uses such lists. */
bool peaks_kept(const struct method *m, const struct method_params *p);
/* Creates empty lists.  KVF_OK or KVF_E_NOMEM. */
int peaks_create(const struct method_state *s, struct peaks_state **ret);
void peaks_destroy(struct peaks_state *p); /* accepts NULL */

/* Prefetches the memory that peaks_fill() reads of a head.  slot: a new candidate. */
void peaks_ask(const struct method_state *s, int head, int slot);
/* Lists the k worst candidates of a head as lows_fill() does. */
bool peaks_fill(const struct round *r, const struct score_input *in, int k, float *scratch);
/* These update the lists as the functions of equal name in lows.h do. */
void peaks_drop(struct method_state *s, int head, int slot);
void peaks_move(struct method_state *s, int head, int from, int to);
void peaks_keep(struct method_state *s, int head, const unsigned char *keep, int n);
void peaks_forget(struct method_state *s);

#endif
