/* shadow.h - compares a run with a full cache run (--shadow model); private to engine/decode/.
 *
 * A session with a full cache, the full-cache run, is fed the same tokens, chunk by chunk, just
 * before the session. Both have the same rows when they are compared. The costs are a second run,
 * the output matrix twice per token with a different residual stream and once for the NLL, and
 * [L][chunk][d_model] floats. */
#ifndef KVF_ENGINE_SHADOW_H
#define KVF_ENGINE_SHADOW_H

struct session;
struct shadow;

/* Compares s with its full cache from now on. Returns KVF_OK or KVF_E_NOMEM. */
int shadow_create(struct session *s);
void shadow_destroy(struct shadow *w); /* accepts NULL */

/* Call this after a layer has run over T tokens, for the full-cache run first, then for the
 * session. */
void shadow_layer(struct session *s, int layer, int T);
/* Call this for the session after all layers have run over T tokens. The first is token
 * s->n_past. */
void shadow_tokens(struct session *s, int T);

#endif
