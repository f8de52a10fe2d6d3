/* test_gates.c - the stages of gate networks for all layers and sequences of a step in one launch.
 * Odd shapes are compared with sums in double precision, and a row has the same bits in every
 * batch. Also tests joined runs and the storage of gate values. */
#include "engine/cuda/heads.h"
#include "engine/gate/gate.h"
#include "tests/cuda/device.h"

enum { ROWS = GPU_TOGETHER, MOST_N = 70, MOST_K = 300, MOST_NETS = 6 };

/* A stage with its arrays on the device and on the host. */
struct stage_bed {
    struct gpu *g;
    struct gpu_gate_stage s;
    float *w, *bias, *x, *with; /* [nets][N][K], [nets][N], [ROWS][layers][ld_x], [ROWS][nets][N] */
    float *d_x, *d_with, *d_out;
    size_t row, nets_n; /* floats of a row of x, and of out */
};

struct stage_case {
    int layers, units, N, K, gap; /* gap: floats between layers of x */
    bool bias, with, last;
    int act, ending;
};

static struct stage_bed stage_bed(struct gpu *g, const struct stage_case *c, struct rng *r)
{
    int nets = c->layers * c->units;
    size_t N = (size_t)c->N, K = (size_t)c->K, n = (size_t)nets * N;
    struct stage_bed b = {.g = g, .nets_n = n};
    size_t ld = (size_t)c->units * K + (size_t)c->gap;
    b.row = (size_t)c->layers * ld;
    b.w = host_alloc(n * K, sizeof *b.w);
    b.bias = host_alloc(n, sizeof *b.w);
    b.x = host_alloc(ROWS * b.row, sizeof *b.w);
    b.with = host_alloc(ROWS * n, sizeof *b.w);
    fill(r, b.w, n * K, 0.3);
    fill(r, b.bias, n, 0.5);
    fill(r, b.x, ROWS * b.row, 1);
    fill(r, b.with, ROWS * n, 1);
    b.d_x = device_copy(g, b.x, ROWS * b.row * sizeof *b.w);
    b.d_with = device_copy(g, b.with, ROWS * n * sizeof *b.w);
    b.d_out = device_copy(g, b.with, ROWS * n * sizeof *b.w);
    b.s = (struct gpu_gate_stage){.w = device_copy(g, b.w, n * K * sizeof *b.w),
                                  .bias = c->bias ? device_copy(g, b.bias, n * sizeof *b.w) : NULL,
                                  .nets = nets,
                                  .units = c->units,
                                  .N = c->N,
                                  .K = c->K,
                                  .ld_x = ld,
                                  .act = c->act,
                                  .output = c->ending,
                                  .last = c->last};
    return b;
}

static double activated(double x, int act)
{
    switch (act) {
    case GATE_ACT_SILU:
        return x / (1 + exp(-x));
    case GATE_ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case GATE_ACT_RELU:
        return x > 0 ? x : 0;
    default:
        return x;
    }
}

static double ended(double z, int ending)
{
    if (ending == GATE_OUT_LOG_SIGMOID)
        return -log1p(exp(-z));
    return ending == GATE_OUT_SIGMOID ? 1 / (1 + exp(-z)) : z;
}

/* Returns output n of net i for a row, by definition. */
static double wanted(const struct stage_bed *b, const struct stage_case *c, int row, int i, int n)
{
    size_t K = (size_t)c->K, at = (size_t)i * (size_t)c->N + (size_t)n;
    const float *x = b->x + (size_t)row * b->row + (size_t)(i / c->units) * b->s.ld_x
                     + (size_t)(i % c->units) * K;
    double sum = c->bias ? (double)b->bias[at] : 0;
    for (size_t k = 0; k < K; k++)
        sum += (double)x[k] * (double)b->w[at * K + k];
    if (c->last)
        return ended(sum, c->ending);
    return c->with ? sum * (double)b->with[(size_t)row * b->nets_n + at] : activated(sum, c->act);
}

/* Runs rows [first, first + n). */
static float *run_rows(struct stage_bed *b, const struct stage_case *c, int first, int n,
                       bool exact)
{
    b->s.n_rows = n;
    gpu_zero(b->g, b->d_out, ROWS * b->nets_n * sizeof(float));
    for (int r = 0; r < n; r++) {
        size_t row = (size_t)(first + r);
        b->s.x[r] = b->d_x + row * b->row;
        b->s.with[r] = c->with ? b->d_with + row * b->nets_n : NULL;
        b->s.out[r] = b->d_out + row * b->nets_n;
    }
    gpu_gate_stage(b->g, &b->s, exact);
    device_check(b->g, "a stage");
    return host_copy(b->g, b->d_out + (size_t)first * b->nets_n,
                     (size_t)n * b->nets_n * sizeof(float));
}

static void check_stage(struct gpu *g, const struct stage_case *c, bool exact)
{
    struct rng r = rng_seeded(7);
    struct stage_bed b = stage_bed(g, c, &r);
    float *alone = host_alloc(ROWS * b.nets_n, sizeof *alone);
    for (int row = 0; row < ROWS; row++) {
        float *one = run_rows(&b, c, row, 1, exact);
        memcpy(alone + (size_t)row * b.nets_n, one, b.nets_n * sizeof *one);
    }
    for (int n = 1; n <= ROWS; n++) {
        float *out = run_rows(&b, c, 0, n, exact);
        cr_expect(zero(int, memcmp(out, alone, (size_t)n * b.nets_n * sizeof *out)),
                  "[%d][%d] %d rows have other bits than one, exact %d", c->N, c->K, n, exact);
    }
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < b.s.nets; i++)
            for (int o = 0; o < c->N; o++) {
                double want = wanted(&b, c, row, i, o);
                float got = alone[(size_t)row * b.nets_n + (size_t)(i * c->N + o)];
                cr_expect(le(dbl, fabs((double)got - want), 2e-5 * fmax(1, fabs(want))),
                          "[%d][%d] row %d net %d output %d, exact %d", c->N, c->K, row, i, o,
                          exact);
            }
}

/* 1 and 3 outputs are the tail of a warp; 33 are two blocks, 70 three. With 130 and 257 channels,
 * some lanes loop once more; with 7, there are no float4 groups. */
Test(gates, stages_are_products_and_what_follows)
{
    static const struct stage_case cases[] = {
        {3, 1, 33, 128, 0, true, false, false, GATE_ACT_SILU, 0},
        {2, 3, 5, 132, 4, true, true, false, GATE_ACT_GELU, 0},
        {2, 1, 70, 257, 3, false, false, false, GATE_ACT_RELU, 0},
        {1, 2, 3, 7, 0, false, false, false, GATE_ACT_NONE, 0},
        {1, 1, 4, 64, 0, true, false, false, GATE_ACT_GELU, 0},
        {2, 2, 1, 300, 8, true, false, true, 0, GATE_OUT_SIGMOID},
        {3, 1, 8, 64, 0, true, false, true, 0, GATE_OUT_LOG_SIGMOID},
        {2, 1, 4, 36, 1, false, false, true, 0, GATE_OUT_LOGIT},
    };
    OWNED(device_close) struct gpu *g = device_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_stage(g, &cases[i], false);
        check_stage(g, &cases[i], true);
    }
}

/* Runs of two units of three tokens of two rows. The norms differ from token to token. */
Test(gates, runs_are_joined)
{
    enum { T = 3, UNITS = 2, N0 = 5, N1 = 40, ALL = N0 + N1, LD = 120, N_ROWS = 2 };
    OWNED(device_close) struct gpu *g = device_open();
    struct rng r = rng_seeded(3);
    static float x[N_ROWS][T * LD], norm[2][T * N1];
    float *d_x[N_ROWS], *d_norm[2], *out = device_alloc(g, N_ROWS * T * UNITS * ALL, sizeof *out);
    struct gpu_runs how = {.ld = {LD, LD},
                           .step = {N0, N1},
                           .count = {N0, N1},
                           .n = 2,
                           .n_units = UNITS,
                           .T = T,
                           .n_rows = N_ROWS,
                           .ld_norm = N1,
                           .eps = 1e-6f};
    for (int i = 0; i < N_ROWS; i++) {
        fill(&r, x[i], T * LD, 1);
        d_x[i] = device_copy(g, x[i], sizeof x[i]);
        how.from[i][0] = d_x[i] + 1;
        how.from[i][1] = d_x[i] + 20;
    }
    for (int i = 0; i < 2; i++) {
        fill(&r, norm[i], T * N1, 1);
        d_norm[i] = device_copy(g, norm[i], sizeof norm[i]);
    }
    for (int normed = 0; normed < 2; normed++) {
        for (int i = 0; i < 2; i++)
            how.norm[i] = normed ? d_norm[i] : NULL;
        gpu_join_runs(g, &how, out);
        device_check(g, "runs");
        float *got = host_copy(g, out, N_ROWS * T * UNITS * ALL * sizeof *got), *p = got;
        for (int row = 0; row < N_ROWS; row++)
            for (int tu = 0; tu < T * UNITS; tu++)
                for (int c = 0; c < ALL; c++) {
                    int run = c >= N0, i = c - run * N0, n = run ? N1 : N0, t = tu / UNITS;
                    const float *from = x[row] + t * LD + (run ? 20 : 1) + tu % UNITS * n;
                    double square = 0;
                    for (int j = 0; j < n; j++)
                        square += (double)from[j] * (double)from[j];
                    double scale = normed ? (double)norm[run][t * N1 + i]
                                                / sqrt(square / n + (double)how.eps)
                                          : 1;
                    cr_expect(le(dbl, fabs((double)*p++ - (double)from[i] * scale), 1e-5),
                              "row %d, token %d, channel %d", row, tu, c);
                }
    }
}

/* Gate values of three sequences: one has no column, one is not stored anywhere else, and one is
 * also kept for its token. */
Test(gates, numbers_are_stored_and_come_home)
{
    enum { HEADS = 261, LD = 4, N = 3, CAP = 5 };
    static const int32_t now[2] = {3, 1};
    OWNED(device_close) struct gpu *g = device_open();
    static float number[N][HEADS], column[N][HEADS * LD], of_token[HEADS * CAP];
    static int32_t slot[N][HEADS];
    struct gpu_numbers of[N];
    float *home = gpu_pin(g, N * HEADS, sizeof *home);
    memset(home, 0, N * HEADS * sizeof *home);
    for (int s = 0; s < N; s++) {
        for (int h = 0; h < HEADS; h++) {
            number[s][h] = (float)(1000 * s + h + 1);
            slot[s][h] = (h + s) % LD;
        }
        of[s] = (struct gpu_numbers){device_copy(g, number[s], sizeof number[s]),
                                     s == 2 ? NULL : home + s * HEADS,
                                     s == 1 ? NULL : device_copy(g, column[s], sizeof column[s]),
                                     device_copy(g, slot[s], sizeof slot[s]), LD};
    }
    of[1].of_token = device_copy(g, of_token, sizeof of_token);
    of[1].now = device_copy(g, now, sizeof now);
    of[1].cap = CAP;
    gpu_take_numbers(g, of, N, HEADS);
    device_check(g, "numbers");
    for (int s = 0; s < N; s++) {
        float *got = of[s].column ? host_copy(g, of[s].column, sizeof column[s]) : NULL;
        for (int h = 0; h < HEADS; h++) {
            float want = s == 2 ? 0 : number[s][h];
            cr_expect(eq(flt, home[s * HEADS + h], want), "%d of %d at home", h, s);
            for (int i = 0; got && i < LD; i++)
                cr_expect(eq(flt, got[h * LD + i], i == slot[s][h] ? number[s][h] : 0),
                          "slot %d of head %d of %d", i, h, s);
        }
    }
    float *kept = host_copy(g, of[1].of_token, sizeof of_token);
    for (int i = 0; i < HEADS * CAP; i++)
        cr_expect(eq(flt, kept[i], i % CAP == now[0] ? number[1][i / CAP] : 0), "%d", i);
    gpu_unpin(g, home);
}
