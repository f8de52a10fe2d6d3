/* peaks_state.c - creates, copies and frees the state of peaks.c (peaks.h). */
#include "base/mem.h"
#include "engine/method/peaks.h"

bool peaks_kept(const struct method *m, const struct method_params *p)
{
    return m->score && m->score->peaks && m->scope == SCOPE_HEAD && m->allocation->pool == POOL_HEAD
           && p->across == ACROSS_MAX && p->support == SUPPORT_CANDIDATES
           && p->group != GROUP_MAX_LOGITS && p->pool <= 1 && p->every <= PEAKS_CUTS
           && p->window >= 2 * PEAKS_STEPS;
}

int peaks_create(const struct method_state *s, struct peaks_state **ret)
{
    size_t heads = (size_t)s->shape.n_layers * (size_t)s->shape.n_kv_heads;
    size_t rows = (size_t)(s->shape.n_heads / s->shape.n_kv_heads) * (size_t)s->evidence.ring;
    struct peaks_state *p = MEM_NEW(struct peaks_state, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->rows = (int)rows;
    p->head = MEM_NEW(struct peaks, heads);
    p->sum = MEM_NEW(double, heads *rows * 2);
    p->scale = MEM_NEW(float, heads *rows * 2);
    p->column = mem_alloc_spread(heads * rows * PEAKS, sizeof *p->column);
    if (!p->head || !p->sum || !p->scale || !p->column) {
        peaks_destroy(p);
        return KVF_E_NOMEM;
    }
    for (size_t i = 0; i < heads; i++)
        p->head[i].known = -1;
    *ret = p;
    return KVF_OK;
}

void peaks_destroy(struct peaks_state *p)
{
    if (!p)
        return;
    mem_free(p->head);
    mem_free(p->sum);
    mem_free(p->scale);
    mem_free(p->column);
    mem_free(p);
}
