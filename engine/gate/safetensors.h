/* safetensors.h - a safetensors file, mapped read-only.
 *
 * u64 length of the header, a JSON object, then the tensors' bytes, little-endian.
 * Everything is checked against the size of the file when it is opened; getters
 * cannot fail later.  Everything returned is borrowed until safetensors_close. */
#ifndef KVF_ENGINE_SAFETENSORS_H
#define KVF_ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

enum { SAFETENSORS_DIMS = 4 };

struct safetensors;

struct safetensor {
    const char *name;
    int n_dims;                     /* 0 .. SAFETENSORS_DIMS */
    uint64_t dim[SAFETENSORS_DIMS]; /* dim[0] is the slowest; unused ones are 1 */
    uint64_t n;                     /* elements, at least 1 */
    enum weight_type type;          /* WEIGHT_F32, WEIGHT_F16 or WEIGHT_BF16 */
    const void *data;               /* aligned to the element */
};

/* KVF_OK, KVF_E_IO, KVF_E_FORMAT, KVF_E_LIMIT (with a sentence), KVF_E_NOMEM.
 * Strict: names are unique, dtypes are F32, F16 or BF16, no dimension is 0, and the
 * tensors fill the bytes after the header without gap or overlap. */
int safetensors_open(const char *path, struct safetensors **ret_st, struct kvf_diag *d);
void safetensors_close(struct safetensors *st); /* accepts NULL */

const char *safetensors_path(const struct safetensors *st);
size_t safetensors_n(const struct safetensors *st);
const struct safetensor *safetensors_at(const struct safetensors *st, size_t i); /* by name */
/* NULL when missing; *ret_i (may be NULL) is its number for safetensors_at. */
const struct safetensor *safetensors_find(const struct safetensors *st, const char *name,
                                          size_t *ret_i);

/* Text of __metadata__ by key; NULL when missing. */
const char *safetensors_meta(const struct safetensors *st, const char *key);
/* Key number i of __metadata__, NULL after the last. */
const char *safetensors_meta_key(const struct safetensors *st, int i);

/* XXH3-128 of the whole file in hex. */
void safetensors_hash(const struct safetensors *st, char out[33]);

#endif
