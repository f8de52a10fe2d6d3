/* test_text.c - bytes and text: UTF-8 compared with the standard's table, buffers, JSON,
 * integers. */
#include "base/json.h"
#include "base/utf8.h"
#include "base/whole.h"
#include "tests/suite.h"

/* Table 3-7 of the Unicode Standard: well-formed sequences, byte ranges. */
static const unsigned char well_formed[][9] = {
    /* length, then minimum and maximum of each byte */
    {1, 0x00, 0x7f},
    {2, 0xc2, 0xdf, 0x80, 0xbf},
    {3, 0xe0, 0xe0, 0xa0, 0xbf, 0x80, 0xbf},
    {3, 0xe1, 0xec, 0x80, 0xbf, 0x80, 0xbf},
    {3, 0xed, 0xed, 0x80, 0x9f, 0x80, 0xbf},
    {3, 0xee, 0xef, 0x80, 0xbf, 0x80, 0xbf},
    {4, 0xf0, 0xf0, 0x90, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
    {4, 0xf1, 0xf3, 0x80, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
    {4, 0xf4, 0xf4, 0x80, 0x8f, 0x80, 0xbf, 0x80, 0xbf},
};

static size_t length_by_table(const unsigned char *s, size_t n)
{
    for (size_t k = 0; k < sizeof well_formed / sizeof *well_formed; k++) {
        const unsigned char *w = well_formed[k];
        size_t i = 0;
        while (i < w[0] && i < n && s[i] >= w[1 + 2 * i] && s[i] <= w[2 + 2 * i])
            i++;
        if (i == w[0])
            return i;
    }
    return 0;
}

Test(utf8, every_start_agrees_with_the_standard)
{
    unsigned char s[4];
    uint32_t cp;
    for (uint32_t v = 0; v < 1u << 24; v++) { /* three bytes; the fourth has three values */
        static const unsigned char last[] = {0x80, 0xbf, 0x41};
        s[0] = (unsigned char)(v >> 16);
        s[1] = (unsigned char)(v >> 8);
        s[2] = (unsigned char)v;
        s[3] = last[v % 3];
        if (s[0] < 0xc0 && (v & 0xffff))
            continue; /* the first byte decides */
        for (size_t n = 0; n <= 4; n++)
            if (utf8_decode((char *)s, n, &cp) != length_by_table(s, n))
                cr_assert(false, "%02x %02x %02x %02x, %zu bytes", s[0], s[1], s[2], s[3], n);
    }
}

Test(utf8, every_code_point_round_trips)
{
    for (uint32_t v = 0; v <= 0x10ffff; v++) {
        char s[4];
        uint32_t cp = ~v;
        if (v >= 0xd800 && v < 0xe000)
            continue;
        size_t n = utf8_encode(v, s);
        if (utf8_decode(s, n, &cp) != n || cp != v || !utf8_valid(s, n))
            cr_assert(false, "U+%04X", v);
    }
}

Test(utf8, shown_text_is_readable)
{
    SCOPED(buf_finish) struct buf b = {0};
    utf8_show(&b, "a\n\t\x01\x7f\xff\xc3\xa9", 8);
    cr_expect(eq(str, b.data, "a\xe2\x86\xb5\xe2\x86\x92\\x01\\x7F\\xFF\xc3\xa9"));
}

/* U+0080 to U+009F are also controls: on some terminals the byte 9B begins an escape sequence. */
Test(utf8, nothing_shown_steers_a_terminal)
{
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char in[4], out[UTF8_SHOWN];
        size_t n = utf8_encode(cp, in), used = 0, put = utf8_shown(in, n, out, &used);
        bool control = cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
        bool surrogate = cp >= 0xd800 && cp < 0xe000;
        cr_assert(put <= UTF8_SHOWN && utf8_valid(out, put));
        cr_assert(control || surrogate ? *out == '\\' || *out == '\xe2'
                                       : put == n && used == n && memcmp(in, out, n) == 0,
                  "U+%04X", cp);
    }
    struct kvf_diag d = {""};
    cr_expect(kvf_fail(&d, KVF_E_FORMAT, "a\x1b[2J\n%s", "\xc2\x9b") == KVF_E_FORMAT);
    cr_expect(eq(str, d.text, "a\\x1B[2J\xe2\x86\xb5\\xC2\\x9B"));
    kvf_diag_prefix(&d, "\x07");
    cr_expect(eq(str, d.text, "\\x07: a\\x1B[2J\xe2\x86\xb5\\xC2\\x9B"));
}

/* The text is cut at the capacity, and never inside an escaped character. */
Test(utf8, messages_of_control_characters_are_cut)
{
    struct kvf_diag d = {""};
    char text[400];
    memset(text, 27, sizeof text - 1);
    text[sizeof text - 1] = 0;
    kvf_fail(&d, KVF_E_FORMAT, "%s", text);
    cr_expect(strlen(d.text) == 508 && strcmp(d.text + 504, "\\x1B") == 0);
}

/* Numbers outside the range of int64_t are not converted. */
Test(whole, any_real)
{
    cr_expect(whole_of(-3.9, 7) == -3 && whole_of(0x1p62, 7) == (int64_t)1 << 62);
    cr_expect(whole_of(NAN, 7) == 7 && whole_of(INFINITY, 7) == 7 && whole_of(-INFINITY, 7) == 7);
    cr_expect(whole_of(0x1p63, 7) == 7 && whole_of(-0x1p63, 7) == INT64_MIN);
    cr_expect(whole_of(1e300, 7) == 7 && whole_of(-1e300, 7) == 7);
    cr_expect(whole_within(5, 0, 5, -1) == 5 && whole_within(6, 0, 5, -1) == -1);
    cr_expect(whole_within(-1, 0, 5, -2) == -2 && whole_within(NAN, INT64_MIN, 5, -2) == -2);
}

Test(buf, grows_and_stays_terminated)
{
    struct buf b = {0};
    char want[3001];
    for (int i = 0; i < 3000; i++) {
        want[i] = (char)('a' + i % 26);
        buf_char(&b, want[i]);
        cr_assert(b.data[b.len] == 0 && b.len < b.cap);
    }
    want[3000] = 0;
    cr_expect(eq(str, b.data, want));
    buf_clear(&b);
    cr_expect(b.len == 0 && b.data[0] == 0);
    buf_printf(&b, "%s-%05d", "x", 42);
    buf_add(&b, NULL, 0);
    cr_expect(eq(str, b.data, "x-00042"));
    buf_finish(&b);
    cr_expect(b.data == NULL && b.len == 0);
    buf_finish(&b);
}

Test(buf, holds_exactly_its_maximum)
{
    struct buf b = {.max = 600};
    for (int i = 0; i < 600; i++)
        buf_char(&b, 'x');
    cr_expect(eq(int, b.err, KVF_OK));
    cr_expect(eq(sz, b.len, 600));
    buf_char(&b, 'y');
    cr_expect(eq(int, b.err, KVF_E_LIMIT));
    buf_printf(&b, "%d", 5);
    cr_expect(eq(sz, b.len, 600), "an error sticks");
    buf_finish(&b);
    b = (struct buf){0};
    buf_add(&b, "x", SIZE_MAX - 4); /* rejected without a copy: over the limit */
    cr_expect(eq(int, b.err, KVF_E_LIMIT));
    buf_finish(&b);
}

Test(buf, little_endian_on_any_machine)
{
    SCOPED(buf_finish) struct buf b = {0};
    buf_le16(&b, 0x0102);
    buf_le32(&b, 0x03040506);
    buf_le64(&b, UINT64_C(0x0708090a0b0c0d0e));
    cr_assert(eq(sz, b.len, 14));
    cr_expect(memcmp(b.data, "\x02\x01\x06\x05\x04\x03\x0e\x0d\x0c\x0b\x0a\x09\x08\x07", 14) == 0);
}

static int parse(const char *text, size_t n, struct json **ret)
{
    struct kvf_diag d = {""};
    int err = json_parse(text, n, ret, &d);
    cr_expect(err == KVF_OK || d.text[0], "an error says why");
    return err;
}

Test(json, depth_and_size_are_bounded)
{
    struct json *j = NULL;
    char deep[132];
    for (size_t depth = 63; depth <= 66; depth++) {
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        int err = parse(deep, 2 * depth, &j);
        cr_expect(eq(int, err, depth <= 64 ? KVF_OK : KVF_E_LIMIT), "%zu", depth);
        if (!err)
            json_free(j);
    }
    size_t limit = 16 << 20;
    OWNED(mem_free) char *big = mem_alloc(limit + 2, 1);
    memset(big, ' ', limit + 1);
    big[0] = '5';
    cr_expect(eq(int, parse(big, limit, &j), KVF_OK));
    json_free(j);
    cr_expect(eq(int, parse(big, limit + 1, &j), KVF_E_LIMIT));
}

Test(json, a_wide_tree_is_walked_without_recursion)
{
    SCOPED(buf_finish) struct buf b = {0};
    OWNED(json_free) struct json *j = NULL;
    enum { N = 200000 };
    buf_char(&b, '[');
    for (int i = 0; i < N; i++)
        buf_str(&b, i ? ",{\"a\":1,\"b\":[2]}" : "{\"a\":1,\"b\":[2]}");
    buf_char(&b, ']');
    cr_assert(eq(int, parse(b.data, b.len, &j), KVF_OK));
    int n = 0;
    for (const struct json *x = json_first(j); x; x = json_next(x))
        n += json_int(json_get(x, "a"), 0) == 1;
    cr_expect(eq(int, n, N));
}

Test(json, getters_give_the_default_for_other_types)
{
    static const char text[] =
        "{\"s\":\"x\",\"n\":1.5,\"i\":-7,\"b\":true,\"z\":null,\"a\":[1,2],\"o\":{}}";
    OWNED(json_free) struct json *j = NULL;
    cr_assert(eq(int, parse(text, strlen(text), &j), KVF_OK));
    cr_expect(eq(str, (char *)json_str(json_get(j, "n"), "d"), "d"));
    cr_expect(eq(i64, json_int(json_get(j, "n"), 9), 9), "1.5 is not whole");
    cr_expect(eq(i64, json_int(json_get(j, "i"), 9), -7));
    cr_expect(eq(dbl, json_num(json_get(j, "s"), 2.5), 2.5));
    cr_expect(json_bool(json_get(j, "b"), false) && json_bool(json_get(j, "z"), true));
    cr_expect(json_is_array(json_get(j, "a")) && json_is_object(json_get(j, "o")));
    cr_expect(eq(int, json_len(json_get(j, "s")), 0));
    cr_expect(json_get(json_get(j, "a"), "x") == NULL && json_at(json_get(j, "o"), 0) == NULL);
    cr_expect(json_at(json_get(j, "a"), 2) == NULL && json_at(json_get(j, "a"), -1) == NULL);
    cr_expect(eq(str, (char *)json_key(json_first(j)), "s"));
    cr_expect(json_get(NULL, "x") == NULL && json_first(NULL) == NULL && json_next(NULL) == NULL);
    cr_expect(json_str(NULL, NULL) == NULL && json_len(NULL) == 0 && json_key(NULL) == NULL);
    json_free(NULL);
}

Test(json, whole_numbers_have_bounds)
{
    static const struct {
        const char *text;
        int64_t want; /* -5: not an integer or too large */
    } c[] = {{"9007199254740992", INT64_C(9007199254740992)},   {"1e300", -5}, {"0.5", -5},
             {"-9007199254740992", -INT64_C(9007199254740992)}, {"1e308", -5}, {"-0", 0}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        OWNED(json_free) struct json *j = NULL;
        cr_assert(eq(int, parse(c[i].text, strlen(c[i].text), &j), KVF_OK), "%s", c[i].text);
        cr_expect(eq(i64, json_int(j, -5), c[i].want), "%s", c[i].text);
    }
}

Test(json, written_text_reads_back)
{
    struct rng r = rng_seeded(8);
    for (int k = 0; k < 500; k++) {
        char text[64];
        size_t n = 0;
        while (n < 56) /* any code points except NUL and surrogates */
            n += utf8_encode(1 + (uint32_t)rng_below(&r, k % 2 ? 0x7e : 0xd7fe), text + n);
        text[n] = 0;
        SCOPED(buf_finish) struct buf b = {0};
        OWNED(json_free) struct json *j = NULL;
        buf_char(&b, '{');
        json_put_key(&b, text);
        json_put_str(&b, text, n);
        json_put_key(&b, "n");
        json_put_num(&b, (double)k / 3);
        json_put_key(&b, "nan");
        json_put_num(&b, NAN);
        buf_char(&b, '}');
        cr_assert(eq(int, parse(b.data, b.len, &j), KVF_OK), "%s", b.data);
        cr_expect(eq(str, (char *)json_str(json_get(j, text), ""), text));
        cr_expect(eq(dbl, json_num(json_get(j, "n"), -1), (double)k / 3));
        cr_expect(eq(int, json_len(j), 3));
    }
}
