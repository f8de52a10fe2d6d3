/* read.c - selects the pages that a query after the prompt reads.  A page has `page` consecutive
 * entries in order of time.  Pages with one of the newest entries are always read and count towards
 * the budget.  The pages with the best scores follow, and later pages first among equal scores. */
#include <math.h>

#include "engine/method/state.h"

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
    select_worst(c, newest, lost, TIE_NEWER);
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
    int n = in.view.n, page = p->page, budget = method_budget_at(p, in.t + 1);
    int k = budget / page > 1 ? budget / page : 1;
    if (n <= budget || n <= (int64_t)k * page)
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
