/* hf.h - private to engine/model: the interface between the readers of a Hugging Face folder.
 *
 * Each reader writes metadata with the keys of GGUF, or gives tensors the names of GGUF, so that
 * other code does not depend on the source of a model.
 */
#pragma once

#include "base/json.h"
#include "engine/model/gguf_put.h"

/* The model families, one bit each, so that rows of tables can apply to several. */
enum hf_families {
    HF_LLAMA = 1 << 0,
    HF_MISTRAL = 1 << 1,
    HF_QWEN2 = 1 << 2,
    HF_QWEN3 = 1 << 3,
    HF_SMOLLM3 = 1 << 4,
    HF_PHI3 = 1 << 5,
    HF_GEMMA2 = 1 << 6,
    HF_GEMMA3 = 1 << 7,
    HF_OLMO2 = 1 << 8,
    HF_GRANITE = 1 << 9,
    HF_GEMMAS = HF_GEMMA2 | HF_GEMMA3,
    HF_ALL = (1 << 10) - 1
};

/* A model family. */
struct hf_family {
    const char *model_type; /* in config.json */
    const char *arch;       /* name in GGUF */
    unsigned bit;           /* enum hf_families */
    int head_dim;           /* default if config.json has none; 0 for hidden_size / heads */
    bool gelu;              /* the activation is GELU in its tanh form, not SiLU */
    bool tied;              /* default if config.json does not specify it */
};

/* A small tensor that is computed from config.json. */
struct hf_vector {
    const char *name; /* name in GGUF */
    float *v;         /* owned */
    uint64_t n;
};

enum { HF_VECTORS = 2 };

/* The results of reading config.json. */
struct hf_config {
    const struct hf_family *family;
    bool tied; /* the output matrix is the embedding */
    struct hf_vector vector[HF_VECTORS];
    int n_vectors;
};

/* Writes the shape of the model to put. path: path of config.json for messages. Pass *ret to
 * hf_config_finish() also on failure. Returns KVF_OK, KVF_E_FORMAT with a sentence, or
 * KVF_E_NOMEM. */
int hf_config_read(const char *path, const struct json *config, struct gguf_put *put,
                   struct hf_config *ret, struct kvf_diag *d);
void hf_config_finish(struct hf_config *c); /* accepts a zeroed struct */

/* The use of a tensor of a folder. */
enum hf_use {
    HF_KEEP,
    HF_PLUS_ONE, /* the file has w, and GGUF has 1 + w */
    HF_DROP,     /* not needed */
    HF_UNKNOWN,
    HF_NAME = 64 /* maximum bytes of a GGUF name with its NUL */
};

/* Finds the use of a tensor. Writes its GGUF name to out if it is used. */
enum hf_use hf_name(const struct hf_family *f, const char *name, char out[HF_NAME]);

/* The texts of a folder from which the tokenizer is made; NULL if a file is missing. */
struct hf_texts {
    const char *path;      /* path of the folder */
    const char *tokenizer; /* content of tokenizer.json */
    size_t n_tokenizer;
    const void *spm; /* content of tokenizer.model, used if tokenizer.json is missing */
    size_t n_spm;
    const struct json *config, *generation, *tokenizer_config;
    const char *chat_template;
    size_t n_chat_template;
};

/* Writes the vocabulary and the chat template to put. Returns KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT
 * with a sentence, or KVF_E_NOMEM. */
int hf_tokenizer_read(const struct hf_texts *x, struct gguf_put *put, struct kvf_diag *d);
