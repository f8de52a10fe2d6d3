/* engine.h - an opened model: the constant data that several sessions share. */
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

/* An opened model. */
struct engine {
    struct gguf *gguf;
    struct model_config config;
    char hash[33]; /* hash of the model (gguf_hash) */
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct kernels kernels;
    struct par *pool;
    bool exact, i8_activations; /* as in struct engine_options */
    bool words;                 /* float weights of the model are 16-bit integers */
    const struct backend *backend;
    void *device; /* data of the backend, such as weights on a device */
    int which;    /* index of the backend's device */
    /* Message of the backend for a failed operation of a session; "": no error. */
    struct kvf_diag error;
};

/* Options of engine_open. */
struct engine_options {
    bool exact;          /* f32 weights and activations, f32 cache */
    bool i8_activations; /* only on the CPU, not exact: activations have 8 bits instead of 16 if
                            weights are quantised */
    bool words;    /* only on the CPU, not exact: float weights and their activations are 16-bit
                      integers */
    int n_threads; /* 0: number of cores */
    unsigned cpu_flags;            /* CPU_* */
    struct rope_scale rope_scale;  /* kind 0: the scaling in the file */
    const char *pre;               /* pre-tokenizer (tokenizer_create_as); NULL: that of the file */
    const char *adapter;           /* added to the weights (adapter.h); NULL: none */
    const struct backend *backend; /* NULL: the CPU */
    int which;                     /* index of the backend's device */
    struct progress_callback progress; /* receives the number of packed layers */
};

/* Maps and packs a GGUF file. Returns KVF_OK or an error with a message. */
int engine_open(const char *path, const struct engine_options *opt, struct engine **ret_engine,
                struct kvf_diag *d);
void engine_close(struct engine *e); /* accepts NULL */
/* Copies the backend's message to d if err can be its error (KVF_E_BACKEND or KVF_E_NOMEM). Returns
 * err. e may be NULL. */
int engine_error(const struct engine *e, int err, struct kvf_diag *d);
/* Returns the precision of matrix multiplications, for headers of traces and tables. */
const char *engine_precision(const struct engine *e);
/* Appends the members of "model" in a trace's header: name, hash, architecture and sizes. */
void engine_put_model(const struct engine *e, struct buf *b);
/* Adds "rope_scale" to the metadata of a table if RoPE is scaled. */
void engine_put_scale(const struct engine *e, struct table *t);

#endif
