/* device_step.h - private to the device as a backend: a session whose steps run there whole.
 *
 * Evidence of attention and the choice of what leaves are the device's as long as steps follow each
 * other; the cache of the host, probes and the trace learn after each step what happened, from
 * pinned memory: newcomers, what was cut, and rows for those who watch.  The host's cache is right
 * after every step.  Whoever asks for evidence in between calls device_home before. */
#ifndef KVF_ENGINE_DEVICE_STEP_H
#define KVF_ENGINE_DEVICE_STEP_H

#include "engine/cuda/heads.h"
#include "engine/decode/device.h"
#include "engine/method/elsewhere.h"

struct resident_array {
    void *p;
    bool pinned;
};

struct resident {
    struct resident_array owned[64];
    int n_owned;
    bool here;                     /* evidence is newer on the device than on the host */
    int ld;                        /* slots of a head that arrays have room for */
    bool has_rows;                 /* rows of all layers are kept for the host */
    const struct method_state *of; /* whose evidence arrays are made for */
    struct gpu_heads heads;
    /* Rounds. */
    unsigned char *due;  /* [heads] */
    int64_t *go, *may;   /* [heads] */
    float *score, *copy; /* [heads][ld] */
    float *share;        /* [query heads][ring] */
    int32_t *count;      /* [heads] */
    struct gpu_chosen *chosen;
    int32_t *cursor, *gone_head, *gone_slot; /* gone: [n_gone] */
    int64_t n_gone;
    int32_t *victim;     /* [n_victims] */
    float *victim_score; /* [n_victims] */
    int64_t n_victims;
    /* Evidence. */
    double *sum, *anchor;
    float *norms, *gate, *history;
    void *scratch; /* of the score */
    struct gpu_window window;
    int taken; /* rows ever taken */
    /* A step. */
    float *turns, *numbers;      /* [2][rope_dim], [heads] of gates */
    float *qkv, *pre;            /* [L][ld_qkv], [L][ld_pre] */
    float *rows, *lse, *entropy; /* [L][G][ld], [L][G]; of one layer without has_rows */
    int32_t *seen;
    /* Pinned: of the same sizes. */
    struct {
        unsigned char *due;
        int64_t *go, *may;
        struct gpu_chosen *chosen;
        int32_t *gone_head, *gone_slot, *victim, *seen;
        float *victim_score, *x, *turns, *numbers, *qkv, *pre, *rows, *lse, *entropy, *logits,
            *normed;
    } host;
};

/* How a score is made on the device: score_table entries of which the kernels of engine/cuda know
 * (device_scores.c). */
struct device_score {
    const struct score *part;
    bool (*takes)(const struct method_params *p); /* NULL: all options */
    void (*eval)(struct session *s, const struct elsewhere_round *round);
    size_t (*scratch)(const struct session *s); /* bytes that eval needs; NULL: none */
};
/* NULL: the part has no kernels for these options. */
const struct device_score *device_score_of(const struct method *m, const struct method_params *p);

/* device_gates.c: whether the numbers of gates can be made there, or were given; their weights,
 * sent once; the numbers of a layer for the token of a step. */
struct device_token {
    const float *x;   /* behind the norm of attention */
    const float *pre; /* queries and keys before they are turned */
    const float *qkv; /* and after, with values */
};
bool device_gates_can(const struct gates *gates);
int device_gates_open(struct session *s); /* KVF_OK or KVF_E_NOMEM */
void device_gates_run(struct session *s, int layer, const struct device_token *x, float *numbers);

/* device_home.c: arrays of a resident, made once and as long as heads need; entering and leaving.
 * KVF_OK, KVF_E_NOMEM or KVF_E_BACKEND. */
int resident_enter(struct session *s);
bool resident_fits(const struct session *s); /* it is there, and the next step has room */
int resident_reserve_lists(struct session *s, int64_t victims, int64_t gone);
void resident_free(struct mirror *m);
int device_home(struct session *s);

/* device_together.c: a whole step, or STEP_ELSEWHERE where the row or who watches asks for the host
 * in between. */
int device_step(struct session *s, int32_t id);
/* The same of sessions that join. */
bool device_joins(const struct session *s);
int device_steps(struct session *room, struct session *const *s, int n, const int32_t *ids);

/* device_step.c, the parts of a step: what leaves before the token, with its newcomer's place and x
 * on the stream; a layer between projections, which are in the session's own, and branches; what
 * the host is to learn, once logits are there; after gpu_wait what it learns; what leaves behind
 * the query, on the stream if *ret_due, and after gpu_wait what the host learns of that. */
int step_begin(struct session *s, int32_t id, struct elsewhere_round *ret_round);
float *step_projected(const struct session *s, int layer);
void step_attend(struct session *s, int layer);
void step_fetch(struct session *s);
int step_learn(struct session *s, const struct elsewhere_round *round);
int step_after(struct session *s, struct elsewhere_round *ret_round, bool *ret_due);
int step_learn_after(struct session *s, const struct elsewhere_round *round);

#endif
