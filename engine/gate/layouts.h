/* layouts.h - names and shapes of the tensors of each layout of gates, and their sizes for a
 * model: what reads gate files and what trains gates have in common. */
#ifndef KVF_ENGINE_GATE_LAYOUTS_H
#define KVF_ENGINE_GATE_LAYOUTS_H

#include "engine/gate/gate.h"

enum { PARTS = 8 };

/* Sizes of tensors, by name; layout_size() gives the number. */
enum size {
    S_NONE,
    S_1,
    S_DM,
    S_D,
    S_2D,
    S_3D,
    S_H,
    S_I,
    S_HI /* H * I */,
    S_GROUP /* G/H * D */,
    S_HD /* H * D */,
    S_2HD,
    S_QK /* (G + H) * D */,
    S_QKV /* (G + 2 H) * D */
};

enum role { R_WEIGHT, R_BIAS, R_NORM };

/* One tensor of a layer: model.layers.{i}.self_attn.NAME */
struct part {
    const char *name;
    enum role role;
    int stage;          /* for R_NORM: which of the two */
    enum size shape[3]; /* S_NONE ends it */
    enum size cols;     /* R_WEIGHT: input channels of a unit; the last size of shape but S_1 */
    enum size turned;   /* columns from 0 on that hold heads of queries or keys */
    enum size step;     /* from the begin of one such head to the next; S_NONE: D */
    bool rows_turn;     /* rows are rotated with a position (GATE_BLOCKS) */
    bool optional;      /* in all layers or in none */
};

enum activation { /* as enum gate_activation */ ACT_NONE, ACT_SILU, ACT_GELU, ACT_RELU };

enum layout_id {
    LAYOUT_RG,
    LAYOUT_RG10,
    LAYOUT_LINEAR,
    LAYOUT_RGKV,
    LAYOUT_WGKV,
    LAYOUT_LOCRET,
    LAYOUT_DUO,
    LAYOUT_SEER,
    LAYOUT_VALUES,
    LAYOUT_RG2,
    LAYOUT_RG3,
    N_LAYOUTS
};

struct layout {
    const char *name;
    unsigned kinds;  /* 1 << kind of those that may come so */
    unsigned inputs; /* of gates_eval, as gates_inputs */
    bool per_head;   /* a network of its own for each head */
    bool gated;      /* stages 0 and 1 see the same input and their outputs are multiplied */
    int n_stages;
    enum activation activation;  /* unless the metadata say otherwise */
    int hidden_part, hidden_dim; /* the tensor of layer 0, and its dimension, that tells I;
                                    -1: there is no hidden layer, I is 0 */
    struct part part[PARTS];
};

extern const struct layout gate_layouts[N_LAYOUTS];

/* hidden: I, or the gate dimension of GATE_BLOCKS. */
int layout_size(const struct gates_model *m, int hidden, enum size s);

#endif
