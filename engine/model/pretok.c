/* pretok.c - patterns of published pre-tokenizers, and splitting with PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/model/pretok.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/white_space.h"

enum { MOST_PATTERNS = 7, HEAP_KIB = 1 << 16 };

#define WS WHITE_SPACE
/* The letters that DeepSeek LLM lists individually: letters with two cases, of most scripts. */
#define CASED                                                                                      \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

/* \s+(?!\S) and \s+ of the published patterns: the last space of a run belongs to the next word. */
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3(digits)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                               \
                 "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS                           \
                 "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES
/* A word consists of uppercase letters followed by lowercase letters. Letters without case count
 * as both. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define O200K(tail, digits)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" tail "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER         \
    "]+[" LOWER "]*" tail "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS                    \
    "]*[\\r\\n]+|" SPACES
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"                                        \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"                      \
    "|[" WS "]*[\\r\\n]+|" SPACES

enum pattern_row {
    ROW_GPT2,
    ROW_DIGITS,
    ROW_LLAMA3,
    ROW_QWEN2,
    ROW_QWEN35,
    ROW_TEKKEN,
    ROW_GPT4O,
    ROW_DEEPSEEK_LLM,
    ROW_DEEPSEEK_CODER,
    ROW_DEEPSEEK3,
};

static const char *const patterns[][MOST_PATTERNS] = {
    [ROW_GPT2] = {GPT2},
    [ROW_DIGITS] = {"\\p{N}", GPT2},
    [ROW_LLAMA3] = {LLAMA3("\\p{N}{1,3}")},
    [ROW_QWEN2] = {LLAMA3("\\p{N}")},
    [ROW_QWEN35] = {QWEN35},
    [ROW_TEKKEN] = {O200K("", "\\p{N}")},
    [ROW_GPT4O] = {O200K(CONTRACTIONS "?", "\\p{N}{1,3}")},
    /* The fourth is \s+$, rewritten to examine each run of spaces once. */
    [ROW_DEEPSEEK_LLM] = {"[\\r\\n]", "[" WS "]?[" CASED "]+",
                          "[" WS "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}"
                          "\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
                          "(?<![" WS "])[" WS "]++\\z", CJK, "\\p{N}"},
    [ROW_DEEPSEEK_CODER] = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", CJK, "\\p{N}"},
    [ROW_DEEPSEEK3] = {"\\p{N}{1,3}",
                       "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3},
};

/* Names in GGUF files, with their patterns and properties. */
static const struct row {
    const char *name;
    enum pattern_row patterns;
    bool whole_words, adds_bos, nfc;
} rows[] = {
    {"gpt-2", ROW_GPT2, false, false},
    {"default", ROW_GPT2, false, false},
    {"phi-2", ROW_GPT2, false, false},
    {"mpt", ROW_GPT2, false, false},
    {"olmo", ROW_GPT2, false, false},
    {"jais", ROW_GPT2, false, false},
    {"trillion", ROW_GPT2, false, false},
    {"granite-docling", ROW_GPT2, false, false},
    {"exaone4", ROW_GPT2, false, false},
    {"smollm", ROW_DIGITS, false, false},
    {"starcoder", ROW_DIGITS, false, false},
    {"refact", ROW_DIGITS, false, false},
    {"command-r", ROW_DIGITS, false, false},
    {"codeshell", ROW_DIGITS, false, false},
    {"exaone", ROW_DIGITS, false, false},
    {"minerva-7b", ROW_DIGITS, false, false},
    {"llama-bpe", ROW_LLAMA3, true, true},
    {"llama3", ROW_LLAMA3, true, true},
    {"llama-v3", ROW_LLAMA3, true, true},
    {"falcon3", ROW_LLAMA3, true, true},
    {"lfm2", ROW_LLAMA3, true, true},
    {"pixtral", ROW_LLAMA3, true, true},
    {"dbrx", ROW_LLAMA3, false, false},
    {"smaug-bpe", ROW_LLAMA3, false, false},
    {"chatglm-bpe", ROW_LLAMA3, false, false},
    {"glm4", ROW_LLAMA3, false, false},
    {.name = "qwen2", .patterns = ROW_QWEN2, .nfc = true},
    {"deepseek-r1-qwen", ROW_QWEN2, false, false},
    {"stablelm2", ROW_QWEN2, false, false},
    {"hunyuan", ROW_QWEN2, false, false},
    {"megrez", ROW_QWEN2, false, false},
    {.name = "qwen35", .patterns = ROW_QWEN35, .nfc = true},
    {"tekken", ROW_TEKKEN, true, true},
    {"gpt-4o", ROW_GPT4O, false, false},
    {"llama4", ROW_GPT4O, false, false},
    {"deepseek-llm", ROW_DEEPSEEK_LLM, false, false},
    {"deepseek-coder", ROW_DEEPSEEK_CODER, false, false},
    {"deepseek-v3", ROW_DEEPSEEK3, false, false},
    {"hunyuan-dense", ROW_DEEPSEEK3, false, false},
};

/* A compiled pre-tokenizer. */
struct pretok {
    bool whole_words, adds_bos, nfc;
    pcre2_code *code[PRETOK_PATTERNS];
    bool drops[PRETOK_PATTERNS]; /* the text between its matches is dropped */
    int n;
};

/* The rest of a piece for one pattern, as offsets in the text. */
struct pretok_level {
    size_t start, at, end;
    size_t from, to; /* the next match; from == end if there is none */
    bool searched;   /* from and to are the next match after at */
};

static const struct row *find_row(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}

const char *pretok_name(int i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof *rows ? rows[i].name : NULL;
}

static bool add_pattern(struct pretok *p, const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    bool drops = pattern[0] == PRETOK_DROPS;
    pattern += drops;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!made)
        return false;
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); /* a failure only makes matching slower */
    p->drops[p->n] = drops;
    p->code[p->n++] = made;
    return true;
}

int pretok_create(const char *name, size_t len, struct pretok **ret)
{
    const struct row *row = find_row(name, len);
    if (!row)
        return KVF_E_FORMAT;
    struct pretok *p = MEM_NEW(struct pretok, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->whole_words = row->whole_words;
    p->adds_bos = row->adds_bos;
    p->nfc = row->nfc;
    for (int i = 0; i < MOST_PATTERNS && patterns[row->patterns][i]; i++)
        if (!add_pattern(p, patterns[row->patterns][i])) {
            pretok_destroy(p);
            return KVF_E_NOMEM;
        }
    *ret = p;
    return KVF_OK;
}

int pretok_from_patterns(const char *pattern, int n, bool whole_words, struct pretok **ret,
                         const char **ret_bad)
{
    struct pretok *p = MEM_NEW(struct pretok, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->whole_words = whole_words;
    for (; p->n < n; pattern += strlen(pattern) + 1)
        if (!add_pattern(p, pattern)) {
            *ret_bad = pattern;
            pretok_destroy(p);
            return KVF_E_FORMAT;
        }
    *ret = p;
    return KVF_OK;
}

void pretok_destroy(struct pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        pcre2_code_free(p->code[i]);
    mem_free(p);
}

bool pretok_whole_words(const struct pretok *p)
{
    return p->whole_words;
}

bool pretok_adds_bos(const struct pretok *p)
{
    return p->adds_bos;
}

bool pretok_nfc(const struct pretok *p)
{
    return p->nfc;
}

int pretok_cut_init(struct pretok_cut *c, const struct pretok *p)
{
    c->p = p;
    c->level = MEM_NEW(struct pretok_level, (size_t)p->n + 1);
    c->match = pcre2_match_data_create(1, NULL);
    c->limits = pcre2_match_context_create(NULL);
    if (!c->level || !c->match || !c->limits)
        return KVF_E_NOMEM;
    pcre2_set_heap_limit(c->limits, HEAP_KIB);
    return KVF_OK;
}

void pretok_cut_finish(struct pretok_cut *c)
{
    mem_free(c->level);
    pcre2_match_data_free(c->match);
    pcre2_match_context_free(c->limits);
}

void pretok_start(struct pretok_cut *c, const char *text, size_t n)
{
    memset(c->level, 0, ((size_t)c->p->n + 1) * sizeof *c->level);
    c->level[0].end = n;
    c->text = text;
    /* Known patterns need a few steps per byte; the limit stops a pattern that needs many more. */
    size_t steps = 100000 + 16 * n;
    pcre2_set_match_limit(c->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

/* Finds the next match of pattern k in the rest of its piece. */
static int search(struct pretok_cut *c, int k)
{
    struct pretok_level *l = &c->level[k];
    PCRE2_SPTR piece = (PCRE2_SPTR)c->text + l->start;
    size_t n = l->end - l->start, at = l->at - l->start;
    const pcre2_code *code = c->p->code[k];
    int rc = pcre2_match(code, piece, n, at, PCRE2_NO_UTF_CHECK, c->match, c->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its state on the heap */
        rc = pcre2_match(code, piece, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match,
                         c->limits);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(c->match);
    l->searched = true;
    l->from = l->to = l->end;
    if (rc >= 0 && v[1] > v[0]) {
        l->from = l->start + v[0];
        l->to = l->start + v[1];
    }
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? KVF_OK : KVF_E_LIMIT;
}

/* Moves the next piece from level k to level k + 1. Returns 1, 0 if no piece is left, or
 * KVF_E_LIMIT. */
static int cut(struct pretok_cut *c, int k)
{
    struct pretok_level *l = &c->level[k];
    int err = l->searched ? KVF_OK : search(c, k);
    if (err)
        return err;
    if (c->p->drops[k])
        l->at = l->from;
    if (l->at == l->end)
        return 0;
    size_t end = l->at < l->from ? l->from : l->to;
    c->level[k + 1] = (struct pretok_level){.start = l->at, .at = l->at, .end = end};
    l->searched = end == l->from && l->from < l->to;
    l->at = end;
    return 1;
}

/* Returns the deepest level with a rest; -1 if there is none. */
static int deepest(const struct pretok_cut *c)
{
    int k = c->p->n - 1;
    while (k >= 0 && c->level[k].at == c->level[k].end)
        k--;
    return k;
}

/* Returns the complete text as one word, for a pre-tokenizer without patterns. */
static bool whole_text(struct pretok_cut *c, const char **ret_word, size_t *ret_n)
{
    struct pretok_level *l = &c->level[0];
    bool more = l->at < l->end;
    *ret_word = c->text + l->at;
    *ret_n = l->end - l->at;
    l->at = l->end;
    return more;
}

bool pretok_next(struct pretok_cut *c, const char **ret_word, size_t *ret_n, int *ret_err)
{
    int n = c->p->n, got = 0;
    if (n == 0)
        return whole_text(c, ret_word, ret_n);
    for (int k = deepest(c); !got; k = deepest(c)) {
        if (k < 0)
            return false;
        for (got = 1; got > 0 && k < n; k++)
            got = cut(c, k);
        if (got < 0) {
            *ret_err = got;
            return false;
        }
    }
    *ret_word = c->text + c->level[n].start;
    *ret_n = c->level[n].end - c->level[n].start;
    return true;
}
