/* probe_survival.c - the last time each token was in the selected set of a query, for seven
 * criteria (top-K and tau-mass sets of one row): the exact sufficient statistic of the survival
 * curves of DBTrimKV, figures 2 and 9. */
#include <string.h>

#include "engine/probe/probes.h"

enum { N_CRITERIA = KVF_N_CRITERIA };

const int probe_top_k[PROBE_N_TOP] = {64, 128, 256, 512};
const double probe_tau[PROBE_N_TAU] = {.90, .95, .99};
_Static_assert(PROBE_N_TOP + PROBE_N_TAU == KVF_N_CRITERIA, "one cut for each criterion");

/* Two bytes if steps fit, because marking is limited by the memory traffic of these arrays. */
#define X(name)                                                                                    \
    {.column = {"last_selected." #name, PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_TOKEN,              \
                KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},                                           \
     .start = PROBE_ONES,                                                                          \
     .kept = PROBE_AS_STEP},
static const struct probe_array arrays[N_CRITERIA] = {KVF_CRITERIA_MAP(X)};
#undef X

void probe_find_cuts(const struct kernels *k, const float *p, int n, struct row_cut *out,
                     void *scratch)
{
    k->row_cuts(p, n, probe_top_k, PROBE_N_TOP, probe_tau, PROBE_N_TAU, out, scratch);
}

const struct row_cut *probe_row_cuts(const struct probe_row *row, const struct kernels *k)
{
    struct probe_cuts *c = row->cuts;
    if (!c->known)
        probe_find_cuts(k, row->p, row->n, c->cut, row->scratch);
    c->known = true;
    return c->cut;
}

/* Returns the first entry from which on positions are consecutive to the end, by bisection, since
 * positions rise. */
static int last_run(const int32_t *pos, int n)
{
    int no = -1, yes = n - 1;
    while (yes - no > 1) {
        int i = (no + yes) / 2;
        if (pos[n - 1] - pos[i] == n - 1 - i)
            yes = i;
        else
            no = i;
    }
    return yes;
}

/* Copies bits [from, n) of `bits` to the positions from `pos` on, 64 at a time. */
static void put_bits(uint64_t *to, const uint64_t *bits, int from, int n, int32_t pos)
{
    for (int i = from; i < n; i += 64, pos += 64) {
        int shift = i % 64, left = n - i;
        uint64_t word = bits[i / 64] >> shift;
        if (shift && left > 64 - shift)
            word |= bits[i / 64 + 1] << (64 - shift);
        if (left < 64)
            word &= ~(~(uint64_t)0 << left);
        to[pos / 64] |= word << pos % 64;
        if (pos % 64 && word >> (64 - pos % 64))
            to[pos / 64 + 1] |= word >> (64 - pos % 64);
    }
}

/* Entries from `tail` on have consecutive positions. The others are put one by one. */
static void spread_bits(const struct probe_row *row, int tail, const uint64_t *bits, uint64_t *to)
{
    for (int w = 0; 64 * w < tail; w++)
        for (uint64_t left = bits[w]; left; left &= left - 1) {
            int i = 64 * w + __builtin_ctzll(left);
            if (i < tail)
                to[row->pos[i] / 64] |= (uint64_t)1 << row->pos[i] % 64;
        }
    put_bits(to, bits, tail, row->n, row->pos[tail]);
}

const uint64_t *probe_row_members(const struct probe_row *row, const struct kernels *k)
{
    struct probe_cuts *c = row->cuts;
    const struct row_cut *cut = probe_row_cuts(row, k);
    if (c->listed)
        return c->member;
    c->listed = true;
    k->member_bits(row->pos ? c->by_entry : c->member, c->words, row->p, row->n, cut,
                   KVF_N_CRITERIA);
    if (!row->pos)
        return c->member;
    int tail = last_run(row->pos, row->n);
    for (size_t i = 0; i < KVF_N_CRITERIA; i++) {
        uint64_t *to = c->member + i * c->words;
        memset(to, 0, ((size_t)row->t / 64 + 1) * sizeof *to);
        spread_bits(row, tail, c->by_entry + i * c->words, to);
    }
    return c->member;
}

/* Marks entries i0 .. i1-1 of a row, which have consecutive positions from `pos` on. */
static void mark_run(const struct probe_state *s, void *cells, const struct probe_row *row,
                     const float *w, const struct row_cut *cut, int i0, int i1, int32_t pos)
{
    int width = s->narrow ? 2 : 4;
    struct row_cut own = *cut;
    own.first_tie = cut->first_tie > i0 ? cut->first_tie - i0 : 0;
    s->cfg->kernels->mark((char *)cells + (size_t)pos * (size_t)width, width, w + i0, i1 - i0, &own,
                          (uint32_t)row->t);
}

/* Marks entries i0 .. i1-1 at any positions. Members are listed first, because a branch on
 * membership is unpredictable and mispredictions are expensive. */
static void mark_scattered(const struct probe_state *s, void *cells, const struct probe_row *row,
                           const float *w, const struct row_cut *cut, int i0, int i1)
{
    enum { BLOCK = 256 };
    int32_t member[BLOCK];
    while (i0 < i1) {
        int end = i1 - i0 < BLOCK ? i1 : i0 + BLOCK, n = 0;
        for (; i0 < end; i0++) {
            member[n] = row->pos[i0];
            n += (w[i0] > cut->threshold) | ((w[i0] == cut->threshold) & (i0 >= cut->first_tie));
        }
        for (int k = 0; k < n; k++)
            probe_put_step(s, cells, (size_t)member[k], (uint32_t)row->t);
    }
}

void probe_mark(const struct probe_state *s, void *cells, const struct probe_row *row,
                const float *w, const struct row_cut *cut)
{
    enum { LEAST = 32 }; /* entries of a run that are worth a call */
    int n = row->n, tail = n;
    if (!row->pos) {
        mark_run(s, cells, row, w, cut, 0, n, 0);
        return;
    }
    if (n > 0)
        tail = last_run(row->pos, n);
    if (n - tail < LEAST)
        tail = n;
    mark_scattered(s, cells, row, w, cut, 0, tail);
    if (tail < n)
        mark_run(s, cells, row, w, cut, tail, n, row->pos[tail]);
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct row_cut *cut = probe_row_cuts(row, s->cfg->kernels);
    for (int c = 0; !row->gathered && c < N_CRITERIA; c++)
        probe_mark(s, probe_cells(s, c, row->layer, row->head), row, row->p, &cut[c]);
}

static void on_rows(struct probe_state *s, const struct probe_rows *rows)
{
    void *last[N_CRITERIA];
    for (int c = 0; c < N_CRITERIA; c++)
        last[c] = probe_cells(s, c, rows->layer, rows->head);
    s->cfg->kernels->mark_rows(last, s->narrow ? 2 : 4, &rows->w, rows->cut, N_CRITERIA,
                               (uint32_t)rows->t);
}

const struct probe probe_survival = {
    .name = "survival",
    .summary = "per token: the last query with the token in its top-K or tau-mass set",
    .wants = PROBE_ROWS,
    PROBE_ARRAYS(arrays),
    .row = on_row,
    .rows = on_rows,
};
