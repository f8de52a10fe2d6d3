/* golden.h - what the engine's tests share: models, golden files, all logits. */
#ifndef KVF_TESTS_GOLDEN_H
#define KVF_TESTS_GOLDEN_H

#include "base/json.h"
#include "engine/decode/session.h"

/* The whole file, NUL-terminated; free with mem_free.  Ends the test on failure. */
char *read_whole(const char *path, size_t *ret_n);

/* The default model's path, or NULL (with a line on stderr) when it is absent. */
const char *default_model(void);
/* Another model of the same folder, as default_model. */
const char *cached_model(const char *name);

/* $KVF_GOLDEN/name, and the i-th tiny model: $KVF_TINY/tiny<i>.gguf, qwen<i>.gguf or
 * family<i>.gguf. */
const char *golden_path(const char *name);
const char *tiny_path(int i);
const char *qwen_path(int i);
const char *family_path(int i);
const char *vocabulary_path(const char *name); /* $KVF_VOCABULARIES/name */
/* $KVF_TINY_GATES/tiny_<name>.safetensors, for this model; gates_close. */
struct gates *open_gates(const struct engine *e, const char *name);

struct json *golden_json(const char *name);                /* json_free */
int32_t *golden_ids(const struct json *array, int *ret_n); /* mem_free */

struct engine *open_model(const char *path, bool exact, int threads);
/* With weights of floats as integers. */
struct engine *open_words(const char *path, int threads);
/* With --rope-scale, or NULL. */
struct engine *open_scaled(const char *path, const char *rope_scale, bool exact, int threads);

/* A method with its budget, as --method and --budget give them. */
struct choice {
    struct method row;
    struct method_params params;
};
struct choice choose(const char *method, int budget);

struct session *open_session(struct engine *e, const struct choice *c, int cap, int chunk,
                             struct recorder *rec);

/* Logits of every position of a prompt, [n][vocab], from one session_prompt: the
 * final norm's output is caught on its way and multiplied with the head. */
float *all_logits(struct engine *e, enum kv_type kv, const int32_t *ids, int n);

double log_sum_exp(const float *row, int n);
int argmax(const float *row, int n);

#endif
