/* gate_open.c - opens a gate file: reads its metadata, then its tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/gate/state.h"

static const char *const activation_names[] = {
    [GATE_ACT_SILU] = "silu", [GATE_ACT_GELU] = "gelu", [GATE_ACT_RELU] = "relu"};

enum {
    ENTRIES = 1u << LAYOUT_RGKV | 1u << LAYOUT_RG2 | 1u << LAYOUT_RG3,
    RETENTION_MLPS = 1u << LAYOUT_RG | 1u << LAYOUT_RG10 | ENTRIES,
    RETENTION_NETS = RETENTION_MLPS | 1u << LAYOUT_LINEAR,
    MLPS = RETENTION_MLPS | 1u << LAYOUT_WGKV | 1u << LAYOUT_LOCRET,
    ROTATED = ENTRIES | 1u << LAYOUT_WGKV | 1u << LAYOUT_LOCRET | 1u << LAYOUT_SEER,
    ALL_LAYOUTS = (1u << N_LAYOUTS) - 1
};

static int index_of(const char *name, const char *const *list, int n)
{
    for (int i = 0; name && i < n; i++)
        if (list[i] && strcmp(list[i], name) == 0)
            return i;
    return -1;
}

/* Returns true if PyTorch wrote the tensors, according to its metadata entry. */
static bool from_torch(const struct tensor_file *f)
{
    const char *format = tensor_file_meta(f, "format");
    return format && strcmp(format, "pt") == 0;
}

static int read_kind(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    const char *kind = tensor_file_meta(f, "kvfate.kind"),
               *layout = tensor_file_meta(f, "kvfate.layout");
    if (!kind && !layout && from_torch(f))
        return gates_kind_by_names(g, f, d);
    if (!kind || !layout)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the metadata lack %s, so that the gates cannot be read; "
                        "docs/reference/gates.md explains how to mark a file",
                        g->path, kind ? "kvfate.layout" : "kvfate.kind");
    int k = 0, l = 0;
    while (k <= GATE_BLOCKS && strcmp(gates_kind_name((enum gate_kind)k), kind) != 0)
        k++;
    if (k > GATE_BLOCKS)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.kind is '%.40s'; expected retention, write, "
                        "importance, heads or blocks",
                        g->path, kind);
    while (l < N_LAYOUTS && strcmp(gate_layouts[l].name, layout) != 0)
        l++;
    if (l == N_LAYOUTS)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.layout is '%.40s'; expected rg, rg2, "
                        "rg3, rg10, linear, rgkv, wgkv, locret, duo, seer or values",
                        g->path, layout);
    if (!(gate_layouts[l].kinds >> k & 1))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: gates of kind %s do not match the layout %s; correct one of the two",
                        g->path, kind, layout);
    g->kind = (enum gate_kind)k;
    g->layout = (enum layout_id)l;
    return KVF_OK;
}

/* Rejects metadata keys that the layout does not use: they are likely mistakes. */
static int check_keys(const struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    static const struct {
        const char *name;
        unsigned layouts;
    } known[] = {{SAFETENSORS_CHECKSUM, ALL_LAYOUTS}, {"kvfate.kind", ALL_LAYOUTS},
                 {"kvfate.layout", ALL_LAYOUTS},      {"kvfate.model_hash", ALL_LAYOUTS},
                 {"kvfate.activation", MLPS},         {"kvfate.z", RETENTION_NETS},
                 {"kvfate.key_order", ROTATED},       {"kvfate.block", 1u << LAYOUT_SEER}};
    const char *key = tensor_file_meta_key(f, 0);
    for (int i = 1; key; key = tensor_file_meta_key(f, i++)) {
        bool good = strncmp(key, "kvfate.", 7) != 0;
        for (size_t k = 0; !good && k < sizeof known / sizeof *known; k++)
            good = strcmp(key, known[k].name) == 0 && (known[k].layouts >> g->layout & 1);
        if (!good)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: the metadata key %.60s means nothing for the "
                            "layout %s; remove or correct it",
                            g->path, key, gate_layouts[g->layout].name);
    }
    return KVF_OK;
}

static int read_block(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    const char *block = tensor_file_meta(f, "kvfate.block");
    char *end = NULL;
    long n = block ? strtol(block, &end, 10) : 0;
    if (block && (n < 1 || n > 65536 || *end))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.block is '%.40s'; expected a whole number "
                        "from 1 to 65536",
                        g->path, block);
    g->block = (int)n;
    return KVF_OK;
}

static int read_options(struct gates *g, const struct tensor_file *f, struct kvf_diag *d)
{
    const char *act = tensor_file_meta(f, "kvfate.activation"),
               *z = tensor_file_meta(f, "kvfate.z"),
               *order = tensor_file_meta(f, "kvfate.key_order");
    int a = act ? index_of(act, activation_names, GATE_ACT_RELU + 1)
                : (int)gate_layouts[g->layout].activation;
    if (a < 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.activation is '%.40s'; expected silu, gelu "
                        "or relu",
                        g->path, act);
    if (z && strcmp(z, "f32") != 0 && strcmp(z, "bf16") != 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s: kvfate.z is '%.40s'; expected f32 or bf16", g->path,
                        z);
    if (order && strcmp(order, "pairs") != 0 && strcmp(order, "halves") != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.key_order is '%.40s'; expected pairs or "
                        "halves",
                        g->path, order);
    g->activation = (enum gate_activation)a;
    g->round_z = z && strcmp(z, "bf16") == 0;
    /* without metadata: the order of PyTorch code, docs/reference/gates.md */
    g->halves = order ? strcmp(order, "halves") == 0
                      : !tensor_file_meta(f, "kvfate.layout") && (ROTATED >> g->layout & 1);
    if (g->halves && g->model.head_dim % 2)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: kvfate.key_order is halves, but heads have %d "
                        "channels; remove it",
                        g->path, g->model.head_dim);
    return read_block(g, f, d);
}

/* Rejects gates of another model, with the name that a record of `kvfate train` gives it. */
static int fail_model(const struct gates *g, const struct tensor_file *f, const char *hash,
                      const char *model_hash, struct kvf_diag *d)
{
    const char *record = tensor_file_meta(f, "training");
    struct json *training = NULL;
    struct kvf_diag unused;
    if (record && json_parse(record, strlen(record), &training, &unused) != KVF_OK)
        training = NULL;
    const char *name = json_str(json_get(training, "model"), "");
    int err = kvf_fail(d, KVF_E_ARG,
                       "%s: these gates were made for the model %s%.80s%swith hash %.40s, "
                       "this one has %.40s; give the gates of this model",
                       g->path, *name ? "'" : "", name, *name ? "' " : "", hash, model_hash);
    json_free(training);
    return err;
}

static int read_meta(struct gates *g, const struct tensor_file *f, const char *model_hash,
                     struct kvf_diag *d)
{
    int err = check_keys(g, f, d);
    if (err)
        return err;
    const char *hash = tensor_file_meta(f, "kvfate.model_hash");
    if (hash && model_hash && strcmp(hash, model_hash) != 0)
        return fail_model(g, f, hash, model_hash, d);
    return read_options(g, f, d);
}

/* Fills the metadata that gates_meta() returns. */
static int keep_meta(struct gates *g, const struct tensor_file *f)
{
    struct buf b = {0};
    if (f->meta)
        json_put_node(&b, f->meta);
    else
        buf_str(&b, "{}");
    g->meta = b.err ? NULL : mem_strdup(b.data);
    buf_finish(&b);
    return g->meta ? KVF_OK : KVF_E_NOMEM;
}

/* If model is NULL, uses only the metadata of the file. */
static int read_file(struct gates *g, const struct tensor_file *f, const struct gates_model *model,
                     struct kvf_diag *d)
{
    g->prefix = gates_prefix(f);
    tensor_file_hash(f, g->hash);
    int err = read_kind(g, f, d);
    if (err)
        return err;
    if (!model) {
        err = gates_learn_sizes(g, f, d);
        if (err)
            return err;
    }
    err = read_meta(g, f, model ? model->hash : NULL, d);
    if (!err)
        err = gates_load(g, f, d);
    if (err)
        return err;
    return keep_meta(g, f);
}

/* Opens gates; model may be NULL. */
static int open_new(const char *path, const struct gates_model *model, struct gates **ret_gates,
                    struct kvf_diag *d)
{
    struct gates *g = MEM_NEW(struct gates, 1);
    struct tensor_file *f = NULL;
    int err = KVF_E_NOMEM;
    if (!g)
        return err;
    g->model = model ? *model : (struct gates_model){.rope_base = 1};
    g->model.hash = NULL;
    g->path = mem_strdup(path);
    if (!g->path)
        goto fail;
    err = tensor_file_open(path, &f, d);
    if (!err)
        err = read_file(g, f, model, d);
    if (err)
        goto fail;
    tensor_file_close(f);
    *ret_gates = g;
    return KVF_OK;

fail:
    tensor_file_close(f);
    gates_close(g);
    return err;
}

int gates_open(const char *path, const struct gates_model *model, struct gates **ret_gates,
               struct kvf_diag *d)
{
    return open_new(path, model, ret_gates, d);
}

int gates_read(const char *path, struct gates **ret_gates, struct kvf_diag *d)
{
    struct gates *g;
    int err = open_new(path, NULL, &g, d);
    if (err)
        return err;
    if (g->layout == LAYOUT_LOCRET) /* the tensors only give their product */
        g->model.n_heads = g->model.head_dim = 0;
    if (g->unsure)
        g->model.d_model = 0;
    *ret_gates = g;
    return KVF_OK;
}
