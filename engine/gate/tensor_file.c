/* tensor_file.c - opens a safetensors file and finds its tensors and metadata by name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_bytes.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/gate/tensor_file.h"

static int read_file(struct tensor_file *f, struct kvf_diag *d)
{
    int fd = file_regular(f->path, &f->size), err = KVF_OK;
    if (fd < 0 && errno)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open: %s", f->path, strerror(errno));
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: not a regular file; give a .safetensors file", f->path);
    if (f->size < 10)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file: it has only %zu bytes",
                       f->path, f->size);
    else
        err = file_bytes(fd, f->size, &f->map);
    if (err == KVF_E_IO)
        kvf_fail(d, err, "%s: cannot read all of its %zu bytes", f->path, f->size);
    close(fd);
    return err;
}

/* Appends the path as one word of a shell command. */
static void put_word(struct buf *b, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+,:=@%-";
    if (strspn(path, plain) == strlen(path)) {
        buf_str(b, path);
        return;
    }
    buf_char(b, '\'');
    for (; *path; path++)
        buf_str(b, *path == '\'' ? "'\\''" : (char[2]){*path});
    buf_char(b, '\'');
}

/* Returns KVF_E_FORMAT with the command that converts a file of torch.save. */
static int reject_torch(const char *path, struct kvf_diag *d)
{
    struct buf word = {0};
    put_word(&word, path);
    int err = word.err;
    if (!err)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "%s: a zip archive, as torch.save writes it; convert it with: kvfate gates "
                       "convert %s",
                       path, word.data);
    buf_finish(&word);
    return err;
}

/* Reads the header.  The first bytes of a torch file would be the length of a safetensors header
 * that is over its limit. */
static int read_tensors(struct tensor_file *f, struct kvf_diag *d)
{
    static const unsigned char zip[] = {'P', 'K', 3, 4}, bare[] = {0x80, 2, 0x8a, 10};
    if (memcmp(f->map, bare, sizeof bare) == 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: a torch file in the format of before 1.6 (no zip "
                        "archive); load it with torch and save it as safetensors",
                        f->path);
    if (memcmp(f->map, zip, sizeof zip) == 0)
        return reject_torch(f->path, d);
    struct safetensors read = {.n = 0};
    int err = safetensors_read(f->path, f->map, f->size, &read, d);
    f->tensor = read.tensor;
    f->n = read.n;
    f->root = read.root;
    f->meta = read.meta;
    return err;
}

int tensor_file_open(const char *path, struct tensor_file **ret_f, struct kvf_diag *d)
{
    struct tensor_file *f = MEM_NEW(struct tensor_file, 1);
    if (!f)
        return KVF_E_NOMEM;
    f->path = mem_strdup(path);
    int err = f->path ? read_file(f, d) : KVF_E_NOMEM;
    if (!err)
        err = read_tensors(f, d);
    if (err)
        tensor_file_close(f);
    else
        *ret_f = f;
    return err;
}

void tensor_file_close(struct tensor_file *f)
{
    if (!f)
        return;
    mem_free(f->tensor);
    json_free(f->root);
    mem_free_all(f->map, f->path, f);
}

static int by_name(const void *key, const void *tensor)
{
    return strcmp(key, ((const struct tensor *)tensor)->name);
}

const struct tensor *tensor_file_find(const struct tensor_file *f, const char *name, size_t *ret_i)
{
    const struct tensor *t = bsearch(name, f->tensor, f->n, sizeof *t, by_name);
    if (t && ret_i)
        *ret_i = (size_t)(t - f->tensor);
    return t;
}

const char *tensor_file_meta(const struct tensor_file *f, const char *key)
{
    return json_str(json_get(f->meta, key), NULL);
}

const char *tensor_file_meta_key(const struct tensor_file *f, int i)
{
    const struct json *x = json_first(f->meta);
    for (; x && i > 0; i--)
        x = json_next(x);
    return json_key(x);
}

void tensor_file_hash(const struct tensor_file *f, char out[33])
{
    XXH128_hash_t h = XXH3_128bits(f->map, f->size);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
