/* safetensors.c - reads and checks safetensors files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/model/safetensors.h"

/* A tensor and the place of its data. */
struct entry {
    struct tensor t;     /* its name is borrowed from the JSON tree */
    uint64_t begin, end; /* offsets from the end of the header */
};

/* A file that is being read. */
struct reader {
    const char *path;
    const unsigned char *map;
    size_t size;
    struct safetensors f; /* root and meta; its tensors are set last */
    size_t data;          /* offset of the tensors' bytes */
    struct entry *entry;
    size_t n;
};

static int read_dtype(const struct json *node, enum weight_type *ret)
{
    static const struct {
        const char *name;
        enum weight_type type;
    } known[] = {{"F32", WEIGHT_F32}, {"F16", WEIGHT_F16}, {"BF16", WEIGHT_BF16}};
    const char *name = json_str(json_get(node, "dtype"), "");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            *ret = known[i].type;
            return KVF_OK;
        }
    return KVF_E_FORMAT;
}

/* Reads a JSON integer in [least, 2^53]. */
static int read_size(const struct json *node, int64_t least, uint64_t *ret)
{
    int64_t v = json_int(node, -1);
    if (v < least)
        return KVF_E_FORMAT;
    *ret = (uint64_t)v;
    return KVF_OK;
}

static int read_shape(const struct json *node, struct tensor *t)
{
    t->n_dims = json_len(node);
    t->n = 1;
    if (!json_is_array(node) || t->n_dims > TENSOR_DIMS)
        return KVF_E_FORMAT;
    for (int i = 0; i < TENSOR_DIMS; i++)
        t->dim[i] = 1;
    const struct json *x = json_first(node);
    for (int i = 0; i < t->n_dims; i++, x = json_next(x))
        if (read_size(x, 1, &t->dim[i]) || __builtin_mul_overflow(t->n, t->dim[i], &t->n)
            || t->n > (uint64_t)1 << 40)
            return KVF_E_FORMAT;
    return KVF_OK;
}

static int read_entry(const struct reader *r, const struct json *node, struct entry *e,
                      struct kvf_diag *d)
{
    const struct json *span = json_get(node, "data_offsets");
    const char *name = json_key(node), *path = r->path;
    e->t.name = name;
    if (name[0] == 0 || strlen(name) >= TENSOR_NAME)
        return kvf_fail(d, KVF_E_FORMAT, "%s: a tensor's name has %zu bytes; 1 to %d are allowed",
                        path, strlen(name), TENSOR_NAME - 1);
    if (read_dtype(node, &e->t.type))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s has type '%.20s'; F32, F16 and BF16 can "
                        "be read",
                        path, name, json_str(json_get(node, "dtype"), "?"));
    if (read_shape(json_get(node, "shape"), &e->t))
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: the shape of tensor %s must be 0 to %d integers from 1 on with a usable product",
            path, name, TENSOR_DIMS);
    if (json_len(span) != 2 || read_size(json_at(span, 0), 0, &e->begin)
        || read_size(json_at(span, 1), 0, &e->end) || e->begin > e->end
        || e->end > r->size - r->data)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: tensor %s is outside the file; it is damaged or incomplete: fetch it again", path,
            name);
    size_t bytes = weight_bytes(e->t.type, e->t.n), one = weight_bytes(e->t.type, 1);
    if (e->end - e->begin != bytes)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s has %llu bytes, but its shape needs %zu; "
                        "write the file again",
                        path, name, (unsigned long long)(e->end - e->begin), bytes);
    if ((r->data + e->begin) % one)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s is not aligned to its element; pad the "
                        "header with spaces to a multiple of 8",
                        path, name);
    e->t.data = r->map + r->data + e->begin;
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

/* Checks that there is no gap or overlap: each tensor begins at the end of the preceding one. */
static int check_places(struct reader *r, struct kvf_diag *d)
{
    uint64_t at = 0;
    qsort(r->entry, r->n, sizeof *r->entry, by_place);
    for (size_t i = 0; i < r->n; i++) {
        if (r->entry[i].begin != at)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: tensor %s %s the one before it; write the file "
                            "again",
                            r->path, r->entry[i].t.name,
                            r->entry[i].begin < at ? "overlaps" : "does not directly follow");
        at = r->entry[i].end;
    }
    if (at != r->size - r->data)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: %llu bytes after the last tensor belong to no tensor; write the file again",
            r->path, (unsigned long long)(r->size - r->data - at));
    qsort(r->entry, r->n, sizeof *r->entry, by_name);
    return KVF_OK;
}

static int check_meta(const struct reader *r, struct kvf_diag *d)
{
    if (!json_is_object(r->f.meta))
        return kvf_fail(d, KVF_E_FORMAT, "%s: __metadata__ is not an object; write the file again",
                        r->path);
    for (const struct json *x = json_first(r->f.meta); x; x = json_next(x))
        if (!json_str(x, NULL))
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: metadata entry %.100s is not text; write the "
                            "file again",
                            r->path, json_key(x));
    return KVF_OK;
}

static int read_entries(struct reader *r, struct kvf_diag *d)
{
    int n = json_len(r->f.root);
    if (n > TENSORS_MOST)
        return kvf_fail(d, KVF_E_LIMIT, "%s: %d tensors are over the limit", r->path, n);
    r->entry = MEM_NEW(struct entry, (size_t)n);
    if (!r->entry)
        return KVF_E_NOMEM;
    for (const struct json *x = json_first(r->f.root); x; x = json_next(x)) {
        bool meta = strcmp(json_key(x), "__metadata__") == 0;
        if (meta)
            r->f.meta = x;
        int err = meta ? check_meta(r, d) : read_entry(r, x, &r->entry[r->n], d);
        if (err)
            return err;
        r->n += !meta;
    }
    return check_places(r, d);
}

static int parse(struct reader *r, struct kvf_diag *d)
{
    uint64_t len = 0;
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)r->map[i] << (8 * i);
    if (r->map[8] != '{')
        return kvf_fail(d, KVF_E_FORMAT, "%s: not a safetensors file", r->path);
    if (len > r->size - 8)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the header of %llu bytes is longer than the file; "
                        "it is cut off or no safetensors file: fetch it again",
                        r->path, (unsigned long long)len);
    r->data = 8 + (size_t)len;
    /* json_parse() limits it to 16 MiB */
    int err = json_parse((const char *)r->map + 8, (size_t)len, &r->f.root, d);
    if (err) {
        kvf_diag_prefix(d, "%s: the header", r->path);
        return err;
    }
    return read_entries(r, d);
}

/* Computes the XXH3-128 of the file in hex, with zeros instead of the digits at `at`. */
static int hash_file(const struct reader *r, const unsigned char *at,
                     char out[SAFETENSORS_DIGITS + 1])
{
    XXH3_state_t *x = XXH3_createState();
    if (!x)
        return KVF_E_NOMEM;
    const unsigned char *rest = at + SAFETENSORS_DIGITS;
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, r->map, (size_t)(at - r->map));
    XXH3_128bits_update(x, SAFETENSORS_ZEROS, SAFETENSORS_DIGITS);
    XXH3_128bits_update(x, rest, r->size - (size_t)(rest - r->map));
    XXH128_hash_t h = XXH3_128bits_digest(x);
    snprintf(out, SAFETENSORS_DIGITS + 1, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    XXH3_freeState(x);
    return KVF_OK;
}

/* Returns the digits of the checksum in the header; NULL if they are written in an unexpected
 * form. */
static const unsigned char *find_digits(const struct reader *r, const char *digits)
{
    char text[sizeof SAFETENSORS_CHECKSUM + SAFETENSORS_DIGITS + 8];
    size_t n = (size_t)snprintf(text, sizeof text, "\"" SAFETENSORS_CHECKSUM "\":\"%s\"", digits);
    for (size_t at = 8; at + n <= r->data; at++)
        if (memcmp(r->map + at, text, n) == 0)
            return r->map + at + n - 1 - SAFETENSORS_DIGITS;
    return NULL;
}

static int check_hash(const struct reader *r, struct kvf_diag *d)
{
    const char *digits = json_str(json_get(r->f.meta, SAFETENSORS_CHECKSUM), NULL);
    char found[SAFETENSORS_DIGITS + 1] = "";
    if (!digits)
        return KVF_OK;
    const unsigned char *at = strlen(digits) == SAFETENSORS_DIGITS ? find_digits(r, digits) : NULL;
    int err = at ? hash_file(r, at, found) : KVF_OK;
    if (!err && strcmp(found, digits) != 0)
        err = kvf_fail(
            d, KVF_E_FORMAT,
            "%s: the file is damaged (its checksum differs), or another program changed "
            "it; make it again, or, if it was changed on purpose, remove " SAFETENSORS_CHECKSUM
            " from its metadata",
            r->path);
    return err;
}

static int give(struct reader *r)
{
    r->f.tensor = MEM_NEW(struct tensor, r->n);
    if (!r->f.tensor)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < r->n; i++)
        r->f.tensor[i] = r->entry[i].t;
    r->f.n = r->n;
    return KVF_OK;
}

int safetensors_read(const char *path, const unsigned char *map, size_t size,
                     struct safetensors *ret, struct kvf_diag *d)
{
    struct reader r = {.path = path, .map = map, .size = size};
    int err = parse(&r, d);
    if (!err)
        err = check_hash(&r, d);
    if (!err)
        err = give(&r);
    mem_free(r.entry);
    if (err)
        safetensors_finish(&r.f);
    else
        *ret = r.f;
    return err;
}

void safetensors_finish(struct safetensors *f)
{
    mem_free(f->tensor);
    json_free(f->root);
}
