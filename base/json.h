/* json.h - reads JSON as a tree and writes JSON; only json.c includes cJSON.
 *
 * Reading: json_parse gives a tree that the caller owns; nodes are borrowed from it.  The input has
 * at most JSON_MOST bytes.  It must be JSON as json_tape.h defines it, and no text contains U+0000.
 * Writing: straight into a struct buf. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json; /* a node */

/* Returns KVF_OK, KVF_E_FORMAT with a sentence that names the byte, KVF_E_LIMIT or KVF_E_NOMEM. */
int json_parse(const char *text, size_t len, struct json **ret_root, struct kvf_diag *d);
void json_free(struct json *root); /* the root only; accepts NULL */

/* Each function accepts NULL and nodes of another type, and then returns the default. */
const struct json *json_get(const struct json *object, const char *key); /* NULL: none */
const struct json *json_at(const struct json *array, int i);             /* NULL: none */
int json_len(const struct json *array_or_object);
const char *json_key(const struct json *node);                     /* name in its object, or NULL */
const struct json *json_first(const struct json *array_or_object); /* walk: first, next */
const struct json *json_next(const struct json *node);
const char *json_str(const struct json *node, const char *otherwise);
double json_num(const struct json *node, double otherwise);
int64_t json_int(const struct json *node, int64_t otherwise); /* otherwise unless integral */
bool json_bool(const struct json *node, bool otherwise);
bool json_is_object(const struct json *node);
bool json_is_array(const struct json *node);
bool json_is_null(const struct json *node);

/* Writes a text with quotes and escapes; bytes that are not UTF-8 become U+FFFD. */
void json_put_str(struct buf *b, const char *s, size_t n);
/* Copies valid JSON and writes control characters of its texts as \u00NN. */
void json_put_text(struct buf *b, const char *json);
/* Writes the shortest form that reads back equal; NaN and infinities become null. */
void json_put_num(struct buf *b, double v);
/* Writes a node and its members. */
void json_put_node(struct buf *b, const struct json *node);
/* Writes the key of the next member, after a comma if b does not end in '{' or '['. */
void json_put_key(struct buf *b, const char *key);
/* Writes a key and its value. */
void json_put_member_num(struct buf *b, const char *key, double v);
void json_put_member_str(struct buf *b, const char *key, const char *s);
