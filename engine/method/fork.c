/* fork.c - a second method state with the same memory. */
#include <string.h>

#include "base/mem.h"
#include "engine/method/parts.h"
#include "engine/method/state.h"

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

/* Each pointer of e becomes a copy; those that could not be copied are NULL. */
static int own_evidence(struct evidence *e)
{
    const struct method_shape *shape = &e->shape;
    size_t Q = (size_t)shape->n_layers * (size_t)shape->n_heads, cap = (size_t)e->cap;
    size_t kv = (size_t)shape->n_layers * (size_t)shape->n_kv_heads * cap;
    size_t rows = Q * (size_t)e->window;
    int err = own(&e->sum, Q * cap, sizeof *e->sum);
    err |= own(&e->rows, rows * cap, sizeof *e->rows);
    err |= own(&e->n_rows, Q, sizeof *e->n_rows);
    err |= own(&e->row_t, rows, sizeof *e->row_t);
    err |= own(&e->row_n, rows, sizeof *e->row_n);
    err |= own(&e->keys, kv * (size_t)shape->head_dim, sizeof *e->keys);
    err |= own(&e->norms, kv, sizeof *e->norms);
    err |= own(&e->history, kv, sizeof *e->history);
    return err ? KVF_E_NOMEM : KVF_OK;
}

int method_state_fork(const struct method_state *from, struct method_state **ret_state)
{
    struct method_state *s = MEM_NEW(struct method_state, 1);
    size_t L = (size_t)from->shape.n_layers;
    if (!s)
        return KVF_E_NOMEM;
    *s = *from;
    s->cap = s->n_threads = 0; /* what decisions are made in is made when it is needed */
    s->victim = NULL;
    s->value = NULL;
    s->keep = NULL;
    s->scratch = NULL;
    int err = own(&s->share, L, sizeof *s->share);
    err |= own(&s->share_scratch, L, sizeof *s->share_scratch);
    err |= own(&s->n_cut, L * (size_t)s->shape.n_kv_heads, sizeof *s->n_cut);
    err |= own_evidence(&s->evidence);
    if (err) {
        method_state_destroy(s);
        return KVF_E_NOMEM;
    }
    *ret_state = s;
    return KVF_OK;
}

bool method_shares_prompt(const struct method *m, const struct method_params *p)
{
    (void)p;
    return m->admission == &admission_all && m->read->all;
}
