/* probe_calibration.c - data that the age of the last selection does not contain: selection of a
 * token at the ages 1, 2, 4, ..., and the first age without selection. Together with last_selected
 * this is the input of the calibration of retention gates. */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_CRITERIA = KVF_N_CRITERIA, AT = 0, FIRST = 1, PER_CRITERION = 2 };

/* Bit k of AT: selected at age 2^k. FIRST: number of queries from birth on that all selected it. */
#define COLUMN(name, dtype, flags, unit)                                                           \
    .column = {name, dtype, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | flags, unit}
#define X(name)                                                                                    \
    {COLUMN("selected_at." #name, KVF_U32, 0, "")},                                                \
        {COLUMN("first_unselected." #name, PROBE_STEPS, KVF_COL_AGE, "step"),                      \
         .kept = PROBE_BY_VALUES},
static const struct probe_array arrays[PER_CRITERION * N_CRITERIA] = {KVF_CRITERIA_MAP(X)};
#undef X

static void take_ages(uint32_t *at, const struct probe_row *row, const struct row_cut *cut)
{
    for (int k = 0; k < 31 && (int32_t)1 << k <= row->t; k++) {
        int32_t pos = row->t - ((int32_t)1 << k);
        int i = probe_find(row, pos);
        if (i >= 0 && row_cut_has(cut, row->p[i], i))
            at[pos] |= (uint32_t)1 << k;
    }
}

/* The tokens that all queries so far have selected. They follow from the counts: a count equals the
 * age of its token. Few tokens are among them, so a row visits only these. */
struct state {
    size_t words;   /* of a set: cap bits */
    int32_t *next;  /* [L*G] query for which the sets of a head hold; another one needs refill */
    uint64_t *kept; /* [L*G][N_CRITERIA][words] bit i: all queries before `next` selected token i */
};

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    mem_free_all(own->next, own->kept, own);
}

static int open_state(struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->words = ((size_t)s->cfg->cap + 63) / 64;
    own->next = MEM_NEW(int32_t, heads);
    own->kept = MEM_NEW(uint64_t, (heads * N_CRITERIA * own->words));
    return own->next && own->kept ? KVF_OK : KVF_E_NOMEM;
}

/* Sets the bits of the tokens before t whose counts equal their ages. */
static void refill(const struct probe_state *s, const void *first, int32_t t, uint64_t *kept,
                   size_t words)
{
    memset(kept, 0, words * sizeof *kept);
    for (int32_t i = 0; i < t; i++)
        if (probe_get_step(s, first, (size_t)i) == (uint32_t)(t - i))
            kept[i / 64] |= (uint64_t)1 << i % 64;
}

/* Counts the queries that selected a token without interruption. A query that does not see the
 * entry does not select it. */
static void take_first(const struct probe_state *s, void *first, const struct probe_row *row,
                       const struct row_cut *cut, uint64_t *kept)
{
    int32_t t = row->t;
    if (probe_get_step(s, first, (size_t)t) == 0)
        kept[t / 64] |= (uint64_t)1 << t % 64;
    for (int32_t w = 0, i = 0; w <= t / 64; w++)
        for (uint64_t left = kept[w]; left; left &= left - 1) {
            int32_t pos = 64 * w + __builtin_ctzll(left);
            while (row->pos && i < row->n && row->pos[i] < pos)
                i++;
            i = row->pos ? i : pos;
            bool seen = i < row->n && (!row->pos || row->pos[i] == pos);
            if (seen && row_cut_has(cut, row->p[i], i))
                probe_put_step(s, first, (size_t)pos, probe_get_step(s, first, (size_t)pos) + 1);
            else
                kept[w] &= ~(left & -left);
        }
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct row_cut *cut = probe_row_cuts(row, s->cfg->kernels);
    const struct state *own = s->own;
    size_t head = probe_query_index(s->cfg, row->layer, row->head);
    for (int c = 0; c < N_CRITERIA; c++) {
        int array = PER_CRITERION * c;
        void *first = probe_cells(s, array + FIRST, row->layer, row->head);
        uint64_t *kept = own->kept + (head * N_CRITERIA + (size_t)c) * own->words;
        if (own->next[head] != row->t)
            refill(s, first, row->t, kept, own->words);
        take_ages(probe_cells(s, array + AT, row->layer, row->head), row, &cut[c]);
        take_first(s, first, row, &cut[c], kept);
    }
    own->next[head] = row->t + 1;
}

/* Converts counts to ages. A token that all its t1 - i queries selected has no such age: all
 * ones. */
static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    const void *first = probe_cells(s, array, layer, head);
    for (size_t i = 0; i < (size_t)t1; i++) {
        uint32_t n = probe_get_step(s, first, i);
        probe_put_step(s, out, i, n == (uint32_t)t1 - (uint32_t)i ? UINT32_MAX : n);
    }
}

const struct probe probe_calibration = {
    .name = "calibration",
    .summary = "selection at ages 1, 2, 4, ..., and the first age without it, per criterion",
    .wants = PROBE_ROWS,
    .full_only = true,
    .in_auto = AUTO_ALL,
    PROBE_ARRAYS(arrays),
    .open = open_state,
    .close = close_state,
    .row = on_row,
    .values = values,
};
