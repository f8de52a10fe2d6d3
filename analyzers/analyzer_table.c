#include <string.h>

#include "analyzers/analyzers.h"

const struct analyzer *const analyzer_table[] = {
    &an_eviction,
    &an_retention,
    &an_sparsity,
    &an_survival,
    &an_occupancy,
    &an_tokens,
    &an_regret,
    &an_ghosts,
    &an_agreement,
    &an_variance,
    &an_calibration,
    &an_words,
    &an_density,
    &an_runs,
    &an_kv_size,
    &an_hazard,
    &an_persistence,
    &an_intermittency,
    &an_overlap,
    &an_attention_sparsity,
    &an_received,
    &an_dynamics,
    &an_dilution,
    &an_heads,
    &an_compare,
    &an_atlas,
    NULL,
};

const struct analyzer *analyzer_find(const char *name)
{
    for (const struct analyzer *const *a = analyzer_table; *a; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}
