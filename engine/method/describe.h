/* describe.h - what documents say of a row, from its parts and numbers alone: no model is needed.
 */
#ifndef KVF_ENGINE_METHOD_DESCRIBE_H
#define KVF_ENGINE_METHOD_DESCRIBE_H

#include "engine/method/preset.h"

/* What the row looks at, "attention,keys" or "nothing": to out, of cap bytes. */
void method_needs(const struct method *m, char *out, size_t cap);

/* Whose one set of entries, or of pages, it is: "query head", "KV head" or "layer". */
const char *method_one_set_for(const struct method *m, const struct method_params *p);

/* What a row of the presets never cuts, as published: "sinks, recent", "recent B/2", "window". */
void method_protects(const struct method *m, char *out, size_t cap);

/* What method_state_bytes works out, as a formula: "4 g (w + 1) + 12", with g query heads, D
 * channels, w rows of the window, p entries in a page and d numbers of a block gate. */
void method_state_formula(const struct method *m, char *out, size_t cap);

/* The gates that the row needs: "write"; NULL: none. */
const char *method_gates_name(const struct method *m);

#endif
