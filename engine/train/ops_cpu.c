/* ops_cpu.c - training operations on the CPU: kernels, and threads that divide the rows or tiles of
 * a result. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train/ops.h"
#include "engine/train/trainable.h"

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* ---- memory: device memory is host memory ---- */

static int open_nothing(struct compute *c, int which, struct kvf_diag *d)
{
    (void)which;
    (void)d;
    c->on = &ops_cpu;
    return KVF_OK;
}

static void close_nothing(struct compute *c)
{
    (void)c;
}

static int nothing_failed(const struct compute *c, struct kvf_diag *d)
{
    (void)c;
    (void)d;
    return KVF_OK;
}

static void *alloc(const struct compute *c, size_t n, size_t size)
{
    (void)c;
    return mem_alloc(n, size);
}

static void drop(const struct compute *c, void *device)
{
    (void)c;
    mem_free(device);
}

static float *device_copy(const struct compute *c, float *host, size_t n)
{
    (void)c;
    (void)n;
    return host;
}

static void part(const struct compute *c, float *device)
{
    (void)c;
    (void)device;
}

static void copy(const struct compute *c, void *to, const void *from, size_t bytes)
{
    (void)c;
    if (to != from)
        memcpy(to, from, bytes);
}

static void zero(const struct compute *c, void *device, size_t bytes)
{
    (void)c;
    memset(device, 0, bytes);
}

/* ---- matrix multiplications ---- */

/* A task multiplies some panels with some rows. Its rows of x stay in the cache of its core. */
struct product_job {
    const struct compute *c;
    float *out;
    const float *x;
    size_t ld_out, ld_x;
    int T, rows, panels, n_row_tasks;
    const struct packed *w;
};

enum { MIN_ROWS = 256, PANELS_PER_TASK = 12 };

static void product_task(void *ctx, int task, int thread)
{
    const struct product_job *j = ctx;
    (void)thread;
    int t0 = task % j->n_row_tasks * j->rows, p0 = task / j->n_row_tasks * j->panels;
    j->c->k.matmul_f(j->out + (size_t)t0 * j->ld_out, j->ld_out, j->x + (size_t)t0 * j->ld_x,
                     j->ld_x, at_most(j->rows, j->T - t0), j->w, p0,
                     at_most(j->panels, j->w->n_panels - p0));
}

static void by_packed(const struct compute *c, float *out, size_t ld_out, const float *x,
                      size_t ld_x, int T, const struct packed *w)
{
    struct product_job j = {c, out, x, ld_out, ld_x, T, MIN_ROWS, PANELS_PER_TASK, 0, w};
    j.n_row_tasks = (T + j.rows - 1) / j.rows;
    par_run(c->pool, j.n_row_tasks * ((w->n_panels + j.panels - 1) / j.panels), product_task, &j);
}

static void product(const struct compute *c, const struct matrix_use *w, float *out, size_t ld_out,
                    const float *x, size_t ld_x)
{
    by_packed(c, out, ld_out, x, ld_x, w->T, &w->f->weights->layer[w->layer].matrix[w->role]);
}

static void product_back(const struct compute *c, const struct matrix_use *w, float *dx,
                         size_t ld_dx, const float *dy, size_t ld_dy)
{
    by_packed(c, dx, ld_dx, dy, ld_dy, w->T, &w->f->back[w->layer].matrix[w->role]);
}

/* Tasks are squares of dw. One thread computes each sum, in the order of rows. */
enum { SQUARE = 64, SLAB = 128 };

struct outer_job {
    const struct compute *c;
    float *dw;
    const float *dy, *x;
    size_t ld_dy, ld_x;
    int N, K, T, n_down;
};

static void outer_task(void *ctx, int task, int thread)
{
    const struct outer_job *j = ctx;
    int n0 = task % j->n_down * SQUARE, k0 = task / j->n_down * SQUARE;
    (void)thread;
    for (int t0 = 0; t0 < j->T; t0 += SLAB)
        j->c->k.tile_mul(&(struct tile_product){.c = j->dw + (size_t)n0 * (size_t)j->K + (size_t)k0,
                                                .ld_c = (size_t)j->K,
                                                .a = j->dy + (size_t)t0 * j->ld_dy + (size_t)n0,
                                                .a_row = 1,
                                                .a_col = j->ld_dy,
                                                .b = j->x + (size_t)t0 * j->ld_x + (size_t)k0,
                                                .ld_b = j->ld_x,
                                                .m = at_most(SQUARE, j->N - n0),
                                                .n = at_most(SQUARE, j->K - k0),
                                                .k = at_most(SLAB, j->T - t0),
                                                .add = true});
}

static void outer(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N,
                  const float *x, size_t ld_x, int K, int T)
{
    struct outer_job j = {c, dw, dy, x, ld_dy, ld_x, N, K, T, (N + SQUARE - 1) / SQUARE};
    par_run(c->pool, j.n_down * ((K + SQUARE - 1) / SQUARE), outer_task, &j);
}

static void multiply(const struct compute *c, const struct tile_product *p)
{
    c->k.tile_mul(p);
}

static void blend(const struct compute *c, float *y, const float *x, size_t n, float by)
{
    (void)c;
    for (size_t i = 0; i < n; i++)
        y[i] = x ? x[i] + by * y[i] : by * y[i];
}

/* ---- row operations ---- */

struct rows_job;
/* Computes row t, from x to y. */
typedef void row_fn(const struct rows_job *j, int t, float *y, const float *x);
struct rows_job {
    row_fn *row;
    float *y;
    const float *x, *dy;
    size_t ld_y, ld_x, ld_dy;
    int n, heads, D; /* n: floats of a row, or rotated channels */
    const int32_t *first;
    const struct norm *norm;
    swiglu_fn pair; /* a gated activation */
    const struct compute *c;
};

static void rows_task(void *ctx, int t0, int n, int thread)
{
    const struct rows_job *j = ctx;
    (void)thread;
    for (int t = t0; t < t0 + n; t++)
        j->row(j, t, j->y + (size_t)t * j->ld_y, j->x + (size_t)t * j->ld_x);
}

static void rows(const struct compute *c, int T, struct rows_job j)
{
    j.c = c;
    each_rows(c, T, rows_task, &j);
}

static void norm_row(const struct rows_job *j, int t, float *y, const float *x)
{
    const struct norm *m = j->norm;
    (void)t;
    j->c->k.rmsnorm(y, x, m->w, m->heads, m->C, m->eps);
}

static void norm(const struct compute *c, const struct norm *n, float *out, size_t ld_out,
                 const float *x, size_t ld_x)
{
    rows(c, n->T, (struct rows_job){norm_row, out, x, NULL, ld_out, ld_x, .norm = n});
}

static void norm_back_row(const struct rows_job *j, int t, float *dx, const float *x)
{
    const struct norm *m = j->norm;
    if (m->set)
        memset(dx, 0, (size_t)(m->heads * m->C) * sizeof *dx);
    j->c->k.rmsnorm_back(dx, x, m->w, j->dy + (size_t)t * j->ld_dy, m->heads, m->C, m->eps);
}

static void norm_back(const struct compute *c, const struct norm *n, float *dx, size_t ld_dx,
                      const float *x, size_t ld_x, const float *dy, size_t ld_dy)
{
    rows(c, n->T, (struct rows_job){norm_back_row, dx, x, dy, ld_dx, ld_x, ld_dy, .norm = n});
}

static double inverse_rms(const float *x, int n, float eps)
{
    double square = 0;
    for (int i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i];
    return 1 / sqrt(square / n + (double)eps);
}

static void norm_learn(const struct compute *c, const struct norm *n, float *dw, const float *x,
                       size_t ld_x, const float *dy, size_t ld_dy)
{
    (void)c;
    for (int t = 0; t < n->T; t++)
        for (int h = 0; h < n->heads; h++) {
            const float *from = x + (size_t)t * ld_x + (size_t)h * (size_t)n->C;
            const float *d = dy + (size_t)t * ld_dy + (size_t)h * (size_t)n->C;
            float r = (float)inverse_rms(from, n->C, n->eps);
            for (int i = 0; i < n->C; i++)
                dw[i] += d[i] * from[i] * r;
        }
}

static void copy_row(const struct rows_job *j, int t, float *y, const float *x)
{
    (void)t;
    memcpy(y, x, (size_t)j->n * sizeof *y);
}

static void copy_rows(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                      int T, int n)
{
    rows(c, T, (struct rows_job){copy_row, y, x, NULL, ld_y, ld_x, 0, n});
}

static void add_to_row(const struct rows_job *j, int t, float *y, const float *x)
{
    (void)t;
    j->c->k.add(y, x, j->n);
}

static void add_rows(const struct compute *c, float *y, size_t ld_y, const float *x, size_t ld_x,
                     int T, int n)
{
    rows(c, T, (struct rows_job){add_to_row, y, x, NULL, ld_y, ld_x, 0, n});
}

static void add_row(const struct compute *c, float *y, size_t ld_y, const float *row, int T, int n)
{
    add_rows(c, y, ld_y, row, 0, T, n);
}

static void sum_rows(const struct compute *c, float *to, const float *x, size_t ld_x, int T, int n)
{
    for (int t = 0; t < T; t++)
        c->k.add(to, x + (size_t)t * ld_x, n);
}

static void rope_row(const struct rows_job *j, int t, float *y, const float *turn)
{
    j->c->k.rope(y, turn + (size_t)(t - j->first[t]) * (size_t)j->n, j->heads, j->D, j->n);
}

static void rope(const struct compute *c, float *x, size_t ld, const float *turn,
                 const int32_t *first, int T, int n_heads, int D, int n_rot)
{
    rows(c, T, (struct rows_job){rope_row, x, turn, NULL, ld, 0, 0, n_rot, n_heads, D, first});
}

static void gated_row(const struct rows_job *j, int t, float *y, const float *gate)
{
    (void)t;
    j->pair(y, gate, gate + j->n, j->n);
}

static void swiglu(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                   int T, int F)
{
    rows(c, T, (struct rows_job){gated_row, out, x, NULL, ld_out, ld_x, 0, F, .pair = c->k.swiglu});
}

static void swiglu_back_row(const struct rows_job *j, int t, float *d, const float *gate)
{
    (void)t;
    j->c->k.swiglu_back(d, d + j->n, gate, gate + j->n, d, j->n);
}

static void swiglu_back(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                        int T, int F)
{
    rows(c, T, (struct rows_job){swiglu_back_row, d, x, NULL, ld_d, ld_x, 0, F});
}

static void geglu(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x,
                  int T, int F)
{
    rows(c, T, (struct rows_job){gated_row, out, x, NULL, ld_out, ld_x, 0, F, .pair = c->k.geglu});
}

static void geglu_back_row(const struct rows_job *j, int t, float *d, const float *gate)
{
    (void)t;
    j->c->k.geglu_back(d, d + j->n, gate, gate + j->n, d, j->n);
}

static void geglu_back(const struct compute *c, float *d, size_t ld_d, const float *x, size_t ld_x,
                       int T, int F)
{
    rows(c, T, (struct rows_job){geglu_back_row, d, x, NULL, ld_d, ld_x, 0, F});
}

static void embedding_learn(const struct compute *c, float *d_table, const int32_t *ids,
                            const float *dx, int T, int d)
{
    for (int t = 0; t < T; t++)
        c->k.add(d_table + (size_t)ids[t] * (size_t)d, dx + (size_t)t * (size_t)d, d);
}

/* ---- gates ---- */

static void gates(const struct compute *c, float *number, float *value, size_t n, bool write)
{
    (void)c;
    for (size_t i = 0; i < n; i++) {
        if (write)
            value[i] = fmaxf(value[i], MIN_WRITE_GATE);
        number[i] = write ? logf(value[i]) : value[i];
    }
}

static void gates_back(const struct compute *c, float *d_value, const float *d_number,
                       const float *value, const float *own, size_t n, bool write)
{
    (void)c;
    for (size_t i = 0; i < n; i++) {
        float d = d_number[i], g = value[i], more = own ? own[i] : 0.0f;
        if (write)
            d_value[i] = g > MIN_WRITE_GATE ? d / g + more : 0.0f; /* the clamp is flat below */
        else
            d_value[i] = d + more;
    }
}

static void transpose(const struct compute *c, float *to, const float *from, int m, int n)
{
    (void)c;
    for (size_t i = 0; i < (size_t)m; i++)
        for (size_t j = 0; j < (size_t)n; j++)
            to[j * (size_t)m + i] = from[i * (size_t)n + j];
}

/* ---- operations in other files ---- */

static size_t scratch_of_attention(const struct compute *c, const struct attention *a)
{
    return attention_scratch(a, par_threads(c->pool));
}

static void attention(const struct compute *c, const struct attention *a, float *out, size_t ld_out,
                      float *lse, void *scratch)
{
    attention_forward(a, out, ld_out, lse, c->pool, scratch);
}

static void attention_back(const struct compute *c, const struct attention *a,
                           const struct attention_grads *g, void *scratch)
{
    attention_backward(a, g, c->pool, scratch);
}

static size_t scratch_of_net(const struct compute *c, const struct net *n, int T)
{
    return net_scratch(n, T, par_threads(c->pool));
}

static void refresh_net(const struct compute *c, struct net *n)
{
    net_refresh(n, c->pool);
}

static void net(const struct compute *c, const struct net *n, int layer, const struct net_input *in,
                float *tape, float *value, float *scratch)
{
    net_forward(n, c, layer, in, tape, value, scratch);
}

static void net_back(const struct compute *c, const struct net *n, int layer,
                     const struct net_input *in, const float *tape, const float *d_value,
                     const struct net_grads *to, float *scratch)
{
    net_backward(n, c, layer, in, tape, d_value, to, scratch);
}

static double capacity(const struct compute *c, const struct capacity *s, double weight,
                       float *sums, float *d_log_beta)
{
    return capacity_loss(s, weight, sums, d_log_beta, c->pool);
}

static double sparsity(const struct compute *c, const struct sparsity *s, double weight, float *d_g)
{
    return sparsity_loss(s, weight, d_g, c->pool);
}

static size_t scratch_of_quality(const struct compute *c, const struct quality *q)
{
    return quality_scratch(q, par_threads(c->pool));
}

static void quality(const struct compute *c, const struct quality *q, float *d_student,
                    struct quality_result *ret, void *scratch)
{
    quality_loss(q, d_student, ret, c->pool, scratch);
}

static double length(const struct compute *c, const float *g, size_t n)
{
    (void)c;
    return optimizer_norm(g, n);
}

static void step(const struct compute *c, const struct optimizer *o, int64_t t, double norm,
                 const float *g, float *w, float *m, float *v, size_t n)
{
    (void)c;
    optimizer_step(o, t, norm, g, w, m, v, n);
}

static int take(const struct compute *c, struct frozen *f)
{
    return frozen_transpose(f, c->pool);
}

static void leave(const struct compute *c, struct frozen *f)
{
    (void)c;
    frozen_drop(f);
}

/* Does nothing: the packed matrices are those of the decoder. */
static int adopt(const struct compute *c, struct trainable *t)
{
    (void)c;
    (void)t;
    return KVF_OK;
}

static void let_go(const struct compute *c, struct trainable *t)
{
    (void)c;
    (void)t;
}

static double mean(const struct compute *c, const float *value, size_t n, bool exponential)
{
    double sum = 0;
    (void)c;
    for (size_t i = 0; i < n; i++)
        sum += exponential ? exp((double)value[i]) : (double)value[i];
    return sum / (double)n;
}

const struct ops ops_cpu = {
    .name = "cpu",
    .precision = "f32",
    .open = open_nothing,
    .close = close_nothing,
    .check = nothing_failed,
    .alloc = alloc,
    .free = drop,
    .device_copy = device_copy,
    .device_copy_free = part,
    .to_device = copy,
    .to_host = copy,
    .copy = copy,
    .zero = zero,
    .upload_weights = take,
    .free_weights = leave,
    .prepare_trainable = adopt,
    .release_trainable = let_go,
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
    .geglu = geglu,
    .geglu_back = geglu_back,
    .gates = gates,
    .gates_back = gates_back,
    .mean = mean,
    .transpose = transpose,
    .attention_scratch = scratch_of_attention,
    .attention = attention,
    .attention_back = attention_back,
    .net_scratch = scratch_of_net,
    .net_refresh = refresh_net,
    .net = net,
    .net_back = net_back,
    .capacity = capacity,
    .sparsity = sparsity,
    .quality_scratch = scratch_of_quality,
    .distill_loss = quality,
    .embedding_learn = embedding_learn,
    .l2_norm = length,
    .step = step,
};
