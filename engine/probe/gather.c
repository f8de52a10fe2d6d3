/* gather.c - collects consecutive attention rows of a head for probes. */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/gather.h"
#include "engine/probe/probes.h"

enum { STEP_ROWS = 8 };

struct collected {
    bool open; /* for blocks of a thread: rows stay in place */
    struct probe_rows rows;
    struct row_cut cut[PROBE_GROUP_ROWS][KVF_N_CRITERIA];
};

struct gather {
    struct probe_state *state;
    int n_states;
    const struct probe_config *cfg;
    struct collected *block; /* [n_threads] */
    struct collected *step;  /* [L*G] */
    float *copy;             /* [L*G][STEP_ROWS][cap]; NULL: rows of steps are not collected */
};

int gather_create(struct probe_state *state, int n, const struct probe_config *cfg, int n_threads,
                  struct gather **ret_gather)
{
    struct gather *g = MEM_NEW(struct gather, 1);
    size_t heads = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads;
    bool any = false;
    if (!g)
        return KVF_E_NOMEM;
    *g = (struct gather){.state = state, .n_states = n, .cfg = cfg};
    for (int i = 0; i < n; i++)
        any |= state[i].probe->rows != NULL;
    bool steps = any && !cfg->evicts;
    if (any) {
        g->block = MEM_NEW(struct collected, (size_t)n_threads);
        g->step = MEM_NEW(struct collected, heads);
    }
    if (steps) /* unused pages occupy no physical memory */
        g->copy = mem_alloc_raw(heads * STEP_ROWS, (size_t)cfg->cap * sizeof *g->copy);
    if (any && (!g->block || !g->step || (steps && !g->copy))) {
        gather_free(g);
        return KVF_E_NOMEM;
    }
    *ret_gather = g;
    return KVF_OK;
}

void gather_free(struct gather *g)
{
    if (!g)
        return;
    mem_free_all(g->block, g->step, g->copy, g);
}

static void report_rows(struct gather *g, struct collected *h)
{
    if (h->rows.w.n_rows == 0)
        return;
    h->rows.cut = h->cut[0];
    for (int i = 0; i < g->n_states; i++)
        if (g->state[i].probe->rows && !g->state[i].away)
            g->state[i].probe->rows(&g->state[i], &h->rows);
    h->rows.w.n_rows = 0;
}

/* Returns true if the row follows the collected rows. */
static bool follows(const struct collected *h, const struct probe_row *row)
{
    const struct probe_rows *b = &h->rows;
    int n = b->w.n_rows;
    return b->layer == row->layer && b->head == row->head && row->t == b->t + n
           && row->n == b->w.n + n;
}

/* Returns true if the row continues the rows in place, which are at equal strides. */
static bool in_place(const struct collected *h, const struct probe_row *row)
{
    int n = h->rows.w.n_rows;
    return n == 1 ? row->p > h->rows.w.p : row->p == h->rows.w.p + (size_t)n * h->rows.w.ld;
}

void gather_open(struct gather *g, int thread)
{
    if (g->block)
        g->block[thread].open = true;
}

void gather_close(struct gather *g, int thread)
{
    if (!g->block)
        return;
    report_rows(g, &g->block[thread]);
    g->block[thread].open = false;
}

void gather_expect(struct gather *g, struct probe_row *row, int thread)
{
    row->gathered = false;
    if (!g->block)
        return;
    struct collected *block = &g->block[thread];
    struct collected *step = &g->step[probe_query_index(g->cfg, row->layer, row->head)];
    bool stays = block->open, copied = !stays && row->stepping && g->copy;
    if (!stays || row->pos || !follows(block, row) || !in_place(block, row))
        report_rows(g, block);
    if (!copied || row->pos || !follows(step, row))
        report_rows(g, step);
    row->gathered = !row->pos && (stays || copied);
}

static void add_row(struct collected *h, const struct probe_row *row, const float *p, size_t ld)
{
    struct weight_rows *w = &h->rows.w;
    if (w->n_rows == 0)
        h->rows = (struct probe_rows){
            .layer = row->layer, .head = row->head, .t = row->t, .w = {.p = p, .n = row->n}};
    w->ld = w->n_rows > 0 ? ld : 0;
    if (row->cuts->known)
        memcpy(h->cut[w->n_rows], row->cuts->cut, sizeof *h->cut);
    w->n_rows++;
}

void gather_take(struct gather *g, const struct probe_row *row, int thread)
{
    if (!row->gathered)
        return;
    struct collected *h = &g->block[thread];
    size_t cap = (size_t)g->cfg->cap;
    int most = PROBE_GROUP_ROWS;
    if (h->open) {
        int n = h->rows.w.n_rows;
        add_row(h, row, row->p, n == 1 ? (size_t)(row->p - h->rows.w.p) : h->rows.w.ld);
    } else {
        size_t at = probe_query_index(g->cfg, row->layer, row->head);
        h = &g->step[at];
        float *to = g->copy + (at * STEP_ROWS + (size_t)h->rows.w.n_rows) * cap;
        memcpy(to, row->p, (size_t)row->n * sizeof *to);
        add_row(h, row, to, cap);
        most = STEP_ROWS;
        for (int r = 0; r < h->rows.w.n_rows - 1; r++) /* pads the preceding rows with 0 */
            g->copy[(at * STEP_ROWS + (size_t)r) * cap + (size_t)row->n - 1] = 0;
    }
    if (h->rows.w.n_rows == most)
        report_rows(g, h);
}

void gather_settle(struct gather *g)
{
    size_t heads = (size_t)g->cfg->shape.n_layers * (size_t)g->cfg->shape.n_heads;
    for (size_t i = 0; g->step && i < heads; i++)
        report_rows(g, &g->step[i]);
}
