/* diff_header.h - JSON objects as lists of keys with values; private to diff. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

struct flat_pair {
    const char *key, *value; /* "method.budget", "64": the value as JSON */
    size_t key_at, value_at; /* in the text */
};

struct flat {
    struct buf text;        /* keys and values, each with a NUL */
    struct flat_pair *pair; /* by key */
    size_t n, cap;
};

/* Adds the scalar values of a JSON text, with `prefix` before their keys, and sorts.  Text that is
 * no JSON is one value.  KVF_OK, KVF_E_LIMIT, KVF_E_NOMEM. */
int flat_add(struct flat *f, const char *prefix, const char *text);
void flat_free(struct flat *f);
