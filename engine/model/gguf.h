/* gguf.h - reads a GGUF file, or a model split into several files, mapped read-only. Other model
 * formats are presented in the same form.
 *
 * A split model is opened by its first file, NAME-00001-of-0000N.gguf, which has the metadata. The
 * other files are found in the same folder by their names, and the tensors of all files form one
 * list.
 *
 * Supported are versions 2 and 3, little-endian. All strings, arrays and tensors are checked
 * against the size of the file when it is opened, so getters cannot fail later. All returned
 * pointers are borrowed until gguf_close().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct gguf;

/* A tensor of the model. */
struct gguf_tensor {
    const char *name;
    int n_dims;
    uint64_t dim[4]; /* dim[0] varies fastest; unused dimensions are 1 */
    unsigned type;   /* enum weight_type, or a type that the engine does not read */
    const void *data;
    size_t bytes; /* 0 if the type is not supported */
};

/* Opens a model file. Returns KVF_OK, KVF_E_IO, KVF_E_FORMAT, KVF_E_VERSION or KVF_E_NOMEM; d has
 * the reason. */
int gguf_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d);
void gguf_close(struct gguf *g); /* accepts NULL */

/* The parts of a model in another format, with the keys and names of GGUF. */
struct gguf_view {
    struct buf pairs; /* metadata in the form of a GGUF file (gguf_put.h) */
    uint64_t n_pairs;
    struct gguf_tensor *tensor; /* [n_tensors] from mem_alloc(), with names from mem_strdup() */
    size_t n_tensors;
    void *owner; /* owner of the tensors' data, and its functions */
    void (*close)(void *owner);
    void (*hash)(const void *owner, char out[33]);
};

/* Makes a model from a view, and takes ownership of the view, also on failure. Returns as
 * gguf_open() does. */
int gguf_from_view(const char *path, const struct gguf_view *view, struct gguf **ret_gguf,
                   struct kvf_diag *d);

/* Returns the path of the first file. */
const char *gguf_path(const struct gguf *g);

/* Kinds of values, independent of the GGUF type that stores them. */
enum gguf_kind {
    GGUF_WHOLE = 1 << 0, /* an integer, or a float with an integral value */
    GGUF_REAL = 1 << 1,  /* an integer or a float */
    GGUF_FLAG = 1 << 2,  /* a bool, or an integer that is 0 or 1 */
    GGUF_TEXT = 1 << 3,
    GGUF_WHOLES = 1 << 4, /* arrays of integers or bools */
    GGUF_REALS = 1 << 5,  /* arrays of F32 */
    GGUF_TEXTS = 1 << 6,  /* arrays of texts */
    GGUF_BYTES = 1 << 7   /* arrays of one-byte integers */
};
/* Returns true if the file has the key. */
bool gguf_has(const struct gguf *g, const char *key);
/* Returns true if a key is missing, or has a value of one of the kinds, so that a getter can read
 * it. */
bool gguf_holds(const struct gguf *g, const char *key, unsigned kinds);
/* The pairs of the file in their order: gguf_key_at() returns the i-th key (NULL beyond the last).
 * gguf_holds_at() returns true if its value has one of the kinds. gguf_repeats() returns true if
 * an earlier pair has the same key. */
const char *gguf_key_at(const struct gguf *g, size_t i);
bool gguf_holds_at(const struct gguf *g, size_t i, unsigned kinds);
bool gguf_repeats(const struct gguf *g, size_t i);

/* Return a scalar by key; `otherwise` if the key is missing or of another kind. */
int64_t gguf_int(const struct gguf *g, const char *key, int64_t otherwise);
double gguf_real(const struct gguf *g, const char *key, double otherwise);
bool gguf_bool(const struct gguf *g, const char *key, bool otherwise);
/* Returns a text that is not NUL-terminated; NULL if missing. */
const char *gguf_str(const struct gguf *g, const char *key, size_t *ret_len);

/* Copies the first cap elements of an array of F32. Returns its number of elements; -1 if it is
 * missing or has another type. */
int64_t gguf_array_strings(const struct gguf *g, const char *key);
int64_t gguf_array_ints(const struct gguf *g, const char *key);
/* Calls fn for all strings of an array in order. This is faster than a search for each element. */
void gguf_each_str(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, const char *s, size_t len), void *ctx);
/* Calls fn for all elements of an array of integers or bools; a bool is 0 or 1. */
void gguf_each_int(const struct gguf *g, const char *key,
                   void (*fn)(void *ctx, int64_t i, int64_t value), void *ctx);
/* Copies the first cap elements of an array of F32. Returns its number of elements, or -1 as
 * above. */
int64_t gguf_array_reals(const struct gguf *g, const char *key, float *out, int64_t cap);
/* Returns an array of signed or unsigned bytes; NULL if missing. */
const void *gguf_array_bytes(const struct gguf *g, const char *key, size_t *ret_n);

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* NULL if not found */
size_t gguf_n_tensors(const struct gguf *g);
/* Returns the i-th tensor by name, i < gguf_n_tensors(g). */
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);

/* Returns KVF_E_FORMAT with a sentence on why the data of a tensor with bytes == 0 cannot be
 * read. */
int gguf_refuse_type(const struct gguf *g, const struct gguf_tensor *t, struct kvf_diag *d);
/* Releases the memory of the mapped pages of a tensor, for example after it was packed. The pages
 * are read from the file again on access. */
void gguf_release(const struct gguf *g, const struct gguf_tensor *t);

/* Sets out to the XXH3-128 of the complete file in hex; for a split model, of all files in order;
 * for a folder, as hf_folder.h defines it. */
void gguf_hash(const struct gguf *g, char out[33]);
