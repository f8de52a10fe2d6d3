/* test_losses.c - losses and gate networks on a device compared with the CPU, on odd shapes. */
#include "tests/cuda/both.h"

enum { T = 37, LD = 83 };

/* ---- losses ---- */

static void try_capacity(struct both *b, bool global, enum capacity_norm norm, double M)
{
    enum { N = 531, HEADS = 3 };
    struct pair lb = draw(b, N * HEADS, 1), sums = draw(b, N * HEADS, 1), d = draw(b, N * HEADS, 1);
    int32_t first[N];
    cut(&b->r, first, N);
    for (int t = 300; t < N; t++)
        first[t] = 300;
    for (size_t i = 0; i < lb.n; i++)
        lb.here[i] = -0.05f * fabsf(lb.here[i]);
    ops_cuda.to_device(&b->gpu, lb.there, lb.here, lb.n * sizeof(float));
    int32_t *there = lend(b, first, N);
    struct capacity c = {&b->cpu.k, N, HEADS, lb.here, first, M, global, norm}, g = c;
    g.log_beta = lb.there;
    g.first = there;
    double want = ops_cpu.capacity(&b->cpu, &c, 1.5, sums.here, d.here);
    double got = ops_cuda.capacity(&b->gpu, &g, 1.5, sums.there, d.there);
    cr_expect(le(dbl, fabs(got - want), 1e-5 * fabs(want)), "capacity %g, not %g", got, want);
    same(b, &sums, "capacity, sums");
    same(b, &d, "capacity, back");
    ops_cuda.free(&b->gpu, there);
    drop(b, &lb);
    drop(b, &sums);
    drop(b, &d);
}

Test(train, capacity)
{
    struct both b = both_open(true);
    for (int norm = CAPACITY_CODE; norm <= CAPACITY_SUM; norm++) {
        try_capacity(&b, false, (enum capacity_norm)norm, 4.5);
        try_capacity(&b, true, (enum capacity_norm)norm, 6);
    }
    both_close(&b);
}

Test(train, sparsity)
{
    struct both b = both_open(true);
    struct pair gate = draw(&b, T * 3, 1), d = draw(&b, T * 3, 1);
    int32_t first[T];
    cut(&b.r, first, T);
    int32_t *there = lend(&b, first, T);
    for (int offset = 0; offset < 2; offset++) {
        struct sparsity s = {T, 3, gate.here, first, offset, 4}, g = s;
        g.g = gate.there;
        g.first = there;
        double want = ops_cpu.sparsity(&b.cpu, &s, 2, d.here);
        double got = ops_cuda.sparsity(&b.gpu, &g, 2, d.there);
        cr_expect(le(dbl, fabs(got - want), 1e-6 * fabs(want)));
        same(&b, &d, "sparsity");
    }
    ops_cuda.free(&b.gpu, there);
    drop(&b, &gate);
    drop(&b, &d);
    both_close(&b);
}

struct quality_case {
    double weight[QUALITY_TERMS], temperature;
    bool share, other, learns, policy;
};

static const struct quality_case quality_cases[] = {
    {{1, 0, 0, 0}, 0, false, false, false},
    {{0.5, 0.3, 1, 2}, 2, true, true, true},
    {{0, 0, 1, 0}, 0, false, false, true},
    {{0, 0, 1, 0}, 1.3, true, false, true, true},
};

static void try_quality(struct both *b, const struct quality_case *q)
{
    enum { N = 301, V = 75, D = 19 }; /* more positions than one tile */
    struct pair s = draw(b, N * D, 1), t = draw(b, N * D, 1), d = draw(b, N * D, 1);
    struct pair w = draw(b, V * D, 0.5), v = draw(b, V * D, 0.5), dw = draw(b, V * D, 0.01);
    int32_t ids[N], first[N];
    float share[N], sampled[N];
    struct output_matrix m, n;
    cut(&b->r, first, N);
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)rng_below(&b->r, V);
        share[i] = i % 7 ? (float)(rng_uniform(&b->r) / N) : 0;
        share[i] *= q->policy && i % 2 ? -1 : 1;
        sampled[i] = (float)(-4.3 + 0.3 * rng_normal(&b->r));
    }
    cr_assert(eq(int, output_matrix_build(w.here, V, D, &m), KVF_OK));
    cr_assert(eq(int, output_matrix_build(v.here, V, D, &n), KVF_OK));
    struct gpu_matrix wm = {w.there, WEIGHT_F32, V, D, D * 4}, vm = wm;
    vm.data = v.there;
    struct output_matrix mt = {.vocab = V, .d = D, .device = &wm}, nt = mt;
    nt.device = &vm;
    struct quality c = {.kernels = &b->cpu.k,
                        .out = &m,
                        .teacher_out = q->other ? &n : NULL,
                        .T = N,
                        .student = s.here,
                        .teacher = t.here,
                        .ids = ids,
                        .first = first,
                        .d_matrix = q->learns ? dw.here : NULL,
                        .temperature = q->temperature,
                        .share = q->share ? share : NULL,
                        .sampled = q->policy ? sampled : NULL,
                        .range = 0.2};
    memcpy(c.weight, q->weight, sizeof c.weight);
    struct quality g = c;
    g.out = &mt;
    g.teacher_out = q->other ? &nt : NULL;
    g.student = s.there;
    g.teacher = t.there;
    g.d_matrix = q->learns ? dw.there : NULL;
    struct quality_result want, got;
    void *here = mem_alloc(ops_cpu.quality_scratch(&b->cpu, &c), 1);
    void *there = ops_cuda.alloc(&b->gpu, ops_cuda.quality_scratch(&b->gpu, &g), 1);
    ops_cpu.distill_loss(&b->cpu, &c, d.here, &want, here);
    ops_cuda.distill_loss(&b->gpu, &g, d.there, &got, there);
    for (int i = 0; i < QUALITY_TERMS; i++)
        if (q->weight[i] != 0)
            cr_expect(le(dbl, fabs(got.term[i] - want.term[i]), 1e-5 * fabs(want.term[i])),
                      "term %d: %g, not %g", i, got.term[i], want.term[i]);
    cr_expect(eq(i64, got.positions, want.positions));
    same(b, &d, "quality, back");
    same(b, &dw, "quality, the matrix");
    mem_free(here);
    ops_cuda.free(&b->gpu, there);
    output_matrix_finish(&m);
    output_matrix_finish(&n);
    struct pair *all[] = {&s, &t, &d, &w, &v, &dw};
    for (int i = 0; i < 6; i++)
        drop(b, all[i]);
}

Test(train, quality)
{
    struct both b = both_open(true);
    for (size_t i = 0; i < sizeof quality_cases / sizeof *quality_cases; i++)
        try_quality(&b, &quality_cases[i]);
    both_close(&b);
}

/* ---- gate networks ---- */

struct net_case {
    enum layout_id layout;
    int L, H, D, d, hidden;
    bool tied;
};

static const struct net_case net_cases[] = {
    {LAYOUT_LINEAR, 2, 3, 6, 19, 0, true}, {LAYOUT_RGKV, 2, 3, 6, 19, 7, false},
    {LAYOUT_RG, 2, 1, 6, 17, 5, true},     {LAYOUT_RG10, 2, 3, 6, 19, 18, false},
    {LAYOUT_WGKV, 2, 3, 6, 19, 7, false},
};

struct net_setting {
    struct net *n;
    struct pair x, k_pre, k_post, v, tape, value, d_value, grad, dx, dk_pre, dk_post, dv;
};

static struct net_input input_of(const struct net_setting *s, bool there)
{
    return (struct net_input){.x = there ? s->x.there : s->x.here,
                              .k_pre = there ? s->k_pre.there : s->k_pre.here,
                              .k_post = there ? s->k_post.there : s->k_post.here,
                              .v = there ? s->v.there : s->v.here,
                              .ld_pre = LD,
                              .ld_post = LD,
                              .ld_v = LD,
                              .T = T};
}

static void run_net(const struct compute *c, struct net_setting *s, bool there)
{
    const struct ops *on = ops(c);
    struct net_input in = input_of(s, there);
    struct net_grads to = {.grad = there ? s->grad.there : s->grad.here,
                           .dx = there ? s->dx.there : s->dx.here,
                           .dk_pre = there ? s->dk_pre.there : s->dk_pre.here,
                           .dk_post = there ? s->dk_post.there : s->dk_post.here,
                           .dv = there ? s->dv.there : s->dv.here};
    float *tape = there ? s->tape.there : s->tape.here;
    float *scratch = on->alloc(c, on->net_scratch(c, s->n, T), sizeof *scratch);
    float *value = there ? s->value.there : s->value.here;
    on->net(c, s->n, 1, &in, tape, value, scratch);
    on->net_back(c, s->n, 1, &in, tape, there ? s->d_value.there : s->d_value.here, &to, scratch);
    on->check(c, &(struct kvf_diag){""});
    on->free(c, scratch);
}

Test(train, nets)
{
    struct both b = both_open(true);
    for (size_t i = 0; i < sizeof net_cases / sizeof *net_cases; i++) {
        const struct net_case *c = &net_cases[i];
        struct gates_model m = {c->L, c->d, 2 * c->H, c->H, c->D, 1e-5f, 1e4, NULL, &b.cpu.k};
        struct net_options o = {.layout = c->layout,
                                .hidden = c->hidden,
                                .tied = c->tied,
                                .bias = 1,
                                .deviation = 0.4,
                                .seed = 5};
        struct net_setting s;
        cr_assert(eq(int, net_create(&m, &o, &s.n), KVF_OK));
        s.n->w_device = ops_cuda.device_copy(&b.gpu, s.n->w, s.n->n);
        struct pair *rows[] = {&s.k_pre, &s.k_post, &s.v, &s.dk_pre, &s.dk_post, &s.dv};
        for (int k = 0; k < 6; k++)
            *rows[k] = draw(&b, T * LD, 1);
        s.x = draw(&b, (size_t)(T * c->d), 1);
        s.dx = draw(&b, (size_t)(T * c->d), 1);
        s.tape = draw(&b, net_tape(s.n, T), 0);
        s.value = draw(&b, (size_t)(T * c->H), 1);
        s.d_value = draw(&b, (size_t)(T * c->H), 1);
        s.grad = draw(&b, s.n->n, 1);
        run_net(&b.cpu, &s, false);
        run_net(&b.gpu, &s, true);
        struct pair *out[] = {&s.value, &s.grad, &s.dx, &s.dk_pre, &s.dk_post, &s.dv};
        static const char *const what[] = {"values", "parameters", "x", "keys", "turned", "v"};
        for (int k = 0; k < 6; k++)
            same(&b, out[k], what[k]);
        ops_cuda.device_copy_free(&b.gpu, s.n->w_device);
        net_destroy(s.n);
        struct pair *all[] = {&s.x,       &s.k_pre, &s.k_post, &s.v,      &s.tape,    &s.value,
                              &s.d_value, &s.grad,  &s.dx,     &s.dk_pre, &s.dk_post, &s.dv};
        for (int k = 0; k < 12; k++)
            drop(&b, all[k]);
    }
    both_close(&b);
}
