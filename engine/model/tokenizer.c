/* tokenizer.c - loads the tokenizer of a file, and tokenizes texts with marks. */
#include "engine/model/tokenizer.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/bpe.h"
#include "engine/model/keys.h"
#include "engine/model/nfc.h"
#include "engine/model/pre_known.h"
#include "engine/model/pretok.h"
#include "engine/model/spm.h"

enum { MAX_TEXT = 1 << 26 };

static const char patterns_key[] = "tokenizer.kvfate.patterns";

enum strip { /* sides on which a mark absorbs blanks */
             STRIP_LEFT = 1,
             STRIP_RIGHT = 2
};

/* A tokenizer: a byte-level BPE, or a SentencePiece vocabulary. */
struct tokenizer {
    struct bpe bpe; /* used if pretok is set; otherwise spm */
    struct pretok *pretok;
    struct spm spm;
    const struct vocab *vocab; /* of bpe or spm */
    struct prefixes marks;     /* control and user-defined tokens */
    int32_t bos, eos;
    int32_t *end; /* [n_ends] ids that end generation, including eos */
    int n_ends;
    bool adds_bos;
    bool nfc;       /* texts are first converted to Unicode's normal form C */
    uint8_t *strip; /* [vocab.n] enum strip; NULL if no mark absorbs blanks */
    char hash[33];
};

enum { KIND_BYTES, KIND_PIECES, KIND_UNIGRAM, KINDS };

static const struct tokenizer_kind kinds[KINDS] = {
    [KIND_BYTES] = {"gpt2", "byte-level BPE"},
    [KIND_PIECES] = {"llama", "SentencePiece, BPE"},
    [KIND_UNIGRAM] = {"t5", "SentencePiece, unigram"},
};

/* Returns the kind that the file names; KINDS if it is not supported. */
static int find_kind(const struct gguf *g)
{
    size_t len = 0;
    const char *model = gguf_str(g, "tokenizer.ggml.model", &len);
    int k = model ? 0 : KINDS;
    while (k < KINDS && (strlen(kinds[k].key) != len || memcmp(kinds[k].key, model, len) != 0))
        k++;
    return k;
}

static int refuse_pretok(const struct gguf *g, const char *pre, size_t len, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: pre-tokenizer '%.*s' is not supported; gpt-2, smollm, starcoder, "
                    "llama-bpe, qwen2, tekken, deepseek-llm and others are: where the model cuts "
                    "words as one of them does, give that name by --pre",
                    gguf_path(g), (int)(len < 40 ? len : 40), pre);
}

const char *tokenizer_pre(const struct gguf *g, size_t *ret_len)
{
    const char *pre = gguf_str(g, "tokenizer.ggml.pre", ret_len);
    if (pre || find_kind(g) != KIND_BYTES || gguf_array_strings(g, patterns_key) >= 0)
        return pre;
    pre = pre_known(g);
    *ret_len = pre ? strlen(pre) : 0;
    return pre;
}

static int create_pretok(struct tokenizer *t, const struct gguf *g, const char *named,
                         struct kvf_diag *d)
{
    size_t len = named ? strlen(named) : 0;
    const char *pre = named ? named : tokenizer_pre(g, &len);
    if (!pre)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the file names no pre-tokenizer (tokenizer.ggml.pre), and its "
                        "vocabulary is unknown; name the pre-tokenizer of the model by --pre, such "
                        "as --pre llama-bpe ('kvfate models' lists them)",
                        gguf_path(g));
    int err = pretok_create(pre, len, &t->pretok);
    return err == KVF_E_FORMAT ? refuse_pretok(g, pre, len, d) : err;
}

static void on_pattern(void *ctx, int64_t i, const char *s, size_t len)
{
    (void)i;
    buf_add(ctx, s, len);
    buf_add(ctx, "", 1);
}

/* Compiles the patterns of the file. */
static int compile_patterns(struct tokenizer *t, const struct gguf *g, int64_t n,
                            struct kvf_diag *d)
{
    struct buf all = {0};
    const char *bad = "";
    gguf_each_str(g, patterns_key, on_pattern, &all);
    bool whole = gguf_bool(g, "tokenizer.kvfate.whole_words", false);
    int err = all.err;
    if (!err && n > PRETOK_PATTERNS)
        err = KVF_E_FORMAT;
    if (!err)
        err = pretok_from_patterns(all.data ? all.data : "", (int)n, whole, &t->pretok, &bad);
    if (err == KVF_E_FORMAT)
        kvf_fail(d, err,
                 "%s: the pattern '%.100s' of the tokenizer, one of %lld, cannot be used; give a "
                 ".gguf file of the model",
                 gguf_path(g), bad, (long long)n);
    buf_finish(&all);
    return err;
}

static int load_bpe(struct tokenizer *t, const struct gguf *g, const char *pre, struct kvf_diag *d)
{
    int64_t n = gguf_array_strings(g, patterns_key);
    int err = n < 0 ? create_pretok(t, g, pre, d) : compile_patterns(t, g, n, d);
    if (err)
        return err;
    t->nfc = gguf_bool(g, "tokenizer.kvfate.nfc", pretok_nfc(t->pretok));
    t->vocab = &t->bpe.vocab;
    t->adds_bos = pretok_adds_bos(t->pretok);
    return bpe_load(&t->bpe, g, pretok_whole_words(t->pretok), t->hash, d);
}

const struct tokenizer_kind *tokenizer_kind_at(int i)
{
    return i >= 0 && i < KINDS ? &kinds[i] : NULL;
}

const char *tokenizer_pre_at(int i)
{
    return pretok_name(i);
}

const struct tokenizer_kind *tokenizer_kind(const struct gguf *g)
{
    return tokenizer_kind_at(find_kind(g));
}

int tokenizer_check(const struct gguf *g, struct kvf_diag *d)
{
    size_t len = 0;
    const char *model = gguf_str(g, "tokenizer.ggml.model", &len);
    if (find_kind(g) < KINDS)
        return keys_check_tokenizer(g, d);
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: tokenizer model '%.*s' is not supported; 'gpt2' (byte-level BPE), "
                    "'llama' and 't5' (SentencePiece) are",
                    gguf_path(g), (int)(len < 40 ? len : 40), model ? model : "");
}

static int load_model(struct tokenizer *t, const struct gguf *g, const char *pre,
                      struct kvf_diag *d)
{
    int kind = find_kind(g), err = tokenizer_check(g, d);
    if (err)
        return err;
    if (pre && (kind != KIND_BYTES || gguf_array_strings(g, patterns_key) >= 0))
        return kvf_fail(d, KVF_E_ARG,
                        "--pre: the pre-tokenizer of %s has no name; only GGUF files with "
                        "byte-level BPE have one",
                        gguf_path(g));
    if (kind == KIND_BYTES)
        return load_bpe(t, g, pre, d);
    t->vocab = &t->spm.vocab;
    t->adds_bos = kind == KIND_PIECES;
    return spm_load(&t->spm, g, kind == KIND_UNIGRAM, t->hash, d);
}

/* Returns the id of a mark; `otherwise` if the file does not name it, -1 if it is out of range. */
static int32_t read_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                       int32_t otherwise)
{
    int64_t id = gguf_int(g, key, otherwise);
    return id >= 0 && id < t->vocab->n ? (int32_t)id : -1;
}

static void on_strip(void *ctx, int64_t i, int64_t value)
{
    ((uint8_t *)ctx)[i] = value & (STRIP_LEFT | STRIP_RIGHT);
}

static int read_strips(struct tokenizer *t, const struct gguf *g)
{
    static const char key[] = "tokenizer.kvfate.strips";
    if (gguf_array_ints(g, key) != t->vocab->n)
        return KVF_OK;
    t->strip = MEM_NEW(uint8_t, (size_t)t->vocab->n);
    if (!t->strip)
        return KVF_E_NOMEM;
    gguf_each_int(g, key, on_strip, t->strip);
    return KVF_OK;
}

static void on_end(void *ctx, int64_t i, int64_t id)
{
    struct tokenizer *t = ctx;
    (void)i;
    if (id >= 0 && id < t->vocab->n)
        t->end[t->n_ends++] = (int32_t)id;
}

/* Reads the ids that end generation: one per key, and a list. */
static int read_ends(struct tokenizer *t, const struct gguf *g)
{
    static const char list[] = "tokenizer.ggml.eos_token_ids";
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t n = gguf_array_ints(g, list);
    t->end = MEM_NEW(int32_t, (size_t)(n > 0 ? n : 0) + 3);
    if (!t->end)
        return KVF_E_NOMEM;
    on_end(t, 0, t->eos);
    for (int i = 0; i < 2; i++)
        on_end(t, 0, read_id(t, g, keys[i], -1));
    gguf_each_int(g, list, on_end, t);
    return KVF_OK;
}

static int read_marks(struct tokenizer *t, const struct gguf *g)
{
    bool llama = !t->pretok && !t->spm.unigram;
    t->bos = read_id(t, g, "tokenizer.ggml.bos_token_id", llama ? 1 : -1);
    t->eos = read_id(t, g, "tokenizer.ggml.eos_token_id", llama ? 2 : -1);
    t->adds_bos = gguf_bool(g, "tokenizer.ggml.add_bos_token", t->adds_bos) && t->bos >= 0;
    int err = read_ends(t, g);
    return err ? err : prefixes_open(&t->marks, t->vocab, 1u << TOKEN_CONTROL | 1u << TOKEN_USER);
}

int tokenizer_create_as(const struct gguf *g, const char *pre, struct tokenizer **ret_tokenizer,
                        struct kvf_diag *d)
{
    struct tokenizer *t = MEM_NEW(struct tokenizer, 1);
    if (!t)
        return KVF_E_NOMEM;
    int err = load_model(t, g, pre, d);
    if (err)
        goto fail;
    if (pre)
        vocab_hash_name(pre, t->hash);
    err = read_marks(t, g);
    if (!err)
        err = read_strips(t, g);
    if (err)
        goto fail;
    *ret_tokenizer = t;
    return KVF_OK;

fail:
    if (err == KVF_E_NOMEM)
        kvf_fail(d, err, "%s: not enough memory for the tokenizer", gguf_path(g));
    tokenizer_destroy(t);
    return err;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_finish(&t->bpe);
    pretok_destroy(t->pretok);
    spm_finish(&t->spm);
    prefixes_finish(&t->marks);
    mem_free_all(t->strip, t->end, t);
}

/* A text that is being tokenized. */
struct out {
    const struct tokenizer *t;
    const char *begin; /* start of the complete text */
    struct buf ids;    /* int32 values */
    struct merging merging;
    struct nfc nfc;
    struct buf text; /* text in normal form C */
    struct pretok_cut cut;
    struct spm_scratch spm;
    int err;
};

static void add_word(struct out *o, const char *s, size_t n)
{
    if (!o->err)
        o->err = bpe_encode(&o->t->bpe, s, n, &o->merging, &o->ids);
}

/* Tokenizes well-formed UTF-8, word by word. */
static void add_words(struct out *o, const char *s, size_t n)
{
    const char *word;
    size_t len;
    if (o->err)
        return;
    if (o->t->nfc) {
        s = nfc(&o->nfc, s, n, &o->text, &n);
        o->err = o->text.err;
    }
    pretok_start(&o->cut, s, n);
    while (!o->err && pretok_next(&o->cut, &word, &len, &o->err))
        add_word(o, word, len);
}

/* Tokenizes text without marks. Byte-level BPE treats each ill-formed byte as a word. */
static void add_text(struct out *o, const char *s, size_t n)
{
    if (!o->t->pretok) {
        if (!o->err && n > 0)
            o->err = spm_encode(&o->t->spm, s, n, s == o->begin, &o->spm, &o->ids);
        return;
    }
    size_t start = 0, at = 0;
    while (at < n) {
        uint32_t cp;
        size_t len = utf8_decode(s + at, n - at, &cp);
        if (len) {
            at += len;
            continue;
        }
        add_words(o, s + start, at - start);
        add_word(o, s + at, 1);
        start = ++at;
    }
    add_words(o, s + start, n - start);
}

/* Returns the longest mark at the start of the text; -1 if there is none. */
static int32_t mark_at(const struct tokenizer *t, const char *s, size_t n, bool control)
{
    struct prefix_walk w = prefixes_walk(&t->marks);
    int32_t longest = -1, id;
    for (size_t i = 0; i < n && prefixes_step(&t->marks, &w, s[i], &id); i++)
        if (id >= 0 && (control || t->vocab->type[id] == TOKEN_USER))
            longest = id;
    return longest;
}

/* Returns the bytes of the white space character at the start of the text; 0 if there is none. */
static size_t blank_at(const char *s, size_t n)
{
    uint32_t cp = 0;
    size_t len = utf8_decode(s, n, &cp);
    utf8proc_category_t kind = utf8proc_category((int32_t)cp);
    bool blank = (cp >= 9 && cp <= 13) || cp == 0x85 || kind == UTF8PROC_CATEGORY_ZS
                 || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
    return len && blank ? len : 0;
}

/* Returns the bytes of the white space character at the end of n bytes; 0 if there is none. */
static size_t blank_before(const char *s, size_t n)
{
    for (size_t len = 1; len <= 3 && len <= n; len++)
        if (blank_at(s + n - len, len) == len)
            return len;
    return 0;
}

static void add_all(struct out *o, const char *s, size_t n, bool control)
{
    const struct tokenizer *t = o->t;
    size_t start = 0, at = 0;
    bool first[256] = {false};
    for (int i = 0; i < t->marks.n; i++)
        first[(unsigned char)vocab_piece(t->vocab, t->marks.id[i]).s[0]] = true;
    while (at < n && !o->err) {
        int32_t id = first[(unsigned char)s[at]] ? mark_at(t, s + at, n - at, control) : -1;
        if (id < 0) {
            at++;
            continue;
        }
        size_t end = at, strip = t->strip ? t->strip[id] : 0;
        while ((strip & STRIP_LEFT) && end > start && blank_before(s + start, end - start))
            end -= blank_before(s + start, end - start);
        add_text(o, s + start, end - start);
        buf_add(&o->ids, &id, sizeof id);
        at += vocab_piece(t->vocab, id).len;
        while ((strip & STRIP_RIGHT) && blank_at(s + at, n - at))
            at += blank_at(s + at, n - at);
        start = at;
    }
    add_text(o, s + start, n - start);
}

/* Returns true if the text begins with the name of the start mark, and marks are recognized. */
static bool begins_with_bos(const struct tokenizer *t, const char *s, size_t n, unsigned flags)
{
    return n > 0 && (flags & TOKENIZER_MARKS) && mark_at(t, s, n, true) == t->bos;
}

/* Copies the ids of a tokenized text to an array. */
static int take_ids(struct out *o, int32_t **ret_ids, int *ret_n)
{
    if (o->err || o->ids.err)
        return o->err ? o->err : o->ids.err;
    int32_t *ids = MEM_NEW(int32_t, o->ids.len / sizeof *ids + 1);
    if (!ids)
        return KVF_E_NOMEM;
    if (o->ids.len)
        memcpy(ids, o->ids.data, o->ids.len);
    *ret_ids = ids;
    *ret_n = (int)(o->ids.len / sizeof *ids);
    return KVF_OK;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                     int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    struct out o = {.t = t, .begin = text};
    if (n > MAX_TEXT)
        return kvf_fail(d, KVF_E_LIMIT, "text of %zu bytes is too long", n);
    if (t->pretok)
        o.err = pretok_cut_init(&o.cut, t->pretok);
    bool bos = (flags & TOKENIZER_BOS) ? t->adds_bos
                                       : (flags & TOKENIZER_BOS_ALWAYS) && t->bos >= 0;
    if (bos && !begins_with_bos(t, text, n, flags))
        buf_add(&o.ids, &t->bos, sizeof t->bos);
    if (!o.err)
        add_all(&o, text, n, flags & TOKENIZER_MARKS);
    int err = take_ids(&o, ret_ids, ret_n);
    if (err == KVF_E_LIMIT)
        kvf_fail(d, err,
                 "the text has a word, or a run of spaces, that is too long; give a shorter one");
    buf_finish(&o.ids);
    merging_finish(&o.merging);
    pretok_cut_finish(&o.cut);
    spm_scratch_finish(&o.spm);
    nfc_finish(&o.nfc);
    buf_finish(&o.text);
    return err;
}

/* Returns the bytes at the start of ill-formed UTF-8 that become one U+FFFD: as many as could begin
 * a character (the "maximal subpart" of the Unicode standard, section 3.9), or 1. n > 0 */
static size_t ill_formed(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t len = n < 3 ? n : 3; len > 1; len--)
        for (size_t all = len + 1; all <= 4; all++) {
            char whole[4] = "\x80\x80\x80\x80";
            memcpy(whole, s, len);
            if (utf8_decode(whole, all, &cp) == all)
                return len;
        }
    return 1;
}

static void add_well_formed(struct buf *b, const char *s, size_t n)
{
    uint32_t cp;
    for (size_t at = 0, len; at < n; at += len) {
        len = utf8_decode(s + at, n - at, &cp);
        if (len) {
            buf_add(b, s + at, len);
        } else {
            buf_str(b, "\xEF\xBF\xBD");
            len = ill_formed(s + at, n - at);
        }
    }
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int n, bool marks,
                      struct buf *b)
{
    struct buf text = {0};
    for (int i = 0; i < n; i++) {
        struct piece x = vocab_piece(t->vocab, ids[i]);
        uint8_t type = x.len ? t->vocab->type[ids[i]] : TOKEN_NORMAL;
        bool added = !t->pretok && t->spm.normalizer.prefix && text.len == 0 && x.len
                     && type == TOKEN_NORMAL && *x.s == ' ';
        if (marks || (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN))
            buf_add(&text, x.s + added, x.len - added);
    }
    if (t->pretok)
        add_well_formed(b, text.data ? text.data : "", text.len);
    else
        buf_add(b, text.data ? text.data : "", text.len);
    b->err = b->err ? b->err : text.err;
    buf_finish(&text);
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    struct piece x = vocab_piece(t->vocab, id);
    *ret_len = x.len;
    return x.s;
}

size_t tokenizer_covers(const struct tokenizer *t, int32_t before, int32_t id, const char *rest,
                        size_t n_rest)
{
    struct piece x = vocab_piece(t->vocab, id);
    if (tokenizer_is_special(t, id))
        return x.len <= n_rest && memcmp(rest, x.s, x.len) == 0 ? x.len : 0;
    bool prefix = !t->pretok && t->spm.normalizer.prefix;
    bool first = before < 0 || tokenizer_is_special(t, before);
    return x.len - (prefix && first && x.len > 0 && *x.s == ' ');
}

/* A place in a text that is compared with the bytes of tokens. */
struct place {
    const char *text;
    size_t n, at;     /* bytes of the text, and those that tokens cover, without a begun cluster */
    size_t cluster;   /* bytes of the begun cluster in the text; 0 if none is begun */
    size_t done;      /* bytes of its normal form that tokens cover */
    struct nfc nfc;   /* converts the cluster */
    struct buf made;  /* the cluster in normal form C */
    const char *form; /* the begun cluster in normal form C */
    size_t n_form;
};

static void begin_cluster(struct place *p)
{
    p->form = p->text + p->at;
    p->n_form = p->cluster = nfc_cluster(p->form, p->n - p->at);
    p->done = 0;
    if (p->cluster > 1) /* a single byte can be ill-formed */
        p->form = nfc(&p->nfc, p->form, p->cluster, &p->made, &p->n_form);
}

/* Moves the place behind the n bytes of a token. Returns false if they differ from the text. */
static bool follow(struct place *p, const char *s, size_t n)
{
    for (size_t step; n > 0 && p->at < p->n; s += step, n -= step) {
        const char *here = p->text + p->at;
        if (!p->cluster)
            begin_cluster(p);
        if (p->made.err)
            return false;
        bool changed = p->n_form != p->cluster || memcmp(p->form, here, p->cluster) != 0;
        step = n < p->n_form - p->done ? n : p->n_form - p->done;
        if (memcmp(s, p->form + p->done, step) != 0)
            return false;
        p->done += step;
        if (changed && p->done < p->n_form)
            return true;
        p->at += changed ? p->cluster : step;
        p->cluster = 0;
    }
    p->at += n;
    return true;
}

/* Returns the number of bytes of the text that end before the place. */
static int64_t covered(const struct place *p)
{
    size_t last = p->cluster ? p->cluster - 1 : 0;
    return (int64_t)(p->at + (p->done < last ? p->done : last));
}

int tokenizer_ends(const struct tokenizer *t, const char *text, size_t n, const int32_t *ids,
                   int n_ids, int64_t *end)
{
    struct place p = {.text = text, .n = n};
    bool same = true;
    for (int i = 0; same && i < n_ids; i++) {
        size_t len, covers;
        const char *s = tokenizer_bytes(t, ids[i], &len);
        covers = len;
        if (p.at < n && !p.cluster)
            covers = tokenizer_covers(t, i > 0 ? ids[i - 1] : -1, ids[i], text + p.at, n - p.at);
        if (t->nfc && (p.cluster || !tokenizer_is_special(t, ids[i])))
            same = follow(&p, s + len - covers, covers);
        else
            p.at += covers;
        end[i] = covered(&p);
    }
    int err = p.made.err;
    if (!err && n > 0 && (!same || p.cluster || p.at != n))
        err = KVF_E_FORMAT;
    nfc_finish(&p.nfc);
    buf_finish(&p.made);
    return err;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->vocab->n || vocab_piece(t->vocab, id).len == 0)
        return false;
    return t->vocab->type[id] == TOKEN_CONTROL || t->vocab->type[id] == TOKEN_USER;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    static const char *const ends[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",
                                       "<|end_of_text|>", "<|eom_id|>",    "<|end|>",
                                       "<end_of_turn>",   "<|return|>"};
    if (id < 0)
        return false;
    for (int i = 0; i < t->n_ends; i++)
        if (id == t->end[i])
            return true;
    struct piece x = vocab_piece(t->vocab, id);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (x.len == strlen(ends[i]) && memcmp(x.s, ends[i], x.len) == 0)
            return tokenizer_is_special(t, id);
    return false;
}

struct tokenizer_marks tokenizer_marks(const struct tokenizer *t)
{
    return (struct tokenizer_marks){t->bos, t->eos, t->adds_bos};
}

int32_t tokenizer_before_text(const struct tokenizer *t)
{
    return t->bos >= 0 ? t->bos : t->eos;
}

int tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab->n;
}

void tokenizer_hash(const struct tokenizer *t, char out[33])
{
    memcpy(out, t->hash, 33);
}
