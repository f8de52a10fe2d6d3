/* safetensors.h - the container safetensors: files of gates, and of models in folders.
 *
 * u64 length of the header, a JSON object, then the tensors' bytes, little-endian. */
#ifndef KVF_ENGINE_SAFETENSORS_H
#define KVF_ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

enum {
    TENSOR_DIMS = 4,
    TENSOR_NAME = 256,   /* bytes of a name with its NUL */
    TENSORS_MOST = 65536 /* in a file */
};

/* The key of the metadata under which files of kvfate have their checksum: XXH3-128 of all bytes of
 * the file, in hex, with zeros in the place of these digits. */
#define SAFETENSORS_CHECKSUM "kvfate.checksum"
#define SAFETENSORS_ZEROS "00000000000000000000000000000000"
enum { SAFETENSORS_DIGITS = sizeof SAFETENSORS_ZEROS - 1 };

struct tensor {
    const char *name;
    int n_dims;                /* 0 .. TENSOR_DIMS */
    uint64_t dim[TENSOR_DIMS]; /* dim[0] is the slowest; each >= 1, unused ones are 1 */
    uint64_t n;                /* elements, at least 1 */
    enum weight_type type;     /* WEIGHT_F32, WEIGHT_F16 or WEIGHT_BF16 */
    const void *data;          /* row-major, little-endian, aligned to the element */
};

struct json;

struct safetensors {
    struct tensor *tensor; /* owned, sorted by name, names unique; data is in the file's bytes */
    size_t n;
    struct json *root;       /* the header; owns names and metadata */
    const struct json *meta; /* its __metadata__, an object of texts; NULL: none */
};

/* The tensors of a file of `size` bytes, at least 10, at `map`, which must outlive them; path: for
 * sentences.  Strict: names are unique, dtypes are F32, F16 or BF16, no dimension is 0, and the
 * tensors fill the bytes after the header without gap or overlap.  A file with a checksum has the
 * bytes that it was made of.  KVF_OK, KVF_E_FORMAT or
 * KVF_E_LIMIT with a sentence, KVF_E_NOMEM. */
int safetensors_read(const char *path, const unsigned char *map, size_t size,
                     struct safetensors *ret, struct kvf_diag *d);
void safetensors_finish(struct safetensors *f); /* accepts a zeroed one */

#endif
