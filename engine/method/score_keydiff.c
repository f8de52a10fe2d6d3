/* score_keydiff.c - keys that differ from the rest (KeyDiff, Park et al. 2025):
 * score_j = -cos(k_j, a), anchor a = mean of k / |k| over the head's entries
 * (keys after RoPE, as stored).  The length of a does not matter for the order,
 * but it is divided out so that scores are comparable.
 *
 * The sum of the unit keys follows the entries as they come and go, exactly
 * (evidence.c); the products with the keys are those of the attention. */
#include <math.h>

#include "engine/method/evidence.h"
#include "engine/method/parts.h"

enum { MAX_DIM = 1024 };

/* out[slot] = a . k over the pages; scratch: as many floats as a page has slots. */
static void dots(const struct score_input *in, const float *a, float *out)
{
    const struct kernels *k = method_kernels(in->m);
    int D = method_shape_of(in->m)->head_dim, n = in->view.n, full = n / PAGE_SLOTS * PAGE_SLOTS;
    enum kv_type type = cache_type(in->cache);
    for (int i = 0; i < full; i += PAGE_SLOTS) {
        const struct kv_keys keys = {.page = cache_keys(&in->view, i / PAGE_SLOTS), .type = type};
        if (i + PAGE_SLOTS < n) /* the processor looks ahead no further than a page of memory */
            evidence_ask_bytes(cache_keys(&in->view, i / PAGE_SLOTS + 1), kv_half_bytes(type, D));
        k->attn_qk(out + i, PAGE_SLOTS, a, (size_t)D, 1, D, &keys, 1);
    }
    if (full < n) {
        float last[PAGE_SLOTS];
        const struct kv_keys keys = {.page = cache_keys(&in->view, full / PAGE_SLOTS),
                                     .type = type};
        k->attn_qk(last, PAGE_SLOTS, a, (size_t)D, 1, D, &keys, 1);
        for (int i = full; i < n; i++)
            out[i] = last[i - full];
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
    double scale = square > 0 ? 1.0 / sqrt(square) : 0;
    for (int d = 0; d < D; d++)
        a[d] = (float)(sum[d] * scale);
    dots(in, a, out);
    for (int i = 0; i < in->view.n; i++)
        out[i] = norm[i] > 0 ? -out[i] / norm[i] : 0;
}

const struct score score_keydiff = {
    .name = "keydiff",
    .cost = "n D",
    .summary = "distance of the key from the mean direction of all keys",
    .evidence = EVIDENCE_KEYS | EVIDENCE_NORMS | EVIDENCE_ANCHOR,
    .eval = eval,
};
