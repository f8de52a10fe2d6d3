/* saliency_beta.h - evaluates retention gates on the tokens that `kvfate ablate --as saliency`
 * examines. */
#ifndef KVF_CLI_SALIENCY_BETA_H
#define KVF_CLI_SALIENCY_BETA_H

#include "engine/decode/session.h"

/* Computes log beta [L * H][n] of every entry with the full cache in f32. Free *ret_beta with
 * mem_free(). gates_file is the value of --gates; NULL opens the gates shipped for `method`, which
 * needs retention gates. ret_hash receives the hash of the gates. Returns KVF_OK, or KVF_E_ARG or
 * another error with a sentence. */
int saliency_beta(struct engine *e, const char *gates_file, const char *method, const int32_t *ids,
                  int n, double **ret_beta, char ret_hash[33], struct kvf_diag *d);

#endif
