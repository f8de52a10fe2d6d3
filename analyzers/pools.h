/* pools.h - which rows and values of the tables add up over documents (docs/reference/corpus.md).
 */
#ifndef KVF_ANALYZERS_POOLS_H
#define KVF_ANALYZERS_POOLS_H

#include "analyzers/analyzer.h"

extern const struct analyzer_pool pool_calibration, pool_eviction, pool_regret, pool_sparsity,
    pool_variance;

#endif
