/* safetensors_write.h - writes a safetensors file: header, padding, tensors in order.
 *
 * The data is written to a temporary file in the same folder, synced and renamed: readers see the
 * old file or the complete new one.  Equal input gives equal bytes.  If there is metadata, it gets
 * the checksum of the file (SAFETENSORS_CHECKSUM). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

/* One tensor to write. */
struct safetensors_item {
    const char *name;
    int n_dims;
    uint64_t dim[4];
    const float *data;     /* row-major */
    enum weight_type type; /* as stored: WEIGHT_F32 or WEIGHT_BF16 (nearest even) */
};

/* One entry of __metadata__. */
struct safetensors_note {
    const char *key, *value;
};

/* Writes n tensors and n_notes entries of metadata to `path`.  Returns KVF_OK, KVF_E_NOMEM, or with
 * a sentence KVF_E_IO, KVF_E_ARG or KVF_E_LIMIT (a header of more than 16 MiB); after these the
 * file at `path` is unchanged.  KVF_E_ARG: the reader would reject a shape or the order.  Elements
 * are aligned, so f32 must come before bf16 of an odd count. */
int safetensors_write(const char *path, const struct safetensors_item *item, int n,
                      const struct safetensors_note *note, int n_notes, struct kvf_diag *d);
