/* saliency_beta.h - what retention gates say of the tokens that `saliency` looks at. */
#ifndef KVF_CLI_SALIENCY_BETA_H
#define KVF_CLI_SALIENCY_BETA_H

#include "engine/decode/session.h"

/* log beta [L * H][n] of every entry under the full cache, in f32; free *ret_beta with
 * mem_free.  gates_file: as of --gates; NULL: those shipped for `method`, which needs
 * retention gates.  ret_hash: of the file.  KVF_OK, or KVF_E_ARG and others with a sentence. */
int saliency_beta(struct engine *e, const char *gates_file, const char *method, const int32_t *ids,
                  int n, double **ret_beta, char ret_hash[33], struct kvf_diag *d);

#endif
