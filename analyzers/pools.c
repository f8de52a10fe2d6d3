#include "analyzers/pools.h"

#include <stddef.h>

#define POOL(name) const struct analyzer_pool pool_##name = {name##_keys, name##_measures}
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, NULL                                                                           \
    }

static const char *const sparsity_keys[] = {"kind", "layer", "index", "head", NULL};
static const struct analyzer_measure sparsity_measures[] = {{"sparsity", NULL, NULL}, END};
POOL(sparsity);

/* Of the entries that left a head for a reason; age -1 of those that are alive. */
static const char *const eviction_keys[] = {"layer", "index", "head", "reason", NULL};
static const struct analyzer_measure eviction_measures[] = {
    {"age", NULL, NULL}, {"tie", NULL, NULL}, END};
POOL(eviction);

static const char *const calibration_keys[] = {"head",  "layer",   "index", "kind", "event",
                                               "score", "horizon", "bin",   NULL};
static const struct analyzer_measure calibration_measures[] = {
    {"observed", "yes", "n"}, {"predicted", NULL, "n"}, {"brier", NULL, "n"},
    {"auroc", NULL, NULL},    {"tau", NULL, NULL},      END};
POOL(calibration);

static const char *const regret_keys[] = {"head", "layer", "index", "step", NULL};
static const struct analyzer_measure regret_measures[] = {
    {"regret", NULL, NULL}, {"kept_mass", NULL, NULL}, {"oracle_mass", NULL, NULL}, END};
POOL(regret);

static const char *const variance_keys[] = {"head", "layer", "index", "factor", NULL};
static const struct analyzer_measure variance_measures[] = {
    {"epsilon2", NULL, NULL}, {"eta2", NULL, NULL}, {"within", NULL, NULL}, END};
POOL(variance);
