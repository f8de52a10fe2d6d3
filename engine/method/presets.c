/* presets.c - the published methods as rows of parts.  docs/methods.md gives the
 * equation, source and options of each. */
#include "engine/method/parts.h"
#include "engine/method/scores.h"

const struct score *const score_table[] = {
    &score_position, &score_received, &score_window, &score_variance, &score_below,
    &score_keydiff, &score_knorm, &score_redundancy, &score_random, NULL,
};

/* What most rows share. */
#define ROW(trig, alloc)                                                 \
    .admission = &admission_all, .allocation = &allocation_##alloc,      \
    .trigger = &trigger_##trig, .read = &read_all

const struct method method_presets[] = {
    {.name = "full", .summary = "nothing is evicted", .source = "-", ROW(none, uniform),
     .pool = 1},
    {.name = "window", .summary = "attention sinks and the newest tokens",
     .source = "StreamingLLM, Xiao et al. 2023, original positions", ROW(overflow, uniform),
     .score = &score_position, .reason = KVF_REASON_WINDOW, .sinks = 4, .recent = RECENT_REST,
     .pool = 1},
    {.name = "h2o", .summary = "heavy hitters by accumulated attention, and recent tokens",
     .source = "H2O, Zhang et al. 2023", ROW(overflow, uniform), .score = &score_received,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_HALF, .pool = 1, .group = GROUP_SUM},
    {.name = "snapkv", .summary = "attention from the last queries, pooled; decode form",
     .source = "SnapKV, Li et al. 2024", ROW(overflow, uniform), .score = &score_window,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 32, .pool = 7,
     .pool_kind = POOL_MAX, .group = GROUP_MEAN},
    {.name = "tova", .summary = "attention of the newest query, one set per layer",
     .source = "TOVA, Oren et al. 2024", ROW(overflow, uniform), .score = &score_window,
     .scope = SCOPE_LAYER, .reason = KVF_REASON_BUDGET, .window = 1, .pool = 1,
     .group = GROUP_MEAN},
    {.name = "keydiff", .summary = "keys that differ most from the others",
     .source = "KeyDiff, Park et al. 2025", ROW(overflow, uniform), .score = &score_keydiff,
     .reason = KVF_REASON_BUDGET, .pool = 1},
    {.name = "knorm", .summary = "short keys", .source = "Devoto et al. 2024",
     ROW(overflow, uniform), .score = &score_knorm, .reason = KVF_REASON_BUDGET, .pool = 1},
    {.name = "scissorhands", .summary = "entries that rarely fell below an even share",
     .source = "Scissorhands, Liu et al. 2023", ROW(overflow, uniform), .score = &score_below,
     .reason = KVF_REASON_BUDGET, .recent = 10, .window = 400, .pool = 1, .every = EVERY_HALF},
    {.name = "pyramidkv", .summary = "snapkv with more room in lower layers",
     .source = "PyramidKV, Cai et al. 2024", ROW(overflow, pyramid), .score = &score_window,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 8, .pool = 7, .beta = 20},
    {.name = "adakv", .summary = "snapkv with places shared by the heads of a layer",
     .source = "AdaKV, Feng et al. 2024", ROW(overflow, adaptive), .score = &score_window,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 32, .pool = 7,
     .floor = 0.2},
    {.name = "ada-pyramidkv", .summary = "adakv with more room in lower layers",
     .source = "AdaKV, Feng et al. 2024", ROW(overflow, adaptive_pyramid),
     .score = &score_window, .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 32,
     .pool = 7, .floor = 0.2, .beta = 20},
    {.name = "cake", .summary = "mean and spread of attention, layers by preference",
     .source = "CAKE, Qin et al. 2025", ROW(overflow, cake), .score = &score_variance,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 32, .pool = 5,
     .pool_kind = POOL_AVG, .gamma = 200},
    {.name = "rkv", .summary = "attention against redundancy of keys",
     .source = "R-KV, Cai et al. 2025", ROW(overflow, uniform), .score = &score_redundancy,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 8, .pool = 7,
     .group = GROUP_MAX, .support = SUPPORT_CANDIDATES, .every = 128, .lambda = 0.1},
    {.name = "morphkv", .summary = "largest attention from the last queries",
     .source = "MorphKV, Ghadia et al. 2025", ROW(overflow, uniform), .score = &score_window,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 30, .pool = 1,
     .across = ACROSS_MAX, .support = SUPPORT_CANDIDATES},
    {.name = "gkv", .summary = "rkv with a score remembered from cut to cut",
     .source = "G-KV, 2025", ROW(overflow, uniform), .score = &score_redundancy,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 16, .pool = 1,
     .group = GROUP_MAX, .every = 128, .normalise = true, .history = 0.8, .lambda = 0.7},
    {.name = "random", .summary = "a random set, fixed by the seed", .source = "baseline",
     ROW(overflow, uniform), .score = &score_random, .reason = KVF_REASON_BUDGET, .pool = 1},
    {.name = NULL},
};
