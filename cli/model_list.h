/* model_list.h - the models that `kvfate models get NAME` fetches (python/kvfate/model_list.py). */
#ifndef KVF_CLI_MODEL_LIST_H
#define KVF_CLI_MODEL_LIST_H

#include <stdint.h>

#include "base/buf.h"

/* A model that can be fetched. */
struct listed_model {
    const char *name;   /* value of -m and of `get` */
    const char *file;   /* its name in the cache folder */
    const char *sha256; /* of the file, 64 hexadecimal digits */
    const char *family; /* general.architecture */
    const char *title, *licence;
    const char *terms; /* address of a licence that must be accepted; NULL if none must */
    int64_t bytes;     /* size of the file */
};
extern const struct listed_model
    model_list[]; /* ends with .name == NULL; the first is the default */

/* Resolves the value of -m to the path of a model file or folder. NULL is the default model in the
 * cache folder. The name of a listed model is its file in the cache folder, unless a file of that
 * name exists here. ORG/NAME is the snapshot of this model in the cache of the Hugging Face hub,
 * unless a file of that name exists. A folder models--ORG--NAME of that cache is its snapshot. A
 * folder without config.json is its only GGUF file. NAME.safetensors is its folder. Any other value
 * is the path. Returns KVF_OK, KVF_E_IO with a sentence if files are missing, ambiguous or Git LFS
 * pointers, or KVF_E_NOMEM. */
int model_path(const char *given, struct buf *ret_path, struct kvf_diag *d);

#endif
