/* probe_window.c - what the queries of observation windows gave each entry (G-KV,
 * equation 2): per KV head the largest weight of its query heads, averaged over the
 * queries of the window.
 *
 * Where a run ends is not known before.  So the sums of blocks of 16 queries, at
 * multiples of 16, are kept for the last 32 whole blocks and the one that runs;
 * windows are put together from whole blocks when a snapshot is taken. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum {
    BLOCK = KVF_WINDOW_BLOCK,
    PER_WINDOW = KVF_WINDOW_QUERIES / BLOCK,
    RING = KVF_WINDOWS * PER_WINDOW + 1, /* blocks kept */
    LANES = 16,
};
_Static_assert((int)PROBE_GROUP_ROWS <= BLOCK, "rows that wait for their group have a place each");

struct state {
    struct probe_config cfg;
    /* [H][BLOCK][cap] the largest weights of the query heads so far, of the layer that runs:
     * in place t % BLOCK those of query t. */
    float *most;
    float *ring; /* [L*H][RING][cap] sums over the queries of block b, in place b % RING */
    float *out;  /* [H][cap] scratch of writing */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    (void)cfg;
    for (int w = 0; w < 2 * KVF_WINDOWS; w++) {
        out[w] = (struct kvf_column){.dtype = KVF_F32,
                                     .space = KVF_SPACE_KV,
                                     .axis = KVF_AXIS_TOKEN,
                                     .flags = KVF_COL_SNAPSHOT};
        snprintf(out[w].name, sizeof out[w].name, "%s.%d", w < KVF_WINDOWS ? "window" : "window16",
                 w % KVF_WINDOWS);
    }
    return 2 * KVF_WINDOWS;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->most);
    mem_free(s->ring);
    mem_free(s->out);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t H = (size_t)cfg->shape.n_kv_heads, cap = (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->most = MEM_NEW(float, H *BLOCK *cap);
    s->ring = MEM_NEW(float, (size_t)cfg->shape.n_layers *H *RING *cap);
    s->out = MEM_NEW(float, (H * cap));
    if (s->most && s->ring && s->out)
        return s;
    destroy(s);
    return NULL;
}

static float *block_of(const struct state *s, size_t head, int64_t block)
{
    return s->ring + (head * RING + (size_t)(block % RING)) * (size_t)s->cfg.cap;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static void take_most(float *restrict most, const float *restrict p, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = i; j < i + LANES; j++) /* a known number: becomes vectors */
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

/* A query's row of the last head of its group completes the maximum, which is then added to
 * the block: in order of t, whatever threads there are. */
static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    size_t cap = (size_t)s->cfg.cap, n = (size_t)row->t + 1;
    int group = s->cfg.shape.n_heads / s->cfg.shape.n_kv_heads, h = row->head / group;
    float *most = s->most + ((size_t)h * BLOCK + (size_t)(row->t % BLOCK)) * cap;
    if (row->head % group == 0)
        memset(most, 0, n * sizeof *most);
    if (!row->pos)
        take_most(most, row->p, row->n);
    for (int i = 0; row->pos && i < row->n; i++)
        most[row->pos[i]] = larger(row->p[i], most[row->pos[i]]);
    if (row->head % group < group - 1)
        return;
    float *sum = block_of(s, probe_kv_index(&s->cfg, row->layer, h), row->t / BLOCK);
    if (row->t % BLOCK == 0)
        memset(sum, 0, (n + BLOCK < cap ? n + BLOCK : cap) * sizeof *sum);
    add_query(sum, most, row->t + 1);
}

/* Mean over the queries of the blocks [b0, b1) for entries [0, n); NaN where none of them
 * came after the entry, and everywhere when the blocks begin before the run. */
static void mean_of(const struct state *s, size_t head, int64_t b0, int64_t b1, int64_t n,
                    float *out)
{
    int64_t known = b0 < 0 ? 0 : b1 * BLOCK < n ? b1 * BLOCK : n;
    for (int64_t i = 0; i < known; i++) {
        double sum = 0;
        int64_t b = b0 > i / BLOCK ? b0 : i / BLOCK; /* 0 before its birth */
        for (; b < b1; b++)
            sum += (double)block_of(s, head, b)[i];
        out[i] = (float)(sum / (double)((b1 - b0) * BLOCK));
    }
    for (int64_t i = known; i < n; i++)
        out[i] = NAN;
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int H = s->cfg.shape.n_kv_heads, err = KVF_OK;
    size_t cap = (size_t)s->cfg.cap;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++)
        for (int w = 0; !err && w < 2 * KVF_WINDOWS; w++) {
            int64_t b1 = t1 / BLOCK - (KVF_WINDOWS - 1 - w % KVF_WINDOWS) * PER_WINDOW;
            int64_t b0 = w < KVF_WINDOWS ? b1 - PER_WINDOW : b1 - 1;
            for (int h = 0; h < H; h++)
                mean_of(s, probe_kv_index(&s->cfg, l, h), b0, b1, t1, s->out + (size_t)h * cap);
            err = probe_put(sink, w, l, H, s->out, cap, sizeof *s->out, 0, t1);
        }
    return err;
}

const struct probe probe_window = {
    .name = "window",
    .summary = "what the last four observation windows gave each entry of a KV head",
    .wants = PROBE_ROWS | PROBE_GROUPS,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};
