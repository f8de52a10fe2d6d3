/* analyzers.h - the analyzers, one file each. */
#ifndef KVF_ANALYZERS_ANALYZERS_H
#define KVF_ANALYZERS_ANALYZERS_H

#include "analyzers/analyzer.h"

extern const struct analyzer an_eviction, an_retention, an_sparsity, an_survival, an_occupancy,
    an_tokens, an_regret, an_ghosts, an_agreement, an_variance, an_calibration, an_words,
    an_density, an_runs, an_kv_size, an_hazard, an_persistence, an_intermittency, an_overlap,
    an_attention_sparsity, an_received, an_dynamics, an_dilution, an_heads, an_compare, an_atlas;

#endif
