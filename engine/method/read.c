/* read.c - which pages of what is held a query after the prompt reads.  A page is
 * `page` neighbours in order of time.  Pages with one of the newest entries are
 * always read and count; the best of the others follow, later pages first among
 * equals. */
#include <math.h>

#include "engine/method/parts.h"
#include "engine/method/state.h"

const struct read read_all = {
    .name = "all", .summary = "every query reads every kept entry", .all = true};

/* U_b = sum_c max(q_c m_bc, q_c M_bc) >= q . k for every key k of page b (Quest, Tang
 * et al. 2024); the largest over the query heads that decide together. */
static void eval_quest(const struct read_input *in, float *out, float *scratch)
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
                u += fmaxf(q[d] * least[d], q[d] * most[d]);
            out[b] = fmaxf(out[b], u);
        }
    }
}

const struct read read_quest = {.name = "quest",
                                .cost = "g D n / p",
                                .summary = "pages whose keys could have the largest logits",
                                .uses = USES_PAGE | USES_GROUP,
                                .evidence = EVIDENCE_PAGES,
                                .eval = eval_quest};

/* Gates foresee the attention that a block will get (SeerAttention-R). */
static void eval_seer(const struct read_input *in, float *out, float *scratch)
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
                               .summary = "blocks that the block gates choose",
                               .shared = true,
                               .uses = USES_PAGE,
                               .evidence = EVIDENCE_BLOCKS,
                               .gates = 1u << GATE_BLOCKS,
                               .eval = eval_seer};

/* The largest weight that any query head of the group gives to an entry of the block:
 * what the gates are trained to foresee. */
static void eval_seer_oracle(const struct read_input *in, float *out, float *scratch)
{
    int n = in->view.n, page = method_params_of(in->m)->page;
    int D = method_shape_of(in->m)->head_dim;
    size_t ld = ((size_t)n + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS;
    for (int b = 0; b < in->n_pages; b++)
        out[b] = 0;
    for (int g = 0; g < in->n_q; g++) {
        for (int p = 0; p * PAGE_SLOTS < n; p++)
            in->kernels->attn_qk(scratch + p * PAGE_SLOTS, ld, in->q + g * D, (size_t)D, 1, D,
                                 cache_keys(&in->view, p), in->kv_type, 1.0f / sqrtf((float)D));
        in->kernels->softmax(scratch, n, NULL);
        for (int i = 0; i < n; i++)
            out[i / page] = fmaxf(out[i / page], scratch[i]);
    }
}

const struct read read_seer_oracle = {.name = "seer-oracle",
                                      .cost = "g D n",
                                      .summary = "blocks that hold the largest weights",
                                      .shared = true,
                                      .uses = USES_PAGE,
                                      .eval = eval_seer_oracle};

const struct read *const read_table[] = {&read_all, &read_quest, &read_seer, &read_seer_oracle,
                                         NULL};

static const struct method_state *reader(const struct method_state *s, int layer, int head)
{
    while (s && !method_owns(s, layer, head))
        s = s->next;
    return s && !s->method->read->all && layer >= s->params.dense ? s : NULL;
}

bool method_reads_pages(const struct method_state *s, int layer, int head)
{
    return reader(s, layer, head) != NULL;
}

size_t method_read_scratch(const struct method_state *s, int slots)
{
    size_t need = 0, pages = (size_t)slots; /* pages of one entry are the most */
    for (; s; s = s->next) {
        size_t own = s->inputs.gates ? gates_scratch(s->inputs.gates) : 0;
        own += (size_t)s->evidence.pages.gate_dim + 64 + (size_t)slots + PAGE_SLOTS;
        own += pages * (1 + sizeof(struct candidate) / sizeof(float)) + 32;
        if (!s->method->read->all && own > need)
            need = own;
    }
    return (need + 15) / 16 * 16;
}

/* Marks the pages for n_q query heads that decide together. */
static void choose(const struct read_input *in, int k, int newest, unsigned char *chosen, size_t ld,
                   float *scratch)
{
    size_t room = ((size_t)in->n_pages + 15) / 16 * 16;
    struct candidate *c = (struct candidate *)(void *)(scratch + room);
    float *rest = scratch + room + room * (sizeof *c / sizeof *scratch);
    int more = k - (in->n_pages - newest);
    in->m->method->read->eval(in, scratch, rest);
    for (int b = 0; b < newest; b++)
        c[b] = (struct candidate){isnan(scratch[b]) ? -INFINITY : scratch[b], b, 0, 0};
    int lost = newest - (more > 0 ? more : 0);
    select_worst(c, newest, lost, false);
    for (int b = 0; b < in->n_pages; b++)
        chosen[b] = 1;
    for (int i = 0; i < lost; i++)
        chosen[c[i].pos] = 0;
    for (int g = 1; g < in->n_q; g++)
        for (int b = 0; b < in->n_pages; b++)
            chosen[(size_t)g * ld + (size_t)b] = chosen[b];
}

int method_read(const struct read_input *given, unsigned char *chosen, size_t ld, float *scratch)
{
    struct read_input in = *given;
    in.m = reader(given->m, in.layer, in.head);
    const struct method_params *p = &in.m->params;
    int n = in.view.n, page = p->page, k = p->budget / page > 1 ? p->budget / page : 1;
    if (n <= p->budget || n <= (int64_t)k * page)
        return 0;
    int local = in.m->method->admission->uses & USES_LOCAL && p->local > 1 ? p->local : 1;
    in.n_pages = (n + page - 1) / page;
    int newest = local >= n ? 0 : (n - local) / page; /* pages from here on are forced */
    if (in.m->method->read->shared || p->group == GROUP_MAX) {
        choose(&in, k, newest, chosen, ld, scratch);
        return page;
    }
    for (int g = 0; g < given->n_q; g++) {
        in.n_q = 1;
        in.q = given->q + g * in.m->shape.head_dim;
        choose(&in, k, newest, chosen + (size_t)g * ld, ld, scratch);
    }
    return page;
}
