/* net_run.c - gate values of a sequence on the CPU, and their derivatives by parameters and inputs.
 *
 * It runs the list of stages of a layout (engine/gate/gate.h) over all rows, and then backward.
 * Stage s computes y_s = W_s a + b_s, where a is the network's input or the output of an earlier
 * stage.  The tape keeps y of all stages: hidden ones [unit][stage][T][ld], then z [T][ld_z], a
 * column per KV head. */
#include <math.h>
#include <string.h>

#include "engine/train/net.h"

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

/* Returns true if the rows that networks read are copied from several inputs. */
static bool gathers(const struct net *n)
{
    struct gate_segment x;
    return layout_segment(n->layout, &n->facts.model, 0, 0, &x);
}

static struct areas lay_out(const struct net *n, int T, int threads, float *at)
{
    size_t t = (size_t)T, u = (size_t)n->n_units, hidden = (size_t)n->n_stages - 1;
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
    size_t hidden = (size_t)(n->n_units * (n->n_stages - 1));
    return (size_t)T * (hidden * padded(n->facts.hidden) + padded(n->H));
}

static const struct net_dense *dense_of(const struct job *j, int u, int stage)
{
    const struct net *n = j->n;
    return &n->dense[(j->layer * n->n_units + u) * n->n_stages + stage];
}

/* Hidden rows of a unit and stage in an area of [unit][stage][T][ld]. */
static float *hidden_at(const struct job *j, float *area, int u, int stage, int t)
{
    size_t row = ((size_t)(u * (j->n->n_stages - 1) + stage)) * (size_t)j->in->T;
    return area + (row + (size_t)t) * j->a.ld;
}

static float *z_at(const struct job *j, int t)
{
    size_t hidden = (size_t)(j->n->n_units * (j->n->n_stages - 1)) * j->a.ld;
    return j->tape + (size_t)j->in->T * hidden + (size_t)t * j->a.ld_z;
}

/* An input vector of a layer, rows ld floats apart, and the derivatives by it. */
struct vector {
    const float *v;
    float *d;
    size_t ld;
};

static struct vector vector_of(const struct job *j, unsigned from)
{
    const struct net_input *in = j->in;
    const struct net_grads none = {NULL, NULL, NULL, NULL, NULL}, *to = j->to ? j->to : &none;
    switch (from) {
    case GATE_IN_K_PRE:
        return (struct vector){in->k_pre, to->dk_pre, in->ld_pre};
    case GATE_IN_K_POST:
        return (struct vector){in->k_post, to->dk_post, in->ld_post};
    case GATE_IN_V:
        return (struct vector){in->v, to->dv, in->ld_v};
    default:
        return (struct vector){in->x, to->dx, (size_t)j->n->facts.model.d_model};
    }
}

/* The i-th segment that a unit reads; false: there is none. */
static bool segment(const struct job *j, int u, int i, struct gate_segment *x,
                    const struct gate_source **ret_from)
{
    const struct layout *l = j->n->layout;
    if (!layout_segment(l, &j->n->facts.model, u, i, x))
        return false;
    *ret_from = &l->stages.input[x->input];
    return true;
}

static const float *norm_of(const struct job *j, int input)
{
    return j->n->w + j->n->norm_at[2 * j->layer + input];
}

/* The inputs of a unit for token t. */
static void gather(const struct job *j, int u, size_t t, float *to)
{
    const struct gate_source *from;
    struct gate_segment x;
    for (int i = 0; segment(j, u, i, &x, &from); i++) {
        const struct vector v = vector_of(j, from->from);
        const float *at = v.v + t * v.ld + x.at;
        if (from->norm)
            j->c->k.rmsnorm(to + x.to, at, norm_of(j, x.input), 1, x.n, GATE_NORM_EPS);
        else
            memcpy(to + x.to, at, (size_t)x.n * sizeof *to);
    }
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
    for (int t = 0; t < T; t++)
        gather(j, u, (size_t)(t0 + t), rows + (size_t)t * j->a.ld_in);
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

/* Returns rows of y of a stage: on the tape if it is hidden, else in scratch. */
static float *y_rows(const struct job *j, int u, int s, int t0)
{
    if (j->n->layout->stages.stage[s].then == GATE_THEN_OUTPUT)
        return j->a.d_z + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_z;
    return hidden_at(j, j->tape, u, s, t0);
}

static size_t ld_y(const struct job *j, int s)
{
    return j->n->layout->stages.stage[s].then == GATE_THEN_OUTPUT ? j->a.ld_z : j->a.ld;
}

static void activate(const struct job *j, int u, int s, int t0, int T)
{
    const float *y = hidden_at(j, j->tape, u, s, t0);
    float *a = hidden_at(j, j->a.act, u, s, t0);
    for (size_t i = 0; i < (size_t)T * j->a.ld; i++)
        a[i] = gate_activate(j->n->facts.activation, y[i]);
}

/* Copies z of the unit's heads to the tape, and writes the gate values. */
static void write_output(const struct job *j, int u, int s, int t0, int T)
{
    const struct net *n = j->n;
    const float *z = y_rows(j, u, s, t0);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < dense_of(j, u, s)->out; o++) {
            size_t h = (size_t)(per_head(n) ? u : o), at = (size_t)(t0 + t);
            float v = z[(size_t)t * j->a.ld_z + (size_t)o];
            z_at(j, t0 + t)[h] = v;
            j->value[at * (size_t)n->H + h] = gate_output(n->layout->stages.output, v);
        }
}

/* dL/dy = act'(y) dL/da.  It computes a again, for the derivatives by weights. */
static void activate_back(const struct job *j, int u, int s, int t0, int T)
{
    const float *y = hidden_at(j, j->tape, u, s, t0);
    float *a = hidden_at(j, j->a.act, u, s, t0), *d = hidden_at(j, j->a.d_pre, u, s, t0);
    for (size_t i = 0; i < (size_t)T * j->a.ld; i++) {
        a[i] = gate_activate(j->n->facts.activation, y[i]);
        d[i] *= gate_activate_slope(j->n->facts.activation, y[i]);
    }
}

/* Sets the derivatives by z of a unit's rows. */
static void output_back(const struct job *j, int u, int s, int t0, int T)
{
    const struct net *n = j->n;
    float *rows = y_rows(j, u, s, t0);
    memset(rows, 0, (size_t)T * j->a.ld_z * sizeof *rows);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < (per_head(n) ? 1 : n->H); o++) {
            size_t h = (size_t)(per_head(n) ? u : o);
            rows[(size_t)t * j->a.ld_z + (size_t)o] =
                j->d_value[(size_t)(t0 + t) * (size_t)n->H + h]
                * gate_output_slope(n->layout->stages.output, z_at(j, t0 + t)[h]);
        }
}

/* Operations after the linear layer of a stage, for rows [t0, t0 + T) of a unit, and derivatives.
 * The layouts that training offers have no GATE_THEN_MULTIPLY. */
typedef void (*then_fn)(const struct job *j, int u, int s, int t0, int T);
static const then_fn then_run[] = {[GATE_THEN_ACTIVATE] = activate,
                                   [GATE_THEN_MULTIPLY] = NULL,
                                   [GATE_THEN_OUTPUT] = write_output};
static const then_fn then_back[] = {[GATE_THEN_ACTIVATE] = activate_back,
                                    [GATE_THEN_MULTIPLY] = NULL,
                                    [GATE_THEN_OUTPUT] = output_back};

static void forward_rows(void *ctx, int t0, int T, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    for (int u = 0; u < j->n->n_units; u++) {
        size_t ld_in;
        const float *input = input_rows(j, u, t0, T, &ld_in);
        for (int s = 0; s < j->n->n_stages; s++) {
            const struct gate_stage *stage = &j->n->layout->stages.stage[s];
            const struct net_dense *d = dense_of(j, u, s);
            const float *x = input;
            float *y = y_rows(j, u, s, t0);
            if (stage->reads)
                x = hidden_at(j, j->a.act, u, stage->reads - 1, t0);
            j->c->k.matmul_f(y, ld_y(j, s), x, stage->reads ? j->a.ld : ld_in, T, &d->packs.forward,
                             0, d->packs.forward.n_panels);
            add_bias(j, d, y, ld_y(j, s), T);
            then_run[stage->then](j, u, s, t0, T);
        }
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

/* Adds the derivatives by the inputs of a unit to those by the vectors of the layer. */
static void inputs_back(const struct job *j, int u, const float *d_in, int t0, int T)
{
    const struct gate_source *from;
    struct gate_segment x;
    int d = j->n->facts.model.d_model;
    for (int t = t0; t < t0 + T; t++, d_in += j->a.ld_in) {
        for (int i = 0; segment(j, u, i, &x, &from); i++) {
            const struct vector v = vector_of(j, from->from);
            size_t at = (size_t)t * v.ld + (size_t)x.at;
            if (from->norm)
                j->c->k.rmsnorm_back(v.d + at, v.v + at, norm_of(j, x.input), d_in + x.to, 1, x.n,
                                     GATE_NORM_EPS);
            else
                j->c->k.add(v.d + at, d_in + x.to, x.n);
        }
        if (!gathers(j->n))
            j->c->k.add(j->to->dx + (size_t)t * (size_t)d, d_in, d);
    }
}

static void backward_rows(void *ctx, int t0, int T, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    for (int u = 0; u < j->n->n_units; u++) {
        size_t ld_x;
        float *d_in = j->a.d_input + ((size_t)u * (size_t)j->in->T + (size_t)t0) * j->a.ld_in;
        input_rows(j, u, t0, T, &ld_x); /* for the derivatives by weights */
        for (int s = j->n->n_stages - 1; s >= 0; s--) {
            const struct gate_stage *stage = &j->n->layout->stages.stage[s];
            const struct packed *back = &dense_of(j, u, s)->packs.backward;
            bool last = stage->then == GATE_THEN_OUTPUT;
            then_back[stage->then](j, u, s, t0, T);
            const float *dy = last ? y_rows(j, u, s, t0) : hidden_at(j, j->a.d_pre, u, s, t0);
            float *dx = stage->reads ? hidden_at(j, j->a.d_pre, u, stage->reads - 1, t0) : d_in;
            j->c->k.matmul_f(dx, stage->reads ? j->a.ld : j->a.ld_in, dy, ld_y(j, s), T, back, 0,
                             back->n_panels);
        }
        inputs_back(j, u, d_in, t0, T);
    }
}

/* Returns all rows of the input of a stage. */
static const float *stage_input(const struct job *j, int u, int s, size_t *ret_ld)
{
    int reads = j->n->layout->stages.stage[s].reads;
    if (reads) {
        *ret_ld = j->a.ld;
        return hidden_at(j, j->a.act, u, reads - 1, 0);
    }
    *ret_ld = gathers(j->n) ? j->a.ld_in : (size_t)j->n->facts.model.d_model;
    return gathers(j->n) ? j->a.input + (size_t)u * (size_t)j->in->T * j->a.ld_in : j->in->x;
}

static float *turned_at(const struct job *j, int u, int s)
{
    return j->a.turned + (size_t)(u * j->n->n_stages + s) * j->a.out * (size_t)j->in->T;
}

/* dy^T of a (unit, stage): [out][T]; and the bias's derivative, summed over tokens. */
static void turn_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    int stages = j->n->n_stages, u = task / stages, s = task % stages, T = j->in->T;
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
        for (int s = 0; s < j->n->n_stages; s++) {
            int panels = (int)(padded(dense_of(j, u, s)->in) / PANEL);
            if (task < panels) {
                weight_panel(j, u, s, task, mine);
                return;
            }
            task -= panels;
        }
}

/* dw_c += sum over heads and tokens of dy_c x_c / rms(x), for the norms of inputs. */
static void norm_back(const struct job *j)
{
    const struct net *n = j->n;
    const struct gate_source *from;
    struct gate_segment x;
    for (int i = 0; segment(j, 0, i, &x, &from) && from->norm; i++) {
        const struct vector v = vector_of(j, from->from);
        float *to = j->to->grad + n->norm_at[2 * j->layer + x.input];
        for (int u = 0; u < n->n_units; u++)
            for (int t = 0; t < j->in->T; t++) {
                segment(j, u, i, &x, &from);
                const float *k = v.v + (size_t)t * v.ld + x.at;
                const float *dy = j->a.d_input + x.to
                                  + ((size_t)u * (size_t)j->in->T + (size_t)t) * j->a.ld_in;
                double square = 0;
                for (int c = 0; c < x.n; c++)
                    square += (double)k[c] * (double)k[c];
                float r = (float)(1.0 / sqrt(square / (double)x.n + (double)GATE_NORM_EPS));
                for (int c = 0; c < x.n; c++)
                    to[c] += dy[c] * k[c] * r;
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
    int stages = n->n_stages, panels = 0;
    each_rows(c, in->T, backward_rows, &j);
    par_run(c->pool, n->n_units * stages, turn_task, &j);
    for (int u = 0; u < n->n_units; u++)
        for (int s = 0; s < stages; s++)
            panels += (int)(padded(dense_of(&j, u, s)->in) / PANEL);
    par_run(c->pool, panels, weight_task, &j);
    norm_back(&j);
}
