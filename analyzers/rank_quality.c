/* rank_quality.c - simulates evictions by retention and rates the ranking (rank_quality.h). */
#include <math.h>
#include <string.h>

#include "analyzers/rank_quality.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SEED = 1 }; /* of the random order */

struct bed {
    int32_t *pos;                /* [budget] cached entries, rising */
    int32_t *key[N_RANK_SCORES]; /* [budget] in the order of each score */
    int32_t *use;                /* [budget] */
};

static void free_bed(struct bed *b)
{
    mem_free_all(b->pos, b->use);
    for (int k = 0; k < N_RANK_SCORES; k++)
        mem_free(b->key[k]);
}

static int make_bed(struct bed *b, size_t n)
{
    bool ok = (b->pos = MEM_NEW(int32_t, n)) && (b->use = MEM_NEW(int32_t, n));
    for (int k = 0; ok && k < N_RANK_SCORES; k++)
        ok = (b->key[k] = MEM_NEW(int32_t, n)) != NULL;
    return ok ? KVF_OK : KVF_E_NOMEM;
}

/* An integer in the order of floats: the pairs below then need no floats. */
static int32_t ordered(float x)
{
    int32_t bits;
    x += 0.0f; /* -0 is 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ INT32_MAX : bits;
}

static void fill_keys(struct bed *b, const struct rank_head *h, int n, int64_t t)
{
    uint64_t place = (uint64_t)h->layer << 32 | (uint32_t)h->index;
    for (int k = 0; k < n; k++) {
        int64_t i = b->pos[k], left = i + h->last[i] - t + 1;
        double e = (double)(t - 1 - i);
        b->key[RANK_BETA][k] = ordered(e > 0 ? (float)(e * (double)h->log_beta[i]) : 0.0f);
        b->key[RANK_AGE][k] = (int32_t)i;
        b->key[RANK_RANDOM][k] = (int32_t)(rng_hash(SEED, place, (uint64_t)t, (uint64_t)i) >> 33);
        b->use[k] = h->last[i] >= 0 && left > 0 ? (int32_t)left : 0;
    }
}

/* Kendall's tau-b = (concordant - discordant) / sqrt of (pairs untied in a) (in b); the
 * AUROC from the same signs over pairs of which one has u > 0. */
static void add_pairs(struct rank_mean *m, const int32_t *a, const int32_t *u, int n)
{
    int64_t both = 0, split = 0, tied_a = 0, tied_u = 0, pairs = (int64_t)n * (n - 1) / 2;
    int64_t positive = 0;
    for (int i = 0; i < n; i++) {
        int32_t s_both = 0, s_split = 0, s_a = 0, s_u = 0, a_i = a[i], u_i = u[i];
        for (int j = 0; j < i; j++) {
            int32_t da = (a_i > a[j]) - (a_i < a[j]), du = (u_i > u[j]) - (u_i < u[j]);
            s_both += da * du;
            s_split += da * ((u_i > 0) - (u[j] > 0));
            s_a += da == 0;
            s_u += du == 0;
        }
        both += s_both;
        split += s_split;
        tied_a += s_a;
        tied_u += s_u;
        positive += u_i > 0;
    }
    if (positive > 0 && positive < n) {
        sum_add(&m->auroc, 0.5 + 0.5 * (double)split / (double)(positive * (n - positive)));
        m->n_auroc++;
    }
    if (tied_a < pairs && tied_u < pairs) {
        sum_add(&m->tau, (double)both / sqrt((double)(pairs - tied_a) * (double)(pairs - tied_u)));
        m->n_tau++;
    }
}

static void judge(const struct bed *b, int n, struct rank_quality *q)
{
    for (int k = 0; k < N_RANK_SCORES; k++)
        add_pairs(&q->of[k], b->key[k], b->use, n);
    q->evictions++;
}

static void join(struct rank_quality *all, const struct rank_quality *one)
{
    all->evictions += one->evictions;
    for (int k = 0; k < N_RANK_SCORES; k++) {
        sum_add(&all->of[k].auroc, sum_get(&one->of[k].auroc));
        sum_add(&all->of[k].tau, sum_get(&one->of[k].tau));
        all->of[k].n_auroc += one->of[k].n_auroc;
        all->of[k].n_tau += one->of[k].n_tau;
    }
}

int rank_quality_add(const struct rank_head *h, int budget, int64_t step0, int64_t step1,
                     struct rank_quality *head, struct rank_quality *all)
{
    struct bed b = {0};
    struct rank_quality mine = {0};
    int err = make_bed(&b, (size_t)budget), n = 0;
    for (int64_t t = 0; !err && t < h->T; t++) {
        if (n == budget) {
            int worst = 0;
            fill_keys(&b, h, n, t);
            if (t >= step0 && t < step1)
                judge(&b, n, &mine);
            for (int k = 1; k < n; k++) /* rising positions: the first of equal ones is evicted */
                if (b.key[RANK_BETA][k] < b.key[RANK_BETA][worst])
                    worst = k;
            n--;
            memmove(b.pos + worst, b.pos + worst + 1, (size_t)(n - worst) * sizeof *b.pos);
        }
        b.pos[n++] = (int32_t)t;
    }
    free_bed(&b);
    if (err)
        return err;
    join(head, &mine);
    join(all, &mine);
    return KVF_OK;
}
