/* spm.c - loads SentencePiece vocabularies and tokenizes texts. */
#include "engine/model/spm.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Maximum bytes of a token. Longer tokens would make a hostile vocabulary slow; tokens of
 * published vocabularies have a few hundred bytes at most. */
enum { LONGEST_TOKEN = 1024 };

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char scores_key[] = "tokenizer.ggml.scores";

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Returns the byte that "<0x41>" spells; -1 for other texts. */
static int spelled_byte(const char *s, size_t len)
{
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Returns true if the token has a space after another character. */
static bool spans_words(struct piece p)
{
    for (size_t i = 1; i < p.len; i++)
        if (p.s[i] == ' ' && p.s[i - 1] != ' ')
            return true;
    return false;
}

static void on_token(void *ctx, int64_t i, const char *s, size_t len)
{
    struct spm *m = ctx;
    struct buf *out = &m->vocab.bytes;
    int byte = m->vocab.type[i] == TOKEN_BYTE ? spelled_byte(s, len) : -1;
    size_t before = out->len;
    if (byte >= 0) {
        buf_char(out, (char)byte);
        if (m->byte_id[byte] < 0)
            m->byte_id[byte] = (int32_t)i;
    }
    for (size_t at = 0; byte < 0 && at < len;) {
        bool mark = len - at >= 3 && memcmp(s + at, "\xe2\x96\x81", 3) == 0;
        buf_char(out, mark ? ' ' : s[at]);
        at += mark ? 3 : 1;
    }
    vocab_end_token(&m->vocab, i);
    if (out->err || m->vocab.type[i] != TOKEN_NORMAL || out->len == before)
        return;
    struct piece p = {out->data + before, out->len - before};
    m->longest = p.len > m->longest ? p.len : m->longest;
    m->words = m->words && !spans_words(p);
}

static int read_tokens(struct spm *m, const struct gguf *g, struct kvf_diag *d)
{
    int err = vocab_open(&m->vocab, g, d);
    if (err)
        return err;
    m->words = true;
    for (int b = 0; b < 256; b++)
        m->byte_id[b] = -1;
    gguf_each_str(g, tokens_key, on_token, m);
    if (m->longest > LONGEST_TOKEN)
        return kvf_fail(d, KVF_E_LIMIT, "%s: the vocabulary has a token of %zu bytes, over %d",
                        gguf_path(g), m->longest, LONGEST_TOKEN);
    m->has_bytes = true;
    for (int b = 0; b < 256; b++)
        m->has_bytes = m->has_bytes && m->byte_id[b] >= 0;
    m->unknown = (int32_t)gguf_int(g, "tokenizer.ggml.unknown_token_id", m->unigram ? 2 : 0);
    if (m->unknown < 0 || m->unknown >= m->vocab.n)
        m->unknown = -1;
    return m->vocab.bytes.err;
}

static int read_scores(struct spm *m, const struct gguf *g, struct kvf_diag *d)
{
    float least = 0;
    bool any = false;
    m->score = MEM_NEW(float, (size_t)m->vocab.n);
    if (!m->score)
        return KVF_E_NOMEM;
    int64_t n = gguf_array_reals(g, scores_key, m->score, m->vocab.n);
    if (n != m->vocab.n)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %d tokens need as many tokenizer.ggml.scores",
                        gguf_path(g), m->vocab.n);
    for (int i = 0; i < m->vocab.n; i++) {
        if (!isfinite(m->score[i]))
            return kvf_fail(d, KVF_E_FORMAT, "%s: the score of token %d is no number", gguf_path(g),
                            i);
        if (m->vocab.type[i] == TOKEN_NORMAL && (!any || m->score[i] < least)) {
            least = m->score[i];
            any = true;
        }
    }
    m->unknown_score = least - 10; /* as in SentencePiece */
    return KVF_OK;
}

static void on_spelled(void *ctx, int64_t i, const char *s, size_t len)
{
    names_add(ctx, (int32_t)i, (struct piece){s, len});
}

/* Reads the list of merges of a vocabulary without scores, in the order of their rank. */
static int read_merges(struct spm *m, const struct gguf *g, struct kvf_diag *d)
{
    struct names spelled = {.n_slots = 0};
    int err = names_open(&spelled, m->vocab.n);
    if (!err) {
        gguf_each_str(g, tokens_key, on_spelled, &spelled);
        err = merges_load(&m->merges, g, &spelled, d);
    }
    names_finish(&spelled);
    return err;
}

static int index_tokens(struct spm *m)
{
    if (m->unigram)
        return prefixes_open(&m->pieces, &m->vocab, 1u << TOKEN_NORMAL);
    int err = names_open(&m->names, m->vocab.n);
    for (int32_t i = 0; !err && i < m->vocab.n; i++)
        if (m->vocab.type[i] == TOKEN_NORMAL)
            names_add(&m->names, i, vocab_piece(&m->vocab, i));
    return err;
}

int spm_load(struct spm *m, const struct gguf *g, bool unigram, char hash[33], struct kvf_diag *d)
{
    m->unigram = unigram;
    m->every_space = gguf_bool(g, "tokenizer.kvfate.every_space", false);
    int err = read_tokens(m, g, d);
    if (err)
        return err;
    bool merges = !unigram && gguf_array_reals(g, scores_key, NULL, 0) < 0
                  && gguf_array_strings(g, "tokenizer.ggml.merges") >= 0;
    err = merges ? read_merges(m, g, d) : read_scores(m, g, d);
    if (!err)
        err = normalizer_open(&m->normalizer, g, d);
    if (err)
        return err;
    err = index_tokens(m);
    return err ? err : vocab_hash(g, m->score, m->vocab.n, hash);
}

void spm_finish(struct spm *m)
{
    vocab_finish(&m->vocab);
    names_finish(&m->names);
    prefixes_finish(&m->pieces);
    normalizer_finish(&m->normalizer);
    merges_finish(&m->merges);
    mem_free(m->score);
}

void spm_scratch_finish(struct spm_scratch *x)
{
    merging_finish(&x->merging);
    buf_finish(&x->text);
    mem_free(x->step);
}

/* Returns the end of the word at a position: the next space, and within a run of spaces only the
 * first, unless every_space is set. */
static size_t word_end(const struct spm *m, const struct buf *text, size_t at)
{
    if (!m->words && !m->every_space)
        return text->len;
    for (at++; at < text->len; at++)
        if (text->data[at] == ' ' && (m->every_space || text->data[at - 1] != ' '))
            break;
    return at;
}

int spm_encode(const struct spm *m, const char *s, size_t n, bool first, struct spm_scratch *x,
               struct buf *ids)
{
    float score = 0;
    x->begin = ids->len;
    buf_clear(&x->text);
    normalize(&m->normalizer, s, n, first, &x->text);
    int err = x->text.err;
    for (size_t at = 0, end; !err && at < x->text.len; at = end) {
        end = word_end(m, &x->text, at);
        err = m->unigram ? spm_viterbi(m, x->text.data + at, end - at, &score, x, ids)
                         : spm_merge(m, x->text.data + at, end - at, x, ids);
    }
    return err;
}
