/* probes.h - the probes, one file each, and what several of them share. */
#ifndef KVF_ENGINE_PROBES_H
#define KVF_ENGINE_PROBES_H

#include "engine/probe/probe.h"

extern const struct probe probe_evict;          /* probe_evict.c */
extern const struct probe probe_survival;       /* probe_survival.c */
extern const struct probe probe_mass;           /* probe_mass.c */
extern const struct probe probe_steps;          /* probe_steps.c */
extern const struct probe probe_nll;            /* probe_nll.c */
extern const struct probe probe_gate;           /* probe_gate.c */
extern const struct probe probe_read;           /* probe_read.c */
extern const struct probe probe_contrib;        /* probe_contrib.c */
extern const struct probe probe_keys;           /* probe_keys.c */
extern const struct probe probe_calibration;    /* probe_calibration.c */
extern const struct probe probe_returns;        /* probe_returns.c */
extern const struct probe probe_window;         /* probe_window.c */
extern const struct probe probe_under;          /* probe_under.c */
extern const struct probe probe_received;       /* probe_received.c */
extern const struct probe probe_queries;        /* probe_queries.c */
extern const struct probe probe_dilution;       /* probe_dilution.c */
extern const struct probe probe_shadow_entries; /* probe_shadow_entries.c */
extern const struct probe probe_shadow_model;   /* probe_shadow_model.c */

/* The selected sets of a row: cut[c] is that of criterion c, computed once for all
 * probes that ask (probe_survival.c). */
const struct row_cut *probe_row_cuts(const struct probe_row *row, const struct kernels *k);

/* The same of any weights [n]: out[KVF_N_CRITERIA], scratch: row_cuts_scratch(n) bytes. */
void probe_find_cuts(const struct kernels *k, const float *p, int n, struct row_cut *out,
                     void *scratch);

/* Ages are u16 columns where all steps fit, all ones apart. */
static inline bool probe_narrow_ages(const struct probe_config *c)
{
    return c->cap < 65535;
}

static inline size_t probe_query_index(const struct probe_config *c, int layer, int head)
{
    return (size_t)layer * (size_t)c->shape.n_heads + (size_t)head;
}

static inline size_t probe_kv_index(const struct probe_config *c, int layer, int head)
{
    return (size_t)layer * (size_t)c->shape.n_kv_heads + (size_t)head;
}

#endif
