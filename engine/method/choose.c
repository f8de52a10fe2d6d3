/* choose.c - which entries of a KV head, or of a layer whose heads share their
 * places, are cut.  The rule is the same for all methods: least score first; among
 * equal scores the smaller position first, so the larger position is kept. */
#include <math.h>
#include <stdlib.h>

#include "engine/method/state.h"

static int compare(const struct candidate *x, const struct candidate *y)
{
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    if (x->pos != y->pos)
        return x->pos < y->pos ? -1 : 1;
    return (y->head > x->head) - (y->head < x->head); /* the lower head is kept */
}

static int worse_first(const void *a, const void *b)
{
    return compare(a, b);
}

static size_t kv_index(const struct method_state *s, int layer, int head)
{
    return (size_t)layer * (size_t)s->shape.n_kv_heads + (size_t)head;
}

static int32_t recent_from(const struct round *r)
{
    return r->t + r->incoming - r->s->params.recent;
}

/* Scores a head; its unprotected entries to c, returns how many. */
static int score_head(const struct round *r, int layer, int head, struct candidate *c,
                      float *scratch)
{
    struct method_state *s = r->s;
    struct cache_head view = cache_view(r->cache, layer, head);
    float *score = s->value + kv_index(s, layer, head) * (size_t)s->cap;
    struct score_input in = {s, r->cache, layer, head, view, recent_from(r)};
    int m = 0;
    s->method->score->eval(&in, score, scratch);
    for (int i = 0; i < view.n; i++) {
        if (isnan(score[i]))
            score[i] = -INFINITY;
        if (view.pos[i] >= s->params.sinks && view.pos[i] < in.recent_from)
            c[m++] = (struct candidate){score[i], view.pos[i], i, head};
    }
    return m;
}

/* The single worst of n candidates to the front; the next worst behind it. */
static void two_worst(struct candidate *c, int n)
{
    for (int k = 0; k < 2 && k < n; k++) {
        int best = k;
        for (int i = k + 1; i < n; i++)
            if (compare(&c[i], &c[best]) < 0)
                best = i;
        struct candidate tmp = c[k];
        c[k] = c[best];
        c[best] = tmp;
    }
}

/* The first n_cut of m candidates, worst first, are cut. */
static void list_victims(struct method_state *s, int layer, int head, const struct candidate *c,
                         int m, int n_cut)
{
    size_t at = kv_index(s, layer, head);
    int32_t *victim = s->victim + at * (size_t)s->cap;
    int listed = n_cut < m ? n_cut + 1 : n_cut; /* one more: the worst that stays */
    for (int i = 0; i < listed; i++)
        victim[i] = c[i].slot;
    if (listed == n_cut && n_cut < s->cap)
        victim[n_cut] = -1;
    s->n_cut[at] = n_cut;
}

static void choose_head(const struct round *r, int layer, int head, float *scratch)
{
    struct method_state *s = r->s;
    int n = cache_view(r->cache, layer, head).n;
    int target = s->method->trigger->target(s, s->share[layer], n, r->incoming);
    int n_cut = n - (target < n ? target : n);
    if (n_cut == 0)
        return;
    struct candidate *c = (struct candidate *)(void *)scratch;
    int m = score_head(r, layer, head, c, (float *)(void *)(c + s->cap));
    if (n_cut > m)
        n_cut = m;
    if (n_cut == 1)
        two_worst(c, m);
    else
        qsort(c, (size_t)m, sizeof *c, worse_first);
    list_victims(s, layer, head, c, m, n_cut);
}

struct pooled {
    int *n, *kept;         /* [H] candidates of each head, and how many stay */
    struct candidate *c;   /* [H][cap], worst first */
    struct candidate *all; /* [H * cap] */
};

/* Each head keeps its best min(F, n); the places left go to the best of the rest. */
static void deal(const struct method_state *s, struct pooled *p, int64_t places)
{
    int H = s->shape.n_kv_heads;
    int64_t even = (int64_t)(s->params.floor * (double)places / H), m = 0;
    for (int h = 0; h < H; h++) {
        p->kept[h] = p->n[h] < even ? p->n[h] : (int)even;
        places -= p->kept[h];
        for (int i = 0; i < p->n[h] - p->kept[h]; i++)
            p->all[m++] = p->c[(size_t)h * (size_t)s->cap + (size_t)i];
    }
    qsort(p->all, (size_t)m, sizeof *p->all, worse_first);
    for (int64_t i = m - 1; i >= 0 && places > 0; i--, places--)
        p->kept[p->all[i].head]++;
}

static void choose_pooled(const struct round *r, int layer, float *scratch)
{
    struct method_state *s = r->s;
    int H = s->shape.n_kv_heads;
    int64_t total = 0, candidates = 0;
    struct pooled p = {.c = (struct candidate *)(void *)scratch};
    p.all = p.c + (size_t)H * (size_t)s->cap;
    p.n = (int *)(void *)(p.all + (size_t)H * (size_t)s->cap);
    p.kept = p.n + H;
    float *rest = (float *)(void *)(p.kept + H);
    for (int h = 0; h < H; h++)
        total += cache_view(r->cache, layer, h).n;
    int mean = (int)((total + H - 1) / H);
    int target = s->method->trigger->target(s, s->share[layer], mean, r->incoming);
    if (target >= mean)
        return;
    for (int h = 0; h < H; h++) {
        struct candidate *c = p.c + (size_t)h * (size_t)s->cap;
        p.n[h] = score_head(r, layer, h, c, rest);
        qsort(c, (size_t)p.n[h], sizeof *c, worse_first);
        candidates += p.n[h];
    }
    int64_t places = (int64_t)target * H - (total - candidates);
    deal(s, &p, places > 0 ? places : 0);
    for (int h = 0; h < H; h++)
        list_victims(s, layer, h, p.c + (size_t)h * (size_t)s->cap, p.n[h], p.n[h] - p.kept[h]);
}

int choose_units(const struct method_state *s)
{
    bool layer = s->method->scope == SCOPE_LAYER || s->method->allocation->pooled;
    return s->shape.n_layers * (layer ? 1 : s->shape.n_kv_heads);
}

void choose_unit(void *round, int unit, int thread)
{
    const struct round *r = round;
    struct method_state *s = r->s;
    float *scratch = s->scratch + (size_t)thread * s->scratch_len;
    int H = s->shape.n_kv_heads;
    if (s->method->allocation->pooled)
        choose_pooled(r, unit, scratch);
    else if (s->method->scope == SCOPE_LAYER)
        choose_head(r, unit, 0, scratch);
    else
        choose_head(r, unit / H, unit % H, scratch);
}

size_t choose_scratch(const struct method_state *s)
{
    size_t cap = (size_t)s->cap, words = sizeof(struct candidate) / sizeof(float);
    size_t heads = s->method->allocation->pooled ? 2 * (size_t)s->shape.n_kv_heads : 1;
    int more = s->method->score->scratch_rows;
    size_t rows = 4 + (size_t)(more > 0 ? more : 0);
    size_t len = words * heads * cap + heads + rows * cap + 4 * (size_t)s->shape.head_dim;
    if (more == KEYS_AS_PAGE)
        len += PAGE_SLOTS * 2 * ((size_t)s->shape.head_dim + PAGE_SLOTS);
    return (len + 15) / 16 * 16;
}

bool choose_due(const struct round *r)
{
    const struct method_shape *shape = &r->s->shape;
    for (int l = 0; l < shape->n_layers; l++)
        for (int h = 0; h < shape->n_kv_heads; h++)
            if (cache_view(r->cache, l, h).n > r->s->params.budget - r->incoming)
                return true;
    return false;
}
