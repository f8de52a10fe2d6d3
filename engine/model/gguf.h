/* gguf.h - a GGUF file, or a model split into several, mapped read-only, or what looks like one.
 *
 * A split model is opened by its first file, NAME-00001-of-0000N.gguf, which has the metadata;
 * the others are found beside it by their names, and their tensors appear with those of the first.
 *
 * Versions 2 and 3, little-endian.  All strings, arrays and tensors are checked
 * against the size of the file when it is opened; getters cannot fail later.
 * Everything returned is borrowed until gguf_close. */
#ifndef KVF_ENGINE_GGUF_H
#define KVF_ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct gguf;

struct gguf_tensor {
    const char *name;
    int n_dims;
    uint64_t dim[4]; /* dim[0] is the fastest; unused ones are 1 */
    unsigned type;   /* enum weight_type, or one the engine does not read */
    const void *data;
    size_t bytes; /* 0 when the type is not supported */
};

/* KVF_OK, KVF_E_IO (d has the reason), KVF_E_FORMAT, KVF_E_VERSION, KVF_E_NOMEM. */
int gguf_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d);
void gguf_close(struct gguf *g); /* accepts NULL */

/* The parts of a model that lies in other files, under GGUF's keys and names. */
struct gguf_view {
    struct buf pairs; /* metadata as it stands in a GGUF file: gguf_put.h */
    uint64_t n_pairs;
    struct gguf_tensor *tensor; /* [n_tensors] of mem_alloc, names of mem_strdup */
    size_t n_tensors;
    void *owner; /* of the tensors' data */
    void (*close)(void *owner);
    void (*hash)(const void *owner, char out[33]);
};

/* Takes all of the view, also when it fails.  Codes as gguf_open. */
int gguf_from_view(const char *path, const struct gguf_view *view, struct gguf **ret_gguf,
                   struct kvf_diag *d);

const char *gguf_path(const struct gguf *g);

/* Kinds of values, whatever type of GGUF holds them. */
enum gguf_kind {
    GGUF_WHOLE = 1 << 0, /* an integer, or a float with an integral value */
    GGUF_REAL = 1 << 1,  /* an integer or a float */
    GGUF_FLAG = 1 << 2,  /* a bool, or an integer that is 0 or 1 */
    GGUF_TEXT = 1 << 3,
    GGUF_WHOLES = 1 << 4, /* arrays: of integers or bools, */
    GGUF_REALS = 1 << 5,  /* of F32, */
    GGUF_TEXTS = 1 << 6,  /* of texts, */
    GGUF_BYTES = 1 << 7   /* of integers of one byte */
};
bool gguf_has(const struct gguf *g, const char *key);
/* Returns whether a key is missing or has a value of one of the kinds, which a getter reads. */
bool gguf_holds(const struct gguf *g, const char *key, unsigned kinds);
/* Pairs of the file in their order: the i-th key (NULL behind the last), whether its value has one
 * of the kinds, and whether an earlier pair has the same key. */
const char *gguf_key_at(const struct gguf *g, size_t i);
bool gguf_holds_at(const struct gguf *g, size_t i, unsigned kinds);
bool gguf_repeats(const struct gguf *g, size_t i);

/* Scalars by key; `otherwise` when the key is missing or of another kind. */
int64_t gguf_int(const struct gguf *g, const char *key, int64_t otherwise);
double gguf_real(const struct gguf *g, const char *key, double otherwise);
bool gguf_bool(const struct gguf *g, const char *key, bool otherwise);
/* Not NUL-terminated; NULL when missing. */
const char *gguf_str(const struct gguf *g, const char *key, size_t *ret_len);

/* Arrays: elements, or -1 when missing or of another element kind. */
int64_t gguf_array_strings(const struct gguf *g, const char *key);
int64_t gguf_array_ints(const struct gguf *g, const char *key);
/* Walks all strings of an array in order, which is faster than asking for each. */
void gguf_each_str(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, const char *s, size_t len), void *ctx);
/* The same of an array of integers; of bools: 0 or 1. */
void gguf_each_int(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, int64_t value), void *ctx);
/* Copies the first cap elements of an array of F32; returns how many it has. */
int64_t gguf_array_reals(const struct gguf *g, const char *key, float *out, int64_t cap);
/* An array of bytes, signed or not; NULL when missing. */
const void *gguf_array_bytes(const struct gguf *g, const char *key, size_t *ret_n);

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* or NULL */
size_t gguf_n_tensors(const struct gguf *g);
/* i < gguf_n_tensors(g), by rising names. */
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);

/* Says in d why the data of a tensor with bytes == 0 cannot be read; KVF_E_FORMAT. */
int gguf_refuse_type(const struct gguf *g, const struct gguf_tensor *t, struct kvf_diag *d);
/* Gives back the memory that the pages of a tensor take, as after it was packed; they are read from
 * the file again if they are touched. */
void gguf_release(const struct gguf *g, const struct gguf_tensor *t);

/* XXH3-128 of the whole file in hex; of all files of a split model, one behind the
 * other; of a folder as hf_folder.h says. */
void gguf_hash(const struct gguf *g, char out[33]);

#endif
