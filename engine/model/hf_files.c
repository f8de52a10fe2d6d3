/* hf_files.c - reads and maps the files of a Hugging Face folder. */
#include "engine/model/hf_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_bytes.h"
#include "base/mem.h"
#include "base/order.h"

enum { MOST_SHARDS = 4096, LONGEST_NAME = 255 };

static const char one_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";

static const struct {
    const char *name;
    size_t most;
} texts[HF_FILES] = {
    [HF_CONFIG] = {"config.json", 1 << 20},
    [HF_GENERATION] = {"generation_config.json", 1 << 20},
    [HF_TOKENIZER] = {"tokenizer.json", 256 << 20},
    [HF_TOKENIZER_CONFIG] = {"tokenizer_config.json", 16 << 20},
    [HF_TEMPLATE] = {"chat_template.jinja", 1 << 20},
    [HF_SPM] = {"tokenizer.model", 64 << 20},
};

const char *hf_file_name(enum hf_file k)
{
    return texts[k].name;
}

/* Opens a file of the folder; *ret_fd is -1 if it does not exist. */
static int open_file(const struct hf_files *f, const char *name, int *ret_fd, size_t *ret_size,
                     struct kvf_diag *d)
{
    struct buf path = {0};
    struct stat st;
    buf_printf(&path, "%s/%s", f->path, name);
    int fd = path.err ? -1 : open(path.data, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = errno;
    int err = path.err;
    buf_finish(&path);
    *ret_fd = -1;
    if (err || (fd < 0 && failed == ENOENT))
        return err;
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s/%s: cannot open: %s", f->path, name, strerror(failed));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return kvf_fail(d, KVF_E_IO, "%s/%s: not a regular file; fetch the folder again", f->path,
                        name);
    }
    *ret_fd = fd;
    *ret_size = (size_t)st.st_size;
    return KVF_OK;
}

static void digest_of(const void *p, size_t n, unsigned char out[16])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
    memcpy(out, c.digest, 16);
}

/* Reads a small file; ret->bytes stays NULL if it does not exist. */
static int read_text(const struct hf_files *f, const char *name, size_t most, struct hf_text *ret,
                     struct kvf_diag *d)
{
    int fd, err = open_file(f, name, &fd, &ret->n, d);
    if (err || fd < 0)
        return err;
    if (ret->n > most)
        err = kvf_fail(d, KVF_E_LIMIT, "%s/%s: %zu bytes are over the limit of %zu", f->path, name,
                       ret->n, most);
    if (!err)
        err = file_bytes(fd, ret->n, &ret->bytes);
    if (err == KVF_E_IO)
        kvf_fail(d, err, "%s/%s: cannot read all of its %zu bytes", f->path, name, ret->n);
    close(fd);
    if (err)
        return err;
    digest_of(ret->bytes, ret->n, ret->digest);
    ret->there = true;
    return KVF_OK;
}

static bool has_file(const struct hf_files *f, const char *name)
{
    int fd;
    size_t size;
    if (open_file(f, name, &fd, &size, NULL))
        return true;
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Sets the message for a folder that lacks a file, with the probable reason. */
static int refuse_folder(const struct hf_files *f, const char *missing, struct kvf_diag *d)
{
    static const struct {
        const char *file, *what;
    } others[] = {
        {"adapter_config.json", "it is an adapter, not a model: merge it into its base model and "
                                "give the folder of the result"},
        {"pytorch_model.bin", "its weights are torch files: load the model with the transformers "
                              "library and save it again, which writes safetensors"},
        {"pytorch_model.bin.index.json",
         "its weights are torch files: load the model with the transformers library and save it "
         "again, which writes safetensors"},
        {"dataset_infos.json", "it is a data set, not a model"},
        {"dataset_info.json", "it is a data set, not a model"},
        {"vocab.json", "vocab.json is not enough: load the tokenizer with the transformers library "
                       "and save it again, which writes tokenizer.json"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_file(f, others[i].file))
            return kvf_fail(d, KVF_E_FORMAT, "%s: the folder has no %s; %s", f->path, missing,
                            others[i].what);
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: the folder has no %s; give a .gguf file, or a folder with config.json, "
                    "tokenizer.json or tokenizer.model, and model.safetensors",
                    f->path, missing);
}

int hf_files_read(struct hf_files *f, struct kvf_diag *d)
{
    for (int i = 0; i < HF_FILES; i++) {
        if (i == HF_SPM && f->text[HF_TOKENIZER].there)
            break;
        int err = read_text(f, texts[i].name, texts[i].most, &f->text[i], d);
        if (err)
            return err;
    }
    if (!f->text[HF_CONFIG].bytes)
        return refuse_folder(f, texts[HF_CONFIG].name, d);
    if (!f->text[HF_TOKENIZER].bytes && !f->text[HF_SPM].bytes)
        return refuse_folder(f, texts[HF_TOKENIZER].name, d);
    return KVF_OK;
}

void hf_files_drop(struct hf_files *f, enum hf_file k)
{
    mem_free(f->text[k].bytes);
    f->text[k].bytes = NULL;
}

/* ---- weights */

/* Returns true if an index may name this file: a .safetensors file in the folder itself. */
static bool is_shard_name(const char *s)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(s);
    return n > strlen(end) && n <= LONGEST_NAME && s[0] != '.' && !strchr(s, '/')
           && strcmp(s + n - strlen(end), end) == 0;
}

static int name_shard(struct hf_files *f, const char *name)
{
    struct hf_shard *s = &f->shard[f->n_shards++];
    struct buf path = {0};
    buf_printf(&path, "%s/%s", f->path, name);
    s->name = mem_strdup(name);
    s->path = path.err ? NULL : mem_strdup(path.data);
    buf_finish(&path);
    return s->name && s->path ? KVF_OK : KVF_E_NOMEM;
}

/* Lists the distinct files of the index, sorted by name. */
static int name_shards(struct hf_files *f, const struct json *map, struct kvf_diag *d)
{
    int n = json_len(map), i = 0, err = KVF_OK;
    const char **name = MEM_NEW(const char *, (size_t)n);
    if (!name)
        return KVF_E_NOMEM;
    for (const struct json *x = json_first(map); x && !err; x = json_next(x)) {
        name[i] = json_str(x, "");
        if (!is_shard_name(name[i]))
            err = kvf_fail(d, KVF_E_FORMAT,
                           "%s/%s: tensor %.100s is in '%.100s', which is no .safetensors file of "
                           "the folder itself; fetch the folder again",
                           f->path, index_file, json_key(x), name[i]);
        i++;
    }
    qsort(name, (size_t)i, sizeof *name, order_text);
    int distinct = 0;
    for (int k = 0; k < i; k++)
        if (k == 0 || strcmp(name[k - 1], name[k]) != 0)
            name[distinct++] = name[k];
    if (!err && distinct > MOST_SHARDS)
        err = kvf_fail(d, KVF_E_LIMIT, "%s/%s: %d files of weights are over the limit of %d",
                       f->path, index_file, distinct, MOST_SHARDS);
    f->shard = err ? NULL : MEM_NEW(struct hf_shard, (size_t)distinct);
    if (!err && !f->shard)
        err = KVF_E_NOMEM;
    for (int k = 0; k < distinct && !err; k++)
        err = name_shard(f, name[k]);
    mem_free(name);
    return err;
}

static int read_index(struct hf_files *f, struct kvf_diag *d)
{
    struct hf_text text = {.n = 0};
    int err = read_text(f, index_file, 16 << 20, &text, d);
    if (err)
        return err;
    if (!text.bytes)
        return refuse_folder(f, one_file, d);
    err = json_parse((const char *)text.bytes, text.n, &f->index, d);
    mem_free(text.bytes);
    if (err) {
        kvf_diag_prefix(d, "%s/%s: ", f->path, index_file);
        return err;
    }
    const struct json *map = json_get(f->index, "weight_map");
    if (!json_is_object(map) || json_len(map) == 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s/%s: weight_map is no list of tensors; fetch the folder again", f->path,
                        index_file);
    return name_shards(f, map, d);
}

static int map_shard(const struct hf_files *f, struct hf_shard *s, struct kvf_diag *d)
{
    int fd, err = open_file(f, s->name, &fd, &s->size, d);
    if (err)
        return err;
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO,
                        "%s: the file is missing, though %s names it; fetch it, or the folder "
                        "again",
                        s->path, index_file);
    void *p = s->size < 10 ? NULL : mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!p)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file: it has only %zu bytes",
                       s->path, s->size);
    else if (p == MAP_FAILED)
        err = kvf_fail(d, KVF_E_IO, "%s: cannot map the weights: %s", s->path, strerror(errno));
    else
        s->map = p;
    close(fd);
    return err ? err : safetensors_read(s->path, s->map, s->size, &s->tensors, d);
}

static int compare_shard(const void *name, const void *shard)
{
    return strcmp(name, ((const struct hf_shard *)shard)->name);
}

static int compare_tensor(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct tensor *)tensor)->name);
}

/* Lists the tensors of the index, each in the file that the index names. Other tensors of the
 * files are ignored. */
static int gather_index(struct hf_files *f, struct kvf_diag *d)
{
    const struct json *map = json_get(f->index, "weight_map");
    f->tensor = MEM_NEW(const struct tensor *, (size_t)json_len(map));
    if (!f->tensor)
        return KVF_E_NOMEM;
    for (const struct json *x = json_first(map); x; x = json_next(x)) {
        const struct hf_shard *s = bsearch(json_str(x, ""), f->shard, f->n_shards, sizeof *s,
                                           compare_shard);
        const struct tensor *t = bsearch(json_key(x), s->tensors.tensor, s->tensors.n, sizeof *t,
                                         compare_tensor);
        if (!t)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s/%s: tensor %.100s is not in %.100s; fetch the folder again",
                            f->path, index_file, json_key(x), s->name);
        f->tensor[f->n_tensors++] = t;
    }
    return KVF_OK;
}

static int gather_one(struct hf_files *f)
{
    const struct safetensors *s = &f->shard[0].tensors;
    f->tensor = MEM_NEW(const struct tensor *, s->n);
    if (!f->tensor)
        return KVF_E_NOMEM;
    for (; f->n_tensors < s->n; f->n_tensors++)
        f->tensor[f->n_tensors] = &s->tensor[f->n_tensors];
    return KVF_OK;
}

int hf_files_map(struct hf_files *f, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (has_file(f, one_file)) {
        f->shard = MEM_NEW(struct hf_shard, 1);
        err = f->shard ? name_shard(f, one_file) : KVF_E_NOMEM;
    } else {
        err = read_index(f, d);
    }
    for (size_t i = 0; i < f->n_shards && !err; i++)
        err = map_shard(f, &f->shard[i], d);
    if (err)
        return err;
    return f->index ? gather_index(f, d) : gather_one(f);
}

void hf_files_free(void *files)
{
    struct hf_files *f = files;
    if (!f)
        return;
    for (int i = 0; i < HF_FILES; i++)
        mem_free(f->text[i].bytes);
    for (size_t i = 0; f->shard && i < f->n_shards; i++) {
        struct hf_shard *s = &f->shard[i];
        safetensors_finish(&s->tensors);
        if (s->map)
            munmap(s->map, s->size);
        mem_free_all(s->name, s->path);
    }
    for (size_t i = 0; f->own && i < f->n_own; i++)
        mem_free(f->own[i]);
    mem_free_all(f->own, f->tensor, f->shard);
    json_free(f->index);
    mem_free_all(f->path, f);
}

void hf_files_hash(const void *files, char out[33])
{
    const struct hf_files *f = files;
    struct buf all = {0};
    unsigned char digest[16];
    for (int i = 0; i < HF_FILES; i++)
        if (f->text[i].there) {
            buf_add(&all, texts[i].name, strlen(texts[i].name) + 1);
            buf_add(&all, f->text[i].digest, 16);
        }
    for (size_t i = 0; i < f->n_shards; i++) {
        digest_of(f->shard[i].map, f->shard[i].size, digest);
        buf_add(&all, f->shard[i].name, strlen(f->shard[i].name) + 1);
        buf_add(&all, digest, 16);
    }
    XXH128_hash_t x = XXH3_128bits(all.data, all.len);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)x.high64, (unsigned long long)x.low64);
    buf_finish(&all);
}
