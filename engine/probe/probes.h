/* probes.h - the probes, one file each, and what several of them share. */
#ifndef KVF_ENGINE_PROBES_H
#define KVF_ENGINE_PROBES_H

#include "engine/probe/probe.h"

#define X(name) extern const struct probe probe_##name;
#include "engine/probe/probes.list"
#undef X

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
