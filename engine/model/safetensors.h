/* safetensors.h - reads the container safetensors, for files of gates and of models in folders.
 *
 * The file is a u64 length of the header, the header as a JSON object, and the bytes of the
 * tensors, little-endian.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

enum {
    TENSOR_DIMS = 4,
    TENSOR_NAME = 256,   /* maximum bytes of a name with its NUL */
    TENSORS_MOST = 65536 /* maximum tensors in a file */
};

/* The metadata key of the checksum in files of kvfate: XXH3-128 of all bytes of the file, in hex,
 * computed with zeros at the position of its digits. */
#define SAFETENSORS_CHECKSUM "kvfate.checksum"
#define SAFETENSORS_ZEROS "00000000000000000000000000000000"
enum { SAFETENSORS_DIGITS = sizeof SAFETENSORS_ZEROS - 1 };

/* A tensor of a file. */
struct tensor {
    const char *name;
    int n_dims;                /* 0 .. TENSOR_DIMS */
    uint64_t dim[TENSOR_DIMS]; /* dim[0] varies slowest; each >= 1, unused dimensions are 1 */
    uint64_t n;                /* number of elements, at least 1 */
    enum weight_type type;     /* WEIGHT_F32, WEIGHT_F16 or WEIGHT_BF16 */
    const void *data;          /* row-major, little-endian, aligned to the element */
};

struct json;

/* The tensors and the metadata of a file. */
struct safetensors {
    struct tensor *tensor; /* owned, sorted by unique names; data points into the file */
    size_t n;
    struct json *root;       /* the header; owns the names and the metadata */
    const struct json *meta; /* __metadata__, an object of texts; NULL if there is none */
};

/* Reads the tensors of a file of `size` >= 10 bytes at `map`, which must outlive them. path is for
 * messages. The format is checked strictly: names are unique, types are F32, F16 or BF16, no
 * dimension is 0, and the tensors fill the bytes after the header without gap or overlap. A
 * checksum, if present, must match. Returns KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT with a sentence,
 * or KVF_E_NOMEM. */
int safetensors_read(const char *path, const unsigned char *map, size_t size,
                     struct safetensors *ret, struct kvf_diag *d);
void safetensors_finish(struct safetensors *f); /* accepts a zeroed struct */
