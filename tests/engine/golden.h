/* golden.h - shared by the engine's tests: models, golden files, and logits of all positions. */
#ifndef KVF_TESTS_GOLDEN_H
#define KVF_TESTS_GOLDEN_H

#include "base/json.h"
#include "engine/decode/session.h"
#include "tests/files.h"

/* Returns the path of the default model, or NULL (with a line on stderr) if it is absent. */
const char *default_model(void);
/* Returns the path of another model in the folder of the default model, or NULL if it is absent. */
const char *cached_model(const char *name);

/* Return $KVF_GOLDEN/name, and the path of the i-th tiny model: $KVF_TINY/tiny<i>.gguf,
 * qwen<i>.gguf or family<i>.gguf. */
const char *golden_path(const char *name);
const char *tiny_path(int i);
const char *qwen_path(int i);
const char *family_path(int i);
const char *vocabulary_path(const char *name); /* returns $KVF_VOCABULARIES/name */
/* Opens $KVF_TINY_GATES/tiny_<name>.safetensors for this model; free with gates_close(). */
struct gates *open_gates(const struct engine *e, const char *name);

struct json *golden_json(const char *name);                /* free with json_free() */
int32_t *golden_ids(const struct json *array, int *ret_n); /* free with mem_free() */

struct engine *open_model(const char *path, bool exact, int threads);
/* Opens a model with float weights converted to integers. */
struct engine *open_words(const char *path, int threads);
/* Opens a model with the value of --rope-scale, or NULL. */
struct engine *open_scaled(const char *path, const char *rope_scale, bool exact, int threads);

/* A method with its budget, as given by --method and --budget. */
struct choice {
    struct method row;
    struct method_params params;
};
struct choice choose(const char *method, int budget);

struct session *open_session(struct engine *e, const struct choice *c, int cap, int chunk,
                             struct recorder *rec);

/* Returns the logits of all prompt positions, [n][vocab], from one session_prompt(). It intercepts
 * the final norm's output and multiplies it with the head. */
float *all_logits(struct engine *e, enum kv_type kv, const int32_t *ids, int n);

double log_sum_exp(const float *row, int n);
int argmax(const float *row, int n);

#endif
