/* gguf_file.h - what an opened GGUF file is; private to the room: gguf.c opens it,
 * gguf_get.c answers questions about it, others make a file or a model like it. */
#ifndef KVF_ENGINE_GGUF_FILE_H
#define KVF_ENGINE_GGUF_FILE_H

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
    struct gguf_tensor *tensor; /* sorted by name; with those of the other parts */
    size_t n_tensors;
    struct gguf_tensor
        *own;           /* the tensors of this file where `tensor` has those of all, else NULL */
    size_t n_own;       /* tensors of this file, whose names it owns */
    struct gguf **part; /* [n_parts] the other files of a split model, owned */
    int n_parts;
    struct gguf_view view; /* not a file: what owns the metadata and the tensors' data */
};

/* An unsigned number of n bytes, little-endian. */
uint64_t gguf_load(const unsigned char *p, size_t n);
size_t gguf_scalar_size(unsigned type);         /* of a value type; 0: text, arrays, unknown ones */
int gguf_by_name(const void *a, const void *b); /* orders tensors; for qsort and bsearch */

#endif
