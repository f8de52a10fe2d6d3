#include <criterion/criterion.h>
#include <string.h>

#include "base/json.h"
#include "base/json_check.h"
#include "base/json_tape.h"
#include "base/rng.h"

static const char sample[] = "{\"a\": [1, -2.5e3, \"x\\u00e9\\ud83d\\ude42\\n\", true, null, {}, "
                             "[]], \"b\\\"\": {\"c\": false},"
                             " \"n\": 9007199254740992, \"d\": {\"e\": {\"f\": [[[3]]]}}}";

/* The same value in both readers; walked with a stack of pairs. */
static void compare(const struct json_tape *t, const struct json *root)
{
    struct {
        uint32_t v;
        const struct json *x;
    } stack[256];
    struct buf scratch = {0};
    int n = 0;
    stack[n].v = 1;
    stack[n++].x = root;
    while (n > 0) {
        uint32_t v = stack[--n].v;
        const struct json *x = stack[n].x;
        size_t len = 0;
        const char *s = json_tape_str(t, v, &scratch, &len), *text = json_str(x, NULL);
        cr_assert((s != NULL) == (text != NULL));
        cr_assert(!s || (len == strlen(text) && memcmp(s, text, len) == 0));
        cr_assert(json_tape_num(t, v, 7) == json_num(x, 7));
        cr_assert(json_tape_int(t, v, 7) == json_int(x, 7));
        cr_assert(json_tape_bool(t, v, true) == json_bool(x, true));
        cr_assert((json_tape_kind(t, v) == '{') == json_is_object(x));
        cr_assert((int)json_tape_count(t, v) == json_len(x));
        s = json_tape_key(t, v, &scratch, &len);
        cr_assert((s != NULL) == (json_key(x) != NULL));
        cr_assert(!s || (len == strlen(json_key(x)) && memcmp(s, json_key(x), len) == 0));
        uint32_t w = json_tape_first(t, v);
        const struct json *y = json_first(x);
        for (; w && y && n < 256; w = json_tape_next(t, w), y = json_next(y)) {
            stack[n].v = w;
            stack[n++].x = y;
        }
        cr_assert(!w && !y);
    }
    buf_finish(&scratch);
}

Test(json_tape, reads_what_the_tree_has)
{
    struct json_tape t = {.n = 0};
    struct json *root = NULL;
    struct kvf_diag d = {""};
    cr_assert(json_tape_open(sample, strlen(sample), &t, &d) == KVF_OK, "%s", d.text);
    cr_assert(json_parse(sample, strlen(sample), &root, &d) == KVF_OK, "%s", d.text);
    compare(&t, root);
    cr_assert(json_tape_is(&t, json_tape_get(&t, 1, "a"), "a") == false);
    cr_assert(json_tape_get(&t, 1, "c") == 0 && json_tape_get(&t, 0, "c") == 0);
    cr_assert(json_tape_count(&t, json_tape_get(&t, 1, "a")) == 7);
    json_free(root);
    json_tape_finish(&t);
}

/* Texts that json_check takes, and no others: the sample with bytes exchanged, left out, doubled.
 */
Test(json_tape, is_as_strict_as_the_check)
{
    static const char signs[] = "{}[]\",:\\0123456789-+.eEtfnu \n\x01\xc3\xa9";
    struct rng r;
    int good = 0;
    rng_init(&r, 5);
    for (int i = 0; i < 20000; i++) {
        char text[sizeof sample + 1];
        size_t n = strlen(sample), at = rng_below(&r, n);
        memcpy(text, sample, n);
        if (i % 3 == 0) {
            text[at] = signs[rng_below(&r, sizeof signs - 1)];
        } else if (i % 3 == 1) {
            memmove(text + at, text + at + 1, n - at - 1);
            n--;
        } else {
            memmove(text + at + 1, text + at, n - at);
            n++;
        }
        struct json_tape t = {.n = 0};
        struct kvf_diag d = {""};
        int err = json_tape_open(text, n, &t, &d);
        cr_assert((err == KVF_OK) == json_check(text, n), "%.*s: %s", (int)n, text, d.text);
        cr_assert(err == KVF_OK || d.text[0]);
        good += err == KVF_OK;
        json_tape_finish(&t);
    }
    cr_assert(good > 1000 && good < 19000, "%d", good);
}

Test(json_tape, halves_of_characters_are_no_text)
{
    static const char text[] = "[\"\\ud83d\", \"\\ude42\", \"\\ud83d\\u0041\", \"\\ud83dx\"]";
    struct json_tape t = {.n = 0};
    struct buf scratch = {0};
    size_t n;
    cr_assert(json_tape_open(text, strlen(text), &t, NULL) == KVF_OK);
    for (uint32_t v = json_tape_first(&t, 1); v; v = json_tape_next(&t, v))
        cr_expect(json_tape_str(&t, v, &scratch, &n) == NULL);
    buf_finish(&scratch);
    json_tape_finish(&t);
}

Test(json_tape, compares_texts_with_escapes)
{
    static const char text[] =
        "{\"\\u0074ype\": \"\\u2581\", \"x\": \"a\\u0000\", \"y\": \"\\ud83d\"}";
    struct json_tape t = {.n = 0};
    cr_assert(json_tape_open(text, strlen(text), &t, NULL) == KVF_OK);
    uint32_t type = json_tape_get(&t, 1, "type"), x = json_tape_get(&t, 1, "x");
    cr_expect(type && json_tape_is(&t, type, "\xe2\x96\x81"));
    cr_expect(!json_tape_is(&t, type, "\xe2\x96") && !json_tape_is(&t, type, "\xe2\x96\x81 "));
    cr_expect(!json_tape_is(&t, x, "a") && !json_tape_is(&t, json_tape_get(&t, 1, "y"), ""));
    json_tape_finish(&t);
}

Test(json_tape, depth_is_limited)
{
    for (size_t deep = 63; deep < 67; deep++) {
        char text[200];
        struct json_tape t = {.n = 0};
        struct kvf_diag d = {""};
        memset(text, '[', deep);
        memset(text + deep, ']', deep);
        int err = json_tape_open(text, 2 * deep, &t, &d);
        cr_expect((err == KVF_OK) == json_check(text, 2 * deep), "%zu: %d", deep, err);
        json_tape_finish(&t);
    }
}
