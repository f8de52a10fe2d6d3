/* test_tokenizer.c - the tokenizer compared with golden ids, with its own inverse, and with a brute
 * force. */
#include "base/utf8.h"
#include "base/buf.h"
#include "engine/model/bpe.h"
#include "engine/model/nfc.h"
#include "engine/model/pretok.h"
#include "engine/model/tokenizer.h"
#include "golden.h"
#include "tests/suite.h"

static struct gguf *open_gguf(const char *path)
{
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    cr_assert(gguf_open(path, &g, &d) == KVF_OK, "%s", d.text);
    return g;
}

static struct tokenizer *open_tokenizer(const struct gguf *g)
{
    struct kvf_diag d = {""};
    struct tokenizer *t = NULL;
    cr_assert(tokenizer_create_as(g, NULL, &t, &d) == KVF_OK, "%s", d.text);
    return t;
}

static uint32_t hex4(const char *s)
{
    char digits[5] = {s[0], s[1], s[2], s[3], 0};
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* Decodes the JSON string at *s (after its quote) into out and moves *s after the closing quote.
 * Unlike the usual readers, it keeps NULs. */
static void json_text(const char **s, struct buf *out)
{
    static const char from[] = "nrtbf\"\\/", to[] = "\n\r\t\b\f\"\\/";
    const char *p = *s;
    buf_clear(out);
    for (; *p != '"'; p++) {
        if (*p != '\\') {
            buf_char(out, *p);
        } else if (*++p != 'u') {
            buf_char(out, to[strchr(from, *p) - from]);
        } else {
            uint32_t cp = hex4(p + 1);
            char bytes[4];
            p += 4;
            if (cp >= 0xd800 && cp < 0xdc00) {
                cp = 0x10000 + ((cp - 0xd800) << 10) + (hex4(p + 3) - 0xdc00);
                p += 6;
            }
            buf_add(out, bytes, utf8_encode(cp, bytes));
        }
    }
    *s = p + 1;
}

/* Returns true for bytes without a token in SmolLM2 (golden/README.md). */
static bool has_no_token(unsigned char c)
{
    return c == 4 || c == 6 || c == 0x13 || c == 0x14 || c == 0x16 || c == 0x1d || c == 0xc0
           || c == 0xc1 || c == 0xf1 || c == 0xf2 || c >= 0xf5;
}

static bool same_bytes(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Returns true if the ids spell the text without the bytes that have no token. */
static bool spells(const struct tokenizer *t, const int32_t *ids, int n, const struct buf *text)
{
    SCOPED(buf_finish) struct buf want = {0}, got = {0};
    for (size_t i = 0; i < text->len; i++)
        if (!has_no_token((unsigned char)text->data[i]))
            buf_char(&want, text->data[i]);
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *s = tokenizer_bytes(t, ids[i], &len);
        buf_add(&got, s, len);
    }
    bool equal = same_bytes(&want, &got);
    return equal;
}

/* Checks one golden line: {"text":"...","ids":[...]}. Returns the number of ids; free *ret_ids with
 * mem_free(). */
static int check_ids(const struct tokenizer *t, const char *line, int number, unsigned flags,
                     struct buf *text, int32_t **ret_ids)
{
    static const char head[] = "{\"text\":\"", middle[] = ",\"ids\":[";
    struct kvf_diag d = {""};
    int n = 0, want = 0;
    bool same = true;
    cr_assert(strncmp(line, head, strlen(head)) == 0, "line %d", number);
    line += strlen(head);
    json_text(&line, text);
    cr_assert(strncmp(line, middle, strlen(middle)) == 0, "line %d", number);
    line += strlen(middle);
    int err = tokenizer_encode(t, text->data ? text->data : "", text->len, flags, ret_ids, &n, &d);
    cr_assert(err == KVF_OK, "line %d: %s", number, d.text);
    while (*line != ']') {
        char *end;
        long id = strtol(line, &end, 10);
        same = same && want < n && (*ret_ids)[want] == id;
        want++;
        line = *end == ',' ? end + 1 : end;
    }
    cr_expect(same && want == n, "line %d: other ids (%d, expected %d)", number, n, want);
    return n;
}

static void check_line(const struct tokenizer *t, const char *line, int number, struct buf *text)
{
    OWNED(mem_free) int32_t *ids = NULL;
    int n = check_ids(t, line, number, TOKENIZER_MARKS, text, &ids);
    cr_expect(spells(t, ids, n, text), "line %d: the ids do not spell the text", number);
}

Test(tokenizer, golden_ids_are_identical, .timeout = 60)
{
    if (!default_model())
        cr_skip_test("the default model is absent");
    size_t n;
    OWNED(mem_free) char *all = read_whole(golden_path("tokenizer_golden.jsonl"), &n);
    OWNED(gguf_close) struct gguf *g = open_gguf(default_model());
    OWNED(tokenizer_destroy) struct tokenizer *t = open_tokenizer(g);
    SCOPED(buf_finish) struct buf text = {0};
    int lines = 0;
    for (char *line = all, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        check_line(t, line, ++lines, &text);
    }
    cr_expect(lines == 1908, "%d lines", lines);
}

/* A published vocabulary, reduced to the tokens that the lines can reach (golden/README.md). */
struct vocabulary {
    const char *name;
    int lines;
    bool marks;      /* names of control tokens in the lines are tokens */
    bool reversible; /* the ids spell the text */
    bool normal;     /* the ids spell the text in Unicode's normal form C */
};

static const struct vocabulary vocabularies[] = {
    {"gpt-2", 268, true, true},         {"starcoder", 268, true, true},
    {"deepseek-llm", 268, true, true},  {"deepseek-coder", 268, true, true},
    {"deepseek-v3", 230, true, true},   {"llama-bpe", 268, true, true},
    {"llama4", 230, true, true},        {"qwen2", 268, true, true, .normal = true},
    {"tekken", 230, true, true},        {"llama-spm", 268, false, true},
    {"phi-3", 268, false, true},        {"mistral-v3", 230, false, true},
    {"unigram", 230, false, false},     {"unigram-bytes", 230, false, false},
    {"bpe-phrases", 230, false, false},
};
enum { N_VOCABULARIES = sizeof vocabularies / sizeof *vocabularies };

static struct tokenizer *open_vocabulary(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.gguf", name);
    struct gguf *g = open_gguf(vocabulary_path(file));
    struct tokenizer *t = open_tokenizer(g);
    gguf_close(g); /* the tokenizer keeps no reference */
    return t;
}

/* Returns true if the tokens cover the text from start to end and spell the covered text. U+2581 is
 * a space in SentencePiece. */
static bool reads_back(const struct tokenizer *t, const int32_t *ids, int n, const struct buf *text,
                       bool sentencepiece)
{
    SCOPED(buf_finish) struct buf want = {0};
    size_t at = 0;
    bool equal = true;
    for (size_t i = 0; i < text->len; i++) {
        bool mark = sentencepiece && text->len - i >= 3
                    && memcmp(text->data + i, "\xe2\x96\x81", 3) == 0;
        buf_char(&want, mark ? ' ' : text->data[i]);
        i += mark ? 2 : 0;
    }
    for (int i = 0; i < n; i++) {
        size_t len, left = want.len - at;
        const char *rest = want.data ? want.data + at : "", *s = tokenizer_bytes(t, ids[i], &len);
        size_t covers = tokenizer_covers(t, i ? ids[i - 1] : -1, ids[i], rest, left);
        equal = equal && covers <= left && memcmp(s + len - covers, rest, covers) == 0;
        at += equal ? covers : 0;
    }
    equal = equal && at == want.len;
    return equal;
}

/* Converts a text to Unicode's normal form C. */
static void normalise(struct buf *text)
{
    SCOPED(nfc_finish) struct nfc x = {.chars = {0}};
    SCOPED(buf_finish) struct buf made = {0};
    size_t n;
    const char *s = nfc(&x, text->data ? text->data : "", text->len, &made, &n);
    if (s == made.data) {
        buf_clear(text);
        buf_add(text, s, n);
    }
}

/* Checks that tokens of ASCII end where their bytes are in the text, and the last one at its end.
 * Normal form C makes K, ; and ` also of other characters (the Kelvin sign, for example). */
static void check_ascii_ends(const struct tokenizer *t, const struct buf *text, const int32_t *ids,
                             int n)
{
    OWNED(mem_free) int64_t *end = MEM_NEW(int64_t, (size_t)n + 1);
    cr_assert(tokenizer_ends(t, text->data ? text->data : "", text->len, ids, n, end) == KVF_OK,
              "the tokens differ from the text");
    for (int i = 0; i < n; i++) {
        size_t len, at = 0;
        const char *s = tokenizer_bytes(t, ids[i], &len);
        while (at < len && (unsigned char)s[at] < 0x80 && !memchr("K;`", s[at], 3))
            at++;
        if (at == len)
            cr_expect(end[i] >= (int64_t)len && memcmp(text->data + end[i] - len, s, len) == 0,
                      "token %d, '%.*s', ends at %d of %d bytes", i, (int)len, s, (int)end[i],
                      (int)text->len);
        cr_expect(end[i] >= (i ? end[i - 1] : 0));
    }
    cr_expect(n == 0 || end[n - 1] == (int64_t)text->len);
}

static void check_vocabulary(const struct vocabulary *v)
{
    char file[64];
    size_t n_all;
    snprintf(file, sizeof file, "%s.jsonl", v->name);
    OWNED(mem_free) char *all = read_whole(vocabulary_path(file), &n_all);
    OWNED(tokenizer_destroy) struct tokenizer *t = open_vocabulary(v->name);
    SCOPED(buf_finish) struct buf text = {0};
    int lines = 0;
    for (char *line = all, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        OWNED(mem_free) int32_t *ids = NULL;
        *end = 0;
        int n = check_ids(t, line, ++lines, v->marks ? TOKENIZER_MARKS : 0, &text, &ids);
        if (v->reversible && v->marks)
            check_ascii_ends(t, &text, ids, n);
        if (v->normal)
            normalise(&text);
        cr_expect(v->reversible == false || reads_back(t, ids, n, &text, !v->marks),
                  "%s, line %d: the ids do not spell the text", v->name, lines);
    }
    cr_expect(lines == v->lines, "%s has %d lines", v->name, lines);
}

Test(tokenizer, published_vocabularies_give_published_ids, .timeout = 60)
{
    for (int i = 0; i < N_VOCABULARIES; i++)
        check_vocabulary(&vocabularies[i]);
}

/* Texts that the qwen2 tokenizer converts to normal form C. ends: for each number of bytes of the
 * normal form that tokens can cover, the byte of the text at which they end. */
static const struct ends_case {
    const char *text;
    int ends[16];
} ends_cases[] = {
    {"a\xc3\xa9", {0, 1, 2, 3}},
    /* e and U+0301 become 2 bytes, three Hangul jamo become 3 */
    {"e\xcc\x81 \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab!", {0, 1, 3, 4, 5, 6, 13, 14}},
    /* U+0958 becomes 6 bytes */
    {"x\xe0\xa5\x98y", {0, 1, 2, 3, 3, 3, 3, 4, 5}},
    /* U+0338 is composed with '>', but not with a mark or across a byte that is not UTF-8 */
    {"<|im_end|>\xcc\xb8", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
    {">\xff\xcc\xb8", {0, 1, 2, 3, 4}},
    {"|>\xcc\xb8|", {0, 1, 2, 3, 4, 5}},
};

Test(tokenizer, ends_are_places_in_the_text_before_normalisation)
{
    OWNED(tokenizer_destroy) struct tokenizer *t = open_vocabulary("qwen2");
    for (size_t k = 0; k < sizeof ends_cases / sizeof *ends_cases; k++) {
        const char *text = ends_cases[k].text;
        OWNED(mem_free) int32_t *ids = NULL;
        int64_t end[16];
        size_t len, done = 0, n = strlen(text);
        int n_ids = 0;
        cr_assert(tokenizer_encode(t, text, n, TOKENIZER_MARKS, &ids, &n_ids, NULL) == KVF_OK);
        cr_assert(tokenizer_ends(t, text, n, ids, n_ids, end) == KVF_OK, "text %zu", k);
        for (int i = 0; i < n_ids; i++) {
            tokenizer_bytes(t, ids[i], &len);
            done += len;
            cr_expect(end[i] == ends_cases[k].ends[done], "text %zu, token %d: %d", k, i,
                      (int)end[i]);
        }
        cr_expect(end[n_ids - 1] == (int64_t)n);
        cr_expect(tokenizer_ends(t, text, n, ids, n_ids - 1, end) == KVF_E_FORMAT);
        cr_expect(tokenizer_ends(t, "e\xcc\x80", 3, ids, n_ids, end) == KVF_E_FORMAT);
    }
}

/* The start token is added once: only when requested, and not if the text begins with it. */
Test(tokenizer, the_mark_of_the_start_comes_once)
{
    static const struct {
        const char *text;
        unsigned flags;
        int marks;
    } cases[] = {{"Hello", 0, 0},
                 {"Hello", TOKENIZER_BOS, 1},
                 {"<s>Hello", TOKENIZER_BOS | TOKENIZER_MARKS, 1},
                 {"<s>Hello", TOKENIZER_MARKS, 1},
                 {"<s>Hello", TOKENIZER_BOS, 1},
                 {"", TOKENIZER_BOS, 1}};
    OWNED(tokenizer_destroy) struct tokenizer *t = open_vocabulary("llama-spm");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED(mem_free) int32_t *ids = NULL;
        int n = 0, marks = 0;
        cr_assert(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), cases[i].flags, &ids,
                                   &n, NULL)
                  == KVF_OK);
        for (int k = 0; k < n; k++)
            marks += ids[k] == 1;
        cr_expect(marks == cases[i].marks, "case %zu: %d", i, marks);
        cr_expect(ids[0] == 1 || !marks);
    }
}

/* Runs that could make a pattern scan the same characters repeatedly. */
Test(tokenizer, long_runs_take_linear_time, .timeout = 60)
{
    static const char *const run[] = {" ",        "\n",           "a",   "A",  "7",  "!",
                                      "\xcc\x81", "\xe4\xb8\xad", " \n", "aA", "a ", "\xff",
                                      "\xc2\xa0", "<|",           "'s",  " !"};
    enum { BYTES = 1 << 17 };
    SCOPED(buf_finish) struct buf text = {0};
    for (int v = 0; v < N_VOCABULARIES; v++) {
        OWNED(tokenizer_destroy) struct tokenizer *t = open_vocabulary(vocabularies[v].name);
        for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
            OWNED(mem_free) int32_t *ids = NULL;
            int n = 0;
            buf_clear(&text);
            while (text.len < BYTES)
                buf_str(&text, run[i]);
            buf_str(&text, "x"); /* must not become part of the run */
            cr_assert(tokenizer_encode(t, text.data, text.len, 0, &ids, &n, NULL) == KVF_OK,
                      "%s, run %zu", vocabularies[v].name, i);
        }
    }
}

/* --- brute force: the definition of BPE on spelled strings ----------------- */

struct word {
    const char *s;
    size_t len;
    int64_t number; /* id or rank */
};

struct list {
    int64_t n;
    struct word *word; /* sorted by spelling, then by number */
};

static int by_spelling(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    size_t least = x->len < y->len ? x->len : y->len;
    int c = memcmp(x->s, y->s, least);
    if (c)
        return c;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return 0;
}

static void take(void *ctx, int64_t i, const char *s, size_t len)
{
    struct list *l = ctx;
    l->word[i] = (struct word){s, len, i};
}

static struct list load_list(const struct gguf *g, const char *key)
{
    struct list l = {gguf_array_strings(g, key), NULL};
    cr_assert(l.n > 0);
    l.word = MEM_NEW(struct word, (size_t)l.n);
    gguf_each_str(g, key, take, &l);
    qsort(l.word, (size_t)l.n, sizeof *l.word, by_spelling);
    return l;
}

static int64_t number_of(const struct list *l, const char *s, size_t len)
{
    struct word key = {s, len, 0};
    const struct word *w = bsearch(&key, l->word, (size_t)l->n, sizeof key, by_spelling);
    return w ? w->number : -1;
}

/* Writes GPT-2's spelling of a byte; returns its length. */
static size_t spell(unsigned char b, char out[4])
{
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)
        return utf8_encode(b, out);
    uint32_t before = b < 33 ? b : b < 161 ? 33u + b - 127u : 33u + 34u;
    return utf8_encode(256 + before, out);
}

enum { MOST = 96 };

struct part {
    char s[4 * MOST];
    size_t len;
};

/* Repeatedly finds the neighbouring pair with the lowest rank and merges its leftmost
 * occurrence. */
static int brute_force(const struct list *tokens, const struct list *merges, const char *s,
                       size_t n, int32_t *ids)
{
    static struct part piece[MOST];
    int m = 0;
    for (size_t i = 0; i < n; i++) {
        piece[m].len = spell((unsigned char)s[i], piece[m].s);
        m += number_of(tokens, piece[m].s, piece[m].len) >= 0;
    }
    for (;;) {
        int64_t best = -1;
        int at = 0;
        for (int i = 0; i + 1 < m; i++) {
            char pair[8 * MOST + 1];
            size_t a = piece[i].len, b = piece[i + 1].len;
            memcpy(pair, piece[i].s, a);
            pair[a] = ' ';
            memcpy(pair + a + 1, piece[i + 1].s, b);
            int64_t rank = number_of(merges, pair, a + 1 + b);
            if (rank >= 0 && (best < 0 || rank < best))
                best = rank, at = i;
        }
        if (best < 0)
            break;
        memcpy(piece[at].s + piece[at].len, piece[at + 1].s, piece[at + 1].len);
        piece[at].len += piece[at + 1].len;
        memmove(&piece[at + 1], &piece[at + 2], (size_t)(m - at - 2) * sizeof *piece);
        m--;
    }
    for (int i = 0; i < m; i++)
        ids[i] = (int32_t)number_of(tokens, piece[i].s, piece[i].len);
    return m;
}

/* Draws a word: runs, few letters (many ties), letters, or arbitrary bytes. */
static size_t random_word(struct rng *r, char *out)
{
    static const char few[] = "aeinrst ", letters[] = "abcdefghijklmnopqrstuvwxyz  ETAOIN.,-=";
    size_t n = 1 + rng_below(r, MOST), kind = rng_below(r, 4);
    for (size_t i = 0; i < n; i++)
        out[i] = kind == 0   ? i && rng_below(r, 8) ? out[i - 1] : "a =-\n."[rng_below(r, 6)]
                   : kind == 1 ? few[rng_below(r, 8)]
                 : kind == 2 ? letters[rng_below(r, sizeof letters - 1)]
                             : (char)rng_below(r, 256);
    return n;
}

static void compare_with_brute_force(const char *path, int words)
{
    struct kvf_diag d = {""};
    OWNED(gguf_close) struct gguf *g = open_gguf(path);
    struct list tokens = load_list(g, "tokenizer.ggml.tokens");
    struct list merges = load_list(g, "tokenizer.ggml.merges");
    struct bpe b = {0};
    struct merging scratch = {0};
    char hash[33], text[MOST];
    int shorter = 0;
    cr_assert(bpe_load(&b, g, false, hash, &d) == KVF_OK, "%s", d.text);
    struct rng r = rng_seeded(20);
    for (int i = 0; i < words; i++) {
        size_t n = random_word(&r, text);
        SCOPED(buf_finish) struct buf got = {0};
        int32_t want[MOST];
        int m = brute_force(&tokens, &merges, text, n, want);
        cr_assert(bpe_encode(&b, text, n, &scratch, &got) == KVF_OK);
        cr_expect(got.len == 4 * (size_t)m && (m == 0 || memcmp(got.data, want, got.len) == 0),
                  "word %d of %zu bytes", i, n);
        shorter += m < (int)n;
    }
    cr_expect(shorter > words / 3, "only %d words were merged at all", shorter);
    merging_finish(&scratch);
    bpe_finish(&b);
    mem_free(tokens.word);
    mem_free(merges.word);
}

Test(tokenizer, tiny_vocabulary_equals_brute_force, .timeout = 60)
{
    compare_with_brute_force(tiny_path(0), 3000);
}

Test(tokenizer, real_vocabulary_equals_brute_force, .timeout = 60)
{
    if (!default_model())
        cr_skip_test("the default model is absent");
    compare_with_brute_force(default_model(), 3000);
}

Test(tokenizer, any_bytes_come_back)
{
    struct kvf_diag d = {""};
    OWNED(gguf_close) struct gguf *g = open_gguf(tiny_path(0));
    OWNED(tokenizer_destroy) struct tokenizer *t = open_tokenizer(g);
    struct rng r = rng_seeded(3);
    for (int k = 0; k < 2000; k++) {
        char text[200];
        SCOPED(buf_finish) struct buf back = {0};
        OWNED(mem_free) int32_t *ids = NULL;
        int n = 0;
        size_t len = rng_below(&r, sizeof text);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)rng_below(&r, k % 2 ? 256 : 128);
        cr_assert(tokenizer_encode(t, text, len, TOKENIZER_MARKS, &ids, &n, &d) == KVF_OK);
        for (int i = 0; i < n; i++) {
            size_t m;
            const char *s = tokenizer_bytes(t, ids[i], &m);
            buf_add(&back, s, m);
        }
        cr_expect(back.len == len && (len == 0 || memcmp(back.data, text, len) == 0), "text %d", k);
    }
}

Test(tokenizer, special_names_are_tokens_only_when_asked)
{
    static const char text[] = "a<|im_start|>b<|im_end|><|endoftext|><|im_start";
    struct kvf_diag d = {""};
    OWNED(gguf_close) struct gguf *g = open_gguf(tiny_path(0));
    OWNED(tokenizer_destroy) struct tokenizer *t = open_tokenizer(g);
    int32_t *ids = NULL;
    int n = 0, special = 0;
    cr_assert(tokenizer_encode(t, text, strlen(text), TOKENIZER_MARKS, &ids, &n, &d) == KVF_OK);
    for (int i = 0; i < n; i++)
        special += tokenizer_is_special(t, ids[i]);
    cr_expect(special == 3);
    cr_expect(ids[1] == 1 && ids[3] == 2 && ids[4] == 0, "in the order of the text");
    cr_expect(tokenizer_is_eog(t, 2) && tokenizer_is_eog(t, 0) && !tokenizer_is_eog(t, 1));
    mem_free(ids);
    cr_assert(tokenizer_encode(t, text, strlen(text), 0, &ids, &n, &d) == KVF_OK);
    for (int i = 0; i < n; i++)
        cr_expect(not(tokenizer_is_special(t, ids[i])));
    mem_free(ids);
}

/* Checks the words of a text under patterns. `want` lists them separated by bars. */
static void cuts(const char *patterns, int n, const char *text, const char *want)
{
    OWNED(pretok_destroy) struct pretok *p = NULL;
    SCOPED(pretok_cut_finish) struct pretok_cut c = {0};
    const char *bad = NULL, *word = NULL;
    SCOPED(buf_finish) struct buf got = {0};
    size_t len = 0;
    int err = KVF_OK;
    cr_assert_eq(pretok_from_patterns(patterns, n, false, &p, &bad), KVF_OK);
    cr_assert_eq(pretok_cut_init(&c, p), KVF_OK);
    pretok_start(&c, text, strlen(text));
    while (pretok_next(&c, &word, &len, &err)) {
        buf_add(&got, word, len);
        buf_char(&got, '|');
    }
    cr_assert_eq(err, KVF_OK);
    cr_assert_str_eq(got.data ? got.data : "", want, "patterns %s on '%s'", patterns, text);
}

Test(pretok, of_a_file)
{
    cuts("", 0, "no pattern at all", "no pattern at all|");
    cuts("", 0, "", "");
    cuts("[a-z]+", 1, "ab 12cd", "ab| 12|cd|");
    cuts("\001[a-z]+", 1, "ab 12cd", "ab|cd|"); /* text between the matches is dropped */
    cuts("\001[a-z]+", 1, "12 ab", "ab|");
    cuts("\001[a-z]+", 1, "12", "");
    cuts("\001[a-z0-9]+\000[0-9]", 2, ".ab12.,cd 3.", "ab|1|2|cd|3|");
    cuts("[0-9]\000\001[a-z]+", 2, "ab12,cd", "ab|cd|");
}

static void count_news(void *ctx, uint64_t done, uint64_t of)
{
    (void)done;
    (void)of;
    ++*(int *)ctx;
}

/* A tiny model whose tokenizer has another name of the same length. It must be rejected before any
 * weight is packed. */
Test(tokenizer, an_unknown_kind_is_told_before_weights_are_packed)
{
    static const char key[] = "tokenizer.ggml.model", path[] = "test-tokenizer-kind.gguf";
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    size_t n;
    int news = 0;
    char *bytes = read_whole(tiny_path(0), &n), *at = bytes;
    while (memcmp(at, key, strlen(key)) != 0)
        at++;
    memcpy(at + strlen(key) + 12, "bert", 4); /* after a type and the length of a string */
    write_whole(path, bytes, n);
    struct engine_options opt = {.n_threads = 1, .progress = {count_news, &news}};
    int err = engine_open(path, &opt, &e, &d);
    remove(path);
    mem_free(bytes);
    cr_assert(err == KVF_E_FORMAT);
    cr_assert(strstr(d.text, "'bert'") != NULL, "%s", d.text);
    cr_assert(news == 0);
}
