/* test_decisions.c - state that persists between evictions (window sums, the sum of keys, lists of
 * the worst entries) gives the decisions of a calculation from scratch. Every eviction is compared
 * with its definition in double precision, from a record of all rows and keys by position. */
#include "engine/method/decisions.h"
#include "tests/suite.h"

enum { G = 4, H = 2, D = 16, PROMPT = 150, STEPS = 70, T = PROMPT + STEPS, PER = G / H };

struct world {
    float weight[T][G][T]; /* [query][head][position] */
    float key[H][T][D];
    double unit[H][T][D], cosine[H][T][T];
    bool alive[H][T];
    struct method m;
    struct method_params p;
    int t, incoming, n_cut[H];
    double score[H][T], worst_kept[H]; /* by definition */
    int first_row;                     /* earlier rows are unknown */
    bool prompt;
};

static struct world w;

static bool candidate(int h, int pos)
{
    return w.alive[h][pos] && pos >= w.p.sinks && pos < w.t + w.incoming - w.p.recent;
}

/* Returns the weight of position pos at query t, aggregated over the query heads of a group. If
 * requested, it is divided by the total of the candidates. */
static double grouped(int h, int t, int pos)
{
    double out = 0;
    for (int g = h * PER; g < (h + 1) * PER; g++) {
        double a = pos <= t ? (double)w.weight[t][g][pos] : 0, sum = 0;
        for (int j = 0; w.p.support == SUPPORT_CANDIDATES && j <= t; j++)
            sum += candidate(h, j) ? (double)w.weight[t][g][j] : 0;
        if (w.p.support == SUPPORT_CANDIDATES)
            a = sum > 0 ? a / sum : 0;
        out = w.p.group == GROUP_MAX ? fmax(out, a) : out + a;
    }
    return w.p.group == GROUP_MEAN ? out / PER : out;
}

static double by_window(int h, int pos)
{
    int first = w.t - w.p.window > w.first_row ? w.t - w.p.window : w.first_row;
    double out = 0;
    for (int t = first; t < w.t; t++) {
        double a = grouped(h, t, pos);
        out = w.p.across == ACROSS_MAX ? fmax(out, a) : out + a / (w.t - first);
    }
    return out;
}

static double cosine(int h, int i, int j)
{
    double dot = 0;
    for (int d = 0; d < D; d++)
        dot += w.unit[h][i][d] * w.unit[h][j][d];
    return dot;
}

static double by_anchor(int h, int pos)
{
    double a[D] = {0}, dot = 0, square = 0;
    for (int j = 0; j < w.t; j++)
        for (int d = 0; w.alive[h][j] && d < D; d++)
            a[d] += w.unit[h][j][d];
    for (int d = 0; d < D; d++) {
        dot += a[d] * w.unit[h][pos][d];
        square += a[d] * a[d];
    }
    return -dot / sqrt(square);
}

/* Computes R of R-KV for all entries. Each entry ignores its newest similar neighbour. */
static void redundancies(int h, double *r)
{
    double sum = 0;
    int n = 0;
    memset(r, 0, T * sizeof *r);
    for (int i = 0; i < w.t; i++) {
        int newest = -1;
        if (!w.alive[h][i])
            continue;
        n++;
        for (int j = 0; j < w.t; j++)
            if (w.alive[h][j] && j != i && w.cosine[h][i][j] > 0.5)
                newest = j;
        for (int j = 0; j < w.t; j++)
            if (w.alive[h][j] && j != i && j != newest)
                r[j] += w.cosine[h][i][j];
    }
    for (int j = 0; j < w.t; j++)
        sum += w.alive[h][j] ? exp(r[j] / n) : 0;
    for (int j = 0; j < w.t; j++)
        r[j] = exp(r[j] / n) / sum;
}

static double by_redundancy(int h, int pos)
{
    static double r[T];
    static int head, t;
    if (head != h || t != w.t || pos == 0)
        redundancies(h, r);
    head = h;
    t = w.t;
    return -r[pos];
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes all scores by definition, and the maximum score that an evicted entry may have. */
static void define(double (*score)(int h, int pos))
{
    static double v[T];
    for (int h = 0; h < H; h++) {
        int n = 0, m = 0, most = w.p.budget - w.incoming;
        for (int j = 0; j < w.t; j++) {
            n += w.alive[h][j];
            if (candidate(h, j))
                v[m++] = w.score[h][j] = score(h, j);
        }
        w.n_cut[h] = n > most ? n - most + w.p.every - 1 : 0;
        qsort(v, (size_t)m, sizeof *v, rising);
        w.worst_kept[h] = w.n_cut[h] ? v[w.n_cut[h] - 1] : -INFINITY;
    }
}

static const double tolerance = 3e-6; /* for cosines in f32; relative for other scores */

static void on_evict(void *ctx, const struct eviction *e)
{
    (void)ctx;
    double want = w.score[e->head][e->pos], bound = w.worst_kept[e->head];
    cr_assert(candidate(e->head, e->pos), "%s: position %d is protected", w.m.name, e->pos);
    cr_assert(fabs((double)e->score - want) <= tolerance * fabs(want),
              "%s: t %d, position %d: %.9g, not %.9g", w.m.name, w.t, e->pos, (double)e->score,
              want);
    cr_assert(want <= bound + tolerance * fabs(bound),
              "%s: t %d, position %d should stay: %.9g > %.9g", w.m.name, w.t, e->pos, want, bound);
    w.alive[e->head][e->pos] = false;
    w.n_cut[e->head]--;
}

static void fill(void)
{
    struct rng r = rng_seeded(5);
    float *p = &w.weight[0][0][0];
    for (int i = 0; i < T * G * T; i++)
        p[i] = (float)(0.1 * exp(-8 * rng_uniform(&r)));
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++)
            for (int d = 0; d < D; d++) /* some keys are similar */
                w.key[h][t][d] = (float)(rng_normal(&r) + (t % 5 == d % 5 ? 2 : 0));
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            double square = 0;
            for (int d = 0; d < D; d++)
                square += (double)w.key[h][t][d] * (double)w.key[h][t][d];
            for (int d = 0; d < D; d++)
                w.unit[h][t][d] = (double)w.key[h][t][d] / sqrt(square);
            for (int i = 0; i <= t; i++)
                w.cosine[h][i][t] = w.cosine[h][t][i] = cosine(h, i, t);
        }
}

static void append(struct method_state *s, struct cache *c, const struct kernels *k, int t)
{
    for (int h = 0; h < H; h++) {
        struct cache_entry e = {t, NEVER_EXPIRES, w.key[h][t], w.key[h][t]};
        cr_assert(cache_reserve(c, 0, h, 1) == KVF_OK);
        method_appended(s, c, 0, h, cache_append(c, k, 0, h, &e), 0, NULL);
        w.alive[h][t] = true;
    }
}

static void feed_rows(struct method_state *s, struct cache *c, int t)
{
    for (int g = 0; g < G && method_wants_row(s, t); g++) {
        struct cache_head view = cache_view(c, 0, g / PER);
        float p[T];
        int n = 0; /* rows of a prompt cover only the first entries */
        for (; n < view.n && (!w.prompt || n <= t); n++)
            p[n] = w.weight[t][g][view.pos[n]];
        struct attn_row row = {.head = g, .t = t, .n = n, .seen = n, .p = p};
        method_row(s, &row);
        w.first_row = t < w.first_row ? t : w.first_row;
    }
}

static void decide(struct method_state *s, struct cache *c, enum phase phase,
                   double (*score)(int h, int pos))
{
    w.incoming = phase == PHASE_BEFORE;
    define(score);
    cr_assert(method_prepare(s, T, w.t) == KVF_OK);
    cr_assert(method_decide(s, c, w.t, phase, NULL, on_evict, NULL, NULL) == KVF_OK);
    for (int h = 0; h < H; h++)
        cr_assert(w.n_cut[h] == 0, "%s: t %d: %d left to cut", w.m.name, w.t, w.n_cut[h]);
}

static void play(const char *method, int budget, unsigned flags, double (*score)(int h, int pos))
{
    struct method_shape shape = {1, G, H, D};
    struct cache_config cfg = {1, H, D, KV_F32};
    struct kernels k;
    OWNED(cache_destroy) struct cache *c = NULL;
    OWNED(method_state_destroy) struct method_state *s = NULL;
    struct kvf_diag d = {""};
    memset(&w, 0, sizeof w);
    w.first_row = T;
    fill();
    kernels_init(&k, flags);
    struct method_inputs in = {.kernels = &k};
    cr_assert(method_parse(method, budget, &w.m, &w.p, &d) == KVF_OK, "%s", d.text);
    cr_assert(cache_create(&cfg, &c) == KVF_OK);
    cr_assert(method_state_create(&w.m, &w.p, &shape, &in, &s) == KVF_OK);
    cr_assert(method_prepare(s, T, PROMPT) == KVF_OK);
    w.prompt = true;
    for (int t = 0; t < PROMPT; t++)
        append(s, c, &k, t);
    for (int t = 0; t < PROMPT; t++)
        feed_rows(s, c, t);
    w.t = PROMPT;
    decide(s, c, PHASE_PROMPT, score);
    w.prompt = false;
    for (; w.t < T; w.t++) {
        decide(s, c, PHASE_BEFORE, score);
        append(s, c, &k, w.t);
        feed_rows(s, c, w.t);
    }
}

Test(decisions, window_sums_are_those_of_the_last_queries)
{
    play("snapkv:pool=1,window=8,recent=2,sinks=1,every=1", 70, 0, by_window);
    play("snapkv:pool=1,window=8,recent=2,group=max,every=1", 70, 0, by_window);
    play("snapkv:pool=1,window=8,recent=2,group=sum,every=2", 70, 0, by_window);
    play("snapkv:pool=1,window=3,recent=2,every=12", 70, 0, by_window);
}

Test(decisions, rows_scaled_by_the_candidates_are_those_of_the_moment)
{
    play("morphkv:window=5,recent=2,sinks=3", 70, 0, by_window);
    play("morphkv:window=5,recent=2,every=9", 70, 0, by_window);
}

Test(decisions, the_anchor_is_the_sum_of_the_keys_that_are_there)
{
    for (unsigned flags = 0, all = cpu_flags_detect();; flags = all) {
        play("keydiff", 70, flags, by_anchor);
        play("keydiff:every=13", 130, flags, by_anchor);
        if (flags == all)
            break;
    }
}

Test(decisions, redundancy_forgives_the_newest_similar_neighbour)
{
    for (unsigned flags = 0, all = cpu_flags_detect();; flags = all) {
        play("rkv:pool=1,lambda=0,window=4,every=7", 131, flags, by_redundancy);
        play("rkv:pool=1,lambda=0,window=4,every=10", 60, flags, by_redundancy);
        if (flags == all)
            break;
    }
}
