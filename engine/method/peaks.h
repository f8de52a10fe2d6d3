/* peaks.h - where a score is the largest weight of the window's queries (across=max) that the
 * candidates shared among themselves (support=candidates), what lets a decision leave most of the
 * window unread; private to engine/method/.
 *
 * A head remembers the weights of some of its candidates side by side (`column`), those with the
 * least scores among them, and what each query gave to all candidates together.  Who is not listed
 * had a score of at least a floor, by queries that are still in the window after so many steps;
 * since then their scores have changed as the shares of these queries have.  What lies below that
 * is exact and complete; where too little does, the window is read and the list made anew. */
#ifndef KVF_ENGINE_METHOD_PEAKS_H
#define KVF_ENGINE_METHOD_PEAKS_H

#include "engine/method/state.h"

enum {
    PEAKS = 64,     /* candidates that are listed at most, vectors of any width */
    PEAKS_FREE = 5, /* places for candidates that come later */
    PEAKS_STRIDE = 4,
    PEAKS_STRIDES = 2,                          /* steps for which there is a floor, how often */
    PEAKS_STEPS = PEAKS_STRIDE * PEAKS_STRIDES, /* for which a list holds at most */
    PEAKS_CUTS = 4, /* entries that leave at once at most, for the list to be worth it */
};

/* Of a KV head. */
struct peaks {
    int known, made; /* rows taken when it was brought up to date, and made; -1: there is none */
    int32_t seen;    /* candidates at later positions were not looked at */
    float floor[PEAKS_STRIDES + 1];  /* for the first step, for those up to a stride, to two, ... */
    int32_t slot[PEAKS], pos[PEAKS]; /* slot -1: the place is free */
};

struct peaks_state {
    int rows;           /* of the rings of a KV head's query heads */
    struct peaks *head; /* [L * H] */
    double *sum;        /* [L * H][rows][2] of the candidates; the most it was */
    float *scale;       /* [L * H][rows][2] 1 / sum, now and when the list was made */
    float *column;      /* [L * H][rows][PEAKS] weights, 0 of entries that came later */
};

bool peaks_kept(const struct method *m, const struct method_params *p);
int peaks_create(const struct method_state *s, struct peaks_state **ret); /* KVF_E_NOMEM */
void peaks_destroy(struct peaks_state *p);                                /* accepts NULL */

/* Asks for the memory that peaks_fill reads of a head, `slot` having become a candidate. */
void peaks_ask(const struct method_state *s, int head, int slot);
/* As lows_fill. */
bool peaks_fill(const struct round *r, const struct score_input *in, int k, float *scratch);
/* As those of lows.h. */
void peaks_drop(struct method_state *s, int head, int slot);
void peaks_move(struct method_state *s, int head, int from, int to);
void peaks_keep(struct method_state *s, int head, const unsigned char *keep, int n);
void peaks_forget(struct method_state *s);

#endif
