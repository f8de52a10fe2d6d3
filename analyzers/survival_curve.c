/* survival_curve.c - survival curves with undecided tokens (survival_curve.h). */
#include <string.h>

#include "analyzers/survival_curve.h"

struct curve_scratch {
    void *raw;           /* [T] doubles */
    int32_t *age, *open; /* [T] of one query head of a member */
    struct {
        int32_t *age, *open;
    } of[2];            /* [T] of a member, for each of two criteria */
    int32_t *change;    /* [2][groups][T + 2] differences of alive and open along n */
    int32_t *tally;     /* [2^16] of count_narrow */
    double *evict;      /* [T] */
    int32_t *last;      /* [T] last non-trivial query up to t, -1: none */
    int64_t end;        /* queries from here on are trivial or missing */
    int layer, kv, top; /* of last[]; layer -1: empty yet */
};

int curve_plan_init(struct frame *f, struct curve_plan *p)
{
    size_t stride = (size_t)p->T + 1;
    p->before = frame_alloc(f, stride, (size_t)p->groups->n * sizeof *p->before);
    if (!p->before)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < p->T; i++) {
        int group = p->groups->of ? p->groups->of[i] : 0;
        for (int g = 0; g < p->groups->n; g++) {
            int32_t *x = p->before + (size_t)g * stride + i;
            x[1] = x[0] + (i >= p->a && i < p->b && (g == 0 || g == group));
        }
    }
    return KVF_OK;
}

static size_t cells(const struct curve_plan *p)
{
    return (size_t)p->groups->n * (size_t)p->T;
}

struct curve curve_create(struct frame *f, const struct curve_plan *p)
{
    size_t n = p->skips ? cells(p) : 0; /* else all members are asked by all queries */
    return (struct curve){.alive = FRAME_NEW(f, int64_t, cells(p)),
                          .risk = FRAME_NEW(f, int64_t, n),
                          .open = FRAME_NEW(f, int64_t, n),
                          .lives = lives_create(f, p->lives)};
}

void curve_clear(struct curve *c, const struct curve_plan *p)
{
    for (int g = 0; g < p->groups->n; g++)
        memset(c->alive + g * p->T, 0, (size_t)c->most * sizeof *c->alive);
    c->most = 0;
    if (c->any_risk)
        memset(c->risk, 0, cells(p) * sizeof *c->risk);
    if (c->any_open)
        memset(c->open, 0, cells(p) * sizeof *c->open);
    lives_clear(&c->lives, p->lives);
    c->plain = c->end = 0;
    c->any_risk = c->any_open = false;
}

static void add(int64_t *to, const int64_t *x, size_t n)
{
    for (size_t k = 0; k < n; k++)
        to[k] += x[k];
}

void curve_add(struct curve *to, const struct curve *c, const struct curve_plan *p)
{
    for (int g = 0; g < p->groups->n; g++)
        add(to->alive + g * p->T, c->alive + g * p->T, (size_t)c->most);
    to->most = c->most > to->most ? c->most : to->most;
    if (c->any_risk)
        add(to->risk, c->risk, cells(p));
    if (c->any_open)
        add(to->open, c->open, cells(p));
    lives_add(p->lives, &c->lives, &to->lives);
    to->end = c->end > to->end ? c->end : to->end;
    to->plain += c->plain;
    to->any_risk |= c->any_risk;
    to->any_open |= c->any_open;
}

/* Tokens of group g at risk at n in a member that asks until query end - 1. */
static int64_t at_risk(const struct curve_plan *p, int g, int64_t n, int64_t end)
{
    int64_t until = end > n ? end - n : 0;
    return p->before[g * (p->T + 1) + (p->all ? p->T : until)];
}

int64_t curve_at_risk(const struct curve *c, const struct curve_plan *p, int g, int64_t n)
{
    int64_t k = g * p->T + n, risk = c->plain * at_risk(p, g, n, p->T);
    return risk + (c->any_risk ? c->risk[k] : 0) - (c->any_open ? c->open[k] : 0);
}

int64_t curve_tokens(const struct curve *c, const struct curve_plan *p, int g, int64_t n)
{
    int64_t until = c->end > n ? c->end - n : 0;
    return p->before[g * (p->T + 1) + (p->all ? p->T : until)];
}

struct curve_scratch *curve_scratch_create(struct frame *f, const struct curve_plan *p)
{
    size_t T = (size_t)p->T;
    struct curve_scratch *s = FRAME_NEW(f, struct curve_scratch, 1);
    if (!s)
        return NULL;
    s->raw = FRAME_NEW(f, double, T);
    s->age = FRAME_NEW(f, int32_t, T);
    s->open = FRAME_NEW(f, int32_t, T);
    for (int k = 0; k < 2; k++) {
        s->of[k].age = FRAME_NEW(f, int32_t, T);
        s->of[k].open = FRAME_NEW(f, int32_t, T);
    }
    s->change = FRAME_NEW(f, int32_t, 2 * (size_t)p->groups->n * (T + 2));
    s->tally = FRAME_NEW(f, int32_t, (size_t)1 << 16);
    s->evict = FRAME_NEW(f, double, T);
    s->last = FRAME_NEW(f, int32_t, T);
    s->layer = -1;
    return s;
}

/* Which queries saw more than K entries of the KV head. */
static int find_trivial(const struct reading *r, const struct unit *u, int query,
                        struct kvf_diag *d)
{
    const struct curve_plan *p = r->p;
    struct curve_scratch *s = r->s;
    bool own = kvf_column(r->t, p->evict)->space == KVF_SPACE_QUERY; /* a cache per query head */
    struct head h = {u->layer, own ? query : u->kv, ""};
    int32_t *seen = s->last;
    if (s->layer == h.layer && s->kv == h.index && s->top == r->top)
        return KVF_OK;
    int err = p->T ? read_evict(r->t, p->evict, &h, (uint32_t)p->T, s->evict, d) : KVF_OK;
    if (err)
        return err;
    memset(seen, 0, (size_t)p->T * sizeof *seen);
    for (int64_t i = 0; i < p->T; i++) {
        if (s->evict[i] <= (double)i)
            continue; /* no query saw it */
        seen[i]++;
        if (s->evict[i] < (double)p->T)
            seen[(int64_t)s->evict[i]]--;
    }
    int32_t n = 0, last = -1;
    for (int64_t q = 0; q < p->T; q++) {
        n += seen[q];
        last = n > r->top ? (int32_t)q : last;
        s->last[q] = last;
    }
    s->end = last + 1;
    s->layer = h.layer;
    s->kv = h.index;
    s->top = r->top;
    return KVF_OK;
}

/* Ages of selections by non-trivial queries.  A last selection by a trivial query hides the one
 * before it, up to the age of the last non-trivial query.  Returns true if any is. */
static bool trim(const int32_t *last, const struct curve_plan *p, int32_t *age, int32_t *open)
{
    bool any = false;
    for (int64_t k = 0; k < p->b - p->a; k++) {
        int64_t i = p->a + k, at = i + age[k];
        open[k] = -1;
        if (age[k] < 0 || at >= p->T || last[at] == at)
            continue;
        open[k] = last[at] >= i ? (int32_t)(last[at] - i) : -1;
        any |= open[k] >= 0;
        age[k] = -1;
    }
    return any;
}

static void raise_to(int32_t *x, const int32_t *y, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        x[k] = y[k] > x[k] ? y[k] : x[k];
}

struct member { /* tokens [a, b): alive up to age, then unknown up to open */
    int32_t *age, *open;
    int64_t end; /* at risk: i + n < end */
    bool any_open;
};

/* The member with the query heads `first` and following ones: the largest of their ages. */
static int read_member(const struct reading *r, int column, const struct unit *u, int first,
                       struct member *m, struct kvf_diag *d)
{
    const struct curve_plan *p = r->p;
    struct curve_scratch *s = r->s;
    int64_t n = p->b - p->a;
    memset(m->open, 0xff, (size_t)n * sizeof *m->open); /* -1 */
    m->end = r->top ? 0 : p->T;
    m->any_open = false;
    for (int h = 0; h < u->heads; h++) {
        int32_t *age = h ? s->age : m->age;
        int err = ages_read(r->t, column, u, first + h, p->a, n, s->raw, age, d);
        if (!err && r->top)
            err = find_trivial(r, u, first + h, d);
        if (err)
            return err;
        if (r->top) {
            m->any_open |= trim(s->last, p, age, s->open);
            m->end = s->end > m->end ? s->end : m->end;
            raise_to(m->open, s->open, n);
        }
        if (h)
            raise_to(m->age, age, n);
    }
    return KVF_OK;
}

static int group_of(const struct curve_plan *p, int64_t k)
{
    return p->groups->of ? p->groups->of[p->a + k] : 0;
}

/* Sums the changes at each age below `most`, from the largest down if from_top, into group g
 * and all. */
static void add_up(const int32_t *change, const struct curve_plan *p, int64_t most, bool from_top,
                   int64_t *out)
{
    int64_t T = p->T;
    for (int g = p->groups->n > 1; g < p->groups->n; g++) {
        const int32_t *x = change + g * (T + 2);
        int64_t *mine = out + g * T, run = 0;
        for (int64_t n = most - 1; from_top && n >= 0; n--) {
            run += x[n];
            mine[n] += run;
            if (g)
                out[n] += run;
        }
        for (int64_t n = 0; !from_top && n < most; n++) {
            run += x[n];
            mine[n] += run;
            if (g)
                out[n] += run;
        }
    }
}

static size_t changes(const struct curve_plan *p)
{
    return (size_t)p->groups->n * ((size_t)p->T + 2);
}

static void raise_most(struct curve *c, int64_t most)
{
    c->most = most > c->most ? most : c->most;
}

/* All is known: how many have each largest age, summed from the top. */
static void count_ages(const struct curve_plan *p, const int32_t *age, int32_t *change,
                       struct curve *out)
{
    memset(change, 0, changes(p) * sizeof *change);
    int64_t n = p->b - p->a;
    const uint8_t *of = p->groups->of ? p->groups->of + p->a : NULL;
    for (int64_t k = 0; !of && k < n; k++)
        if ((uint64_t)(int64_t)age[k] < (uint64_t)p->T)
            change[age[k]]++;
    for (int64_t k = 0; of && k < n; k++)
        if ((uint64_t)(int64_t)age[k] < (uint64_t)p->T)
            change[of[k] * (p->T + 2) + age[k]]++;
    add_up(change, p, p->T, true, out->alive);
    raise_most(out, p->T);
}

/* The same straight from 16 bits, of which all ones are "never", without groups.  tally: of
 * every number of 16 bits, so that no comparison is needed; 0 before and after. */
static void count_narrow(const struct curve_plan *p, const uint16_t *age, int32_t *tally,
                         struct curve *out)
{
    int64_t n = p->b - p->a;
    uint16_t top = 0; /* the largest age + 1 */
    for (int64_t k = 0; k < n; k++) {
        uint16_t next = (uint16_t)(age[k] + 1);
        top = next > top ? next : top;
    }
    int64_t most = top < p->T ? top : p->T;
    for (int64_t k = 0; k < n; k++)
        tally[age[k]]++;
    add_up(tally, p, most, true, out->alive);
    raise_most(out, most);
    memset(tally, 0, top * sizeof *tally);
    tally[UINT16_MAX] = 0;
}

/* Adds `by` at ages from < n <= to. */
static void add_between(int32_t *change, int64_t T, int64_t from, int64_t to, int by)
{
    from = from < T ? from : T;
    to = to < T ? to : T;
    if (to <= from)
        return;
    change[from + 1] += by;
    change[to + 1] -= by;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t possible(int32_t age, int64_t T)
{
    return age < T ? age : -1; /* a damaged column's age is ignored */
}

/* Alive in x less alive in y (y NULL: no token is), at the ages at which both are known.  With lo
 * the one of shorter life: both are alive up to its age, lo is unknown up to lo.open, then only the
 * second is alive up to its age, and unknown up to its open. */
static void count_known(const struct curve_plan *p, const struct member *x, const struct member *y,
                        int32_t *change, struct curve *out)
{
    int64_t T = p->T;
    int32_t *alive = change, *open = change + changes(p);
    memset(change, 0, 2 * changes(p) * sizeof *change);
    for (int64_t k = 0; k < p->b - p->a; k++) {
        int64_t at = group_of(p, k) * (T + 2), other = y ? possible(y->age[k], T) : -1;
        int64_t other_open = y ? largest(y->open[k], other) : -1;
        int64_t age = possible(x->age[k], T), unsure = largest(x->open[k], age);
        bool less = age < other;
        int64_t lo = less ? age : other, lo_open = less ? unsure : other_open;
        int64_t hi = less ? other : age, hi_open = less ? other_open : unsure;
        add_between(alive + at, T, lo_open, hi, less ? -1 : 1);
        add_between(open + at, T, lo, lo_open, 1);
        add_between(open + at, T, largest(hi, lo_open), hi_open, 1);
    }
    add_up(alive, p, T, false, out->alive);
    raise_most(out, T);
    if (x->any_open || (y && y->any_open)) {
        add_up(open, p, T, false, out->open);
        out->any_open = true;
    }
}

static void add_risk(const struct curve_plan *p, int64_t end, struct curve *out)
{
    if (end == p->T) {
        out->plain++;
        return;
    }
    out->any_risk = true;
    for (int g = 0; g < p->groups->n; g++)
        for (int64_t n = 0; n < p->T; n++)
            out->risk[g * p->T + n] += at_risk(p, g, n, end);
}

static int count_member(const struct reading *r, const struct curve_job *job, const struct unit *u,
                        int m, struct curve *out, struct kvf_diag *d)
{
    const struct curve_plan *p = r->p;
    struct curve_scratch *s = r->s;
    struct member x = {.age = s->of[0].age, .open = s->of[0].open}, y = x;
    const uint16_t *narrow = NULL;
    int err = KVF_OK, first = u->first + m * u->heads;
    if (kvf_column(r->t, job->column)->flags & KVF_COL_AGE && !r->top && job->minus < 0
        && !p->groups->of)
        err = member_view(r->t, job->column, u, m, p->a, p->b - p->a, &narrow, d);
    if (!err && narrow) {
        count_narrow(p, narrow, s->tally, out);
        lives_count_narrow(p->lives, narrow, &out->lives);
        out->end = p->T;
        out->plain++;
        return KVF_OK;
    }
    if (!err)
        err = read_member(r, job->column, u, first, &x, d);
    y.age = s->of[1].age;
    y.open = s->of[1].open;
    if (!err && job->minus >= 0)
        err = read_member(r, job->minus, u, first, &y, d);
    if (err)
        return err;
    if (job->minus < 0 && !x.any_open)
        count_ages(p, x.age, s->change, out);
    else
        count_known(p, &x, job->minus < 0 ? NULL : &y, s->change, out);
    add_risk(p, x.end, out);
    out->end = x.end > out->end ? x.end : out->end;
    if (job->minus < 0)
        lives_count(p->lives, x.age, x.end, &out->lives);
    return KVF_OK;
}

int curve_count(const struct reading *r, const struct curve_job *job, const struct unit *u,
                struct curve *out, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int m = 0; !err && m < u->members; m++)
        err = count_member(r, job, u, m, out, d);
    return err;
}
