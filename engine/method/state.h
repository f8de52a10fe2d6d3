/* state.h - the running state of a method; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_STATE_H
#define KVF_ENGINE_METHOD_STATE_H

#include "engine/method/evidence.h"
#include "engine/method/method.h"

struct method_state {
    const struct method *method;
    struct method_params params;
    struct method_shape shape;
    struct evidence evidence;
    int32_t next_decision;
    int cap;            /* slots per decision */
    /* one decision per KV head, or per layer (scope) */
    int n_groups;
    int *n_cut;         /* [n_groups] */
    int32_t *victim;    /* [n_groups][cap] slots, worst first; then the best cut + 1 */
    float *value;       /* [n_groups][cap] scores by slot */
    unsigned char *keep; /* [cap] scratch of applying */
    float *scratch;     /* [threads][scratch_len] */
    int scratch_len, n_threads;
};

#endif
