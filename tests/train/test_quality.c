/* test_quality.c - the quality losses compared with their definitions, and their derivatives with
 * finite differences. */
#include "engine/train/quality.h"
#include "loss_tools.h"

enum { MAX_T = 150, MAX_D = 24, MAX_V = 2100, CELLS = MAX_T * MAX_D };

static int32_t ids[MAX_T], first[MAX_T];
static float W[MAX_V * MAX_D], hs[CELLS], ht[CELLS], d_hs[CELLS];
static double wide[CELLS], want[CELLS];

struct shape {
    int T, d, vocab, length[4], n_lengths;
    double spread; /* of the logits */
};

static const struct shape shapes[] = {
    {1, 16, 16, {1}, 1, 2},
    {2, 5, 3, {2}, 1, 2},
    {7, 16, 37, {1, 3, 1, 2}, 4, 2},
    {64, 8, 50, {1}, 1, 2},     /* no position counts */
    {65, 8, 50, {64, 1}, 2, 2}, /* the last document starts at the end of the pack */
    {66, 8, 50, {66}, 1, 2},    /* one position more than a tile */
    {150, 24, 131, {70, 1, 40}, 3, 3},
    {5, 8, 1024, {5}, 1, 2},
    {20, 24, 2100, {13, 7}, 2, 2}, /* three slices of the vocabulary */
    {65, 2, 2100, {65}, 1, 2},     /* all rows of a tile, next tokens in every slice */
    {20, 24, 2100, {20}, 1, 40},   /* nearly certain of other tokens */
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_WEIGHTS = 7 };

static const double weights[N_WEIGHTS][QUALITY_TERMS] = {
    {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {.5, 0, .5, 0}, {1, .3, 2, .7}, {0},
};

/* Computes ln p of one position. */
static void log_softmax(double *out, const double *h, int d, int vocab)
{
    double top = -INFINITY, sum = 0;
    for (int v = 0; v < vocab; v++) {
        out[v] = 0;
        for (int c = 0; c < d; c++)
            out[v] += (double)W[v * d + c] * h[c];
        top = fmax(top, out[v]);
    }
    for (int v = 0; v < vocab; v++)
        sum += exp(out[v] - top);
    for (int v = 0; v < vocab; v++)
        out[v] -= top + log(sum);
}

/* Computes the terms by the equations in the header, in double precision. */
static void brute(const struct quality *q, const double *student, double term[QUALITY_TERMS])
{
    static double ps[MAX_V], pt[MAX_V], teacher[CELLS];
    int d = q->out->d, vocab = q->out->vocab, N = 0;
    memset(term, 0, QUALITY_TERMS * sizeof *term);
    for (int i = 0; i < q->T * d; i++) {
        teacher[i] = (double)q->teacher[i];
        term[QUALITY_MSE] += (student[i] - teacher[i]) * (student[i] - teacher[i]) / (q->T * d);
    }
    for (int i = 0; i < q->T; i++) {
        if (i == q->T - 1 || q->first[i + 1] != q->first[i])
            continue;
        N++;
        log_softmax(ps, student + i * d, d, vocab);
        log_softmax(pt, teacher + i * d, d, vocab);
        term[QUALITY_NTP] -= ps[q->ids[i + 1]];
        for (int v = 0; v < vocab; v++) {
            term[QUALITY_FWKL] += exp(pt[v]) * (pt[v] - ps[v]);
            term[QUALITY_RVKL] += exp(ps[v]) * (ps[v] - pt[v]);
        }
    }
    for (int t = 0; t < QUALITY_MSE; t++)
        term[t] /= N ? N : 1;
}

static double total(const struct quality *q, const double *student)
{
    double term[QUALITY_TERMS], sum = 0;
    brute(q, student, term);
    for (int t = 0; t < QUALITY_TERMS; t++)
        sum += q->weight[t] * term[t];
    return sum;
}

/* Returns the derivative of the total by one hidden state, by central differences of four
 * points. */
static double slope_of(const struct quality *q, int at)
{
    const double h = 1e-3, x = wide[at];
    double y[4];
    for (int i = 0; i < 4; i++) {
        wide[at] = x + (i < 2 ? i - 2 : i - 1) * h;
        y[i] = total(q, wide);
    }
    wide[at] = x;
    return (y[0] - 8 * y[1] + 8 * y[2] - y[3]) / (12 * h);
}

static struct quality set_up(const struct shape *s, const struct kernels *k, int weight,
                             struct output_matrix *m)
{
    struct rng r = rng_seeded((uint64_t)(s->T * 1000 + s->vocab));
    fill_normal(&r, W, (size_t)(s->vocab * s->d), s->spread / sqrt(s->d));
    fill_normal(&r, ht, (size_t)(s->T * s->d), 1);
    for (int i = 0; i < s->T * s->d; i++)
        wide[i] = (double)(hs[i] = ht[i] + (float)(.3 * rng_normal(&r)));
    for (int i = 0; i < s->T; i++)
        ids[i] = i == 1 || i == s->T - 1 ? s->vocab - 1
                                         : (int32_t)rng_below(&r, (uint64_t)s->vocab);
    make_documents(first, s->T, s->length, s->n_lengths);
    cr_assert(eq(int, output_matrix_build(W, s->vocab, s->d, m), KVF_OK));
    struct quality q = {.kernels = k,
                        .out = m,
                        .T = s->T,
                        .student = hs,
                        .teacher = ht,
                        .ids = ids,
                        .first = first};
    memcpy(q.weight, weights[weight], sizeof q.weight);
    return q;
}

/* Runs the loss in memory of exactly the required size. */
static struct quality_result run(const struct quality *q, float *d, struct par *pool)
{
    struct quality_result got;
    size_t bytes = (size_t)(q->T * q->out->d) * sizeof *d;
    float *to = guard(bytes);
    void *scratch = guard(quality_scratch(q, par_threads(pool)));
    quality_loss(q, to, &got, pool, scratch);
    memcpy(d, to, bytes);
    cr_expect(intact(scratch) && intact(to), "wrote outside");
    return got;
}

Test(quality, terms_follow_the_definition)
{
    VARIANTS(v, n);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < N_SHAPES * N_WEIGHTS; i++) {
            SCOPED(output_matrix_finish) struct output_matrix m;
            struct quality q = set_up(&shapes[i / N_WEIGHTS], &v[a].k, i % N_WEIGHTS, &m);
            double expect[QUALITY_TERMS];
            struct quality_result got = run(&q, d_hs, NULL);
            int N = 0;
            for (int p = 0; p + 1 < q.T; p++)
                N += first[p] == first[p + 1];
            cr_expect(eq(i64, got.positions, N));
            brute(&q, wide, expect);
            for (int t = 0; t < QUALITY_TERMS; t++) {
                bool ok = fabs(got.term[t] - expect[t]) <= 1e-6 * fmax(1, expect[t]);
                if (q.weight[t] == 0)
                    ok = isnan(got.term[t]);
                cr_expect(ok, "%s, shape %d, term %d: %.9g, not %.9g", v[a].name, i / N_WEIGHTS, t,
                          got.term[t], expect[t]);
            }
        }
}

Test(quality, derivatives_are_those_of_the_terms)
{
    VARIANTS(v, n);
    for (int i = 0; i < N_SHAPES * N_WEIGHTS; i++) {
        int cells = shapes[i / N_WEIGHTS].T * shapes[i / N_WEIGHTS].d, step = 1 + cells / 13;
        for (int a = 0; a < n; a++) {
            SCOPED(output_matrix_finish) struct output_matrix m;
            struct quality q = set_up(&shapes[i / N_WEIGHTS], &v[a].k, i % N_WEIGHTS, &m);
            run(&q, d_hs, NULL);
            double off = 0, size = 0;
            for (int c = 0; c < cells; c++)
                size = fmax(size, fabs((double)d_hs[c]));
            for (int c = 0; c < cells; c += step) {
                want[c] = a == 0 ? slope_of(&q, c) : want[c];
                off = worst(fabs((double)d_hs[c] - want[c]), off);
            }
            /* Logits are rounded in proportion to their magnitude. */
            double rounding = 1e-6 * (2 + shapes[i / N_WEIGHTS].spread);
            cr_expect(off <= rounding * size + 1e-9, "%s, shape %d, weights %d: %g of %g",
                      v[a].name, i / N_WEIGHTS, i % N_WEIGHTS, off, size);
        }
    }
}

/* With equal student and teacher, divergence and derivatives are zero. */
Test(quality, equal_states_are_no_loss)
{
    VARIANTS(v, n);
    for (int a = 0; a < n; a++) {
        SCOPED(output_matrix_finish) struct output_matrix m;
        struct quality q = set_up(&shapes[8], &v[a].k, 5, &m);
        q.teacher = hs;
        q.weight[QUALITY_NTP] = 0;
        struct quality_result got = run(&q, d_hs, NULL);
        cr_expect(fabs(got.term[QUALITY_FWKL]) < 1e-12 && fabs(got.term[QUALITY_RVKL]) < 1e-12);
        cr_expect(got.term[QUALITY_MSE] == 0);
        for (int c = 0; c < q.T * m.d; c++)
            cr_expect(fabsf(d_hs[c]) < 1e-8f, "%s at %d: %g", v[a].name, c, (double)d_hs[c]);
    }
}

Test(quality, number_of_threads_changes_no_bit)
{
    static float one[CELLS];
    VARIANTS(v, n);
    for (int a = 0; a < n; a++)
        for (int i = 6; i < 10; i++) {
            SCOPED(output_matrix_finish) struct output_matrix m;
            struct quality q = set_up(&shapes[i], &v[a].k, 5, &m);
            struct quality_result expect = run(&q, one, NULL);
            for (int threads = 1; threads <= 3; threads++) {
                OWNED(par_destroy) struct par *pool = pool_of(threads);
                struct quality_result got = run(&q, d_hs, pool);
                size_t bytes = (size_t)(q.T * m.d) * sizeof *one;
                cr_expect(zero(int, memcmp(one, d_hs, bytes)), "%s, %d", v[a].name, threads);
                cr_expect(zero(int, memcmp(expect.term, got.term, sizeof got.term)));
            }
        }
}

/* Slices of the transposed matrix contain the values of the matrix. */
Test(quality, slices_are_the_matrix)
{
    struct output_matrix m;
    struct kernels k;
    kernels_init(&k, 0);
    set_up(&shapes[8], &k, 0, &m);
    cr_expect(m.slice % PANEL == 0 && m.vocab == 2100 && m.d == 24);
    for (int v = 0; v < m.vocab; v++)
        for (int c = 0; c < m.d; c++) {
            const struct packed *b = &m.back[v / m.slice];
            size_t at = ((size_t)(c / PANEL) * (size_t)b->K + (size_t)(v % m.slice)) * PANEL;
            float is = ((const float *)(const void *)b->data)[at + (size_t)(c % PANEL)];
            cr_assert(is == W[v * m.d + c], "token %d, channel %d", v, c);
        }
    output_matrix_finish(&m);
    output_matrix_finish(&m);
}
