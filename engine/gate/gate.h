/* gate.h - learned numbers that some methods need: how long an entry is worth
 * keeping, whether it is written at all, how important it is, which heads need
 * the whole cache, which blocks a query should read.
 *
 * A gate file is a safetensors file with metadata;
 * docs/reference/gates.md states layouts, tensor names and equations.  The room computes numbers
 * and decides nothing.
 *
 * Sizes: L layers, G query heads, H KV heads, D head dimension, d = d_model.
 * Heads are KV heads unless said otherwise. */
#ifndef KVF_ENGINE_GATE_H
#define KVF_ENGINE_GATE_H

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
    float norm_eps;                /* of the model's norms: used by the norms of GATE_BLOCKS */
    double rope_base;              /* used by GATE_BLOCKS alone */
    const char *hash;              /* as gguf_hash; NULL: a file for any model is accepted.
                                      Not kept. */
    const struct kernels *kernels; /* borrowed until gates_close */
};

/* Of a model whose header is read.  hash and kernels as above. */
struct gates_model gates_model_from(const struct model_config *m, const char *hash,
                                    const struct kernels *kernels);

/* Immutable after gates_open: any number of threads may evaluate at once. */
struct gates;

/* Reads, checks and repacks the whole file; nothing of it stays open.
 *
 * KVF_OK, or with a sentence in d
 *   KVF_E_IO      the file cannot be opened or read
 *   KVF_E_FORMAT  not a gate file, damaged, or its shapes do not fit the model
 *   KVF_E_ARG     its metadata name another model
 *   KVF_E_LIMIT   larger than any gate file may be
 * or KVF_E_NOMEM.  On failure *ret_gates is untouched. */
int gates_open(const char *path, const struct gates_model *model, struct gates **ret_gates,
               struct kvf_diag *d);
void gates_close(struct gates *g); /* accepts NULL */

/* As gates_open without a model, for the facts alone: sizes are what the tensors tell
 * (0 in gates_model_of where they do not), and no number may be asked for. */
int gates_read(const char *path, struct gates **ret_gates, struct kvf_diag *d);

/* Facts.  Strings are borrowed until gates_close. */
enum gate_kind gates_kind(const struct gates *g);
const char *gates_kind_name(enum gate_kind kind); /* "retention", ... as in the metadata */
const char *gates_layout(const struct gates *g);  /* "rg", "values", ... as in the metadata;
                                                   "rg or rg2" after gates_read where nothing
                                                   tells them apart */
const char *gates_path(const struct gates *g);    /* as given to gates_open */
const char *gates_hash(const struct gates *g);    /* XXH3-128 of the file in hex, as gguf_hash */
const char *gates_meta(const struct gates *g);    /* metadata, a JSON object */
const struct gates_model *gates_model_of(const struct gates *g); /* sizes; hash is NULL */
size_t gates_bytes(const struct gates *g); /* memory of weights or given numbers */
int gates_hidden(const struct gates *g);   /* I of the hidden layer; 0: none */

/* Retention: whether the readout (last linear layer and bias) has the same values
 * in every layer, as DBTrimKV ties it.  False for other kinds and given numbers. */
bool gates_tied(const struct gates *g);

/* How many positions gates_eval can answer: INT32_MAX for a network, T for given
 * numbers [L, H, T].  The caller refuses a run that is longer. */
int32_t gates_positions(const struct gates *g);

/* ---- one number per entry: GATE_RETENTION, GATE_WRITE, GATE_IMPORTANCE ---- */

/* Which members of struct gate_input gates_eval will read (0: pos alone). */
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

/* Floats of scratch, aligned to 64 bytes, that every function below needs; each
 * thread has its own. */
size_t gates_scratch(const struct gates *g);

/* out[h], h < H: log beta, g or score of the entry.  log beta is computed as
 * -softplus(-z), never through beta, so it is exact to f32 near 0 (-1.5e-8 at
 * z = 18).  The result depends on the input alone: not on threads, nor on what was
 * evaluated before.  An input that is not finite may give a NaN. */
void gates_eval(const struct gates *g, int layer, const struct gate_input *in, float *out,
                float *scratch);

/* The forward pass of a gate network, as a list.  The layouts (layouts.c) hold one each.  Four
 * executors run it: gate_eval.c (decode on the CPU), engine/device/gates.c (decode on a device),
 * engine/train/net_run.c and engine/device/train_gates.c (training, with derivatives).
 *
 * The network reads `input` vectors of a token one behind the other.  Then each stage is a linear
 * layer W y + b of the network's input or of an earlier stage's output, followed by `then`. */
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
    const float *norm[2]; /* [L][head_dim] of the inputs with a norm; else NULL */
};
/* Returns false if the gates are no network, or if only gates_eval() computes its rounding. */
bool gates_net(const struct gates *g, struct gate_net *ret);
/* The linear layer of a stage. */
struct gate_linear {
    int N, K;
    const float *bias; /* [N]; NULL: none */
};
struct gate_linear gates_linear(const struct gates *g, int layer, int unit, int stage);
/* Copies its weights to out [N][K]. */
void gates_weights(const struct gates *g, int layer, int unit, int stage, float *out);

/* ---- one number per head: GATE_HEADS ---- */

float gates_alpha(const struct gates *g, int layer, int head);

/* ---- vectors of blocks and queries: GATE_BLOCKS ----
 * The logit of a block is q.k / sqrt(gate_dim); one choice of blocks is shared by
 * the query heads of a KV head. */

int gates_gate_dim(const struct gates *g);
int gates_block_size(const struct gates *g); /* entries per block as trained; 0: not stated */

/* The vector of a complete block.  max, min, avg: [D] over the block's pre-RoPE
 * keys of that head; start_pos: position of its first entry; out: [gate_dim]. */
void gates_block_key(const struct gates *g, int layer, int head, const float *max, const float *min,
                     const float *avg, int32_t start_pos, float *out, float *scratch);

/* The vector of a query.  q_pre: [G/H, D], the head's query heads before RoPE;
 * out: [gate_dim]. */
void gates_block_query(const struct gates *g, int layer, int head, const float *q_pre, int32_t pos,
                       float *out, float *scratch);

/* How the vector of a query is made, for those who do it elsewhere: rope(norm(W q_pre)) at pos
 * theta[j], j < dim / 2, over all channels; W of unit `head` and stage 1 (gates_weights).  false:
 * these are no gates of blocks. */
struct gate_blocks {
    int dim;           /* gate_dim */
    const float *norm; /* [L][dim]; NULL: none */
    float eps;
    const double *theta; /* [dim / 2] */
};
bool gates_blocks(const struct gates *g, struct gate_blocks *ret);

/* q.k / sqrt(gate_dim), summed in double. */
float gates_block_logit(const struct gates *g, const float *q, const float *k);

#endif
