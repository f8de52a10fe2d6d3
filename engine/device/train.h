/* train.h - private header of engine/device/train_*.c: training operations on a CUDA device. */
#ifndef KVF_ENGINE_TRAIN_DEVICE_H
#define KVF_ENGINE_TRAIN_DEVICE_H

#include "engine/cuda/gpu_train.h"
#include "engine/train/ops.h"

/* Scratch buffers that grow on demand. */
enum held { HELD_PARTS, HELD_WEIGHTS, HELD_DERIVATIVES, N_HELD };

/* The state of a device in training. */
struct device {
    struct gpu *gpu;
    void *held[N_HELD];
    size_t bytes[N_HELD];
    bool full; /* an allocation failed, so results that need it are missing */
};

/* A model's matrices on the device. A frozen model owns its matrices: f32 if sums are exact, else
 * bf16. A trained model refers to its device copy. */
struct device_model {
    struct gpu_matrix *matrix; /* [n_layers][LAYER_MATRICES] */
    struct gpu_matrix head;
    float *vectors; /* all vectors of the model */
    bool owns;
};

/* Returns the device of a training run. */
static inline struct gpu *gpu_of(const struct compute *c)
{
    return ((struct device *)c->device)->gpu;
}

/* Returns a scratch buffer of n * size bytes, valid until the next call with the same `what`.
 * Returns NULL and sets `full` if memory is exhausted. */
void *device_hold(const struct compute *c, enum held what, size_t n, size_t size);
/* Computes c = a b: f32 if c->exact, else bf16 if a kernel supports the operands. */
void device_multiply(const struct compute *c, const struct gpu_multiply *p);

/* train_weights.c: upload_weights, free_weights, adopt and let_go of struct ops. */
int device_take(const struct compute *c, struct frozen *f);
void device_leave(const struct compute *c, struct frozen *f);
int device_adopt(const struct compute *c, struct trainable *t);
void device_let_go(const struct compute *c, struct trainable *t);
/* train_gates.c: net_scratch, net and net_back of struct ops. */
size_t device_net_scratch(const struct compute *c, const struct net *n, int T);
void device_net(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch);
void device_net_back(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch);
/* train_loss.c: capacity, sparsity, quality_scratch and distill_loss of struct ops. */
double device_capacity(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta);
double device_sparsity(const struct compute *c, const struct sparsity *s, double weight,
                       float *d_g);
size_t device_quality_scratch(const struct compute *c, const struct quality *q);
void device_quality(const struct compute *c, const struct quality *q, float *d_student,
                    struct quality_result *ret, void *scratch);

#endif
