/* hf_steps.c - reads normalizer and pre_tokenizer of tokenizer.json, each a list of steps. */
#include <string.h>

#include "base/utf8.h"
#include "engine/model/hf_tokens.h"
#include "engine/model/pretok.h"

enum { MOST_STEPS = 16 };

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                           "|\\s+(?!\\S)|\\s+";
static const char mark[] = "\xe2\x96\x81"; /* U+2581 */

typedef int step_fn(struct hf_tokens *x, uint32_t step);
/* A known step and its reader. */
struct step {
    const char *type;
    step_fn *read;
};

static uint32_t get(const struct hf_tokens *x, uint32_t object, const char *key)
{
    return json_tape_get(x->tape, object, key);
}

static bool is(const struct hf_tokens *x, uint32_t v, const char *text)
{
    return json_tape_is(x->tape, v, text);
}

static bool is_null(const struct hf_tokens *x, uint32_t v)
{
    char kind = json_tape_kind(x->tape, v);
    return kind == '?' || kind == 'n';
}

/* Returns the start of a text, escaped for a message. */
static const char *shown(struct hf_tokens *x, uint32_t v)
{
    size_t n;
    const char *s = json_tape_str(x->tape, v, &x->scratch, &n);
    if (!s)
        return "?";
    struct buf out = {.max = 200};
    utf8_show(&out, s, n < 60 ? n : 60);
    buf_clear(&x->scratch);
    buf_str(&x->scratch, out.data ? out.data : "");
    buf_finish(&out);
    return x->scratch.data ? x->scratch.data : "?";
}

static int refuse(struct hf_tokens *x, const char *what, uint32_t v)
{
    return kvf_fail(x->d, KVF_E_FORMAT,
                    "%s: %s '%s' is not supported; give a .gguf file of the model, or tokens of "
                    "another vocabulary",
                    x->path, what, shown(x, v));
}

/* ---- pre-tokenizer */

static int put_pattern(struct hf_tokens *x, const char *s, size_t n, uint32_t v)
{
    /* PCRE2 would try \s+$ at each position of a run of spaces. The lookbehind starts it only at
     * the first one, with equal matches. */
    static const char tail[] = "\\s+$", before[] = "(?<!\\s)";
    size_t at = 0;
    int err = KVF_OK;
    if (n == strlen(tail) && memcmp(s, tail, n) == 0)
        err = hf_regex(before, strlen(before), &x->patterns, &at);
    if (!err)
        err = hf_regex(s, n, &x->patterns, &at);
    if (err)
        return kvf_fail(x->d, err,
                        "%s: the pattern '%s' is not supported (at byte %zu); give a .gguf file "
                        "of the model",
                        x->path, shown(x, v), at);
    buf_add(&x->patterns, "", 1);
    x->n_patterns++;
    return x->patterns.err;
}

static int byte_level(struct hf_tokens *x, uint32_t step)
{
    x->model = HF_BYTE_LEVEL;
    if (json_tape_bool(x->tape, get(x, step, "add_prefix_space"), true))
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: a ByteLevel that puts a space before each text is not supported; give "
                        "a .gguf file of the model",
                        x->path);
    if (!json_tape_bool(x->tape, get(x, step, "use_regex"), true))
        return KVF_OK;
    return put_pattern(x, gpt2, strlen(gpt2), 0);
}

static int digits(struct hf_tokens *x, uint32_t step)
{
    bool one = json_tape_bool(x->tape, get(x, step, "individual_digits"), false);
    const char *pattern = one ? "\\p{N}" : "\\p{N}+";
    return put_pattern(x, pattern, strlen(pattern), 0);
}

/* Adds a literal text as a regular expression. */
static int literal(struct hf_tokens *x, uint32_t v)
{
    size_t n;
    const char *s = json_tape_str(x->tape, v, &x->scratch, &n);
    if (!s || n == 0)
        return refuse(x, "pattern", v);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x80 && strchr("\\^$.[|()?*+{", s[i]))
            buf_char(&x->patterns, '\\');
        buf_char(&x->patterns, s[i]);
    }
    buf_add(&x->patterns, "", 1);
    x->n_patterns++;
    return x->patterns.err;
}

static int split(struct hf_tokens *x, uint32_t step)
{
    uint32_t pattern = get(x, step, "pattern"), behavior = get(x, step, "behavior");
    uint32_t text = get(x, pattern, "String"), regex = get(x, pattern, "Regex");
    bool invert = json_tape_bool(x->tape, get(x, step, "invert"), false);
    if (x->spaces && is(x, text, " ")) /* all spaces were replaced */
        return KVF_OK;
    bool matches = is(x, behavior, "Isolated") || (invert && is(x, behavior, "Removed"));
    if (!matches)
        return refuse(x, "behavior of Split", behavior);
    bool drops = is(x, behavior, "Removed");
    size_t n;
    const char *s = text ? NULL : json_tape_str(x->tape, regex, &x->scratch, &n);
    if (!text && !s)
        return refuse(x, "pattern of Split", regex);
    if (drops)
        buf_char(&x->patterns, PRETOK_DROPS);
    if (text)
        return literal(x, text);
    return put_pattern(x, s, n, regex);
}

static int metaspace(struct hf_tokens *x, uint32_t step)
{
    uint32_t scheme = get(x, step, "prepend_scheme");
    if (!is(x, get(x, step, "replacement"), mark))
        return refuse(x, "replacement of Metaspace", get(x, step, "replacement"));
    bool always = scheme ? is(x, scheme, "always")
                         : json_tape_bool(x->tape, get(x, step, "add_prefix_space"), true);
    bool first = is(x, scheme, "first");
    if (scheme && !always && !first && !is(x, scheme, "never"))
        return refuse(x, "prepend_scheme of Metaspace", scheme);
    x->spaces = true;
    x->words = json_tape_bool(x->tape, get(x, step, "split"), true);
    if (always || first) {
        x->prefix_new = !x->prefix;
        x->prefix = true;
        x->prefix_first = first;
    }
    return KVF_OK;
}

/* ---- normalizer */

static int nfc(struct hf_tokens *x, uint32_t step)
{
    (void)step;
    x->nfc = true;
    return KVF_OK;
}

static int prepend(struct hf_tokens *x, uint32_t step)
{
    if (!is(x, get(x, step, "prepend"), mark))
        return refuse(x, "Prepend of", get(x, step, "prepend"));
    x->prefix = true;
    return KVF_OK;
}

static int replace(struct hf_tokens *x, uint32_t step)
{
    uint32_t pattern = get(x, step, "pattern"), content = get(x, step, "content");
    uint32_t text = get(x, pattern, "String"), regex = get(x, pattern, "Regex");
    if (is(x, text, " ") && is(x, content, mark)) {
        x->spaces = true;
        return KVF_OK;
    }
    if (is(x, regex, " {2,}") && (is(x, content, " ") || is(x, content, mark))) {
        x->collapse = true;
        return KVF_OK;
    }
    return refuse(x, "Replace of", text ? text : regex);
}

static int precompiled(struct hf_tokens *x, uint32_t step)
{
    x->rules = get(x, step, "precompiled_charsmap");
    return KVF_OK;
}

/* ---- lists of steps */

static const struct step normalizers[] = {
    {"NFC", nfc},
    {"Prepend", prepend},
    {"Replace", replace},
    {"Precompiled", precompiled},
};
static const struct step cutters[] = {
    {"ByteLevel", byte_level},
    {"Digits", digits},
    {"Split", split},
    {"Metaspace", metaspace},
};

static int read_step(struct hf_tokens *x, uint32_t v, const struct step *known, int n,
                     const char *what)
{
    uint32_t type = get(x, v, "type");
    for (int i = 0; i < n; i++)
        if (is(x, type, known[i].type))
            return known[i].read(x, v);
    return refuse(x, what, type);
}

/* Reads one step, or a Sequence of steps. */
static int read_steps(struct hf_tokens *x, uint32_t v, const char *list, const struct step *known,
                      int n, const char *what)
{
    if (is_null(x, v))
        return KVF_OK;
    if (!is(x, get(x, v, "type"), "Sequence"))
        return read_step(x, v, known, n, what);
    uint32_t all = get(x, v, list);
    if (json_tape_kind(x->tape, all) != '[' || json_tape_count(x->tape, all) > MOST_STEPS)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: %s is no list of up to %d steps; fetch the file again", x->path, what,
                        MOST_STEPS);
    for (uint32_t s = json_tape_first(x->tape, all); s; s = json_tape_next(x->tape, s)) {
        int err = read_step(x, s, known, n, what);
        if (err)
            return err;
    }
    return KVF_OK;
}

int hf_steps_read(struct hf_tokens *x, uint32_t root)
{
    x->model = HF_PIECES;
    int err = read_steps(x, get(x, root, "normalizer"), "normalizers", normalizers,
                         sizeof normalizers / sizeof *normalizers, "normalizer");
    if (!err)
        err = read_steps(x, get(x, root, "pre_tokenizer"), "pretokenizers", cutters,
                         sizeof cutters / sizeof *cutters, "pre_tokenizer");
    if (err)
        return err;
    bool level = x->model == HF_BYTE_LEVEL;
    if (level ? x->spaces || x->rules || x->prefix : !x->spaces || x->n_patterns || x->nfc)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: normalizer and pre_tokenizer are not supported: together they are "
                        "neither byte-level BPE nor SentencePiece; give a .gguf file of the model",
                        x->path);
    return KVF_OK;
}
