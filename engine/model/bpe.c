/* bpe.c - byte-level BPE (Sennrich et al. 2016; GPT-2's byte alphabet). A word starts as its
 * bytes. The pair of lowest rank is merged, from left to right, until no pair can be merged. */
#include "engine/model/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { ALPHABET = 512 };

/* Fills the inverse of GPT-2's byte alphabet: printable Latin-1 bytes are themselves, and other
 * bytes are U+0100 and following. map[code point] = byte, or -1. */
static void byte_alphabet(int map[ALPHABET])
{
    int next = 256;
    for (int i = 0; i < ALPHABET; i++)
        map[i] = -1;
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        map[plain ? b : next++] = b;
    }
}

/* Appends the raw bytes of a token as the vocabulary spells it. Returns false and appends no byte
 * if it uses other code points; its spelling is then its text. */
static bool decode_token(const int map[ALPHABET], const char *s, size_t n, struct buf *out)
{
    size_t keep = out->len;
    while (n) {
        uint32_t cp;
        size_t len = utf8_decode(s, n, &cp);
        if (!len || cp >= ALPHABET || map[cp] < 0) {
            out->len = keep;
            return false;
        }
        buf_char(out, (char)map[cp]);
        s += len;
        n -= len;
    }
    return true;
}

/* A vocabulary that is being loaded. */
struct loader {
    struct bpe *b;
    struct names spelled; /* tokens as the vocabulary spells them */
    int map[ALPHABET];
};

static void on_token(void *ctx, int64_t i, const char *s, size_t len)
{
    struct loader *l = ctx;
    uint8_t type = l->b->vocab.type[i]; /* marks are spelled as in texts */
    bool mark = type == TOKEN_CONTROL || type == TOKEN_USER;
    if (mark || !decode_token(l->map, s, len, &l->b->vocab.bytes))
        buf_add(&l->b->vocab.bytes, s, len);
    vocab_end_token(&l->b->vocab, i);
    names_add(&l->spelled, (int32_t)i, (struct piece){s, len});
}

/* Finds the token of each byte. Some vocabularies lack tokens for bytes that are rare or
 * impossible in UTF-8. These bytes are dropped before merging, as in the reference tokenizer. */
static void find_bytes(struct loader *l)
{
    for (int cp = 0; cp < ALPHABET; cp++) {
        char s[4];
        if (l->map[cp] >= 0)
            l->b->byte_id[l->map[cp]] = names_find(&l->spelled,
                                                   (struct piece){s, utf8_encode((uint32_t)cp, s)});
    }
}

static int index_words(struct bpe *b)
{
    int err = names_open(&b->words, b->vocab.n);
    for (int32_t i = 0; !err && i < b->vocab.n; i++)
        if (b->vocab.type[i] == TOKEN_NORMAL)
            names_add(&b->words, i, vocab_piece(&b->vocab, i));
    return err;
}

static int load_tokens(struct loader *l, const struct gguf *g, struct kvf_diag *d)
{
    int err = vocab_open(&l->b->vocab, g, d);
    if (!err)
        err = names_open(&l->spelled, l->b->vocab.n);
    if (err)
        return err;
    gguf_each_str(g, "tokenizer.ggml.tokens", on_token, l);
    find_bytes(l);
    return l->b->vocab.bytes.err;
}

int bpe_load(struct bpe *b, const struct gguf *g, bool whole_words, char hash[33],
             struct kvf_diag *d)
{
    struct loader l = {.b = b};
    byte_alphabet(l.map);
    int err = load_tokens(&l, g, d);
    if (!err)
        err = merges_load(&b->merges, g, &l.spelled, d);
    if (!err)
        err = whole_words ? index_words(b) : KVF_OK;
    if (!err)
        err = vocab_hash(g, NULL, 0, hash);
    names_finish(&l.spelled);
    return err;
}

void bpe_finish(struct bpe *b)
{
    vocab_finish(&b->vocab);
    names_finish(&b->words);
    merges_finish(&b->merges);
}

static bool find_merge(const void *ctx, const struct merge_node *left,
                       const struct merge_node *right, struct merge_cand *ret)
{
    const struct bpe *b = ctx;
    return merges_find(&b->merges, left->id, right->id, ret);
}

int bpe_encode(const struct bpe *b, const char *s, size_t n, struct merging *x, struct buf *ids)
{
    if (n == 0)
        return KVF_OK;
    int32_t whole = b->words.slot ? names_find(&b->words, (struct piece){s, n}) : -1;
    if (whole >= 0) {
        buf_add(ids, &whole, sizeof whole);
        return ids->err;
    }
    int err = merging_reserve(x, n);
    if (err)
        return err;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)s[i]] >= 0)
            x->node[m++] = (struct merge_node){.id = b->byte_id[(unsigned char)s[i]]};
    if (m == 0)
        return KVF_OK;
    merging_run(x, m, find_merge, b);
    for (int32_t i = 0; i >= 0; i = x->node[i].next)
        buf_add(ids, &x->node[i].id, sizeof x->node[i].id);
    return ids->err;
}
