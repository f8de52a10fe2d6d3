#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/gate/safetensors.h"

enum { MAX_TENSORS = 65536, MAX_NAME = 256 };

struct entry {
    struct safetensor t;    /* name borrowed from the tree */
    uint64_t begin, end;    /* offsets from the end of the header */
};

struct safetensors {
    char *path;
    unsigned char *map;
    size_t size;
    size_t data;            /* offset of the tensors' bytes */
    struct json *root;
    const struct json *meta; /* NULL: none */
    struct entry *entry;    /* sorted by name */
    size_t n;
};

static int map_file(struct safetensors *st, struct kvf_diag *d)
{
    struct stat s;
    int fd = open(st->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open: %s", st->path, strerror(errno));
    int err = KVF_OK;
    if (fstat(fd, &s) != 0)
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", st->path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        err = kvf_fail(d, KVF_E_IO, "%s: not a regular file; give a .safetensors file", st->path);
    else if (s.st_size < 10)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file: it has only %lld bytes",
                       st->path, (long long)s.st_size);
    if (!err) {
        st->size = (size_t)s.st_size;
        void *p = mmap(NULL, st->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            err = kvf_fail(d, KVF_E_IO, "%s: cannot map: %s", st->path,
                           strerror(errno));
        else
            st->map = p;
    }
    close(fd);
    return err;
}

static int read_dtype(const struct json *node, enum weight_type *ret)
{
    static const struct { const char *name; enum weight_type type; } known[] = {
        {"F32", WEIGHT_F32}, {"F16", WEIGHT_F16}, {"BF16", WEIGHT_BF16}};
    const char *name = json_str(json_get(node, "dtype"), "");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            return *ret = known[i].type, KVF_OK;
    return KVF_E_FORMAT;
}

/* A JSON number that is a whole one in [least, 2^53]. */
static int read_size(const struct json *node, int64_t least, uint64_t *ret)
{
    int64_t v = json_int(node, -1);
    if (v < least)
        return KVF_E_FORMAT;
    *ret = (uint64_t)v;
    return KVF_OK;
}

static int read_shape(const struct json *node, struct safetensor *t)
{
    t->n_dims = json_len(node);
    t->n = 1;
    if (!json_is_array(node) || t->n_dims > SAFETENSORS_DIMS)
        return KVF_E_FORMAT;
    for (int i = 0; i < SAFETENSORS_DIMS; i++)
        t->dim[i] = 1;
    const struct json *x = json_first(node);
    for (int i = 0; i < t->n_dims; i++, x = json_next(x))
        if (read_size(x, 1, &t->dim[i]) || __builtin_mul_overflow(t->n, t->dim[i], &t->n)
            || t->n > (uint64_t)1 << 40)
            return KVF_E_FORMAT;
    return KVF_OK;
}

static int read_entry(const struct safetensors *st, const struct json *node, struct entry *e,
                      struct kvf_diag *d)
{
    const struct json *span = json_get(node, "data_offsets");
    const char *name = json_key(node), *path = st->path;
    e->t.name = name;
    if (name[0] == 0 || strlen(name) >= MAX_NAME)
        return kvf_fail(d, KVF_E_FORMAT, "%s: a tensor's name has %zu bytes; 1 to %d are allowed",
                        path, strlen(name), MAX_NAME - 1);
    if (read_dtype(node, &e->t.type))
        return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s has type '%.20s'; F32, F16 and BF16 can "
                        "be read", path, name, json_str(json_get(node, "dtype"), "?"));
    if (read_shape(json_get(node, "shape"), &e->t))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the shape of tensor %s is not 0 to %d whole numbers "
                        "from 1 on with a usable product", path, name, SAFETENSORS_DIMS);
    if (json_len(span) != 2 || read_size(json_at(span, 0), 0, &e->begin)
        || read_size(json_at(span, 1), 0, &e->end) || e->begin > e->end
        || e->end > st->size - st->data)
        return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s lies outside the file; it is damaged or "
                        "cut off: fetch it again", path, name);
    size_t bytes = weight_bytes(e->t.type, e->t.n), one = weight_bytes(e->t.type, 1);
    if (e->end - e->begin != bytes)
        return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s has %llu bytes, but its shape needs %zu; "
                        "write the file again", path, name,
                        (unsigned long long)(e->end - e->begin), bytes);
    if ((st->data + e->begin) % one)
        return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s is not aligned to its element; pad the "
                        "header with spaces to a multiple of 8", path, name);
    e->t.data = st->map + st->data + e->begin;
    return KVF_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->t.name, ((const struct entry *)b)->t.name);
}

/* Neither gap nor overlap: the end of each tensor is the beginning of the next. */
static int check_places(struct safetensors *st, struct kvf_diag *d)
{
    uint64_t at = 0;
    qsort(st->entry, st->n, sizeof *st->entry, by_place);
    for (size_t i = 0; i < st->n; i++) {
        if (st->entry[i].begin != at)
            return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s %s the one before it; write the file "
                            "again", st->path, st->entry[i].t.name,
                            st->entry[i].begin < at ? "overlaps" : "leaves a gap behind");
        at = st->entry[i].end;
    }
    if (at != st->size - st->data)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %llu bytes after the last tensor belong to none; "
                        "write the file again", st->path,
                        (unsigned long long)(st->size - st->data - at));
    qsort(st->entry, st->n, sizeof *st->entry, by_name);
    return KVF_OK;
}

static int check_meta(const struct safetensors *st, struct kvf_diag *d)
{
    if (!json_is_object(st->meta))
        return kvf_fail(d, KVF_E_FORMAT, "%s: __metadata__ is not an object; write the file again",
                        st->path);
    for (const struct json *x = json_first(st->meta); x; x = json_next(x))
        if (!json_str(x, NULL))
            return kvf_fail(d, KVF_E_FORMAT, "%s: metadata entry %.100s is not text; write the "
                            "file again", st->path, json_key(x));
    return KVF_OK;
}

static int read_entries(struct safetensors *st, struct kvf_diag *d)
{
    int n = json_len(st->root), err = KVF_OK;
    if (n > MAX_TENSORS)
        return kvf_fail(d, KVF_E_LIMIT, "%s: %d tensors are over the limit", st->path, n);
    st->entry = MEM_NEW(struct entry, (size_t)n);
    if (!st->entry)
        return KVF_E_NOMEM;
    const struct json *x = json_first(st->root);
    for (; x && !err; x = json_next(x)) {
        if (strcmp(json_key(x), "__metadata__") == 0) {
            st->meta = x;
            err = check_meta(st, d);
        } else {
            err = read_entry(st, x, &st->entry[st->n], d);
            st->n += !err;
        }
    }
    return err ? err : check_places(st, d);
}

static int parse(struct safetensors *st, struct kvf_diag *d)
{
    uint64_t len = 0;
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)st->map[i] << (8 * i);
    if (len < 2 || st->map[8] != '{')
        return kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file", st->path);
    if (len > st->size - 8)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the header of %llu bytes is longer than the file; "
                        "it is cut off or no safetensors file: fetch it again", st->path,
                        (unsigned long long)len);
    st->data = 8 + (size_t)len;
    /* json_parse has the limit of 16 MiB */
    int err = json_parse((const char *)st->map + 8, (size_t)len, &st->root, d);
    if (err)
        kvf_diag_prefix(d, "%s: the header", st->path);
    return err ? err : read_entries(st, d);
}

int safetensors_open(const char *path, struct safetensors **ret_st, struct kvf_diag *d)
{
    struct safetensors *st = MEM_NEW(struct safetensors, 1);
    if (!st)
        return KVF_E_NOMEM;
    st->path = mem_strdup(path);
    int err = st->path ? map_file(st, d) : KVF_E_NOMEM;
    if (!err)
        err = parse(st, d);
    if (err) {
        safetensors_close(st);
        return err;
    }
    *ret_st = st;
    return KVF_OK;
}

void safetensors_close(struct safetensors *st)
{
    if (!st)
        return;
    mem_free(st->entry);
    json_free(st->root);
    if (st->map)
        munmap(st->map, st->size);
    mem_free(st->path);
    mem_free(st);
}

const char *safetensors_path(const struct safetensors *st)
{
    return st->path;
}

size_t safetensors_n(const struct safetensors *st)
{
    return st->n;
}

const struct safetensor *safetensors_at(const struct safetensors *st, size_t i)
{
    return &st->entry[i].t;
}

const struct safetensor *safetensors_find(const struct safetensors *st, const char *name,
                                          size_t *ret_i)
{
    struct entry key = {.t.name = name};
    const struct entry *e = bsearch(&key, st->entry, st->n, sizeof key, by_name);
    if (e && ret_i)
        *ret_i = (size_t)(e - st->entry);
    return e ? &e->t : NULL;
}

const char *safetensors_meta(const struct safetensors *st, const char *key)
{
    return json_str(json_get(st->meta, key), NULL);
}

const char *safetensors_meta_key(const struct safetensors *st, int i)
{
    const struct json *x = json_first(st->meta);
    for (; x && i > 0; i--)
        x = json_next(x);
    return json_key(x);
}

void safetensors_hash(const struct safetensors *st, char out[33])
{
    XXH128_hash_t h = XXH3_128bits(st->map, st->size);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
