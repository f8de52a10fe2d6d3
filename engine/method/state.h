/* state.h - the running state of a method; private to engine/method/. */
#ifndef KVF_ENGINE_METHOD_STATE_H
#define KVF_ENGINE_METHOD_STATE_H

#include "engine/method/evidence.h"
#include "engine/method/method.h"

struct method_state {
    const struct method *method;
    struct method_params params;
    struct method_shape shape;
    struct kernels kernels;
    struct evidence evidence;
    int32_t next_decision;
    int *share;         /* [L] entries per head */
    double *share_scratch; /* [L] */
    bool shares_known;
    int cap;            /* slots per head */
    /* what is cut, per KV head; with SCOPE_LAYER head 0 decides for all */
    int *n_cut;         /* [L * H] */
    int32_t *victim;    /* [L * H][cap] slots, worst first; then the worst that stays, or -1 */
    float *value;       /* [L * H][cap] scores by slot */
    unsigned char *keep; /* [cap] scratch of applying */
    float *scratch;     /* [threads][scratch_len] */
    size_t scratch_len;
    int n_threads;
};

/* Entries of one head that could be cut, in the order of choice. */
struct candidate {
    float score;
    int32_t pos, slot, head;
};

/* A round of decisions before query t (incoming 1) or after a prompt (0). */
struct round {
    struct method_state *s;
    struct cache *cache;
    int32_t t;
    int incoming;
};

/* choose.c: fills n_cut and victim.  One unit is a KV head, or a layer when its
 * heads decide together; scratch: choose_scratch floats. */
int choose_units(const struct method_state *s);
void choose_unit(void *round, int unit, int thread);
size_t choose_scratch(const struct method_state *s);
bool choose_due(const struct round *r); /* whether any head is over its share */

/* options.c */
int method_options_parse(const struct method *m, const char *text, int budget,
                         struct method_params *ret_params, struct kvf_diag *d);

#endif
