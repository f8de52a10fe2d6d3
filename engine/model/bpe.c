/* bpe.c - byte-level BPE (Sennrich et al. 2016; GPT-2's byte alphabet): a word
 * starts as its bytes; the pair of lowest rank is merged, leftmost first, until
 * none is left.  A heap over a linked list makes that O(n log n). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/bpe.h"

enum { ALPHABET = 512 };

struct bpe_node {
    int32_t id, prev, next; /* id < 0: merged away */
};

struct bpe_cand {
    int32_t rank, at, left, right, result;
};

/* GPT-2 writes bytes as printable code points: printable Latin-1 as themselves,
 * the others as U+0100 upwards.  map[code point] = byte, -1 = none. */
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

/* Raw bytes of a token as the vocabulary spells it; false (nothing appended that
 * counts) when it uses other code points: it is then kept as it stands. */
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

/* Vocabulary by spelling: open addressing over token numbers. */
struct index {
    const struct gguf *g;
    int32_t *slot;
    size_t n_slots;
    struct bpe_text *name; /* [n_tokens] as spelled */
};

static size_t probe(const struct index *x, const char *s, size_t n)
{
    size_t at = XXH3_64bits(s, n) & (x->n_slots - 1);
    while (x->slot[at] >= 0) {
        const struct bpe_text *t = &x->name[x->slot[at]];
        if (t->len == n && memcmp(t->s, s, n) == 0)
            break;
        at = (at + 1) & (x->n_slots - 1);
    }
    return at;
}

struct loader {
    struct bpe *b;
    struct index index;
    int map[ALPHABET];
    XXH3_state_t *hash;
    int64_t bad_merge; /* first merge that names no tokens; -1 none */
};

static void on_token(void *ctx, int64_t i, const char *s, size_t len)
{
    struct loader *l = ctx;
    XXH3_128bits_update(l->hash, s, len);
    XXH3_128bits_update(l->hash, "", 1);
    l->b->start[i] = l->b->text.len;
    if (!decode_token(l->map, s, len, &l->b->text))
        buf_add(&l->b->text, s, len);
    l->b->start[i + 1] = l->b->text.len;
    l->index.name[i] = (struct bpe_text){s, len};
    size_t at = probe(&l->index, s, len);
    if (l->index.slot[at] < 0)
        l->index.slot[at] = (int32_t)i;
}

static size_t merge_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & (b->n_slots - 1);
    while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
        at = (at + 1) & (b->n_slots - 1);
    return at;
}

static void on_merge(void *ctx, int64_t i, const char *s, size_t len)
{
    struct loader *l = ctx;
    XXH3_128bits_update(l->hash, s, len);
    XXH3_128bits_update(l->hash, "", 1);
    const char *gap = len > 2 ? memchr(s + 1, ' ', len - 2) : NULL;
    int32_t left = -1, right = -1, result = -1;
    char joined[1024];
    if (gap && len - 1 <= sizeof joined) {
        size_t a = (size_t)(gap - s), b = len - a - 1;
        left = l->index.slot[probe(&l->index, s, a)];
        right = l->index.slot[probe(&l->index, gap + 1, b)];
        memcpy(joined, s, a);
        memcpy(joined + a, gap + 1, b);
        result = l->index.slot[probe(&l->index, joined, a + b)];
    }
    if (left < 0 || right < 0 || result < 0) {
        if (l->bad_merge < 0)
            l->bad_merge = i;
        return;
    }
    struct bpe_merge *m = &l->b->merge[merge_slot(l->b, left, right)];
    if (m->left < 0)
        *m = (struct bpe_merge){left, right, (int32_t)i, result};
}

static size_t table_size(int64_t n)
{
    size_t size = 1024;
    while (size < 2 * (size_t)n + 2)
        size *= 2;
    return size;
}

static int alloc_tables(struct loader *l, int64_t n_tokens, int64_t n_merges)
{
    struct bpe *b = l->b;
    b->n_tokens = (int)n_tokens;
    b->start = MEM_NEW(size_t, (size_t)n_tokens + 1);
    b->n_slots = table_size(n_merges);
    b->merge = MEM_NEW(struct bpe_merge, b->n_slots);
    l->index.n_slots = table_size(n_tokens);
    l->index.slot = MEM_NEW(int32_t, l->index.n_slots);
    l->index.name = MEM_NEW(struct bpe_text, (size_t)n_tokens);
    l->hash = XXH3_createState();
    if (!b->start || !b->merge || !l->index.slot || !l->index.name || !l->hash)
        return KVF_E_NOMEM;
    memset(l->index.slot, 0xff, l->index.n_slots * sizeof *l->index.slot);
    memset(b->merge, 0xff, b->n_slots * sizeof *b->merge);
    XXH3_128bits_reset(l->hash);
    return KVF_OK;
}

/* Some vocabularies lack tokens for bytes that UTF-8 text never or hardly holds:
 * such bytes are dropped before merging, as the reference tokenizer does. */
static void find_bytes(struct loader *l)
{
    for (int cp = 0; cp < ALPHABET; cp++) {
        char s[4];
        if (l->map[cp] >= 0)
            l->b->byte_id[l->map[cp]] =
                l->index.slot[probe(&l->index, s, utf8_encode((uint32_t)cp, s))];
    }
}

static int compile_numeral(struct bpe *b)
{
    int code;
    PCRE2_SIZE at;
    b->numeral = pcre2_compile((PCRE2_SPTR) "\\A\\p{N}", PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    return b->numeral ? KVF_OK : KVF_E_NOMEM;
}

int bpe_load(struct bpe *b, const struct gguf *g, char hash[33], struct kvf_diag *d)
{
    int64_t n_tokens = gguf_array_strings(g, "tokenizer.ggml.tokens");
    int64_t n_merges = gguf_array_strings(g, "tokenizer.ggml.merges");
    if (n_tokens < 1 || n_merges < 0 || n_tokens > 1 << 22 || n_merges > 1 << 22)
        return kvf_fail(d, KVF_E_FORMAT, "%s: the tokenizer's vocabulary or merges are missing",
                        gguf_path(g));
    struct loader l = {.b = b, .index = {.g = g}, .bad_merge = -1};
    byte_alphabet(l.map);
    int err = alloc_tables(&l, n_tokens, n_merges);
    if (err)
        goto done;
    gguf_each_str(g, "tokenizer.ggml.tokens", on_token, &l);
    gguf_each_str(g, "tokenizer.ggml.merges", on_merge, &l);
    find_bytes(&l);
    err = b->text.err;
    if (err)
        goto done;
    if (l.bad_merge >= 0) {
        err = kvf_fail(d, KVF_E_FORMAT, "%s: merge %lld names no tokens", gguf_path(g),
                       (long long)l.bad_merge);
        goto done;
    }
    err = compile_numeral(b);
    if (err)
        goto done;
    XXH128_hash_t h = XXH3_128bits_digest(l.hash);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);

done:
    XXH3_freeState(l.hash);
    mem_free(l.index.slot);
    mem_free(l.index.name);
    return err;
}

void bpe_finish(struct bpe *b)
{
    buf_finish(&b->text);
    mem_free(b->start);
    mem_free(b->merge);
    pcre2_code_free(b->numeral);
}

void bpe_scratch_finish(struct bpe_scratch *s)
{
    mem_free(s->node);
    mem_free(s->heap);
}

struct bpe_text bpe_token(const struct bpe *b, int32_t id)
{
    if (id < 0 || id >= b->n_tokens)
        return (struct bpe_text){"", 0};
    return (struct bpe_text){b->text.data + b->start[id], b->start[id + 1] - b->start[id]};
}

bool bpe_is_numeral(const struct bpe *b, const char *s, size_t n)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    int rc = m ? pcre2_match(b->numeral, (PCRE2_SPTR)s, n, 0, PCRE2_NO_UTF_CHECK, m, NULL) : -1;
    pcre2_match_data_free(m);
    return rc > 0;
}

static bool before(const struct bpe_cand *a, const struct bpe_cand *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct bpe_cand *heap, size_t *n, struct bpe_cand c)
{
    size_t i = (*n)++;
    for (; i > 0 && before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static struct bpe_cand pop(struct bpe_cand *heap, size_t *n)
{
    struct bpe_cand top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t c = 1; c < *n; c = 2 * i + 1) {
        if (c + 1 < *n && before(&heap[c + 1], &heap[c]))
            c++;
        if (!before(&heap[c], &last))
            break;
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = last;
    return top;
}

static void offer(const struct bpe *b, struct bpe_scratch *s, size_t *n_heap, int32_t at)
{
    int32_t next = at >= 0 ? s->node[at].next : -1;
    if (next < 0)
        return;
    const struct bpe_merge *m = &b->merge[merge_slot(b, s->node[at].id, s->node[next].id)];
    if (m->left >= 0)
        push(s->heap, n_heap, (struct bpe_cand){m->rank, at, m->left, m->right, m->result});
}

static int reserve(struct bpe_scratch *s, size_t n)
{
    if (n <= s->cap)
        return KVF_OK;
    bpe_scratch_finish(s);
    s->cap = 2 * n;
    s->node = MEM_NEW(struct bpe_node, s->cap);
    s->heap = MEM_NEW(struct bpe_cand, 3 * s->cap); /* one per pair, two per merge */
    return s->node && s->heap ? KVF_OK : KVF_E_NOMEM;
}

int bpe_encode(const struct bpe *b, const char *s, size_t n, struct bpe_scratch *x, struct buf *ids)
{
    size_t n_heap = 0;
    if (n == 0)
        return KVF_OK;
    int err = reserve(x, n);
    if (err)
        return err;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)s[i]] >= 0) {
            x->node[m] = (struct bpe_node){b->byte_id[(unsigned char)s[i]], (int32_t)m - 1,
                                           (int32_t)m + 1};
            m++;
        }
    n = m;
    if (n == 0)
        return KVF_OK;
    x->node[n - 1].next = -1;
    for (size_t i = 0; i + 1 < n; i++)
        offer(b, x, &n_heap, (int32_t)i);
    while (n_heap) {
        struct bpe_cand c = pop(x->heap, &n_heap);
        struct bpe_node *l = &x->node[c.at];
        if (l->id != c.left || l->next < 0 || x->node[l->next].id != c.right)
            continue; /* overtaken by another merge */
        int32_t gone = l->next;
        l->id = c.result;
        l->next = x->node[gone].next;
        x->node[gone].id = -1;
        if (l->next >= 0)
            x->node[l->next].prev = c.at;
        offer(b, x, &n_heap, l->prev);
        offer(b, x, &n_heap, c.at);
    }
    for (int32_t i = 0; i >= 0; i = x->node[i].next)
        buf_add(ids, &x->node[i].id, sizeof x->node[i].id);
    return ids->err;
}
