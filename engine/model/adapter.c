/* adapter.c - reads a LoRA adapter and adds its changes to the matrices of a model. */
#include "engine/model/adapter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_bytes.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/model/config.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_put.h"
#include "engine/model/quantise.h"
#include "engine/model/safetensors.h"

enum { PATH = 4096, MOST_CONFIG = 1 << 20, MOST_RANK = 65536 };

/* The owner of the changed tensors of a model with an adapter. */
struct adapted {
    struct gguf *base;
    void **data; /* [n] data of changed tensors */
    size_t n;
    char hash[33];
};

/* An adapter that is being applied. */
struct job {
    char path[PATH];
    unsigned char *map;
    size_t size;
    struct safetensors file;
    double alpha; /* NaN if not given */
    bool by_root; /* use_rslora */
    struct gguf *base;
    struct model_config config;
    enum weight_type type;
    struct adapted *made;
    struct gguf_view view;
};

/* Modules of Hugging Face models, and the corresponding GGUF tensors. */
static const struct {
    const char *module, *tensor;
    bool turned; /* rows are permuted for RoPE */
} modules[] = {
    {"self_attn.q_proj", "attn_q", true},      {"self_attn.k_proj", "attn_k", true},
    {"self_attn.v_proj", "attn_v", false},     {"self_attn.o_proj", "attn_output", false},
    {"self_attn.qkv_proj", "attn_qkv", false}, {"mlp.gate_proj", "ffn_gate", false},
    {"mlp.gate_up_proj", "ffn_up", false},     {"mlp.up_proj", "ffn_up", false},
    {"mlp.down_proj", "ffn_down", false}};

/* ---- the file */

/* Sets j->path to the adapter file; `path` may be a folder. */
static int find_file(struct job *j, const char *path, struct kvf_diag *d)
{
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int n = snprintf(j->path, PATH, "%s%s", path, folder ? "/adapter_model.safetensors" : "");
    return n < PATH ? KVF_OK : kvf_fail(d, KVF_E_ARG, "the path of the adapter is too long");
}

static int map_file(struct job *j, struct kvf_diag *d)
{
    size_t n = 0;
    int fd = file_regular(j->path, &n), err = KVF_OK;
    if (fd < 0) {
        err = kvf_fail(d, KVF_E_IO, "%s: cannot open the adapter: %s", j->path,
                       errno ? strerror(errno) : "it is not a regular file");
    } else if (n < 10) {
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file: it has only %zu bytes",
                       j->path, n);
    } else {
        j->size = n;
        void *p = mmap(NULL, j->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            err = kvf_fail(d, KVF_E_IO, "%s: cannot map the adapter: %s", j->path, strerror(errno));
        else
            j->map = p;
    }
    if (fd >= 0)
        close(fd);
    return err ? err : safetensors_read(j->path, j->map, j->size, &j->file, d);
}

/* Reads alpha and use_rslora from adapter_config.json, and rejects unsupported settings. */
static int parse_config(struct job *j, const char *text, size_t n, struct kvf_diag *d)
{
    static const char *const others[] = {"alpha_pattern", "layer_replication"};
    struct json *root;
    int err = json_parse(text, n, &root, d);
    if (err)
        return err;
    j->alpha = json_num(json_get(root, "lora_alpha"), NAN);
    j->by_root = json_bool(json_get(root, "use_rslora"), false);
    if (json_bool(json_get(root, "use_dora"), false))
        err = kvf_fail(d, KVF_E_FORMAT, "use_dora: only low-rank changes (LoRA) are added");
    for (int i = 0; !err && i < 2; i++)
        if (json_len(json_get(root, others[i])) > 0)
            err = kvf_fail(d, KVF_E_FORMAT,
                           "%s: changes with several weights, or of copied layers, are not "
                           "supported",
                           others[i]);
    json_free(root);
    return err;
}

/* Reads adapter_config.json in the folder of the adapter, if it exists. */
static int read_config(struct job *j, struct kvf_diag *d)
{
    static const char name[] = "adapter_config.json";
    char path[PATH + sizeof name];
    const char *slash = strrchr(j->path, '/');
    int folder = slash ? (int)(slash - j->path) + 1 : 0, err = KVF_OK;
    snprintf(path, sizeof path, "%.*s%s", folder, j->path, name);
    size_t n = 0;
    unsigned char *text = NULL;
    int fd = file_regular(path, &n);
    if (fd < 0 && errno == ENOENT)
        return KVF_OK;
    if (fd < 0)
        err = kvf_fail(d, KVF_E_IO, "cannot open it: %s",
                       errno ? strerror(errno) : "it is not a regular file");
    else if (n >= MOST_CONFIG)
        err = kvf_fail(d, KVF_E_LIMIT, "it is over %d bytes", MOST_CONFIG);
    else
        err = file_bytes(fd, n, &text);
    if (fd >= 0)
        close(fd);
    if (!err)
        err = parse_config(j, (const char *)text, n, d);
    mem_free(text);
    if (err)
        kvf_diag_prefix(d, "%s", path);
    return err;
}

static int find_alpha(struct job *j, struct kvf_diag *d)
{
    const char *own = j->file.meta ? json_str(json_get(j->file.meta, "lora_alpha"), NULL) : NULL;
    char rest;
    j->alpha = NAN;
    if (own && sscanf(own, "%lf%c", &j->alpha, &rest) != 1)
        j->alpha = NAN;
    int err = own ? KVF_OK : read_config(j, d);
    if (!err && !isfinite(j->alpha))
        err = kvf_fail(d, KVF_E_FORMAT,
                       "%s: its metadata and adapter_config.json in the same folder lack "
                       "lora_alpha, which scales the changes",
                       j->path);
    return err;
}

/* ---- the changes */

/* Returns the tensor that "...layers.3.self_attn.q_proj.lora_A.weight" changes, and sets
 * *ret_turned as in modules; NULL if it is unknown. */
static const struct gguf_tensor *target_of(const struct job *j, const char *name, bool *ret_turned)
{
    static const char before[] = "layers.";
    const char *at = strstr(name, before), *end = strstr(name, ".lora_");
    size_t digits = at ? strspn(at + sizeof before - 1, "0123456789") : 0;
    if (!end || digits < 1 || digits > 5 || at[sizeof before - 1 + digits] != '.')
        return NULL;
    int layer = (int)strtol(at + sizeof before - 1, NULL, 10); /* at most five digits */
    at += sizeof before + digits;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        char tensor[64];
        size_t len = strlen(modules[i].module);
        if (end - at != (ptrdiff_t)len || memcmp(at, modules[i].module, len) != 0)
            continue;
        snprintf(tensor, sizeof tensor, "blk.%d.%s.weight", layer, modules[i].tensor);
        const struct gguf_tensor *t = gguf_find(j->base, tensor);
        *ret_turned = modules[i].turned && !j->config.halves;
        if (t)
            return t;
    }
    return NULL;
}

/* Returns the row of B that changes row r of the file, in which the two channels of a rotated pair
 * are adjacent. */
static size_t hf_row(const struct model_config *m, size_t r)
{
    size_t D = (size_t)m->head_dim, half = (size_t)m->rope_dim / 2, c = r % D;
    return c < 2 * half ? r - c + c / 2 + c % 2 * half : r;
}

/* Computes w [rows, columns] += share B A. */
static void add(const struct job *j, float *w, const float *a, const float *b, size_t rank,
                const struct gguf_tensor *t, bool turned)
{
    size_t K = (size_t)t->dim[0];
    double share = j->alpha / (j->by_root ? sqrt((double)rank) : (double)rank);
    for (size_t r = 0; r < (size_t)t->dim[1]; r++) {
        const float *row = b + (turned ? hf_row(&j->config, r) : r) * rank;
        for (size_t i = 0; i < rank; i++) {
            float by = (float)(share * (double)row[i]);
            for (size_t k = 0; k < K; k++)
                w[r * K + k] += by * a[i * K + k];
        }
    }
}

static float *floats_of(const void *data, enum weight_type type, size_t n)
{
    float *x = MEM_NEW(float, n);
    if (x)
        weight_dequant(x, data, type, n);
    return x;
}

/* Checks that the type can represent all values; f16 would store larger ones as infinity. */
static int fits(const struct job *j, const float *w, size_t n, const char *name, struct kvf_diag *d)
{
    float most = j->type == WEIGHT_F16 ? 65504.0f : 3.4e38f;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(w[i]) <= most))
            return kvf_fail(d, KVF_E_LIMIT, "%s: %s becomes %g, which %s cannot represent", j->path,
                            name, (double)w[i], weight_type_name(j->type));
    return KVF_OK;
}

/* Replaces a tensor by its changed version. */
static int change(struct job *j, const struct gguf_tensor *t, const struct tensor *a,
                  const struct tensor *b, bool turned, struct kvf_diag *d)
{
    size_t n = (size_t)(t->dim[0] * t->dim[1]);
    float *w = floats_of(t->data, (enum weight_type)t->type, n);
    float *fa = floats_of(a->data, a->type, (size_t)a->n);
    float *fb = floats_of(b->data, b->type, (size_t)b->n);
    void *data = mem_alloc(n, weight_bytes(j->type, 1));
    int err = w && fa && fb && data ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        add(j, w, fa, fb, (size_t)a->dim[0], t, turned);
        err = fits(j, w, n, t->name, d);
    }
    if (!err) {
        struct gguf_tensor *to = &j->view.tensor[t - j->base->tensor];
        weight_quantise(data, w, j->type, n);
        to->type = j->type;
        to->data = data;
        to->bytes = weight_bytes(j->type, n);
        j->made->data[j->made->n++] = data;
        data = NULL;
    }
    mem_free_all(w, fa, fb, data);
    return err;
}

static const struct tensor *find_tensor(const struct safetensors *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

/* Returns the tensor "...lora_B..." for "...lora_A...", and vice versa. */
static const struct tensor *partner_of(const struct job *j, const struct tensor *x)
{
    char name[TENSOR_NAME];
    snprintf(name, sizeof name, "%s", x->name);
    char *a = strstr(name, ".lora_A."), *at = a ? a : strstr(name, ".lora_B.");
    at[strlen(".lora_")] = a ? 'B' : 'A';
    return find_tensor(&j->file, name);
}

static int apply_pair(struct job *j, const struct tensor *a, struct kvf_diag *d)
{
    const struct tensor *b = partner_of(j, a);
    bool turned = false;
    const struct gguf_tensor *t = target_of(j, a->name, &turned);
    if (!t)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s changes a matrix that the model %s does not have; adapters change "
                        "projections of attention and of feed-forward networks",
                        j->path, a->name, gguf_path(j->base));
    if (!t->bytes)
        return gguf_refuse_type(j->base, t, d);
    bool fit = b && a->n_dims == 2 && b->n_dims == 2 && a->dim[0] == b->dim[1]
               && a->dim[0] <= MOST_RANK && a->dim[1] == t->dim[0] && b->dim[0] == t->dim[1]
               && t->dim[2] == 1 && t->dim[3] == 1;
    if (!fit)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s and its lora_B do not make a change of %s, which is %llu x %llu: "
                        "the adapter is of another model",
                        j->path, a->name, t->name, (unsigned long long)t->dim[1],
                        (unsigned long long)t->dim[0]);
    if (j->view.tensor[t - j->base->tensor].data != t->data)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s is changed twice", j->path, t->name);
    return change(j, t, a, b, turned, d);
}

static int apply_all(struct job *j, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (size_t i = 0; !err && i < j->file.n; i++) {
        const struct tensor *t = &j->file.tensor[i];
        if (strstr(t->name, ".lora_A."))
            err = apply_pair(j, t, d);
        else if (!strstr(t->name, ".lora_B.") || !partner_of(j, t))
            err = kvf_fail(d, KVF_E_FORMAT,
                           "%s: %s is no low-rank change (lora_A, lora_B), and others are "
                           "not added",
                           j->path, t->name);
    }
    if (!err && j->made->n == 0)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: it has no low-rank changes (lora_A, lora_B)", j->path);
    return err;
}

/* ---- the model */

static void close_adapted(void *owner)
{
    struct adapted *x = owner;
    for (size_t i = 0; x && i < x->n; i++)
        mem_free(x->data[i]);
    if (x) {
        gguf_close(x->base);
        mem_free(x->data);
    }
    mem_free(x);
}

static void hash_adapted(const void *owner, char out[33])
{
    memcpy(out, ((const struct adapted *)owner)->hash, 33);
}

static void put_hash(struct job *j)
{
    struct buf all = {0};
    char base[33];
    gguf_hash(j->base, base);
    buf_add(&all, base, 32);
    XXH128_hash_t x = XXH3_128bits(j->map, j->size);
    buf_le64(&all, x.high64);
    buf_le64(&all, x.low64);
    x = XXH3_128bits(all.data, all.len);
    snprintf(j->made->hash, 33, "%016llx%016llx", (unsigned long long)x.high64,
             (unsigned long long)x.low64);
    buf_finish(&all);
}

/* Makes a view with the metadata and the tensors of the base. */
static int make_view(struct job *j)
{
    size_t n = j->base->n_tensors;
    struct gguf_put meta = {{0}, 0};
    j->made = MEM_NEW(struct adapted, 1);
    j->view.tensor = MEM_NEW(struct gguf_tensor, n);
    if (!j->made || !j->view.tensor)
        return KVF_E_NOMEM;
    j->made->data = MEM_NEW(void *, n);
    if (!j->made->data)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < j->base->n_pairs; i++)
        gguf_put_pair(&meta, &j->base->pair[i]);
    j->view.pairs = meta.pairs;
    j->view.n_pairs = meta.n;
    for (; j->view.n_tensors < n; j->view.n_tensors++) {
        struct gguf_tensor *t = &j->view.tensor[j->view.n_tensors];
        *t = j->base->tensor[j->view.n_tensors];
        t->name = mem_strdup(t->name);
        if (!t->name)
            return KVF_E_NOMEM;
    }
    return meta.pairs.err;
}

static void drop(struct job *j)
{
    for (size_t i = 0; i < j->view.n_tensors; i++)
        mem_free((char *)(uintptr_t)j->view.tensor[i].name);
    mem_free(j->view.tensor);
    buf_finish(&j->view.pairs);
    if (j->made)
        j->made->base = NULL; /* the caller keeps it */
    close_adapted(j->made);
}

int adapter_apply(struct gguf *base, const char *path, bool wide, struct gguf **ret_gguf,
                  struct kvf_diag *d)
{
    struct job j = {.base = base, .type = wide ? WEIGHT_F32 : WEIGHT_F16};
    int err = find_file(&j, path, d);
    if (!err)
        err = model_config_read(base, &j.config, d);
    if (!err)
        err = map_file(&j, d);
    if (!err)
        err = find_alpha(&j, d);
    if (!err)
        err = make_view(&j);
    if (!err)
        err = apply_all(&j, d);
    if (err) {
        drop(&j);
    } else {
        put_hash(&j);
        j.view.owner = j.made;
        j.view.close = close_adapted;
        j.view.hash = hash_adapted;
        err = gguf_from_view(gguf_path(base), &j.view, ret_gguf, d);
        if (!err)
            /* set last, because on failure gguf_from_view() closes everything that the view owns */
            j.made->base = base;
    }
    safetensors_finish(&j.file);
    if (j.map)
        munmap(j.map, j.size);
    return err == KVF_E_NOMEM && !d->text[0]
               ? kvf_fail(d, err, "%s: not enough memory for the changes", path)
               : err;
}
