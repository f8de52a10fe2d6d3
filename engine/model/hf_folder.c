/* hf_folder.c - makes a view in GGUF form from a Hugging Face folder. */
#include "engine/model/hf_folder.h"

#include <string.h>

#include "base/mem.h"
#include "engine/model/hf.h"
#include "engine/model/hf_files.h"

/* A folder that is being opened. */
struct opener {
    struct hf_files *files;
    struct json *tree[HF_FILES]; /* parsed JSON files; NULL if missing */
    struct gguf_put put;
    struct hf_config config;
    struct gguf_tensor *tensor;
    size_t n_tensors;
    struct kvf_diag *d;
};

static int parse_text(struct opener *o, enum hf_file k)
{
    const struct hf_text *x = &o->files->text[k];
    if (!x->there)
        return KVF_OK;
    int err = json_parse((const char *)x->bytes, x->n, &o->tree[k], o->d);
    if (err)
        kvf_diag_prefix(o->d, "%s/%s", o->files->path, hf_file_name(k));
    else if (!json_is_object(o->tree[k]))
        err = kvf_fail(o->d, KVF_E_FORMAT, "%s/%s: not a JSON object; fetch the folder again",
                       o->files->path, hf_file_name(k));
    return err;
}

static int read_config(struct opener *o)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", o->files->path, hf_file_name(HF_CONFIG));
    int err = path.err;
    if (!err)
        err = hf_config_read(path.data, o->tree[HF_CONFIG], &o->put, &o->config, o->d);
    buf_finish(&path);
    return err;
}

static int read_tokenizer(struct opener *o)
{
    struct hf_files *f = o->files;
    const struct hf_texts x = {
        .path = f->path,
        .tokenizer = (const char *)f->text[HF_TOKENIZER].bytes,
        .n_tokenizer = f->text[HF_TOKENIZER].n,
        .spm = f->text[HF_SPM].bytes,
        .n_spm = f->text[HF_SPM].n,
        .config = o->tree[HF_CONFIG],
        .generation = o->tree[HF_GENERATION],
        .tokenizer_config = o->tree[HF_TOKENIZER_CONFIG],
        .chat_template = (const char *)f->text[HF_TEMPLATE].bytes,
        .n_chat_template = f->text[HF_TEMPLATE].n,
    };
    int err = hf_tokenizer_read(&x, &o->put, o->d);
    for (int i = 0; i < HF_FILES; i++)
        hf_files_drop(f, i);
    return err;
}

/* Writes the last component of the folder's path as the name of the model. */
static void put_name(struct opener *o)
{
    const char *path = o->files->path, *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        end--;
    const char *from = end;
    while (from > path && from[-1] != '/')
        from--;
    gguf_put_str(&o->put, "general.name", from, (size_t)(end - from));
}

/* Stores p to be freed when the folder is closed. Returns KVF_E_NOMEM if p is NULL. */
static int keep(struct opener *o, void *p)
{
    if (!p)
        return KVF_E_NOMEM;
    o->files->own[o->files->n_own++] = p;
    return KVF_OK;
}

static int add(struct opener *o, const char *name, const struct tensor *t)
{
    struct gguf_tensor *g = &o->tensor[o->n_tensors];
    *g = (struct gguf_tensor){.n_dims = t->n_dims ? t->n_dims : 1, .type = t->type};
    for (int i = 0; i < 4; i++) /* in GGUF the first dimension varies fastest */
        g->dim[i] = i < t->n_dims ? t->dim[t->n_dims - 1 - i] : 1;
    g->data = t->data;
    g->bytes = weight_bytes(t->type, t->n);
    g->name = mem_strdup(name);
    o->n_tensors += g->name != NULL;
    return g->name ? KVF_OK : KVF_E_NOMEM;
}

static int add_plus_one(struct opener *o, const char *name, const struct tensor *t)
{
    float *v = t->n <= 1 << 24 ? MEM_NEW(float, t->n) : NULL;
    int err = keep(o, v);
    if (err)
        return err;
    weight_dequant(v, t->data, t->type, t->n);
    for (uint64_t i = 0; i < t->n; i++)
        v[i] += 1;
    struct tensor plus = *t;
    plus.type = WEIGHT_F32;
    plus.data = v;
    return add(o, name, &plus);
}

static int add_tensor(struct opener *o, const struct tensor *t)
{
    char name[HF_NAME];
    switch (hf_name(o->config.family, t->name, name)) {
    case HF_KEEP:
        /* a tied output matrix is the embedding, even if the file has both */
        if (o->config.tied && strcmp(name, "output.weight") == 0)
            return KVF_OK;
        return add(o, name, t);
    case HF_PLUS_ONE:
        return add_plus_one(o, name, t);
    case HF_DROP:
        return KVF_OK;
    default:
        return kvf_fail(o->d, KVF_E_FORMAT,
                        "%s: tensor %s is unknown in models of type '%s'; the folder has another "
                        "kind of model than its config.json",
                        o->files->path, t->name, o->config.family->model_type);
    }
}

static int add_vectors(struct opener *o)
{
    for (int i = 0; i < o->config.n_vectors; i++) {
        struct hf_vector *x = &o->config.vector[i];
        const struct tensor t = {
            .n_dims = 1, .dim = {x->n, 1, 1, 1}, .n = x->n, .type = WEIGHT_F32, .data = x->v};
        int err = keep(o, x->v);
        x->v = NULL;
        if (!err)
            err = add(o, x->name, &t);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int add_tensors(struct opener *o)
{
    struct hf_files *f = o->files;
    size_t most = f->n_tensors + HF_VECTORS;
    bool head = o->config.tied;
    o->tensor = MEM_NEW(struct gguf_tensor, most);
    f->own = MEM_NEW(void *, most);
    if (!o->tensor || !f->own)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < f->n_tensors; i++) {
        int err = add_tensor(o, f->tensor[i]);
        if (err)
            return err;
        head = head || strcmp(f->tensor[i]->name, "lm_head.weight") == 0;
    }
    if (!head)
        return kvf_fail(o->d, KVF_E_FORMAT,
                        "%s: tensor lm_head.weight is missing, and config.json does not set "
                        "tie_word_embeddings to true; fetch the folder again",
                        f->path);
    return add_vectors(o);
}

static int read_all(struct opener *o)
{
    int err = hf_files_read(o->files, o->d);
    for (int i = 0; i < HF_FILES && !err; i++)
        if (i != HF_TOKENIZER && i != HF_TEMPLATE && i != HF_SPM)
            err = parse_text(o, i);
    if (!err)
        err = read_config(o);
    if (err)
        return err;
    put_name(o);
    err = hf_files_map(o->files, o->d);
    if (!err)
        err = add_tensors(o);
    return err ? err : read_tokenizer(o);
}

/* Frees the opener, except parts that the view owns now. */
static void finish(struct opener *o)
{
    for (int i = 0; i < HF_FILES; i++)
        json_free(o->tree[i]);
    hf_config_finish(&o->config);
    for (size_t i = 0; i < o->n_tensors; i++)
        mem_free((char *)(uintptr_t)o->tensor[i].name);
    mem_free(o->tensor);
    buf_finish(&o->put.pairs);
    hf_files_free(o->files);
}

int hf_folder_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d)
{
    struct opener o = {.files = MEM_NEW(struct hf_files, 1), .d = d};
    if (!o.files)
        return KVF_E_NOMEM;
    o.files->path = mem_strdup(path);
    int err = o.files->path ? read_all(&o) : KVF_E_NOMEM;
    if (!err) {
        const struct gguf_view view = {.pairs = o.put.pairs,
                                       .n_pairs = o.put.n,
                                       .tensor = o.tensor,
                                       .n_tensors = o.n_tensors,
                                       .owner = o.files,
                                       .close = hf_files_free,
                                       .hash = hf_files_hash};
        err = gguf_from_view(path, &view, ret_gguf, d);
        o.files = NULL;
        o.tensor = NULL;
        o.n_tensors = 0;
        o.put.pairs = (struct buf){0};
    }
    finish(&o);
    return err;
}
