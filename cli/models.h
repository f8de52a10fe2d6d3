/* models.h - opens the model, the gates and the heads that the command line names. */
#ifndef KVF_CLI_MODELS_H
#define KVF_CLI_MODELS_H

#include "engine/decode/session.h"
#include "engine/train/compute.h"

struct execution;

/* Opens a model; NULL opens the default model. With --device auto, prints the chosen device on the
 * standard error. Returns KVF_OK or an error with a sentence. */
int model_open(const char *model, const struct execution *how, struct engine **ret_engine,
               struct kvf_diag *d);
/* Returns err, the result of opening a model. If the default model is missing, which is the case if
 * model is NULL and err is KVF_E_IO or KVF_E_NOTFOUND, writes a sentence that tells how to get it.
 * path: its path; NULL if there is no cache folder. */
int model_missing(const char *model, const char *path, int err, struct kvf_diag *d);
/* Chooses the device and precision that compute derivatives, from --device and --exact. Sets `how`
 * to the CPU and exact arithmetic, with which the model is opened for all other decoding. Returns
 * KVF_OK, or KVF_E_BACKEND with a sentence. */
int model_learner(struct execution *how, struct learner *ret, struct kvf_diag *d);
/* Returns "cuda bf16" or "cuda f32". Returns NULL for the CPU. */
const char *model_learner_word(const struct learner *l);

/* Opens gates for this model from a file, or shipped gates by name (folders.h). Returns KVF_OK or
 * an error with a sentence. */
int model_gates(struct engine *e, const char *path, struct gates **ret_gates, struct kvf_diag *d);

/* Opens the shipped gates for a method and this model. Leaves *ret_gates unchanged if the method
 * needs no gates or no gates are shipped. Returns KVF_OK, or an error with a sentence if kvfate
 * train could make the missing gates. */
int model_shipped_gates(struct engine *e, const struct method *m, struct gates **ret_gates,
                        struct kvf_diag *d);

/* Parses --head SET of a model's KV heads into *ret_take [L * KV heads]. The caller frees it with
 * mem_free(), also after an error. Returns KVF_E_ARG with a sentence if the set is malformed or
 * matches no head. */
int model_heads(const struct model_config *m, const char *set, unsigned char **ret_take,
                struct kvf_diag *d);

#endif
