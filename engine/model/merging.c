/* merging.c - merges adjacent nodes with a heap of candidate pairs. */
#include "engine/model/merging.h"

#include <kvf/err.h>

#include "base/mem.h"

enum { GONE = INT32_MIN }; /* the id of a node that was merged into its predecessor */

static bool before(const struct merge_cand *a, const struct merge_cand *b)
{
    return a->key != b->key ? a->key < b->key : a->at < b->at;
}

static void push(struct merge_cand *heap, size_t *n, const struct merge_cand *c)
{
    size_t i = (*n)++;
    for (; i > 0 && before(c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = *c;
}

static struct merge_cand pop(struct merge_cand *heap, size_t *n)
{
    struct merge_cand top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t c = 1; c < *n; c = 2 * i + 1) {
        if (c + 1 < *n && before(&heap[c + 1], &heap[c]))
            c++;
        if (!before(&heap[c], &last))
            break;
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = last;
    return top;
}

int merging_reserve(struct merging *m, size_t n)
{
    if (n > MERGING_MOST)
        return KVF_E_LIMIT;
    if (n <= m->cap)
        return KVF_OK;
    merging_finish(m);
    *m = (struct merging){.cap = n + n / 4};
    m->node = MEM_NEW(struct merge_node, m->cap);
    /* One candidate per pair; each merge removes one and adds two. */
    m->heap = MEM_NEW(struct merge_cand, 2 * m->cap);
    if (m->node && m->heap)
        return KVF_OK;
    m->cap = 0;
    return KVF_E_NOMEM;
}

void merging_finish(struct merging *m)
{
    mem_free_all(m->node, m->heap);
}

struct job {
    struct merging *m;
    merge_find *find;
    const void *ctx;
    size_t n_heap;
};

static void offer(struct job *j, int32_t at)
{
    int32_t next = at >= 0 ? j->m->node[at].next : -1;
    if (next < 0)
        return;
    const struct merge_node *l = &j->m->node[at], *r = &j->m->node[next];
    struct merge_cand c = {0, at, l->id, r->id, 0};
    if (j->find(j->ctx, l, r, &c))
        push(j->m->heap, &j->n_heap, &c);
}

void merging_run(struct merging *m, size_t n, merge_find *find, const void *ctx)
{
    struct job j = {m, find, ctx, 0};
    for (size_t i = 0; i < n; i++) {
        m->node[i].prev = (int32_t)i - 1;
        m->node[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < n; i++)
        offer(&j, (int32_t)i);
    while (j.n_heap) {
        struct merge_cand c = pop(m->heap, &j.n_heap);
        struct merge_node *l = &m->node[c.at];
        if (l->id != c.left || l->next < 0 || m->node[l->next].id != c.right)
            continue; /* outdated by another merge */
        struct merge_node *r = &m->node[l->next];
        l->id = c.result;
        l->len += r->len;
        l->next = r->next;
        r->id = GONE;
        if (l->next >= 0)
            m->node[l->next].prev = c.at;
        offer(&j, l->prev);
        offer(&j, c.at);
    }
}
