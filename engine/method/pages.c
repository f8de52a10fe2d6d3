#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/method/method.h"
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

/* [n_heads][old][width] to [n_heads][cap][width]. */
static int widen(float **rows, size_t n_heads, size_t old, size_t cap, size_t width)
{
    size_t per;
    float *q = mem_mul(cap, width * sizeof *q, &per) ? mem_alloc(n_heads, per) : NULL;
    if (!q)
        return KVF_E_NOMEM;
    for (size_t h = 0; *rows && h < n_heads; h++)
        memcpy(q + h * cap * width, *rows + h * old * width, old * width * sizeof *q);
    mem_free(*rows);
    *rows = q;
    return KVF_OK;
}

int pages_reserve(struct pages *p, int slots)
{
    size_t n = (size_t)p->n_heads, D = (size_t)p->dim, old = (size_t)p->cap;
    size_t cap = ((size_t)slots + (size_t)p->size - 1) / (size_t)p->size;
    if ((!p->bounds && !p->gates) || cap <= old)
        return KVF_OK;
    if (p->bounds && !p->valid)
        p->valid = MEM_NEW(int, n);
    if (p->gates && !p->run)
        p->run = MEM_NEW(float, (n * 3 * D));
    if (p->gates && !p->scratch)
        p->scratch = mem_alloc(n, p->scratch_len * sizeof(float));
    if ((p->bounds && !p->valid) || (p->gates && (!p->run || !p->scratch)))
        return KVF_E_NOMEM;
    if (p->bounds && (widen(&p->least, n, old, cap, D) || widen(&p->most, n, old, cap, D)))
        return KVF_E_NOMEM;
    if (p->gates && widen(&p->key, n, old, cap, (size_t)p->gate_dim))
        return KVF_E_NOMEM;
    p->cap = (int)cap;
    return KVF_OK;
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
