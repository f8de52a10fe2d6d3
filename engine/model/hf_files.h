/* hf_files.h - private to engine/model: the files of a Hugging Face folder. */
#pragma once

#include <stdbool.h>

#include "base/json.h"
#include "engine/model/safetensors.h"

enum { HF_FILES = 6 };
enum hf_file {
    HF_CONFIG,
    HF_GENERATION,
    HF_TOKENIZER,
    HF_TOKENIZER_CONFIG,
    HF_TEMPLATE,
    HF_SPM /* read if there is no HF_TOKENIZER */
};

struct hf_text { /* a small file */
    bool there;
    unsigned char *bytes; /* NULL if the file is missing or was dropped */
    size_t n;
    unsigned char digest[16];
};

struct hf_shard { /* a mapped file of weights */
    char *name, *path;
    unsigned char *map;
    size_t size;
    struct safetensors tensors;
};

/* The files of a folder. */
struct hf_files {
    char *path;
    struct hf_text text[HF_FILES];
    struct hf_shard *shard; /* [n_shards] sorted by name */
    size_t n_shards;
    struct json *index;           /* index of the shards; NULL if there is only model.safetensors */
    const struct tensor **tensor; /* [n_tensors] of all shards */
    size_t n_tensors;
    void **own; /* [n_own] data computed from tensors, freed with mem_free() */
    size_t n_own;
};

/* Reads the small files. Returns KVF_OK, KVF_E_IO, KVF_E_FORMAT or KVF_E_LIMIT with a sentence, or
 * KVF_E_NOMEM. Call hf_files_free() in any case. */
int hf_files_read(struct hf_files *f, struct kvf_diag *d);
/* Maps the weights and lists the tensors. Returns as hf_files_read() does. */
int hf_files_map(struct hf_files *f, struct kvf_diag *d);
void hf_files_free(void *f); /* accepts NULL */
/* Sets out to the hash of the folder (hf_folder.h), in hex. */
void hf_files_hash(const void *f, char out[33]);
const char *hf_file_name(enum hf_file k);

/* Frees the bytes of a text and keeps its digest. */
void hf_files_drop(struct hf_files *f, enum hf_file k);
