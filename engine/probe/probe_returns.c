/* probe_returns.c - interruptions of attention to a token, for two criteria: the number of queries
 * that selected it, how often it was selected again after at least one query that did not, and the
 * longest such interruption in queries. */
#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_CRITERIA = PROBE_RETURNS, N_COUNTS = 3, NEVER = -1 };

/* Indices in KVF_CRITERIA_MAP: the smallest top-K set and the middle mass set. */
const int probe_returns_of[N_CRITERIA] = {0, 5};

#define COLUMN(name, unit)                                                                         \
    .column = {name, PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, unit},        \
    .kept = PROBE_NOT_KEPT
static const struct probe_array arrays[N_CRITERIA * N_COUNTS] = {
    {COLUMN("n_selected.top64", "")},      {COLUMN("n_returns.top64", "")},
    {COLUMN("longest_gap.top64", "step")}, {COLUMN("n_selected.mass.95", "")},
    {COLUMN("n_returns.mass.95", "")},     {COLUMN("longest_gap.mass.95", "step")},
};

/* A visit is a run of queries that all selected a token. Its queries are counted when it ends. */
struct state {
    struct probe_visits *visits; /* [L*G][N_CRITERIA][cap] */
    size_t words;                /* of a set: cap bits */
    int32_t *next;               /* [L*G] query that follows the counted ones */
    /* [L*G][N_CRITERIA][words] bit i: a visit of token i is not counted yet. It began at the query
     * `last`, and its newest query is next - 1. */
    uint64_t *open;
};

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    mem_free_all(own->visits, own->next, own->open, own);
}

static int open_state(struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    size_t n = heads * N_CRITERIA * (size_t)s->cfg->cap;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->words = ((size_t)s->cfg->cap + 63) / 64;
    own->visits = MEM_NEW(struct probe_visits, n);
    own->next = MEM_NEW(int32_t, heads);
    own->open = MEM_NEW(uint64_t, (heads * N_CRITERIA * own->words));
    for (size_t i = 0; own->visits && i < n; i++)
        own->visits[i].last = NEVER;
    return own->visits && own->next && own->open ? KVF_OK : KVF_E_NOMEM;
}

struct probe_visits *probe_returns_visits(const struct probe_state *s)
{
    return ((const struct state *)s->own)->visits;
}

/* Counts the open visits of the tokens in `bits`, word w of a set, whose newest query is next - 1.
 */
static void end_visits(struct probe_visits *e, int32_t w, uint64_t bits, int32_t next)
{
    for (; bits; bits &= bits - 1) {
        struct probe_visits *x = &e[64 * w + __builtin_ctzll(bits)];
        x->count[0] += next - x->last;
        x->last = next - 1;
    }
}

static void begin_visits(struct probe_visits *e, int32_t w, uint64_t bits, int32_t t)
{
    for (; bits; bits &= bits - 1) {
        struct probe_visits *x = &e[64 * w + __builtin_ctzll(bits)];
        int32_t gap = x->last == NEVER ? 0 : t - x->last - 1;
        x->count[1] += gap > 0;
        x->count[2] = gap > x->count[2] ? gap : x->count[2];
        x->last = t;
    }
}

/* Copies visits. Open ones end in the copy, where a next one without a gap can follow. */
static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    size_t sets = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads * N_CRITERIA;
    const struct state *to = s->own, *source = from->own;
    probe_copy_rows(s, to->visits, from, source->visits, sets, sizeof *to->visits, n);
    for (size_t i = 0; i < sets; i++)
        for (int32_t w = 0; 64 * w < n; w++) {
            uint64_t in = n - 64 * w < 64 ? ~(~(uint64_t)0 << (n - 64 * w)) : ~(uint64_t)0;
            end_visits(to->visits + i * (size_t)s->cfg->cap, w,
                       source->open[i * source->words + (size_t)w] & in,
                       source->next[i / N_CRITERIA]);
        }
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const uint64_t *members = probe_row_members(row, s->cfg->kernels);
    const struct state *own = s->own;
    size_t head = probe_query_index(s->cfg, row->layer, row->head);
    int32_t *next = &own->next[head];
    for (size_t c = 0; c < N_CRITERIA; c++) {
        size_t set = head * N_CRITERIA + c;
        const uint64_t *member = members + (size_t)probe_returns_of[c] * row->cuts->words;
        struct probe_visits *e = own->visits + set * (size_t)s->cfg->cap;
        uint64_t *open = own->open + set * own->words;
        for (int32_t w = 0; w <= row->t / 64; w++) {
            uint64_t going_on = *next == row->t ? open[w] & member[w] : 0;
            end_visits(e, w, open[w] & ~going_on, *next);
            begin_visits(e, w, member[w] & ~going_on, row->t);
            open[w] = member[w];
        }
    }
    *next = row->t + 1;
}

static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    const struct state *own = s->own;
    size_t at = probe_query_index(s->cfg, layer, head);
    size_t set = at * N_CRITERIA + (size_t)(array / N_COUNTS);
    const struct probe_visits *e = own->visits + set * (size_t)s->cfg->cap;
    const uint64_t *open = own->open + set * own->words;
    int count = array % N_COUNTS;
    for (int32_t i = 0; i < t1; i++) {
        bool uncounted = count == 0 && (open[i / 64] >> i % 64 & 1);
        int32_t more = uncounted ? own->next[at] - e[i].last : 0;
        probe_put_step(s, out, (size_t)i, (uint32_t)(e[i].count[count] + more));
    }
}

const struct probe probe_returns = {
    .name = "returns",
    .summary = "per token: number of selections and returns, and the longest gap",
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
