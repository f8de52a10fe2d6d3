/* models.h - a model, its gates and its heads, as they are named on the command line. */
#ifndef KVF_CLI_MODELS_H
#define KVF_CLI_MODELS_H

#include "engine/decode/session.h"
#include "engine/train/compute.h"

struct execution;

/* Opens a model; NULL: the default one.  With --device auto a line on the standard error says what
 * was taken.  KVF_OK or an error with a sentence. */
int model_open(const char *model, const struct execution *how, struct engine **ret_engine,
               struct kvf_diag *d);
/* For commands of derivatives: what --device and --exact mean for these; what is decoded beside
 * them the processor decodes, as the model is then opened.  KVF_OK, or KVF_E_BACKEND with a
 * sentence. */
int model_learner(struct execution *how, struct learner *ret, struct kvf_diag *d);
/* "cuda bf16" or "cuda f32"; NULL: the processor, whose results need no word. */
const char *model_learner_word(const struct learner *l);

/* Gates for this model, of a file or of the name of shipped ones (folders.h).  KVF_OK or an
 * error with a sentence. */
int model_gates(struct engine *e, const char *path, struct gates **ret_gates, struct kvf_diag *d);

/* Those shipped for a row and this model: *ret_gates is left alone when the row needs none.
 * KVF_OK or an error with a sentence. */
int model_shipped_gates(struct engine *e, const struct method *m, struct gates **ret_gates,
                        struct kvf_diag *d);

/* --head SET of a model's KV heads: *ret_take [L * KV heads], to be freed with mem_free, on
 * failure too.  KVF_E_ARG with a sentence for a set that is malformed or names none. */
int model_heads(const struct model_config *m, const char *set, unsigned char **ret_take,
                struct kvf_diag *d);

#endif
