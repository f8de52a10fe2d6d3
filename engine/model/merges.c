/* merges.c - loads the list of merges of a file. */
#include "engine/model/merges.h"

#include <string.h>

#include "base/mem.h"

enum { MOST_MERGES = 1 << 22 };

static const char merges_key[] = "tokenizer.ggml.merges";

static size_t merge_slot(const struct merges *m, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & (m->n_slots - 1);
    while (m->merge[at].left >= 0 && (m->merge[at].left != left || m->merge[at].right != right))
        at = (at + 1) & (m->n_slots - 1);
    return at;
}

/* A table that is being filled. */
struct loader {
    struct merges *m;
    const struct names *spelled;
    int64_t bad; /* first merge with an unknown token; -1 if none */
};

static void on_merge(void *ctx, int64_t i, const char *s, size_t len)
{
    struct loader *l = ctx;
    const char *gap = len > 2 ? memchr(s + 1, ' ', len - 2) : NULL;
    int32_t left = -1, right = -1, result = -1;
    char joined[1024];
    if (gap && len - 1 <= sizeof joined) {
        size_t a = (size_t)(gap - s), b = len - a - 1;
        left = names_find(l->spelled, (struct piece){s, a});
        right = names_find(l->spelled, (struct piece){gap + 1, b});
        memcpy(joined, s, a);
        memcpy(joined + a, gap + 1, b);
        result = names_find(l->spelled, (struct piece){joined, a + b});
    }
    if (left < 0 || right < 0 || result < 0) {
        if (l->bad < 0)
            l->bad = i;
        return;
    }
    struct merge *m = &l->m->merge[merge_slot(l->m, left, right)];
    if (m->left < 0)
        *m = (struct merge){left, right, (int32_t)i, result};
}

static int alloc_merges(struct merges *m, int64_t n)
{
    m->n_slots = 1024;
    while (m->n_slots < 2 * (size_t)n + 2)
        m->n_slots *= 2;
    m->merge = MEM_NEW(struct merge, m->n_slots);
    if (!m->merge)
        return KVF_E_NOMEM;
    memset(m->merge, 0xff, m->n_slots * sizeof *m->merge);
    return KVF_OK;
}

int merges_load(struct merges *m, const struct gguf *g, const struct names *spelled,
                struct kvf_diag *d)
{
    struct loader l = {m, spelled, -1};
    int64_t n = gguf_array_strings(g, merges_key);
    if (n < 0 || n > MOST_MERGES)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the tokenizer's merges are missing, or over %d",
                        gguf_path(g), MOST_MERGES);
    int err = alloc_merges(m, n);
    if (err)
        return err;
    gguf_each_str(g, merges_key, on_merge, &l);
    if (l.bad >= 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s: merge %lld names no tokens", gguf_path(g),
                        (long long)l.bad);
    return KVF_OK;
}

void merges_finish(struct merges *m)
{
    mem_free(m->merge);
}

bool merges_find(const struct merges *m, int32_t left, int32_t right, struct merge_cand *ret)
{
    if (left < 0 || right < 0)
        return false;
    const struct merge *found = &m->merge[merge_slot(m, left, right)];
    ret->key = found->rank;
    ret->result = found->result;
    return found->left >= 0;
}
