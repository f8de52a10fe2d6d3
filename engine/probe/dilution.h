/* dilution.h - what probe_dilution.c has beside its configuration, for a device that takes its
 * rows. */
#ifndef KVF_ENGINE_PROBE_DILUTION_H
#define KVF_ENGINE_PROBE_DILUTION_H

#include "engine/probe/probe.h"

enum {
    DILUTION_SLACK = 3, /* the 64 largest, and what is within 1, 2, 4 logits of the least of them */
    DILUTION_PREFIX = KVF_N_CRITERIA + DILUTION_SLACK,
    DILUTION_SETS = DILUTION_PREFIX + PROBE_SPAN_SETS + 1, /* the plan's is the last */
    DILUTION_NEAR = 16, /* steps of half a logit below the largest (proposition 3.1) */
    DILUTION_NONE = -1,
};

enum dilution_kind {
    DILUTION_USEFUL,
    DILUTION_DILUTION,
    DILUTION_KEPT,
    DILUTION_RHO_U,
    DILUTION_RHO_D,
    DILUTION_BETA_KEPT,
    DILUTION_BETA_RHO_U,
    DILUTION_BETA_RHO_D,
    DILUTION_KINDS
};

/* Where columns are; DILUTION_NONE: not recorded. */
struct dilution_layout {
    int n;
    int real[DILUTION_KINDS][DILUTION_SETS];
    int size[DILUTION_SETS];
    int near[2 + PROBE_SPAN_SETS]; /* first of DILUTION_NEAR; [0]: below the largest of all */
};

/* Of an open state of probe_dilution.  Weights that far below another one are so many times it. */
struct dilution_view {
    const struct dilution_layout *at;
    const double *slack, *near; /* [DILUTION_SLACK], [DILUTION_NEAR] */
    const unsigned char *spans; /* [cap] bit k: the token is in set k */
    const float *log_beta;      /* [L*H][cap] of tokens whose gates have been told; NULL: none */
};
struct dilution_view probe_dilution_view(const struct probe_state *s);

#endif
