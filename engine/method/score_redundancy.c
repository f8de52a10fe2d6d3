/* score_redundancy.c - importance against redundancy of keys (R-KV, Cai et al.
 * 2025; G-KV, 2025): lambda I - (1 - lambda) R. R = softmax(r), and r_j is the mean over entries i
 * of the cosine of keys i and j. Each i omits its newest neighbour with a cosine over 1/2. Presets
 * with `normalise` divide I and R by their maximum. With a history, I is the pooled global score
 * (history.h).
 *
 * slots=score is the published code of R-KV. There, kept entries are in the order of their scores,
 * followed by later entries. "Newest" then means last in this order, pooling uses neighbours in
 * this order, and an entry without a similar neighbour omits the first entry. */
#include <math.h>
#include <string.h>

#include "engine/method/history.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"
#include "engine/method/window.h"

enum { ROWS = 16 };

/* The search for the newest similar neighbour of each entry, with up to n^2 cosines. It runs over
 * columns in pages of PAGE_SLOTS entries, from the newest. A row ends its search when it has found
 * its neighbour. Indices of entries refer to `order`. */
struct search {
    const struct score_input *in;
    int n, D;
    bool by_score;
    const int32_t *order; /* [n] slots */
    float *page;          /* [D][PAGE_SLOTS] keys of the columns */
    float *cosine;        /* [ROWS][PAGE_SLOTS] */
    float *rows;          /* [ROWS][D] */
    double *sum;          /* [D] sum of all keys */
    double *less;         /* [n] sum of the omitted cosines of a column */
    float *r;             /* [n] by slot */
    int *open;            /* [n] rows without a neighbour yet */
};

/* Returns the slots in the order of the last cut: sinks, candidates by falling score, and entries
 * without a score in time order. room: space for n slots and n candidates. */
static const int32_t *order_by_score(const struct score_input *in, float *room)
{
    const float *past = evidence_history(in->m, in->layer, in->head);
    const struct cache_head *v = &in->view;
    int32_t *order = (int32_t *)(void *)room;
    struct candidate *c = (struct candidate *)(void *)(room + v->n);
    int first, m, scored = 0, n = 0;
    window_candidates(in, &first, &m);
    for (int i = first; i < first + m; i++) {
        int32_t slot = v->order[i];
        if (!isnan(past[slot]))
            c[scored++] = (struct candidate){-past[slot], v->pos[slot], slot, 0};
    }
    select_order(c, scored, TIE_OLDER); /* the best first, of equal ones the newest */
    for (int i = 0; i < first; i++)
        order[n++] = v->order[i];
    for (int i = 0; i < scored; i++)
        order[n++] = c[i].slot;
    for (int i = first; i < v->n; i++)
        if (i >= first + m || isnan(past[v->order[i]]))
            order[n++] = v->order[i];
    return order;
}

static struct search lay_out(const struct score_input *in, float *scratch)
{
    struct search s = {.in = in, .n = in->view.n, .D = method_shape_of(in->m)->head_dim};
    size_t n = (size_t)s.n, D = (size_t)s.D;
    s.page = scratch;
    s.cosine = s.page + D * PAGE_SLOTS;
    s.rows = s.cosine + ROWS * PAGE_SLOTS;
    s.sum = (double *)(void *)(s.rows + D * ROWS);
    s.less = s.sum + D;
    s.r = (float *)(void *)(s.less + n);
    s.open = (int *)(void *)(s.r + n);
    s.by_score = method_params_of(in->m)->slots == SLOTS_SCORE;
    s.order = s.by_score ? order_by_score(in, (float *)(void *)(s.open + n)) : in->view.order;
    return s;
}

static const float *key_at(const struct search *s, int i)
{
    return evidence_key(s->in->m, s->in->layer, s->in->head, s->order[i]);
}

static void gather_page(const struct search *s, int first)
{
    for (int c = 0; c < PAGE_SLOTS; c++) {
        const float *u = first + c < s->n ? key_at(s, first + c) : NULL;
        for (int d = 0; d < s->D; d++)
            s->page[d * PAGE_SLOTS + c] = u ? u[d] : 0;
    }
}

/* Returns the newest column that is similar to the row, or -1. own: the row's own column. */
static int newest_similar(float *cosine, int own)
{
    int any = 0, c = PAGE_SLOTS - 1;
    if (own >= 0 && own < PAGE_SLOTS)
        cosine[own] = 0;
    for (int j = 0; j < PAGE_SLOTS; j++)
        any |= cosine[j] > SCORE_SIMILAR;
    while (any && !(cosine[c] > SCORE_SIMILAR))
        c--;
    return any ? c : -1;
}

/* Searches the page from column `first` on for rows open[0..m). Stores the rows without a neighbour
 * in `to`, which can be `open`. Returns their number. */
static int search_rows(const struct search *s, const int *open, int m, int first, int *to)
{
    const struct kernels *k = method_kernels(s->in->m);
    int left = 0;
    for (int r = 0; r < m; r++)
        memcpy(s->rows + r * s->D, key_at(s, open[r]), (size_t)s->D * sizeof *s->rows);
    const struct kv_keys keys = {.page = s->page, .type = KV_F32};
    k->attn_qk(s->cosine, PAGE_SLOTS, s->rows, (size_t)s->D, m, s->D, &keys, 1);
    for (int r = 0; r < m; r++) {
        float *cosine = s->cosine + r * PAGE_SLOTS;
        int i = open[r], c = newest_similar(cosine, i - first);
        if (c >= 0)
            s->less[first + c] += (double)cosine[c];
        else
            to[left++] = i;
    }
    return left;
}

static void forgive(const struct search *s)
{
    int n_open = s->n;
    for (int i = 0; i < s->n; i++) {
        s->open[i] = i;
        s->less[i] = 0;
    }
    for (int first = (s->n - 1) / PAGE_SLOTS * PAGE_SLOTS; first >= 0; first -= PAGE_SLOTS) {
        int left = 0;
        gather_page(s, first);
        for (int r = 0; r < n_open; r += ROWS)
            left += search_rows(s, s->open + r, n_open - r < ROWS ? n_open - r : ROWS, first,
                                s->open + left);
        n_open = left;
    }
    for (int r = 0; r < n_open && s->by_score; r++) {
        const float *u = key_at(s, s->open[r]), *first = key_at(s, 0);
        for (int d = 0; d < s->D && s->open[r] > 0; d++)
            s->less[0] += (double)u[d] * (double)first[d];
    }
}

/* Computes r. The sum of u_i . u_j over all i is u_j times the sum of all keys, so single pairs are
 * needed only for omitted neighbours. */
static void redundancy(const struct search *s)
{
    forgive(s);
    for (int d = 0; d < s->D; d++)
        s->sum[d] = 0;
    for (int i = 0; i < s->n; i++) {
        const float *u = key_at(s, i);
        for (int d = 0; d < s->D; d++)
            s->sum[d] += (double)u[d];
    }
    for (int j = 0; j < s->n; j++) {
        const float *u = key_at(s, j);
        double all = 0;
        for (int d = 0; d < s->D; d++)
            all += (double)u[d] * (s->sum[d] - (double)u[d]);
        s->r[s->order[j]] = (float)((all - s->less[j]) / s->n);
    }
}

static void softmax(float *r, const int32_t *order, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)r[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)r[order[i]] - max);
    for (int i = 0; i < n; i++)
        r[i] = (float)(exp((double)r[i] - max) / sum);
}

/* Pools the m candidates from `first` on, in the order of `order`. scratch: 2 * n floats. */
static void pool(const struct search *s, int first, int m, float *v, float *scratch)
{
    const struct method_params *p = method_params_of(s->in->m);
    for (int i = 0; i < m; i++)
        scratch[i] = v[s->order[first + i]];
    window_pool(method_kernels(s->in->m), scratch, scratch + s->n, m, p->pool,
                (enum pool_kind)p->pool_kind);
    for (int i = 0; i < m; i++)
        v[s->order[first + i]] = scratch[i];
}

/* Stores the scores of this cut, which define the order of the kept entries. */
static void remember(const struct search *s, int first, int m, const float *score)
{
    float *past = evidence_history(s->in->m, s->in->layer, s->in->head);
    for (int i = 0; i < s->n; i++)
        past[i] = NAN;
    for (int i = first; i < first + m; i++)
        past[s->in->view.order[i]] = score[s->in->view.order[i]];
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    int n = in->view.n, first, m;
    float lambda = (float)p->lambda;
    bool normalise = method_of(in->m)->normalise;
    window_candidates(in, &first, &m);
    window_reduce(in, out, scratch);
    if (normalise)
        history_normalise(in, out);
    history_fold(in, out);
    struct search s = lay_out(in, scratch);
    if (p->pool > 1)
        pool(&s, first, m, out, scratch);
    redundancy(&s);
    softmax(s.r, in->view.order, n);
    float max = normalise ? history_largest(s.r, in->view.order, first, m) : 1;
    for (int i = 0; i < n; i++)
        out[i] = formula_against_redundancy(lambda, out[i], s.r[i], max);
    if (s.by_score)
        remember(&s, first, m, out);
}

const struct score score_redundancy = {
    .name = "redundancy",
    .cost = "g w n + n^2 D",
    .summary = "attention from the last w queries, minus redundancy of the key",
    .evidence = EVIDENCE_WINDOW | EVIDENCE_KEYS | EVIDENCE_HISTORY,
    .uses = USES_WINDOW | USES_POOL | USES_GROUP | USES_ACROSS | USES_HISTORY | USES_LAMBDA
            | USES_SLOTS,
    .scratch_rows = KEYS_AS_PAGE,
    .eval = eval,
};
