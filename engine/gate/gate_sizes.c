/* gate_sizes.c - finds the layout of gates by the names of their tensors, and the sizes of their
 * model by the shapes. */
#include <string.h>

#include "engine/gate/state.h"

static const char plain[] = "model.layers.", inner[] = "model.language_model.layers.";

const char *gates_prefix(const struct tensor_file *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (strncmp(f->tensor[i].name, inner, sizeof inner - 1) == 0)
            return inner;
    return plain;
}

/* Chooses between rg and rg2, which have equal names.  rg reads the d channels of the layer's
 * input, and rg2 the 2HD channels of keys and values. */
static int rg_or_rg2(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    char name[128];
    gates_tensor_name(g, name, 0, &gate_layouts[LAYOUT_RG].part[0]);
    const struct tensor *first = tensor_file_find(f, name, NULL);
    gates_tensor_name(g, name, 0, &gate_layouts[LAYOUT_RG].part[2]);
    const struct tensor *readout = tensor_file_find(f, name, NULL);
    uint64_t cols = first ? first->dim[1] : 0, heads = readout ? readout->dim[0] : 1;
    if (!g->model.n_layers) {
        g->unsure = cols % (2 * heads) == 0;
    } else if (cols == (uint64_t)size_of(g, S_2HD)) {
        if (cols == (uint64_t)g->model.d_model)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: these may be gates of rg or of rg2, since the model's width of %d "
                            "is also the width of its keys and values; put the config.json that "
                            "was published with them, with \"retention_gate\": \"rg\" or \"rg2\", "
                            "into the folder of the torch file and convert it again",
                            f->path, g->model.d_model);
        g->layout = LAYOUT_RG2;
    }
    return KVF_OK;
}

int gates_kind_by_names(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    static const struct {
        const char *part;
        enum gate_kind kind;
        enum layout_id layout;
    } known[] = {
        {".self_attn.retention_gate.linear3.", GATE_RETENTION, LAYOUT_RG10}, /* before rg */
        {".self_attn.retention_gate.gate_proj.", GATE_RETENTION, LAYOUT_RG3},
        {".self_attn.retention_gate.linear2.", GATE_RETENTION, LAYOUT_RG},
        {".self_attn.retention_gate.linear1.", GATE_RETENTION, LAYOUT_LINEAR},
        {".self_attn.g_predictors.", GATE_WRITE, LAYOUT_WGKV},
        {".self_attn.fc1.", GATE_IMPORTANCE, LAYOUT_LOCRET}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (size_t i = 0; i < f->n; i++)
            if (strstr(f->tensor[i].name, known[k].part)) {
                g->kind = known[k].kind;
                g->layout = known[k].layout;
                return g->layout == LAYOUT_RG ? rg_or_rg2(g, f, d) : KVF_OK;
            }
    return kvf_fail(
        d, KVF_E_FORMAT,
        "%s: the %zu tensors have no names of retention gates (self_attn.retention_gate.*), write "
        "gates (self_attn.g_predictors.*) or retaining heads (self_attn.fc1.*) of published files; "
        "give the file the metadata of docs/reference/gates.md",
        f->path, f->n);
}

/* Returns the number of layers that have the layout's first part. */
static int count_layers(const struct gates *g, const struct tensor_file *f)
{
    const char *part = gate_layouts[g->layout].part[0].name;
    int n = 0;
    char name[128];
    do
        gates_tensor_name(g, name, n, &gate_layouts[g->layout].part[0]);
    while (part && tensor_file_find(f, name, NULL) && ++n < TENSORS_MOST);
    return n;
}

/* Sizes learned from tensor dimensions.  G and D are computed at the end. */
struct told {
    struct gates_model *m;
    int group, kv, qkv;
};

static void learn(struct told *t, enum size s, int n)
{
    struct gates_model *m = t->m;
    int *const size[] = {[S_DM] = &m->d_model,  [S_D] = &m->head_dim,   [S_2D] = &m->head_dim,
                         [S_3D] = &m->head_dim, [S_H] = &m->n_kv_heads, [S_GROUP] = &t->group,
                         [S_2HD] = &t->kv,      [S_QK] = NULL,          [S_QKV] = &t->qkv};
    int parts = s == S_2D ? 2 : 1;
    if (size[s])
        *size[s] = n / (s == S_3D ? 3 : parts);
}

static void learn_parts(const struct gates *g, const struct tensor_file *f, struct told *t)
{
    char name[128];
    for (int p = 0; p < PARTS && gate_layouts[g->layout].part[p].name; p++) {
        const struct part *part = &gate_layouts[g->layout].part[p];
        gates_tensor_name(g, name, 0, part);
        const struct tensor *x = tensor_file_find(f, name, NULL);
        for (int k = 0; x && k < 3; k++)
            if (x->dim[k] <= 1 << 24)
                learn(t, part->shape[k], (int)x->dim[k]);
    }
}

int gates_learn_sizes(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    enum { MOST_HEADS = 1 << 16, MOST_UNITS = 1 << 20 };
    struct gates_model *m = &g->model;
    struct told t = {.m = m};
    const struct tensor *given = tensor_file_find(f, g->kind == GATE_HEADS ? "duo.alpha" : "values",
                                                  NULL);
    m->n_layers = count_layers(g, f);
    learn_parts(g, f, &t);
    if (!gate_layouts[g->layout].part[0].name && given && given->dim[0] <= MOST_UNITS
        && given->dim[1] <= MOST_HEADS) {
        m->n_layers = (int)given->dim[0];
        m->n_kv_heads = (int)given->dim[1];
    }
    if (t.kv && m->n_kv_heads > 0)
        m->head_dim = t.kv / 2 / m->n_kv_heads;
    if (t.qkv) { /* (G + 2 H) D: any G and D with this product are valid */
        m->head_dim = t.qkv % 2 ? 1 : 2;
        m->n_heads = t.qkv / m->head_dim - 2 * m->n_kv_heads;
    } else if (t.group && m->head_dim) {
        m->n_heads = t.group / m->head_dim * m->n_kv_heads;
    }
    if (m->n_layers < 1 || m->n_kv_heads < 1 || m->n_kv_heads > MOST_HEADS
        || m->n_layers > MOST_UNITS / m->n_kv_heads || m->n_heads < 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the tensors of the layout %s are missing, or have no "
                        "usable sizes, in layer 0",
                        g->path, gates_layout(g));
    return KVF_OK;
}
