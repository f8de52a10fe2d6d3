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

/* Resolves the value of -m to a path. NULL is the default model in the cache folder. The name of a
 * listed model is its file in the cache folder, unless a file of that name exists
 * here. Any other value is the path itself. Returns KVF_OK, KVF_E_IO with a sentence if the listed
 * model has not been fetched, or KVF_E_NOMEM. */
int model_path(const char *given, struct buf *ret_path, struct kvf_diag *d);

#endif
