/* parts.h - the parts of methods by name, one file each, and what several files of one kind
 * share.  A line of a list declares, compiles and lists a part. */
#ifndef KVF_ENGINE_PARTS_H
#define KVF_ENGINE_PARTS_H

#include "engine/method/method.h"

#define X(name) extern const struct admission admission_##name;
#include "engine/method/admissions.list"
#undef X
#define X(name) extern const struct score score_##name;
#include "engine/method/scores.list"
#undef X
#define X(name) extern const struct allocation allocation_##name;
#include "engine/method/allocations.list"
#undef X
#define X(name) extern const struct trigger trigger_##name;
#include "engine/method/triggers.list"
#undef X
#define X(name) extern const struct read read_##name;
#include "engine/method/reads.list"
#undef X

/* The first query that does not see an entry which `steps` queries see. */
static inline int32_t admission_after(int32_t pos, int steps)
{
    return steps < CACHE_STAYS - pos ? pos + steps : CACHE_STAYS - 1;
}

/* `until` of sinks and a sliding window (admission_streaming.c). */
int32_t admission_until_streaming(const struct method_state *m, int layer, int head, int32_t pos,
                                  float gate);
/* `eval` of the number that a gate gave the entry at birth (score_write_gate.c). */
void score_gate_number(const struct score_input *in, float *out, float *scratch);
/* `target` that makes room for newcomers (trigger_overflow.c). */
int trigger_target_overflow(const struct method_state *m, int share, int n, int incoming);

#endif
