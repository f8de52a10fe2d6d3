/* safetensors_write.h - writes a safetensors file: header, padding, tensors in order.
 *
 * The file is written beside its place, synced and renamed into it: readers see the old file
 * or the whole new one.  Equal input gives equal bytes.  The metadata, where there are any, get the
 * checksum of the file (SAFETENSORS_CHECKSUM). */
#ifndef KVF_ENGINE_SAFETENSORS_WRITE_H
#define KVF_ENGINE_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

struct safetensors_item {
    const char *name;
    int n_dims;
    uint64_t dim[4];
    const float *data;     /* row-major */
    enum weight_type type; /* as stored: WEIGHT_F32 or WEIGHT_BF16 (nearest even) */
};

struct safetensors_note {
    const char *key, *value; /* of __metadata__ */
};

/* KVF_OK, KVF_E_NOMEM, or with a sentence (nothing at `path` has changed then) KVF_E_IO,
 * KVF_E_ARG (a shape or an order that the reader would refuse: elements are aligned, so f32
 * comes before bf16 of an odd count), KVF_E_LIMIT (a header of more than 16 MiB). */
int safetensors_write(const char *path, const struct safetensors_item *item, int n,
                      const struct safetensors_note *note, int n_notes, struct kvf_diag *d);

#endif
