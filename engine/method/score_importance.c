/* score_importance.c - the importance of an entry from a trained head (LocRet). */
#include "engine/method/parts.h"

const struct score score_importance = {
    .name = "importance",
    .cost = "n",
    .summary = "importance of the entry by a trained head",
    .evidence = EVIDENCE_GATE,
    .gates = 1u << GATE_IMPORTANCE,
    .calibrated = true,
    .eval = score_gate_number,
    .one = score_gate_one,
};
