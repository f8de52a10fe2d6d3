/* gguf_write.h - writes a copy of a GGUF file with some tensors changed. */
#pragma once

#include "engine/kernels/packed.h"
#include "engine/model/gguf.h"

/* The changes, and their effect on precision. */
struct gguf_change {
    /* Returns true if a tensor changes. If out is not NULL, also writes its new values there, in
     * the order of the file. */
    bool (*fill)(void *ctx, const struct gguf_tensor *t, float *out);
    void *ctx;
    /* type of changed matrices, one of weight_quantise(). If a row is not a multiple of its
     * blocks, Q4_K becomes Q4_1, and other types become F16 */
    enum weight_type type;
    const char *key, *note; /* a text to add to the metadata; NULL if none */
    /* Results: sums over the changed matrices of the squares of their values, and of the squared
     * errors of the stored values. */
    double square, off;
};

/* Writes one file of version 3, with tensors sorted by name and the metadata of g. Unchanged
 * tensors are copied. Changed vectors are F32. An existing file is replaced only when the new one
 * is complete. Returns KVF_OK, KVF_E_NOMEM, or with a sentence KVF_E_IO or KVF_E_LIMIT (the type
 * cannot represent a value). */
int gguf_write(const char *path, const struct gguf *g, struct gguf_change *change,
               struct kvf_diag *d);
