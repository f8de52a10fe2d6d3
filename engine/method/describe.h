/* describe.h - describes a preset in text, from its parts and parameters, without a model. */
#ifndef KVF_ENGINE_METHOD_DESCRIBE_H
#define KVF_ENGINE_METHOD_DESCRIBE_H

#include "engine/method/preset.h"

/* Writes the names of the evidence that a preset reads to `out`, at most `cap` bytes:
 * "attention,keys", or "nothing". */
void method_needs(const struct method *m, char *out, size_t cap);

/* Returns the unit that has one set of entries or pages: "query head", "KV head" or "layer". */
const char *method_one_set_for(const struct method *m, const struct method_params *p);

/* Writes the entries that a preset never evicts, with its published parameters, to `out`, at most
 * `cap` bytes: "sinks, recent", "recent B/2", "window". */
void method_protects(const struct method *m, char *out, size_t cap);

/* Writes the formula of method_state_bytes() to `out`, at most `cap` bytes: "4 g (w + 1) + 12".
 * g: query heads, D: channels, w: rows of the window, p: entries in a page, d: length of the
 * vectors of a block gate. */
void method_state_formula(const struct method *m, char *out, size_t cap);

/* Returns the kind of gates that the preset needs, such as "write", or NULL. */
const char *method_gates_name(const struct method *m);

#endif
