/* json_tape.h - the one grammar of JSON, and a reader for large JSON that copies no text.
 *
 * The grammar is RFC 8259 in UTF-8, nested at most JSON_DEEPEST deep.  Both readers, json_tape_open
 * and json_parse (json.h), also reject half of a surrogate pair, a number that has more than
 * JSON_NUMBER characters or is not finite as a double, and a repeated key of an object.  They skip
 * a byte-order mark.
 *
 * A tokenizer.json has 10^5 to 10^6 values.  json_parse takes 2.5 times as long and four times
 * the memory (docs/reference/dependencies.md).  Here each value is an entry of an array that
 * points into the text.  A value is the number of its entry.  0 stands for no value, and every
 * function accepts it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json_entry;

struct json_tape {
    const char *text;         /* borrowed */
    size_t n_text;            /* its bytes */
    struct json_entry *entry; /* [n], the first is not used */
    uint32_t n, cap;
    bool has_nul; /* a text or key contains U+0000; the caller accepts or rejects it */
};

enum {
    JSON_MOST = 16 << 20,       /* bytes of a text that json_parse accepts */
    JSON_TAPE_MOST = 256 << 20, /* bytes of a text that json_tape_open accepts */
    JSON_DEEPEST = 64,          /* levels of arrays and objects */
    JSON_NUMBER = 63            /* characters of a number */
};

/* Returns whether the n bytes are one JSON value according to the grammar.  It allocates no memory.
 */
bool json_check(const char *text, size_t n);
/* Returns whether they are one JSON object. */
bool json_check_object(const char *text, size_t n);

/* Reads a text of at most `most` bytes, which is JSON_TAPE_MOST or less.  Entry 1 is the root.
 * KVF_OK; KVF_E_FORMAT or KVF_E_LIMIT with a sentence that names the byte; KVF_E_NOMEM. */
int json_tape_open(const char *text, size_t n, size_t most, struct json_tape *ret,
                   struct kvf_diag *d);
void json_tape_finish(struct json_tape *t); /* accepts a zeroed one */
/* KVF_E_FORMAT with a sentence if has_nul is set. */
int json_tape_reject_nul(const struct json_tape *t, struct kvf_diag *d);

/* Returns the first character of the value, one of { [ " t f n, or 0 for a number; '?' for none. */
char json_tape_kind(const struct json_tape *t, uint32_t v);
/* Returns the member of an object whose key is `key`, or 0. */
uint32_t json_tape_get(const struct json_tape *t, uint32_t object, const char *key);
uint32_t json_tape_count(const struct json_tape *t, uint32_t array_or_object);
uint32_t json_tape_first(const struct json_tape *t, uint32_t array_or_object);
uint32_t json_tape_next(const struct json_tape *t, uint32_t v);

/* Returns the bytes of a text, or of the key of a member.  A text without escapes is borrowed from
 * the JSON; another one is put into scratch and replaces its content.  NULL if v is not a text (not
 * a member), or memory is out. */
const char *json_tape_str(const struct json_tape *t, uint32_t v, struct buf *scratch,
                          size_t *ret_n);
const char *json_tape_key(const struct json_tape *t, uint32_t v, struct buf *scratch,
                          size_t *ret_n);
bool json_tape_is(const struct json_tape *t, uint32_t v, const char *text);
bool json_tape_bool(const struct json_tape *t, uint32_t v, bool otherwise);
/* Returns the characters of a number as the text has them; *ret_n is 0 for other values. */
const char *json_tape_number(const struct json_tape *t, uint32_t v, size_t *ret_n);
double json_tape_num(const struct json_tape *t, uint32_t v, double otherwise);
int64_t json_tape_int(const struct json_tape *t, uint32_t v, int64_t otherwise);
