/* pages.c - keeps bounds of the keys of each page, for methods that read pages (pages.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/method/parts.h"
#include "engine/method/pages.h"

void pages_init(struct pages *p, unsigned kinds, int size, int n_heads, int dim,
                const struct gates *gates)
{
    *p = (struct pages){.size = size > 0 ? size : 1,
                        .n_heads = n_heads,
                        .dim = dim,
                        .bounds = kinds & EVIDENCE_PAGES};
    if (kinds & EVIDENCE_BLOCKS) {
        p->gates = gates;
        p->gate_dim = gates_gate_dim(gates);
        p->scratch_len = (gates_scratch(gates) + (size_t)dim + 15) / 16 * 16;
    }
}

void pages_finish(struct pages *p)
{
    mem_free(p->least);
    mem_free(p->most);
    mem_free(p->valid);
    mem_free(p->run);
    mem_free(p->key);
    mem_free(p->scratch);
}

/* Before the first entry. */
static int begin(struct pages *p)
{
    size_t n = (size_t)p->n_heads;
    if (p->bounds && !p->valid)
        p->valid = MEM_NEW(int, n);
    if (p->gates && !p->run)
        p->run = MEM_NEW(float, (n * 3 * (size_t)p->dim));
    if (p->gates && !p->scratch)
        p->scratch = mem_alloc(n, p->scratch_len * sizeof(float));
    bool short_of = (p->bounds && !p->valid) || (p->gates && (!p->run || !p->scratch));
    return short_of ? KVF_E_NOMEM : KVF_OK;
}

int pages_reserve(struct pages *p, int slots)
{
    size_t n = (size_t)p->n_heads, D = (size_t)p->dim, d = (size_t)p->gate_dim;
    const struct mem_rows least = {&p->least, n, D, sizeof *p->least};
    const struct mem_rows most = {&p->most, n, D, sizeof *p->most};
    const struct mem_rows key = {&p->key, n, d, sizeof *p->key};
    struct mem_rows kept[3];
    int n_kept = 0, cap = (slots + p->size - 1) / p->size;
    if ((!p->bounds && !p->gates) || cap <= p->cap)
        return KVF_OK;
    if (p->bounds) {
        kept[n_kept++] = least;
        kept[n_kept++] = most;
    }
    if (p->gates)
        kept[n_kept++] = key;
    int err = begin(p);
    if (!err && !mem_widen(kept, n_kept, (size_t)p->cap, (size_t)cap))
        err = KVF_E_NOMEM;
    if (!err)
        p->cap = cap;
    return err;
}

void pages_changed(struct pages *p, int head, int slot)
{
    if (p->valid && slot < p->valid[head])
        p->valid[head] = slot;
}

void pages_update(struct pages *p, const struct cache *c, int layer, int head, int at, int n)
{
    enum { MAX_DIM = 1024 };
    float key[MAX_DIM];
    if (p->valid[at] > n)
        p->valid[at] = n;
    for (int s = p->valid[at] / p->size * p->size; s < n; s++) {
        size_t page = ((size_t)at * (size_t)p->cap + (size_t)(s / p->size)) * (size_t)p->dim;
        float *least = p->least + page, *most = p->most + page;
        bool first = s % p->size == 0;
        cache_key(c, layer, head, s, key);
        for (int d = 0; d < p->dim; d++) {
            least[d] = first ? key[d] : fminf(least[d], key[d]);
            most[d] = first ? key[d] : fmaxf(most[d], key[d]);
        }
    }
    p->valid[at] = n;
}

void pages_take_key(struct pages *p, int layer, int head, int n_kv_heads, int slot,
                    const float *k_pre)
{
    size_t at = (size_t)layer * (size_t)n_kv_heads + (size_t)head, D = (size_t)p->dim;
    float *most = p->run + at * 3 * D, *least = most + D, *sum = least + D;
    bool first = slot % p->size == 0;
    for (size_t d = 0; d < D; d++) {
        most[d] = first ? k_pre[d] : fmaxf(most[d], k_pre[d]);
        least[d] = first ? k_pre[d] : fminf(least[d], k_pre[d]);
        sum[d] = first ? k_pre[d] : sum[d] + k_pre[d];
    }
    if ((slot + 1) % p->size != 0)
        return;
    float *scratch = p->scratch + at * p->scratch_len, *avg = scratch + p->scratch_len - D;
    for (size_t d = 0; d < D; d++)
        avg[d] = sum[d] / (float)p->size;
    int block = slot / p->size;
    gates_block_key(p->gates, layer, head, most, least, avg, (int32_t)(block * p->size),
                    p->key + (at * (size_t)p->cap + (size_t)block) * (size_t)p->gate_dim, scratch);
}
