/* layouts.h - the layouts of gate files: names and shapes of their tensors, and the stages of their
 * network.
 *
 * To add a layout NAME:
 * 1. Append LAYOUT_NAME to enum layout_id, and its entry to gate_layouts in layouts.c: tensors,
 *    `stages` (gate.h) and activation.  Decode on the CPU and on a device run it from there.
 * 2. If files without metadata have it, gates_kind_by_names() must recognise its tensors
 *    (gate_open.c, gate_sizes.c).
 * 3. docs/reference/gates.md: its equation and tensors.  tests/oracle/gates_np.py: its definition.
 * 4. A new kind of stage or input also needs code in the four executors that gate.h names. */
#pragma once

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
    int stage;          /* stage of the network; for R_NORM: index of the norm, 0 or 1 */
    enum size shape[3]; /* S_NONE ends it */
    enum size cols;     /* R_WEIGHT: input channels of a unit; the last size of shape but S_1 */
    enum size turned;   /* leading columns that read heads of queries or keys */
    enum size step;     /* distance between the starts of two such heads; S_NONE: D */
    bool rows_turn;     /* RoPE is applied to the rows (GATE_BLOCKS) */
    bool optional;      /* the file may lack it, but then in all layers */
};

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
    unsigned kinds; /* 1 << enum gate_kind of the kinds that can have this layout */
    bool per_head;  /* each KV head has its own network, which reads that head's inputs */
    struct gate_stages stages;
    enum gate_activation activation; /* default; the metadata can override it */
    int hidden_part, hidden_dim;     /* index of the part, and of its dimension, that give I;
                                        -1: no hidden layer, I is 0 */
    struct part part[PARTS];
};

extern const struct layout gate_layouts[N_LAYOUTS];

/* Returns the value of a size.  hidden: I, or the gate dimension of GATE_BLOCKS. */
int layout_size(const struct gates_model *m, int hidden, enum size s);

/* Returns the GATE_IN_* bits of the vectors that the network reads. */
unsigned layout_inputs(const struct layout *l);

/* A segment of a network's input: n floats from offset `at` of an input vector, copied to offset
 * `to`. */
struct gate_segment {
    int input; /* index in gate_stages.input */
    int at, n, to;
};
/* Sets *ret to the i-th segment that the network of `unit` reads.  Returns false if i is too large.
 * A network with a single input without norm reads it in place and has no segments. */
bool layout_segment(const struct layout *l, const struct gates_model *m, int unit, int i,
                    struct gate_segment *ret);
