/* read_seer.c - blocks that trained block gates choose (SeerAttention-R). */
#include "engine/method/parts.h"
#include "engine/method/state.h"

/* Gates foresee the attention that a block will get (SeerAttention-R). */
static void eval(const struct read_input *in, float *out, float *scratch)
{
    const struct pages *p = &in->m->evidence.pages;
    int at = in->layer * method_shape_of(in->m)->n_kv_heads + in->head;
    size_t dim = (size_t)p->gate_dim;
    float *q = scratch, *rest = scratch + (dim + 15) / 16 * 16;
    gates_block_query(p->gates, in->layer, in->head, in->q_pre, in->t, q, rest);
    for (int b = 0; b < in->n_pages; b++) {
        bool full = (b + 1) * p->size <= in->view.n;
        const float *k = p->key + ((size_t)at * (size_t)p->cap + (size_t)b) * dim;
        out[b] = full ? gates_block_logit(p->gates, q, k) : 0;
    }
}

const struct read read_seer = {.name = "seer",
                               .cost = "d n / p",
                               .summary = "blocks that trained gates select",
                               .shared = true,
                               .uses = USES_PAGE,
                               .evidence = EVIDENCE_BLOCKS,
                               .gates = 1u << GATE_BLOCKS,
                               .eval = eval};
