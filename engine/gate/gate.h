/* gate.h - learned gate values that some methods need.
 *
 * They state how long an entry is worth keeping, if it is admitted at all, how important it is,
 * which heads need the full cache, or which blocks a query should read.  A gate file is a
 * safetensors file with metadata.  docs/reference/gates.md states layouts, tensor names and
 * equations.  This module computes gate values.  The methods decide.
 *
 * Sizes: L layers, G query heads, H KV heads, D head dimension, d = d_model.  "Head" means KV head,
 * unless a comment names another kind. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/gate_math.h"
#include "engine/kernels/kernels.h"

struct model_config;

enum gate_kind {
    GATE_RETENTION,  /* log beta <= 0 of an entry (TRIM-KV, DBTrimKV) */
    GATE_WRITE,      /* g in [0, 1] of an entry (WG-KV) */
    GATE_IMPORTANCE, /* a score of an entry, any real (LocRet) */
    GATE_HEADS,      /* alpha in [0, 1] of a head (DuoAttention) */
    GATE_BLOCKS      /* vectors of blocks and of queries (SeerAttention-R) */
};

/* The model that the gates are for. */
struct gates_model {
    int n_layers, d_model, n_heads, n_kv_heads, head_dim;
    float norm_eps;                /* epsilon of the model's norms; used by GATE_BLOCKS only */
    double rope_base;              /* used by GATE_BLOCKS only */
    const char *hash;              /* as gguf_hash(); NULL: a file for any model is accepted.
                                      gates_open() does not store it. */
    const struct kernels *kernels; /* borrowed until gates_close */
};

/* Returns the description of a model.  hash, kernels: as in struct gates_model. */
struct gates_model gates_model_from(const struct model_config *m, const char *hash,
                                    const struct kernels *kernels);

/* Immutable after gates_open: any number of threads may evaluate at once. */
struct gates;

/* Reads, checks and repacks a gate file, and closes it.
 *
 * KVF_OK, or with a sentence in d
 *   KVF_E_IO      the file cannot be opened or read
 *   KVF_E_FORMAT  not a gate file, damaged, or its shapes do not fit the model
 *   KVF_E_ARG     its metadata names a different model
 *   KVF_E_LIMIT   larger than any gate file may be
 * or KVF_E_NOMEM.  On failure *ret_gates is untouched. */
int gates_open(const char *path, const struct gates_model *model, struct gates **ret_gates,
               struct kvf_diag *d);
void gates_close(struct gates *g); /* accepts NULL */

/* Opens a gate file as gates_open() does, but without a model.  The caller may only read facts, not
 * compute gate values.  Sizes follow from the tensors; a size that no tensor has is 0 in
 * gates_model_of(). */
int gates_read(const char *path, struct gates **ret_gates, struct kvf_diag *d);

/* Facts.  Strings are borrowed until gates_close. */
enum gate_kind gates_kind(const struct gates *g);
const char *gates_kind_name(enum gate_kind kind); /* "retention", ... as in the metadata */
const char *gates_layout(const struct gates *g);  /* "rg", "values", ... as in the metadata;
                                                   "rg or rg2" after gates_read() if the file
                                                   fits both */
const char *gates_path(const struct gates *g);    /* as given to gates_open */
const char *gates_hash(const struct gates *g);    /* XXH3-128 of the file in hex, as gguf_hash */
const char *gates_meta(const struct gates *g);    /* metadata, a JSON object */
const struct gates_model *gates_model_of(const struct gates *g); /* sizes; hash is NULL */
size_t gates_bytes(const struct gates *g); /* memory of weights or given numbers */
int gates_hidden(const struct gates *g);   /* I, width of the hidden layer; 0: no hidden layer */

/* Returns true for retention gates with the same readout (last linear layer and bias) in every
 * layer, as in DBTrimKV.  Returns false for other kinds and for given values. */
bool gates_tied(const struct gates *g);

/* Returns the number of positions that gates_eval() accepts: INT32_MAX for a network, T for given
 * values [L, H, T].  The caller must reject a longer run. */
int32_t gates_positions(const struct gates *g);

/* ---- one number per entry: GATE_RETENTION, GATE_WRITE, GATE_IMPORTANCE ---- */

/* The members of struct gate_input that gates_eval() reads; bits.  0: pos only. */
enum {
    GATE_IN_X = 1u << 0,
    GATE_IN_Q = 1u << 1,
    GATE_IN_K_PRE = 1u << 2,
    GATE_IN_V = 1u << 3,
    GATE_IN_K_POST = 1u << 4
};
unsigned gates_inputs(const struct gates *g);

/* One token in one layer, before its entry is stored.  Unread members may be NULL. */
struct gate_input {
    const float *x;      /* [d] the layer's input after the attention RMSNorm */
    const float *q_pre;  /* [G, D] before RoPE */
    const float *k_pre;  /* [H, D] before RoPE */
    const float *v;      /* [H, D] */
    const float *k_post; /* [H, D] after RoPE */
    int32_t pos;         /* in [0, gates_positions) */
};

/* Returns the floats of scratch, aligned to 64 bytes, that the functions below need.  Each thread
 * needs its own scratch. */
size_t gates_scratch(const struct gates *g);

/* Writes log beta, g or score of the entry to out[h], h < H.  log beta is computed as
 * -softplus(-z), never from beta, so it is exact to f32 near 0 (-1.5e-8 at z = 18).  The result
 * depends only on the input, not on threads or earlier calls.  An input that is not finite may
 * give a NaN. */
void gates_eval(const struct gates *g, int layer, const struct gate_input *in, float *out,
                float *scratch);

/* The forward pass of a gate network, as a list.  Each layout (layouts.c) has one.  Four
 * executors run it: gate_eval.c (decode on the CPU), engine/device/gates.c (decode on a device),
 * engine/train/net_run.c and engine/device/train_gates.c (training, with derivatives).
 *
 * The network reads the concatenation of the `input` vectors of a token.  Then each stage is a
 * linear layer W y + b of the network's input or of an earlier stage's output, followed by `then`.
 */
enum { GATE_INPUTS = 3, GATE_STAGES = 3 };
struct gate_source {
    unsigned from; /* one of GATE_IN_*; 0 ends the list */
    bool norm;     /* RMSNorm of each head, with the layer's norm of this index and GATE_NORM_EPS */
};
enum gate_then {
    GATE_THEN_NOTHING,  /* ends the list */
    GATE_THEN_ACTIVATE, /* the activation */
    GATE_THEN_MULTIPLY, /* times the output of stage 0 */
    GATE_THEN_OUTPUT    /* the output function; the result is the gate value */
};
struct gate_stage {
    enum gate_then then;
    int reads; /* 0: the network's input; s: the output of stage s - 1 */
};
struct gate_stages {
    struct gate_source input[GATE_INPUTS];
    bool by_head; /* the inputs of head 0, then those of head 1, ... */
    struct gate_stage stage[GATE_STAGES];
    enum gate_output output;
};
/* Returns how many stages, and how many inputs, a list has. */
int gate_stages_count(const struct gate_stages *s);
int gate_inputs_count(const struct gate_stages *s);

/* The network of gates_eval, for executors outside this module. */
struct gate_net {
    int n_units; /* networks of a layer: 1, or one for each head */
    const struct gate_stages *stages;
    enum gate_activation activation;
    const float *norm[2]; /* [L][head_dim] weights of the inputs' norms; NULL: no norm */
};
/* Returns false if the gates are not a network, or if only gates_eval() computes its rounding. */
bool gates_net(const struct gates *g, struct gate_net *ret);
/* The linear layer of a stage. */
struct gate_linear {
    int N, K;
    const float *bias; /* [N]; NULL: no bias */
};
struct gate_linear gates_linear(const struct gates *g, int layer, int unit, int stage);
/* Copies the weights of the linear layer of a stage to out [N][K]. */
void gates_weights(const struct gates *g, int layer, int unit, int stage, float *out);

/* ---- one number per head: GATE_HEADS ---- */

/* Returns alpha of a head, in [0, 1]. */
float gates_alpha(const struct gates *g, int layer, int head);

/* ---- vectors of blocks and queries: GATE_BLOCKS ----
 * The logit of a block is q.k / sqrt(gate_dim).  The query heads of a KV head share one selection
 * of blocks. */

int gates_gate_dim(const struct gates *g);
int gates_block_size(const struct gates *g); /* entries per block as trained; 0: not stated */

/* Computes the vector of a complete block.  max, min, avg: [D] over the block's keys of that head
 * before RoPE.  start_pos: position of its first entry.  out: [gate_dim]. */
void gates_block_key(const struct gates *g, int layer, int head, const float *max, const float *min,
                     const float *avg, int32_t start_pos, float *out, float *scratch);

/* Computes the vector of a query.  q_pre: [G/H, D], the head's query heads before RoPE.  out:
 * [gate_dim]. */
void gates_block_query(const struct gates *g, int layer, int head, const float *q_pre, int32_t pos,
                       float *out, float *scratch);

/* The data for the vector of a query, for executors outside this module: rope(norm(W q_pre)) with
 * angles pos theta[j], j < dim / 2, over all channels.  W: of unit `head` and stage 1
 * (gates_weights). */
struct gate_blocks {
    int dim;           /* gate_dim */
    const float *norm; /* [L][dim]; NULL: no norm */
    float eps;
    const double *theta; /* [dim / 2] */
};
/* Sets *ret.  Returns false if the kind is not GATE_BLOCKS. */
bool gates_blocks(const struct gates *g, struct gate_blocks *ret);

/* Returns q.k / sqrt(gate_dim), summed in double. */
float gates_block_logit(const struct gates *g, const float *q, const float *k);
