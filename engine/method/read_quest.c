/* read_quest.c - pages whose keys could have the largest logits (Quest). */
#include <math.h>

#include "engine/method/parts.h"
#include "engine/method/state.h"

/* U_b = sum_c max(q_c m_bc, q_c M_bc) >= q . k for every key k of page b (Quest, Tang
 * et al. 2024); the largest over the query heads that decide together. */
static void eval(const struct read_input *in, float *out, float *scratch)
{
    struct pages *p = &((struct method_state *)in->m)->evidence.pages;
    int D = p->dim, at = in->layer * method_shape_of(in->m)->n_kv_heads + in->head;
    (void)scratch;
    pages_update(p, in->cache, in->layer, in->head, at, in->view.n);
    for (int b = 0; b < in->n_pages; b++) {
        size_t page = ((size_t)at * (size_t)p->cap + (size_t)b) * (size_t)D;
        const float *least = p->least + page, *most = p->most + page;
        out[b] = -INFINITY;
        for (int g = 0; g < in->n_q; g++) {
            const float *q = in->q + g * D;
            float u = 0;
            for (int d = 0; d < D; d++)
                u += formula_page_bound(q[d], least[d], most[d]);
            out[b] = fmaxf(out[b], u);
        }
    }
}

const struct read read_quest = {.name = "quest",
                                .cost = "g D n / p",
                                .summary = "pages with the largest upper bound of the logits",
                                .uses = USES_PAGE | USES_GROUP,
                                .evidence = EVIDENCE_PAGES,
                                .eval = eval};
