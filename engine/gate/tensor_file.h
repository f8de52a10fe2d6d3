/* tensor_file.h - the named tensors of a safetensors file (docs/reference/gates.md).
 *
 * The file is checked when it is opened, so getters cannot fail later.  Everything returned is
 * borrowed until tensor_file_close. */
#pragma once

#include "engine/model/safetensors.h"

/* An open file; other files use the functions below. */
struct tensor_file {
    char *path;
    unsigned char *map; /* all bytes of the file, read-only */
    size_t size;
    struct tensor *tensor; /* owned, sorted by name, names unique */
    size_t n;
    struct json *root;       /* the header; owns names and metadata */
    const struct json *meta; /* NULL: no metadata */
};

/* Opens and checks a safetensors file.  Returns KVF_OK, KVF_E_NOMEM, or with a sentence KVF_E_IO,
 * KVF_E_FORMAT or KVF_E_LIMIT. */
int tensor_file_open(const char *path, struct tensor_file **ret_f, struct kvf_diag *d);
void tensor_file_close(struct tensor_file *f); /* accepts NULL */

/* Returns the tensor with a name, or NULL.  *ret_i (may be NULL): its index in f->tensor. */
const struct tensor *tensor_file_find(const struct tensor_file *f, const char *name, size_t *ret_i);

/* Returns the metadata value of a key, or NULL. */
const char *tensor_file_meta(const struct tensor_file *f, const char *key);
/* Returns the i-th key of the metadata, or NULL after the last. */
const char *tensor_file_meta_key(const struct tensor_file *f, int i);

/* Writes XXH3-128 of all bytes of the file, in hex, to `out`. */
void tensor_file_hash(const struct tensor_file *f, char out[33]);
