/* causal.c - removes entries of equal attention mass from the cache before the answer's query. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/experiment/causal.h"

const struct causal_row causal_rows[CAUSAL_N_ROWS] = {
    {CAUSAL_NOTHING, 0, -1},          {CAUSAL_EVIDENCE_OUT, 1, -1},
    {CAUSAL_EVIDENCE_OUT, NAN, 3},    {CAUSAL_DISTRACTORS_OUT, NAN, 4},
    {CAUSAL_RANDOM_OUT, NAN, -1},     {CAUSAL_DISTRACTORS_OUT, .25, 9},
    {CAUSAL_DISTRACTORS_OUT, .5, 10}, {CAUSAL_DISTRACTORS_OUT, .75, 11},
    {CAUSAL_DISTRACTORS_OUT, 1, 12},  {CAUSAL_RANDOM_OUT, .25, -1},
    {CAUSAL_RANDOM_OUT, .5, -1},      {CAUSAL_RANDOM_OUT, .75, -1},
    {CAUSAL_RANDOM_OUT, 1, -1},       {CAUSAL_SHAM_OUT, NAN, -1},
};

/* ---- masses of the answer's query */

/* Attention weights of one query. */
struct query_weights {
    int H, group, n; /* KV heads per layer, query heads per KV head, entries to copy */
    float *weight;   /* [L * query heads][n], entries in token order */
};

static void take_row(void *ctx, const struct attn_row *row, const struct cache *c)
{
    struct query_weights *k = ctx;
    struct cache_head view = cache_view(c, row->layer, row->head / k->group);
    size_t at = (size_t)row->layer * (size_t)(k->H * k->group) + (size_t)row->head;
    float *out = k->weight + at * (size_t)k->n;
    for (int i = 0; i < row->n; i++)
        if (view.pos[i] < k->n)
            out[view.pos[i]] = row->p[i];
}

/* Sets weight [L * KV heads][cut] to the attention weights of the answer's query, averaged over the
 * query heads of each KV head. */
static int look(struct effect_run *r, const struct effect *e, const struct causal_task *t,
                double *weight, struct kvf_diag *d)
{
    const struct model_config *m = &e->engine->config;
    struct query_weights k = {m->n_kv_heads, m->n_heads / m->n_kv_heads, t->cut, NULL};
    size_t n = (size_t)t->cut, heads = (size_t)m->n_layers * (size_t)m->n_kv_heads;
    k.weight = mem_alloc((size_t)m->n_layers * (size_t)m->n_heads, n * sizeof *k.weight);
    if (!k.weight)
        return KVF_E_NOMEM;
    int err = effect_look(r, t->query, take_row, &k, d);
    for (size_t h = 0; !err && h < heads; h++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (int g = 0; g < k.group; g++)
                sum += (double)k.weight[(h * (size_t)k.group + (size_t)g) * n + i];
            weight[h * n + i] = sum / k.group;
        }
    mem_free(k.weight);
    return err;
}

/* Returns the number of queries from the first one after the removal to the last one. */
static int fed_steps(const struct causal_task *t)
{
    return t->query - t->cut + t->steps;
}

static int open_task(struct effect *e, const struct causal_task *t, struct effect_run **ret_run,
                     struct kvf_diag *d)
{
    e->prompt = t->cut;
    e->steps = fed_steps(t);
    return effect_open(e, t->ids, ret_run, d);
}

static double mass_of(const double *weight, const struct causal_task *t, enum causal_kind kind)
{
    double sum = 0;
    for (int i = 0; i < t->cut; i++)
        sum += t->kind[i] == kind ? weight[i] : 0;
    return sum;
}

static size_t all_heads(const struct effect *e)
{
    return (size_t)e->engine->config.n_layers * (size_t)e->engine->config.n_kv_heads;
}

int causal_look(struct effect *e, const struct causal_task *t, double *ret_share,
                struct kvf_diag *d)
{
    struct effect_run *r = NULL;
    size_t n = (size_t)t->cut;
    double *weight = mem_alloc(all_heads(e), n * sizeof *weight);
    int err = weight ? open_task(e, t, &r, d) : KVF_E_NOMEM;
    if (!err)
        err = look(r, e, t, weight, d);
    for (size_t h = 0; !err && h < all_heads(e); h++)
        ret_share[h] = mass_of(weight + h * n, t, CAUSAL_EVIDENCE);
    effect_close(r);
    mem_free(weight);
    return err;
}

/* ---- groups of heads */

struct ranked {
    double share;
    int head;
};

static int by_share(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->share != y->share ? (x->share < y->share) - (x->share > y->share)
                                : (x->head > y->head) - (x->head < y->head);
}

int causal_groups(const double *share, int n_tasks, int task, int n,
                  const unsigned char *mark_until, double looking, unsigned char *ret_group)
{
    struct ranked *rank = MEM_NEW(struct ranked, (size_t)n);
    int taken = 0;
    if (!rank)
        return KVF_E_NOMEM;
    for (int h = 0; h < n; h++) {
        double sum = 0;
        for (int k = 0; k < n_tasks; k++)
            sum += k != task || n_tasks == 1 ? share[(size_t)k * (size_t)n + (size_t)h] : 0;
        if (mark_until[h])
            rank[taken++] = (struct ranked){sum, h};
    }
    qsort(rank, (size_t)taken, sizeof *rank, by_share);
    int most = (int)fmin(taken, fmax(1, ceil(looking * taken)));
    memset(ret_group, 0, (size_t)CAUSAL_N_GROUPS * (size_t)n);
    for (int i = 0; i < taken; i++) {
        ret_group[CAUSAL_ALL * n + rank[i].head] = 1;
        ret_group[(i < most ? CAUSAL_LOOKING : CAUSAL_OTHERS) * n + rank[i].head] = 1;
    }
    mem_free(rank);
    return KVF_OK;
}

/* ---- removed entries */

/* Lists the positions of a kind in increasing order, and returns their number. */
static int list(const struct causal_task *t, enum causal_kind kind, int *order)
{
    int n = 0;
    for (int i = 0; i < t->cut; i++)
        if (t->kind[i] == kind)
            order[n++] = i;
    return n;
}

static void shuffle(struct rng *r, int *order, int n)
{
    for (int i = 0; i < n; i++) { /* Fisher-Yates shuffle */
        int j = i + (int)rng_below(r, (uint64_t)(n - i)), kept = order[j];
        order[j] = order[i];
        order[i] = kept;
    }
}

/* Marks entries in the order order[first], ..., wrapping around at n. Skips an entry if it would
 * exceed the mass by more than rounding. Returns the marked mass. */
static double mark_until(const double *weight, const int *order, int n, int first, double mass,
                         unsigned char *lost)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        int at = order[(first + i) % n];
        if (sum + weight[at] <= mass * (1 + 1e-12)) {
            sum += weight[at];
            lost[at] = 1;
        }
    }
    return sum;
}

/* Marks a random part of the evidence with at most the mass of the distractors, or all evidence if
 * its mass is smaller. Returns its mass, the matched mass of this head. */
static double draw_matched(const struct causal_task *t, const double *weight, uint64_t seed,
                           int head, int *order, unsigned char *lost)
{
    struct rng r;
    double mass = fmin(mass_of(weight, t, CAUSAL_EVIDENCE), mass_of(weight, t, CAUSAL_DISTRACTOR));
    int n = list(t, CAUSAL_EVIDENCE, order);
    rng_init(&r, rng_hash(seed, (uint64_t)head, CAUSAL_MATCHED_EVIDENCE, 0));
    shuffle(&r, order, n);
    return mark_until(weight, order, n, 0, mass, lost);
}

/* Marks the entries that a row removes from a head. */
static void choose(const struct causal_task *t, const double *weight, int row, uint64_t seed,
                   int head, int *order, unsigned char *lost)
{
    static const enum causal_kind kinds[] = {[CAUSAL_EVIDENCE_OUT] = CAUSAL_EVIDENCE,
                                             [CAUSAL_DISTRACTORS_OUT] = CAUSAL_DISTRACTOR,
                                             [CAUSAL_RANDOM_OUT] = CAUSAL_STAYS,
                                             [CAUSAL_SHAM_OUT] = CAUSAL_DISTRACTOR};
    const struct causal_row *c = &causal_rows[row];
    bool sham = c->what == CAUSAL_SHAM_OUT;
    enum causal_kind kind = kinds[c->what];
    memset(lost, 0, (size_t)t->cut);
    if (c->what == CAUSAL_NOTHING)
        return;
    if (c->dose == 1 && c->what != CAUSAL_RANDOM_OUT) {
        for (int i = 0; i < t->cut; i++)
            lost[i] = t->kind[i] == kind;
        return;
    }
    double mass = c->dose * mass_of(weight, t, CAUSAL_DISTRACTOR);
    if (isnan(mass))
        mass = draw_matched(t, weight, seed, head, order, lost);
    if (row == CAUSAL_MATCHED_EVIDENCE)
        return;
    struct rng r;
    int n = list(t, kind, order), first = 0;
    rng_init(&r, rng_hash(seed, sham ? 0 : (uint64_t)head, (uint64_t)row, 0));
    if (sham && n)
        first = (int)rng_below(&r, (uint64_t)n);
    else
        shuffle(&r, order, n);
    memset(lost, 0, (size_t)t->cut);
    mark_until(weight, order, n, first, mass, lost);
}

/* Sets o to the means over the heads of a group: removed mass, removed entries, and fraction of
 * evidence in the remaining mass. */
static void describe(const struct causal_task *t, const double *weight, size_t heads,
                     const unsigned char *group, const unsigned char *lost,
                     struct causal_outcome *o)
{
    size_t n = (size_t)t->cut;
    int count = 0;
    o->mass = o->entries = o->share = 0;
    for (size_t h = 0; h < heads; h++) {
        if (!group[h])
            continue;
        double removed = 0, evidence = 0;
        for (size_t i = 0; i < n; i++) {
            if (lost[h * n + i])
                removed += weight[h * n + i];
            else if (t->kind[i] == CAUSAL_EVIDENCE)
                evidence += weight[h * n + i];
            o->entries += lost[h * n + i];
        }
        o->mass += removed;
        o->share += removed < 1 ? evidence / (1 - removed) : 0;
        count++;
    }
    double each = count > 0 ? count : NAN;
    o->mass /= each;
    o->entries /= each;
    o->share /= each;
}

/* ---- measurement */

enum { CELLS = (int)CAUSAL_N_GROUPS * (int)CAUSAL_N_ROWS };

/* The cells of a task and their scratch memory. */
struct plan {
    double *weight;      /* [L * KV heads][cut] */
    int *order;          /* [cut] */
    unsigned char *lost; /* [CAUSAL_N_ROWS][L * KV heads][cut] */
    struct effect_cell cell[CELLS];
    struct effect_step *step; /* [CELLS][fed_steps()] */
};

static int make_plan(struct plan *p, struct effect_run *r, const struct effect *e,
                     const struct causal_task *t, const unsigned char *group, uint64_t seed,
                     struct causal_outcome *ret, struct kvf_diag *d)
{
    size_t heads = all_heads(e), n = (size_t)t->cut;
    p->weight = mem_alloc(heads, n * sizeof *p->weight);
    p->order = MEM_NEW(int, n);
    p->lost = mem_alloc(CAUSAL_N_ROWS * heads, n);
    p->step = mem_alloc(CELLS, (size_t)fed_steps(t) * sizeof *p->step);
    int err = p->weight && p->order && p->lost && p->step ? look(r, e, t, p->weight, d)
                                                          : KVF_E_NOMEM;
    if (err)
        return err;
    for (int row = 0; row < CAUSAL_N_ROWS; row++) {
        unsigned char *lost = p->lost + (size_t)row * heads * n;
        for (size_t h = 0; h < heads; h++)
            choose(t, p->weight + h * n, row, seed, (int)h, p->order, lost + h * n);
        for (int g = 0; g < CAUSAL_N_GROUPS; g++) {
            const unsigned char *mark_until = group + (size_t)g * heads;
            p->cell[g * CAUSAL_N_ROWS + row] = (struct effect_cell){.heads = mark_until,
                                                                    .lost = lost};
            describe(t, p->weight, heads, mark_until, lost, &ret[g * CAUSAL_N_ROWS + row]);
        }
    }
    return KVF_OK;
}

static void score(const struct causal_task *t, const struct effect_step *step,
                  struct causal_outcome *o)
{
    o->logp = o->dlogp = 0;
    o->right = true;
    for (int s = 0; s < t->steps; s++)
        if (t->scored[s]) {
            o->logp -= step[s].nll;
            o->dlogp -= step[s].dnll;
            o->right &= step[s].right;
        }
}

int64_t causal_tokens(const struct causal_task *t)
{
    return 2 * ((int64_t)t->query + 1) + effect_tokens(CELLS, fed_steps(t));
}

int causal_measure(struct effect *e, const struct causal_task *t, const unsigned char *group,
                   uint64_t seed, struct causal_outcome *ret, struct effect_memory *ret_memory,
                   struct kvf_diag *d)
{
    struct effect_run *r = NULL;
    struct plan *p = MEM_NEW(struct plan, 1);
    if (!p)
        return KVF_E_NOMEM;
    int err = open_task(e, t, &r, d);
    if (!err)
        err = make_plan(p, r, e, t, group, seed, ret, d);
    if (!err)
        err = effect_measure(r, fed_steps(t), p->cell, CELLS, p->step, ret_memory, d);
    for (int i = 0; !err && i < CELLS; i++)
        score(t, p->step + (i + 1) * fed_steps(t) - t->steps, &ret[i]);
    effect_close(r);
    mem_free(p->weight);
    mem_free(p->order);
    mem_free(p->lost);
    mem_free(p->step);
    mem_free(p);
    return err;
}
