/* part_state.h - the inside of a comparison; private to part.c and part_report.c. */
#ifndef KVF_STUDIES_PART_STATE_H
#define KVF_STUDIES_PART_STATE_H

#include "analyzers/common.h"
#include "studies/part.h"

enum { PART_STEP, PART_REASON, PART_SCORE, PART_MARGIN, PART_COLUMNS };

struct part_stat {       /* of a head */
    int64_t first;       /* first step at which other entries are seen; -1: none */
    int64_t differ;      /* entries whose evict_step differs ... */
    int64_t only[2];     /* evicted in one run, kept in the other */
    int64_t earlier[2];  /* evicted in both, earlier in this one */
    int64_t equal_steps; /* of T */
};

struct part {
    struct kvf_trace *t[2];
    int column[2][PART_COLUMNS]; /* -1: the trace has none */
    int id[2];
    enum kvf_space space;
    struct head_list heads;
    struct part_stat *stat; /* [heads] */
    int64_t T;              /* steps compared */
    bool end;               /* step T, after the last query, is compared too */
    int64_t first;          /* least over the heads; -1: none */
    int64_t token_first;    /* first token with another id; -1: none */
    int64_t tokens_differ;
    double *id_value[2]; /* [T] */
};

/* evict_step of both runs for one head, [T] each: INFINITY = alive, never below i. */
int part_read(const struct part *p, int head, double *const evict[2], struct kvf_diag *d);

/* Step at which entry i of these evict_steps is seen by one run alone; -1: never. */
int64_t part_step(const struct part *p, int64_t i, double a, double b);

#endif
