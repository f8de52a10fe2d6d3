/* score_importance.c - the importance of an entry from a trained head (LocRet). */
#include "engine/method/parts.h"

const struct score score_importance = {
    .name = "importance",
    .cost = "n",
    .summary = "the importance that a trained head gave the entry",
    .evidence = EVIDENCE_GATE,
    .gates = 1u << GATE_IMPORTANCE,
    .calibrated = true,
    .eval = score_gate_number,
    .one = score_gate_one,
};
