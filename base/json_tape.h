/* json_tape.h - large JSON, read in place.
 *
 * The files of tokenizers have some 10^6 values, which a tree of allocations makes slow.  Here the
 * text is checked once, as strictly as json_check does, and each value becomes an entry of an array
 * that points into it.  A value is the number of its entry; 0 stands for none, and every function
 * takes it. */
#ifndef KVF_BASE_JSON_TAPE_H
#define KVF_BASE_JSON_TAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json_entry;

struct json_tape {
    const char *text;         /* borrowed */
    size_t n_text;            /* its bytes */
    struct json_entry *entry; /* [n], the first is not used */
    uint32_t n, cap;
};

enum { JSON_TAPE_MOST = 256 << 20 }; /* bytes of a text */

/* Entry 1 is the root.  KVF_OK, KVF_E_FORMAT or KVF_E_LIMIT (a text over JSON_TAPE_MOST, nested
 * deeper than 64) with a sentence that says where, KVF_E_NOMEM. */
int json_tape_open(const char *text, size_t n, struct json_tape *ret, struct kvf_diag *d);
void json_tape_finish(struct json_tape *t); /* accepts a zeroed one */

/* What the value is, by its first sign: one of { [ " t f n, or 0 for a number; '?' for none. */
char json_tape_kind(const struct json_tape *t, uint32_t v);
/* The member of an object whose key is the text `key`, of those with an equal key the first. */
uint32_t json_tape_get(const struct json_tape *t, uint32_t object, const char *key);
uint32_t json_tape_count(const struct json_tape *t, uint32_t array_or_object);
uint32_t json_tape_first(const struct json_tape *t, uint32_t array_or_object);
uint32_t json_tape_next(const struct json_tape *t, uint32_t v);

/* The bytes of a text, or of the key of a member.  Texts without escapes are borrowed from the
 * JSON, others are put into scratch, whose earlier content goes.  NULL when it is no text (no
 * member), or holds an escape of half a character. */
const char *json_tape_str(const struct json_tape *t, uint32_t v, struct buf *scratch,
                          size_t *ret_n);
const char *json_tape_key(const struct json_tape *t, uint32_t v, struct buf *scratch,
                          size_t *ret_n);
bool json_tape_is(const struct json_tape *t, uint32_t v, const char *text);
bool json_tape_bool(const struct json_tape *t, uint32_t v, bool otherwise);
/* The characters of a number as the text has them; n 0 for other values. */
const char *json_tape_number(const struct json_tape *t, uint32_t v, size_t *ret_n);
double json_tape_num(const struct json_tape *t, uint32_t v, double otherwise);
int64_t json_tape_int(const struct json_tape *t, uint32_t v, int64_t otherwise);

#endif
