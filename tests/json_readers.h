/* json_readers.h - compares the readers of JSON: json_check, json_tape_open and json_parse. */
#ifndef KVF_TESTS_JSON_READERS_H
#define KVF_TESTS_JSON_READERS_H

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_tape.h"
#include "tests/scoped.h"

/* Returns whether value v of the tape and node x of the tree are equal, without their members. */
static inline bool json_same_value(const struct json_tape *t, uint32_t v, const struct json *x,
                                   struct buf *scratch)
{
    size_t n = 0, m = 0;
    const char *s = json_tape_str(t, v, scratch, &n), *text = json_str(x, NULL);
    bool same = (s != NULL) == (text != NULL)
                && (!s || (n == strlen(text) && memcmp(s, text, n) == 0))
                && json_tape_num(t, v, 7) == json_num(x, 7)
                && json_tape_int(t, v, 7) == json_int(x, 7)
                && json_tape_bool(t, v, true) == json_bool(x, true)
                && json_tape_bool(t, v, false) == json_bool(x, false)
                && (json_tape_kind(t, v) == '{') == json_is_object(x)
                && (json_tape_kind(t, v) == '[') == json_is_array(x)
                && (json_tape_kind(t, v) == 'n') == json_is_null(x)
                && (int)json_tape_count(t, v) == json_len(x);
    const char *key = json_tape_key(t, v, scratch, &m), *name = json_key(x);
    return same && (key != NULL) == (name != NULL)
           && (!key || (m == strlen(name) && memcmp(key, name, m) == 0));
}

/* Returns whether the tape and the tree hold equal values. */
static inline bool json_same_tree(const struct json_tape *t, const struct json *root)
{
    struct {
        uint32_t v;
        const struct json *x;
    } stack[JSON_DEEPEST + 1] = {{1, root}};
    SCOPED(buf_finish) struct buf scratch = {0};
    bool same = true;
    for (int n = 1; same && n > 0;) {
        uint32_t v = stack[n - 1].v;
        const struct json *x = stack[n - 1].x;
        same = (v != 0) == (x != NULL);
        if (!v || !x) {
            n--;
            continue;
        }
        same = json_same_value(t, v, x, &scratch);
        stack[n - 1].v = v == 1 ? 0 : json_tape_next(t, v);
        stack[n - 1].x = v == 1 ? NULL : json_next(x);
        if (json_tape_first(t, v) || json_first(x)) {
            stack[n].v = json_tape_first(t, v);
            stack[n++].x = json_first(x);
        }
    }
    return same;
}

/* Returns whether the readers agree about a text of at most JSON_MOST bytes.  A text that is read
 * is JSON by the check, except for a byte-order mark, which is skipped; the tree accepts it unless
 * it contains U+0000; the values are equal.  A text that is rejected has a sentence.  *ret_read:
 * the tape has read it. */
static inline bool json_readers_agree(const char *text, size_t n, bool *ret_read)
{
    SCOPED(json_tape_finish) struct json_tape t = {.n = 0};
    OWNED(json_free) struct json *root = NULL;
    struct kvf_diag d = {""}, d2 = {""};
    size_t mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    int err = json_tape_open(text, n, JSON_MOST, &t, &d), err2 = json_parse(text, n, &root, &d2);
    bool nul = !err && t.has_nul;
    bool agree = (err == KVF_OK || d.text[0]) && (err2 == KVF_OK || d2.text[0])
                 && (err2 == KVF_OK) == (err == KVF_OK && !nul)
                 && (err == KVF_OK || (err == err2 && strcmp(d.text, d2.text) == 0))
                 && (err != KVF_OK || json_check(text + mark, n - mark))
                 && (err2 != KVF_OK || json_same_tree(&t, root));
    *ret_read = err == KVF_OK;
    return agree;
}

#endif
