/* ops.h - the table of training operations, for the CPU (ops_cpu.c) or a CUDA device
 * (engine/device/train_ops.c).
 *
 * No other file of engine/train depends on where the operations run. engine/decode/backend.h has
 * this role for decoding.
 *
 * Operations read and write memory from `alloc` or `device_copy`, called device memory below. On
 * the CPU it is host memory. Host arrays are marked as such. Rows are ld floats apart. Operations
 * without a return value can fail; `check` then returns the error. Gradients are added to their
 * destination unless a comment states that they are set. */
#pragma once

#include "engine/train/attention.h"
#include "engine/train/capacity.h"
#include "engine/train/frozen.h"
#include "engine/train/net.h"
#include "engine/train/optimizer.h"
#include "engine/train/quality.h"

struct trainable;

#define MIN_WRITE_GATE 1e-3f /* minimum of write gates in training */

/* An RMS norm of T rows of `heads` contiguous vectors, C channels each. */
struct norm {
    int T, heads, C;
    float eps;
    const float *w; /* [C] in device memory */
    bool set;       /* backward pass: dx is set */
};

/* A matrix of a model, used for T rows. */
struct matrix_use {
    const struct frozen *f;
    int layer;
    enum tensor_role role;
    int T;
};

/* The training operations of a device. */
struct ops {
    const char *name; /* "cpu" */
    /* precision of matrix multiplications, for records: "f32" if sums equal those of the CPU */
    const char *precision;
    int max_channels; /* maximum head dimension; 0: no limit */

    /* Opens device `which` as c->device. Returns KVF_OK or an error with a message. */
    int (*open)(struct compute *c, int which, struct kvf_diag *d);
    void (*close)(struct compute *c); /* Closes the device; also after a failed open. */
    /* Waits for all pending work. Returns KVF_OK, or KVF_E_BACKEND with a message. */
    int (*check)(const struct compute *c, struct kvf_diag *d);

    /* Returns n * size zeroed bytes of device memory; NULL if memory is exhausted. */
    void *(*alloc)(const struct compute *c, size_t n, size_t size);
    void (*free)(const struct compute *c, void *device); /* accepts NULL */
    /* Returns a device copy of n host floats; on the CPU, the array itself. Returns NULL if memory
     * is exhausted. */
    float *(*device_copy)(const struct compute *c, float *host, size_t n);
    void (*device_copy_free)(const struct compute *c, float *copy); /* accepts NULL */
    void (*to_device)(const struct compute *c, void *device, const void *host, size_t bytes);
    void (*to_host)(const struct compute *c, void *host, const void *device, size_t bytes);
    void (*copy)(const struct compute *c, void *to, const void *from, size_t bytes);
    void (*zero)(const struct compute *c, void *device, size_t bytes);

    /* Prepares the matrices and norms of f's weights for the forward and backward pass, including
     * f->vector. Returns KVF_OK or KVF_E_NOMEM. */
    int (*upload_weights)(const struct compute *c, struct frozen *f);
    void (*free_weights)(const struct compute *c, struct frozen *f);
    /* Prepares trained weights, which are read from their device copy. Returns KVF_OK or
     * KVF_E_NOMEM. */
    int (*prepare_trainable)(const struct compute *c, struct trainable *t);
    void (*release_trainable)(const struct compute *c, struct trainable *t);

    /* out[t, :] = W x[t, :] with ld_out >= padded(rows of W). Backward: dx[t, :] = W^T dy[t, :]. */
    void (*product)(const struct compute *c, const struct matrix_use *w, float *out, size_t ld_out,
                    const float *x, size_t ld_x);
    void (*product_back)(const struct compute *c, const struct matrix_use *w, float *dx,
                         size_t ld_dx, const float *dy, size_t ld_dy);
    /* dw [N, K] += dy^T x: the gradient by W of y = W x. */
    void (*weight_grad)(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N,
                        const float *x, size_t ld_x, int K, int T);
    /* c = or += a b in f32. */
    void (*multiply)(const struct compute *c, const struct tile_product *p);
    /* y = x + by y for n floats. x NULL: y = by y. */
    void (*scale_add)(const struct compute *c, float *y, const float *x, size_t n, float by);

    /* out = norm of x. Backward: the gradient by x, from dy. */
    void (*norm)(const struct compute *c, const struct norm *n, float *out, size_t ld_out,
                 const float *x, size_t ld_x);
    void (*norm_back)(const struct compute *c, const struct norm *n, float *dx, size_t ld_dx,
                      const float *x, size_t ld_x, const float *dy, size_t ld_dy);
    /* dw [C] += sum of dy_c x_c / rms(x) over rows and heads. */
    void (*norm_weight_grad)(const struct compute *c, const struct norm *n, float *dw,
                             const float *x, size_t ld_x, const float *dy, size_t ld_dy);
    /* y = x, or y += x, for T rows of n floats. */
    void (*copy_rows)(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                      int T, int n);
    void (*add_rows)(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                     int T, int n);
    /* add_row: every row of y += row [n]. sum_rows: to [n] += sum of the rows of x. */
    void (*add_row)(const struct compute *c, float *y, size_t ld_y, const float *row, int T, int n);
    void (*sum_rows)(const struct compute *c, float *to, const float *x, size_t ld_x, int T, int n);
    /* Applies RoPE to T rows of heads, at the position of each token in its document. turn:
     * [position][n_rot]. */
    void (*rope)(const struct compute *c, float *x, size_t ld, const float *turn,
                 const int32_t *first, int T, int n_heads, int D, int n_rot);
    /* out [t, F] = silu(x[t, 0..F)) x[t, F..2F). Backward: d [t, F], the gradient by out, becomes d
     * [t, 2F], the gradient by x. */
    void (*swiglu)(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                   int T, int F);
    void (*swiglu_back)(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                        int T, int F);
    /* swiglu and swiglu_back with gelu (tanh form) instead of silu. Only on the CPU. */
    void (*geglu)(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                  int T, int F);
    void (*geglu_back)(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                       int T, int F);

    /* Computes the numbers that attention uses from n gate values. Retention gates: the values.
     * Write gates: the values become at least MIN_WRITE_GATE; the numbers are their logarithms.
     * Backward: sets d_value. own: gradients by the values from losses on them, or NULL. */
    void (*gates)(const struct compute *c, float *number, float *value, size_t n, bool write);
    void (*gates_back)(const struct compute *c, float *d_value, const float *d_number,
                       const float *value, const float *own, size_t n, bool write);
    /* Returns the mean of n values, or of their exponentials. */
    double (*mean)(const struct compute *c, const float *value, size_t n, bool exponential);
    /* to [n, m] = the transpose of from [m, n]. */
    void (*transpose)(const struct compute *c, float *to, const float *from, int m, int n);

    /* Gated attention (attention.h). Scratch in bytes. */
    size_t (*attention_scratch)(const struct compute *c, const struct attention *a);
    void (*attention)(const struct compute *c, const struct attention *a, float *out, size_t ld_out,
                      float *lse, void *scratch);
    void (*attention_back)(const struct compute *c, const struct attention *a,
                           const struct attention_grads *g, void *scratch);

    /* Gate networks (net.h), with w [n->n] in device memory. Scratch in floats. Call net_refresh
     * after a change of w. */
    size_t (*net_scratch)(const struct compute *c, const struct net *n, int T);
    void (*net_refresh)(const struct compute *c, struct net *n);
    void (*net)(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch);
    void (*net_back)(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch);

    /* Losses of capacity.h. */
    double (*capacity)(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta);
    double (*sparsity)(const struct compute *c, const struct sparsity *s, double weight,
                       float *d_g);
    /* Losses of quality.h, with ids, first and share in host memory. Scratch in bytes. */
    size_t (*quality_scratch)(const struct compute *c, const struct quality *q);
    void (*distill_loss)(const struct compute *c, const struct quality *q, float *d_student,
                         struct quality_result *ret, void *scratch);
    /* d_table[ids[t]] += dx[t], tokens in order. */
    void (*embedding_learn)(const struct compute *c, float *d_table, const int32_t *ids,
                            const float *dx, int T, int d);

    /* Optimizer (optimizer.h). */
    double (*l2_norm)(const struct compute *c, const float *g, size_t n);
    void (*step)(const struct compute *c, const struct optimizer *o, int64_t t, double norm,
                 const float *g, float *w, float *m, float *v, size_t n);
};

extern const struct ops ops_cpu;
extern const struct ops ops_cuda; /* in a library of its own, with the kernels */

/* Returns true if c uses a device other than the CPU. */
static inline bool ops_of_device(const struct compute *c)
{
    return c->on && c->on != &ops_cpu;
}

/* Returns "" or "on the device ", for messages about memory. */
static inline const char *ops_where(const struct compute *c)
{
    return ops_of_device(c) ? "on the device " : "";
}

/* Returns the operations of c. */
static inline const struct ops *ops(const struct compute *c)
{
    return c->on ? c->on : &ops_cpu;
}
