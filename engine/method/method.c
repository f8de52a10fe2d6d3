/* method.c - parses "--method", and creates and feeds the state of a method. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/par.h"
#include "engine/method/head_budgets.h"
#include "engine/method/lows.h"
#include "engine/method/peaks.h"

bool method_unbudgeted(const char *text)
{
    struct method_alias unused;
    const struct method *m = method_find(text, strcspn(text, ":"), &unused);
    return m && m->unbudgeted;
}

int method_parse(const char *text, int budget, struct method *ret_method,
                 struct method_params *ret_params, struct kvf_diag *d)
{
    return method_parse_for(text, &(struct budget){.entries = budget}, &(struct budget_prompt){0},
                            ret_method, ret_params, d);
}

int method_parse_for(const char *text, const struct budget *budget,
                     const struct budget_prompt *prompt, struct method *ret_method,
                     struct method_params *ret_params, struct kvf_diag *d)
{
    const struct method *m = NULL;
    struct buf full = {0};
    int err = method_expand(text, &full, &m, d);
    if (!err) {
        struct method row = *m;
        err = method_options_parse(&row, strchr(full.data, ':') + 1, budget, prompt, ret_params, d);
        if (!err)
            *ret_method = row;
    }
    buf_finish(&full);
    return err;
}

unsigned method_gates(const struct method *m)
{
    return m->admission->gates | m->read->gates | (m->score ? m->score->gates : 0);
}

static int need_gates(const struct method *m, const struct gates *g, struct kvf_diag *d)
{
    unsigned need = method_gates(m);
    int kind = 0;
    while (kind < 8 && !(need >> kind & 1))
        kind++;
    const char *name = gates_kind_name((enum gate_kind)kind);
    if (!g)
        return kvf_fail(d, KVF_E_ARG,
                        "method %s needs %s gates: give --gates FILE (docs/reference/gates.md "
                        "explains how to get one)",
                        m->name, name);
    if (!(need >> gates_kind(g) & 1))
        return kvf_fail(d, KVF_E_ARG, "--gates %s has %s gates, and method %s needs %s gates",
                        gates_path(g), gates_kind_name(gates_kind(g)), m->name, name);
    return KVF_OK;
}

/* Checks the table of heads of allocation=file. */
static int check_heads(const struct method *m, const struct method_params *p,
                       const struct method_inputs *in, struct kvf_diag *d)
{
    const struct model_config *c = in->model;
    if (!in->head_table || !c)
        return kvf_fail(d, KVF_E_ARG, "method %s: allocation=file needs --head-budgets FILE",
                        m->name);
    struct method_shape shape = {c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim};
    if (method_per_query_head(m, p))
        shape.n_kv_heads = c->n_heads;
    return head_budgets_check(in->head_table, p, &shape, c->n_kv_heads, d);
}

int method_check_inputs(const struct method *m, const struct method_params *p,
                        const struct method_inputs *in, struct kvf_diag *d)
{
    if (m->score && m->score->needs_mass && !in->plan_mass)
        return kvf_fail(d, KVF_E_ARG,
                        "method %s uses the attention of the complete run: give --plan PLAN.kvf "
                        "made from a full run of the same tokens",
                        m->name);
    if (m->score && m->score->serial && !in->external)
        return kvf_fail(d, KVF_E_ARG,
                        "method %s: score=external needs a program that computes the scores: use "
                        "kvfate.run() in Python, or 'kvfate run --score-pipe R,W'",
                        m->name);
    if (m->admission->until && m->admission->reason == KVF_REASON_PLAN && !in->plan_until)
        return kvf_fail(d, KVF_E_ARG, "method %s needs --plan PLAN.kvf", m->name);
    if (m->read->evidence & EVIDENCE_BLOCKS && in->model && in->model->window)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s: gated blocks must keep all their entries, and some are evicted from the "
            "sliding window of this model; use read=seer-oracle, or method quest",
            m->name);
    if (in->model && !m->read->all && p->dense >= in->model->n_layers
        && p->dense != m->params.dense)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s: with dense=%d all %d layers of the model read everything; give a "
            "smaller number, or read=all",
            m->name, p->dense, in->model->n_layers);
    if (in->model && p->channels > in->model->head_dim)
        return kvf_fail(d, KVF_E_ARG, "method %s: channels=%d is more than the %d of a key",
                        m->name, p->channels, in->model->head_dim);
    int err = m->allocation->heads ? check_heads(m, p, in, d) : KVF_OK;
    return !err && method_gates(m) ? need_gates(m, in->gates, d) : err;
}

bool method_per_query_head(const struct method *m, const struct method_params *p)
{
    return (m->score || m->admission->reason == KVF_REASON_PLAN) && p->group == GROUP_NONE;
}

unsigned method_row_evidence(const struct method *m)
{
    unsigned need = m->read->evidence | (m->score ? m->score->evidence : 0);
    return m->admission->judge ? need | EVIDENCE_GATE : need;
}

const char *method_cost(const struct method *m, const struct method_params *p)
{
    const struct score *c = m->score;
    bool by_row = c && c->uses & USES_ACROSS
                  && (p->across == ACROSS_MAX || p->support == SUPPORT_CANDIDATES);
    if (by_row && c->cost_rows)
        return c->cost_rows;
    if (c)
        return c->cost;
    return m->read->cost ? m->read->cost : "1";
}

double method_state_bytes(const struct method *m, const struct method_params *p,
                          const struct method_shape *shape, int gate_dim)
{
    return evidence_bytes(method_row_evidence(m), p, shape, gate_dim);
}

static int create_arrays(struct method_state *s)
{
    size_t L = (size_t)s->shape.n_layers, n = L * (size_t)s->shape.n_kv_heads;
    s->n_cut = MEM_NEW(int, n);
    s->n_candidates = MEM_NEW(int, n);
    s->n_listed = MEM_NEW(int, n);
    s->heap = MEM_NEW(int, n);
    s->over = MEM_NEW(int64_t, n);
    s->due = MEM_NEW(unsigned char, n);
    s->target = MEM_NEW(int64_t, n);
    s->share = MEM_NEW(int, L);
    s->share_weight = MEM_NEW(double, L);
    s->share_scratch = MEM_NEW(double, L);
    if (s->method->allocation->heads) {
        s->head_share = MEM_NEW(int, n);
        if (!s->head_share)
            return KVF_E_NOMEM;
    }
    if (lows_kept(s->method, &s->params)) {
        s->lows = MEM_NEW(struct lows, n);
        if (!s->lows)
            return KVF_E_NOMEM;
    }
    return s->n_cut && s->n_candidates && s->n_listed && s->heap && s->over && s->due && s->target
                   && s->share && s->share_weight && s->share_scratch
               ? KVF_OK
               : KVF_E_NOMEM;
}

int method_state_create(const struct method *m, const struct method_params *p,
                        const struct method_shape *shape, const struct method_inputs *in,
                        struct method_state **ret_state)
{
    struct method_state *s = MEM_NEW(struct method_state, 1);
    if (!s)
        return KVF_E_NOMEM;
    *s = (struct method_state){.row = *m, .params = *p, .shape = *shape};
    s->method = &s->row;
    kernels_init(&s->kernels, 0);
    if (in)
        s->inputs = *in;
    if (s->inputs.kernels)
        s->kernels = *s->inputs.kernels;
    int err = create_arrays(s);
    if (err)
        goto fail;
    err = evidence_init(&s->evidence, method_row_evidence(m), p, shape, s->inputs.gates);
    if (!err)
        err = protect_create(s);
    if (err)
        goto fail;
    s->inputs.ranges = NULL; /* the caller may free them */
    s->inputs.n_ranges = 0;
    if (m->admission->prepare) {
        err = m->admission->prepare(s);
        if (err)
            goto fail;
    }
    *ret_state = s;
    return KVF_OK;

fail:
    method_state_destroy(s);
    return err;
}

static void destroy_one(struct method_state *s)
{
    evidence_finish(&s->evidence);
    mem_free(s->owned);
    mem_free(s->protect);
    mem_free(s->share);
    mem_free(s->head_share);
    mem_free(s->share_weight);
    mem_free(s->share_scratch);
    mem_free(s->due);
    mem_free(s->target);
    mem_free(s->n_candidates);
    mem_free(s->n_listed);
    mem_free(s->heap);
    mem_free(s->over);
    mem_free(s->go);
    mem_free(s->may);
    mem_free(s->candidate);
    mem_free(s->pooled);
    mem_free(s->n_cut);
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    mem_free(s->pair);
    mem_free(s->lows);
    peaks_destroy(s->peaks);
    mem_free(s->scratch);
    mem_free(s);
}

void method_state_destroy(struct method_state *s)
{
    while (s) {
        struct method_state *next = s->next;
        destroy_one(s);
        s = next;
    }
}

static int grow_arrays(struct method_state *s, int slots)
{
    size_t cap = (size_t)slots;
    size_t n = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads * cap;
    bool scored = s->method->score != NULL, shared = s->method->allocation->pool != POOL_HEAD;
    mem_free(s->victim);
    mem_free(s->value);
    mem_free(s->keep);
    mem_free(s->pair);
    mem_free(s->candidate);
    mem_free(s->pooled);
    s->cap = 0;
    s->victim = mem_alloc_spread(n, sizeof *s->victim);
    s->keep = MEM_NEW(unsigned char, cap);
    s->n_keeps = 1;
    s->pair = MEM_NEW(int32_t, 2 * cap);
    s->value = scored && shared ? mem_alloc_spread(n, sizeof *s->value) : NULL;
    s->candidate = scored ? mem_alloc_spread(n, sizeof *s->candidate) : NULL;
    s->pooled = scored && shared ? mem_alloc_spread(n, sizeof *s->pooled) : NULL;
    if (!s->victim || !s->keep || !s->pair || (scored && !s->candidate)
        || (scored && shared && (!s->pooled || !s->value)))
        return KVF_E_NOMEM;
    if (!s->peaks && peaks_kept(s->method, &s->params) && peaks_create(s, &s->peaks))
        return KVF_E_NOMEM;
    s->cap = slots;
    return KVF_OK;
}

int method_prepare(struct method_state *s, int slots, int32_t next_decision)
{
    for (; s; s = s->next) {
        s->next_decision = next_decision;
        if (slots <= s->cap)
            continue;
        int err = evidence_reserve(&s->evidence, slots);
        if (err)
            return err;
        err = grow_arrays(s, slots);
        if (err)
            return err;
    }
    return KVF_OK;
}

static unsigned char *all_owned(const struct method_state *s)
{
    size_t n = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads;
    unsigned char *owned = MEM_NEW(unsigned char, n);
    if (owned && s->owned)
        memcpy(owned, s->owned, n);
    else if (owned)
        memset(owned, 1, n);
    return owned;
}

int method_override(struct method_state *s, struct method_state *other, const unsigned char *take)
{
    struct method_state *last = s;
    size_t n = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads;
    unsigned char *theirs = MEM_NEW(unsigned char, n);
    if (!theirs)
        return KVF_E_NOMEM;
    memcpy(theirs, take, n);
    for (struct method_state *p = s; p; last = p, p = p->next) {
        if (!p->owned)
            p->owned = all_owned(p);
        if (!p->owned) {
            mem_free(theirs);
            return KVF_E_NOMEM;
        }
    }
    for (struct method_state *p = s; p; p = p->next)
        for (size_t i = 0; i < n; i++)
            p->owned[i] &= !take[i];
    other->owned = theirs;
    last->next = other;
    return KVF_OK;
}

/* The row that decides for a head. */
static struct method_state *owner(const struct method_state *s, int layer, int head)
{
    while (s->next && !method_owns(s, layer, head))
        s = s->next;
    return (struct method_state *)s;
}

unsigned method_evidence(const struct method_state *s)
{
    unsigned all = 0;
    for (; s; s = s->next)
        all |= s->evidence.kinds;
    return all;
}

bool method_cuts_turns(const struct method_state *s)
{
    for (; s; s = s->next)
        if (s->params.cut == CUT_TURN)
            return true;
    return false;
}

bool method_uses_gates(const struct method_state *s)
{
    for (; s; s = s->next)
        if (method_gates(s->method)
            & (1u << GATE_RETENTION | 1u << GATE_WRITE | 1u << GATE_IMPORTANCE))
            return true;
    return false;
}

int32_t method_until(const struct method_state *s, int layer, int head, int32_t pos, float gate)
{
    s = owner(s, layer, head);
    const struct admission *a = s->method->admission;
    bool judged = a->until && !is_protected(s, pos);
    int32_t own = judged ? a->until(s, layer, head, pos, gate) : NEVER_EXPIRES;
    int32_t window = method_window_end(s, layer, pos);
    return window < own ? window : own;
}

int32_t method_window_end(const struct method_state *s, int layer, int32_t pos)
{
    int window = s->inputs.model ? model_window(s->inputs.model, layer) : 0;
    return window && pos < NEVER_EXPIRES - window ? pos + window : NEVER_EXPIRES;
}

void method_appended(struct method_state *s, const struct cache *c, int layer, int head, int slot,
                     float gate, const float *k_pre)
{
    s = owner(s, layer, head);
    if (s->evidence.kinds)
        evidence_appended(&s->evidence, c, layer, head, slot, gate, k_pre);
}

struct query_job {
    struct method_state *s;
    int layer, n;
    const float *q;
    size_t ld;
};

static void queries_task(void *ctx, int head, int thread)
{
    const struct query_job *j = ctx;
    const struct method_shape *m = &j->s->shape;
    (void)thread;
    if (!method_owns(j->s, j->layer, head))
        return;
    int per = m->n_heads / m->n_kv_heads;
    evidence_take_queries(&j->s->evidence, j->layer, head * per, per, j->q, j->ld, j->n);
}

void method_queries(struct method_state *s, int layer, int32_t pos0, int n, const float *q,
                    size_t ld, struct par *pool)
{
    for (; s; s = s->next) {
        int skip = s->params.sinks > pos0 ? s->params.sinks - pos0 : 0;
        struct query_job j = {s, layer, n - skip, q + (size_t)skip * ld, ld};
        if (!(s->evidence.kinds & EVIDENCE_MOMENTS) || j.n <= 0)
            continue;
        par_run(pool, s->shape.n_kv_heads, queries_task, &j);
        s->evidence.n_queries[layer] += j.n;
    }
}

static bool wants(const struct method_state *s, int32_t t)
{
    if (s->evidence.kinds & EVIDENCE_SUM)
        return true;
    return s->evidence.kinds & EVIDENCE_WINDOW && t >= s->next_decision - s->params.window;
}

bool method_wants_row(const struct method_state *s, int32_t t)
{
    for (; s; s = s->next)
        if (wants(s, t))
            return true;
    return false;
}

void method_row(struct method_state *s, const struct attn_row *row)
{
    int per = s->shape.n_heads / s->shape.n_kv_heads;
    s = owner(s, row->layer, row->head / per);
    if (wants(s, row->t))
        evidence_take(&s->evidence, &s->kernels, row);
}

void method_full_row(struct method_state *s, const struct attn_row *row)
{
    for (; s; s = s->next)
        if (s->evidence.kinds & EVIDENCE_FULL)
            evidence_take_full(&s->evidence, row);
}
