/* masks.h - the evictions of a decoder's run as the attention mask of a pass over the same tokens.
 *
 * Every document of the packs is decoded under a method, first its prompt, then token by token, all
 * documents side by side; an entry that leaves is seen by no later query of the pass, either.  The
 * decoder has the student's own weights, so that what is masked is what its own cache would have
 * lost. */
#ifndef KVF_ENGINE_TRAIN_MASKS_H
#define KVF_ENGINE_TRAIN_MASKS_H

#include "base/stage.h"
#include "engine/decode/session.h"
#include "engine/train/packs.h"

/* opt: of the sessions; its cap and recorder do not matter.  prompt: tokens of a document that are
 * fed at once (at least 1).  gone: [n_packs][L, n, H], of each pack as attention.h has it, set.
 * *ret_left, unless NULL: how many entries left.  watch, unless NULL, is told how many of how many
 * tokens are fed.  KVF_OK or an error of a session, with a sentence. */
int masks_make(struct engine *e, const struct session_options *opt, int prompt,
               const struct pack *pack, int n_packs, int32_t *const *gone, int64_t *ret_left,
               struct stage *watch, struct kvf_diag *d);

#endif
