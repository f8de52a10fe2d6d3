#include "engine/probe/probes.h"

const struct probe *const probe_table[] = {
    &probe_evict,
    &probe_survival,
    &probe_mass,
    &probe_steps,
    &probe_nll,
    &probe_gate,
    &probe_read,
    &probe_shadow_entries,
    &probe_shadow_model,
    &probe_keys,
    &probe_calibration,
    &probe_returns,
    &probe_window,
    &probe_under,
    &probe_received,
    &probe_queries,
    &probe_dilution,
    &probe_contrib,
    NULL,
};
