/* gguf_get.c - reads values and tensors of an open GGUF file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "engine/kernels/packed.h"
#include "engine/model/gguf_file.h"

uint64_t gguf_load(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

size_t gguf_scalar_size(unsigned type)
{
    static const unsigned char size[GT_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < GT_COUNT ? size[type] : 0;
}

int gguf_by_name(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
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
    uint64_t v = gguf_load(p, gguf_scalar_size(type));
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

/* Reads a scalar of any numeric type. Returns false for other types. */
static bool real_of(const struct pair *p, double *ret)
{
    float single;
    int64_t whole;
    if (p->type == GT_F32) {
        memcpy(&single, p->value, sizeof single);
        *ret = (double)single;
    } else if (p->type == GT_F64) {
        memcpy(ret, p->value, sizeof *ret);
    } else if (int_at(p->type, p->value, &whole)) {
        *ret = (double)whole;
    } else {
        return false;
    }
    return true;
}

/* Reads a scalar integer, or a float with an integral value of less than 2^53. */
static bool whole_of(const struct pair *p, int64_t *ret)
{
    double v;
    if (int_at(p->type, p->value, ret))
        return true;
    if (!real_of(p, &v) || !(fabs(v) < 0x1p53) || v != floor(v))
        return false;
    *ret = (int64_t)v;
    return true;
}

/* Reads a bool, or an integer that is 0 or 1. */
static bool flag_of(const struct pair *p, bool *ret)
{
    int64_t v = 2;
    if (p->type == GT_BOOL)
        v = *p->value != 0;
    else if (!int_at(p->type, p->value, &v))
        return false;
    *ret = v != 0;
    return v == 0 || v == 1;
}

int64_t gguf_int(const struct gguf *g, const char *key, int64_t otherwise)
{
    const struct pair *p = find(g, key);
    int64_t v;
    return p && whole_of(p, &v) ? v : otherwise;
}

double gguf_real(const struct gguf *g, const char *key, double otherwise)
{
    const struct pair *p = find(g, key);
    double v;
    return p && real_of(p, &v) ? v : otherwise;
}

bool gguf_bool(const struct gguf *g, const char *key, bool otherwise)
{
    const struct pair *p = find(g, key);
    bool v;
    return p && flag_of(p, &v) ? v : otherwise;
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
    return p && gguf_scalar_size(p->element) && p->element != GT_F32 && p->element != GT_F64
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
        size_t len = gguf_load(at, 8);
        fn(ctx, (int64_t)i, (const char *)at + 8, len);
        at += 8 + len;
    }
}

void gguf_each_int(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, int64_t value), void *ctx)
{
    const struct pair *p = find_array(g, key);
    int64_t n = gguf_array_ints(g, key);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *at = p->value + (size_t)i * gguf_scalar_size(p->element);
        int64_t v = *at != 0;
        if (p->element != GT_BOOL)
            int_at(p->element, at, &v);
        fn(ctx, i, v);
    }
}

int64_t gguf_array_reals(const struct gguf *g, const char *key, float *out, int64_t cap)
{
    const struct pair *p = find_array(g, key);
    if (!p || p->element != GT_F32)
        return -1;
    for (uint64_t i = 0; i < p->n && i < (uint64_t)cap; i++) {
        uint32_t bits = (uint32_t)gguf_load(p->value + 4 * i, 4);
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

static bool is_list(const struct pair *p, unsigned kinds)
{
    bool text = p->element == GT_STRING, real = p->element == GT_F32;
    bool whole = gguf_scalar_size(p->element) && !real && p->element != GT_F64;
    bool bytes = p->element == GT_U8 || p->element == GT_I8;
    return (bytes && kinds & GGUF_BYTES) || (text && kinds & GGUF_TEXTS)
           || (real && kinds & GGUF_REALS) || (whole && kinds & GGUF_WHOLES);
}

static bool has_kind(const struct pair *p, unsigned kinds)
{
    int64_t whole;
    double real;
    bool flag;
    if (p->type == GT_ARRAY)
        return is_list(p, kinds);
    return (kinds & GGUF_TEXT && p->type == GT_STRING)
           || (kinds & GGUF_WHOLE && whole_of(p, &whole))
           || (kinds & GGUF_REAL && real_of(p, &real)) || (kinds & GGUF_FLAG && flag_of(p, &flag));
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

bool gguf_holds(const struct gguf *g, const char *key, unsigned kinds)
{
    const struct pair *p = find(g, key);
    return !p || has_kind(p, kinds);
}

bool gguf_holds_at(const struct gguf *g, size_t i, unsigned kinds)
{
    return has_kind(&g->pair[i], kinds);
}

const char *gguf_key_at(const struct gguf *g, size_t i)
{
    return i < g->n_pairs ? g->pair[i].key : NULL;
}

bool gguf_repeats(const struct gguf *g, size_t i)
{
    return find(g, g->pair[i].key) != &g->pair[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    struct gguf_tensor key = {.name = name};
    return bsearch(&key, g->tensor, g->n_tensors, sizeof key, gguf_by_name);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensor[i];
}

int gguf_refuse_type(const struct gguf *g, const struct gguf_tensor *t, struct kvf_diag *d)
{
    char read[256];
    int block = weight_block(t->type);
    weight_types_read(read, sizeof read);
    if (block && t->dim[0] % (uint64_t)block)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s is %llu wide, but the blocks of its type %s have %d values; "
                        "use a file with type Q8_0 or F16",
                        g->path, t->name, (unsigned long long)t->dim[0], weight_type_name(t->type),
                        block);
    return kvf_fail(d, KVF_E_FORMAT, "%s: tensor %s has type %s (%u); %s can be read", g->path,
                    t->name, weight_type_name(t->type), t->type, read);
}

/* Releases the complete pages within some mapped bytes. */
static void release(const void *p, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p, to = from + n;
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (to > from)
        /* only a hint: a failure has no other effect than memory use */
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static bool maps(const struct gguf *g, const void *p)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)g->map;
    return at >= from && at - from < g->size;
}

void gguf_release(const struct gguf *g, const struct gguf_tensor *t)
{
    bool mapped = maps(g, t->data); /* only file pages can be read again */
    for (int i = 0; i < g->n_parts && !mapped; i++)
        mapped = maps(g->part[i], t->data);
    if (mapped)
        release(t->data, t->bytes);
}

static void hash_file(const struct gguf *g, XXH3_state_t *state)
{
    enum { STEP = 16 << 20 };
    for (size_t at = 0, n; at < g->size; at += n) {
        n = g->size - at < STEP ? g->size - at : STEP;
        XXH3_128bits_update(state, g->map + at, n);
        release(g->map + at, n);
    }
}

void gguf_hash(const struct gguf *g, char out[33])
{
    if (g->view.hash) {
        g->view.hash(g->view.owner, out);
        return;
    }
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    hash_file(g, &state);
    for (int i = 0; i < g->n_parts; i++)
        hash_file(g->part[i], &state);
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
