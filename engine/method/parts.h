/* parts.h - the lists of all parts of methods, and the functions that parts share.
 *
 * To add a part NAME, for which KIND is score, admission, allocation, trigger or read
 * (tools/new.py score NAME "summary" --evidence E writes all these files):
 * 1. KIND_NAME.c ends with `const struct KIND KIND_NAME`; preset.h defines its members.
 * 2. Add X(NAME) to the list of its kind, KINDs.list.  Every preset then accepts the new score,
 *    allocation or read: --method knorm:score=NAME.  An admission or a trigger needs a preset that
 *    uses it (presets.c).
 * 3. docs/reference/methods.md: add its name in back quotes under Parts, and its equation to the
 *    preset that uses it.
 * 4. Add hand-computed values to tests/method/, and its definition, written only from the document,
 *    to tests/oracle/:
 *      score       test_score_NAME.c; methods_*.py, SCORES of methods.py; in tolerance.py ERRORS
 *                  (the error of f32), UNEQUAL if equal scores may differ by rounding, LENGTHS if
 *                  they depend on lengths only; in cases.py PART_SCORES (tested in other presets)
 *                  and PART_OPTIONS (its options); SCORES of tests/cli/random_methods.py
 *      admission   test_admission.c; `until` in methods_gates.py
 *      allocation  allocation.py
 *      trigger     methods.py
 *      read        test_pages.c; reading.py
 * 5. `meson test -C build --setup quick --suite method --suite oracle --suite lint --no-suite
 * slow`.
 *
 * A score keeps no private state, since heads run in parallel.  It sums in the order of time
 * (in->view.order), not of slots, or in whole units: a sum must not depend on evicted entries.
 * window.h has functions for scores from attention rows, and shares.h functions for allocations.
 * pages.h has the data of pages.  An admission knows neither budget nor attention.
 *
 * A new kind of evidence needs a bit in preset.h and an array in evidence.h.  evidence.c allocates,
 * moves, frees and counts it, fork.c copies it, and describe.c names it. */
#ifndef KVF_ENGINE_PARTS_H
#define KVF_ENGINE_PARTS_H

#include "engine/method/method_state.h"

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

/* access.c: read access to the state of a method, for parts. */
const struct kernels *method_kernels(const struct method_state *s);
/* Returns the query heads [*first, *first + *n) that decide together for KV head `head`. */
void method_group(const struct method_state *s, int head, int *ret_first, int *ret_n);
/* Returns the attention that each slot received from query head g of the layer.  [slots] */
const double *evidence_sum(const struct method_state *s, int layer, int query_head);
/* Returns the attention row of the age-th newest query (0 = newest), [slots].  *ret_t: position of
 * the query.  *ret_n: entries that it saw.  Both may be NULL.  The weight of an entry at a position
 * after ret_t is 0: the number in its slot belongs to another entry. */
const float *evidence_row(const struct method_state *s, int layer, int query_head, int age,
                          int32_t *ret_t, int *ret_n);
/* Returns the log-sum-exp of the logits of the row that evidence_row() returns. */
float evidence_row_lse(const struct method_state *s, int layer, int query_head, int age);
/* Returns how many rows are stored, at most `window`. */
int evidence_rows(const struct method_state *s, int layer, int query_head);
/* Returns the stored key of an entry, scaled to length 1.  [head_dim] */
const float *evidence_key(const struct method_state *s, int layer, int head, int slot);
/* Returns the L2 norms of the stored keys.  [slots] */
const float *evidence_norms(const struct method_state *s, int layer, int head);
/* Returns the sum of the unit keys of the n entries of a head, [head_dim], in multiples of 2^-32,
 * which makes it exact.  One caller per head at a time. */
const double *evidence_anchor(const struct method_state *s, int layer, int head, int n);
/* Returns the L2 norms of the stored values.  [slots] */
const float *evidence_value_norms(const struct method_state *s, int layer, int head);
/* Returns the gate values of the entries.  [slots] */
const float *evidence_gate(const struct method_state *s, int layer, int head);
/* Returns how many queries before RoPE were summed, their sum [D] and the sum of their outer
 * products [D][D]. */
int64_t evidence_moments(const struct method_state *s, int layer, int query_head,
                         const double **ret_sum, const double **ret_outer);
/* Return attention of the full-cache run by position: accumulated, and of its newest query. */
const double *evidence_full_sum(const struct method_state *s, int layer, int query_head);
const float *evidence_full_row(const struct method_state *s, int layer, int query_head);
/* Returns one number per entry that the score part computes once and writes here; NaN = not yet.
 * [slots] */
double *evidence_note(const struct method_state *s, int layer, int head);
/* Returns the scores of the last eviction, NaN = none, which the score part may write.  [slots] */
float *evidence_history(const struct method_state *s, int layer, int head);

/* Is the `until` of sinks and a sliding window (admission_streaming.c). */
int32_t admission_until_streaming(const struct method_state *m, int layer, int head, int32_t pos,
                                  float gate);
/* Is an `eval` that returns the gate value of each entry (score_write_gate.c). */
void score_gate_number(const struct score_input *in, float *out, float *scratch);
/* Is the `one` of score_gate_number(). */
float score_gate_one(const struct score_input *in, int slot);
/* Is the `target` that keeps places free for new entries (trigger_overflow.c). */
int trigger_target_overflow(const struct method_state *m, int share, int n, int incoming);

#endif
