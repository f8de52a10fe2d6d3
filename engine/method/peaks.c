/* peaks.c - updates bounds of window scores from step to step (peaks.h). */
#include "engine/method/peaks.h"

#include <math.h>
#include <string.h>

#include "engine/method/parts.h"
#include "engine/method/window.h"

/* The list of one head, and the rows of its window. */
struct view {
    const struct score_input *in;
    struct peaks *x;
    double *sum;
    float *scale, *column;
    int g0, n_group, ring, newest, taken,
        rows; /* newest: index of the newest row in the ring; rows: rows in the window */
};

static struct view view_of(const struct score_input *in)
{
    const struct method_state *s = in->m;
    const struct peaks_state *p = s->peaks;
    size_t at = (size_t)(in->layer * s->shape.n_kv_heads + in->head), n = (size_t)p->rows;
    struct view v = {.in = in,
                     .x = &p->head[at],
                     .sum = p->sum + at * n * 2,
                     .scale = p->scale + at * n * 2,
                     .column = p->column + at * n * PEAKS,
                     .ring = s->evidence.ring};
    method_group(s, in->head, &v.g0, &v.n_group);
    v.taken = evidence_taken(&s->evidence, in->layer, v.g0);
    v.newest = (v.taken - 1 + v.ring) % v.ring;
    v.rows = evidence_rows(s, in->layer, v.g0);
    return v;
}

/* Returns the index of a query head's row with an age in rows; 0 is the newest. */
static size_t place(const struct view *v, int g, int age)
{
    int row = v->newest - age;
    return (size_t)((g - v->g0) * v->ring + (row < 0 ? row + v->ring : row));
}

static float weight(const struct window_pair *p, int slot, int32_t pos)
{
    return pos <= p->t_in ? p->in[slot] : 0;
}

static void set_sum(const struct view *v, size_t at, const struct window_pair *p)
{
    v->sum[2 * at] = v->sum[2 * at + 1] = window_candidates_sum(v->in, p);
}

/* Stores a candidate at place c of the list; -1: it is not listed. Adds its weights to the sums of
 * rows of age `from` and older. */
static void enter(const struct view *v, int c, int slot, int from)
{
    int32_t pos = v->in->view.pos[slot];
    if (c >= 0) {
        v->x->slot[c] = slot;
        v->x->pos[c] = pos;
    }
    const struct evidence *e = &v->in->m->evidence;
    size_t query = (size_t)(v->in->layer * e->shape.n_heads + v->g0) * (size_t)v->ring;
    const float *weights = e->rows + query * (size_t)e->cap + slot;
    evidence_close_rows(e, (size_t)(v->in->layer * e->shape.n_kv_heads + v->in->head));
    for (int g = v->g0; g < v->g0 + v->n_group; g++)
        for (int age = 0; age < v->rows; age++) {
            size_t at = place(v, g, age);
            float a = pos <= e->row_t[query + at] ? weights[at * (size_t)e->cap] : 0;
            if (c >= 0)
                v->column[at * PEAKS + (size_t)c] = a;
            if (age < from)
                continue;
            v->sum[2 * at] += (double)a;
            v->sum[2 * at + 1] = fmax(v->sum[2 * at + 1], v->sum[2 * at]);
        }
}

static void leave(const struct view *v, int c)
{
    for (int i = 0; i < v->n_group * v->ring; i++)
        v->sum[2 * i] -= (double)v->column[(size_t)i * PEAKS + (size_t)c];
    v->x->slot[c] = -1;
}

static int free_place(const struct peaks *x)
{
    int c = 0;
    while (c < PEAKS && x->slot[c] >= 0)
        c++;
    return c < PEAKS ? c : -1;
}

/* Stores the weights of the listed candidates in rows of ages 0 .. n-1. new: also computes the sums
 * of these rows. */
static void take_rows(const struct view *v, int n, bool new)
{
    const struct peaks *x = v->x;
    for (int g = v->g0; g < v->g0 + v->n_group; g++)
        for (int age = 0; age < n; age++) {
            const struct window_pair p = window_pair(v->in, g, age, -1);
            size_t at = place(v, g, age);
            float *out = v->column + at * PEAKS;
            if (new)
                set_sum(v, at, &p);
            for (int c = 0; c < PEAKS; c++)
                out[c] = x->slot[c] >= 0 ? weight(&p, x->slot[c], x->pos[c]) : 0;
        }
}

/* Adds the new candidates and rows. end: number of entries in time order before the end of the
 * candidates. Returns false if the list has no place for some candidate. */
static bool bring_up(const struct view *v, int end)
{
    const struct score_input *in = v->in;
    const int32_t *order = in->view.order, *pos = in->view.pos;
    int sinks = method_params_of(in->m)->sinks, n_new = v->taken - v->x->known;
    bool all = true;
    for (int i = end - 1; i >= 0 && pos[order[i]] >= v->x->seen && pos[order[i]] >= sinks; i--) {
        int c = free_place(v->x);
        all &= c >= 0;
        enter(v, c, order[i], n_new);
    }
    take_rows(v, n_new, true);
    return all;
}

/* Returns the scale of a row. It follows from the running sum, unless the sum's error bound permits
 * two values. Then the sum is computed again. */
static float scale_of(const struct view *v, int g, int age, size_t at)
{
    double err = 1e-12 * v->sum[2 * at + 1];
    double low = v->sum[2 * at] - err, high = v->sum[2 * at] + err;
    if (low > 0 && (float)(1.0 / low) == (float)(1.0 / high))
        return (float)(1.0 / low);
    const struct window_pair p = window_pair(v->in, g, age, -1);
    set_sum(v, at, &p);
    return v->sum[2 * at] > 0 ? (float)(1.0 / v->sum[2 * at]) : 0;
}

static void set_scales(const struct view *v)
{
    for (int g = v->g0; g < v->g0 + v->n_group; g++)
        for (int age = 0; age < v->rows; age++) {
            size_t at = place(v, g, age);
            v->scale[2 * at] = scale_of(v, g, age, at);
        }
}

/* Returns the rows of ages first .. end-1. */
static struct window_shares shares_of(const struct view *v, int first, int end)
{
    return (struct window_shares){.scale = v->scale,
                                  .n_heads = v->n_group,
                                  .ring = v->ring,
                                  .newest = v->newest,
                                  .first = first,
                                  .end = end,
                                  .max = method_params_of(v->in->m)->group == GROUP_MAX};
}

/* Computes the scores of the listed candidates, with the bits of window_reduce. */
static void score_listed(const struct view *v, float *out)
{
    const struct peaks_state *p = v->in->m->peaks;
    float last = window_last_scale(v->in, v->g0, v->n_group);
    struct window_shares x = shares_of(v, 0, v->rows);
    x.weight = v->column;
    x.ld = PEAKS;
    x.ld_head = (size_t)v->ring * PEAKS;
    x.next = window_next(v->in) * (size_t)p->rows * PEAKS;
    memset(out, 0, PEAKS * sizeof *out);
    method_kernels(v->in->m)->most_shares(out, &x, NULL, PEAKS);
    for (int c = 0; c < PEAKS; c++)
        out[c] *= last;
}

/* Returns the number of current rows that are still in the window after `steps` queries. */
static int lasting(const struct view *v, int steps)
{
    int most = method_params_of(v->in->m)->window - steps, rows = v->rows;
    return rows < most ? rows : most;
}

/* Returns a lower bound of the scores of unlisted candidates. */
static float floor_now(const struct view *v)
{
    int since = v->taken - v->x->made, stride = (since + PEAKS_STRIDE - 1) / PEAKS_STRIDE;
    int window = method_params_of(v->in->m)->window, end = since + window - stride * PEAKS_STRIDE;
    float least = INFINITY;
    for (int g = v->g0; g < v->g0 + v->n_group; g++)
        for (int age = since; age < end && age < v->rows; age++) {
            const float *s = v->scale + 2 * place(v, g, age);
            if (s[1] > 0 && s[0] < least * s[1])
                least = s[0] / s[1];
        }
    least = least < INFINITY ? least : 1;
    return v->x->floor[stride] * least * (1 - 1e-5f) - 1e-37f; /* bound of the rounding errors */
}

/* Raises most[slot] to the score by rows of ages first .. end-1, without the last scale. */
static void add_rows(const struct view *v, int first, int end, float *most)
{
    const struct evidence *e = &v->in->m->evidence;
    struct window_shares x = shares_of(v, first, end);
    size_t row0 = (size_t)(v->in->layer * e->shape.n_heads + v->g0) * (size_t)v->ring;
    evidence_close_rows(e, (size_t)(v->in->layer * e->shape.n_kv_heads + v->in->head));
    x.weight = e->rows + row0 * (size_t)e->cap;
    x.ld = (size_t)e->cap;
    x.ld_head = (size_t)v->ring * x.ld;
    x.t = e->row_t + row0;
    for (int g = v->g0; g < v->g0 + v->n_group; g++)
        for (int age = first; age < end; age++) {
            float *s = v->scale + 2 * place(v, g, age);
            s[1] = s[0];
        }
    method_kernels(v->in->m)->most_shares(most, &x, v->in->view.pos, v->in->view.n);
}

/* Returns the minimum score of the unlisted candidates. */
static float least_of(const struct view *v, float *score, int first, int end)
{
    float least = INFINITY;
    for (int c = 0; c < PEAKS; c++)
        if (v->x->slot[c] >= 0)
            score[v->x->slot[c]] = INFINITY;
    for (int i = first; i < end; i++) {
        float x = score[v->in->view.order[i]];
        least = x < least ? x : least;
    }
    return least;
}

/* Rebuilds the list from known sums, with the candidates that can have the lowest scores after
 * PEAKS_STEPS steps. scratch: 2 + PEAKS_STRIDES rows by slot. Returns the scores. */
static float *make(const struct round *r, const struct view *v, float *scratch)
{
    const struct score_input *in = v->in;
    size_t n = (size_t)in->view.n;
    int at = in->layer * in->m->shape.n_kv_heads + in->head, first, end, m = 0;
    const struct candidate *list = r->s->candidate + (size_t)at * (size_t)r->s->cap;
    float last = window_last_scale(in, v->g0, v->n_group);
    float *most = scratch, *by_stride = most + n;
    memset(most, 0, n * sizeof *most);
    for (int i = PEAKS_STRIDES, age = 0; i >= 0; i--) {
        add_rows(v, age, lasting(v, i * PEAKS_STRIDE), most);
        age = lasting(v, i * PEAKS_STRIDE);
        for (size_t j = 0; j < n; j++)
            by_stride[(size_t)i * n + j] = most[j] * last;
    }
    shortlist_fill(r, at, PEAKS - PEAKS_FREE + 1, by_stride + PEAKS_STRIDES * n);
    v->x->made = v->taken;
    for (int c = 0; c < PEAKS; c++)
        v->x->slot[c] = -1;
    for (; m < r->s->n_listed[at] && m < PEAKS - PEAKS_FREE; m++) {
        v->x->slot[m] = list[m].slot;
        v->x->pos[m] = list[m].pos;
    }
    take_rows(v, v->rows, false);
    shortlist_range(r, at, &first, &end);
    for (size_t i = 0; i <= PEAKS_STRIDES; i++)
        v->x->floor[i] = least_of(v, by_stride + i * n, first, end);
    for (size_t j = 0; j < n; j++)
        most[j] *= last;
    return most;
}

/* Lists the k worst candidates with scores below the floor, in order. Returns their number. */
static int look(const struct view *v, int k, int at, struct candidate *list)
{
    float score[PEAKS], floor = floor_now(v);
    int m = 0;
    score_listed(v, score);
    for (int c = 0; c < PEAKS; c++)
        if (v->x->slot[c] >= 0 && score[c] < floor)
            m = select_insert(list, m, k,
                              &(struct candidate){score[c], v->x->pos[c], v->x->slot[c], at},
                              tie_of(v->in->m));
    return m;
}

/* Prefetches the weights of a slot in all rows, which are in separate cache lines. */
static void ask_for_slot(const struct evidence *e, size_t head, int slot)
{
    size_t per = (size_t)(e->shape.n_heads / e->shape.n_kv_heads), n = per * (size_t)e->ring;
    const float *weights = e->rows + head * n * (size_t)e->cap + slot;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(weights + i * (size_t)e->cap, 0, 2);
}

void peaks_ask(const struct method_state *s, int head, int slot)
{
    const struct peaks_state *p = s->peaks;
    size_t n = (size_t)p->rows, at = (size_t)head;
    evidence_ask_bytes(&p->head[at], sizeof *p->head);
    evidence_ask_bytes(p->sum + at * n * 2, n * 2 * sizeof *p->sum);
    evidence_ask_bytes(p->scale + at * n * 2, n * 2 * sizeof *p->scale);
    ask_for_slot(&s->evidence, at, slot);
}

bool peaks_fill(const struct round *r, const struct score_input *in, int k, float *scratch)
{
    struct method_state *s = r->s;
    int at = in->layer * s->shape.n_kv_heads + in->head, first, end;
    struct candidate *list = s->candidate + (size_t)at * (size_t)s->cap;
    const struct view v = view_of(in);
    struct peaks *x = v.x;
    if (k > PEAKS_CUTS + 1)
        return false;
    int n = shortlist_range(r, at, &first, &end),
        last = in->t < in->recent_from ? in->t : in->recent_from;
    bool known = x->known >= 0 && v.taken - x->known <= PEAKS_STEPS && last >= x->seen;
    bool listed = known && bring_up(&v, end) && v.taken - x->made <= PEAKS_STEPS;
    for (int g = v.g0; !known && g < v.g0 + v.n_group; g++)
        for (int age = 0; age < v.rows; age++) {
            const struct window_pair p = window_pair(in, g, age, -1);
            set_sum(&v, place(&v, g, age), &p);
        }
    set_scales(&v);
    x->known = v.taken;
    x->seen = last;
    s->n_listed[at] = listed ? look(&v, k, at, list) : 0;
    s->n_candidates[at] = n;
    if (s->n_listed[at] < (k < n ? k : n))
        shortlist_fill(r, at, k, make(r, &v, scratch));
    return true;
}

static void forget(struct peaks *x)
{
    x->known = -1;
}

/* Removes an evicted entry. If it is not listed, it could be an unlisted candidate, so the list is
 * discarded. */
static void leave_slot(struct method_state *s, int head, int slot)
{
    struct score_input in = {
        .m = s, .layer = head / s->shape.n_kv_heads, .head = head % s->shape.n_kv_heads};
    const struct view v = view_of(&in);
    int c = 0;
    while (c < PEAKS && v.x->slot[c] != slot)
        c++;
    if (c < PEAKS)
        leave(&v, c);
    else
        forget(v.x);
}

void peaks_drop(struct method_state *s, int head, int slot)
{
    if (s->peaks && s->peaks->head[head].known >= 0)
        leave_slot(s, head, slot);
}

void peaks_move(struct method_state *s, int head, int from, int to)
{
    for (int c = 0; s->peaks && c < PEAKS; c++)
        if (s->peaks->head[head].slot[c] == from)
            s->peaks->head[head].slot[c] = to;
}

void peaks_keep(struct method_state *s, int head, const unsigned char *keep, int n)
{
    struct peaks *x = s->peaks ? &s->peaks->head[head] : NULL;
    int32_t gone[PEAKS_CUTS];
    int k = x && x->known >= 0 ? cache_list_gone(keep, n, PEAKS_CUTS, gone) : 0;
    if (k < 0)
        forget(x);
    for (int i = k - 1; i >= 0 && x->known >= 0;
         i--) { /* from the last slot, so that earlier slots stay valid */
        leave_slot(s, head, gone[i]);
        for (int c = 0; c < PEAKS; c++)
            x->slot[c] -= x->slot[c] > gone[i];
    }
}

void peaks_forget(struct method_state *s)
{
    int n = s->shape.n_layers * s->shape.n_kv_heads;
    for (int at = 0; s->peaks && at < n; at++)
        forget(&s->peaks->head[at]);
}
