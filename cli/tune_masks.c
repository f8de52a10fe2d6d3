/* tune_masks.c - makes masks from evictions (tune_masks.h). */
#include "cli/tune_masks.h"

#include "base/mem.h"
#include "cli/force.h"

/* Checks that the tokens and evictions of a plan can form a pack with a mask. */
static int check_plan(const struct plan *p, const char *path, const struct engine *e, int length,
                      struct kvf_diag *d)
{
    if (!p->ids || !p->evict_step)
        return kvf_fail(d, KVF_E_ARG, "--plan %s: it has no %s; make it without --no-%s", path,
                        p->ids ? "evictions" : "tokens", p->ids ? "evictions" : "tokens");
    if (p->n_kv_heads != e->config.n_kv_heads)
        return kvf_fail(d, KVF_E_ARG,
                        "--plan %s: its run kept entries for each query head; train with the heads "
                        "of the model's cache",
                        path);
    if (p->by_rank)
        return kvf_fail(d, KVF_E_ARG,
                        "--plan %s: its run used positions within the cache, and training uses "
                        "positions of the text",
                        path);
    if (p->n_tokens < 2 || p->n_tokens > length)
        return kvf_fail(d, KVF_E_ARG, "--plan %s: it has %d tokens, and a pack 2 to %d (--length)",
                        path, (int)p->n_tokens, length);
    return KVF_OK;
}

/* Returns the eviction steps [L][H][T] of a plan as [L][T][H], owned by the caller; NULL if memory
 * is exhausted. */
static int32_t *mask_of(const struct plan *p)
{
    size_t L = (size_t)p->n_layers, H = (size_t)p->n_kv_heads, T = (size_t)p->n_tokens;
    int32_t *gone = MEM_NEW(int32_t, (L * H * T));
    for (size_t l = 0; gone && l < L; l++)
        for (size_t h = 0; h < H; h++)
            for (size_t t = 0; t < T; t++) {
                uint32_t step = p->evict_step[(l * H + h) * T + t];
                gone[(l * T + t) * H + h] = step == KVF_ALIVE ? INT32_MAX : (int32_t)step;
            }
    return gone;
}

int tune_plans_open(const struct opt_list *plans, const struct engine *e, int length,
                    struct packs **ret, struct kvf_diag *d)
{
    struct plan_model model = force_model(e);
    struct plan **plan = MEM_NEW(struct plan *, (size_t)plans->n);
    struct packs_text *text = MEM_NEW(struct packs_text, (size_t)plans->n);
    int n = 0, err = plan && text ? KVF_OK : KVF_E_NOMEM;
    for (; !err && n < plans->n; n++) {
        err = plan_open(plans->item[n], &model, &plan[n], d);
        if (!err)
            err = check_plan(plan[n], plans->item[n], e, length, d);
        if (err)
            break;
        text[n] = (struct packs_text){plan[n]->ids, (int)plan[n]->n_tokens, mask_of(plan[n])};
        err = text[n].evicted_at ? KVF_OK : KVF_E_NOMEM;
    }
    if (!err)
        err = packs_gather(text, n, (size_t)e->config.n_layers * (size_t)e->config.n_kv_heads, ret);
    else
        for (int i = 0; text && i < plans->n; i++)
            mem_free(text[i].evicted_at);
    for (int i = 0; plan && i < plans->n; i++)
        plan_close(plan[i]);
    mem_free(plan);
    mem_free(text);
    return err;
}

int tune_check_method(const struct methods *r, const struct engine *e, struct kvf_diag *d)
{
    if (methods_read_pages(r))
        return kvf_fail(d, KVF_E_ARG,
                        "--method %s chooses the entries that each query reads and evicts none, so "
                        "that it gives no mask for training",
                        r->method);
    if (r->cache_heads != e->config.n_kv_heads)
        return kvf_fail(d, KVF_E_ARG,
                        "--method %s keeps entries for each query head; train with the heads of "
                        "the model's cache (without group=none)",
                        r->method);
    return KVF_OK;
}
