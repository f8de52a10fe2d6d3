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

/* Tokens that all queries so far have selected have a bit in a set. Their counts are known from
 * their ages and are stored only when the first query does not select them. */
struct state {
    size_t words;   /* of a set: cap bits */
    int32_t *next;  /* [L*G] query that follows the counted ones */
    uint64_t *kept; /* [L*G][N_CRITERIA][words] bit i: count next - i of token i, not yet stored */
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

static uint64_t *kept_of(const struct state *own, size_t head, int criterion)
{
    return own->kept + (head * N_CRITERIA + (size_t)criterion) * own->words;
}

/* Returns the number of queries from birth on that all selected token i. */
static uint32_t count_of(const struct probe_state *s, const void *first, const uint64_t *kept,
                         int32_t next, int32_t i)
{
    if (kept[i / 64] >> i % 64 & 1)
        return (uint32_t)(next - i);
    return probe_get_step(s, first, (size_t)i);
}

/* Stores the counts of the tokens before n in `to`, which may be `first`. */
static void store_counts(const struct probe_state *s, const void *first, const uint64_t *kept,
                         int32_t next, int32_t n, void *to)
{
    for (int32_t i = 0; i < n; i++)
        probe_put_step(s, to, (size_t)i, count_of(s, first, kept, next, i));
}

/* Copies all counts to the cells of a new state. Its sets follow from these at its next query. */
static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    const struct state *own = from->own;
    for (int layer = 0; layer < s->cfg->shape.n_layers; layer++)
        for (int g = 0; g < s->cfg->shape.n_heads; g++) {
            size_t head = probe_query_index(s->cfg, layer, g);
            for (int c = 0; c < N_CRITERIA; c++) {
                int array = PER_CRITERION * c + FIRST;
                store_counts(s, probe_cells(from, array, layer, g), kept_of(own, head, c),
                             own->next[head], n, probe_cells(s, array, layer, g));
            }
        }
}

/* Sets the bits of the tokens before t whose counts equal their ages. */
static void refill(const struct probe_state *s, void *first, int32_t next, int32_t t,
                   uint64_t *kept, size_t words)
{
    store_counts(s, first, kept, next, t, first);
    memset(kept, 0, words * sizeof *kept);
    for (int32_t i = 0; i < t; i++)
        if (probe_get_step(s, first, (size_t)i) == (uint32_t)(t - i))
            kept[i / 64] |= (uint64_t)1 << i % 64;
}

/* member: the set of query t by position. */
static void take_ages(uint32_t *at, int32_t t, const uint64_t *member)
{
    for (int k = 0; k < 31 && (int32_t)1 << k <= t; k++) {
        int32_t pos = t - ((int32_t)1 << k);
        at[pos] |= (uint32_t)(member[pos / 64] >> pos % 64 & 1) << k;
    }
}

/* Ends the counts of the tokens that query t is the first not to select. A query that does not see
 * an entry does not select it. */
static void take_first(const struct probe_state *s, void *first, int32_t t, const uint64_t *member,
                       uint64_t *kept)
{
    kept[t / 64] |= (uint64_t)1 << t % 64;
    for (int32_t w = 0; w <= t / 64; w++) {
        for (uint64_t left = kept[w] & ~member[w]; left; left &= left - 1) {
            int32_t pos = 64 * w + __builtin_ctzll(left);
            probe_put_step(s, first, (size_t)pos, (uint32_t)(t - pos));
        }
        kept[w] &= member[w];
    }
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const uint64_t *member = probe_row_members(row, s->cfg->kernels);
    const struct state *own = s->own;
    size_t head = probe_query_index(s->cfg, row->layer, row->head);
    for (int c = 0; c < N_CRITERIA; c++, member += row->cuts->words) {
        int array = PER_CRITERION * c;
        void *first = probe_cells(s, array + FIRST, row->layer, row->head);
        uint64_t *kept = kept_of(own, head, c);
        if (own->next[head] != row->t)
            refill(s, first, own->next[head], row->t, kept, own->words);
        take_ages(probe_cells(s, array + AT, row->layer, row->head), row->t, member);
        take_first(s, first, row->t, member, kept);
    }
    own->next[head] = row->t + 1;
}

/* Converts counts to ages. A token that all its t1 - i queries selected has no such age: all
 * ones. */
static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    const struct state *own = s->own;
    size_t at = probe_query_index(s->cfg, layer, head);
    const void *first = probe_cells(s, array, layer, head);
    const uint64_t *kept = kept_of(own, at, array / PER_CRITERION);
    for (int32_t i = 0; i < t1; i++) {
        uint32_t n = count_of(s, first, kept, own->next[at], i);
        probe_put_step(s, out, (size_t)i, n == (uint32_t)(t1 - i) ? UINT32_MAX : n);
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
    .copy = copy,
    .close = close_state,
    .row = on_row,
    .values = values,
};
