/* read.c - selects the pages that a query after the prompt reads.  A page has `page` consecutive
 * cached entries in order of time.  Pages with one of the newest entries are always read and count
 * towards the number of entries that are read.  The pages with the best scores follow, and later
 * pages first among equal scores.  If the read selects entries, each has the score of its page. */
#include <math.h>
#include <string.h>

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

/* Marks the `most` best entries, for all query heads of a KV head.  If a page does not fit
 * completely, its newest entries are read. */
static void choose_entries(const struct read_input *in, int most, unsigned char *chosen, size_t ld,
                           float *scratch)
{
    size_t room = ((size_t)in->n_pages + 15) / 16 * 16;
    struct candidate *c = (struct candidate *)(void *)(scratch + room);
    float *rest = scratch + room + room * (sizeof *c / sizeof *scratch);
    int n = in->view.n, page = in->m->params.page;
    in->m->method->read->eval(in, scratch, rest);
    for (int b = 0; b < in->n_pages; b++)
        c[b] = (struct candidate){isnan(scratch[b]) ? -INFINITY : scratch[b], b, 0, 0};
    select_order(c, in->n_pages, TIE_NEWER);
    memset(chosen, 0, (size_t)n);
    for (int i = in->n_pages - 1; i >= 0 && most > 0; i--) {
        int end = (c[i].pos + 1) * page < n ? (c[i].pos + 1) * page : n;
        int some = end - c[i].pos * page < most ? end - c[i].pos * page : most;
        memset(chosen + end - some, 1, (size_t)some);
        most -= some;
    }
    for (int g = 1; g < in->n_q; g++)
        memcpy(chosen + (size_t)g * ld, chosen, (size_t)n);
}

int method_read(const struct read_input *given, unsigned char *chosen, size_t ld, float *scratch)
{
    struct read_input in = *given;
    in.m = reader(given->m, in.layer, in.head);
    const struct method *m = in.m->method;
    const struct method_params *p = &in.m->params;
    int n = in.view.n, page = p->page, most = method_reads_most(m, p, in.t);
    int k = most / page > 1 ? most / page : 1;
    in.n_pages = (n + page - 1) / page;
    if (n <= most || (!m->read->entries && n <= (int64_t)k * page))
        return 0;
    if (m->read->entries) {
        choose_entries(&in, most, chosen, ld, scratch);
        return 1;
    }
    int local = m->admission->uses & USES_LOCAL && p->local > 1 ? p->local : 1;
    int newest = local >= n ? 0 : (n - local) / page; /* pages from here on are forced */
    if (method_reads_together(m, p)) {
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
