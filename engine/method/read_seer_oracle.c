/* read_seer_oracle.c - blocks with the largest attention weights, which block gates learn to
 * predict. */
#include <math.h>

#include "engine/method/parts.h"

/* Scores a block by the largest weight that any query head of the group gives to one of its
 * entries.
 */
static void eval(const struct read_input *in, float *out, float *scratch)
{
    int n = in->view.n, page = method_params_of(in->m)->page;
    const struct model_config *model = method_inputs_of(in->m)->model;
    int D = method_shape_of(in->m)->head_dim;
    float scale = model ? model->attn_scale : 1.0f / sqrtf((float)D);
    size_t ld = ((size_t)n + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS;
    for (int b = 0; b < in->n_pages; b++)
        out[b] = 0;
    for (int g = 0; g < in->n_q; g++) {
        for (int p = 0; p * PAGE_SLOTS < n; p++) {
            const struct kv_keys keys = {.page = cache_keys(&in->view, p), .type = in->kv_type};
            in->kernels->attn_qk(scratch + p * PAGE_SLOTS, ld, in->q + g * D, (size_t)D, 1, D,
                                 &keys, scale);
        }
        if (model && model->attn_cap > 0)
            in->kernels->soft_cap(scratch, n, model->attn_cap);
        in->kernels->softmax(scratch, n, NULL);
        for (int i = 0; i < n; i++)
            out[i / page] = fmaxf(out[i / page], scratch[i]);
    }
}

const struct read read_seer_oracle = {.name = "seer-oracle",
                                      .cost = "g D n",
                                      .summary = "blocks with the largest attention weights",
                                      .shared = true,
                                      .uses = USES_PAGE,
                                      .eval = eval};
