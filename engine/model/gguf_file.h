/* gguf_file.h - private to engine/model: the structures of an open GGUF file. gguf.c opens it,
 * gguf_get.c reads values, and other files make a file or a model of this form. */
#pragma once

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

/* A key with its value. */
struct pair {
    const char *key; /* owned copy */
    unsigned type, element;
    const unsigned char *value; /* scalar bytes, text, or first element */
    uint64_t n;                 /* bytes of a text, or elements of an array */
};

/* An open model. */
struct gguf {
    char *path;
    unsigned char *map;
    size_t size;
    struct pair *pair;
    size_t n_pairs;
    struct gguf_tensor *tensor; /* sorted by name; of all parts */
    size_t n_tensors;
    struct gguf_tensor
        *own;     /* the tensors of this file if `tensor` has those of all parts, otherwise NULL */
    size_t n_own; /* number of tensors in this file; it owns their names */
    struct gguf **part; /* [n_parts] the other files of a split model, owned */
    int n_parts;
    /* zeroed for a GGUF file; owner of the metadata and the data of the tensors in other formats */
    struct gguf_view view;
};

/* Reads an unsigned little-endian number of n bytes. */
uint64_t gguf_load(const unsigned char *p, size_t n);
size_t gguf_scalar_size(unsigned type); /* of a value type; 0 for texts, arrays and unknown types */
/* compares tensors by name, for qsort() and bsearch() */
int gguf_by_name(const void *a, const void *b);
