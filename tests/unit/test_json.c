/* test_json.c - tests which JSON the readers (base/json.h, base/json_tape.h) accept and reject, and
 * their values. */
#include "../json_readers.h"
#include "tests/suite.h"

/* Texts that RFC 8259 accepts, and texts that it does not. */
static const char *const good[] = {"{}",
                                   "[]",
                                   "0",
                                   "-0",
                                   "10.5e-3",
                                   "1E5",
                                   "\"\"",
                                   " [ 1 , {\"a\" : null} ]\t\r\n",
                                   "true",
                                   "{\"a\":{\"b\":[[],{}]},\"c\":false}",
                                   "\"\\u12aF\\\"\\\\\\n\"",
                                   "\"\x7f\xc3\xa9\""};
static const char *const bad[] = {
    "",         " ",        "{",        "}",           "[1,]",    "{\"a\":1,}", "{,}",
    "[,]",      "{\"a\"}",  "{\"a\":}", "{1:2}",       "01",      "1.",         ".5",
    "+1",       "-",        "1e",       "1e+",         "tru",     "truex",      "nan",
    "NaN",      "\"",       "\"\\\"",   "\"\\u12g4\"", "\"\\x\"", "\"a\nb\"",   "\"\t\"",
    "\"\x01\"", "\"\xff\"", "{}{}",     "[1 2]",       "[}",      "{]",         "[1]]",
    "'a'",      "\v1",      "/*c*/1"};

Test(json, accepts_and_rejects_as_the_standard_does)
{
    bool read;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_expect(json_check(good[i], strlen(good[i])), "%s", good[i]);
        cr_expect(json_readers_agree(good[i], strlen(good[i]), &read) && read, "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect(not(json_check(bad[i], strlen(bad[i]))), "%s", bad[i]);
        cr_expect(json_readers_agree(bad[i], strlen(bad[i]), &read) && !read, "%s", bad[i]);
    }
    cr_expect(not(json_check("1\0", 2)), "a zero byte");
    cr_expect(not(json_check("12", 0)), "no byte is read behind the end");
    cr_expect(json_check("1x", 1) && json_check("[]x", 2) && json_check("\"\"\"", 2));
    cr_expect(json_check_object(" {\"a\":1} ", 9) && !json_check_object("[1]", 3)
              && !json_check_object("{", 1) && !json_check_object("", 0));
}

/* The readers reject some values that the grammar allows; a sentence names the byte. */
Test(json, names_what_it_rejects)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"[1, 2, x]", "not valid JSON near byte 7"},
        {"[1] 2", "after the JSON value at byte 4"},
        {"[\"\xc3\"]", "UTF-8 text at byte 2"},
        {"[1, 1e999]", "number at byte 4"},
        {"[-1E+309]", "number at byte 1"},
        {"[1234567890123456789012345678901234567890123456789012345678901234]", "number at byte 1"},
        {"[0, \"a\\ud83d\"]", "half of a character (a lone surrogate) at byte 6"},
        {"[\"\\ude42\"]", "half of a character (a lone surrogate) at byte 2"},
        {"[\"\\ud83d\\u0041\"]", "half of a character (a lone surrogate) at byte 2"},
        {"[\"\\ud83d\\ud83d\\ude42\"]", "half of a character (a lone surrogate) at byte 2"},
        {"{\"a\":1,\"a\":2}", "repeats the key \"a\" at byte 7"},
        {"{\"b\":{\"a\":1,\"c\":1,\"\\u0061\":2}}", "key \"\\u0061\" at byte 18"},
        {"{\"\\ud83d\\ude42\":1,\"\xf0\x9f\x99\x82\":2}", "at byte 18"},
    };
    struct json *root = NULL;
    bool read;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kvf_diag d = {""};
        size_t n = strlen(bad[i].text);
        cr_expect(eq(int, json_parse(bad[i].text, n, &root, &d), KVF_E_FORMAT));
        cr_expect(strstr(d.text, bad[i].says) != NULL, "%s: %s", bad[i].text, d.text);
        cr_expect(json_readers_agree(bad[i].text, n, &read) && !read, "%s", bad[i].text);
    }
    static const char *const fine[] = {
        "[1e308, -1e-999, 123456789012345678901234567890123456789012345678901234567890123]",
        "{\"a\":{\"a\":{\"b\":1}},\"b\":1,\"A\":2,\"\":3,\"ab\":4}",
        "\xef\xbb\xbf{\"a\":\"\\ud83d\\ude42\"}"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        cr_expect(json_readers_agree(fine[i], strlen(fine[i]), &read) && read, "%s", fine[i]);
}

/* U+0000 would end a C string: the tree rejects it, and the tape keeps it. */
Test(json, a_tape_alone_keeps_nul)
{
    static const char text[] = "{\"\\u0074ype\": \"\\u2581\", \"x\": \"a\\u0000\"}";
    SCOPED(json_tape_finish) struct json_tape t = {.n = 0};
    OWNED(json_free) struct json *root = NULL;
    SCOPED(buf_finish) struct buf scratch = {0};
    struct kvf_diag d = {""};
    size_t n = 0;
    cr_assert(json_tape_open(text, strlen(text), JSON_MOST, &t, NULL) == KVF_OK);
    uint32_t type = json_tape_get(&t, 1, "type"), x = json_tape_get(&t, 1, "x");
    cr_expect(type && json_tape_is(&t, type, "\xe2\x96\x81"));
    cr_expect(json_tape_is(&t, type, "\xe2\x96") == false
              && !json_tape_is(&t, type, "\xe2\x96\x81 "));
    cr_expect(json_tape_is(&t, x, "a") == false && json_tape_get(&t, 1, "c") == 0);
    const char *s = json_tape_str(&t, x, &scratch, &n);
    cr_expect(n == 2 && memcmp(s, "a\0", 2) == 0);
    cr_expect(eq(int, json_tape_reject_nul(&t, &d), KVF_E_FORMAT));
    cr_expect(eq(int, json_parse(text, strlen(text), &root, &d), KVF_E_FORMAT));
    cr_expect(strstr(d.text, "NUL") != NULL);
    cr_expect(eq(int, json_parse("\"\\\\u0000\"", 9, &root, &d), KVF_OK), "a backslash, u0000");
}

/* Replaces, removes or doubles bytes of a sample. */
Test(json, readers_agree_on_damaged_texts)
{
    static const char sample[] =
        "{\"a\": [1, -2.5e3, \"x\\u00e9\\ud83d\\ude42\\n\", true, null, {}, "
        "[]], \"b\\\"\": {\"c\": false},"
        " \"n\": 9007199254740992, \"d\": {\"e\": {\"f\": [[[3]]]}}}";
    static const char signs[] = "{}[]\",:\\0123456789-+.eEtfnuad \n\x01\xc3\xa9";
    int good = 0;
    struct rng r = rng_seeded(5);
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
        bool read;
        cr_assert(json_readers_agree(text, n, &read), "%.*s", (int)n, text);
        good += read;
    }
    cr_assert(good > 1000 && good < 19000, "%d", good);
}

/* Keys are numbers, spelled plainly or with escapes.  A second object among the members has its own
 * keys. */
Test(json, finds_every_key_that_repeats)
{
    int repeats = 0;
    struct rng r = rng_seeded(7);
    for (int i = 0; i < 3000; i++) {
        SCOPED(buf_finish) struct buf b = {0};
        uint64_t key[64], n = 1 + rng_below(&r, 64), at[64];
        size_t first = 0;
        buf_str(&b, "{\"o\":{\"1\":1}");
        for (uint64_t k = 0; k < n; k++) {
            char digits[24];
            key[k] = rng_below(&r, 8 * n * n);
            at[k] = b.len + 1;
            snprintf(digits, sizeof digits, "%llu", (unsigned long long)key[k]);
            buf_str(&b, ",\"");
            for (const char *c = digits; *c; c++)
                buf_printf(&b, rng_below(&r, 3) ? "%c" : "\\u%04x", *c);
            buf_str(&b, "\":0");
            for (uint64_t j = 0; j < k; j++)
                if (!first && key[j] == key[k])
                    first = at[k];
        }
        buf_char(&b, '}');
        OWNED(json_free) struct json *root = NULL;
        struct kvf_diag d = {""};
        char says[40];
        snprintf(says, sizeof says, "at byte %zu", first);
        int err = json_parse(b.data, b.len, &root, &d);
        cr_assert(eq(int, err, first ? KVF_E_FORMAT : KVF_OK), "%s: %s", b.data, d.text);
        cr_assert(first == 0 || strcmp(d.text + strlen(d.text) - strlen(says), says) == 0, "%s: %s",
                  d.text, says);
        repeats += first > 0;
    }
    cr_assert(repeats > 100 && repeats < 2900, "%d", repeats);
}

Test(json, depth_is_limited)
{
    for (size_t deep = 63; deep < 67; deep++) {
        char text[200];
        bool read;
        memset(text, '[', deep);
        memset(text + deep, ']', deep);
        cr_expect(json_readers_agree(text, 2 * deep, &read) && read == (deep <= 64), "%zu", deep);
        cr_expect(eq(int, json_check(text, 2 * deep), deep <= 64), "%zu", deep);
    }
}

/* A quote after a backslash does not end its text, so brackets after it are not counted. */
Test(json, depth_is_counted_after_escaped_quotes)
{
    static const struct {
        const char *before;
        int deep, err;
    } cases[] = {{"{\"a\":\"\\\"\",\"b\":", 90, KVF_E_LIMIT}, /* a: one quote */
                 {"{\"a\":\"\\\\\",\"b\":", 90, KVF_E_LIMIT}, /* a: one backslash */
                 {"{\"a\":\"\\\"[[[[\",\"b\":", 63, KVF_OK},
                 {"{\"a\":\"\\\"[[[[\",\"b\":", 64, KVF_E_LIMIT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        OWNED(json_free) struct json *j = NULL;
        struct kvf_diag d = {""};
        size_t at = strlen(cases[i].before), deep = (size_t)cases[i].deep;
        memcpy(text, cases[i].before, at);
        memset(text + at, '[', deep);
        memset(text + at + deep, ']', deep);
        text[at + 2 * deep] = '}';
        cr_expect(eq(int, json_parse(text, at + 2 * deep + 1, &j, &d), cases[i].err), "%zu: %s", i,
                  d.text);
    }
}

Test(json, numbers_read_back_equal)
{
    static const double v[] = {0, 1, -1.5, 0.1, 1e300, 5e-324, 3.0000000000000004};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        SCOPED(buf_finish) struct buf b = {0};
        json_put_num(&b, v[i]);
        cr_expect(eq(dbl, strtod(b.data, NULL), v[i]));
    }
}
