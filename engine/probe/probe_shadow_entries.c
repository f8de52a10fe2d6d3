/* probe_shadow_entries.c - attention to evicted entries. By step: the mass of the visible entries,
 * the largest mass of as many entries, and the error of the output. By token: the number of queries
 * that would have selected it after its eviction, the first of them, and the weight that they would
 * have given it. */
#include "engine/probe/probes.h"

enum { KEPT, ORACLE, ERROR, HITS, FIRST, MASS };

#define BY_STEP(name)                                                                              \
    .column = {name, KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""}, .start = PROBE_NAN
#define BY_TOKEN(name, dtype, unit)                                                                \
    .column = {name, dtype, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, unit}
static const struct probe_array arrays[] = {
    [KEPT] = {BY_STEP("shadow.kept_mass")},
    [ORACLE] = {BY_STEP("shadow.oracle_mass")},
    [ERROR] = {BY_STEP("shadow.output_error")},
    [HITS] = {BY_TOKEN("shadow.ghost_hits", KVF_U32, "")},
    [FIRST] = {BY_TOKEN("shadow.first_hit", KVF_U32, "step"), .start = PROBE_ONES},
    [MASS] = {BY_TOKEN("shadow.ghost_mass", KVF_F32, ""), .kept = PROBE_AS_DOUBLE},
};

static void on_missed(struct probe_state *s, const struct probe_missed *m)
{
    float *kept = probe_cells(s, KEPT, m->layer, m->head);
    float *oracle = probe_cells(s, ORACLE, m->layer, m->head);
    float *error = probe_cells(s, ERROR, m->layer, m->head);
    uint32_t *hits = probe_cells(s, HITS, m->layer, m->head);
    uint32_t *first = probe_cells(s, FIRST, m->layer, m->head);
    double *mass = probe_cells(s, MASS, m->layer, m->head);
    kept[m->t] = m->kept;
    oracle[m->t] = m->oracle;
    error[m->t] = m->error;
    for (int i = 0; i < m->n; i++) {
        if (m->seen[i])
            continue;
        mass[i] += (double)m->p[i];
        if (!row_cut_has(&m->cut, m->p[i], i))
            continue;
        hits[i]++;
        if (first[i] == KVF_NEVER)
            first[i] = (uint32_t)m->t;
    }
}

const struct probe probe_shadow_entries = {
    .name = "shadow-entries",
    .summary = "attention that queries would give to evicted entries (keeps copies of them)",
    .shadow = "entries",
    .in_auto = AUTO_CPU,
    .wants = PROBE_SHADOW_ENTRIES,
    PROBE_ARRAYS(arrays),
    .missed = on_missed,
};
