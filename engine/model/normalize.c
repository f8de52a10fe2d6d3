/* normalize.c - normalizes texts as SentencePiece does. */
#include "engine/model/normalize.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Maximum bytes of a rule; published rules have about twenty bytes at most. */
enum { LONGEST_RULE = 256 };

struct replacement { /* the replacement of a part of the text */
    const char *s;
    size_t n;
};

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Reads the rules: size of the trie in bytes, the trie, and the replacement texts, each ended by a
 * NUL. */
static int read_rules(struct normalizer *z, const unsigned char *p, size_t n)
{
    size_t bytes = n >= 4 ? le32(p) : 0;
    if (n < 9 || bytes < 4 || bytes % 4 || bytes > n - 5 || p[n - 1] != 0)
        return KVF_E_FORMAT;
    z->n_trie = bytes / 4;
    z->n_target = n - 4 - bytes;
    z->trie = MEM_NEW(uint32_t, z->n_trie);
    z->target = MEM_NEW(char, z->n_target);
    if (!z->trie || !z->target)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < z->n_trie; i++)
        z->trie[i] = le32(p + 4 + 4 * i);
    memcpy(z->target, p + 4 + bytes, z->n_target);
    return KVF_OK;
}

int normalizer_open(struct normalizer *z, const struct gguf *g, struct kvf_diag *d)
{
    size_t n = 0;
    const void *rules = gguf_array_bytes(g, "tokenizer.ggml.precompiled_charsmap", &n);
    z->prefix = gguf_bool(g, "tokenizer.ggml.add_space_prefix", true);
    z->prefix_first = gguf_bool(g, "tokenizer.kvfate.prefix_first", false);
    z->prefix_new = gguf_bool(g, "tokenizer.kvfate.prefix_new", false);
    z->collapse = gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false);
    if (!rules || n == 0)
        return KVF_OK;
    int err = read_rules(z, rules, n);
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err,
                        "%s: the rules of tokenizer.ggml.precompiled_charsmap are damaged; "
                        "fetch the file again",
                        gguf_path(g));
    return err;
}

void normalizer_finish(struct normalizer *z)
{
    mem_free_all(z->trie, z->target);
}

/* Returns the offset of a unit's children in the double array. */
static size_t children(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Finds the longest rule that matches the start of the text. Returns its length and sets *ret to
 * its replacement; 0 if no rule matches. */
static size_t find_rule(const struct normalizer *z, const char *s, size_t n, const char **ret)
{
    size_t longest = 0;
    uint32_t unit = z->n_trie ? z->trie[0] : 0;
    size_t at = children(unit);
    for (size_t i = 0; z->n_trie && i < n && i < LONGEST_RULE; i++) {
        unsigned char c = (unsigned char)s[i];
        at ^= c;
        if (at >= z->n_trie)
            break;
        unit = z->trie[at];
        if ((unit & (1u << 31 | 0xff)) != c)
            break;
        at ^= children(unit);
        if (!(unit >> 8 & 1) || at >= z->n_trie)
            continue;
        size_t value = z->trie[at] & 0x7fffffffu;
        if (value < z->n_target) {
            *ret = z->target + value;
            longest = i + 1;
        }
    }
    return longest;
}

/* Returns the length of the next part of the text, and sets *ret to its replacement by a rule, or
 * to the unchanged character. */
static size_t next(const struct normalizer *z, const char *s, size_t n, struct replacement *ret)
{
    uint32_t cp;
    size_t len = find_rule(z, s, n, &ret->s);
    if (len) {
        ret->n = strlen(ret->s);
        return len;
    }
    len = utf8_decode(s, n, &cp);
    len = len ? len : 1;
    *ret = (struct replacement){s, len};
    return len;
}

/* Appends the replacement of a part. Returns true if it ends in a space. */
static bool put(struct buf *out, struct replacement replacement)
{
    if (replacement.n == 3 && memcmp(replacement.s, "\xe2\x96\x81", 3) == 0) {
        buf_char(out, ' '); /* U+2581 becomes a space, but runs of it are not collapsed */
        return false;
    }
    buf_add(out, replacement.s, replacement.n);
    return replacement.s[replacement.n - 1] == ' ';
}

/* Returns true if a space is added before a text. */
static bool prefixed(const struct normalizer *z, const char *s, size_t n, bool first)
{
    struct replacement replacement = {"", 0};
    if (!z->prefix || (z->prefix_first && !first))
        return false;
    if (!z->prefix_new)
        return true;
    for (size_t at = 0; at < n && replacement.n == 0;)
        at += next(z, s + at, n - at, &replacement);
    bool mark = replacement.n >= 3 && memcmp(replacement.s, "\xe2\x96\x81", 3) == 0;
    return replacement.n > 0 && *replacement.s != ' ' && !mark;
}

void normalize(const struct normalizer *z, const char *s, size_t n, bool start, struct buf *out)
{
    size_t begin = out->len, first = 0;
    bool spaced = z->collapse; /* the output ends in a space, so another space is dropped */
    struct replacement replacement;
    for (size_t len; z->collapse && first < n; first += len) {
        len = next(z, s + first, n - first, &replacement);
        if (replacement.n != 1 || *replacement.s != ' ')
            break;
    }
    if (first == n)
        return;
    if (prefixed(z, s + first, n - first, start))
        buf_char(out, ' ');
    while (first < n && !out->err) {
        first += next(z, s + first, n - first, &replacement);
        for (; spaced && replacement.n && *replacement.s == ' '; replacement.n--)
            replacement.s++;
        if (replacement.n)
            spaced = put(out, replacement) && z->collapse;
    }
    while (z->collapse && out->len > begin && out->data[out->len - 1] == ' ')
        out->len--;
}
