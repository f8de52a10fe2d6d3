/* gguf.c - opens GGUF files and checks their structure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_bytes.h"
#include "base/mem.h"
#include "engine/kernels/packed.h"
#include "engine/model/gguf_file.h"

enum { MAX_KEYS = 65536, MAX_TENSORS = 65536, MAX_NAME = 256, MAX_ALIGN = 65536, MAX_PARTS = 9999 };

/* A position in the file. */
struct cursor {
    const unsigned char *p, *end;
    bool bad; /* sticky: a read exceeded the end */
};

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
    return p ? gguf_load(p, n) : 0;
}

static const char *take_str(struct cursor *c, uint64_t *len)
{
    *len = take_int(c, 8);
    return (const char *)take(c, *len);
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
        size_t size = gguf_scalar_size(p->element);
        if (size)
            take(c, p->n > UINT64_MAX / size ? UINT64_MAX : p->n * size);
        else if (p->element != GT_STRING)
            c->bad = true; /* arrays of arrays do not occur */
        for (uint64_t i = 0, len; !size && i < p->n && !c->bad; i++)
            take_str(c, &len);
    } else if (gguf_scalar_size(p->type)) {
        p->value = take(c, gguf_scalar_size(p->type));
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
    /* rows must be complete blocks, so the row length determines the size */
    size_t row = weight_bytes((enum weight_type)t->type, t->dim[0]);
    if (__builtin_mul_overflow(row, n / t->dim[0], &t->bytes))
        return KVF_E_FORMAT;
    t->name = c->bad ? NULL : copy_name(name, len);
    return t->name ? KVF_OK : KVF_E_FORMAT;
}

/* Reads the n entries of the list of tensors. offset [n] receives the start of the data of each. */
static int read_entries(struct gguf *g, struct cursor *c, uint64_t n, uint64_t *offset,
                        struct kvf_diag *d)
{
    for (; g->n_tensors < n; g->n_tensors++) {
        int err = read_tensor(c, &g->tensor[g->n_tensors], &offset[g->n_tensors]);
        if (err)
            return kvf_fail(
                d, err, "%s: the entry of tensor %zu is damaged or cut off; fetch the file again",
                g->path, g->n_tensors);
        g->n_own++;
    }
    return KVF_OK;
}

/* Sets the data pointers of tensors. Offsets are relative to the first aligned byte after the
 * list, where the cursor is. */
static int place_tensors(struct gguf *g, const struct cursor *c, const uint64_t *offset,
                         struct kvf_diag *d)
{
    int64_t align = gguf_int(g, "general.alignment", 32);
    if (!gguf_holds(g, "general.alignment", GGUF_WHOLE))
        align = 0;
    if (align < 1 || align > MAX_ALIGN || (align & (align - 1)))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: general.alignment (%lld) is not a power of two up to %d", g->path,
                        (long long)align, MAX_ALIGN);
    uint64_t base = ((uint64_t)(c->p - g->map) + (uint64_t)align - 1) & ~((uint64_t)align - 1);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        if (offset[i] % (uint64_t)align || base > g->size || offset[i] > g->size - base
            || t->bytes > g->size - base - offset[i])
            return kvf_fail(
                d, KVF_E_FORMAT,
                "%s: tensor %s is outside the file; the file is incomplete: fetch it again",
                g->path, t->name);
        t->data = g->map + base + offset[i];
    }
    return KVF_OK;
}

static int sort_tensors(struct gguf *g, struct kvf_diag *d)
{
    qsort(g->tensor, g->n_tensors, sizeof *g->tensor, gguf_by_name);
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
    if (!err)
        err = place_tensors(g, c, offset, d);
    if (!err)
        err = sort_tensors(g, d);
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
    int fd = file_regular(g->path, &g->size), err = KVF_OK;
    if (fd < 0 && errno)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the model: %s", g->path, strerror(errno));
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: not a regular file; give a .gguf file", g->path);
    void *p = g->size < 24 ? NULL : mmap(NULL, g->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!p)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: not a GGUF file: it has only %zu bytes", g->path,
                       g->size);
    else if (p == MAP_FAILED)
        err = kvf_fail(d, KVF_E_IO, "%s: cannot map the model: %s", g->path, strerror(errno));
    else
        g->map = p;
    close(fd);
    return err;
}

static int open_one(const char *path, struct gguf **ret_gguf, struct kvf_diag *d)
{
    struct gguf *g = MEM_NEW(struct gguf, 1);
    if (!g)
        return KVF_E_NOMEM;
    g->path = mem_strdup(path);
    int err = g->path ? map_file(g, d) : KVF_E_NOMEM;
    if (!err)
        err = parse(g, d);
    if (err)
        gguf_close(g);
    else
        *ret_gguf = g;
    return err;
}

/* Sets *ret_path to the path of part i of n, from the path of the first part, which ends in
 * -00001-of-0000N.gguf. */
static int part_path(const struct gguf *g, int i, int n, char **ret_path)
{
    char end[48];
    int len = snprintf(end, sizeof end, "-%05d-of-%05d.gguf", 1, n);
    size_t whole = strlen(g->path), tail = (size_t)len;
    if (whole < tail || strcmp(g->path + whole - tail, end) != 0)
        return KVF_E_FORMAT;
    char *path = mem_strdup(g->path);
    if (!path)
        return KVF_E_NOMEM;
    /* equal length, because n <= MAX_PARTS */
    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", i + 1, n);
    memcpy(path + whole - tail, end, tail);
    *ret_path = path;
    return KVF_OK;
}

static int open_part(struct gguf *g, int i, int n, struct kvf_diag *d)
{
    char *path = NULL;
    struct kvf_diag why = {""};
    int err = part_path(g, i, n, &path);
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err,
                        "%s: this is the first of %d files, but its name does not end in "
                        "-00001-of-%05d.gguf, which is needed to find the rest; rename it",
                        g->path, n, n);
    if (err)
        return err;
    err = open_one(path, &g->part[i - 1], &why);
    if (err == KVF_E_IO) {
        kvf_fail(d, err,
                 "%s: part %d of the %d files of this model cannot be opened; put all "
                 "parts into one folder",
                 path, i + 1, n);
    } else if (err) {
        if (d)
            *d = why;
    } else {
        g->n_parts = i;
        int64_t no = gguf_int(g->part[i - 1], "split.no", -1);
        int64_t count = gguf_int(g->part[i - 1], "split.count", -1);
        if (no != i || count != n)
            err = kvf_fail(d, KVF_E_FORMAT,
                           "%s: the file is part %lld of %lld, but its name gives part %d of %d; "
                           "fetch it again under its own name",
                           path, (long long)(no < INT64_MAX ? no + 1 : no), (long long)count, i + 1,
                           n);
    }
    mem_free(path);
    return err;
}

/* Joins the tensors of all parts to one list; the parts keep the names. */
static int join_tensors(struct gguf *g, struct kvf_diag *d)
{
    size_t n = g->n_tensors, at = 0;
    for (int i = 0; i < g->n_parts; i++)
        n += g->part[i]->n_tensors;
    int64_t stated = gguf_int(g, "split.tensors.count", (int64_t)n);
    if (stated != (int64_t)n)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: the %d files of this model have %zu tensors, %lld are announced; fetch them again",
            g->path, g->n_parts + 1, n, (long long)stated);
    struct gguf_tensor *all = MEM_NEW(struct gguf_tensor, n);
    if (!all)
        return KVF_E_NOMEM;
    for (int i = -1; i < g->n_parts; i++) {
        const struct gguf *from = i < 0 ? g : g->part[i];
        for (size_t t = 0; t < from->n_tensors; t++)
            all[at++] = from->tensor[t];
    }
    g->own = g->tensor;
    g->tensor = all;
    g->n_tensors = n;
    return sort_tensors(g, d);
}

static int open_parts(struct gguf *g, struct kvf_diag *d)
{
    int64_t n = gguf_int(g, "split.count", 1), no = gguf_int(g, "split.no", 0);
    static const char *const keys[] = {"split.count", "split.no", "split.tensors.count"};
    for (int i = 0; i < 3; i++)
        if (!gguf_holds(g, keys[i], GGUF_WHOLE))
            return kvf_fail(d, KVF_E_FORMAT, "%s: %s is no integer; fetch the file again", g->path,
                            keys[i]);
    if (n < 0 || n > MAX_PARTS)
        return kvf_fail(d, KVF_E_FORMAT, "%s: split.count is %lld, expected 1 to %d", g->path,
                        (long long)n, MAX_PARTS);
    if (n < 2)
        return KVF_OK;
    if (no != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: this is not the first of the %lld files of a model; give the file "
                        "that ends in -00001-of-%05lld.gguf",
                        g->path, (long long)n, (long long)n);
    g->part = MEM_NEW(struct gguf *, (size_t)n - 1);
    if (!g->part)
        return KVF_E_NOMEM;
    for (int i = 1; i < (int)n; i++) {
        int err = open_part(g, i, (int)n, d);
        if (err)
            return err;
    }
    return join_tensors(g, d);
}

int gguf_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d)
{
    struct gguf *g = NULL;
    int err = open_one(path, &g, d);
    if (err)
        return err;
    err = open_parts(g, d);
    if (err) {
        gguf_close(g);
        return err;
    }
    *ret_gguf = g;
    return KVF_OK;
}

static void finish(struct gguf *g)
{
    struct gguf_tensor *own = g->own ? g->own : g->tensor;
    for (size_t i = 0; i < g->n_pairs; i++)
        mem_free((char *)(uintptr_t)g->pair[i].key);
    for (size_t i = 0; i < g->n_own; i++)
        mem_free((char *)(uintptr_t)own[i].name);
    mem_free_all(g->pair, g->own, g->tensor);
    if (g->map)
        munmap(g->map, g->size);
    if (g->view.close)
        g->view.close(g->view.owner);
    buf_finish(&g->view.pairs);
    mem_free(g->path);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_parts; i++) { /* parts have no parts */
        finish(g->part[i]);
        mem_free(g->part[i]);
    }
    mem_free(g->part);
    finish(g);
    mem_free(g);
}

int gguf_from_view(const char *path, const struct gguf_view *view, struct gguf **ret_gguf,
                   struct kvf_diag *d)
{
    struct gguf *g = MEM_NEW(struct gguf, 1);
    struct cursor c = {.bad = false};
    int err = KVF_E_NOMEM;
    if (!g) {
        struct gguf all = {.tensor = view->tensor, .n_own = view->n_tensors, .view = *view};
        finish(&all);
        return err;
    }
    g->view = *view;
    g->tensor = view->tensor;
    g->n_tensors = g->n_own = view->n_tensors;
    g->path = mem_strdup(path);
    if (!g->path || view->pairs.err)
        goto fail;
    c.p = (const unsigned char *)view->pairs.data;
    c.end = c.p + view->pairs.len;
    err = read_pairs(g, &c, view->n_pairs, d);
    if (!err)
        err = g->n_tensors ? sort_tensors(g, d) : KVF_OK;
    if (err)
        goto fail;
    *ret_gguf = g;
    return KVF_OK;

fail:
    gguf_close(g);
    return err;
}
