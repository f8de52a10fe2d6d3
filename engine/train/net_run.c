/* net_run.c - what gates say of a sequence, and derivatives by parameters and inputs.
 *
 * A network is a chain of stages y_s = W_s a_s + b_s with a_0 the input, a_s = act(y_(s-1))
 * and z the last y.  The tape keeps y of all stages: hidden ones [unit][stage][T][ld], then
 * z [T][ld_z], a column per KV head. */
#include <math.h>
#include <string.h>

#include "engine/train/net.h"

#define WGKV_EPS 1e-6f /* of the published code, as engine/gate/gate_eval.c */

/* Areas of scratch, all floats. */
struct areas {
    float *input, *d_input; /* [unit][T][ld_in] */
    float *act, *d_pre;     /* [unit][stage][T][ld] */
    float *d_z;             /* [unit][T][ld_z] */
    float *turned;          /* [unit][stage][out][T] */
    float *thread;          /* [threads][PANEL * (T + most outputs)] */
    size_t ld_in, ld, ld_z, out, n;
};

struct job {
    const struct net *n;
    const struct compute *c;
    const struct net_input *in;
    int layer;
    float *tape;
    float *value;
    const float *d_value;
    const struct net_grads *to;
    struct areas a;
};

static bool per_head(const struct net *n)
{
    return n->layout->per_head;
}

/* Whether rows of input are put together from keys and values; otherwise they are those of x. */
static bool gathers(const struct net *n)
{
    return n->layout->inputs != GATE_IN_X;
}

static struct areas lay_out(const struct net *n, int T, int threads, float *at)
{
    size_t t = (size_t)T, u = (size_t)n->n_units, hidden = (size_t)n->layout->n_stages - 1;
    struct areas a = {.ld = padded(n->facts.hidden), .ld_z = padded(n->H)};
    a.ld_in = padded(n->dense[0].in);
    a.out = a.ld > a.ld_z ? a.ld : a.ld_z;
    const size_t size[] = {gathers(n) ? u * t * a.ld_in : 0,
                           u * t * a.ld_in,
                           u * hidden * t * a.ld,
                           u * hidden * t * a.ld,
                           u * t * a.ld_z,
                           u * (hidden + 1) * a.out * t,
                           (size_t)threads * PANEL * (t + a.out)};
    float **area[] = {&a.input, &a.d_input, &a.act, &a.d_pre, &a.d_z, &a.turned, &a.thread};
    for (int i = 0; i < 7; i++) {
        *area[i] = at ? at + a.n : NULL;
        a.n += (size[i] + PANEL - 1) / PANEL * PANEL;
    }
    return a;
}

size_t net_scratch(const struct net *n, int T, int n_threads)
{
    return lay_out(n, T, n_threads, NULL).n;
}

size_t net_tape(const struct net *n, int T)
{
    size_t hidden = (size_t)(n->n_units * (n->layout->n_stages - 1));
    return (size_t)T * (hidden * padded(n->facts.hidden) + padded(n->H));
}

static const struct net_dense *dense_of(const struct job *j, int u, int stage)
{
    const struct net *n = j->n;
    return &n->dense[(j->layer * n->n_units + u) * n->layout->n_stages + stage];
}

/* Hidden rows of a unit and stage in an area of [unit][stage][T][ld]. */
static float *hidden_at(const struct job *j, float *area, int u, int stage, int t)
{
    size_t row = ((size_t)(u * (j->n->layout->n_stages - 1) + stage)) * (size_t)j->in->T;
    return area + (row + (size_t)t) * j->a.ld;
}

static float *z_at(const struct job *j, int t)
{
    size_t hidden = (size_t)(j->n->n_units * (j->n->layout->n_stages - 1)) * j->a.ld;
    return j->tape + (size_t)j->in->T * hidden + (size_t)t * j->a.ld_z;
}

static float activate(enum activation act, float x)
{
    if (act == ACT_SILU)
        return x / (1.0f + expf(-x));
    if (act == ACT_GELU)
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    return x > 0 ? x : 0.0f;
}

static float slope(enum activation act, float x)
{
    if (act == ACT_SILU) {
        float s = 1.0f / (1.0f + expf(-x));
        return s * (1.0f + x * (1.0f - s));
    }
    if (act == ACT_GELU) /* Phi(x) + x phi(x) */
        return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    return x > 0 ? 1.0f : 0.0f;
}

/* [norm(k_pre); norm(k_post)] of a head and token. */
static void normed_keys(const struct job *j, int u, size_t t, float *to)
{
    const struct net *n = j->n;
    size_t D = (size_t)n->D;
    const size_t *norm = n->norm_at + 2 * j->layer;
    const float *w_pre = n->w + norm[0], *w_post = n->w + norm[1];
    j->c->k.rmsnorm(to, j->in->k_pre + t * j->in->ld_pre + (size_t)u * D, w_pre, 1, n->D, WGKV_EPS);
    j->c->k.rmsnorm(to + D, j->in->k_post + t * j->in->ld_post + (size_t)u * D, w_post, 1, n->D,
                    WGKV_EPS);
}

/* [k_pre; v] of all heads. */
static void keys_and_values(const struct job *j, size_t t, float *to)
{
    size_t kv = (size_t)(j->n->H * j->n->D);
    memcpy(to, j->in->k_pre + t * j->in->ld_pre, kv * sizeof *to);
    memcpy(to + kv, j->in->v + t * j->in->ld_v, kv * sizeof *to);
}

/* Rows [t0, t0 + T) of what a unit sees. */
static const float *input_rows(const struct job *j, int u, int t0, int T, size_t *ret_ld)
{
    const struct net *n = j->n;
    if (!gathers(n)) {
        *ret_ld = (size_t)n->facts.model.d_model;
        return j->in->x + (size_t)t0 * *ret_ld;
    }
    float *rows = j->a.input + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_in;
    for (int t = 0; t < T; t++) {
        float *to = rows + (size_t)t * j->a.ld_in;
        if (per_head(n))
            normed_keys(j, u, (size_t)(t0 + t), to);
        else
            keys_and_values(j, (size_t)(t0 + t), to);
    }
    *ret_ld = j->a.ld_in;
    return rows;
}

/* ---- forward ---- */

static void add_bias(const struct job *j, const struct net_dense *d, float *y, size_t ld, int T)
{
    for (int t = 0; t < T; t++)
        for (int o = 0; o < d->out; o++)
            y[(size_t)t * ld + (size_t)o] += j->n->w[d->b_at + (size_t)o];
}

/* The last stage: z of the unit's heads. */
static void read_out(const struct job *j, int u, const float *x, size_t ld_x, int t0, int T)
{
    const struct net *n = j->n;
    const struct net_dense *d = dense_of(j, u, n->layout->n_stages - 1);
    float *z = j->a.d_z + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_z;
    j->c->k.matmul_f(z, j->a.ld_z, x, ld_x, T, &d->packs.to, 0, d->packs.to.n_panels);
    add_bias(j, d, z, j->a.ld_z, T);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < d->out; o++) {
            size_t h = (size_t)(per_head(n) ? u : o), at = (size_t)(t0 + t);
            float v = z[(size_t)t * j->a.ld_z + (size_t)o];
            z_at(j, t0 + t)[h] = v;
            j->value[at * (size_t)n->H + h] = j->n->facts.layout == LAYOUT_WGKV
                                                  ? 1.0f / (1.0f + expf(-v))
                                                  : fminf(v, 0.0f) - log1pf(expf(-fabsf(v)));
        }
}

static void forward_rows(void *ctx, int t0, int T, int thread)
{
    const struct job *j = ctx;
    const struct net *n = j->n;
    int last = n->layout->n_stages - 1;
    (void)thread;
    for (int u = 0; u < n->n_units; u++) {
        size_t ld_x;
        const float *x = input_rows(j, u, t0, T, &ld_x);
        for (int s = 0; s < last; s++) {
            const struct net_dense *d = dense_of(j, u, s);
            float *y = hidden_at(j, j->tape, u, s, t0), *a = hidden_at(j, j->a.act, u, s, t0);
            j->c->k.matmul_f(y, j->a.ld, x, ld_x, T, &d->packs.to, 0, d->packs.to.n_panels);
            add_bias(j, d, y, j->a.ld, T);
            for (size_t i = 0; i < (size_t)T * j->a.ld; i++)
                a[i] = activate(n->facts.activation, y[i]);
            x = a;
            ld_x = j->a.ld;
        }
        read_out(j, u, x, ld_x, t0, T);
    }
}

void net_forward(const struct net *n, const struct compute *c, int layer,
                 const struct net_input *in, float *tape, float *value, float *scratch)
{
    struct job j = {
        n, c, in, layer, tape, value, NULL, NULL, lay_out(n, in->T, par_threads(c->pool), scratch)};
    each_rows(c, in->T, forward_rows, &j);
}

/* ---- backward ---- */

/* d log sigmoid(z) = sigmoid(-z) dz;  d sigmoid(z) = g (1 - g) dz. */
static float through_readout(const struct net *n, float z)
{
    float g = 1.0f / (1.0f + expf(-z));
    return n->facts.layout == LAYOUT_WGKV ? g * (1.0f - g) : 1.0f / (1.0f + expf(z));
}

/* Derivatives by z of a unit's rows. */
static float *d_z_rows(const struct job *j, int u, int t0, int T)
{
    const struct net *n = j->n;
    float *rows = j->a.d_z + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_z;
    memset(rows, 0, (size_t)T * j->a.ld_z * sizeof *rows);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < (per_head(n) ? 1 : n->H); o++) {
            size_t h = (size_t)(per_head(n) ? u : o);
            rows[(size_t)t * j->a.ld_z + (size_t)o] =
                j->d_value[(size_t)(t0 + t) * (size_t)n->H + h]
                * through_readout(n, z_at(j, t0 + t)[h]);
        }
    return rows;
}

/* dx += r w dy - ..., through both norms of a head's keys. */
static void keys_back(const struct job *j, int u, const float *d_in, int t0, int T)
{
    const struct net *n = j->n;
    size_t D = (size_t)n->D;
    const size_t *norm = n->norm_at + 2 * j->layer;
    const float *w_pre = n->w + norm[0], *w_post = n->w + norm[1];
    for (int t = 0; t < T; t++, d_in += j->a.ld_in) {
        size_t pre = (size_t)(t0 + t) * j->in->ld_pre + (size_t)u * D;
        size_t post = (size_t)(t0 + t) * j->in->ld_post + (size_t)u * D;
        j->c->k.rmsnorm_back(j->to->dk_pre + pre, j->in->k_pre + pre, w_pre, d_in, 1, n->D,
                             WGKV_EPS);
        j->c->k.rmsnorm_back(j->to->dk_post + post, j->in->k_post + post, w_post, d_in + D, 1, n->D,
                             WGKV_EPS);
    }
}

static void inputs_back(const struct job *j, int u, const float *d_in, int t0, int T)
{
    int d = j->n->facts.model.d_model, kv = j->n->H * j->n->D;
    if (per_head(j->n)) {
        keys_back(j, u, d_in, t0, T);
        return;
    }
    for (int t = t0; t < t0 + T; t++, d_in += j->a.ld_in) {
        if (!gathers(j->n)) {
            j->c->k.add(j->to->dx + (size_t)t * (size_t)d, d_in, d);
            continue;
        }
        j->c->k.add(j->to->dk_pre + (size_t)t * j->in->ld_pre, d_in, kv);
        j->c->k.add(j->to->dv + (size_t)t * j->in->ld_v, d_in + kv, kv);
    }
}

static void backward_rows(void *ctx, int t0, int T, int thread)
{
    const struct job *j = ctx;
    const struct net *n = j->n;
    (void)thread;
    for (int u = 0; u < n->n_units; u++) {
        size_t ld_dy = j->a.ld_z, ld_x;
        const float *dy = d_z_rows(j, u, t0, T);
        input_rows(j, u, t0, T, &ld_x); /* for the weights' derivatives */
        for (int s = n->layout->n_stages - 1; s > 0; s--) {
            const struct net_dense *d = dense_of(j, u, s);
            const float *y = hidden_at(j, j->tape, u, s - 1, t0);
            float *a = hidden_at(j, j->a.act, u, s - 1, t0);
            float *dx = hidden_at(j, j->a.d_pre, u, s - 1, t0);
            j->c->k.matmul_f(dx, j->a.ld, dy, ld_dy, T, &d->packs.back, 0, d->packs.back.n_panels);
            for (size_t i = 0; i < (size_t)T * j->a.ld; i++) {
                a[i] = activate(n->facts.activation, y[i]);
                dx[i] *= slope(n->facts.activation, y[i]);
            }
            dy = dx;
            ld_dy = j->a.ld;
        }
        const struct net_dense *d = dense_of(j, u, 0);
        float *d_in = j->a.d_input + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_in;
        j->c->k.matmul_f(d_in, j->a.ld_in, dy, ld_dy, T, &d->packs.back, 0, d->packs.back.n_panels);
        inputs_back(j, u, d_in, t0, T);
    }
}

/* What a stage sees and what comes back to it, all rows. */
static const float *stage_input(const struct job *j, int u, int s, size_t *ret_ld)
{
    if (s > 0) {
        *ret_ld = j->a.ld;
        return hidden_at(j, j->a.act, u, s - 1, 0);
    }
    *ret_ld = gathers(j->n) ? j->a.ld_in : (size_t)j->n->facts.model.d_model;
    return gathers(j->n) ? j->a.input + (size_t)u * (size_t)j->in->T * j->a.ld_in : j->in->x;
}

static float *turned_at(const struct job *j, int u, int s)
{
    return j->a.turned + (size_t)(u * j->n->layout->n_stages + s) * j->a.out * (size_t)j->in->T;
}

/* dy^T of a (unit, stage): [out][T]; and the bias's derivative, summed over tokens. */
static void turn_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    int stages = j->n->layout->n_stages, u = task / stages, s = task % stages, T = j->in->T;
    const struct net_dense *d = dense_of(j, u, s);
    size_t ld = s == stages - 1 ? j->a.ld_z : j->a.ld;
    const float *dy = s == stages - 1 ? j->a.d_z + (size_t)u * (size_t)T * ld
                                      : hidden_at(j, j->a.d_pre, u, s, 0);
    float *to = turned_at(j, u, s);
    (void)thread;
    for (int o = 0; o < d->out; o++) {
        double sum = 0;
        for (int t = 0; t < T; t++) {
            float v = dy[(size_t)t * ld + (size_t)o];
            to[(size_t)o * (size_t)T + (size_t)t] = v;
            sum += (double)v;
        }
        j->to->grad[d->b_at + (size_t)o] += (float)sum;
    }
}

/* dW += dy^T x for 16 input channels of one (unit, stage). */
static void weight_panel(const struct job *j, int u, int s, int panel, float *mine)
{
    const struct net_dense *d = dense_of(j, u, s);
    size_t T = (size_t)j->in->T, ld, c0 = (size_t)panel * PANEL;
    const float *x = stage_input(j, u, s, &ld);
    size_t n = (size_t)d->in - c0 < PANEL ? (size_t)d->in - c0 : PANEL;
    float *result = mine + PANEL * T;
    memset(mine, 0, PANEL * T * sizeof *mine);
    for (size_t t = 0; t < T; t++)
        memcpy(mine + t * PANEL, x + t * ld + c0, n * sizeof *mine);
    struct packed w = {
        .kind = PACK_F32, .N = PANEL, .K = (int)T, .n_panels = 1, .data = (uint8_t *)(void *)mine};
    j->c->k.matmul_f(result, PANEL, turned_at(j, u, s), T, d->out, &w, 0, 1);
    for (int o = 0; o < d->out; o++)
        j->c->k.add(j->to->grad + d->w_at + (size_t)o * (size_t)d->in + c0,
                    result + (size_t)o * PANEL, (int)n);
}

static void weight_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    float *mine = j->a.thread + (size_t)thread * PANEL * ((size_t)j->in->T + j->a.out);
    for (int u = 0; u < j->n->n_units; u++)
        for (int s = 0; s < j->n->layout->n_stages; s++) {
            int panels = (int)(padded(dense_of(j, u, s)->in) / PANEL);
            if (task < panels) {
                weight_panel(j, u, s, task, mine);
                return;
            }
            task -= panels;
        }
}

/* dw_c += sum over heads and tokens of dy_c x_c / rms(x). */
static void norm_back(const struct job *j)
{
    const struct net *n = j->n;
    size_t D = (size_t)n->D;
    for (int which = 0; which < 2; which++) {
        const float *k = which ? j->in->k_post : j->in->k_pre;
        size_t ld = which ? j->in->ld_post : j->in->ld_pre;
        float *to = j->to->grad + n->norm_at[2 * j->layer + which];
        for (int u = 0; u < n->n_units; u++)
            for (int t = 0; t < j->in->T; t++) {
                const float *x = k + (size_t)t * ld + (size_t)u * D;
                const float *dy = j->a.d_input + which * D
                                  + ((size_t)u * (size_t)j->in->T + (size_t)t) * j->a.ld_in;
                double square = 0;
                for (size_t c = 0; c < D; c++)
                    square += (double)x[c] * (double)x[c];
                float r = (float)(1.0 / sqrt(square / (double)D + (double)WGKV_EPS));
                for (size_t c = 0; c < D; c++)
                    to[c] += dy[c] * x[c] * r;
            }
    }
}

void net_backward(const struct net *n, const struct compute *c, int layer,
                  const struct net_input *in, const float *tape, const float *d_value,
                  const struct net_grads *to, float *scratch)
{
    struct job j = {n,
                    c,
                    in,
                    layer,
                    (float *)(uintptr_t)tape,
                    NULL,
                    d_value,
                    to,
                    lay_out(n, in->T, par_threads(c->pool), scratch)};
    int stages = n->layout->n_stages, panels = 0;
    each_rows(c, in->T, backward_rows, &j);
    par_run(c->pool, n->n_units * stages, turn_task, &j);
    for (int u = 0; u < n->n_units; u++)
        for (int s = 0; s < stages; s++)
            panels += (int)(padded(dense_of(&j, u, s)->in) / PANEL);
    par_run(c->pool, panels, weight_task, &j);
    if (per_head(n))
        norm_back(&j);
}
