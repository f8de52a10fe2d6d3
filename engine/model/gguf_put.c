/* gguf_put.c - writes metadata in the form of a GGUF file. */
#include "engine/model/gguf_put.h"

#include <string.h>

#include "engine/model/gguf_file.h"

static void put_key(struct gguf_put *m, const char *key, uint32_t type)
{
    gguf_put_text(m, key, strlen(key));
    buf_le32(&m->pairs, type);
    m->n++;
}

static void put_array(struct gguf_put *m, const char *key, uint32_t element, uint64_t n)
{
    put_key(m, key, GT_ARRAY);
    buf_le32(&m->pairs, element);
    buf_le64(&m->pairs, n);
}

void gguf_put_int(struct gguf_put *m, const char *key, int64_t v)
{
    put_key(m, key, GT_I64);
    buf_le64(&m->pairs, (uint64_t)v);
}

void gguf_put_real(struct gguf_put *m, const char *key, double v)
{
    float single = (float)v;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    put_key(m, key, GT_F32);
    buf_le32(&m->pairs, bits);
}

void gguf_put_bool(struct gguf_put *m, const char *key, bool v)
{
    put_key(m, key, GT_BOOL);
    buf_char(&m->pairs, (char)v);
}

void gguf_put_text(struct gguf_put *m, const char *s, size_t n)
{
    buf_le64(&m->pairs, n);
    buf_add(&m->pairs, s, n);
}

void gguf_put_str(struct gguf_put *m, const char *key, const char *s, size_t n)
{
    put_key(m, key, GT_STRING);
    gguf_put_text(m, s, n);
}

void gguf_put_strings(struct gguf_put *m, const char *key, uint64_t n)
{
    put_array(m, key, GT_STRING, n);
}

void gguf_put_ints(struct gguf_put *m, const char *key, uint64_t n)
{
    put_array(m, key, GT_I32, n);
}

void gguf_put_reals(struct gguf_put *m, const char *key, uint64_t n)
{
    put_array(m, key, GT_F32, n);
}

void gguf_put_bytes(struct gguf_put *m, const char *key, const void *p, uint64_t n)
{
    put_array(m, key, GT_U8, n);
    buf_add(&m->pairs, p, n);
}

void gguf_put_bools(struct gguf_put *m, const char *key, const bool *v, uint64_t n)
{
    put_array(m, key, GT_BOOL, n);
    for (uint64_t i = 0; i < n; i++)
        buf_char(&m->pairs, (char)v[i]);
}

/* Returns the end of an array's elements. */
static const unsigned char *array_end(const struct pair *p)
{
    const unsigned char *at = p->value;
    if (p->element != GT_STRING)
        return at + p->n * gguf_scalar_size(p->element);
    for (uint64_t i = 0; i < p->n; i++)
        at += 8 + gguf_load(at, 8);
    return at;
}

void gguf_put_pair(struct gguf_put *m, const struct pair *p)
{
    gguf_put_text(m, p->key, strlen(p->key));
    buf_le32(&m->pairs, p->type);
    m->n++;
    if (p->type == GT_STRING) {
        gguf_put_text(m, (const char *)p->value, p->n);
    } else if (p->type == GT_ARRAY) {
        buf_le32(&m->pairs, p->element);
        buf_le64(&m->pairs, p->n);
        buf_add(&m->pairs, p->value, (size_t)(array_end(p) - p->value));
    } else {
        buf_add(&m->pairs, p->value, gguf_scalar_size(p->type));
    }
}
