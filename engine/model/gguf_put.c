#include "engine/model/gguf_put.h"

#include <string.h>

enum { GT_U8 = 0, GT_I32 = 5, GT_F32 = 6, GT_BOOL = 7, GT_STRING = 8, GT_ARRAY = 9, GT_I64 = 11 };

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
