/* state.h - the data of an opened gate file; private to engine/gate. */
#pragma once

#include "engine/gate/layouts.h"
#include "engine/gate/tensor_file.h"

enum { MAX_HIDDEN = 16384 };

/* A linear layer. */
struct dense {
    struct packed w; /* F32 */
    float *bias;     /* owned; NULL: no bias */
};

/* The linear layers of one network, by stage.  GATE_BLOCKS: stage 0 is for keys, 1 for queries. */
struct unit {
    struct dense stage[GATE_STAGES];
};

struct gates {
    char *path;
    char hash[33];
    const char *prefix; /* of names: "model.layers." */
    char *meta;         /* metadata as a JSON object */
    enum gate_kind kind;
    enum layout_id layout;
    struct gates_model model; /* hash is NULL */
    enum gate_activation activation;
    bool round_z; /* bf16 emulation of the logit */
    bool halves;  /* the file's heads are in the order (0, D/2), (1, D/2 + 1), ... */
    bool tied;
    bool unsure; /* the layout is rg or rg2, and the file fits both */
    int hidden;  /* I, or gate_dim of GATE_BLOCKS */
    int block;
    int n_units;       /* per layer: H or 1 */
    struct unit *unit; /* [L][n_units] */
    float *norm[2];    /* [L][D] or [L][gate_dim]; NULL: no norm */
    float *given;      /* [L][H][n_given] values, or [L][H] alphas */
    int32_t n_given;
    double *theta; /* [gate_dim / 2] angles per position */
    size_t bytes;
};

/* Returns layout_size() for opened gates. */
static inline int size_of(const struct gates *g, enum size s)
{
    return layout_size(&g->model, g->hidden, s);
}

/* Returns "model.layers." or, for the text model in a multimodal model,
 * "model.language_model.layers." */
const char *gates_prefix(const struct tensor_file *f);

/* Finds kind and layout of a file without kvfate.kind and kvfate.layout by the names of its tensors
 * and, where two layouts have these names, by the sizes of g->model. */
int gates_kind_by_names(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);

/* Sets the sizes of g->model by the tensors of g->layout.  A size that no tensor has gets a value
 * that gates_load accepts. */
int gates_learn_sizes(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);

/* Writes the tensor name of a part of a layer to `out`. */
void gates_tensor_name(const struct gates *g, char out[128], int layer, const struct part *p);

/* Reads the tensors of g->layout into g.  The facts of the metadata must be set. */
int gates_load(struct gates *g, const struct tensor_file *f, struct kvf_diag *d);
