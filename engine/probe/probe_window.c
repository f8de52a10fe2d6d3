/* probe_window.c - attention of the queries of observation windows to each entry (G-KV, equation
 * 2): per KV head the maximum over its query heads, averaged over the queries of the window.
 *
 * The end of a run is not known in advance. So sums over blocks of 16 queries, at multiples of 16,
 * are stored for the last 32 complete blocks and the current one. A snapshot combines complete
 * blocks to windows. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum {
    BLOCK = KVF_WINDOW_BLOCK,
    PER_WINDOW = KVF_WINDOW_QUERIES / BLOCK,
    RING = PROBE_WINDOW_RING, /* number of stored blocks */
    LANES = 16,
};
_Static_assert((int)PROBE_GROUP_ROWS <= BLOCK, "rows that wait for their group have a place each");

#define COLUMN(name)                                                                               \
    .column = {name, KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},                 \
    .kept = PROBE_NOT_KEPT
static const struct probe_array arrays[2 * KVF_WINDOWS] = {
    {COLUMN("window.0")},   {COLUMN("window.1")},   {COLUMN("window.2")},   {COLUMN("window.3")},
    {COLUMN("window16.0")}, {COLUMN("window16.1")}, {COLUMN("window16.2")}, {COLUMN("window16.3")},
};
_Static_assert(KVF_WINDOWS == 4, "a column for each window, and for its last block");

struct state {
    /* [H][BLOCK][cap] maxima over the query heads so far, for the current layer; index t % BLOCK is
     * query t. */
    float *most;
    float *ring; /* [L*H][RING][cap] sums over the queries of block b, at index b % RING */
};

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    mem_free_all(own->most, own->ring, own);
}

static int open_state(struct probe_state *s)
{
    size_t H = (size_t)s->cfg->shape.n_kv_heads, L = (size_t)s->cfg->shape.n_layers;
    size_t cap = (size_t)s->cfg->cap;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->most = MEM_NEW(float, (H * BLOCK * cap));
    own->ring = MEM_NEW(float, (L * H * RING * cap));
    return own->most && own->ring ? KVF_OK : KVF_E_NOMEM;
}

/* Copies the sums. `most` is complete between two steps. */
static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_kv_heads;
    const struct state *to = s->own, *source = from->own;
    probe_copy_rows(s, to->ring, from, source->ring, heads * RING, sizeof *to->ring, n);
}

float *probe_window_sums(const struct probe_state *s)
{
    return ((const struct state *)s->own)->ring;
}

static float *block_of(const struct probe_state *s, int layer, int head, int64_t block)
{
    const struct state *own = s->own;
    size_t at = probe_kv_index(s->cfg, layer, head) * RING + (size_t)(block % RING);
    return own->ring + at * (size_t)s->cfg->cap;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static void take_most(float *restrict most, const float *restrict p, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = i; j < i + LANES; j++) /* constant trip count: vectorised */
            most[j] = larger(p[j], most[j]);
    for (; i < n; i++)
        most[i] = larger(p[i], most[i]);
}

static void add_query(float *restrict sum, const float *restrict most, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = i; j < i + LANES; j++)
            sum[j] += most[j];
    for (; i < n; i++)
        sum[i] += most[i];
}

/* The row of the last head of a group completes the maximum of a query, which is then added to the
 * block. The order is by t, for any number of threads. */
static void on_row(struct probe_state *state, const struct probe_row *row)
{
    const struct state *s = state->own;
    const struct probe_config *cfg = state->cfg;
    size_t cap = (size_t)cfg->cap, n = (size_t)row->t + 1;
    int group = cfg->shape.n_heads / cfg->shape.n_kv_heads, h = row->head / group;
    float *most = s->most + ((size_t)h * BLOCK + (size_t)(row->t % BLOCK)) * cap;
    if (row->head % group == 0)
        memset(most, 0, n * sizeof *most);
    if (!row->pos)
        take_most(most, row->p, row->n);
    for (int i = 0; row->pos && i < row->n; i++)
        most[row->pos[i]] = larger(row->p[i], most[row->pos[i]]);
    if (row->head % group < group - 1)
        return;
    float *sum = block_of(state, row->layer, h, row->t / BLOCK);
    if (row->t % BLOCK == 0)
        memset(sum, 0, (n + BLOCK < cap ? n + BLOCK : cap) * sizeof *sum);
    add_query(sum, most, row->t + 1);
}

/* Stores the mean over the queries of the blocks [b0, b1) for entries [0, n). It is NaN if no such
 * query is later than the entry, and for all entries if the blocks begin before the run. */
static void mean_of(const struct probe_state *s, int layer, int head, int64_t b0, int64_t b1,
                    int64_t n, float *out)
{
    int64_t known = b1 * BLOCK < n ? b1 * BLOCK : n;
    if (b0 < 0)
        known = 0;
    for (int64_t i = 0; i < known; i++) {
        double sum = 0;
        int64_t b = b0 > i / BLOCK ? b0 : i / BLOCK; /* 0 before its birth */
        for (; b < b1; b++)
            sum += (double)block_of(s, layer, head, b)[i];
        out[i] = (float)(sum / (double)((b1 - b0) * BLOCK));
    }
    for (int64_t i = known; i < n; i++)
        out[i] = NAN;
}

static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    int64_t b1 = t1 / BLOCK - (KVF_WINDOWS - 1 - array % KVF_WINDOWS) * PER_WINDOW;
    int64_t b0 = array < KVF_WINDOWS ? b1 - PER_WINDOW : b1 - 1;
    mean_of(s, layer, head, b0, b1, t1, out);
}

const struct probe probe_window = {
    .name = "window",
    .summary = "attention of the last four observation windows to each entry",
    .wants = PROBE_ROWS | PROBE_GROUPS,
    .full_only = true,
    .in_auto = AUTO_ALL,
    PROBE_ARRAYS(arrays),
    .open = open_state,
    .copy = copy,
    .close = close_state,
    .row = on_row,
    .values = values,
};
