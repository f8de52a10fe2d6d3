/* test_text.c - checks the parts of the text figures: shaped paragraphs, the text of a table in
 * paragraphs, and colours in equal steps that stay readable. */
#include "render/style.h"
#include "render/text_colours.h"
#include "render/text_flow.h"
#include "render/text_source.h"
#include "render/text_style.h"
#include "tests/suite.h"

static struct canvas *ruler(void)
{
    struct canvas *c = NULL;
    cr_assert_eq(canvas_create(CANVAS_PNG, 10, 10, 72, &c, NULL), KVF_OK);
    return c;
}

static struct paragraph *lay_out(struct canvas *c, const char *s, double width)
{
    struct paragraph *p = NULL;
    cr_assert_eq(
        paragraph_create(c, s, strlen(s), NULL, 7, width, text_direction_of(s, strlen(s)), &p),
        KVF_OK);
    return p;
}

static int pieces_of(const char *s, double *width, size_t *first)
{
    OWNED(canvas_destroy) struct canvas *c = ruler();
    OWNED(paragraph_destroy) struct paragraph *p = lay_out(c, s, 1000);
    const struct text_piece *piece;
    cr_assert_eq(paragraph_lines(p), 1);
    int n = paragraph_pieces(p, 0, &piece);
    *width = 0;
    for (int i = 0; i < n; i++)
        *width += piece[i].w;
    *first = n ? piece[0].from : 0;
    return n;
}

/* Each byte is in one piece, pieces are adjacent, and lines are not too wide. */
static void check_cover(const char *s, double width)
{
    OWNED(canvas_destroy) struct canvas *c = ruler();
    OWNED(paragraph_destroy) struct paragraph *p = lay_out(c, s, width);
    size_t n = strlen(s), covered = 0;
    for (int l = 0; l < paragraph_lines(p); l++) {
        const struct text_piece *piece;
        int k = paragraph_pieces(p, l, &piece);
        cr_assert_eq(paragraph_start(p, l), covered, "line %d of %s", l, s);
        for (int i = 0; i < k; i++) {
            cr_assert(piece[i].to > piece[i].from && piece[i].to <= n);
            covered += piece[i].to - piece[i].from;
            cr_assert(piece[i].x >= -1e-6 && piece[i].x + piece[i].w <= width + 0.05,
                      "line %d of %s: from %g, %g wide", l, s, piece[i].x, piece[i].w);
            if (i)
                cr_assert_float_eq(piece[i].x, piece[i - 1].x + piece[i - 1].w, 1e-6);
        }
    }
    cr_assert_eq(covered, n, "%zu of %zu bytes of %s", covered, n, s);
}

Test(text, pieces_cover_the_text)
{
    check_cover("plain words that need more than one line of this width", 30);
    check_cover("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 20);
    check_cover("السلام عليكم ورحمة الله وبركاته word 1234 والنهاية", 25);
    check_cover("שָׁלוֹם עולם", 60);
    check_cover("你好世界。これは日本語です。", 14);
    check_cover("नमस्ते दुनिया", 60);
    check_cover("👨‍👩‍👧 🇩🇪 👍🏽 ok e\xcc\x81", 60);
}

Test(text, letters_that_join_are_shaped_together)
{
    double whole, part, sum = 0;
    size_t first;
    const char *const alone[] = {"س", "ل", "م"};
    pieces_of("سلم", &whole, &first);
    cr_assert_eq(first, 4, "the last letter stands leftmost");
    for (int i = 0; i < 3; i++) {
        pieces_of(alone[i], &part, &first);
        sum += part;
    }
    cr_assert(whole < 0.9 * sum, "joined %g, alone %g", whole, sum);
    cr_assert_eq(pieces_of("لا", &whole, &first), 1, "lam and alef are one glyph");
}

Test(text, pieces_are_what_is_seen_as_one)
{
    double w;
    size_t first;
    cr_assert_eq(pieces_of("e\xcc\x81", &w, &first), 1, "a mark combines");
    cr_assert_eq(pieces_of("fi", &w, &first), 2, "no ligature for looks");
    cr_assert_eq(pieces_of("abc", &w, &first), 3);
    cr_assert_eq(first, 0);
}

Test(text, characters)
{
    const char *s = "ae\xcc\x81\xe4\xbd\xa0\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9z";
    unsigned char start[32];
    size_t n = strlen(s);
    text_characters(s, n, start);
    for (size_t i = 0; i < n; i++) /* a, e + accent, U+4F60, two people as one, z */
        cr_assert_eq(start[i], i == 0 || i == 1 || i == 4 || i == 7 || i == n - 1, "byte %zu", i);
}

Test(text, direction_is_that_of_the_first_letter)
{
    const struct {
        const char *s;
        enum text_direction d;
    } t[] = {{"abc שלום", TEXT_LTR},
             {"12 (שלום abc", TEXT_RTL},
             {"\xd8\xa7", TEXT_RTL},
             {"12 ...", TEXT_NEUTRAL},
             {"", TEXT_NEUTRAL},
             {"你 שלום", TEXT_LTR},
             {"\u2066\\xFF\u2069 שלום", TEXT_RTL},
             {"\u2066\\xFF\u2069", TEXT_NEUTRAL}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        cr_assert_eq(text_direction_of(t[i].s, strlen(t[i].s)), t[i].d, "%s", t[i].s);
}

/* ---- the text of a table */

static struct table *table_of(const char *const *text, const char *const *joined, int64_t n)
{
    struct table *t = table_create("tokens", n);
    table_dense_str(t, "text", "", text);
    table_dense_str(t, "joined", "", joined);
    cr_assert_eq(table_err(t), KVF_OK);
    return t;
}

/* A mark, isolated from left to right. */
#define MARK(s) "\xe2\x81\xa6" s "\xe2\x81\xa9"

static void check_unit(const struct text_source *s, size_t at, int64_t row0, int64_t row1)
{
    const struct text_unit *u = text_source_at(s, at);
    cr_assert(u->row0 == row0 && u->row1 == row1, "byte %zu: rows %d to %d", at, (int)u->row0,
              (int)u->row1);
}

Test(text, bytes_belong_to_their_tokens)
{
    const char *const text[] = {"say \\xE4\\xBD", "\\xA0 and", "x", "", "\\xFF", "y\xe2\x86\xb5z"};
    const char *const joined[] = {"say \xe4\xbd\xa0 and", "", "x", "", "\\xFF", "y\xe2\x86\xb5z"};
    OWNED(table_destroy) struct table *t = table_of(text, joined, 6);
    SCOPED(text_source_finish) struct text_source s;
    text_source_init(&s, t, 0, 6);
    cr_assert(text_source_fill(&s));
    cr_assert(s.ended);
    cr_assert_str_eq(s.bytes.data,
                     "say \xe4\xbd\xa0 andx\xe2\x88\x85" MARK("\\xFF") "y\xe2\x86\xb5");
    check_unit(&s, 0, 0, 1);
    check_unit(&s, 4, 0, 2); /* the character belongs to both */
    check_unit(&s, 6, 0, 2);
    check_unit(&s, 7, 1, 2);
    check_unit(&s, 11, 2, 3);
    check_unit(&s, 12, 3, 4);
    check_unit(&s, 15, 4, 5);
    check_unit(&s, s.bytes.len - 1, 5, 6);
    text_source_drop(&s, 12);
    cr_assert_str_eq(s.bytes.data, "\xe2\x88\x85" MARK("\\xFF") "y\xe2\x86\xb5");
    check_unit(&s, 0, 3, 4);
    text_source_drop(&s, s.bytes.len);
    cr_assert(text_source_fill(&s) && s.ended);
    cr_assert_str_eq(s.bytes.data, "z");
    check_unit(&s, 0, 5, 6);
    text_source_drop(&s, 1);
    cr_assert(not(text_source_fill(&s)));
}

Test(text, what_would_act_is_shown)
{
    const char *const text[] = {
        "\xe2\x80\xaeright\xe2\x80\xac", "\xe2\x80\xa8", "\xc2\x85", "  ", "a b", "\xef\xbb\xbf"};
    OWNED(table_destroy) struct table *t = table_of(text, text, 6);
    SCOPED(text_source_finish) struct text_source s;
    text_source_init(&s, t, 0, 6);
    cr_assert(text_source_fill(&s) && s.ended);
    cr_assert_str_eq(s.bytes.data, MARK("\\u202E") "right" MARK("\\u202C") MARK("\\u2028")
                                       MARK("\\u0085") "\xc2\xa0\xe2\x80\x8b\xc2\xa0\xe2\x80\x8b"
                                                       "a b" MARK("\\uFEFF"));
    cr_assert(text_source_at(&s, 53)->space && !text_source_at(&s, 52)->space);
    cr_assert(text_source_at(&s, 62)->space && !text_source_at(&s, 63)->space);
}

/* Marks are drawn from left to right in a right-to-left line, and do not set its direction. */
Test(text, marks_read_rightwards)
{
    const char *const text[] = {"\\xD7", " \xd7\xa9\xd7\x9c", "\\x9D\\x90", " 12"};
    OWNED(table_destroy) struct table *t = table_of(text, text, 4);
    SCOPED(text_source_finish) struct text_source s;
    const struct text_piece *piece;
    text_source_init(&s, t, 0, 4);
    cr_assert(text_source_fill(&s));
    cr_assert_eq(s.dir, TEXT_RTL);
    OWNED(canvas_destroy) struct canvas *c = ruler();
    OWNED(paragraph_destroy) struct paragraph *p = NULL;
    cr_assert_eq(paragraph_create(c, s.bytes.data, s.bytes.len, NULL, 7, 100, s.dir, &p), KVF_OK);
    int n = paragraph_pieces(p, 0, &piece);
    char seen[64] = "";
    for (int i = 0, k = 0; i < n; i++)
        if (piece[i].w > 0.01 && (unsigned char)s.bytes.data[piece[i].from] < 0x80)
            seen[k++] = s.bytes.data[piece[i].from];
    cr_assert_str_eq(seen, "12 \\x9D\\x90 \\xD7");
}

Test(text, long_tokens_come_in_parts)
{
    OWNED(free) char *s = malloc(20001);
    cr_assert(s != NULL);
    memset(s, 'a', 20000);
    s[20000] = 0;
    const char *const text[] = {s};
    OWNED(table_destroy) struct table *t = table_of(text, text, 1);
    SCOPED(text_source_finish) struct text_source x;
    size_t all = 0;
    text_source_init(&x, t, 0, 1);
    for (int parts = 0; text_source_fill(&x); parts++) {
        cr_assert(x.bytes.len <= 8192 && parts < 100);
        all += x.bytes.len;
        check_unit(&x, x.bytes.len / 2, 0, 1);
        text_source_drop(&x, x.bytes.len);
    }
    cr_assert_eq(all, 20000);
}

static struct text_look plain(const void *ctx, int64_t row0, int64_t row1)
{
    (void)ctx, (void)row0, (void)row1;
    return (struct text_look){.ink = {0, 0, 0}};
}

/* Compares the lines of a long paragraph, which is laid out in parts, with one layout of the
 * complete text. */
static void check_lines(const char *const *word, int words, double width)
{
    enum { N = 4000 };
    static const char *text[N];
    static char all[16 * N];
    all[0] = 0;
    size_t n = 0;
    for (int i = 0; i < N; i++) {
        text[i] = word[(i * 7 + i / 5) % words];
        n += (size_t)snprintf(all + n, sizeof all - n, "%s", text[i]);
    }
    OWNED(table_destroy) struct table *t = table_of(text, text, N);
    struct canvas *c = ruler();
    struct paragraph *p = lay_out(c, all, width);
    struct text_flow f = {.c = c, .pt = 7, .width = width, .look = plain};
    text_flow_open(&f, t, 0, N);
    cr_assert_eq(text_flow_run(&f, 10, false, 0, 0, 0), KVF_OK);
    cr_assert_eq(f.at, 10);
    cr_assert_eq(text_flow_run(&f, INT64_MAX, false, 0, 0, 0), KVF_OK);
    cr_assert_eq(f.at, paragraph_lines(p), "%d lines in parts, %d at once", (int)f.at,
                 paragraph_lines(p));
    text_flow_close(&f);
    paragraph_destroy(p);
    canvas_destroy(c);
}

Test(text, parts_of_a_paragraph_break_like_the_whole)
{
    static const char *const latin[] = {" the", " caravan", "s", " of", " salt", ",", " unbreakab"};
    static const char *const arabic[] = {" الس", "لام", " عل", "يكم", " word"};
    static const char *const one[] = {"aaa"};
    check_lines(latin, 7, 60);
    check_lines(arabic, 5, 40);
    check_lines(one, 1, 50);
}

/* ---- colours */

/* Computes CIELAB from the pages of Poynton and Lindbloom, written for this test. */
static void lab_of(struct rgb c, double out[3])
{
    static const double m[3][3] = {{0.4124564, 0.3575761, 0.1804375},
                                   {0.2126729, 0.7151522, 0.0721750},
                                   {0.0193339, 0.1191920, 0.9503041}};
    static const double white[3] = {0.95047, 1, 1.08883};
    double v[3] = {c.r, c.g, c.b}, f[3];
    for (int k = 0; k < 3; k++)
        v[k] = v[k] > 0.04045 ? pow((v[k] + 0.055) / 1.055, 2.4) : v[k] / 12.92;
    for (int k = 0; k < 3; k++) {
        double t = (m[k][0] * v[0] + m[k][1] * v[1] + m[k][2] * v[2]) / white[k];
        f[k] = t > 0.008856452 ? cbrt(t) : (903.2963 * t + 16) / 116;
    }
    out[0] = 116 * f[1] - 16;
    out[1] = 500 * (f[0] - f[1]);
    out[2] = 200 * (f[1] - f[2]);
}

static double distance(struct rgb a, struct rgb b)
{
    double p[3], q[3];
    lab_of(a, p);
    lab_of(b, q);
    return sqrt(pow(p[0] - q[0], 2) + pow(p[1] - q[1], 2) + pow(p[2] - q[2], 2));
}

Test(text, equal_steps_look_equal)
{
    const struct rgb a = {1, 1, 1}, b = {0.25, 0.53, 0.82};
    cr_assert_float_eq(distance(lab_between(a, b, 0), a), 0, 1e-4);
    cr_assert_float_eq(distance(lab_between(a, b, 1), b), 0, 1e-4);
    double step = distance(a, b) / 20;
    for (int i = 0; i < 20; i++)
        cr_assert_float_eq(distance(lab_between(a, b, i / 20.0), lab_between(a, b, (i + 1) / 20.0)),
                           step, 0.02 * step, "step %d", i);
}

Test(text, contrast_of_known_pairs)
{
    const struct rgb black = {0, 0, 0}, white = {1, 1, 1},
                     grey = {0x76 / 255.0, 0x76 / 255.0, 0x76 / 255.0};
    cr_assert_float_eq(contrast_ratio(black, white), 21, 1e-9);
    cr_assert_float_eq(contrast_ratio(grey, white), 4.54, 0.005); /* WCAG's own example */
    cr_assert_float_eq(contrast_ratio(grey, grey), 1, 1e-9);
}

/* Makes a table of a token with the value, which may be NaN, and of a token with 0.5. */
static struct table *styled(double value, const char *state)
{
    const double values[] = {value, 0.5};
    const char *const states[] = {state, "kept"};
    static const char *const real[] = {"kept", "mean_residency", "mean_beta",   "mean_retention",
                                       "nll",  "saliency",       "last_use_age"};
    struct table *t = table_create("tokens", 2);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        table_dense_real(t, real[i], "", values);
    table_dense_str(t, "state", "", states);
    cr_assert_eq(table_err(t), KVF_OK);
    return t;
}

static void check_contrast(const char *option, const char *map, double v, const char *state)
{
    const struct rgb paper = {1, 1, 1};
    bool steps = strstr(option, "beta") != NULL; /* half-lives are drawn by their logarithm */
    struct figure_style s = {
        .vmin = steps ? 0.1 : 0, .vmax = steps ? 10 : 1, .option = option, .cmap = map};
    OWNED(table_destroy) struct table *t = styled(v, state);
    struct text_style x = {.one = true};
    struct tokens_style own = {0};
    SCOPED(buf_finish) struct buf text = {0};
    struct kvf_diag d = {""};
    cr_assert_eq(style_read("tokens", text_style_keys, option, &own, &text, &d), KVF_OK, "%s: %s",
                 option, d.text);
    s.own = &own;
    cr_assert_eq(text_style_read(&x, t, &s, &d), KVF_OK, "%s: %s", option, d.text);
    struct text_look look = text_style_look(&x, 0, 1);
    double ratio = contrast_ratio(look.ink, look.filled ? look.fill : paper);
    cr_assert(ratio >= 4.5, "%s %s at %g %s: contrast %.3f", option, map ? map : "", v, state,
              ratio);
}

Test(text, every_look_can_be_read)
{
    static const char *const by[] = {"kept",     "residency", "beta", "retention",
                                     "last-use", "saliency",  "nll"};
    static const char *const maps[] = {NULL, "viridis", "magma", "cividis", "redblue"};
    static const char *const states[] = {"kept", "evicted", "sink", "recent", "new", "mixed", ""};
    char option[64];
    for (int mark = 0; mark < 2; mark++) {
        for (size_t i = 0; i < sizeof by / sizeof *by; i++)
            for (int v = -1; v <= 101; v++) {
                snprintf(option, sizeof option, "by=%s,mark=%s", by[i], mark ? "text" : "fill");
                check_contrast(option, maps[(size_t)(v + 1) % 5], v == 101 ? NAN : v / 100.0, "");
                check_contrast(option, NULL, v / 100.0, "");
            }
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            check_contrast(mark ? "by=state,mark=text" : "by=state,mark=fill", NULL, 0, states[i]);
    }
}
