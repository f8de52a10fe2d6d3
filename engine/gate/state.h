/* state.h - what an opened gate file is made of; private to engine/gate. */
#ifndef KVF_ENGINE_GATE_STATE_H
#define KVF_ENGINE_GATE_STATE_H

#include "engine/gate/gate.h"
#include "engine/gate/tensor_file.h"

enum { STAGES = 3, PARTS = 8, MAX_HIDDEN = 16384 };

/* Sizes of tensors, by name; size_of() gives the number. */
enum size {
    S_NONE, S_1, S_DM, S_D, S_2D, S_3D, S_H, S_I, S_HI /* H * I */, S_GROUP /* G/H * D */,
    S_QK /* (G + H) * D */, S_QKV /* (G + 2 H) * D */
};

enum role { R_WEIGHT, R_BIAS, R_NORM };

/* One tensor of a layer: model.layers.{i}.self_attn.NAME */
struct part {
    const char *name;
    enum role role;
    int stage;          /* for R_NORM: which of the two */
    enum size shape[3]; /* S_NONE ends it */
    enum size cols;     /* R_WEIGHT: input channels of a unit; the last size of shape but S_1 */
    enum size turned;   /* columns from 0 on that are heads of queries or keys */
    bool rows_turn;     /* rows are rotated with a position (GATE_BLOCKS) */
    bool optional;      /* in all layers or in none */
};

enum activation { ACT_NONE, ACT_SILU, ACT_GELU, ACT_RELU };

enum layout_id {
    LAYOUT_RG, LAYOUT_RG10, LAYOUT_WGKV, LAYOUT_LOCRET, LAYOUT_DUO, LAYOUT_SEER, LAYOUT_VALUES,
    N_LAYOUTS
};

struct layout {
    const char *name;
    unsigned kinds;     /* 1 << kind of those that may come so */
    bool per_head;      /* a network of its own for each head */
    int n_stages;
    enum activation activation; /* unless the metadata say otherwise */
    int hidden_part, hidden_dim; /* the tensor of layer 0, and its dimension, that tells I */
    struct part part[PARTS];
};

extern const struct layout gate_layouts[N_LAYOUTS];

struct dense {
    struct packed w; /* F32 */
    float *bias;     /* owned; NULL: none */
};

/* Linear layers one after the other; for GATE_BLOCKS the keys' and the queries'. */
struct unit {
    struct dense stage[STAGES];
};

struct gates {
    char *path;
    char hash[33];
    enum tensor_container container;
    const char *prefix; /* of names: "model.layers." */
    char *meta;         /* metadata as a JSON object */
    enum gate_kind kind;
    enum layout_id layout;
    struct gates_model model; /* hash is NULL */
    enum activation activation;
    bool round_z;    /* bf16 emulation of the logit */
    bool halves;     /* the file's heads are in the order (0, D/2), (1, D/2 + 1), ... */
    bool tied;
    int hidden;      /* I, or gate_dim of GATE_BLOCKS */
    int block;
    int n_units;     /* per layer: H or 1 */
    struct unit *unit; /* [L][n_units] */
    float *norm[2];  /* [L][D] or [L][gate_dim], NULL: none */
    float *given;    /* [L][H][n_given] values, or [L][H] alphas */
    int32_t n_given;
    double *theta;   /* [gate_dim / 2] angles per position */
    size_t bytes;
};

int size_of(const struct gates *g, enum size s);

/* "model.layers." or, for the text model within a larger one, "model.language_model.layers." */
const char *gates_prefix(const struct tensor_file *f);

/* Kind and layout of a file without metadata, from the names of its tensors. */
int gates_kind_by_names(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);

/* Sizes of g->model from the tensors of g->layout; those that they do not tell are
 * what gates_load needs to pass. */
int gates_learn_sizes(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);

/* Name of a part of a layer. */
void gates_tensor_name(const struct gates *g, char out[128], int layer, const struct part *p);

/* Reads the tensors of g->layout into g, which has the facts of the metadata. */
int gates_load(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);

#endif
