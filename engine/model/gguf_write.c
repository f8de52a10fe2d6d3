/* gguf_write.c - writes a copy of a GGUF file with some tensors changed. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/replace.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_put.h"
#include "engine/model/gguf_write.h"
#include "engine/model/quantise.h"

enum { ALIGNMENT = 32 };

/* A file that is being written. */
struct job {
    const struct gguf *g;
    struct gguf_change *change;
    struct gguf_put meta;
    struct replace r;
    float *values; /* [elements of the largest changed tensor] */
    void *bytes;   /* these values in their stored form */
    float *row;    /* [longest row] a row decoded from its stored form */
};

static size_t elements(const struct gguf_tensor *t)
{
    return (size_t)(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
}

static bool changes(const struct job *j, const struct gguf_tensor *t)
{
    return j->change->fill(j->change->ctx, t, NULL);
}

static enum weight_type stored_type(const struct job *j, const struct gguf_tensor *t)
{
    if (!changes(j, t))
        return (enum weight_type)t->type;
    if (t->n_dims < 2)
        return WEIGHT_F32;
    enum weight_type type = j->change->type;
    if (type == WEIGHT_Q4_K && !weight_bytes(type, (size_t)t->dim[0]))
        type = WEIGHT_Q4_1;
    return weight_bytes(type, (size_t)t->dim[0]) ? type : WEIGHT_F16;
}

static size_t stored_bytes(const struct job *j, const struct gguf_tensor *t)
{
    return changes(j, t) ? weight_bytes(stored_type(j, t), elements(t)) : t->bytes;
}

/* Returns false for keys that describe how the file was split or stored, and for the key of the
 * change. */
static bool keeps(const struct job *j, const char *key)
{
    return strncmp(key, "split.", 6) != 0 && strcmp(key, "general.file_type") != 0
           && strcmp(key, "general.alignment") != 0
           && !(j->change->key && strcmp(key, j->change->key) == 0);
}

static void put_tensor(struct job *j, const struct gguf_tensor *t, uint64_t at)
{
    struct buf *b = &j->meta.pairs;
    gguf_put_text(&j->meta, t->name, strlen(t->name));
    buf_le32(b, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++)
        buf_le64(b, t->dim[i]);
    buf_le32(b, stored_type(j, t));
    buf_le64(b, at);
}

static size_t padding(size_t n)
{
    return (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT;
}

/* Makes the part of the file before the data. *ret_most: elements of the largest changed tensor;
 * *ret_widest: length of its longest row. */
static int make_header(struct job *j, size_t *ret_most, size_t *ret_widest, struct kvf_diag *d)
{
    uint64_t at = 0;
    for (size_t i = 0; i < j->g->n_pairs; i++)
        if (keeps(j, j->g->pair[i].key))
            gguf_put_pair(&j->meta, &j->g->pair[i]);
    if (j->change->key)
        gguf_put_str(&j->meta, j->change->key, j->change->note, strlen(j->change->note));
    for (size_t i = 0; i < j->g->n_tensors; i++) {
        const struct gguf_tensor *t = &j->g->tensor[i];
        size_t n = stored_bytes(j, t);
        if (n == 0)
            return gguf_refuse_type(j->g, t, d);
        if (changes(j, t) && elements(t) > *ret_most)
            *ret_most = elements(t);
        if (changes(j, t) && t->dim[0] > *ret_widest)
            *ret_widest = (size_t)t->dim[0];
        put_tensor(j, t, at);
        at += n + padding(n);
    }
    return j->meta.pairs.err;
}

static void pad(struct job *j, size_t n)
{
    static const unsigned char zeros[ALIGNMENT];
    replace_write(&j->r, zeros, padding(n));
}

/* Adds up the squared errors of the stored values of a matrix, row by row. */
static void measure(struct job *j, const struct gguf_tensor *t, enum weight_type type)
{
    size_t K = (size_t)t->dim[0], bytes = weight_bytes(type, K);
    for (size_t at = 0; t->n_dims > 1 && at < elements(t); at += K) {
        weight_dequant(j->row, (const char *)j->bytes + at / K * bytes, type, K);
        for (size_t k = 0; k < K; k++) {
            double x = (double)j->values[at + k], off = (double)j->row[k] - x;
            j->change->square += x * x;
            j->change->off += off * off;
        }
    }
}

/* Stores the values of a changed tensor in j->bytes. Returns KVF_E_LIMIT with a sentence if its
 * type cannot represent a value. */
static int quantise(struct job *j, const struct gguf_tensor *t, struct kvf_diag *d)
{
    enum weight_type type = stored_type(j, t);
    j->change->fill(j->change->ctx, t, j->values);
    for (size_t i = 0; i < elements(t); i++)
        if (!(fabsf(j->values[i]) <= (type == WEIGHT_F32 ? 3.4e38f : 65504.0f)))
            return kvf_fail(d, KVF_E_LIMIT, "tensor %s has the value %g, which %s cannot represent",
                            t->name, (double)j->values[i], weight_type_name(type));
    weight_quantise(j->bytes, j->values, type, elements(t));
    measure(j, t, type);
    return KVF_OK;
}

static int write_tensors(struct job *j, struct kvf_diag *d)
{
    for (size_t i = 0; i < j->g->n_tensors; i++) {
        const struct gguf_tensor *t = &j->g->tensor[i];
        size_t n = stored_bytes(j, t);
        bool new = changes(j, t);
        int err = new ? quantise(j, t, d) : KVF_OK;
        if (err)
            return err;
        replace_write(&j->r, new ? j->bytes : t->data, n);
        pad(j, n);
    }
    return KVF_OK;
}

static int write_file(struct job *j, struct kvf_diag *d)
{
    struct buf start = {0};
    buf_str(&start, "GGUF");
    buf_le32(&start, 3);
    buf_le64(&start, j->g->n_tensors);
    buf_le64(&start, j->meta.n);
    replace_write(&j->r, start.data, start.len);
    replace_write(&j->r, j->meta.pairs.data, j->meta.pairs.len);
    pad(j, start.len + j->meta.pairs.len);
    int err = start.err ? start.err : write_tensors(j, d);
    buf_finish(&start);
    return err;
}

int gguf_write(const char *path, const struct gguf *g, struct gguf_change *change,
               struct kvf_diag *d)
{
    struct job j = {.g = g, .change = change, .r = REPLACE_CLOSED};
    size_t most = 0, widest = 0;
    change->square = change->off = 0;
    int err = make_header(&j, &most, &widest, d);
    j.values = MEM_NEW(float, most);
    j.bytes = mem_alloc(most, sizeof(float));
    j.row = MEM_NEW(float, widest);
    if (!err && most && (!j.values || !j.bytes || !j.row))
        err = KVF_E_NOMEM;
    if (!err)
        err = replace_open(&j.r, path, d);
    if (!err)
        err = write_file(&j, d);
    if (err)
        replace_abandon(&j.r);
    else
        err = replace_finish(&j.r, d);
    buf_finish(&j.meta.pairs);
    mem_free_all(j.values, j.bytes, j.row);
    return err == KVF_E_NOMEM ? kvf_fail(d, err, "%s: not enough memory to write it", path) : err;
}
