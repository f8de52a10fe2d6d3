/* ops.h - the operations of training: those of the processor (ops_cpu.c), or those of a CUDA
 * device (device.c) behind the same table.  No other file of engine/train knows which of the two
 * computes, as engine/decode/backend.h has it for decoding.
 *
 * Operations read and write memory that alloc or twin gave ("there"); what is said to lie here is
 * the host's.  With the processor both are the same memory.  Rows are ld floats apart.  Operations
 * that return nothing may fail; check tells of it.  Derivatives are added to what they are
 * derivatives by, unless it is said that they are set. */
#ifndef KVF_ENGINE_TRAIN_OPS_H
#define KVF_ENGINE_TRAIN_OPS_H

#include "engine/train/attention.h"
#include "engine/train/capacity.h"
#include "engine/train/frozen.h"
#include "engine/train/net.h"
#include "engine/train/optimizer.h"
#include "engine/train/quality.h"

struct trainable;

#define MIN_WRITE_GATE 1e-3f /* of write gates while training */

/* Norms of T rows of `heads` vectors that adjoin, C channels each. */
struct norm {
    int T, heads, C;
    float eps;
    const float *w; /* [C] there */
    bool set;       /* back: dx is set */
};

/* One matrix of a model, for T rows. */
struct matrix_use {
    const struct frozen *f;
    int layer;
    enum tensor_role role;
    int T;
};

struct ops {
    const char *name; /* "cpu" */
    /* What is multiplied, for records: "f32" where sums are those of the processor. */
    const char *precision;
    int most_channels; /* of a head; 0: any number */

    /* A device as c->device.  KVF_OK or an error with a sentence. */
    int (*open)(struct compute *c, int which, struct kvf_diag *d);
    void (*close)(struct compute *c); /* accepts what open left behind when it failed */
    /* Waits for all that was begun.  KVF_OK, or KVF_E_BACKEND with a sentence. */
    int (*check)(const struct compute *c, struct kvf_diag *d);

    /* n * size bytes of zeros there; NULL: no room. */
    void *(*alloc)(const struct compute *c, size_t n, size_t size);
    void (*free)(const struct compute *c, void *there); /* accepts NULL */
    /* What stands there for n floats here, with their values; the processor's is the array itself.
     * NULL: no room. */
    float *(*device_copy)(const struct compute *c, float *here, size_t n);
    void (*device_copy_free)(const struct compute *c, float *twin); /* accepts NULL */
    void (*to_device)(const struct compute *c, void *there, const void *here, size_t bytes);
    void (*to_host)(const struct compute *c, void *here, const void *there, size_t bytes);
    void (*copy)(const struct compute *c, void *to, const void *from, size_t bytes);
    void (*zero)(const struct compute *c, void *there, size_t bytes);

    /* The matrices and norms of f's weights, for both directions: fills vector and what the
     * operations need beside.  KVF_OK or KVF_E_NOMEM. */
    int (*upload_weights)(const struct compute *c, struct frozen *f);
    void (*free_weights)(const struct compute *c, struct frozen *f);
    /* The same of weights that learn, which are read where their twin is. */
    int (*adopt)(const struct compute *c, struct trainable *t);
    void (*let_go)(const struct compute *c, struct trainable *t);

    /* out[t, :] = W x[t, :], ld_out >= padded(rows of W); and dx[t, :] = W^T dy[t, :]. */
    void (*product)(const struct compute *c, const struct matrix_use *w, float *out, size_t ld_out,
                    const float *x, size_t ld_x);
    void (*product_back)(const struct compute *c, const struct matrix_use *w, float *dx,
                         size_t ld_dx, const float *dy, size_t ld_dy);
    /* dw [N, K] += dy^T x: the derivative by W of y = W x. */
    void (*weight_grad)(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N,
                        const float *x, size_t ld_x, int K, int T);
    void (*multiply)(const struct compute *c, const struct tile_product *p);
    /* y = x + by y for n floats; x NULL: y = by y. */
    void (*scale_add)(const struct compute *c, float *y, const float *x, size_t n, float by);

    void (*norm)(const struct compute *c, const struct norm *n, float *out, size_t ld_out,
                 const float *x, size_t ld_x);
    void (*norm_back)(const struct compute *c, const struct norm *n, float *dx, size_t ld_dx,
                      const float *x, size_t ld_x, const float *dy, size_t ld_dy);
    /* dw [C] += the sum of dy_c x_c / rms(x) over rows and heads. */
    void (*norm_weight_grad)(const struct compute *c, const struct norm *n, float *dw,
                             const float *x, size_t ld_x, const float *dy, size_t ld_dy);
    /* y = x, or y += x, T rows of n. */
    void (*copy_rows)(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                      int T, int n);
    void (*add_rows)(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                     int T, int n);
    /* Every row += row [n]; and to [n] += the sum of the rows. */
    void (*add_row)(const struct compute *c, float *y, size_t ld_y, const float *row, int T, int n);
    void (*sum_rows)(const struct compute *c, float *to, const float *x, size_t ld_x, int T, int n);
    /* Turns heads by the position of their token in its document: turn [position][n_rot]. */
    void (*rope)(const struct compute *c, float *x, size_t ld, const float *turn,
                 const int32_t *first, int T, int n_heads, int D, int n_rot);
    /* out [t, F] = silu(x[t, 0..F)) x[t, F..2F); back: d [t, F] by out becomes d [t, 2F] by x. */
    void (*swiglu)(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                   int T, int F);
    void (*swiglu_back)(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                        int T, int F);
    /* The same with gelu (by tanh) in the place of silu; of the processor alone. */
    void (*geglu)(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                  int T, int F);
    void (*geglu_back)(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                       int T, int F);

    /* What attention uses of n values: they themselves, or of write gates the log of what is at
     * least MIN_WRITE_GATE, as the value then is.  Back: d_value is set; own: derivatives by the
     * values of losses on them, or NULL. */
    void (*gates)(const struct compute *c, float *number, float *value, size_t n, bool write);
    void (*gates_back)(const struct compute *c, float *d_value, const float *d_number,
                       const float *value, const float *own, size_t n, bool write);
    /* The mean of n values, or of their exponentials. */
    double (*mean)(const struct compute *c, const float *value, size_t n, bool exponential);
    /* to [n, m] = the transpose of from [m, n]. */
    void (*transpose)(const struct compute *c, float *to, const float *from, int m, int n);

    /* attention.h; scratch in bytes. */
    size_t (*attention_scratch)(const struct compute *c, const struct attention *a);
    void (*attention)(const struct compute *c, const struct attention *a, float *out, size_t ld_out,
                      float *lse, void *scratch);
    void (*attention_back)(const struct compute *c, const struct attention *a,
                           const struct attention_grads *g, void *scratch);

    /* net.h: w [n->n] there; scratch in floats.  refresh: after w here has changed. */
    size_t (*net_scratch)(const struct compute *c, const struct net *n, int T);
    void (*net_refresh)(const struct compute *c, struct net *n);
    void (*net)(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch);
    void (*net_back)(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch);

    /* capacity.h. */
    double (*capacity)(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta);
    double (*sparsity)(const struct compute *c, const struct sparsity *s, double weight,
                       float *d_g);
    /* quality.h, whose ids, first and share lie here; scratch in bytes. */
    size_t (*quality_scratch)(const struct compute *c, const struct quality *q);
    void (*distill_loss)(const struct compute *c, const struct quality *q, float *d_student,
                         struct quality_result *ret, void *scratch);
    /* d_table[ids[t]] += dx[t], tokens in order. */
    void (*embedding_learn)(const struct compute *c, float *d_table, const int32_t *ids,
                            const float *dx, int T, int d);

    /* optimizer.h. */
    double (*l2_norm)(const struct compute *c, const float *g, size_t n);
    void (*step)(const struct compute *c, const struct optimizer *o, int64_t t, double norm,
                 const float *g, float *w, float *m, float *v, size_t n);
};

extern const struct ops ops_cpu;
extern const struct ops ops_cuda; /* in a library of its own, with the kernels */

static inline bool ops_of_device(const struct compute *c)
{
    return c->on && c->on != &ops_cpu;
}

/* "" or "on the device ", for sentences about memory. */
static inline const char *ops_where(const struct compute *c)
{
    return ops_of_device(c) ? "on the device " : "";
}

static inline const struct ops *ops(const struct compute *c)
{
    return c->on ? c->on : &ops_cpu;
}

#endif
