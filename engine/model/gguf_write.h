/* gguf_write.h - a GGUF file like another one, some of whose tensors have changed. */
#ifndef KVF_ENGINE_GGUF_WRITE_H
#define KVF_ENGINE_GGUF_WRITE_H

#include "engine/kernels/packed.h"
#include "engine/model/gguf.h"

struct gguf_change {
    /* Whether a tensor changes; its values then go to out, in the order of the file (out NULL: only
     * asks). */
    bool (*fill)(void *ctx, const struct gguf_tensor *t, float *out);
    void *ctx;
    enum weight_type type;  /* of matrices that change, one of weight_can_quantise; where a row is
                               not a multiple of its blocks: Q4_1 for Q4_K, else F16 */
    const char *key, *note; /* a text that is added to the metadata; NULL: none */
    /* Set: sums over matrices that changed of the squares of their values, and of what these are
     * off in the file. */
    double square, off;
};

/* Writes one file of version 3, tensors by rising names, with the metadata of g and what it does
 * not change as it is.  Vectors that change are F32.  The older file stays until the new one is
 * whole.  KVF_OK, KVF_E_NOMEM, or with a sentence KVF_E_IO, KVF_E_LIMIT (a value that the type
 * cannot hold). */
int gguf_write(const char *path, const struct gguf *g, struct gguf_change *change,
               struct kvf_diag *d);

#endif
