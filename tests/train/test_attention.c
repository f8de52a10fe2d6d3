/* test_attention.c - gated attention in training compared with a naive implementation; derivatives
 * also compared with finite differences. */
#include "naive.h"
#include "tests/suite.h"

enum { MAX_VARIANTS = 3, MAX_THREADS = 3 };

static int variants(struct kernels *k)
{
    static const unsigned flags[MAX_VARIANTS] = {0, CPU_X86_AVX2, CPU_X86_AVX2 | CPU_X86_AVX512};
    unsigned have = cpu_flags_detect();
    int n = 0;
    for (int i = 0; i < MAX_VARIANTS; i++)
        if ((flags[i] & have) == flags[i])
            kernels_init(&k[n++], flags[i]);
    return n;
}

/* Small shapes: every derivative is checked with finite differences. */
static const struct shape small[] = {
    {7, 1, 1, 8, GATING_NONE, 0, 0, {0}},          {7, 2, 1, 8, GATING_DECAY, 0, -2, {0}},
    {9, 3, 1, 4, GATING_LOGIT, 0, -2, {4, 0}},     {9, 4, 2, 4, GATING_WRITE, 3, -6.907755, {5, 0}},
    {6, 2, 2, 3, GATING_DECAY, 0, -30, {1, 3, 0}},
};

/* Larger shapes: compared with the naive implementation, and with differences along directions. */
static const struct shape large[] = {
    {1, 2, 1, 20, GATING_DECAY, 0, -3, {0}},
    {1, 1, 1, 8, GATING_WRITE, 1, -6.907755, {0}},
    {64, 2, 2, 64, GATING_NONE, 0, 0, {0}},
    {65, 3, 1, 20, GATING_NONE, 0, 0, {13, 19, 0}},
    {64, 4, 2, 20, GATING_DECAY, 0, -0.1, {0}},
    {65, 3, 1, 64, GATING_DECAY, 0, -30, {0}},
    {130, 6, 2, 64, GATING_DECAY, 0, -0.02, {31, 67, 0}},
    {130, 1, 1, 8, GATING_DECAY, 0, -1, {65, 64, 0}},
    {65, 2, 1, 64, GATING_LOGIT, 0, -0.3, {0}},
    {130, 3, 1, 20, GATING_LOGIT, 0, -30, {7, 101, 0}},
    {130, 4, 2, 64, GATING_LOGIT, 0, -0.01, {0}},
    {64, 3, 3, 8, GATING_WRITE, 1, -6.907755, {0}},
    {65, 2, 1, 20, GATING_WRITE, 64, -6.907755, {0}},
    {130, 6, 2, 64, GATING_WRITE, 17, -6.907755, {41, 50, 3, 0}},
    {130, 2, 2, 20, GATING_WRITE, 70, -30, {0}},
    {130, 2, 1, 20, GATING_WRITE, 500, -6.907755, {0}},
    {201, 2, 1, 20, GATING_DECAY, 0, -0.05, {150, 0}},
};

#define N_OF(x) ((int)(sizeof(x) / sizeof *(x)))

static const char *name_of(struct shape s)
{
    static char text[120];
    static const char *const forms[] = {"none", "decay", "logit", "write"};
    snprintf(text, sizeof text, "T %d, G %d, H %d, D %d, %s, window %d, gates from %g", s.T, s.G,
             s.H, s.D, forms[s.gating], s.window, s.least);
    return text;
}

/* Returns (loss(x + h) - loss(x - h)) / 2h along a direction of one input. Two steps and
 * Richardson's formula give an error of order h^4. */
static double difference(struct problem *p, double *x, const double *way, size_t n)
{
    static const double steps[] = {1e-3, 5e-4};
    double slope[2], loss[2];
    for (int i = 0; i < 2; i++) {
        for (int sign = 0; sign < 2; sign++) {
            double h = sign ? -steps[i] : steps[i];
            for (size_t j = 0; j < n; j++)
                x[j] += h * way[j];
            loss[sign] = naive_forward(p);
            for (size_t j = 0; j < n; j++)
                x[j] -= h * way[j];
        }
        slope[i] = (loss[0] - loss[1]) / (2 * steps[i]);
    }
    return (4 * slope[1] - slope[0]) / 3;
}

struct input {
    const char *name;
    double *x, *d;
    size_t n;
};

static void inputs_of(struct problem *p, struct input in[4])
{
    in[0] = (struct input){"q", p->q, p->d_q, p->nq};
    in[1] = (struct input){"k", p->k, p->d_k, p->nk};
    in[2] = (struct input){"v", p->v, p->d_v, p->nk};
    in[3] = (struct input){"gate", p->gate, p->d_gate, p->ng};
}

static void check_difference(struct problem *p, const struct input *in, const double *way)
{
    double want = difference(p, in->x, way, in->n), have = 0;
    for (size_t j = 0; j < in->n; j++)
        have += way[j] * in->d[j];
    cr_expect(fabs(want - have) <= 2e-8 * (1 + fabs(want)), "%s: d_%s %.12g, differences %.12g",
              name_of(p->s), in->name, have, want);
}

Test(attention, naive_derivatives_are_those_of_differences)
{
    struct rng r = rng_seeded(7);
    for (int c = 0; c < N_OF(small); c++) {
        struct problem p;
        struct input in[4];
        problem_init(&p, small[c], &r);
        naive_forward(&p);
        naive_backward(&p);
        inputs_of(&p, in);
        for (int i = 0; i < 4; i++) {
            OWNED(mem_free) double *way = MEM_NEW(double, in[i].n);
            for (size_t j = 0; j < in[i].n; j++) {
                way[j] = 1;
                check_difference(&p, &in[i], way);
                way[j] = 0;
            }
        }
        problem_finish(&p);
    }
}

/* The direction has length 1, so that a step stays small for every size. */
Test(attention, naive_derivatives_are_those_of_differences_along_directions)
{
    struct rng r = rng_seeded(8);
    for (int c = 0; c < N_OF(large); c++) {
        struct problem p;
        struct input in[4];
        problem_init(&p, large[c], &r);
        naive_forward(&p);
        naive_backward(&p);
        inputs_of(&p, in);
        for (int i = 0; i < 4; i++) {
            /* A gate counts once per token of distance, so its step must be shorter. */
            double length = i == 3 ? large[c].T : 1;
            double *way = normals(&r, in[i].n, 1), norm = 0;
            for (size_t j = 0; j < in[i].n; j++)
                norm += way[j] * way[j];
            for (size_t j = 0; j < in[i].n; j++)
                way[j] /= sqrt(norm) * length;
            check_difference(&p, &in[i], way);
            mem_free(way);
        }
        problem_finish(&p);
    }
}

/* Returns the worst error of rows of n values relative to its bound, and checks that the gap after
 * each row is unchanged. */
static double worst_of(const float *x, size_t ld, int T, size_t n, const double *want,
                       const double *size)
{
    double worst = 0;
    for (size_t t = 0; t < (size_t)T; t++)
        for (size_t c = 0; c < n; c++) {
            size_t at = t * n + c;
            double off = fabs((double)x[t * ld + c] - want[at]) / (size ? size[at] : 1);
            off = (double)x[t * ld + c] == want[at] ? 0 : off;
            worst = off > worst || isnan(off) ? off : worst;
        }
    return worst;
}

static bool gaps_are_whole(const float *x, size_t ld, int T)
{
    for (int t = 0; t < T; t++)
        for (size_t c = ld - GAP; c < ld; c++)
            if (!isnan(x[(size_t)t * ld + c]))
                return false;
    return true;
}

/* Rounding: a score is a sum of D products, |s| <= about 10 here, and a decay of age n adds n g,
 * with negligible weight above 30. So a weight has a relative error of about (40 + D) 2^-24. A
 * derivative sums weights times numbers: the bound is relative to the sum of their magnitudes.
 * LIMIT includes a factor for the sum itself. */
#define LIMIT 2e-5

static void check_answer(const struct problem *p, const struct answer *x, int variant)
{
    size_t D = (size_t)p->s.D, q = (size_t)p->s.G * D, k = (size_t)p->s.H * D;
    int T = p->s.T;
    double bad[] = {
        worst_of(x->out, x->ld_out, T, q, p->out, NULL),
        worst_of(x->lse, (size_t)T, p->s.G, (size_t)T, p->lse, NULL),
        worst_of(x->d_in, x->ld, T, q, p->d_q, p->m_q),
        worst_of(x->d_in + q, x->ld, T, k, p->d_k, p->m_k),
        worst_of(x->d_in + q + k, x->ld, T, k, p->d_v, p->m_v),
        p->s.gating == GATING_NONE
            ? 0
            : worst_of(x->d_gate, (size_t)p->s.H, T, (size_t)p->s.H, p->d_gate, p->m_gate),
    };
    static const char *const names[] = {"out", "lse", "d_q", "d_k", "d_v", "d_gate"};
    for (int i = 0; i < N_OF(bad); i++)
        cr_expect(bad[i] <= LIMIT, "%s, variant %d: %s is off by %g", name_of(p->s), variant,
                  names[i], bad[i]);
    cr_expect(gaps_are_whole(x->out, x->ld_out, T) && gaps_are_whole(x->d_in, x->ld, T),
              "%s, variant %d: wrote between rows", name_of(p->s), variant);
}

static bool same(const float *x, const float *y, size_t n)
{
    return memcmp(x, y, n * sizeof *x) == 0;
}

/* Runs with all thread counts: the first result is checked, the others must have the same bits. */
static void check_threads(const struct problem *p, const struct kernels *k, int variant,
                          struct par *pools[MAX_THREADS])
{
    struct answer x[MAX_THREADS];
    size_t T = (size_t)p->s.T;
    for (int n = 0; n < MAX_THREADS; n++) {
        answer_init(&x[n], p);
        answer_run(&x[n], p, k, pools[n]);
        if (n == 0)
            check_answer(p, &x[0], variant);
        cr_expect(same(x[n].out, x[0].out, T * x[0].ld_out)
                      && same(x[n].d_in, x[0].d_in, T * x[0].ld)
                      && same(x[n].lse, x[0].lse, T * (size_t)p->s.G)
                      && same(x[n].d_gate, x[0].d_gate, p->ng),
                  "%s, variant %d: %d threads give other bits", name_of(p->s), variant, n + 1);
    }
    for (int n = 0; n < MAX_THREADS; n++)
        answer_finish(&x[n]);
}

static void check_shapes(const struct shape *shapes, int n_shapes, uint64_t seed)
{
    struct kernels k[MAX_VARIANTS];
    struct par *pools[MAX_THREADS] = {NULL};
    int n = variants(k);
    struct rng r = rng_seeded(seed);
    for (int i = 1; i < MAX_THREADS; i++)
        cr_assert(zero(int, par_create(i + 1, &pools[i])));
    for (int c = 0; c < n_shapes; c++) {
        struct problem p;
        problem_init(&p, shapes[c], &r);
        naive_forward(&p);
        naive_backward(&p);
        for (int i = 0; i < n; i++)
            check_threads(&p, &k[i], i, pools);
        problem_finish(&p);
    }
    for (int i = 1; i < MAX_THREADS; i++)
        par_destroy(pools[i]);
}

Test(attention, small_shapes_agree_with_the_naive_matrices)
{
    check_shapes(small, N_OF(small), 9);
}

Test(attention, large_shapes_agree_with_the_naive_matrices)
{
    check_shapes(large, N_OF(large), 10);
}

/* Combines every form, head group, dimension, length and kind of document. */
Test(attention, all_combinations_agree_with_the_naive_matrices)
{
    static const int lengths[] = {1, 7, 64, 65, 130}, dims[] = {8, 20, 64}, windows[] = {1, 9, 80};
    static const double least[] = {-0.05, -6.907755, -30};
    struct shape all[4 * 5 * 3];
    int n = 0;
    for (int form = GATING_NONE; form <= GATING_WRITE; form++)
        for (int t = 0; t < N_OF(lengths); t++)
            for (int group = 1; group <= 3; group++, n++)
                all[n] = (struct shape){lengths[t],
                                        group * (1 + t % 2),
                                        1 + t % 2,
                                        dims[(t + group) % 3],
                                        (enum gating)form,
                                        windows[(t + form) % 3],
                                        least[(t + 2 * group) % 3],
                                        {0}};
    for (int i = 0; i < n; i += 2) { /* odd documents in every second case */
        all[i].document[0] = 33;
        all[i].document[1] = 1;
    }
    check_shapes(all, n, 11);
}
