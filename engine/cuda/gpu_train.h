/* gpu_train.h - the gradient kernels, as engine/train uses them.
 *
 * Conventions are as in gpu.h: all pointers refer to device memory unless stated otherwise, rows
 * are ld floats apart, and functions put work on the device's stream and return. Sums have one
 * order on every device, so the same input gives the same bits. Gradients are accumulated where a
 * comment has +=. Results are within 1e-5 of the C reference, relative to the largest compared
 * value. */
#ifndef KVF_ENGINE_CUDA_GPU_TRAIN_H
#define KVF_ENGINE_CUDA_GPU_TRAIN_H

#include "engine/cuda/gpu.h"
#include "engine/kernels/gate_math.h"
#include "engine/kernels/gated.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c (m x n, rows ld_c apart) = a (m x k) b (k x n), or c += a b. Element (i, j) of a is at a[i *
 * a_row + j * a_col], of b at b[i * b_row + j * b_col]. b is f32 or bf16 (b_type). */
struct gpu_multiply {
    float *c;
    size_t ld_c;
    const float *a;
    size_t a_row, a_col;
    const void *b;
    size_t b_row, b_col;
    enum weight_type b_type;
    int m, n, k;
    bool add;
};
/* Exact: same bits as tile_mul of the C reference. */
void gpu_multiply(struct gpu *g, const struct gpu_multiply *p);
/* Multiplies with cuBLAS, a and b rounded to bf16, within 2^-7 of the sum of |a b| (2^-8 if b is
 * bf16). One stride of a and one of b must be 1. false: cuBLAS or memory for its tiles is missing,
 * and no work was done. */
bool gpu_multiply_bf16(struct gpu *g, const struct gpu_multiply *p);
/* to = from rounded to bf16, adjacent rows of n. */
void gpu_to_bf16(struct gpu *g, uint16_t *to, const float *from, int rows, int n);

/* Gated attention of full sequences (gated.h), in tiles of 64 queries and 64 keys with O(T) memory.
 * D is at most 256; kernels is not used. delta: [n_heads, T] scratch. */
void gpu_gated_forward(struct gpu *g, const struct attention *a, float *out, size_t ld_out,
                       float *lse);
void gpu_gated_backward(struct gpu *g, const struct attention *a, const struct attention_grads *d,
                        float *delta);
/* Gated attention with tensor cores. Queries, keys, values, weights, output gradients and gradients
 * of logits are rounded to bf16, which has the range of f32 and so fits gradients of any scale.
 * Sums, softmax and gates are in f32. With logits up to about ten, forward results are within 2^-6
 * of the largest value of their kind. Gradients are within 2e-2, or 5e-2 if the gates hide most
 * keys but a query's own, because the gradients of the gates then nearly cancel. room:
 * gpu_gated_room bytes of scratch, for this sequence or a longer one. false: D is not a multiple of
 * 16, there is a soft cap, or the device has too little shared memory; no work was done. */
size_t gpu_gated_room(const struct attention *a);
bool gpu_gated_forward_bf16(struct gpu *g, const struct attention *a, float *out, size_t ld_out,
                            float *lse, void *room);
bool gpu_gated_backward_bf16(struct gpu *g, const struct attention *a,
                             const struct attention_grads *d, void *room);

/* RMS norms of T rows of `heads` adjacent vectors of C channels. */
struct gpu_norm {
    int T, heads, C;
    float eps;
    const float *w;
};
void gpu_norm(struct gpu *g, const struct gpu_norm *n, float *out, size_t ld_out, const float *x,
              size_t ld_x);
/* dx = or += the gradient with respect to x, from the output gradient dy. */
void gpu_norm_back(struct gpu *g, const struct gpu_norm *n, float *dx, size_t ld_dx, const float *x,
                   size_t ld_x, const float *dy, size_t ld_dy, bool set);
/* dw [C] += the sum of dy x / rms(x) over rows and heads. */
void gpu_norm_learn(struct gpu *g, const struct gpu_norm *n, float *dw, const float *x, size_t ld_x,
                    const float *dy, size_t ld_dy);
/* to [n] += the sum of T rows. */
void gpu_sum_rows(struct gpu *g, float *to, const float *x, size_t ld_x, int T, int n);
/* y = x or y += x, T rows of n; ld_x 0: the same row each time. */
void gpu_copy_rows(struct gpu *g, float *y, size_t ld_y, const float *x, size_t ld_x, int T, int n);
void gpu_add_rows(struct gpu *g, float *y, size_t ld_y, const float *x, size_t ld_x, int T, int n);
/* y = x + by y for n floats; x NULL: y = by y. */
void gpu_blend(struct gpu *g, float *y, const float *x, size_t n, float by);
/* to [n, m] = the transpose of from [m, n]. */
void gpu_transpose(struct gpu *g, float *to, const float *from, int m, int n);
/* Applies RoPE as gpu_rope does; the angles of token t are row t - first[t] of turn
 * [position][n_rot]. */
void gpu_rope_within(struct gpu *g, float *x, size_t ld, const float *turn, const int32_t *first,
                     int T, int n_heads, int D, int n_rot);
/* out [t, n] = silu(x[t, 0..n)) x[t, n..2n). gpu_swiglu_back replaces the gradient d [t, n] of out
 * by the gradient d [t, 2n] of x. */
void gpu_swiglu(struct gpu *g, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
                int n);
void gpu_swiglu_back(struct gpu *g, float *d, size_t ld_d, const float *x, size_t ld_x, int T,
                     int n);
/* number = value, or for write gates log(value = max(value, least)). gpu_gates_back overwrites
 * d_value; own NULL counts as 0. */
void gpu_gates(struct gpu *g, float *number, float *value, size_t n, bool write, float least);
void gpu_gates_back(struct gpu *g, float *d_value, const float *d_number, const float *value,
                    const float *own, size_t n, bool write, float least);
/* d_table[ids[t]] += dx[t] for T rows of d floats, in order. */
void gpu_embed_learn(struct gpu *g, float *d_table, const int32_t *ids, const float *dx, int T,
                     int d);

/* Layers of gate networks. gpu_activate: y += bias [n], out = act(y), T rows. gpu_activate_back:
 * out = act(y), d *= act'(y). */
void gpu_activate(struct gpu *g, enum gate_activation act, float *y, float *out, size_t ld,
                  const float *bias, int T, int n);
void gpu_activate_back(struct gpu *g, enum gate_activation act, float *out, float *d,
                       const float *y, size_t ld, int T, int n);
/* z += bias [n], and value[t * ld_value + i] = output(z[t, i]).  back: d_z [t, i] is set from
 * d_value. */
void gpu_read_out(struct gpu *g, float *z, size_t ld_z, const float *bias, float *value,
                  size_t ld_value, int T, int n, enum gate_output output);
void gpu_read_out_back(struct gpu *g, float *d_z, size_t ld_dz, const float *z, size_t ld_z,
                       const float *d_value, size_t ld_value, int T, int n,
                       enum gate_output output);

/* Capacity loss (capacity.h): sums [heads, T] become R. gpu_capacity_back sets d_log_beta, the
 * gradient of log beta, from d, the gradient of R. first: [T]. */
void gpu_capacity_sums(struct gpu *g, float *sums, const float *log_beta, const int32_t *first,
                       int heads, int T);
void gpu_capacity_back(struct gpu *g, float *d_log_beta, const float *d, const float *log_beta,
                       const int32_t *first, int heads, int T);
/* sum[b], count[b] over row b: the terms (R - M) w[t] with R > M. total: R is the sum over all
 * heads, which then form one row. */
void gpu_capacity_terms(struct gpu *g, double *sum, int64_t *count, const float *sums,
                        const double *w, double M, int heads, int T, bool total);
/* d[h, t] = scale w[t] if R > M, otherwise 0. */
void gpu_capacity_spread(struct gpu *g, float *d, const float *sums, const double *w, double M,
                         double scale, int heads, int T, bool total);
/* sum[h] of o + (1 - o)(1 - (1 - g)^2) with o[t]; d_g = scale times its derivative. */
void gpu_sparsity(struct gpu *g, double *sum, float *d_g, const float *gate, const double *o,
                  double scale, int heads, int T);

/* Kernels of quality.h. gpu_gather: rows[i] = by x[at[i]]. gpu_scatter_add: x[at[i]] += by
 * rows[i]. */
void gpu_gather(struct gpu *g, float *rows, const float *x, const int32_t *at, int n, int d,
                float by);
void gpu_scatter_add(struct gpu *g, float *x, const float *rows, const int32_t *at, int n, int d,
                     float by);
/* Sums over n rows of V logits, s of the student and t of the teacher (may be NULL), and next[i] =
 * s[i, token[i]]. */
void gpu_kl_parts(struct gpu *g, struct kl_part *part, float *next, const float *s, const float *t,
                  size_t ld, const int32_t *token, int n, int V);
/* s becomes its gradient: kl_back of kernels.h, minus ntp[i] at token[i]. */
void gpu_kl_back(struct gpu *g, float *s, const float *t, size_t ld, const struct kl_coef *coef,
                 const int32_t *token, const float *ntp, int n, int V);
/* sum[t] of (s - x)^2 of row t, and d = scale (s - x). */
void gpu_mse(struct gpu *g, double *sum, float *d, const float *s, const float *x, double scale,
             int T, int n);

/* Partial sums part[GPU_PARTS] of n values, of their exponentials or of their squares. The host
 * adds the parts in order. */
enum { GPU_PARTS = 256 };
/* Terms of gpu_sum_parts. */
enum gpu_sum { GPU_VALUES, GPU_EXPONENTIALS, GPU_SQUARES };
void gpu_sum_parts(struct gpu *g, double *part, const float *x, size_t n, enum gpu_sum what);
/* One AdamW step with the scalars of optimizer.c. */
struct gpu_adamw {
    float rate, eps, decay, b1, a1, b2, a2, scale;
};
void gpu_adamw(struct gpu *g, const struct gpu_adamw *o, const float *grad, float *w, float *m,
               float *v, size_t n);

#ifdef __cplusplus
}
#endif
#endif
