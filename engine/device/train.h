/* train.h - a CUDA device as what training computes with; private to engine/device/train_*.c. */
#ifndef KVF_ENGINE_TRAIN_DEVICE_H
#define KVF_ENGINE_TRAIN_DEVICE_H

#include "engine/cuda/gpu_train.h"
#include "engine/train/ops.h"

/* Memory that grows on demand. */
enum held { HELD_PARTS, HELD_WEIGHTS, HELD_DERIVATIVES, N_HELD };

struct device {
    struct gpu *gpu;
    void *held[N_HELD];
    size_t bytes[N_HELD];
    bool full; /* there was no room for it once: what was to be computed with it was not */
};

/* A model's matrices: of a frozen one their own, in f32 where sums are exact, else in bf16; of one
 * that learns those of its twin. */
struct device_model {
    struct gpu_matrix *matrix; /* [n_layers][LAYER_MATRICES] */
    struct gpu_matrix head;
    float *vectors; /* all of them */
    bool owns;
};

static inline struct gpu *gpu_of(const struct compute *c)
{
    return ((struct device *)c->device)->gpu;
}

/* n * size bytes that stay until the next call for the same; NULL: no room, and it is noted. */
void *device_hold(const struct compute *c, enum held what, size_t n, size_t size);
/* c = a b in the precision that was asked for. */
void device_multiply(const struct compute *c, const struct gpu_multiply *p);

/* train_weights.c */
int device_take(const struct compute *c, struct frozen *f);
void device_leave(const struct compute *c, struct frozen *f);
int device_adopt(const struct compute *c, struct trainable *t);
void device_let_go(const struct compute *c, struct trainable *t);
/* train_gates.c: as in ops.h. */
size_t device_net_scratch(const struct compute *c, const struct net *n, int T);
void device_net(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch);
void device_net_back(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch);
/* train_loss.c: as in ops.h. */
double device_capacity(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta);
double device_sparsity(const struct compute *c, const struct sparsity *s, double weight,
                       float *d_g);
size_t device_quality_scratch(const struct compute *c, const struct quality *q);
void device_quality(const struct compute *c, const struct quality *q, float *d_student,
                    struct quality_result *ret, void *scratch);

#endif
