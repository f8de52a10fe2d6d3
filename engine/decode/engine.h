/* engine.h - an opened model: what several sessions share and never changes. */
#ifndef KVF_ENGINE_ENGINE_H
#define KVF_ENGINE_ENGINE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/par.h"
#include "base/table.h"
#include "engine/decode/backend.h"
#include "engine/kernels/kernels.h"
#include "engine/model/config.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

struct engine {
    struct gguf *gguf;
    struct model_config config;
    char hash[33]; /* of the model (gguf_hash) */
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct kernels kernels;
    struct par *pool;
    bool exact, i8_activations; /* as in the options */
    bool words;                 /* the model has weights of floats, which are integers of 16 bits */
    const struct backend *backend;
    void *device; /* of the backend: the weights where it wants them */
    int which;    /* device, of those that the backend has */
    /* What the backend said when an operation of a session failed; "": nothing did. */
    struct kvf_diag said;
};

struct engine_options {
    bool exact;                    /* f32 weights and activations, f32 cache */
    bool i8_activations;           /* of the processor, not exact: where weights are quantised,
                             activations have 8 bits instead of 16 */
    bool words;                    /* of the processor, not exact: weights of floats are integers
                                      of 16 bits, as the activations are that they meet */
    int n_threads;                 /* 0: number of cores */
    unsigned cpu_flags;            /* CPU_* */
    struct rope_scale rope_scale;  /* kind 0: as the file says */
    const char *pre;               /* of the tokenizer (tokenizer_create_as); NULL: the file's */
    const char *adapter;           /* added to the weights (adapter.h); NULL: none */
    const struct backend *backend; /* NULL: the processor */
    int which;                     /* device of the backend */
    struct teller teller;          /* told how many layers are packed */
};

/* Maps and packs a GGUF.  KVF_OK or an error with a sentence. */
int engine_open(const char *path, const struct engine_options *opt, struct engine **ret_engine,
                struct kvf_diag *d);
void engine_close(struct engine *e); /* accepts NULL */
/* Puts into d what the backend said, where an operation failed with err for its sake.  Returns
 * err. */
int engine_said(const struct engine *e, int err, struct kvf_diag *d); /* accepts NULL */
/* What is multiplied, for headers of traces and tables. */
const char *engine_precision(const struct engine *e);
/* The members of "model" in a trace's header: name, hash, architecture and sizes. */
void engine_put_model(const struct engine *e, struct buf *b);
/* "rope_scale" into the head of a table, where rotations were scaled. */
void engine_put_scale(const struct engine *e, struct table *t);

#endif
