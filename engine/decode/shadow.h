/* shadow.h - a run beside its full-cache twin (--shadow model); private to
 * engine/decode/.
 *
 * The twin is fed the same tokens, part by part just before the session: both hold the
 * same rows when they are compared.  Costs a second run, the output matrix twice per
 * token whose residual streams differ and once for the NLL, and [L][chunk][d_model]
 * floats. */
#ifndef KVF_ENGINE_SHADOW_H
#define KVF_ENGINE_SHADOW_H

struct session;
struct shadow;

/* Compares s with s->twin from now on.  KVF_OK or KVF_E_NOMEM. */
int shadow_create(struct session *s);
void shadow_destroy(struct shadow *w); /* accepts NULL */

/* To be called when a layer has run over T tokens: for the twin first, then for the session. */
void shadow_layer(struct session *s, int layer, int T);
/* To be called for the session when all layers have run over them; the first is token s->n_past. */
void shadow_tokens(struct session *s, int T);

#endif
