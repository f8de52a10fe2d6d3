/* attention.c - gated attention on the CPU, in tiles of 64 queries by 64 keys.
 *
 * Tiles above the diagonal or before the document are skipped. The forward pass keeps a running
 * maximum and sum per query. The backward pass recomputes the weights from their log-sum-exp:
 *
 *     P = exp(s' - lse)     dP = dO V^T     dS' = P (dP - delta),  delta_i = dO_i . O_i
 *     dV = P^T dO           dK = scale dS^T Q           dQ = scale dS K
 *
 * where dS is dS' times the derivative of s' by s. */
#include <math.h>
#include <string.h>

#include "engine/train/attention.h"

/* PARTS: the query tiles of a head are divided between two tasks of equal work, each with its own
 * sums over queries. It is a constant, so that the number of threads does not change results. */
enum { TILE = 64, PARTS = 2 };

#define HIDDEN -1e30f /* score of an evicted key; its weight is 0 */

/* A forward or backward pass with its buffers. */
struct work {
    const struct attention *a;
    const struct attention_grads *grads;
    float *out, *lse;
    size_t ld_out;
    int n_tiles;
    float *k_t, *v_t;          /* [H, n_tiles, D, TILE] transposed tiles */
    float *gate;               /* [H, n_tiles * TILE] */
    float *d_k, *d_v, *d_gate; /* [G, PARTS, T, D], [G, PARTS, T, D], [G, PARTS, T] */
    float *local;              /* scratch of each thread */
    size_t local_size;
};

/* One tile in a task: n_q queries from q0, n_k keys from k0. */
struct tile {
    int g, h, q0, n_q, k0, n_k;
    float *s, *d;        /* [TILE, TILE] scores, then weights; gradients */
    float *q;            /* [TILE, D] scaled queries */
    float *factor, *row; /* [TILE] */
};

/* The keys of a tile that a query sees: lo .. hi - 1. */
struct range {
    int lo, hi;
};

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

static int tiles(int T)
{
    return T / TILE + (T % TILE > 0);
}

/* Reserves n floats, in complete cache lines, after *used. Returns their offset. */
static size_t claim(size_t *used, size_t n)
{
    size_t at = *used;
    *used += (n + 15) / 16 * 16;
    return at;
}

static size_t lay_out(struct work *w, const struct attention *a, float *base, int n_threads)
{
    size_t T = (size_t)a->T, D = (size_t)a->D, used = 0;
    size_t heads = (size_t)a->n_heads * PARTS, padded = (size_t)tiles(a->T) * TILE;
    size_t keys = (size_t)a->n_kv_heads * padded;
    size_t at[] = {claim(&used, keys * D),      claim(&used, keys * D),
                   claim(&used, keys),          claim(&used, heads * T * D),
                   claim(&used, heads * T * D), claim(&used, heads * T)};
    size_t local = 2 * TILE * TILE + 2 * TILE, first = used;
    local += (TILE * D + 15) / 16 * 16;
    claim(&used, local * (size_t)n_threads);
    if (base)
        *w = (struct work){.a = a,
                           .n_tiles = tiles(a->T),
                           .k_t = base + at[0],
                           .v_t = base + at[1],
                           .gate = base + at[2],
                           .d_k = base + at[3],
                           .d_v = base + at[4],
                           .d_gate = base + at[5],
                           .local = base + first,
                           .local_size = local};
    return used * sizeof(float);
}

size_t attention_scratch(const struct attention *a, int n_threads)
{
    return lay_out(NULL, a, NULL, n_threads);
}

static struct tile tile_of(const struct work *w, int g, int i_tile, int thread)
{
    const struct attention *a = w->a;
    float *at = w->local + (size_t)thread * w->local_size;
    int q0 = i_tile * TILE;
    return (struct tile){.g = g,
                         .h = g / (a->n_heads / a->n_kv_heads),
                         .q0 = q0,
                         .n_q = at_most(a->T - q0, TILE),
                         .s = at,
                         .d = at + TILE * TILE,
                         .factor = at + 2 * TILE * TILE,
                         .row = at + 2 * TILE * TILE + TILE,
                         .q = at + 2 * TILE * TILE + 2 * TILE};
}

/* Returns the offset of token t, head g in rows of ld floats. */
static size_t place(const struct attention *a, int t, size_t ld, int g)
{
    return (size_t)t * ld + (size_t)g * (size_t)a->D;
}

static size_t key_tile(const struct work *w, const struct tile *t)
{
    return ((size_t)t->h * (size_t)w->n_tiles + (size_t)(t->k0 / TILE)) * TILE;
}

static void transpose(float *to, const float *from, size_t ld, int n, int D)
{
    for (int t = 0; t < n; t++)
        for (int d = 0; d < D; d++)
            to[(size_t)d * TILE + (size_t)t] = from[(size_t)t * ld + (size_t)d];
}

/* Task: transposes one tile of keys and values of one KV head and gathers its gates. */
static void turn_task(void *ctx, int task, int thread)
{
    const struct work *w = ctx;
    const struct attention *a = w->a;
    int h = task / w->n_tiles, k0 = task % w->n_tiles * TILE, n = at_most(a->T - k0, TILE);
    size_t to = (size_t)task * TILE * (size_t)a->D, from = place(a, k0, a->ld, h);
    transpose(w->k_t + to, a->k + from, a->ld, n, a->D);
    if (w->grads)
        transpose(w->v_t + to, a->v + from, a->ld, n, a->D);
    if (a->gating != GATING_NONE)
        for (int j = 0; j < n; j++)
            w->gate[(size_t)task * TILE + (size_t)j] =
                a->gate[(size_t)(k0 + j) * (size_t)a->n_kv_heads + (size_t)h];
    (void)thread;
}

static void scale_queries(const struct attention *a, struct tile *t)
{
    for (int r = 0; r < t->n_q; r++) {
        const float *from = a->q + place(a, t->q0 + r, a->ld, t->g);
        for (int d = 0; d < a->D; d++)
            t->q[r * a->D + d] = a->scale * from[d];
    }
}

static void scores(const struct work *w, struct tile *t)
{
    int D = w->a->D;
    w->a->kernels->tile_mul(&(struct tile_product){.c = t->s,
                                                   .ld_c = TILE,
                                                   .a = t->q,
                                                   .a_row = (size_t)D,
                                                   .a_col = 1,
                                                   .b = w->k_t + key_tile(w, t) * (size_t)D,
                                                   .ld_b = TILE,
                                                   .m = t->n_q,
                                                   .n = t->n_k,
                                                   .k = D});
}

static struct range seen(const struct attention *a, const struct tile *t, int i)
{
    int lo = a->first[i] - t->k0, hi = at_most(i + 1 - t->k0, t->n_k);
    return (struct range){lo > 0 ? lo : 0, hi};
}

static void clear_unseen(float *s, struct range r, int n)
{
    if (r.lo == 0 && r.hi == n) /* most rows */
        return;
    if (r.lo >= r.hi)
        r.lo = r.hi = n;
    memset(s, 0, (size_t)r.lo * sizeof *s);
    memset(s + r.hi, 0, (size_t)(n - r.hi) * sizeof *s);
}

/* Returns how many of n keys, the first of them `age` tokens old, are outside the window. */
static int outside(const struct attention *a, int age, int n)
{
    int old = age - a->window + 1;
    return old > 0 ? at_most(old, n) : 0;
}

/* Computes s' of n keys from s; age: that of the first key. GATING_LOGIT stores the factors in
 * `factor`. */
static void modulate(const struct attention *a, float *s, const float *gate, int n, int age,
                     float *factor)
{
    const struct kernels *k = a->kernels;
    switch (a->gating) {
    case GATING_NONE:
        break;
    case GATING_DECAY:
        k->add_aged(s, gate, n, age);
        break;
    case GATING_LOGIT:
        k->exp_aged(factor, gate, n, age);
        k->mul(s, factor, n);
        break;
    case GATING_WRITE:
        k->add(s, gate, outside(a, age, n));
        break;
    }
}

/* Returns true if query i no longer sees key j of KV head h. */
static bool evicted(const struct attention *a, int h, int j, int i)
{
    return a->evicted_at[(size_t)j * (size_t)a->n_kv_heads + (size_t)h] <= i;
}

/* Sets the scores of evicted keys among the n keys from j on to `value`. Returns the number of
 * remaining keys. */
static int hide(const struct attention *a, const struct tile *t, int i, int j, int n, float *s,
                float value)
{
    int left = n;
    for (int k = 0; a->evicted_at && k < n; k++)
        if (evicted(a, t->h, j + k, i)) {
            s[k] = value;
            left--;
        }
    return left;
}

static void scale_row(float *x, int n, float by)
{
    for (int d = 0; d < n; d++)
        x[d] *= by;
}

/* Running maximum and sum of the queries of a tile. */
struct running {
    float max[TILE];
    double sum[TILE];
};

/* Converts the scores of row r to weights relative to the running maximum. */
static void weigh_row(const struct work *w, struct tile *t, struct running *run, int r, float *out)
{
    const struct attention *a = w->a;
    struct range in = seen(a, t, t->q0 + r);
    float *s = t->s + r * TILE, *from = s + in.lo;
    int n = in.hi - in.lo;
    clear_unseen(s, in, t->n_k);
    if (n <= 0)
        return;
    int i = t->q0 + r, j = t->k0 + in.lo;
    if (a->cap > 0)
        a->kernels->soft_cap(from, n, a->cap);
    modulate(a, from, w->gate + key_tile(w, t) + in.lo, n, i - j, t->factor);
    if (hide(a, t, i, j, n, from, HIDDEN) == 0) {
        memset(from, 0, (size_t)n * sizeof *from);
        return;
    }
    float max = a->kernels->max_row(from, n);
    if (run->sum[r] > 0 && max > run->max[r]) {
        float by = expf(run->max[r] - max);
        scale_row(out + (size_t)r * w->ld_out, a->D, by);
        run->sum[r] *= (double)by;
    }
    if (run->sum[r] <= 0 || max > run->max[r])
        run->max[r] = max;
    run->sum[r] += (double)a->kernels->exp_row(from, n, run->max[r]);
    hide(a, t, i, j, n, from, 0);
}

/* Task: one tile of queries of one head; the tiles with the most keys come first. */
static void forward_task(void *ctx, int task, int thread)
{
    const struct work *w = ctx;
    const struct attention *a = w->a;
    struct tile t = tile_of(w, task % a->n_heads, w->n_tiles - 1 - task / a->n_heads, thread);
    struct running run = {.sum = {0}};
    float *out = w->out + place(a, t.q0, w->ld_out, t.g);
    int start = a->first[t.q0] / TILE * TILE;
    scale_queries(a, &t);
    for (t.k0 = start; t.k0 <= t.q0; t.k0 += TILE) {
        t.n_k = at_most(a->T - t.k0, TILE);
        scores(w, &t);
        for (int r = 0; r < t.n_q; r++)
            weigh_row(w, &t, &run, r, out);
        a->kernels->tile_mul(&(struct tile_product){.c = out,
                                                    .ld_c = w->ld_out,
                                                    .a = t.s,
                                                    .a_row = TILE,
                                                    .a_col = 1,
                                                    .b = a->v + place(a, t.k0, a->ld, t.h),
                                                    .ld_b = a->ld,
                                                    .m = t.n_q,
                                                    .n = a->D,
                                                    .k = t.n_k,
                                                    .add = t.k0 > start});
    }
    for (int r = 0; r < t.n_q; r++) {
        if (a->sinks)
            run.sum[r] += exp((double)a->sinks[t.g] - (double)run.max[r]);
        scale_row(out + (size_t)r * w->ld_out, a->D, (float)(1 / run.sum[r]));
        w->lse[(size_t)t.g * (size_t)a->T + (size_t)(t.q0 + r)] = run.max[r]
                                                                  + (float)log(run.sum[r]);
    }
}

void attention_forward(const struct attention *a, float *out, size_t ld_out, float *lse,
                       struct par *pool, void *scratch)
{
    struct work w;
    lay_out(&w, a, scratch, par_threads(pool));
    w.out = out;
    w.ld_out = ld_out;
    w.lse = lse;
    par_run(pool, a->n_kv_heads * w.n_tiles, turn_task, &w);
    par_run(pool, a->n_heads * w.n_tiles, forward_task, &w);
}

/* Four independent sums, so that additions overlap. */
static float dot(const float *x, const float *y, int n)
{
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int s = 0; s < 4; s++)
            sum[s] += (double)x[i + s] * (double)y[i + s];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)y[i];
    return (float)(sum[0] + sum[1] + (sum[2] + sum[3]));
}

/* Computes delta = dO . O of every query of the tile. */
static void mean_gradients(const struct work *w, const struct tile *t, float *delta)
{
    const struct attention_grads *g = w->grads;
    for (int r = 0; r < t->n_q; r++) {
        size_t at = place(w->a, t->q0 + r, g->ld_out, t->g);
        delta[r] = dot(g->d_out + at, g->out + at, w->a->D);
    }
}

/* Given dS' of n keys in ds and their s' in s: adds the gradient by their gates and converts ds to
 * dS. */
static void modulate_back(const struct attention *a, struct tile *t, float *ds, const float *s,
                          int n, int age, float *d_gate)
{
    const struct kernels *k = a->kernels;
    switch (a->gating) {
    case GATING_NONE:
        break;
    case GATING_DECAY:
        k->add_aged(d_gate, ds, n, age);
        break;
    case GATING_LOGIT: /* ds'/dg = (i - j) s' */
        memcpy(t->row, ds, (size_t)n * sizeof *ds);
        k->mul(t->row, s, n);
        k->add_aged(d_gate, t->row, n, age);
        k->mul(ds, t->factor, n);
        break;
    case GATING_WRITE:
        k->add(d_gate, ds, outside(a, age, n));
        break;
    }
}

/* Applies the soft cap to n scores; slope: its derivative. */
static void cap_scores(const struct attention *a, float *s, int n, float *slope)
{
    a->kernels->soft_cap(s, n, a->cap);
    for (int k = 0; k < n; k++)
        slope[k] = 1 - s[k] / a->cap * (s[k] / a->cap);
}

/* Converts the scores and dP of row r to weights and dS. */
static void gradient_row(const struct work *w, struct tile *t, int r, float mean, float *d_gate)
{
    const struct attention *a = w->a;
    int i = t->q0 + r;
    struct range in = seen(a, t, i);
    float *s = t->s + r * TILE, *d = t->d + r * TILE, signal[TILE], slope[TILE];
    int n = in.hi - in.lo, age = i - t->k0 - in.lo;
    clear_unseen(s, in, t->n_k);
    clear_unseen(d, in, t->n_k);
    if (n <= 0)
        return;
    s += in.lo;
    d += in.lo;
    if (a->cap > 0)
        cap_scores(a, s, n, slope);
    modulate(a, s, w->gate + key_tile(w, t) + in.lo, n, age, t->factor);
    if (a->gating == GATING_LOGIT)
        memcpy(signal, s, (size_t)n * sizeof *s);
    hide(a, t, i, i - age, n, s, HIDDEN);
    a->kernels->exp_row(s, n, w->grads->lse[(size_t)t->g * (size_t)a->T + (size_t)i]);
    hide(a, t, i, i - age, n, s, 0);
    a->kernels->softmax_grad(d, s, n, mean);
    modulate_back(a, t, d, signal, n, age, d_gate + t->k0 + in.lo);
    if (a->cap > 0)
        a->kernels->mul(d, slope, n);
}

/* Adds a tile to its three sums: dV, dK and dQ. */
static void gradient_products(const struct work *w, const struct tile *t, size_t part, bool add)
{
    const struct attention *a = w->a;
    size_t D = (size_t)a->D, key = (part * (size_t)a->T + (size_t)t->k0) * D;
    struct tile_product dv = {.c = w->d_v + key,
                              .ld_c = D,
                              .a = t->s,
                              .a_row = 1,
                              .a_col = TILE,
                              .b = w->grads->d_out + place(a, t->q0, w->grads->ld_out, t->g),
                              .ld_b = w->grads->ld_out,
                              .m = t->n_k,
                              .n = a->D,
                              .k = t->n_q,
                              .add = true};
    struct tile_product dk = dv, dq = {.c = w->grads->d_q + place(a, t->q0, a->ld, t->g),
                                       .ld_c = a->ld,
                                       .a = t->d,
                                       .a_row = TILE,
                                       .a_col = 1,
                                       .b = a->k + place(a, t->k0, a->ld, t->h),
                                       .ld_b = a->ld,
                                       .m = t->n_q,
                                       .n = a->D,
                                       .k = t->n_k,
                                       .add = add};
    dk.c = w->d_k + key;
    dk.a = t->d;
    dk.b = t->q; /* includes the scale */
    dk.ld_b = D;
    a->kernels->tile_mul(&dv);
    a->kernels->tile_mul(&dk);
    a->kernels->tile_mul(&dq);
}

/* Processes one tile of queries with all its keys. */
static void backward_tile(const struct work *w, struct tile *t, size_t part)
{
    const struct attention *a = w->a;
    const struct attention_grads *g = w->grads;
    float mean[TILE];
    int start = a->first[t->q0] / TILE * TILE;
    scale_queries(a, t);
    mean_gradients(w, t, mean);
    for (t->k0 = start; t->k0 <= t->q0; t->k0 += TILE) {
        t->n_k = at_most(a->T - t->k0, TILE);
        scores(w, t);
        a->kernels->tile_mul(
            &(struct tile_product){.c = t->d,
                                   .ld_c = TILE,
                                   .a = g->d_out + place(a, t->q0, g->ld_out, t->g),
                                   .a_row = g->ld_out,
                                   .a_col = 1,
                                   .b = w->v_t + key_tile(w, t) * (size_t)a->D,
                                   .ld_b = TILE,
                                   .m = t->n_q,
                                   .n = t->n_k,
                                   .k = a->D});
        for (int r = 0; r < t->n_q; r++)
            gradient_row(w, t, r, mean[r], w->d_gate + part * (size_t)a->T);
        gradient_products(w, t, part, t->k0 > start);
    }
    for (int r = 0; r < t->n_q; r++)
        scale_row(g->d_q + place(a, t->q0 + r, a->ld, t->g), a->D, a->scale);
}

/* Task: the query tiles 0, 3, 4, 7, 8, ... or 1, 2, 5, 6, ... of a head. */
static void backward_task(void *ctx, int task, int thread)
{
    const struct work *w = ctx;
    size_t part = (size_t)task, T = (size_t)w->a->T, rows = T * (size_t)w->a->D;
    memset(w->d_k + part * rows, 0, rows * sizeof(float));
    memset(w->d_v + part * rows, 0, rows * sizeof(float));
    memset(w->d_gate + part * T, 0, T * sizeof(float));
    for (int i = w->n_tiles - 1; i >= 0; i--) {
        if ((i + 1) / 2 % PARTS != task % PARTS)
            continue;
        struct tile t = tile_of(w, task / PARTS, i, thread);
        backward_tile(w, &t, part);
    }
}

/* Task: sums the gradients of one KV head and one tile of tokens over its query heads, in order. */
static void reduce_task(void *ctx, int task, int thread)
{
    const struct work *w = ctx;
    const struct attention *a = w->a;
    int h = task / w->n_tiles, t0 = task % w->n_tiles * TILE, n = at_most(a->T - t0, TILE);
    size_t per_head = (size_t)(a->n_heads / a->n_kv_heads) * PARTS, D = (size_t)a->D;
    (void)thread;
    for (int t = t0; t < t0 + n; t++) {
        float *dk = w->grads->d_k + place(a, t, a->ld, h);
        float *dv = w->grads->d_v + place(a, t, a->ld, h);
        double dg = 0;
        memset(dk, 0, D * sizeof *dk);
        memset(dv, 0, D * sizeof *dv);
        for (size_t p = (size_t)h * per_head; p < (size_t)(h + 1) * per_head; p++) {
            size_t at = p * (size_t)a->T + (size_t)t;
            a->kernels->add(dk, w->d_k + at * D, a->D);
            a->kernels->add(dv, w->d_v + at * D, a->D);
            dg += (double)w->d_gate[at];
        }
        if (a->gating != GATING_NONE)
            w->grads->d_gate[(size_t)t * (size_t)a->n_kv_heads + (size_t)h] = (float)dg;
    }
}

/* Task: the derivative by the sink of a head, summed over all queries in order. */
static void sink_task(void *ctx, int g, int thread)
{
    const struct work *w = ctx;
    const struct attention *a = w->a;
    double sum = 0;
    (void)thread;
    for (int t = 0; t < a->T; t++) {
        size_t at = place(a, t, w->grads->ld_out, g);
        double lse = (double)w->grads->lse[(size_t)g * (size_t)a->T + (size_t)t];
        sum -= exp((double)a->sinks[g] - lse)
               * (double)dot(w->grads->d_out + at, w->grads->out + at, a->D);
    }
    w->grads->d_sinks[g] += (float)sum;
}

void attention_backward(const struct attention *a, const struct attention_grads *g,
                        struct par *pool, void *scratch)
{
    struct work w;
    lay_out(&w, a, scratch, par_threads(pool));
    w.grads = g;
    par_run(pool, a->n_kv_heads * w.n_tiles, turn_task, &w);
    par_run(pool, a->n_heads * PARTS, backward_task, &w);
    par_run(pool, a->n_kv_heads * w.n_tiles, reduce_task, &w);
    if (g->d_sinks)
        par_run(pool, a->n_heads, sink_task, &w);
}
