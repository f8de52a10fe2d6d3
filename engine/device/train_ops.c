/* train_ops.c - the training operations on a CUDA device: memory, matrix multiplications and row
 * operations. Most are one kernel. */
#include "engine/device/train.h"

#include <math.h>

#include "base/mem.h"

/* ---- the device and its memory ---- */

static int open_device(struct compute *c, int which, struct kvf_diag *d)
{
    struct device *dev = MEM_NEW(struct device, 1);
    c->device = dev;
    return dev ? gpu_open(which, &dev->gpu, d) : KVF_E_NOMEM;
}

static void close_device(struct compute *c)
{
    struct device *dev = c->device;
    if (!dev)
        return;
    for (int i = 0; dev->gpu && i < N_HELD; i++)
        gpu_free(dev->gpu, dev->held[i]);
    gpu_close(dev->gpu);
    mem_free(dev);
}

static int check(const struct compute *c, struct kvf_diag *d)
{
    struct device *dev = c->device;
    return dev->full ? gpu_no_room(dev->gpu, d,
                                   "the CUDA device has no room for derivatives: try shorter packs "
                                   "or --device cpu")
                     : gpu_wait(dev->gpu, d);
}

static void *alloc(const struct compute *c, size_t n, size_t size)
{
    void *p = gpu_alloc(gpu_of(c), n, size);
    if (p)
        gpu_zero(gpu_of(c), p, n * size);
    return p;
}

static void drop(const struct compute *c, void *device)
{
    if (device)
        gpu_free(gpu_of(c), device);
}

static float *device_copy(const struct compute *c, float *host, size_t n)
{
    float *p = gpu_alloc(gpu_of(c), n, sizeof *p);
    if (p)
        gpu_put(gpu_of(c), p, host, n * sizeof *p);
    return p;
}

static void part(const struct compute *c, float *device)
{
    drop(c, device);
}

static void put(const struct compute *c, void *device, const void *host, size_t bytes)
{
    gpu_put(gpu_of(c), device, host, bytes);
}

static void bring(const struct compute *c, void *host, const void *device, size_t bytes)
{
    gpu_get(gpu_of(c), host, device, bytes);
}

static void copy(const struct compute *c, void *to, const void *from, size_t bytes)
{
    gpu_copy(gpu_of(c), to, from, bytes);
}

static void zero(const struct compute *c, void *device, size_t bytes)
{
    gpu_zero(gpu_of(c), device, bytes);
}

/* ---- matrix multiplications ---- */

static const struct gpu_matrix *matrix_of(const struct matrix_use *w)
{
    const struct device_model *m = w->f->device;
    return &m->matrix[w->layer * LAYER_MATRICES + (int)w->role];
}

static void product(const struct compute *c, const struct matrix_use *w, float *out, size_t ld_out,
                    const float *x, size_t ld_x)
{
    const struct gpu_matrix *m = matrix_of(w);
    device_multiply(c, &(struct gpu_multiply){.c = out,
                                              .ld_c = ld_out,
                                              .a = x,
                                              .a_row = ld_x,
                                              .a_col = 1,
                                              .b = m->data,
                                              .b_row = 1,
                                              .b_col = (size_t)m->K,
                                              .b_type = m->type,
                                              .m = w->T,
                                              .n = m->N,
                                              .k = m->K});
}

static void product_back(const struct compute *c, const struct matrix_use *w, float *dx,
                         size_t ld_dx, const float *dy, size_t ld_dy)
{
    const struct gpu_matrix *m = matrix_of(w);
    device_multiply(c, &(struct gpu_multiply){.c = dx,
                                              .ld_c = ld_dx,
                                              .a = dy,
                                              .a_row = ld_dy,
                                              .a_col = 1,
                                              .b = m->data,
                                              .b_row = (size_t)m->K,
                                              .b_col = 1,
                                              .b_type = m->type,
                                              .m = w->T,
                                              .n = m->K,
                                              .k = m->N});
}

static void outer(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N,
                  const float *x, size_t ld_x, int K, int T)
{
    device_multiply(c, &(struct gpu_multiply){.c = dw,
                                              .ld_c = (size_t)K,
                                              .a = dy,
                                              .a_row = 1,
                                              .a_col = ld_dy,
                                              .b = x,
                                              .b_row = ld_x,
                                              .b_col = 1,
                                              .b_type = WEIGHT_F32,
                                              .m = N,
                                              .n = K,
                                              .k = T,
                                              .add = true});
}

/* Low-rank weights are small; their sums stay in f32. */
static void multiply(const struct compute *c, const struct tile_product *p)
{
    gpu_multiply(gpu_of(c), &(struct gpu_multiply){.c = p->c,
                                                   .ld_c = p->ld_c,
                                                   .a = p->a,
                                                   .a_row = p->a_row,
                                                   .a_col = p->a_col,
                                                   .b = p->b,
                                                   .b_row = p->ld_b,
                                                   .b_col = 1,
                                                   .b_type = WEIGHT_F32,
                                                   .m = p->m,
                                                   .n = p->n,
                                                   .k = p->k,
                                                   .add = p->add});
}

static void blend(const struct compute *c, float *y, const float *x, size_t n, float by)
{
    gpu_blend(gpu_of(c), y, x, n, by);
}

/* ---- row operations ---- */

static struct gpu_norm norm_of(const struct norm *n)
{
    return (struct gpu_norm){n->T, n->heads, n->C, n->eps, n->w};
}

static void norm(const struct compute *c, const struct norm *n, float *out, size_t ld_out,
                 const float *x, size_t ld_x)
{
    struct gpu_norm in = norm_of(n);
    gpu_norm(gpu_of(c), &in, out, ld_out, x, ld_x);
}

static void norm_back(const struct compute *c, const struct norm *n, float *dx, size_t ld_dx,
                      const float *x, size_t ld_x, const float *dy, size_t ld_dy)
{
    struct gpu_norm in = norm_of(n);
    gpu_norm_back(gpu_of(c), &in, dx, ld_dx, x, ld_x, dy, ld_dy, n->set);
}

static void norm_learn(const struct compute *c, const struct norm *n, float *dw, const float *x,
                       size_t ld_x, const float *dy, size_t ld_dy)
{
    struct gpu_norm in = norm_of(n);
    gpu_norm_learn(gpu_of(c), &in, dw, x, ld_x, dy, ld_dy);
}

static void copy_rows(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                      int T, int n)
{
    gpu_copy_rows(gpu_of(c), y, ld_y, x, ld_x, T, n);
}

static void add_rows(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                     int T, int n)
{
    gpu_add_rows(gpu_of(c), y, ld_y, x, ld_x, T, n);
}

static void add_row(const struct compute *c, float *y, size_t ld_y, const float *row, int T, int n)
{
    gpu_add_rows(gpu_of(c), y, ld_y, row, 0, T, n);
}

static void sum_rows(const struct compute *c, float *to, const float *x, size_t ld_x, int T, int n)
{
    gpu_sum_rows(gpu_of(c), to, x, ld_x, T, n);
}

static void rope(const struct compute *c, float *x, size_t ld, const float *turn,
                 const int32_t *first, int T, int n_heads, int D, int n_rot)
{
    gpu_rope_within(gpu_of(c), x, ld, turn, first, T, n_heads, D, n_rot);
}

static void swiglu(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                   int T, int F)
{
    gpu_swiglu(gpu_of(c), out, ld_out, x, ld_x, T, F);
}

static void swiglu_back(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                        int T, int F)
{
    gpu_swiglu_back(gpu_of(c), d, ld_d, x, ld_x, T, F);
}

static void embedding_learn(const struct compute *c, float *d_table, const int32_t *ids,
                            const float *dx, int T, int d)
{
    gpu_embed_learn(gpu_of(c), d_table, ids, dx, T, d);
}

static void gates(const struct compute *c, float *number, float *value, size_t n, bool write)
{
    gpu_gates(gpu_of(c), number, value, n, write, MIN_WRITE_GATE);
}

static void gates_back(const struct compute *c, float *d_value, const float *d_number,
                       const float *value, const float *own, size_t n, bool write)
{
    gpu_gates_back(gpu_of(c), d_value, d_number, value, own, n, write, MIN_WRITE_GATE);
}

/* Returns NAN if memory is exhausted. */
static double sum_of(const struct compute *c, const float *x, size_t n, enum gpu_sum what)
{
    double part[GPU_PARTS], sum = 0;
    double *device = device_hold(c, HELD_PARTS, GPU_PARTS, sizeof *device);
    if (!device)
        return NAN;
    gpu_sum_parts(gpu_of(c), device, x, n, what);
    gpu_get(gpu_of(c), part, device, sizeof part);
    for (int i = 0; i < GPU_PARTS; i++)
        sum += part[i];
    return sum;
}

static double mean(const struct compute *c, const float *value, size_t n, bool exponential)
{
    return sum_of(c, value, n, exponential ? GPU_EXPONENTIALS : GPU_VALUES) / (double)n;
}

static void transpose(const struct compute *c, float *to, const float *from, int m, int n)
{
    gpu_transpose(gpu_of(c), to, from, m, n);
}

/* ---- attention ---- */

static size_t attention_room(const struct compute *c, const struct attention *a)
{
    size_t exact = (size_t)a->n_heads * (size_t)a->T * sizeof(float);
    return c->exact ? exact : gpu_gated_room(a);
}

static void attention(const struct compute *c, const struct attention *a, float *out, size_t ld_out,
                      float *lse, void *scratch)
{
    if (c->exact || !gpu_gated_forward_bf16(gpu_of(c), a, out, ld_out, lse, scratch))
        gpu_gated_forward(gpu_of(c), a, out, ld_out, lse);
}

static void attention_back(const struct compute *c, const struct attention *a,
                           const struct attention_grads *g, void *scratch)
{
    if (c->exact || !gpu_gated_backward_bf16(gpu_of(c), a, g, scratch))
        gpu_gated_backward(gpu_of(c), a, g, scratch);
}

/* Has no work: kernels read the weights that the optimizer writes. */
static void refresh_net(const struct compute *c, struct net *n)
{
    (void)c;
    (void)n;
}

/* ---- the optimizer ---- */

static double length(const struct compute *c, const float *g, size_t n)
{
    return sqrt(sum_of(c, g, n, GPU_SQUARES));
}

static void step(const struct compute *c, const struct optimizer *o, int64_t t, double norm,
                 const float *g, float *w, float *m, float *v, size_t n)
{
    struct optimizer_scalars s = optimizer_scalars(o, t, norm);
    struct gpu_adamw in = {s.rate, s.eps, s.decay, s.b1, s.a1, s.b2, s.a2, s.scale};
    gpu_adamw(gpu_of(c), &in, g, w, m, v, n);
}

const struct ops ops_cuda = {
    .name = "cuda",
    .precision = "bf16",
    .max_channels = GPU_MAX_CHANNELS,
    .open = open_device,
    .close = close_device,
    .check = check,
    .alloc = alloc,
    .free = drop,
    .device_copy = device_copy,
    .device_copy_free = part,
    .to_device = put,
    .to_host = bring,
    .copy = copy,
    .zero = zero,
    .upload_weights = device_take,
    .free_weights = device_leave,
    .prepare_trainable = device_adopt,
    .release_trainable = device_let_go,
    .product = product,
    .product_back = product_back,
    .weight_grad = outer,
    .multiply = multiply,
    .scale_add = blend,
    .norm = norm,
    .norm_back = norm_back,
    .norm_weight_grad = norm_learn,
    .copy_rows = copy_rows,
    .add_rows = add_rows,
    .add_row = add_row,
    .sum_rows = sum_rows,
    .rope = rope,
    .swiglu = swiglu,
    .swiglu_back = swiglu_back,
    .gates = gates,
    .gates_back = gates_back,
    .mean = mean,
    .transpose = transpose,
    .attention_scratch = attention_room,
    .attention = attention,
    .attention_back = attention_back,
    .net_scratch = device_net_scratch,
    .net_refresh = refresh_net,
    .net = device_net,
    .net_back = device_net_back,
    .capacity = device_capacity,
    .sparsity = device_sparsity,
    .quality_scratch = device_quality_scratch,
    .distill_loss = device_quality,
    .embedding_learn = embedding_learn,
    .l2_norm = length,
    .step = step,
};
