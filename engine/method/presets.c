/* presets.c - the published methods as rows of parts.  docs/methods.md gives the
 * equation, source and options of each. */
#include "engine/method/parts.h"
#include "engine/method/scores.h"

const struct score *const score_table[] = {
    &score_position, &score_received, &score_window, &score_keydiff, &score_random, NULL,
};

/* What most rows share. */
#define ROW(trig)                                                            \
    .admission = &admission_all, .allocation = &allocation_uniform,          \
    .trigger = &(trig), .read = &read_all

const struct method method_presets[] = {
    {.name = "full", .summary = "nothing is evicted", .source = "-", ROW(trigger_none),
     .pool = 1},
    {.name = "window", .summary = "attention sinks and the newest tokens",
     .source = "StreamingLLM, Xiao et al. 2023, original positions", ROW(trigger_overflow),
     .score = &score_position, .reason = KVF_REASON_WINDOW, .sinks = 4, .recent = RECENT_REST,
     .pool = 1},
    {.name = "h2o", .summary = "heavy hitters by accumulated attention, and recent tokens",
     .source = "H2O, Zhang et al. 2023", ROW(trigger_overflow), .score = &score_received,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_HALF, .pool = 1, .group = GROUP_SUM},
    {.name = "snapkv", .summary = "attention from the last queries, pooled; decode form",
     .source = "SnapKV, Li et al. 2024", ROW(trigger_overflow), .score = &score_window,
     .reason = KVF_REASON_BUDGET, .recent = RECENT_WINDOW, .window = 32, .pool = 7,
     .pool_kind = POOL_MAX, .group = GROUP_MEAN},
    {.name = "tova", .summary = "attention of the newest query, one set per layer",
     .source = "TOVA, Oren et al. 2024", ROW(trigger_overflow), .score = &score_window,
     .scope = SCOPE_LAYER, .reason = KVF_REASON_BUDGET, .window = 1, .pool = 1,
     .group = GROUP_MEAN},
    {.name = "keydiff", .summary = "keys that differ most from the others",
     .source = "KeyDiff, Park et al. 2025", ROW(trigger_overflow), .score = &score_keydiff,
     .reason = KVF_REASON_BUDGET, .pool = 1},
    {.name = "random", .summary = "a random set, fixed by the seed", .source = "baseline",
     ROW(trigger_overflow), .score = &score_random, .reason = KVF_REASON_BUDGET, .pool = 1},
    {.name = NULL},
};
