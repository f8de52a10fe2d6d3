#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "engine/gate/torch_file.h"
#include "engine/gate/unpickle.h"
#include "engine/gate/zip_entries.h"

enum { MAX_PREFIX = 200, MAX_KEY = 32 };

struct storage {
    unsigned char *data; /* owned; NULL: not read yet */
    enum weight_type type;
    size_t n;
};

struct torch_data {
    char *names;             /* of all tensors, each with its NUL */
    struct storage *storage; /* [n_storages], by place among the entries */
    size_t n_storages;
    unsigned char **gathered; /* [n_gathered] copies of tensors that are not contiguous */
    size_t n_gathered;
};

/* Work of reading. */
struct reader {
    struct tensor_file *f;
    struct zip_entry *entry;
    size_t n_entries;
    char prefix[MAX_PREFIX]; /* NAME */
    size_t left;             /* bytes that entries may still have together */
    size_t gather_left;      /* and copies of tensors */
    struct kvf_diag *d;
};

static int open_zip(struct reader *r)
{
    const char *why = NULL;
    int err = zip_entries_read(r->f->map, r->f->size, &r->entry, &r->n_entries, &why);
    if (err == KVF_E_FORMAT)
        kvf_fail(r->d, err,
                 "%s: the zip archive of a torch file is damaged or cut off (%s); "
                 "fetch it again",
                 r->f->path, why);
    return err;
}

/* The entry's bytes, checksum verified; free with mem_free.  No entry is larger than
 * the file, nor are all together: stored entries do not share bytes. */
static int read_entry(struct reader *r, const struct zip_entry *e, unsigned char **ret,
                      size_t *ret_n)
{
    const char *path = r->f->path;
    int len = (int)e->name_n; /* of 16 bits */
    if (e->encrypted || e->method != 0)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: entry %.*s is %s, which torch does not "
                        "write; save the file again with torch",
                        path, len, e->name, e->encrypted ? "encrypted" : "compressed");
    if (e->n > r->left)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: entry %.*s is larger than the file has room for; "
                        "fetch it again",
                        path, len, e->name);
    unsigned char *p = mem_alloc_huge(e->n, 1);
    if (!p)
        return KVF_E_NOMEM;
    memcpy(p, e->data, e->n);
    if (crc32_z(0, p, e->n) != e->crc) {
        mem_free(p);
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: entry %.*s is damaged (its checksum is wrong "
                        "or it is cut off); fetch the file again",
                        path, len, e->name);
    }
    r->left -= e->n;
    *ret = p;
    *ret_n = e->n;
    return KVF_OK;
}

/* NAME/rest, NULL when there is none. */
static const struct zip_entry *locate(const struct reader *r, const char *rest)
{
    char name[MAX_PREFIX + MAX_KEY + 16];
    snprintf(name, sizeof name, "%s/%s", r->prefix, rest);
    return zip_entries_find(r->entry, r->n_entries, name);
}

/* NAME of the only NAME/data.pkl. */
static int find_prefix(struct reader *r, const struct zip_entry **ret)
{
    static const char pickle[] = "/data.pkl";
    const size_t end = sizeof pickle - 1;
    size_t found = 0;
    for (const struct zip_entry *e = r->entry; e < r->entry + r->n_entries; e++) {
        const char *slash = memchr(e->name, '/', e->name_n);
        size_t n = slash ? (size_t)(slash - e->name) : 0;
        if (n == 0 || n >= MAX_PREFIX || e->name_n - n != end || memcmp(slash, pickle, end) != 0)
            continue;
        snprintf(r->prefix, sizeof r->prefix, "%.*s", (int)n, e->name);
        *ret = e;
        found++;
    }
    if (found != 1)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: a zip archive with %s, so it is no torch file; "
                        "give what torch.save wrote",
                        r->f->path, found ? "more than one data.pkl" : "no data.pkl");
    return KVF_OK;
}

static int check_byteorder(struct reader *r)
{
    static const char little[] = "little";
    unsigned char *p;
    size_t n;
    const struct zip_entry *e = locate(r, "byteorder");
    if (!e)
        return KVF_OK; /* before torch 2.1 */
    int err = read_entry(r, e, &p, &n);
    if (err)
        return err;
    if (n != strlen(little) || memcmp(p, little, n) != 0)
        err = kvf_fail(r->d, KVF_E_FORMAT,
                       "%s: the byteorder is not little; save the file on a "
                       "little-endian machine",
                       r->f->path);
    mem_free(p);
    return err;
}

static int load_storage(struct reader *r, const struct pickled_tensor *t, const char *name,
                        const struct storage **ret)
{
    const struct pickled_text key = t->storage;
    char place[MAX_KEY + 8];
    bool good = key.n > 0 && key.n < MAX_KEY;
    for (size_t i = 0; good && i < key.n; i++)
        good = (key.at[i] >= '0' && key.at[i] <= '9') || (key.at[i] >= 'a' && key.at[i] <= 'z')
               || key.at[i] == '_';
    snprintf(place, sizeof place, "data/%.*s", good ? (int)key.n : 0, key.at);
    const struct zip_entry *e = good ? locate(r, place) : NULL;
    if (!e)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: the storage %s of tensor %s is not in the "
                        "archive; fetch it again",
                        r->f->path, place, name);
    struct storage *s = &r->f->torch->storage[e - r->entry];
    size_t bytes = 0;
    int err = s->data ? KVF_OK : read_entry(r, e, &s->data, &bytes);
    if (err)
        return err;
    if (bytes) {
        s->type = t->type;
        s->n = bytes / weight_bytes(t->type, 1);
    }
    if (s->type != t->type || (uint64_t)t->storage_n != s->n
        || (bytes && bytes % weight_bytes(t->type, 1)))
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: the storage %s of tensor %s has not the %lld "
                        "elements or the type that data.pkl states; fetch it again",
                        r->f->path, place, name, (long long)t->storage_n);
    *ret = s;
    return KVF_OK;
}

/* Sizes, and that every element lies in the storage.  More elements than it has
 * (an expanded tensor) could stand for any amount of memory. */
static int check_shape(const struct reader *r, const struct pickled_tensor *t, struct tensor *out)
{
    int64_t last = t->offset, n = 1, step;
    bool good = true, empty = false;
    for (int i = 0; i < TENSOR_DIMS; i++)
        out->dim[i] = i < t->n_dims ? (uint64_t)t->dim[i] : 1;
    for (int i = 0; i < t->n_dims; i++) {
        empty = empty || t->dim[i] < 1;
        good = good && !__builtin_mul_overflow(n, t->dim[i], &n)
               && !__builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &step)
               && !__builtin_add_overflow(last, step, &last);
    }
    if (empty)
        return kvf_fail(r->d, KVF_E_FORMAT, "%s: tensor %s has a size of 0; no gate has one",
                        r->f->path, out->name);
    if (!good || last >= t->storage_n || n > t->storage_n)
        return kvf_fail(r->d, KVF_E_FORMAT,
                        "%s: tensor %s does not lie within its storage of "
                        "%lld elements; it is damaged or expanded: save a contiguous copy",
                        r->f->path, out->name, (long long)t->storage_n);
    out->n_dims = t->n_dims;
    out->n = (uint64_t)n;
    return KVF_OK;
}

static bool contiguous(const struct pickled_tensor *t)
{
    int64_t want = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (t->dim[i] != 1 && t->stride[i] != want)
            return false;
        want *= t->dim[i];
    }
    return true;
}

/* Elements by stride, in row-major order. */
static int gather(struct reader *r, const struct pickled_tensor *t, const unsigned char *from,
                  struct tensor *out)
{
    struct torch_data *own = r->f->torch;
    size_t one = weight_bytes(t->type, 1), n = (size_t)out->n;
    int64_t at[PICKLED_DIMS] = {0};
    if (n * one > r->gather_left)
        return kvf_fail(r->d, KVF_E_LIMIT,
                        "%s: the tensors that are not contiguous are larger "
                        "than the file; save contiguous copies",
                        r->f->path);
    unsigned char *p = MEM_RAW(unsigned char, (n * one));
    if (!p)
        return KVF_E_NOMEM;
    r->gather_left -= n * one;
    own->gathered[own->n_gathered++] = p;
    for (size_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int k = 0; k < t->n_dims; k++)
            place += at[k] * t->stride[k];
        memcpy(p + i * one, from + (size_t)place * one, one);
        for (int k = t->n_dims - 1; k >= 0 && ++at[k] == t->dim[k]; k--)
            at[k] = 0;
    }
    out->data = p;
    return KVF_OK;
}

static int make_tensor(struct reader *r, const struct pickled_tensor *t, struct tensor *out)
{
    const struct storage *s = NULL;
    int err = check_shape(r, t, out);
    if (err)
        return err;
    err = load_storage(r, t, out->name, &s);
    if (err)
        return err;
    const unsigned char *from = s->data + (size_t)t->offset * weight_bytes(t->type, 1);
    out->type = t->type;
    out->data = from;
    return contiguous(t) ? KVF_OK : gather(r, t, from, out);
}

/* Names of parameters are identifiers with dots; anything else could only mislead
 * on a terminal. */
static int make_names(struct reader *r, const struct pickled_tensor *t, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bool good = t[i].name.n > 0 && t[i].name.n < TENSOR_NAME;
        for (size_t k = 0; good && k < t[i].name.n; k++)
            good = t[i].name.at[k] > 0x20 && t[i].name.at[k] < 0x7f;
        if (!good)
            return kvf_fail(r->d, KVF_E_FORMAT,
                            "%s: the name of tensor %zu is not 1 to %d "
                            "printable characters",
                            r->f->path, i, TENSOR_NAME - 1);
        bytes += t[i].name.n + 1;
    }
    char *at = r->f->torch->names = MEM_NEW(char, bytes);
    if (!at)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++, at++) {
        r->f->tensor[i].name = memcpy(at, t[i].name.at, t[i].name.n);
        at += t[i].name.n; /* zeroed memory: the NUL is there */
    }
    return KVF_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int sort_tensors(struct reader *r)
{
    struct tensor_file *f = r->f;
    qsort(f->tensor, f->n, sizeof *f->tensor, by_name);
    for (size_t i = 1; i < f->n; i++)
        if (strcmp(f->tensor[i - 1].name, f->tensor[i].name) == 0)
            return kvf_fail(r->d, KVF_E_FORMAT,
                            "%s: tensor %s is there twice; save the file "
                            "again",
                            f->path, f->tensor[i].name);
    return KVF_OK;
}

static int make_tensors(struct reader *r, const struct pickled_tensor *t, size_t n)
{
    struct torch_data *own = r->f->torch;
    own->n_storages = r->n_entries;
    own->storage = MEM_NEW(struct storage, own->n_storages);
    own->gathered = MEM_NEW(unsigned char *, n);
    r->f->tensor = MEM_NEW(struct tensor, n);
    if (!own->storage || !own->gathered || !r->f->tensor)
        return KVF_E_NOMEM;
    int err = make_names(r, t, n);
    if (err)
        return err;
    for (size_t i = 0; i < n; i++) {
        err = make_tensor(r, &t[i], &r->f->tensor[i]);
        if (err)
            return err;
    }
    r->f->n = n;
    return sort_tensors(r);
}

static int read_archive(struct reader *r)
{
    unsigned char *pickle = NULL;
    struct pickled_tensor *t = NULL;
    size_t bytes = 0, n = 0;
    const struct zip_entry *at = NULL;
    int err = find_prefix(r, &at);
    if (err)
        return err;
    err = check_byteorder(r);
    if (err)
        return err;
    err = read_entry(r, at, &pickle, &bytes);
    if (err)
        goto done;
    err = unpickle(r->f->path, pickle, bytes, &t, &n, r->d);
    if (err)
        goto done;
    err = make_tensors(r, t, n);

done:
    mem_free(t);
    mem_free(pickle);
    return err;
}

int torch_file_read(struct tensor_file *f, struct kvf_diag *d)
{
    struct reader r = {.f = f, .left = f->size, .gather_left = f->size, .d = d};
    f->torch = MEM_NEW(struct torch_data, 1);
    if (!f->torch)
        return KVF_E_NOMEM;
    int err = open_zip(&r);
    if (!err)
        err = read_archive(&r);
    mem_free(r.entry);
    return err;
}

void torch_data_free(struct torch_data *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_storages && t->storage; i++)
        mem_free(t->storage[i].data);
    for (size_t i = 0; i < t->n_gathered; i++)
        mem_free(t->gathered[i]);
    mem_free(t->storage);
    mem_free(t->gathered);
    mem_free(t->names);
    mem_free(t);
}
