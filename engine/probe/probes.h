/* probes.h - the list of probes, one file each, and their shared helpers. */
#pragma once

#include "engine/probe/probe.h"

#define X(name) extern const struct probe probe_##name;
#include "engine/probe/probes.list"
#undef X

/* The criteria of KVF_CRITERIA_MAP: top-K sets, then sets by mass. */
enum { PROBE_N_TOP = 4, PROBE_N_TAU = 3 };
extern const int probe_top_k[PROBE_N_TOP];
extern const double probe_tau[PROBE_N_TAU];

/* Private states of two probes, which devices also fill. probe_returns.c: visits
 * [L*G][PROBE_RETURNS][cap] for the criteria probe_returns_of. probe_window.c: sums
 * [L*H][PROBE_WINDOW_RING][cap] over blocks of KVF_WINDOW_BLOCK queries. */
enum {
    PROBE_RETURNS = 2,
    PROBE_WINDOW_RING = KVF_WINDOWS * (KVF_WINDOW_QUERIES / KVF_WINDOW_BLOCK) + 1
};
/* State of a token in probe_returns.c: the counts are its three columns. */
struct probe_visits {
    int32_t last; /* step of the newest selection; -1: never */
    int32_t count[3];
};
extern const int probe_returns_of[PROBE_RETURNS];
enum { PROBE_CONTRIB_TOP = 64 }; /* set size of probe_contrib.c */
/* Return the visits of probe_returns.c and the sums of probe_window.c; shapes above. */
struct probe_visits *probe_returns_visits(const struct probe_state *s);
float *probe_window_sums(const struct probe_state *s);

/* Returns the selected sets of a row: cut[c] belongs to criterion c. They are computed once for all
 * probes (probe_survival.c). */
const struct row_cut *probe_row_cuts(const struct probe_row *row, const struct kernels *k);

/* Returns the selected sets of a row as bits: bit i % 64 of word c * row->cuts->words + i / 64 is
 * set if position i is in the set of criterion c. Positions 0 .. row->t have valid bits; later bits
 * of their words are 0. They are computed once for all probes (probe_survival.c). */
const uint64_t *probe_row_members(const struct probe_row *row, const struct kernels *k);

/* Computes the selected sets of any weights [n]. out: [KVF_N_CRITERIA]; scratch:
 * row_cuts_scratch(n) bytes. */
void probe_find_cuts(const struct kernels *k, const float *p, int n, struct row_cut *out,
                     void *scratch);

/* Stores step row->t in cells of kind PROBE_AS_STEP for the entries of a row with a weight w[i] in
 * the set (probe_survival.c). */
void probe_mark(const struct probe_state *s, void *cells, const struct probe_row *row,
                const float *w, const struct row_cut *cut);

/* Returns the index of the entry at position pos in a row, or -1 (probe_received.c). */
int probe_find(const struct probe_row *row, int32_t pos);

/* Returns value i of cells of PROBE_STEPS. */
static inline uint32_t probe_get_step(const struct probe_state *s, const void *cells, size_t i)
{
    return s->narrow ? ((const uint16_t *)cells)[i] : ((const uint32_t *)cells)[i];
}

/* Sets value i of cells of PROBE_STEPS. */
static inline void probe_put_step(const struct probe_state *s, void *cells, size_t i, uint32_t v)
{
    if (s->narrow)
        ((uint16_t *)cells)[i] = (uint16_t)v; /* all ones stay all ones */
    else
        ((uint32_t *)cells)[i] = v;
}

static inline size_t probe_query_index(const struct probe_config *c, int layer, int head)
{
    return (size_t)layer * (size_t)c->shape.n_heads + (size_t)head;
}

static inline size_t probe_kv_index(const struct probe_config *c, int layer, int head)
{
    return (size_t)layer * (size_t)c->shape.n_kv_heads + (size_t)head;
}
