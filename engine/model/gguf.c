#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "engine/kernels/packed.h"
#include "engine/model/gguf.h"

enum { /* value types of the metadata */
       GT_U8,
       GT_I8,
       GT_U16,
       GT_I16,
       GT_U32,
       GT_I32,
       GT_F32,
       GT_BOOL,
       GT_STRING,
       GT_ARRAY,
       GT_U64,
       GT_I64,
       GT_F64,
       GT_COUNT
};
enum { MAX_KEYS = 65536, MAX_TENSORS = 65536, MAX_NAME = 256, MAX_ALIGN = 65536 };

struct pair {
    const char *key; /* owned copy */
    unsigned type, element;
    const unsigned char *value; /* scalar bytes, text, or first element */
    uint64_t n;                 /* bytes of text, or elements of an array */
};

struct gguf {
    char *path;
    unsigned char *map;
    size_t size;
    struct pair *pair;
    size_t n_pairs;
    struct gguf_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    struct gguf_view view; /* not a file: what owns the metadata and the tensors' data */
};

struct cursor {
    const unsigned char *p, *end;
    bool bad; /* sticky: ran over the end */
};

static uint64_t load(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static const unsigned char *take(struct cursor *c, uint64_t n)
{
    if (c->bad || n > (uint64_t)(c->end - c->p)) {
        c->bad = true;
        return NULL;
    }
    const unsigned char *p = c->p;
    c->p += n;
    return p;
}

static uint64_t take_int(struct cursor *c, size_t n)
{
    const unsigned char *p = take(c, n);
    return p ? load(p, n) : 0;
}

static const char *take_str(struct cursor *c, uint64_t *len)
{
    *len = take_int(c, 8);
    return (const char *)take(c, *len);
}

static size_t scalar_size(unsigned type)
{
    static const unsigned char size[GT_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < GT_COUNT ? size[type] : 0;
}

static char *copy_name(const char *s, uint64_t len)
{
    if (!s || len == 0 || len >= MAX_NAME || memchr(s, 0, len))
        return NULL;
    char *p = mem_alloc(len + 1, 1);
    return p ? memcpy(p, s, len) : NULL;
}

static void read_value(struct cursor *c, struct pair *p)
{
    if (p->type == GT_STRING) {
        p->value = (const unsigned char *)take_str(c, &p->n);
    } else if (p->type == GT_ARRAY) {
        p->element = (unsigned)take_int(c, 4);
        p->n = take_int(c, 8);
        p->value = c->p;
        size_t size = scalar_size(p->element);
        if (size)
            take(c, p->n > UINT64_MAX / size ? UINT64_MAX : p->n * size);
        else if (p->element != GT_STRING)
            c->bad = true; /* arrays of arrays do not occur */
        for (uint64_t i = 0, len; !size && i < p->n && !c->bad; i++)
            take_str(c, &len);
    } else if (scalar_size(p->type)) {
        p->value = take(c, scalar_size(p->type));
    } else {
        c->bad = true;
    }
}

static int read_pairs(struct gguf *g, struct cursor *c, uint64_t n, struct kvf_diag *d)
{
    if (n > MAX_KEYS)
        return kvf_fail(d, KVF_E_LIMIT, "%s: %llu metadata keys are over the limit", g->path,
                        (unsigned long long)n);
    g->pair = MEM_NEW(struct pair, n);
    if (!g->pair)
        return KVF_E_NOMEM;
    for (uint64_t i = 0; i < n; i++) {
        struct pair *p = &g->pair[i];
        uint64_t len;
        const char *key = take_str(c, &len);
        p->type = (unsigned)take_int(c, 4);
        if (!c->bad)
            read_value(c, p);
        if (!c->bad)
            p->key = copy_name(key, len);
        if (!p->key)
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: metadata entry %llu is damaged or cut off; fetch "
                            "the file again",
                            g->path, (unsigned long long)i);
        g->n_pairs++;
    }
    return KVF_OK;
}

static int read_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset)
{
    uint64_t len, n = 1;
    const char *name = take_str(c, &len);
    uint64_t dims = take_int(c, 4);
    if (c->bad || dims < 1 || dims > 4)
        return KVF_E_FORMAT;
    t->n_dims = (int)dims;
    for (int i = 0; i < 4; i++) {
        t->dim[i] = i < t->n_dims ? take_int(c, 8) : 1;
        if (t->dim[i] == 0 || __builtin_mul_overflow(n, t->dim[i], &n) || n > (uint64_t)1 << 40)
            return KVF_E_FORMAT;
    }
    t->type = (unsigned)take_int(c, 4);
    *offset = take_int(c, 8);
    /* rows must be whole blocks, so the row length decides */
    size_t row = weight_bytes((enum weight_type)t->type, t->dim[0]);
    if (__builtin_mul_overflow(row, n / t->dim[0], &t->bytes))
        return KVF_E_FORMAT;
    t->name = c->bad ? NULL : copy_name(name, len);
    return t->name ? KVF_OK : KVF_E_FORMAT;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

/* The n entries of the list of tensors; offset: [n], where the data of each begin. */
static int read_entries(struct gguf *g, struct cursor *c, uint64_t n, uint64_t *offset,
                        struct kvf_diag *d)
{
    for (; g->n_tensors < n; g->n_tensors++) {
        int err = read_tensor(c, &g->tensor[g->n_tensors], &offset[g->n_tensors]);
        if (err)
            return kvf_fail(
                d, err, "%s: the entry of tensor %zu is damaged or cut off; fetch the file again",
                g->path, g->n_tensors);
    }
    return KVF_OK;
}

/* Offsets count from the first aligned byte after the list, where the cursor is. */
static int place_tensors(struct gguf *g, const struct cursor *c, const uint64_t *offset,
                         struct kvf_diag *d)
{
    int64_t align = gguf_int(g, "general.alignment", 32);
    if (align < 1 || align > MAX_ALIGN || (align & (align - 1)))
        return kvf_fail(d, KVF_E_FORMAT, "%s: alignment %lld is not a power of two up to %d",
                        g->path, (long long)align, MAX_ALIGN);
    uint64_t base = ((uint64_t)(c->p - g->map) + (uint64_t)align - 1) & ~((uint64_t)align - 1);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        if (offset[i] % (uint64_t)align || base > g->size || offset[i] > g->size - base
            || t->bytes > g->size - base - offset[i])
            return kvf_fail(d, KVF_E_FORMAT,
                            "%s: tensor %s lies outside the file; it is cut off: fetch it again",
                            g->path, t->name);
        t->data = g->map + base + offset[i];
    }
    return KVF_OK;
}

static int sort_tensors(struct gguf *g, struct kvf_diag *d)
{
    qsort(g->tensor, g->n_tensors, sizeof *g->tensor, by_name);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (strcmp(g->tensor[i - 1].name, g->tensor[i].name) == 0)
            return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s occurs twice", g->path,
                            g->tensor[i].name);
    return KVF_OK;
}

static int read_tensors(struct gguf *g, struct cursor *c, uint64_t n, struct kvf_diag *d)
{
    if (n > MAX_TENSORS)
        return kvf_fail(d, KVF_E_LIMIT, "%s: %llu tensors are over the limit", g->path,
                        (unsigned long long)n);
    g->tensor = MEM_NEW(struct gguf_tensor, n);
    uint64_t *offset = MEM_NEW(uint64_t, n);
    int err = g->tensor && offset ? read_entries(g, c, n, offset, d) : KVF_E_NOMEM;
    if (err)
        goto done;
    err = place_tensors(g, c, offset, d);
    if (err)
        goto done;
    err = sort_tensors(g, d);

done:
    mem_free(offset);
    return err;
}

static int parse(struct gguf *g, struct kvf_diag *d)
{
    struct cursor c = {g->map, g->map + g->size, false};
    const unsigned char *magic = take(&c, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s: not a GGUF file", g->path);
    uint64_t version = take_int(&c, 4), n_tensors = take_int(&c, 8), n_pairs = take_int(&c, 8);
    if (c.bad)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the GGUF header is cut off; fetch the file again",
                        g->path);
    if (version != 2 && version != 3)
        return kvf_fail(d, KVF_E_VERSION,
                        "%s: GGUF version %llu%s; versions 2 and 3, little-endian, can be read",
                        g->path, (unsigned long long)version,
                        version & 0xffffff ? "" : " (a big-endian file?)");
    int err = read_pairs(g, &c, n_pairs, d);
    return err ? err : read_tensors(g, &c, n_tensors, d);
}

static int map_file(struct gguf *g, struct kvf_diag *d)
{
    struct stat st;
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the model: %s", g->path, strerror(errno));
    int err = KVF_OK;
    if (fstat(fd, &st) != 0) {
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read the model: %s", g->path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        err = kvf_fail(d, KVF_E_IO, "%s: not a regular file; give a .gguf file", g->path);
        goto done;
    }
    if (st.st_size < 24) {
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a GGUF file: it has only %lld bytes", g->path,
                       (long long)st.st_size);
        goto done;
    }
    g->size = (size_t)st.st_size;
    void *p = mmap(NULL, g->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        err = kvf_fail(d, KVF_E_IO, "%s: cannot map the model: %s", g->path, strerror(errno));
    else
        g->map = p;

done:
    close(fd);
    return err;
}

static void finish(struct gguf *g)
{
    for (size_t i = 0; i < g->n_pairs; i++)
        mem_free((char *)(uintptr_t)g->pair[i].key);
    for (size_t i = 0; i < g->n_tensors; i++)
        mem_free((char *)(uintptr_t)g->tensor[i].name);
    mem_free(g->pair);
    mem_free(g->tensor);
    if (g->map)
        munmap(g->map, g->size);
    if (g->view.close)
        g->view.close(g->view.owner);
    buf_finish(&g->view.pairs);
    mem_free(g->path);
}

int gguf_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d)
{
    struct gguf *g = MEM_NEW(struct gguf, 1);
    if (!g)
        return KVF_E_NOMEM;
    g->path = mem_strdup(path);
    int err = g->path ? map_file(g, d) : KVF_E_NOMEM;
    if (err)
        goto fail;
    err = parse(g, d);
    if (err)
        goto fail;
    *ret_gguf = g;
    return KVF_OK;

fail:
    gguf_close(g);
    return err;
}

int gguf_from_view(const char *path, const struct gguf_view *view, struct gguf **ret_gguf,
                   struct kvf_diag *d)
{
    struct gguf *g = MEM_NEW(struct gguf, 1);
    struct cursor c = {.bad = false};
    int err = KVF_E_NOMEM;
    if (!g) {
        struct gguf all = {.tensor = view->tensor, .n_tensors = view->n_tensors, .view = *view};
        finish(&all);
        return err;
    }
    g->view = *view;
    g->tensor = view->tensor;
    g->n_tensors = view->n_tensors;
    g->path = mem_strdup(path);
    if (!g->path || view->pairs.err)
        goto fail;
    c.p = (const unsigned char *)view->pairs.data;
    c.end = c.p + view->pairs.len;
    err = read_pairs(g, &c, view->n_pairs, d);
    if (err)
        goto fail;
    err = g->n_tensors ? sort_tensors(g, d) : KVF_OK;
    if (err)
        goto fail;
    *ret_gguf = g;
    return KVF_OK;

fail:
    gguf_close(g);
    return err;
}

void gguf_close(struct gguf *g)
{
    if (g)
        finish(g);
    mem_free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

static const struct pair *find(const struct gguf *g, const char *key)
{
    for (size_t i = 0; i < g->n_pairs; i++)
        if (strcmp(g->pair[i].key, key) == 0)
            return &g->pair[i];
    return NULL;
}

static bool int_at(unsigned type, const unsigned char *p, int64_t *ret)
{
    uint64_t v = load(p, scalar_size(type));
    switch (type) {
    case GT_U8:
    case GT_U16:
    case GT_U32:
        *ret = (int64_t)v;
        return true;
    case GT_I8:
        *ret = (int8_t)v;
        return true;
    case GT_I16:
        *ret = (int16_t)v;
        return true;
    case GT_I32:
        *ret = (int32_t)v;
        return true;
    case GT_I64:
        *ret = (int64_t)v;
        return true;
    case GT_U64:
        *ret = (int64_t)v;
        return v <= INT64_MAX;
    default:
        return false;
    }
}

int64_t gguf_int(const struct gguf *g, const char *key, int64_t otherwise)
{
    const struct pair *p = find(g, key);
    int64_t v;
    return p && int_at(p->type, p->value, &v) ? v : otherwise;
}

double gguf_real(const struct gguf *g, const char *key, double otherwise)
{
    const struct pair *p = find(g, key);
    float single;
    double v = otherwise;
    if (p && p->type == GT_F32) {
        memcpy(&single, p->value, sizeof single);
        v = (double)single;
    } else if (p && p->type == GT_F64) {
        memcpy(&v, p->value, sizeof v);
    }
    return v;
}

bool gguf_bool(const struct gguf *g, const char *key, bool otherwise)
{
    const struct pair *p = find(g, key);
    return p && p->type == GT_BOOL ? *p->value != 0 : otherwise;
}

const char *gguf_str(const struct gguf *g, const char *key, size_t *ret_len)
{
    const struct pair *p = find(g, key);
    if (!p || p->type != GT_STRING)
        return NULL;
    *ret_len = p->n;
    return (const char *)p->value;
}

static const struct pair *find_array(const struct gguf *g, const char *key)
{
    const struct pair *p = find(g, key);
    return p && p->type == GT_ARRAY ? p : NULL;
}

int64_t gguf_array_strings(const struct gguf *g, const char *key)
{
    const struct pair *p = find_array(g, key);
    return p && p->element == GT_STRING ? (int64_t)p->n : -1;
}

int64_t gguf_array_ints(const struct gguf *g, const char *key)
{
    const struct pair *p = find_array(g, key);
    return p && scalar_size(p->element) && p->element != GT_F32 && p->element != GT_F64
               ? (int64_t)p->n
               : -1;
}

void gguf_each_str(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, const char *s, size_t len), void *ctx)
{
    const struct pair *p = find_array(g, key);
    if (!p || p->element != GT_STRING)
        return;
    const unsigned char *at = p->value; /* bounds were checked by read_value */
    for (uint64_t i = 0; i < p->n; i++) {
        size_t len = load(at, 8);
        fn(ctx, (int64_t)i, (const char *)at + 8, len);
        at += 8 + len;
    }
}

int64_t gguf_array_int(const struct gguf *g, const char *key, int64_t i)
{
    const struct pair *p = find_array(g, key);
    int64_t v = 0;
    int_at(p->element, p->value + (size_t)i * scalar_size(p->element), &v);
    return v;
}

int64_t gguf_array_reals(const struct gguf *g, const char *key, float *out, int64_t cap)
{
    const struct pair *p = find_array(g, key);
    if (!p || p->element != GT_F32)
        return -1;
    for (uint64_t i = 0; i < p->n && i < (uint64_t)cap; i++) {
        uint32_t bits = (uint32_t)load(p->value + 4 * i, 4);
        memcpy(&out[i], &bits, sizeof bits);
    }
    return (int64_t)p->n;
}

const void *gguf_array_bytes(const struct gguf *g, const char *key, size_t *ret_n)
{
    const struct pair *p = find_array(g, key);
    if (!p || (p->element != GT_U8 && p->element != GT_I8))
        return NULL;
    *ret_n = p->n;
    return p->value;
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    struct gguf_tensor key = {.name = name};
    return bsearch(&key, g->tensor, g->n_tensors, sizeof key, by_name);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

void gguf_hash(const struct gguf *g, char out[33])
{
    if (g->view.hash) {
        g->view.hash(g->view.owner, out);
        return;
    }
    XXH128_hash_t h = XXH3_128bits(g->map, g->size);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
