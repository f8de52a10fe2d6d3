/* bench_methods.c - measures the cost of each method's decisions, compared with a decode step.
 *
 *   usage: bench_methods [-b BUDGET,...] [-m METHOD,...] [-r ROUNDS] MODEL.gguf
 *
 * The shape is that of SmolLM2-135M. Keys and attention rows are random; only the cost of
 * `redundancy` depends on them, because its search stops at the first similar key.  Before every
 * step the program reads more memory than the CPU caches contain, as a decode step does.  It also
 * measures a step of the model under `full` with B entries, alternating with the methods. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/par.h"
#include "base/rng.h"
#include "engine/decode/session.h"

enum {
    LAYERS = 30,
    HEADS = 9,
    KV_HEADS = 3,
    DIM = 64,
    PER = HEADS / KV_HEADS,
    THREADS = 1, /* measures CPU time, which excludes other work on the machine */
    MAX_STEPS = 32,
    MODEL_STEPS = 16,
    N_RANDOM = 1 << 16,
    COLD = 96 << 20,
    MAX_LIST = 16,
    FEW_LAYERS = 2, /* for costs of n^2 and wide windows: measured on this many layers and scaled */
};

static struct {
    struct par *pool;
    struct kernels kernels;
    float *weight, *key; /* [N_RANDOM] */
    uint64_t *cold;      /* [COLD / 8] */
    uint64_t sum;
    int rounds;
    const struct model_config *model;
} bench;

struct stand {
    struct method m;
    struct method_params p;
    struct method_shape shape;
    struct method_state *s;
    struct cache *c;
    int32_t t; /* next position */
    int32_t row_t;
    int slot[LAYERS * KV_HEADS]; /* of the newest entry */
    int n_cut;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    if (n == 0)
        return NAN;
    qsort(x, (size_t)n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Returns the mean.  All steps count, because decisions rebuild their lists at some steps only. */
static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return n ? sum / n : 0;
}

/* Evidence that this program does not compute. */
enum { OTHER = EVIDENCE_MOMENTS | EVIDENCE_FULL | EVIDENCE_BLOCKS };

/* Reads memory with all threads, as a decode step reads weights. */
static void cool_part(void *ctx, int task, int thread)
{
    size_t n = COLD / sizeof(uint64_t) / THREADS;
    const uint64_t *x = bench.cold + (size_t)task * n;
    uint64_t sum = 0, *ret = ctx;
    (void)thread;
    for (size_t i = 0; i < n; i += 8)
        sum += x[i];
    ret[task] = sum;
}

static void cool(void)
{
    uint64_t sum[THREADS];
    par_run(bench.pool, THREADS, cool_part, sum);
    bench.sum += sum[0];
}

static void append_head(void *ctx, int i, int thread)
{
    struct stand *b = ctx;
    int l = i / KV_HEADS, h = i % KV_HEADS;
    const float *k = bench.key + ((size_t)b->t * 7919 + (size_t)i * 131) % (N_RANDOM - DIM);
    (void)thread;
    struct cache_entry e = {b->t, NEVER_EXPIRES, k, k};
    b->slot[i] = cache_append(b->c, &bench.kernels, l, h, &e);
}

static void appended(struct stand *b)
{
    for (int l = 0; l < b->shape.n_layers; l++)
        for (int h = 0; h < KV_HEADS; h++)
            method_appended(b->s, b->c, l, h, b->slot[l * KV_HEADS + h],
                            -1e-4f * bench.weight[(b->t * 31 + l * 7 + h) % N_RANDOM], NULL);
}

static int append(struct stand *b)
{
    for (int l = 0; l < b->shape.n_layers; l++)
        for (int h = 0; h < KV_HEADS; h++)
            if (cache_reserve(b->c, l, h, 1))
                return KVF_E_NOMEM;
    par_run(bench.pool, b->shape.n_layers * KV_HEADS, append_head, b);
    cache_account(b->c);
    b->t++;
    return KVF_OK;
}

static void row_of_head(void *ctx, int i, int thread)
{
    struct stand *b = ctx;
    int l = i / HEADS, g = i % HEADS, n = cache_view(b->c, l, g / PER).n;
    size_t at = ((size_t)b->row_t * 7919 + (size_t)i * 131) % (N_RANDOM - (size_t)n);
    struct attn_row row = {
        .layer = l, .head = g, .t = b->row_t, .n = n, .seen = n, .p = bench.weight + at};
    (void)thread;
    method_row(b->s, &row);
}

/* Makes the attention rows of query t for all heads. */
static void rows(struct stand *b, int32_t t)
{
    b->row_t = t;
    if (method_wants_row(b->s, t))
        par_run(bench.pool, b->shape.n_layers * HEADS, row_of_head, b);
}

static void count(void *ctx, const struct eviction *e)
{
    struct stand *b = ctx;
    b->n_cut += e->pos >= 0;
}

static int decide(struct stand *b, enum phase phase, double *ret_us)
{
    double t0 = now_us();
    int err = method_decide(b->s, b->c, b->t, phase, bench.pool, count, b, NULL);
    *ret_us = now_us() - t0;
    return err;
}

static void take_down(struct stand *b)
{
    method_state_destroy(b->s);
    cache_destroy(b->c);
    b->s = NULL;
    b->c = NULL;
}

/* Makes a cache of n entries per head and the evidence of the last queries. */
static int set_up(struct stand *b, int n)
{
    struct cache_config cfg = {b->shape.n_layers, KV_HEADS, DIM, KV_F16};
    struct method_inputs in = {
        .model = bench.model, .length = bench.model->n_ctx, .kernels = &bench.kernels};
    int err = cache_create(&cfg, &b->c);
    b->t = 0;
    if (!err)
        err = method_state_create(&b->m, &b->p, &b->shape, &in, &b->s);
    if (!err)
        err = method_prepare(b->s, n + b->p.every + MAX_STEPS + 8, n);
    for (int i = 0; !err && i < n; i++)
        if (!(err = append(b)))
            appended(b);
    int first = b->p.window > 4 ? n - b->p.window : n - 4;
    for (int t = first > 0 ? first : 0; !err && t < n; t++)
        rows(b, t);
    return err;
}

struct result {
    double row, step, cut_256, cut_2b; /* us */
    int period;                        /* steps between cuts */
};

static int time_cut(struct stand *b, int n, double *ret_us)
{
    int err = set_up(b, n);
    cool();
    if (!err)
        err = decide(b, PHASE_PROMPT, ret_us);
    return err;
}

/* Measures steps at the budget: the evidence of a query and the decision.  The cost of a cut is
 * divided by the steps between cuts. */
static int time_steps(struct stand *b, struct result *ret)
{
    double row[MAX_STEPS], cut[MAX_STEPS], idle[MAX_STEPS], us, t0;
    int n_row = 0, n_cuts = 0, n_idle = 0, last = -1, period = 1, err = KVF_OK;
    for (int i = 0; !err && i < 3 * b->p.budget && n_cuts < (period > 1 ? 3 : MAX_STEPS); i++) {
        bool timed = i < 4 || i - last < 3 || i - last > period - 3;
        if (timed)
            cool();
        b->n_cut = 0;
        method_prepare(b->s, 1, b->t);
        err = decide(b, PHASE_BEFORE, &us);
        if (b->n_cut) {
            if (i > 0) /* the first cut has no new entries to rank */
                cut[n_cuts++] = us;
            period = i - last;
            last = i;
        } else if (timed && n_idle < MAX_STEPS) {
            idle[n_idle++] = us;
        }
        if (!err)
            err = append(b);
        t0 = now_us();
        appended(b);
        rows(b, b->t - 1);
        if (timed && n_row < MAX_STEPS)
            row[n_row++] = now_us() - t0;
    }
    double c = mean(cut, n_cuts), w = n_idle ? median(idle, n_idle) : 0;
    ret->period = period;
    ret->step = (c + (period - 1) * w) / period;
    ret->row = median(row, n_row);
    return err;
}

static int time_method(struct stand *b, struct result *ret)
{
    double x[4][MAX_LIST];
    int B = b->p.budget, err = KVF_OK;
    for (int i = 0; !err && i < bench.rounds; i++) {
        err = time_cut(b, 2 * B, &x[1][i]);
        take_down(b);
        if (!err)
            err = time_cut(b, B + 256, &x[0][i]);
        if (!err)
            err = time_steps(b, ret);
        x[2][i] = ret->step;
        x[3][i] = ret->row;
        take_down(b);
    }
    double scale = (double)LAYERS / b->shape.n_layers;
    ret->cut_256 = median(x[0], bench.rounds) * scale;
    ret->cut_2b = median(x[1], bench.rounds) * scale;
    ret->step = median(x[2], bench.rounds) * scale;
    ret->row = median(x[3], bench.rounds) * scale;
    return err;
}

/* Returns the time of a decode step under `full` with B cached entries. */
static double model_step(struct engine *e, int B)
{
    struct session_options opt = {.kv_type = KV_F16, .cap = B + MODEL_STEPS};
    struct session *s;
    double us[MODEL_STEPS];
    int32_t *ids = MEM_NEW(int32_t, (size_t)B);
    for (int i = 0; ids && i < B; i++)
        ids[i] = 1000 + i * 37 % 30000;
    if (!ids || session_create(e, &opt, &s, NULL))
        return NAN;
    int err = session_prompt(s, ids, B, NULL, NULL);
    for (int i = 0; !err && i < MODEL_STEPS; i++) {
        double t0 = now_us();
        err = session_step(s, 1000 + i);
        us[i] = now_us() - t0;
    }
    session_destroy(s);
    mem_free(ids);
    return err ? NAN : median(us, MODEL_STEPS);
}

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
            return true;
    return !list;
}

static void line(const struct stand *b, const struct result *r, double step)
{
    char share[16] = "-";
    if (!isnan(step))
        snprintf(share, sizeof share, "%.1f %%", 100 * r->step / step);
    printf("%6d  %-14s %7d %10.0f %10.1f %8s %12.0f %12.0f%s\n", b->p.budget, b->m.name, r->period,
           r->row, r->step, share, r->cut_256, r->cut_2b, b->shape.n_layers < LAYERS ? "  *" : "");
    fflush(stdout);
}

static int at_budget(const char *list, struct engine *e, int B)
{
    double step = e ? model_step(e, B) : NAN;
    int err = KVF_OK;
    if (e)
        printf("%6d  a decode step under full: %.0f us\n", B, step);
    for (const struct method *m = method_presets; !err && m->name; m++) {
        struct stand b = {.m = *m, .shape = {LAYERS, HEADS, KV_HEADS, DIM}};
        struct result r = {0};
        struct kvf_diag d;
        if (!m->score || m->score->needs_mass || m->score->evidence & OTHER
            || !listed(list, m->name))
            continue;
        err = method_parse(m->name, B, &b.m, &b.p, &d);
        if (m->score->scratch_rows || b.p.window > 64)
            b.shape.n_layers = FEW_LAYERS;
        if (!err)
            err = time_method(&b, &r);
        if (!err)
            line(&b, &r, step);
    }
    return err;
}

static int prepare(void)
{
    struct rng r;
    double sum = 0;
    rng_init(&r, 1);
    kernels_init(&bench.kernels, cpu_flags_detect());
    bench.weight = MEM_NEW(float, N_RANDOM);
    bench.key = MEM_NEW(float, N_RANDOM);
    bench.cold = MEM_NEW(uint64_t, COLD / sizeof(uint64_t));
    if (!bench.weight || !bench.key || !bench.cold)
        return KVF_E_NOMEM;
    memset(bench.cold, 1, COLD);
    for (int i = 0; i < N_RANDOM; i++) {
        bench.weight[i] = (float)exp(2 * rng_normal(&r));
        bench.key[i] = (float)rng_normal(&r);
        sum += (double)bench.weight[i];
    }
    for (int i = 0; i < N_RANDOM; i++)
        bench.weight[i] *= (float)(N_RANDOM / sum / 1024); /* rows of 1,024 sum to 1 */
    return par_create(THREADS, &bench.pool);
}

int main(int argc, char **argv)
{
    const char *budgets = "128,256,512,1024,2048,4096", *methods = NULL, *model = NULL;
    struct engine *e = NULL;
    struct kvf_diag d;
    bench.rounds = 3;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-b") == 0 && i + 1 < argc)
            budgets = argv[++i];
        else if (strcmp(argv[i], "-m") == 0 && i + 1 < argc)
            methods = argv[++i];
        else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
            bench.rounds = atoi(argv[++i]) > MAX_LIST ? MAX_LIST : atoi(argv[i]);
        else
            model = argv[i];
    }
    struct engine_options opt = {.n_threads = THREADS, .cpu_flags = cpu_flags_detect()};
    if (!model || prepare() || engine_open(model, &opt, &e, &d)) {
        fprintf(stderr, "bench_methods: cannot start; it needs a model\n");
        return 1;
    }
    bench.model = &e->config;
    printf("%6s  %-14s %7s %10s %10s %8s %12s %12s\n", "budget", "method", "every", "rows us",
           "step us", "share", "cut B+256 us", "cut 2B us");
    int err = KVF_OK;
    for (const char *p = budgets; !err && p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        err = at_budget(methods, e, atoi(p));
    printf("* %d layers, scaled to %d\n", FEW_LAYERS, LAYERS);
    engine_close(e);
    par_destroy(bench.pool);
    return err != KVF_OK;
}
