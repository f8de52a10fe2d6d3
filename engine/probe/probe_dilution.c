/* probe_dilution.c - fraction of a query's attention on useful entries (Nguyen et al. 2026, section
 * 3.1). With w the weights of query t over all entries 0 .. t, r the retention factor of each
 * entry, and U the useful entries:
 *     useful = sum_U w,  dilution = 1 - useful       (eq. 7; both, as each can be tiny)
 *     kept   = sum_U r w / sum r w                   (1 - dilution under r)
 *     rho_u  = sum_U r w / sum_U w,  rho_d likewise outside U  (corollary 3.2)
 * r is 1 for visible entries and 0 for the rest. If the run has retention gates, values with r =
 * beta_i^(t - i) are recorded, too. Differences of logits follow from weights: z_a - z_b = ln w_a -
 * ln w_b.
 *
 * U is a prefix of the order of weights (the larger position first if weights are equal), a set of
 * tokens given to the run, or the kept set of a plan at t. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/dilution.h"
#include "engine/probe/probes.h"

enum { TOP64 = 0, SETS = DILUTION_NEAR };
_Static_assert((int)DILUTION_PREFIX <= (int)SETS, "one buffer serves both");

static const double slack[DILUTION_SLACK] = {1, 2, 4};

static const char *const kind_names[DILUTION_KINDS] = {
    "useful", "dilution", "kept", "rho_u", "rho_d", "beta.kept", "beta.rho_u", "beta.rho_d"};

struct state {
    const struct probe_state *run; /* its arrays: [at.n] columns [L*G][cap] */
    const struct probe_config *cfg;
    struct dilution_layout at;
    float *log_beta;              /* [L*H][cap]; NULL: no retention gates */
    float *aged;                  /* [G][cap] beta^(t - i) of the current row */
    unsigned char *spans;         /* [cap] bit k: the token is in set k */
    double slack[DILUTION_SLACK]; /* exp of minus these logits */
    double factor[DILUTION_NEAR]; /* exp(-k / 2) */
};

/* Sums over some entries of a row. */
struct part {
    double w, kept, aged; /* sums of w, of w of visible entries, of w beta^(t - i) */
    int64_t n;
};

/* A row of weights over all entries 0 .. n-1. */
struct row {
    int head;  /* query head */
    size_t at; /* index of its values in a column */
    const float *w;
    int n;
    const unsigned char *seen; /* NULL: all */
    const float *aged;         /* NULL: no gates */
    uint64_t *bits;            /* buffer of SETS sets of n entries */
};

static int n_sets(const struct probe_config *c)
{
    return DILUTION_PREFIX + c->n_span_sets + (c->plan_until != NULL);
}

static int plan_set(const struct probe_config *c)
{
    return DILUTION_PREFIX + c->n_span_sets;
}

static void set_name(const struct probe_config *c, int set, char *out, size_t cap)
{
#define X(name) #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    if (set < KVF_N_CRITERIA)
        snprintf(out, cap, "%s", names[set]);
    else if (set < DILUTION_PREFIX)
        snprintf(out, cap, "slack.%g", slack[set - KVF_N_CRITERIA]);
    else if (set == plan_set(c))
        snprintf(out, cap, "plan");
    else
        snprintf(out, cap, "span%s%s", c->span_set[set - DILUTION_PREFIX].name[0] ? "." : "",
                 c->span_set[set - DILUTION_PREFIX].name);
}

static bool has_beta(const struct probe_config *c)
{
    return c->gate_column && strcmp(c->gate_column, "log_beta") == 0;
}

static bool records(const struct probe_config *c, enum dilution_kind kind)
{
    if (kind >= DILUTION_BETA_KEPT)
        return has_beta(c);
    return kind <= DILUTION_DILUTION || (c->evicts && (kind == DILUTION_KEPT || c->shadow_entries));
}

/* Adds a column, described in out unless that is NULL. Values that no query sets stay NaN, or a
 * count of 0. */
static int add_column(struct dilution_layout *l, struct probe_array *out, bool is_real,
                      const char *name)
{
    if (out) {
        struct kvf_column *c = &out[l->n].column;
        out[l->n] = (struct probe_array){.column = {"", 0, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
                                         .start = is_real ? PROBE_NAN : PROBE_ZEROS};
        c->dtype = is_real ? KVF_F32 : PROBE_STEPS;
        snprintf(c->name, sizeof c->name, "%s", name);
    }
    return l->n++;
}

static void add_near(struct dilution_layout *l, struct probe_array *out,
                     const struct probe_config *c, int which)
{
    char name[KVF_NAME_MAX], set[KVF_NAME_MAX / 2] = "all";
    if (which > 0)
        set_name(c, DILUTION_PREFIX + which - 1, set, sizeof set);
    l->near[which] = l->n;
    for (int k = 0; k < DILUTION_NEAR; k++) {
        snprintf(name, sizeof name, "near.%s.%d", set, k);
        add_column(l, out, false, name);
    }
}

static void lay_out(const struct probe_config *c, struct dilution_layout *l,
                    struct probe_array *out)
{
    char name[KVF_NAME_MAX], set[KVF_NAME_MAX / 2];
    memset(l, 0xff, sizeof *l); /* DILUTION_NONE */
    l->n = 0;
    for (int u = 0; u < n_sets(c); u++) {
        set_name(c, u, set, sizeof set);
        for (int kind = 0; kind < DILUTION_KINDS; kind++) {
            snprintf(name, sizeof name, "%s.%s", kind_names[kind], set);
            if (records(c, (enum dilution_kind)kind))
                l->real[kind][u] = add_column(l, out, true, name);
        }
        snprintf(name, sizeof name, "size.%s", set);
        l->size[u] = add_column(l, out, false, name);
    }
    for (int k = 0; k <= n_sets(c) - DILUTION_PREFIX; k++)
        add_near(l, out, c, k);
}

static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    struct dilution_layout l;
    lay_out(cfg, &l, out);
    return l.n;
}

static void mark_spans(const struct probe_config *c, unsigned char *spans)
{
    for (int k = 0; k < c->n_span_sets; k++)
        for (int r = 0; r < c->span_set[k].n; r++)
            for (int32_t i = c->span_set[k].range[r][0];
                 i < c->span_set[k].range[r][1] && i < c->cap; i++)
                spans[i] |= (unsigned char)(1u << k);
}

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    mem_free_all(own->log_beta, own->aged, own->spans, own);
}

static int open_state(struct probe_state *s)
{
    const struct probe_config *c = s->cfg;
    size_t L = (size_t)c->shape.n_layers, G = (size_t)c->shape.n_heads, cap = (size_t)c->cap;
    size_t H = has_beta(c) ? (size_t)c->shape.n_kv_heads : 0;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->run = s;
    own->cfg = c;
    lay_out(c, &own->at, NULL);
    own->log_beta = MEM_NEW(float, (L * H * cap));
    own->aged = MEM_NEW(float, H ? G *cap : 0);
    own->spans = MEM_NEW(unsigned char, cap);
    if (!own->log_beta || !own->aged || !own->spans)
        return KVF_E_NOMEM;
    mark_spans(c, own->spans);
    for (int k = 0; k < DILUTION_NEAR; k++)
        own->factor[k] = exp(-0.5 * k);
    for (int j = 0; j < DILUTION_SLACK; j++)
        own->slack[j] = exp(-slack[j]);
    return KVF_OK;
}

static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_kv_heads;
    const struct state *to = s->own, *source = from->own;
    if (has_beta(s->cfg))
        probe_copy_rows(s, to->log_beta, from, source->log_beta, heads, sizeof *to->log_beta, n);
}

struct dilution_view probe_dilution_view(const struct probe_state *run)
{
    const struct state *s = run->own;
    return (struct dilution_view){.at = &s->at,
                                  .slack = s->slack,
                                  .near = s->factor,
                                  .spans = s->spans,
                                  .log_beta = has_beta(s->cfg) ? s->log_beta : NULL};
}

/* Stores log beta, limited because minus infinity at age 0 would give 0 * inf. */
static void on_gate(struct probe_state *run, int layer, int head, int32_t pos, float value)
{
    struct state *s = run->own;
    if (has_beta(s->cfg))
        s->log_beta[probe_kv_index(s->cfg, layer, head) * (size_t)s->cfg->cap + (size_t)pos] =
            fmaxf(value, -1e30f);
}

static void put_real(struct state *s, enum dilution_kind kind, int set, size_t at, double v)
{
    if (s->at.real[kind][set] != DILUTION_NONE)
        ((float *)s->run->data[s->at.real[kind][set]])[at] = (float)v;
}

static void put_count(struct state *s, int column, size_t at, int64_t n)
{
    probe_put_step(s->run, s->run->data[column], at, (uint32_t)n);
}

/* Stores the results of one set for a row over all entries. Quotients with an empty denominator are
 * NaN. */
static void put_set(struct state *s, int set, const struct row *row, const struct part *in,
                    const struct part *out)
{
    size_t at = row->at;
    bool is_span = set >= DILUTION_PREFIX;
    put_count(s, s->at.size[set], at, in->n);
    if (in->n == 0)
        return;
    put_real(s, DILUTION_USEFUL, set, at, in->w / (in->w + out->w));
    put_real(s, DILUTION_DILUTION, set, at, out->w / (in->w + out->w));
    if (!row->seen || !is_span) /* else on_row computed it from the actual attention */
        put_real(s, DILUTION_KEPT, set, at, in->kept / (in->kept + out->kept));
    put_real(s, DILUTION_RHO_U, set, at, in->kept / in->w);
    put_real(s, DILUTION_RHO_D, set, at, out->kept / out->w);
    put_real(s, DILUTION_BETA_KEPT, set, at, in->aged / (in->aged + out->aged));
    put_real(s, DILUTION_BETA_RHO_U, set, at, in->aged / in->w);
    put_real(s, DILUTION_BETA_RHO_D, set, at, out->aged / out->w);
}

static void add(struct part *p, const struct row *row, int i)
{
    double w = (double)row->w[i];
    p->w += w;
    p->kept += !row->seen || row->seen[i] ? w : 0;
    p->aged += row->aged ? w * (double)row->aged[i] : 0;
    p->n++;
}

static struct part joined(const struct part *p, int n)
{
    struct part all = {0};
    for (int i = 0; i < n; i++) {
        all.w += p[i].w;
        all.kept += p[i].kept;
        all.aged += p[i].aged;
        all.n += p[i].n;
    }
    return all;
}

/* Returns the smallest float that is at least x. */
static float not_below(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

/* Adds to count[k] the entries with weight at least limit[k] and not 0, since a weight of 0 has an
 * unknown logit. bits: buffer of DILUTION_NEAR sets of n entries. */
static void count_near(const struct kernels *kernels, const float *w, int n, const float *limit,
                       int64_t *count, uint64_t *bits)
{
    struct row_cut cut[DILUTION_NEAR];
    size_t words = ((size_t)n + 63) / 64;
    if (n == 0)
        return;
    for (int k = 0; k < DILUTION_NEAR; k++) /* at least the smallest weight that is not 0 */
        cut[k] = (struct row_cut){fmaxf(limit[k], nextafterf(0, 1)), 0, 0};
    kernels->member_bits(bits, words, w, n, cut, DILUTION_NEAR);
    for (int k = 0; k < DILUTION_NEAR; k++)
        for (size_t i = 0; i < words; i++)
            count[k] += __builtin_popcountll(bits[(size_t)k * words + i]);
}

static void limits(const struct state *s, float top, float *ret_limit)
{
    for (int k = 0; k < DILUTION_NEAR; k++)
        ret_limit[k] = not_below((double)top * s->factor[k]);
}

static void put_near(struct state *s, int which, size_t at, const int64_t *count)
{
    for (int k = 0; k < DILUTION_NEAR; k++)
        put_count(s, s->at.near[which] + k, at, count[k]);
}

/* Computes the remaining cuts from the given cut[0 .. KVF_N_CRITERIA), and the order of all by
 * size. They are prefixes of one order, so each contains the smaller ones. */
static void order_cuts(const struct state *s, const float *w, int n, struct row_cut *cut,
                       int *ret_order)
{
    for (int j = 0; j < DILUTION_SLACK; j++) {
        struct row_cut *c = &cut[KVF_N_CRITERIA + j];
        *c = cut[TOP64];
        if (c->count == n)
            continue;
        *c = (struct row_cut){not_below((double)c->threshold * s->slack[j]), 0, 0};
        c->count = n - s->cfg->kernels->count_below(w, n, c->threshold);
    }
    for (int j = 0; j < DILUTION_PREFIX; j++) {
        int k = j;
        for (; k > 0 && cut[ret_order[k - 1]].count > cut[j].count; k--)
            ret_order[k] = ret_order[k - 1];
        ret_order[k] = j;
    }
}

/* part[j]: entries in the j-th set of the order but not in the preceding ones; the last part: the
 * entries in no set. Each sum adds the entries in their order. */
static void split(const struct kernels *kernels, const struct row *row, const struct row_cut *cut,
                  const int *order, struct part *part)
{
    struct row_cut sorted[DILUTION_PREFIX];
    size_t words = ((size_t)row->n + 63) / 64;
    bool plain = !row->seen && !row->aged; /* then `kept` is `w`, and `aged` is 0 */
    memset(part, 0, (DILUTION_PREFIX + 1) * sizeof *part);
    for (int j = 0; j < DILUTION_PREFIX; j++)
        sorted[j] = cut[order[j]];
    kernels->member_bits(row->bits, words, row->w, row->n, sorted, DILUTION_PREFIX);
    for (size_t w = 0; w < words; w++) {
        int first = (int)(64 * w), left = row->n - first;
        uint64_t rest = left < 64 ? ~(~(uint64_t)0 << left) : ~(uint64_t)0;
        for (int j = 0; rest && j <= DILUTION_PREFIX; j++) {
            uint64_t own = j < DILUTION_PREFIX ? rest & row->bits[(size_t)j * words + w] : rest;
            rest &= ~own;
            for (part[j].n += plain ? __builtin_popcountll(own) : 0; own; own &= own - 1) {
                int i = first + __builtin_ctzll(own);
                if (plain)
                    part[j].w += (double)row->w[i];
                else
                    add(&part[j], row, i);
            }
        }
    }
    for (int j = 0; plain && j <= DILUTION_PREFIX; j++)
        part[j].kept = part[j].w;
}

static void take_prefixes(struct state *s, const struct row *row, const struct row_cut *given)
{
    struct row_cut cut[DILUTION_PREFIX];
    struct part part[DILUTION_PREFIX + 1];
    int order[DILUTION_PREFIX];
    int64_t near[DILUTION_NEAR] = {0};
    float limit[DILUTION_NEAR];
    memcpy(cut, given, KVF_N_CRITERIA * sizeof *cut);
    order_cuts(s, row->w, row->n, cut, order);
    split(s->cfg->kernels, row, cut, order, part);
    for (int j = 0; j < DILUTION_PREFIX; j++) {
        struct part in = joined(part, j + 1), out = joined(part + j + 1, DILUTION_PREFIX - j);
        put_set(s, order[j], row, &in, &out);
    }
    limits(s, s->cfg->kernels->max_row(row->w, row->n), limit);
    count_near(s->cfg->kernels, row->w, row->n, limit, near, row->bits);
    put_near(s, 0, row->at, near);
}

static int clipped(int32_t i, int n)
{
    return i < n ? i : n;
}

/* Counts entries outside a span set with weights near its largest; limit [DILUTION_NEAR]. */
static void span_near(struct state *s, int k, const struct row *row, float top)
{
    const struct probe_span_set *set = &s->cfg->span_set[k];
    int64_t near[DILUTION_NEAR] = {0};
    float limit[DILUTION_NEAR];
    int from = 0;
    limits(s, top, limit);
    for (int r = 0; r <= set->n; r++) {
        int to = r < set->n ? clipped(set->range[r][0], row->n) : row->n;
        count_near(s->cfg->kernels, row->w + from, to - from, limit, near, row->bits);
        from = r < set->n ? clipped(set->range[r][1], row->n) : 0;
    }
    put_near(s, 1 + k, row->at, near);
}

static void take_span(struct state *s, int k, const struct row *row)
{
    const struct probe_span_set *set = &s->cfg->span_set[k];
    struct part in = {0}, out = {0};
    float top = 0;
    for (int i = 0, r = 0; i < row->n; i++) {
        while (r < set->n && i >= set->range[r][1])
            r++;
        bool inside = r < set->n && i >= set->range[r][0];
        add(inside ? &in : &out, row, i);
        if (inside && row->w[i] > top)
            top = row->w[i];
    }
    put_set(s, DILUTION_PREFIX + k, row, &in, &out);
    if (in.n > 0)
        span_near(s, k, row, top);
}

/* Returns the plan of the KV head of a query head. */
static const uint32_t *plan_of(const struct probe_config *c, int layer, int head)
{
    size_t h = (size_t)head / ((size_t)c->shape.n_heads / (size_t)c->plan_heads);
    return c->plan_until + ((size_t)layer * (size_t)c->plan_heads + h) * (size_t)c->plan_tokens;
}

static bool plan_keeps(const struct probe_config *c, const uint32_t *until, int32_t i, int32_t t)
{
    return i >= c->plan_tokens || until[i] > (uint32_t)t;
}

static void take_plan(struct state *s, int layer, const struct row *row)
{
    const uint32_t *until = plan_of(s->cfg, layer, row->head);
    struct part in = {0}, out = {0};
    int64_t near[DILUTION_NEAR] = {0};
    float limit[DILUTION_NEAR], top = 0;
    int t = row->n - 1;
    for (int i = 0; i < row->n; i++) {
        bool inside = plan_keeps(s->cfg, until, i, t);
        add(inside ? &in : &out, row, i);
        if (inside && row->w[i] > top)
            top = row->w[i];
    }
    put_set(s, plan_set(s->cfg), row, &in, &out);
    limits(s, top, limit);
    for (int i = 0, from = 0; i < row->n; i++)
        if (plan_keeps(s->cfg, until, i, t)) { /* the plan keeps the last entry, which is the
                                                * query's own */
            if (i > from)
                count_near(s->cfg->kernels, row->w + from, i - from, limit, near, row->bits);
            from = i + 1;
        }
    put_near(s, 1 + s->cfg->n_span_sets, row->at, near);
}

/* Processes weights over all entries 0 .. n-1. */
static void take_all(struct state *s, int layer, struct row *row, const struct row_cut *cut)
{
    const struct probe_config *c = s->cfg;
    if (has_beta(c)) {
        size_t H = (size_t)c->shape.n_kv_heads, G = (size_t)c->shape.n_heads;
        size_t h = (size_t)layer * H + (size_t)row->head / (G / H);
        float *aged = s->aged + (size_t)row->head * (size_t)c->cap;
        c->kernels->exp_aged(aged, s->log_beta + h * (size_t)c->cap, row->n, row->n - 1);
        row->aged = aged;
    }
    take_prefixes(s, row, cut);
    for (int k = 0; k < c->n_span_sets; k++)
        take_span(s, k, row);
    if (c->plan_until)
        take_plan(s, layer, row);
}

/* Returns true for a query that the sampling leaves out. Its values stay undefined. */
static bool is_skipped(const struct probe_config *c, int32_t t)
{
    return c->every > 1 && t % c->every;
}

static bool reads_all(const struct probe_state *run, int32_t t)
{
    return !is_skipped(run->cfg, t);
}

static size_t place(const struct state *s, int layer, int head, int32_t t)
{
    return probe_query_index(s->cfg, layer, head) * s->run->cells + (size_t)(t / s->run->every);
}

static bool any_before(const struct probe_span_set *set, int32_t t)
{
    return set->n > 0 && set->range[0][0] <= t;
}

/* Returns the fraction of the actual attention on entries of the plan. */
static double plan_share(const struct state *s, const struct probe_row *p, double all)
{
    const uint32_t *until = plan_of(s->cfg, p->layer, p->head);
    double sum = 0;
    for (int i = 0; i < p->n; i++)
        sum += plan_keeps(s->cfg, until, p->pos ? p->pos[i] : i, p->t) ? (double)p->p[i] : 0;
    return sum / all;
}

/* Processes a row with hidden entries: its largest weights, spans, the plan. */
static void take_seen(struct state *s, const struct probe_row *p, const struct row_cut *given)
{
    struct row row = {.head = p->head, .w = p->p, .n = p->n, .bits = p->scratch};
    size_t at = place(s, p->layer, p->head, p->t);
    struct row_cut cut[DILUTION_PREFIX];
    struct part part[DILUTION_PREFIX + 1];
    int order[DILUTION_PREFIX];
    double span[PROBE_SPAN_SETS] = {0};
    memcpy(cut, given, KVF_N_CRITERIA * sizeof *cut);
    order_cuts(s, p->p, p->n, cut, order);
    split(s->cfg->kernels, &row, cut, order, part);
    double all = joined(part, DILUTION_PREFIX + 1).w;
    for (int j = 0; j < DILUTION_PREFIX; j++)
        put_real(s, DILUTION_KEPT, order[j], at, joined(part, j + 1).w / all);
    for (int i = 0; i < p->n; i++)
        for (unsigned bits = s->spans[p->pos ? p->pos[i] : i], k = 0; bits; bits >>= 1, k++)
            span[k] += bits & 1 ? (double)p->p[i] : 0;
    for (int k = 0; k < s->cfg->n_span_sets; k++)
        if (any_before(&s->cfg->span_set[k], p->t))
            put_real(s, DILUTION_KEPT, DILUTION_PREFIX + k, at, span[k] / all);
    if (s->cfg->plan_until)
        put_real(s, DILUTION_KEPT, plan_set(s->cfg), at, plan_share(s, p, all));
}

static void on_row(struct probe_state *run, const struct probe_row *p)
{
    struct state *s = run->own;
    if (is_skipped(s->cfg, p->t))
        return;
    const struct row_cut *cut = probe_row_cuts(p, s->cfg->kernels);
    if (p->n < p->t + 1) {
        take_seen(s, p, cut);
        return;
    }
    struct row row = {.head = p->head,
                      .at = place(s, p->layer, p->head, p->t),
                      .w = p->p,
                      .n = p->n,
                      .bits = p->scratch};
    take_all(s, p->layer, &row, cut);
}

/* Called after the row of the same query. */
static void on_missed(struct probe_state *run, const struct probe_missed *m)
{
    struct state *s = run->own;
    struct row_cut cut[KVF_N_CRITERIA];
    if (m->n == 0 || is_skipped(s->cfg, m->t))
        return;
    probe_find_cuts(s->cfg->kernels, m->p, m->n, cut, m->scratch);
    struct row row = {.head = m->head,
                      .at = place(s, m->layer, m->head, m->t),
                      .w = m->p,
                      .n = m->n,
                      .seen = m->seen,
                      .bits = m->scratch};
    take_all(s, m->layer, &row, cut);
}

const struct probe probe_dilution = {
    .name = "dilution",
    .summary = "attention dilution: attention to useful entries, with and without retention",
    .wants = PROBE_ROWS | PROBE_GATE,
    .full_only = true,
    .in_auto = AUTO_CPU,
    .arrays = arrays,
    .sampled = true,
    .by_column = true,
    .open = open_state,
    .copy = copy,
    .close = close_state,
    .gate = on_gate,
    .row = on_row,
    .missed = on_missed,
    .reads_all = reads_all,
};
