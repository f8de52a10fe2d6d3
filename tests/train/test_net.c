/* test_net.c - trainable gates of every layout. Values are compared with the equations in double
 * precision, derivatives by parameters and inputs with finite differences, and all values with
 * those from a gate file. */
#include "engine/gate/safetensors_write.h"
#include "engine/train/net.h"
#include "tests/suite.h"

enum { MOST_IN = 256, INPUTS = 4 };

/* Inputs of all layers: x, keys before and after RoPE, values. Rows are LD floats apart. */
struct input {
    int width; /* floats of a row that are used */
    size_t ld;
    float *f;
    double *v, *d; /* the inputs as double; derivatives as differences */
    float *got;    /* derivatives as net_backward adds them */
};

struct world {
    struct compute c;
    struct net *n;
    int T;
    struct input in[INPUTS];
    unsigned used;   /* inputs that the layout uses: bits of GATE_IN_* */
    double *w, *d_w; /* parameters; differences */
    float *grad;
    float *value, *weight; /* [L][T][H]; the loss is the sum of weight * value */
};

struct shape {
    enum layout_id layout;
    int T, L, H, D, d, hidden;
    bool tied;
};

static const struct shape shapes[] = {
    {LAYOUT_LINEAR, 37, 2, 3, 6, 19, 0, false}, {LAYOUT_LINEAR, 33, 3, 5, 4, 17, 0, true},
    {LAYOUT_LINEAR, 1, 1, 1, 2, 1, 0, false},   {LAYOUT_LINEAR, 5, 2, 17, 2, 48, 0, false},
    {LAYOUT_RGKV, 37, 2, 3, 6, 19, 7, false},   {LAYOUT_RGKV, 33, 3, 5, 4, 17, 9, true},
    {LAYOUT_RGKV, 1, 1, 1, 2, 1, 1, false},     {LAYOUT_RGKV, 5, 2, 2, 10, 5, 33, false},
    {LAYOUT_RG, 37, 2, 3, 6, 19, 7, false},     {LAYOUT_RG, 33, 2, 1, 6, 17, 5, true},
    {LAYOUT_RG10, 37, 2, 3, 6, 19, 7, false},   {LAYOUT_RG10, 33, 3, 2, 6, 17, 5, true},
    {LAYOUT_WGKV, 37, 2, 3, 6, 19, 7, false}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const unsigned input_bit[INPUTS] = {GATE_IN_X, GATE_IN_K_PRE, GATE_IN_K_POST, GATE_IN_V};

/* ---- the equations of docs/reference/gates.md, in double ---- */

static const double *parameter(const struct world *w, int layer, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%d.self_attn.%s", layer, name);
    for (int i = 0; i < w->n->n_tensors; i++)
        if (strcmp(w->n->tensor[i].name, full) == 0)
            return w->w + w->n->tensor[i].at;
    cr_fatal("no tensor %s", full);
    return NULL;
}

static void linear(double *y, const double *W, const double *b, const double *x, int out, int in)
{
    for (int o = 0; o < out; o++) {
        y[o] = b ? b[o] : 0;
        for (int i = 0; i < in; i++)
            y[o] += W[o * in + i] * x[i];
    }
}

static void silu(double *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] /= 1 + exp(-x[i]);
}

static void retention(const struct world *w, int layer, int t, double *out)
{
    const struct net *n = w->n;
    int N = n->facts.hidden, kv = n->H * n->D, d = n->facts.model.d_model;
    double both[MOST_IN], a[MOST_IN], b[MOST_IN], *h = a;
    const double *x = w->in[0].v + (size_t)t * w->in[0].ld;
    bool pairs = n->facts.layout == LAYOUT_RGKV;
    if (pairs) {
        memcpy(both, w->in[1].v + (size_t)t * w->in[1].ld, (size_t)kv * sizeof *both);
        memcpy(both + kv, w->in[3].v + (size_t)t * w->in[3].ld, (size_t)kv * sizeof *both);
        x = both;
    }
    const double *W1 = parameter(w, layer, "retention_gate.linear1.weight");
    const double *bias = parameter(w, layer, "retention_gate.bias");
    if (n->facts.layout == LAYOUT_LINEAR) {
        linear(out, W1, bias, x, n->H, d);
    } else {
        linear(a, W1, parameter(w, layer, "retention_gate.linear1.bias"), x, N, pairs ? 2 * kv : d);
        silu(a, N);
        const double *W = parameter(w, layer, "retention_gate.linear2.weight");
        if (n->facts.layout == LAYOUT_RG10) {
            linear(b, W, parameter(w, layer, "retention_gate.linear2.bias"), a, N, N);
            silu(b, N);
            h = b;
            W = parameter(w, layer, "retention_gate.linear3.weight");
        }
        linear(out, W, bias, h, n->H, N);
    }
    for (int k = 0; k < n->H; k++)
        out[k] = -log1p(exp(-out[k]));
}

static void normed(double *y, const double *x, const double *weight, int n)
{
    double square = 0;
    for (int i = 0; i < n; i++)
        square += x[i] * x[i] / n;
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square + 1e-6) * weight[i];
}

static void write_gates(const struct world *w, int layer, int t, double *out)
{
    const struct net *n = w->n;
    int N = n->facts.hidden, D = n->D;
    double x[MOST_IN], a[MOST_IN];
    for (int h = 0; h < n->H; h++) {
        normed(x, w->in[1].v + (size_t)t * w->in[1].ld + h * D,
               parameter(w, layer, "g_predictors.pre_key_norm.weight"), D);
        normed(x + D, w->in[2].v + (size_t)t * w->in[2].ld + h * D,
               parameter(w, layer, "g_predictors.post_key_norm.weight"), D);
        linear(a, parameter(w, layer, "g_predictors.conv1.weight") + h * N * 2 * D,
               parameter(w, layer, "g_predictors.conv1.bias") + h * N, x, N, 2 * D);
        for (int i = 0; i < N; i++)
            a[i] *= 0.5 * (1 + erf(a[i] / sqrt(2)));
        linear(out + h, parameter(w, layer, "g_predictors.conv2.weight") + h * N,
               parameter(w, layer, "g_predictors.conv2.bias") + h, a, 1, N);
        out[h] = 1 / (1 + exp(-out[h]));
    }
}

static void values(const struct world *w, int layer, int t, double *out)
{
    if (w->n->facts.layout == LAYOUT_WGKV)
        write_gates(w, layer, t, out);
    else
        retention(w, layer, t, out);
}

/* Returns the loss of token t in all layers. */
static double loss_of(const struct world *w, int t)
{
    int L = w->n->L, H = w->n->H;
    double sum = 0, out[MOST_IN];
    for (int l = 0; l < L; l++) {
        values(w, l, t, out);
        for (int h = 0; h < H; h++)
            sum += out[h]
                   * (double)
                         w->weight[((size_t)l * (size_t)w->T + (size_t)t) * (size_t)H + (size_t)h];
    }
    return sum;
}

/* ---- compared values ---- */

static void draw(struct rng *r, float *f, double *v, size_t n, double size)
{
    for (size_t i = 0; i < n; i++) {
        f[i] = (float)(size * rng_normal(r));
        if (v)
            v[i] = (double)f[i];
    }
}

static void make_input(struct world *w, int i, int width, size_t ld, struct rng *r)
{
    struct input *in = &w->in[i];
    size_t n = (size_t)w->T * ld;
    *in = (struct input){
        width, ld, MEM_NEW(float, n), MEM_NEW(double, n), MEM_NEW(double, n), MEM_NEW(float, n)};
    draw(r, in->f, in->v, n, 1);
    for (size_t k = 0; k < n; k++)
        in->got[k] = 0.5f; /* initial value to which derivatives are added */
}

static void open_world(struct world *w, const struct shape *s, unsigned flags, int threads)
{
    struct gates_model m = {s->L, s->d, 2 * s->H, s->H, s->D, 1e-5f, 1e4, NULL, &w->c.k};
    struct net_options o = {.layout = s->layout,
                            .hidden = s->hidden,
                            .tied = s->tied,
                            .bias = 1,
                            .deviation = 0.4,
                            .seed = 5};
    struct rng r = rng_seeded(77);
    *w = (struct world){.T = s->T};
    kernels_init(&w->c.k, flags);
    cr_assert(eq(int, par_create(threads, &w->c.pool), KVF_OK));
    cr_assert(eq(int, net_create(&m, &o, &w->n), KVF_OK));
    size_t kv = (size_t)(s->H * s->D), n = w->n->n, gates = (size_t)(s->L * s->T * s->H);
    w->used = layout_inputs(w->n->layout);
    const size_t ld[INPUTS] = {(size_t)s->d, kv, kv + 5, kv + 3};
    for (int i = 0; i < INPUTS; i++)
        make_input(w, i, i ? (int)kv : s->d, ld[i], &r);
    w->w = MEM_NEW(double, n);
    w->d_w = MEM_NEW(double, n);
    w->grad = MEM_NEW(float, n);
    w->value = MEM_NEW(float, gates);
    w->weight = MEM_NEW(float, gates);
    for (size_t i = 0; i < n; i++) {
        w->n->w[i] += (float)(0.1 * rng_normal(&r)); /* biases too */
        w->w[i] = (double)w->n->w[i];
        w->grad[i] = 0.25f;
    }
    draw(&r, w->weight, NULL, gates, 1);
    net_refresh(w->n, w->c.pool);
}

static void close_world(struct world *w)
{
    for (int i = 0; i < INPUTS; i++) {
        mem_free(w->in[i].f);
        mem_free(w->in[i].v);
        mem_free(w->in[i].d);
        mem_free(w->in[i].got);
    }
    mem_free(w->w);
    mem_free(w->d_w);
    mem_free(w->grad);
    mem_free(w->value);
    mem_free(w->weight);
    net_destroy(w->n);
    par_destroy(w->c.pool);
}

static float *if_used(const struct world *w, int i, float *p)
{
    return w->used & input_bit[i] ? p : NULL;
}

static struct net_input inputs_of(const struct world *w)
{
    return (struct net_input){.x = if_used(w, 0, w->in[0].f),
                              .k_pre = if_used(w, 1, w->in[1].f),
                              .k_post = if_used(w, 2, w->in[2].f),
                              .v = if_used(w, 3, w->in[3].f),
                              .ld_pre = w->in[1].ld,
                              .ld_post = w->in[2].ld,
                              .ld_v = w->in[3].ld,
                              .T = w->T};
}

/* Runs both passes of all layers with equal inputs for each layer. Buffers end in a guard value. */
static void run(struct world *w)
{
    struct net_input in = inputs_of(w);
    size_t per = (size_t)(w->T * w->n->H), n_tape = net_tape(w->n, w->T);
    size_t n_scratch = net_scratch(w->n, w->T, par_threads(w->c.pool));
    OWNED(mem_free)
    float *tape = MEM_NEW(float, n_tape + 1), *scratch = MEM_NEW(float, n_scratch + 1);
    struct net_grads to = {w->grad, if_used(w, 0, w->in[0].got), if_used(w, 1, w->in[1].got),
                           if_used(w, 2, w->in[2].got), if_used(w, 3, w->in[3].got)};
    tape[n_tape] = scratch[n_scratch] = 42;
    for (int l = 0; l < w->n->L; l++) {
        net_forward(w->n, &w->c, l, &in, tape, w->value + (size_t)l * per, scratch);
        memset(scratch, 0xff, n_scratch * sizeof *scratch); /* no state stays in it */
        net_backward(w->n, &w->c, l, &in, tape, w->weight + (size_t)l * per, &to, scratch);
    }
    cr_expect(tape[n_tape] == 42 && scratch[n_scratch] == 42);
}

static double difference(struct world *w, double *p, int t0, int t1)
{
    const double step = 1e-5, was = *p;
    double side[2] = {0};
    for (int k = 0; k < 2; k++) {
        *p = was + (k ? -step : step);
        for (int t = t0; t < t1; t++)
            side[k] += loss_of(w, t);
    }
    *p = was;
    return (side[0] - side[1]) / (2 * step);
}

static void close_to(const double *want, const float *have, double base, size_t n,
                     const char *layout, const char *what)
{
    double most = 1e-2, worst = 0; /* sums on top of 0.5 are also rounded */
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)have[i] - base - want[i]);
        worst = off <= worst ? worst : off; /* a NaN counts */
    }
    cr_expect(worst <= 1e-5 * most, "%s: %s off by %g of %g", layout, what, worst, most);
}

static void check_parameters(struct world *w)
{
    for (size_t i = 0; i < w->n->n; i++)
        w->d_w[i] = difference(w, &w->w[i], 0, w->T);
    for (int i = 0; i < w->n->n_tensors; i++) {
        const struct net_tensor *t = &w->n->tensor[i];
        close_to(w->d_w + t->at, w->grad + t->at, 0.25, t->n, w->n->layout->name, t->name);
    }
}

static void check_inputs(struct world *w)
{
    static const char *const name[INPUTS] = {"x", "k before RoPE", "k after RoPE", "v"};
    for (int i = 0; i < INPUTS; i++)
        for (int t = 0; t < w->T; t++) {
            struct input *in = &w->in[i];
            size_t at = (size_t)t * in->ld;
            for (int c = 0; c < in->width; c++)
                in->d[at + (size_t)c] = difference(w, &in->v[at + (size_t)c], t, t + 1);
            close_to(in->d + at, in->got + at, 0.5, in->ld, w->n->layout->name, name[i]);
        }
}

static void check_values(const struct world *w)
{
    size_t H = (size_t)w->n->H;
    double want[MOST_IN];
    for (int l = 0; l < w->n->L; l++)
        for (int t = 0; t < w->T; t++) {
            const float *have = w->value + (size_t)(l * w->T + t) * H;
            values(w, l, t, want);
            for (size_t h = 0; h < H; h++)
                cr_expect(fabs((double)have[h] - want[h]) <= 3e-6 * fabs(want[h]),
                          "%s: %.9g, wanted %.9g", w->n->layout->name, (double)have[h], want[h]);
        }
}

Test(net, values_and_derivatives_are_those_of_the_equations)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 2; k++) {
            struct world w;
            open_world(&w, &shapes[i], k ? cpu_flags_detect() : 0, 2 * k + 1);
            run(&w);
            check_values(&w);
            check_inputs(&w);
            check_parameters(&w);
            close_world(&w);
        }
}

/* Shared weights are also random: no weight stays 0, and the weights of retention gates have the
 * requested deviation. */
Test(net, all_weights_are_drawn)
{
    struct kernels k;
    kernels_init(&k, 0);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *s = &shapes[i];
        struct gates_model m = {s->L, s->d, 2 * s->H, s->H, s->D, 1e-5f, 1e4, NULL, &k};
        struct net_options o = {s->layout, s->hidden, s->tied, 1, 0.4, 5};
        OWNED(net_destroy) struct net *n = NULL;
        cr_assert(eq(int, net_create(&m, &o, &n), KVF_OK));
        for (int j = 0; j < n->n_tensors; j++) {
            const struct net_tensor *t = &n->tensor[j];
            double square = 0;
            for (size_t at = t->at; t->part->role == R_WEIGHT && at < t->at + t->n; at++) {
                cr_assert(n->w[at] != 0, "%s, shape %d", t->name, i);
                square += (double)n->w[at] * (double)n->w[at];
            }
            if (t->part->role == R_WEIGHT && s->layout != LAYOUT_WGKV && t->n >= 50)
                cr_expect(fabs(sqrt(square / (double)t->n) - 0.4) < 0.12, "%s, shape %d", t->name,
                          i);
        }
    }
}

/* ---- gate files ---- */

static void write_file(const struct net *n, const char *path)
{
    const struct safetensors_note note[] = {
        {"kvfate.kind", n->facts.layout == LAYOUT_WGKV ? "write" : "retention"},
        {"kvfate.layout", n->layout->name}};
    OWNED(mem_free)
    struct safetensors_item *item = MEM_NEW(struct safetensors_item, (size_t)n->n_tensors);
    for (int i = 0; i < n->n_tensors; i++) {
        const struct net_tensor *t = &n->tensor[i];
        item[i] = (struct safetensors_item){
            t->name, t->n_dims, {t->dim[0], t->dim[1], t->dim[2]}, n->w + t->at, WEIGHT_F32};
    }
    succeeds(safetensors_write(path, item, n->n_tensors, note, 2, &d));
}

static void compare(const struct world *w, const struct gates *g)
{
    size_t H = (size_t)w->n->H;
    float out[MOST_IN], *scratch = MEM_NEW(float, gates_scratch(g));
    for (int l = 0; l < w->n->L; l++)
        for (int t = 0; t < w->T; t++) {
            const float *row[INPUTS];
            for (int i = 0; i < INPUTS; i++)
                row[i] = if_used(w, i, w->in[i].f + (size_t)t * w->in[i].ld);
            gates_eval(g, l,
                       &(struct gate_input){
                           .x = row[0], .k_pre = row[1], .k_post = row[2], .v = row[3], .pos = t},
                       out, scratch);
            for (size_t h = 0; h < H; h++) {
                float want = w->value[(size_t)(l * w->T + t) * H + h];
                cr_expect(fabsf(out[h] - want) <= 1e-6f * fabsf(want), "%s: %.9g, trained %.9g",
                          gates_layout(g), (double)out[h], (double)want);
            }
        }
    mem_free(scratch);
}

Test(net, a_gate_file_gives_the_numbers_of_training)
{
    char path[] = "/tmp/kvf_net_XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *s = &shapes[i];
        SCOPED(close_world) struct world w;
        struct gates *g;
        struct kvf_diag d;
        open_world(&w, s, cpu_flags_detect(), 2);
        run(&w);
        write_file(w.n, path);
        cr_assert(eq(int, gates_open(path, &w.n->facts.model, &g, &d), KVF_OK), "%s", d.text);
        cr_expect(eq(int, gates_hidden(g), s->hidden));
        cr_expect(eq(int, gates_tied(g), s->layout != LAYOUT_WGKV && (s->tied || s->L == 1)));
        compare(&w, g);
        gates_close(g);
        cr_assert(eq(int, gates_read(path, &g, &d), KVF_OK), "%s", d.text);
        const struct gates_model *m = gates_model_of(g);
        cr_expect(m->n_layers == s->L && m->n_kv_heads == s->H);
        cr_expect(eq(int, m->d_model, w.used &GATE_IN_X ? s->d : 0));
        cr_expect(eq(int, m->head_dim, w.used &GATE_IN_X ? 0 : s->D));
        gates_close(g);
    }
    unlink(path);
}
