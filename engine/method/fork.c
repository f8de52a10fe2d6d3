/* fork.c - copies a method state with its evidence. */
#include <string.h>

#include "base/mem.h"
#include "engine/method/lows.h"

/* *p, n elements of `size` bytes of somebody else, becomes a copy; NULL stays. */
static int own(void *p, size_t n, size_t size)
{
    void *old, *copy;
    memcpy(&old, p, sizeof old);
    if (!old)
        return KVF_OK;
    copy = mem_alloc(n, size);
    if (copy)
        memcpy(copy, old, n * size);
    memcpy(p, &copy, sizeof copy);
    return copy ? KVF_OK : KVF_E_NOMEM;
}

static int own_pages(struct pages *p)
{
    size_t n = (size_t)p->n_heads, D = (size_t)p->dim, cap = (size_t)p->cap;
    int err = own(&p->least, n * cap * D, sizeof *p->least);
    err |= own(&p->most, n * cap * D, sizeof *p->most);
    err |= own(&p->valid, n, sizeof *p->valid);
    err |= own(&p->run, n * 3 * D, sizeof *p->run);
    err |= own(&p->key, n * cap * (size_t)p->gate_dim, sizeof *p->key);
    err |= own(&p->scratch, n * p->scratch_len, sizeof *p->scratch);
    return err;
}

/* Each pointer of e becomes a copy; those that could not be copied are NULL. */
static int own_evidence(struct evidence *e)
{
    const struct method_shape *shape = &e->shape;
    size_t Q = (size_t)shape->n_layers * (size_t)shape->n_heads, cap = (size_t)e->cap;
    size_t kv = (size_t)shape->n_layers * (size_t)shape->n_kv_heads * cap;
    size_t rows = Q * (size_t)e->ring, D = (size_t)shape->head_dim;
    size_t H = (size_t)shape->n_layers * (size_t)shape->n_kv_heads;
    int err = own(&e->sum, Q * cap, sizeof *e->sum);
    err |= own(&e->rows, rows * cap, sizeof *e->rows);
    err |= own(&e->n_rows, Q, sizeof *e->n_rows);
    err |= own(&e->row_t, rows, sizeof *e->row_t);
    err |= own(&e->row_n, rows, sizeof *e->row_n);
    err |= own(&e->row_lse, rows, sizeof *e->row_lse);
    err |= own(&e->row_ranks, rows, sizeof *e->row_ranks);
    err |= own(&e->left, H * EVIDENCE_LEFT, sizeof *e->left);
    err |= own(&e->n_left, H, sizeof *e->n_left);
    err |= own(&e->all_know, H, sizeof *e->all_know);
    err |= own(&e->born, kv, sizeof *e->born);
    err |= own(&e->recent, kv, sizeof *e->recent);
    err |= own(&e->spread, 2 * Q * cap, sizeof *e->spread);
    err |= own(&e->recent_at, H, sizeof *e->recent_at);
    err |= own(&e->anchor, H * D, sizeof *e->anchor);
    err |= own(&e->counted, kv, sizeof *e->counted);
    err |= own(&e->n_counted, H, sizeof *e->n_counted);
    err |= own(&e->note, kv, sizeof *e->note);
    err |= own(&e->keys, kv * D, sizeof *e->keys);
    err |= own(&e->norms, kv, sizeof *e->norms);
    err |= own(&e->history, kv, sizeof *e->history);
    err |= own(&e->gate, kv, sizeof *e->gate);
    err |= own(&e->values, kv, sizeof *e->values);
    err |= own(&e->n_queries, (size_t)shape->n_layers, sizeof *e->n_queries);
    err |= own(&e->query_sum, Q * D, sizeof *e->query_sum);
    err |= own(&e->query_outer, Q * D * D, sizeof *e->query_outer);
    err |= own(&e->full_sum, Q * cap, sizeof *e->full_sum);
    err |= own(&e->full_row, Q * cap, sizeof *e->full_row);
    err |= own_pages(&e->pages);
    return err ? KVF_E_NOMEM : KVF_OK;
}

/* Clears the scratch of decisions, which is allocated when needed. */
static void forget_scratch(struct method_state *s)
{
    s->cap = s->n_threads = 0;
    s->victim = s->pair = NULL;
    s->candidate = s->pooled = NULL;
    s->value = s->scratch = NULL;
    s->keep = NULL;
    s->n_keeps = 0;
    s->go = s->may = NULL;
    s->peaks = NULL;
}

static int fork_one(const struct method_state *from, struct method_state **ret_state)
{
    struct method_state *s = MEM_NEW(struct method_state, 1);
    size_t L = (size_t)from->shape.n_layers, n = L * (size_t)from->shape.n_kv_heads;
    if (!s)
        return KVF_E_NOMEM;
    *s = *from;
    s->method = &s->row;
    s->next = NULL;
    forget_scratch(s);
    int err = own(&s->owned, n, sizeof *s->owned);
    err |= own(&s->protect, (size_t)s->n_protect + 1, sizeof *s->protect);
    err |= own(&s->share, L, sizeof *s->share);
    err |= own(&s->head_share, n, sizeof *s->head_share);
    err |= own(&s->share_weight, L, sizeof *s->share_weight);
    err |= own(&s->share_scratch, L, sizeof *s->share_scratch);
    err |= own(&s->due, n, sizeof *s->due);
    err |= own(&s->target, n, sizeof *s->target);
    err |= own(&s->over, n, sizeof *s->over);
    err |= own(&s->n_listed, n, sizeof *s->n_listed);
    err |= own(&s->heap, n, sizeof *s->heap);
    err |= own(&s->n_candidates, n, sizeof *s->n_candidates);
    err |= own(&s->n_cut, n, sizeof *s->n_cut);
    err |= own(&s->lows, n, sizeof *s->lows);
    err |= own_evidence(&s->evidence);
    *ret_state = s;
    return err ? KVF_E_NOMEM : KVF_OK;
}

int method_state_fork(const struct method_state *from, struct method_state **ret_state)
{
    struct method_state *first = NULL, **next = &first;
    for (; from; from = from->next) {
        int err = fork_one(from, next);
        if (err) {
            method_state_destroy(first);
            return err;
        }
        next = &(*next)->next;
    }
    *ret_state = first;
    return KVF_OK;
}

bool method_shares_prompt(const struct method *m, const struct method_params *p)
{
    unsigned watched = EVIDENCE_SUM | EVIDENCE_WINDOW | EVIDENCE_KEYS | EVIDENCE_NORMS
                       | EVIDENCE_HISTORY | EVIDENCE_VALUES | EVIDENCE_PAGES | EVIDENCE_ANCHOR
                       | EVIDENCE_NOTE | EVIDENCE_GATE;
    unsigned evidence = m->read->evidence | (m->score ? m->score->evidence : 0);
    bool as_full = !m->admission->until && p->chunk == 0 && p->positions == POSITIONS_ORIGINAL
                   && !method_per_query_head(m, p);
    return as_full && !(evidence & ~watched);
}
