/* lows.c - keeps candidates for the lowest scores from step to step (lows.h). */
#include "engine/method/lows.h"

#include <math.h>
#include <string.h>

bool lows_kept(const struct method *m, const struct method_params *p)
{
    return m->score && m->score->one && m->scope == SCOPE_HEAD && !m->trigger->rounds
           && p->every <= LOWS_CUTS;
}

/* Returns the listed form of an entry: its score now, or at both ends of the list's time. */
static struct low line_of(const struct score_input *in, int slot, int32_t until)
{
    const struct score *c = in->m->method->score;
    struct score_input other = *in;
    float then = c->one(in, slot), end = then;
    if (c->falls) {
        other.t = until;
        end = c->one(&other, slot);
        other.t = until - LOWS_STEPS;
        then = c->one(&other, slot);
    }
    if (!isfinite(then) || !isfinite(end))
        return (struct low){-INFINITY, -INFINITY, slot};
    return (struct low){then, end, slot};
}

static float least(const struct low *e)
{
    return e->then < e->end ? e->then : e->end;
}

/* Returns a lower bound of the entry's score at query t.  The margin covers the rounding of the
 * score and of the ends of the line. */
static float bound(const struct lows *x, const struct low *e, int32_t t)
{
    if (e->then == e->end)
        return e->then;
    float most = fmaxf(fabsf(e->then), fabsf(e->end));
    float part = (float)(t - (x->until - LOWS_STEPS)) / LOWS_STEPS;
    return e->then + part * (e->end - e->then) - 1e-6f * most;
}

/* Adds an entry.  If the list is full, drops the entry with the highest bound and lowers the floor
 * to that bound. */
static void add(struct lows *x, struct low e)
{
    int most = 0;
    if (x->n < LOWS) {
        x->entry[x->n++] = e;
        return;
    }
    for (int i = 1; i < x->n; i++)
        if (least(&x->entry[i]) > least(&x->entry[most]))
            most = i;
    if (least(&e) < least(&x->entry[most])) {
        struct low last = x->entry[most];
        x->entry[most] = e;
        e = last;
    }
    x->floor = least(&e) < x->floor ? least(&e) : x->floor;
}

static int32_t seen(const struct score_input *in)
{
    return in->recent_from < in->t ? in->recent_from : in->t;
}

/* Scores all entries and lists the lowest. */
static void make(const struct round *r, const struct score_input *in, struct lows *x, float *score,
                 float *scratch)
{
    struct method_state *s = r->s;
    int n = in->view.n, at = in->layer * s->shape.n_kv_heads + in->head;
    const struct candidate *list = s->candidate + (size_t)at * (size_t)s->cap;
    float *least = scratch;
    x->until = in->t + LOWS_STEPS;
    s->method->score->eval(in, score, scratch + n);
    memcpy(least, score, (size_t)n * sizeof *least);
    if (s->method->score->falls) {
        struct score_input end = *in;
        end.t = x->until;
        s->method->score->eval(&end, least, scratch + n);
        for (int i = 0; i < n; i++)
            least[i] = least[i] < score[i] ? least[i] : score[i];
    }
    shortlist_fill(r, at, LOWS + 1, least);
    x->n = s->n_listed[at] < LOWS ? s->n_listed[at] : LOWS;
    x->floor = s->n_listed[at] > LOWS ? list[LOWS].score : INFINITY;
    for (int i = 0; i < x->n; i++)
        x->entry[i] = line_of(in, list[i].slot, x->until);
    if (!s->method->score->falls)
        x->until = INT32_MAX;
    x->seen = seen(in);
}

/* Adds entries that became candidates since the last decision.  end: end of the candidates in order
 * of time. */
static void take_new(const struct score_input *in, struct lows *x, int end)
{
    const int32_t *order = in->view.order, *pos = in->view.pos;
    int sinks = in->m->params.sinks;
    int32_t from = x->seen > sinks ? x->seen : sinks;
    for (int i = end - 1; i >= 0 && pos[order[i]] >= from; i--)
        add(x, line_of(in, order[i], x->until));
    x->seen = seen(in);
}

/* Scores the entries with a low enough bound and writes the k worst to `list`, in order.  Returns
 * their number, or -1 if a score is NaN. */
static int look(const struct score_input *in, struct lows *x, int k, int at, struct candidate *list)
{
    const struct score *c = in->m->method->score;
    float low[LOWS];
    int m = 0;
    for (int i = 0; i < x->n; i++)
        low[i] = bound(x, &x->entry[i], in->t);
    for (int turn = 0; turn < x->n; turn++) {
        int i = 0;
        for (int j = 1; j < x->n; j++)
            i = low[j] < low[i] ? j : i;
        if (low[i] >= x->floor || (m == k && low[i] > list[k - 1].score))
            break;
        struct low *e = &x->entry[i];
        float score = c->one(in, e->slot);
        if (isnan(score))
            return -1;
        if (!c->falls)
            e->then = e->end = score;
        low[i] = INFINITY;
        if (score < x->floor)
            m = select_insert(list, m, k,
                              &(struct candidate){score, in->view.pos[e->slot], e->slot, at},
                              tie_of(in->m));
    }
    return m;
}

bool lows_fill(const struct round *r, const struct score_input *in, int k, float *score,
               float *scratch)
{
    struct method_state *s = r->s;
    int at = in->layer * s->shape.n_kv_heads + in->head;
    bool shared = s->method->allocation->pool != POOL_HEAD;
    struct candidate *list = s->candidate + (size_t)at * (size_t)s->cap;
    struct lows *x = &s->lows[at];
    if ((!shared && k > LOWS_CUTS + 1) || in->t < x->from)
        return false;
    k = k < LOWS_CUTS + 1 ? k : LOWS_CUTS + 1; /* heads that share a budget find more as needed */
    int first, end, n = shortlist_range(r, at, &first, &end), enough = shared && k > 3 ? 3 : k;
    bool known = in->t <= x->until && seen(in) >= x->seen;
    for (int turn = known ? 0 : 1; turn < 2; turn++) {
        if (turn == 1)
            make(r, in, x, score, scratch);
        else
            take_new(in, x, end);
        s->n_listed[at] = look(in, x, k, at, list);
        s->n_candidates[at] = n;
        if (s->n_listed[at] >= (enough < n ? enough : n))
            return true;
    }
    *x = (struct lows){.from = in->t + LOWS_STEPS, .until = -1}; /* too many are equal */
    return false;
}

void lows_drop(struct method_state *s, int head, int slot)
{
    struct lows *x = s->lows ? &s->lows[head] : NULL;
    for (int i = 0; x && i < x->n; i++)
        if (x->entry[i].slot == slot) {
            x->entry[i] = x->entry[--x->n];
            return;
        }
}

void lows_move(struct method_state *s, int head, int from, int to)
{
    struct lows *x = s->lows ? &s->lows[head] : NULL;
    for (int i = 0; x && i < x->n; i++)
        if (x->entry[i].slot == from)
            x->entry[i].slot = to;
}

static void forget(struct lows *x)
{
    *x = (struct lows){.until = -1};
}

void lows_keep(struct method_state *s, int head, const unsigned char *keep, int n)
{
    struct lows *x = s->lows ? &s->lows[head] : NULL;
    int32_t gone[SHORTLIST];
    int k = x && x->n > 0 ? cache_list_gone(keep, n, SHORTLIST, gone) : 0, m = 0;
    if (k < 0)
        forget(x);
    for (int i = 0; x && i < x->n; i++) {
        int32_t slot = x->entry[i].slot, before = 0;
        if (!keep[slot])
            continue;
        while (before < k && gone[before] < slot)
            before++;
        x->entry[m] = x->entry[i];
        x->entry[m++].slot = slot - before;
    }
    if (x)
        x->n = m;
}

void lows_forget(struct method_state *s)
{
    int n = s->shape.n_layers * s->shape.n_kv_heads;
    for (int at = 0; s->lows && at < n; at++)
        forget(&s->lows[at]);
}
