/* test_train.c - the training operations (engine/train/ops.h) on a device compared with the CPU's C
 * reference kernels, on odd shapes. Exact operations agree within 1e-5, bf16 matrix multiplications
 * within 2^-7 of the sum of magnitudes, and tensor-core attention within the bound in
 * gpu_train.h. */
#include "engine/cuda/gpu_train.h"
#include "tests/cuda/both.h"

/* ---- attention ---- */

struct attention_case {
    const char *what;
    int T, G, H, D;
    enum gating gating;
    int window;
    bool cut, gone;
    float strength; /* of the gates; 0 means 0.1 */
};

static const struct attention_case attention_cases[] = {
    {"one token", 1, 1, 1, 2, GATING_NONE, 1, false, false, 0},
    {"plain", 65, 2, 1, 32, GATING_NONE, 1, true, false, 0},
    {"decay", 130, 3, 1, 20, GATING_DECAY, 1, false, true, 0},
    {"logit", 70, 4, 2, 40, GATING_LOGIT, 1, true, true, 0},
    {"write", 129, 2, 2, 16, GATING_WRITE, 9, true, false, 0},
    {"wide heads", 33, 1, 1, 200, GATING_DECAY, 1, false, false, 0},
};

static void set_gone(struct rng *r, int32_t *gone, const int32_t *first, int T, int H)
{
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++)
            gone[t * H + h] = rng_below(r, 3) == 0 ? INT32_MAX : t + 1 + (int)rng_below(r, 40);
    (void)first;
}

struct attention_setting {
    struct attention cpu, gpu;
    struct pair qkv, gate, out, lse, d_out, d_qkv, d_gate;
    int32_t first[200], gone[400];
    size_t ld, ld_out;
};

static void prepare_attention(struct both *b, const struct attention_case *c,
                              struct attention_setting *s)
{
    int rows = (c->G + 2 * c->H) * c->D;
    size_t T = (size_t)c->T, H = (size_t)c->H;
    s->ld = (size_t)rows + 3;
    s->ld_out = (size_t)(c->G * c->D) + 1;
    s->qkv = draw(b, T * s->ld, 1);
    s->d_qkv = draw(b, T * s->ld, 1);
    s->out = draw(b, T * s->ld_out, 1);
    s->d_out = draw(b, T * s->ld_out, 1);
    s->lse = draw(b, T * (size_t)c->G, 1);
    s->d_gate = draw(b, T * H, 1);
    s->gate = draw(b, T * H, 1);
    for (size_t i = 0; i < T * H; i++)
        s->gate.here[i] = -(c->strength > 0 ? c->strength : 0.1f) * fabsf(s->gate.here[i]);
    ops_cuda.to_device(&b->gpu, s->gate.there, s->gate.here, T * H * sizeof(float));
    memset(s->first, 0, sizeof s->first);
    if (c->cut)
        cut(&b->r, s->first, c->T);
    set_gone(&b->r, s->gone, s->first, c->T, c->H);
    s->cpu = (struct attention){.kernels = &b->cpu.k,
                                .T = c->T,
                                .n_heads = c->G,
                                .n_kv_heads = c->H,
                                .D = c->D,
                                .scale = 0.4f,
                                .gating = c->gating,
                                .window = c->window,
                                .q = s->qkv.here,
                                .k = s->qkv.here + c->G * c->D,
                                .v = s->qkv.here + (c->G + c->H) * c->D,
                                .ld = s->ld,
                                .first = s->first,
                                .evicted_at = c->gone ? s->gone : NULL,
                                .gate = c->gating ? s->gate.here : NULL};
    s->gpu = s->cpu;
    s->gpu.q = s->qkv.there;
    s->gpu.k = s->qkv.there + c->G * c->D;
    s->gpu.v = s->qkv.there + (c->G + c->H) * c->D;
    s->gpu.first = lend(b, s->first, T);
    s->gpu.evicted_at = c->gone ? lend(b, s->gone, T * H) : NULL;
    s->gpu.gate = c->gating ? s->gate.there : NULL;
}

static struct attention_grads grads_of(const struct attention_setting *s, bool there)
{
    const struct attention *a = &s->cpu;
    float *d = there ? s->d_qkv.there : s->d_qkv.here;
    return (struct attention_grads){.out = there ? s->out.there : s->out.here,
                                    .d_out = there ? s->d_out.there : s->d_out.here,
                                    .ld_out = s->ld_out,
                                    .lse = there ? s->lse.there : s->lse.here,
                                    .d_q = d,
                                    .d_k = d + a->n_heads * a->D,
                                    .d_v = d + (a->n_heads + a->n_kv_heads) * a->D,
                                    .d_gate = there ? s->d_gate.there : s->d_gate.here};
}

static void run_attention(struct both *b, const struct ops *on, struct attention_setting *s)
{
    bool there = on == &ops_cuda;
    const struct compute *c = there ? &b->gpu : &b->cpu;
    const struct attention *a = there ? &s->gpu : &s->cpu;
    struct attention_grads g = grads_of(s, there);
    void *scratch = on->alloc(c, on->attention_scratch(c, a), 1);
    on->attention(c, a, (float *)(uintptr_t)g.out, s->ld_out, (float *)(uintptr_t)g.lse, scratch);
    on->attention_back(c, a, &g, scratch);
    on->check(c, &(struct kvf_diag){""});
    on->free(c, scratch);
}

/* Compares outputs and derivatives. The tolerances `out` and `back` are relative to the largest
 * value. */
static void try_attention(struct both *b, const struct attention_case *c, double out, double back)
{
    struct attention_setting s = {.ld = 0};
    prepare_attention(b, c, &s);
    run_attention(b, &ops_cpu, &s);
    for (int seed = 0; seed < 2; seed++) {
        emulation_seed((unsigned long long)seed);
        run_attention(b, &ops_cuda, &s);
        same_within(b, &s.out, out, c->what);
        same_within(b, &s.lse, out, c->what);
        same_within(b, &s.d_qkv, back, c->what);
        if (c->gating)
            same_within(b, &s.d_gate, back, c->what);
    }
    struct pair *all[] = {&s.qkv, &s.gate, &s.out, &s.lse, &s.d_out, &s.d_qkv, &s.d_gate};
    for (int k = 0; k < 7; k++)
        drop(b, all[k]);
    ops_cuda.free(&b->gpu, (void *)(uintptr_t)s.gpu.first);
    ops_cuda.free(&b->gpu, (void *)(uintptr_t)s.gpu.evicted_at);
}

Test(train, attention)
{
    struct both b = both_open(true);
    for (size_t i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++)
        try_attention(&b, &attention_cases[i], 1e-5, 1e-5);
    both_close(&b);
}

/* Tensor-core cases: every kernel width, and channel counts that do not fill one. */
static const struct attention_case tensor_cases[] = {
    {"one token, 16", 1, 1, 1, 16, GATING_NONE, 1, false, false, 0},
    {"plain, 64", 65, 2, 1, 64, GATING_NONE, 1, true, false, 0},
    {"decay, 64", 191, 3, 1, 64, GATING_DECAY, 1, false, false, 0},
    {"decay and hidden, 16", 130, 2, 2, 16, GATING_DECAY, 1, false, true, 0},
    {"logit, 80", 100, 4, 2, 80, GATING_LOGIT, 1, true, true, 0},
    {"write, 128", 129, 2, 1, 128, GATING_WRITE, 9, true, false, 0},
    {"logit, 128", 66, 1, 1, 128, GATING_LOGIT, 1, false, false, 0},
    {"write and hidden, 240", 97, 2, 2, 240, GATING_WRITE, 20, false, true, 0},
    {"strong decay, 64", 140, 2, 1, 64, GATING_DECAY, 1, false, true, 9},
    {"weak decay, 80", 193, 1, 1, 80, GATING_DECAY, 1, false, false, 1e-3f},
    {"strong logit, 32", 90, 3, 1, 32, GATING_LOGIT, 1, true, true, 9},
    {"decay, 256", 70, 2, 1, 256, GATING_DECAY, 1, true, false, 0},
};

Test(train, attention_by_tensor)
{
    struct both b = both_open(false);
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++)
        try_attention(&b, &tensor_cases[i], 0x1p-6, tensor_cases[i].strength > 1 ? 5e-2 : 2e-2);
    both_close(&b);
}

/* ---- matrix multiplications ---- */

struct product_case {
    int m, n, k;
    bool a_turned, b_turned, add;
};

static const struct product_case product_cases[] = {
    {1, 1, 1, false, false, false},  {65, 3, 17, false, true, false},
    {7, 130, 33, true, false, true}, {64, 64, 16, false, false, true},
    {67, 70, 40, true, true, false},
};

static struct gpu_multiply product_of(const struct product_case *p)
{
    size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k;
    return (struct gpu_multiply){.ld_c = n + 2,
                                 .a_row = p->a_turned ? 1 : k + 1,
                                 .a_col = p->a_turned ? m + 1 : 1,
                                 .b_row = p->b_turned ? 1 : n + 1,
                                 .b_col = p->b_turned ? k + 1 : 1,
                                 .b_type = WEIGHT_F32,
                                 .m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .add = p->add};
}

/* Computes the sums in double precision into c on the host. Returns the largest sum of |a b|. */
static double right_product(const struct gpu_multiply *p, const float *a, const float *b, float *c)
{
    double top = 0;
    for (size_t i = 0; i < (size_t)p->m; i++)
        for (size_t j = 0; j < (size_t)p->n; j++) {
            double sum = p->add ? (double)c[i * p->ld_c + j] : 0, size = fabs(sum);
            for (size_t l = 0; l < (size_t)p->k; l++) {
                double x = (double)a[i * p->a_row + l * p->a_col]
                           * (double)b[l * p->b_row + j * p->b_col];
                sum += x;
                size += fabs(x);
            }
            c[i * p->ld_c + j] = (float)sum;
            top = fmax(top, size);
        }
    return top;
}

static double largest(const float *x, size_t n)
{
    double top = 1e-30;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)x[i]));
    return top;
}

static void try_product(struct gpu *g, struct rng *r, const struct product_case *p, bool bf16)
{
    enum { MOST = 140 * 140 };
    float *x = MEM_NEW(float, MOST), *y = MEM_NEW(float, MOST), *c = MEM_NEW(float, MOST);
    fill(r, x, MOST, 1);
    fill(r, y, MOST, 1);
    fill(r, c, MOST, 1);
    struct gpu_multiply in = product_of(p);
    in.a = device_copy(g, x, MOST * sizeof *x);
    in.b = device_copy(g, y, MOST * sizeof *y);
    in.c = device_copy(g, c, MOST * sizeof *c);
    double size = right_product(&in, x, y, c), most = 1e-5;
    if (bf16)
        most = 0x1p-7 * size / largest(c, MOST) + 1e-6;
    if (bf16 && !gpu_multiply_bf16(g, &in))
        cr_skip_test("there is no cuBLAS");
    if (!bf16)
        gpu_multiply(g, &in);
    float *got = host_copy(g, in.c, MOST * sizeof *got);
    device_check(g, "product");
    cr_expect(le(dbl, distance(got, c, MOST), most), "product of %d x %d x %d, bf16 %d", p->m, p->n,
              p->k, bf16);
    void *const there[] = {(void *)(uintptr_t)in.a, (void *)(uintptr_t)in.b, in.c};
    void *const here[] = {x, y, c, got};
    for (int i = 0; i < 3; i++)
        gpu_free(g, there[i]);
    for (int i = 0; i < 4; i++)
        mem_free(here[i]);
}

Test(train, products)
{
    struct gpu *g = device_open();
    struct rng r;
    rng_init(&r, 9);
    for (size_t i = 0; i < sizeof product_cases / sizeof *product_cases; i++)
        for (int seed = 0; seed < SEEDS; seed += stride(2)) {
            emulation_seed((unsigned long long)seed);
            try_product(g, &r, &product_cases[i], false);
            try_product(g, &r, &product_cases[i], true);
        }
    gpu_close(g);
}

/* Under emulation, an outer product through both tables has the same bits as the reference. */
Test(train, outer_is_the_reference)
{
    struct both b = both_open(true);
    struct pair dy = draw(&b, 67 * 70, 1), x = draw(&b, 67 * 33, 1), dw = draw(&b, 65 * 31, 1);
    ops_cpu.weight_grad(&b.cpu, dw.here, dy.here, 70, 65, x.here, 33, 31, 67);
    ops_cuda.weight_grad(&b.gpu, dw.there, dy.there, 70, 65, x.there, 33, 31, 67);
    same_within(&b, &dw, EMULATED ? 0 : 1e-6, "outer");
    drop(&b, &dy);
    drop(&b, &x);
    drop(&b, &dw);
    both_close(&b);
}

/* ---- elementwise and row operations ---- */

enum { T = 37, LD = 83 };

static void norms(struct both *b, int heads, int C, bool set)
{
    struct pair x = draw(b, T * LD, 1), w = draw(b, 80, 1), y = draw(b, T * LD, 1);
    struct pair dy = draw(b, T * LD, 1), dx = draw(b, T * LD, 1), dw = draw(b, 80, 1);
    struct norm n = {T, heads, C, 1e-5f, w.here, set}, m = n;
    m.w = w.there;
    ops_cpu.norm(&b->cpu, &n, y.here, LD, x.here, LD);
    ops_cuda.norm(&b->gpu, &m, y.there, LD, x.there, LD);
    ops_cpu.norm_back(&b->cpu, &n, dx.here, LD, x.here, LD, dy.here, LD);
    ops_cuda.norm_back(&b->gpu, &m, dx.there, LD, x.there, LD, dy.there, LD);
    ops_cpu.norm_weight_grad(&b->cpu, &n, dw.here, x.here, LD, dy.here, LD);
    ops_cuda.norm_weight_grad(&b->gpu, &m, dw.there, x.there, LD, dy.there, LD);
    same(b, &y, "norm");
    same(b, &dx, "norm, back");
    same(b, &dw, "norm, its weights");
    struct pair *all[] = {&x, &w, &y, &dy, &dx, &dw};
    for (int i = 0; i < 6; i++)
        drop(b, all[i]);
}

Test(train, norms)
{
    struct both b = both_open(true);
    norms(&b, 1, 79, false);
    norms(&b, 3, 20, true);
    norms(&b, 5, 2, false);
    both_close(&b);
}

Test(train, rows)
{
    struct both b = both_open(true);
    struct pair x = draw(&b, T * LD, 2), y = draw(&b, T * LD, 1), z = draw(&b, LD * T, 1);
    struct pair turn = draw(&b, T * 10, 1), row = draw(&b, LD, 1);
    int32_t first[T];
    cut(&b.r, first, T);
    int32_t *there = lend(&b, first, T);
    const struct {
        const struct ops *on;
        const struct compute *c;
        float *x, *y, *z, *turn, *row;
        const int32_t *first;
    } side[] = {{&ops_cpu, &b.cpu, x.here, y.here, z.here, turn.here, row.here, first},
                {&ops_cuda, &b.gpu, x.there, y.there, z.there, turn.there, row.there, there}};
    for (int i = 0; i < 2; i++) {
        const struct ops *on = side[i].on;
        const struct compute *c = side[i].c;
        on->add_rows(c, side[i].y, LD, side[i].x, LD, T, 70);
        on->add_row(c, side[i].y + 3, LD, side[i].row, T, 50);
        on->rope(c, side[i].y, LD, side[i].turn, side[i].first, T, 5, 13, 10);
        on->sum_rows(c, side[i].row, side[i].y, LD, T, LD);
        on->transpose(c, side[i].z, side[i].y, T, LD);
        on->copy_rows(c, side[i].y + 60, LD, side[i].x, LD, T, 20);
        on->scale_add(c, side[i].x, side[i].y, T * LD, -0.3f);
        on->scale_add(c, side[i].turn, NULL, T * 10, 0.7f);
    }
    same(&b, &x, "blend");
    same(&b, &y, "rows");
    same(&b, &z, "transpose");
    same(&b, &row, "sum of rows");
    same(&b, &turn, "times a number");
    ops_cuda.free(&b.gpu, there);
    struct pair *all[] = {&x, &y, &z, &turn, &row};
    for (int i = 0; i < 5; i++)
        drop(&b, all[i]);
    both_close(&b);
}

Test(train, swiglu_and_embedding)
{
    struct both b = both_open(true);
    struct pair x = draw(&b, T * LD, 3), y = draw(&b, T * LD, 1), d = draw(&b, T * LD, 1);
    struct pair table = draw(&b, 5 * LD, 1);
    int32_t ids[T];
    for (int t = 0; t < T; t++)
        ids[t] = (int32_t)rng_below(&b.r, 5);
    int32_t *there = lend(&b, ids, T);
    ops_cpu.swiglu(&b.cpu, y.here, LD, x.here, LD, T, 41);
    ops_cuda.swiglu(&b.gpu, y.there, LD, x.there, LD, T, 41);
    ops_cpu.swiglu_back(&b.cpu, d.here, LD, x.here, LD, T, 41);
    ops_cuda.swiglu_back(&b.gpu, d.there, LD, x.there, LD, T, 41);
    ops_cpu.embedding_learn(&b.cpu, table.here, ids, x.here, T, LD);
    ops_cuda.embedding_learn(&b.gpu, table.there, there, x.there, T, LD);
    same(&b, &y, "swiglu");
    same(&b, &d, "swiglu, back");
    same(&b, &table, "embedding");
    ops_cuda.free(&b.gpu, there);
    struct pair *all[] = {&x, &y, &d, &table};
    for (int i = 0; i < 4; i++)
        drop(&b, all[i]);
    both_close(&b);
}

Test(train, gates)
{
    struct both b = both_open(true);
    for (int write = 0; write < 2; write++) {
        struct pair value = draw(&b, 301, 1), number = draw(&b, 301, 1), d = draw(&b, 301, 1);
        struct pair own = draw(&b, 301, 1), out = draw(&b, 301, 1);
        ops_cpu.gates(&b.cpu, number.here, value.here, 301, write);
        ops_cuda.gates(&b.gpu, number.there, value.there, 301, write);
        ops_cpu.gates_back(&b.cpu, out.here, d.here, value.here, write ? own.here : NULL, 301,
                           write);
        ops_cuda.gates_back(&b.gpu, out.there, d.there, value.there, write ? own.there : NULL, 301,
                            write);
        same(&b, &value, "values");
        same(&b, &number, "numbers");
        same(&b, &out, "gates, back");
        struct pair *all[] = {&value, &number, &d, &own, &out};
        for (int i = 0; i < 5; i++)
            drop(&b, all[i]);
    }
    both_close(&b);
}

/* ---- the optimizer ---- */

Test(train, optimizer)
{
    struct both b = both_open(true);
    struct optimizer o = {
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.1, .clip = 1, .steps = 10};
    struct pair w = draw(&b, 70001, 1), m = draw(&b, 70001, 0), v = draw(&b, 70001, 0);
    struct pair g = draw(&b, 70001, 1);
    for (int t = 1; t <= 2; t++) {
        double want = ops_cpu.l2_norm(&b.cpu, g.here, g.n);
        double got = ops_cuda.l2_norm(&b.gpu, g.there, g.n);
        cr_expect(le(dbl, fabs(got - want), 1e-9 * want));
        for (int exponential = 0; exponential < 2; exponential++) {
            want = ops_cpu.mean(&b.cpu, g.here, g.n, exponential);
            got = ops_cuda.mean(&b.gpu, g.there, g.n, exponential);
            cr_expect(le(dbl, fabs(got - want), 1e-9));
        }
        want = ops_cpu.l2_norm(&b.cpu, g.here, g.n);
        ops_cpu.step(&b.cpu, &o, t, want, g.here, w.here, m.here, v.here, w.n);
        ops_cuda.step(&b.gpu, &o, t, want, g.there, w.there, m.there, v.there, w.n);
    }
    same(&b, &w, "parameters");
    same(&b, &m, "first moments");
    same(&b, &v, "second moments");
    struct pair *all[] = {&w, &m, &v, &g};
    for (int i = 0; i < 4; i++)
        drop(&b, all[i]);
    both_close(&b);
}
