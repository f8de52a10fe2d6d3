/* score_keydiff.c - keys that differ from the rest (KeyDiff, Park et al. 2025):
 * score_j = -cos(k_j, a), anchor a = mean of k / |k| over the head's entries
 * (keys after RoPE, as stored). The length of a does not change the order. It is divided out, so
 * that scores of different heads are comparable.
 *
 * evidence.c keeps the exact sum of the unit keys while entries are added and removed. The dot
 * products use the attention kernel. */
#include <math.h>

#include "engine/method/evidence.h"
#include "engine/method/parts.h"

enum { MAX_DIM = 1024 };

/* Returns the keys to prefetch: those of the next page, or the first keys of the next head. */
static const void *keys_behind(const struct score_input *in, int page)
{
    const struct method_shape *shape = method_shape_of(in->m);
    int at = in->layer * shape->n_kv_heads + in->head + 1;
    if ((page + 1) * PAGE_SLOTS < in->view.n)
        return cache_keys(&in->view, page + 1);
    if (at == shape->n_layers * shape->n_kv_heads)
        return NULL;
    struct cache_head view = cache_view(in->cache, at / shape->n_kv_heads, at % shape->n_kv_heads);
    return view.n > 0 ? cache_keys(&view, 0) : NULL;
}

/* out[slot] = a . k over the pages. */
static void dots(const struct score_input *in, const float *a, float *out)
{
    const struct kernels *k = method_kernels(in->m);
    int D = method_shape_of(in->m)->head_dim, n = in->view.n;
    for (int i = 0; i < n; i += PAGE_SLOTS) {
        float last[PAGE_SLOTS];
        bool whole = i + PAGE_SLOTS <= n;
        const struct kv_keys keys = {.page = cache_keys(&in->view, i / PAGE_SLOTS),
                                     .type = cache_type(in->cache),
                                     .next = keys_behind(in, i / PAGE_SLOTS)};
        k->attn_qk(whole ? out + i : last, PAGE_SLOTS, a, (size_t)D, 1, D, &keys, 1);
        for (int j = i; !whole && j < n; j++)
            out[j] = last[j - i];
    }
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const float *norm = evidence_norms(in->m, in->layer, in->head);
    const double *sum = evidence_anchor(in->m, in->layer, in->head, in->view.n);
    int D = method_shape_of(in->m)->head_dim;
    double square = 0;
    float a[MAX_DIM];
    (void)scratch;
    for (int d = 0; d < D; d++)
        square += sum[d] * sum[d];
    double scale = formula_unit_scale(square);
    for (int d = 0; d < D; d++)
        a[d] = (float)(sum[d] * scale);
    dots(in, a, out);
    for (int i = 0; i < in->view.n; i++)
        out[i] = formula_keydiff(out[i], norm[i]);
}

const struct score score_keydiff = {
    .name = "keydiff",
    .cost = "n D",
    .summary = "cosine distance of the key from the mean key",
    .evidence = EVIDENCE_KEYS | EVIDENCE_NORMS | EVIDENCE_ANCHOR,
    .eval = eval,
};
