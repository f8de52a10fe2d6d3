/* masks.h - records the evictions of a decoder as an attention mask for a training pass over the
 * same tokens.
 *
 * Every document of the packs is decoded under a method: first its prompt, then token by token, all
 * documents in parallel. Queries of the pass after an eviction do not see the evicted entry either.
 * The decoder uses the student's weights, so the mask is that of the student's own cache. */
#ifndef KVF_ENGINE_TRAIN_MASKS_H
#define KVF_ENGINE_TRAIN_MASKS_H

#include "base/stage.h"
#include "engine/decode/session.h"
#include "engine/train/packs.h"

/* Decodes the documents of n_packs packs with `opt` (its cap and recorder are ignored). The first
 * `prompt` >= 1 tokens of a document are a prefill. Sets evicted_at: [n_packs][L, n, H], as in
 * engine/kernels/gated.h. *ret_evicted becomes the number of evicted entries, unless NULL. `watch`
 * receives the number of processed tokens, unless NULL. Returns KVF_OK or an error of a session,
 * with a message. */
int masks_make(struct engine *e, const struct session_options *opt, int prompt,
               const struct pack *pack, int n_packs, int32_t *const *evicted_at,
               int64_t *ret_evicted, struct stage *watch, struct kvf_diag *d);

#endif
