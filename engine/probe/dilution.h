/* dilution.h - data of probe_dilution.c that a device needs when it processes the rows. */
#pragma once

#include "engine/probe/probe.h"

enum {
    DILUTION_SLACK = 3, /* the top-64 set, extended by entries within 1, 2, 4 logits of its
                         * smallest */
    DILUTION_PREFIX = KVF_N_CRITERIA + DILUTION_SLACK,
    DILUTION_SETS = DILUTION_PREFIX + PROBE_SPAN_SETS + 1, /* the plan is the last */
    DILUTION_NEAR = 16, /* steps of half a logit below the largest (proposition 3.1) */
    DILUTION_NONE = -1,
};

/* Kinds of columns; probe_dilution.c has the equations. */
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

/* Indices of columns; DILUTION_NONE: not recorded. */
struct dilution_layout {
    int n;
    int real[DILUTION_KINDS][DILUTION_SETS];
    int size[DILUTION_SETS];
    int near[2 + PROBE_SPAN_SETS]; /* first of DILUTION_NEAR; [0]: below the overall maximum */
};

/* View of an open state of probe_dilution. slack and near are factors: a weight that many logits
 * lower is this fraction. */
struct dilution_view {
    const struct dilution_layout *at;
    const double *slack, *near; /* [DILUTION_SLACK], [DILUTION_NEAR] */
    const unsigned char *spans; /* [cap] bit k: the token is in set k */
    const float *log_beta;      /* [L*H][cap] of tokens with reported gates; may be NULL */
};
/* Returns a view that borrows from the state. */
struct dilution_view probe_dilution_view(const struct probe_state *s);
