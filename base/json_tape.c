/* json_tape.c - the grammar of JSON (RFC 8259), and the tape of the values of a text.
 *
 * json_check, json_tape_open and json_parse (json.c) all run the parser below.  It keeps the arrays
 * and objects around a place on a stack of its own, so that no text makes it recurse. */
#include "base/json_tape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct json_entry {
    uint32_t at;   /* first byte of the value; of a text: the quote */
    uint32_t n;    /* bytes between the quotes or of the number; values in an array or object */
    uint32_t next; /* next value of the same array or object; 0: this is the last */
    char kind;
    bool escaped; /* the text has a backslash */
    bool member;  /* of an object: the entry before it is its key */
};

struct parser {
    struct json_tape tape;
    const char *at, *end;
    const char *half, *number;   /* the first half of a character, the first number out of range */
    uint32_t open[JSON_DEEPEST]; /* arrays and objects around the place */
    uint32_t last[JSON_DEEPEST]; /* the newest value of each; 0: it has no value yet */
    char close[JSON_DEEPEST];    /* the bracket that ends each */
    int depth;
    uint32_t key;    /* key of the next value; 0: it has no key */
    bool done;       /* the value is complete */
    bool only_check; /* overwrite entry 1 with every value */
};

/* Adds an entry at the place and returns its number; 0: memory is out. */
static uint32_t put(struct parser *p, char kind)
{
    struct json_tape *t = &p->tape;
    if (p->only_check)
        t->n = 1;
    if (t->n == t->cap) {
        /* A text has a value for some 16 bytes. */
        uint32_t cap = t->cap + t->cap / 2
                       + (t->cap ? 0 : 16 + (uint32_t)((p->end - t->text) / 16));
        struct json_entry *grown = mem_grow(t->entry, t->cap, cap, sizeof *t->entry);
        if (!grown)
            return 0;
        t->entry = grown;
        t->cap = cap;
    }
    t->entry[t->n] = (struct json_entry){.at = (uint32_t)(p->at - t->text), .kind = kind};
    return t->n++;
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

/* Sets *ret to the number that four hexadecimal digits spell.  Returns false if s has other bytes.
 */
static bool hex4(const char *s, const char *end, uint32_t *ret)
{
    uint32_t v = 0;
    if (end - s < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)s[i], low = c | 32u;
        bool digit = c >= '0' && c <= '9';
        if (!digit && (low < 'a' || low > 'f'))
            return false;
        v = v * 16 + (digit ? c - '0' : low - 'a' + 10);
    }
    *ret = v;
    return true;
}

static bool is_half(uint32_t cp)
{
    return cp >= 0xd800 && cp <= 0xdfff;
}

/* Sets *ret to the character of the escape at s, the byte after its backslash.  A
 * surrogate that is not in a pair gives itself.  Returns the length of the escape, or 0 if it is
 * not one. */
static size_t unescape(const char *s, const char *end, uint32_t *ret)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t low;
    if (s == end || *s != 'u') {
        const char *at = s < end && *s ? strchr(from, *s) : NULL;
        *ret = at ? (unsigned char)to[at - from] : 0;
        return at != NULL;
    }
    if (!hex4(s + 1, end, ret))
        return 0;
    bool pair = *ret >= 0xd800 && *ret <= 0xdbff && end - s > 6 && s[5] == '\\' && s[6] == 'u'
                && hex4(s + 7, end, &low) && low >= 0xdc00 && low <= 0xdfff;
    if (pair)
        *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    return pair ? 11 : 5;
}

static bool take_escape(struct parser *p)
{
    uint32_t cp;
    size_t n = unescape(p->at, p->end, &cp);
    if (n && is_half(cp) && !p->half)
        p->half = p->at - 1;
    if (n && cp == 0)
        p->tape.has_nul = true;
    p->at += n;
    return n > 0;
}

static int take_text(struct parser *p, uint32_t v)
{
    struct json_entry *e = &p->tape.entry[v];
    const char *from = ++p->at;
    while (p->at < p->end && *p->at != '"') {
        unsigned char c = (unsigned char)*p->at++;
        if (c < 0x20)
            return KVF_E_FORMAT;
        if (c != '\\')
            continue;
        e->escaped = true;
        if (!take_escape(p))
            return KVF_E_FORMAT;
    }
    if (p->at == p->end)
        return KVF_E_FORMAT;
    e->n = (uint32_t)(p->at++ - from);
    return KVF_OK;
}

static bool take_digits(struct parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > from;
}

static bool take(struct parser *p, char c)
{
    bool there = p->at < p->end && *p->at == c;
    p->at += there;
    return there;
}

/* Returns whether a number fits into JSON_NUMBER characters and is finite as a double. */
static bool in_range(const char *s, size_t n)
{
    char text[JSON_NUMBER + 1];
    if (n > JSON_NUMBER || !(memchr(s, 'e', n) || memchr(s, 'E', n)))
        return n <= JSON_NUMBER;
    memcpy(text, s, n);
    text[n] = 0;
    return isfinite(strtod(text, NULL));
}

static int take_number(struct parser *p, uint32_t v)
{
    const char *from = p->at;
    take(p, '-');
    if (!take(p, '0') && !take_digits(p))
        return KVF_E_FORMAT;
    if (take(p, '.') && !take_digits(p))
        return KVF_E_FORMAT;
    if (take(p, 'e') || take(p, 'E')) {
        if (!take(p, '+'))
            take(p, '-');
        if (!take_digits(p))
            return KVF_E_FORMAT;
    }
    p->tape.entry[v].n = (uint32_t)(p->at - from);
    if (!p->number && !in_range(from, p->tape.entry[v].n))
        p->number = from;
    return KVF_OK;
}

static int take_word(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return KVF_E_FORMAT;
    p->at += n;
    return KVF_OK;
}

static int take_scalar(struct parser *p, uint32_t v)
{
    switch (p->tape.entry[v].kind) {
    case '"':
        return take_text(p, v);
    case 't':
        return take_word(p, "true");
    case 'f':
        return take_word(p, "false");
    case 'n':
        return take_word(p, "null");
    default:
        return take_number(p, v);
    }
}

/* Reads the key of a member and its colon. */
static int take_key(struct parser *p)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at != '"')
        return KVF_E_FORMAT;
    p->key = put(p, '"');
    if (!p->key)
        return KVF_E_NOMEM;
    int err = take_text(p, p->key);
    skip_blanks(p);
    if (!err && !take(p, ':'))
        err = KVF_E_FORMAT;
    return err;
}

/* Adds a new value to the array or object around it. */
static void link(struct parser *p, uint32_t v)
{
    struct json_entry *entry = p->tape.entry;
    entry[v].member = p->key != 0;
    p->key = 0;
    if (p->depth == 0)
        return;
    uint32_t *last = &p->last[p->depth - 1];
    if (*last)
        entry[*last].next = v;
    *last = v;
    entry[p->open[p->depth - 1]].n++;
}

/* Reads a value, or the first bracket of an array or object that is not empty.  *ret_inside: it
 * read such a bracket, and the next value belongs to it. */
static int take_value(struct parser *p, bool *ret_inside)
{
    *ret_inside = false;
    skip_blanks(p);
    if (p->at == p->end)
        return KVF_E_FORMAT;
    char c = *p->at;
    bool holds = c == '{' || c == '[';
    uint32_t v = put(p, holds || (c && strchr("\"tfn", c)) ? c : 0);
    if (!v)
        return KVF_E_NOMEM;
    link(p, v);
    if (!holds)
        return take_scalar(p, v);
    const char close = c == '{' ? '}' : ']';
    if (p->depth == JSON_DEEPEST)
        return KVF_E_LIMIT;
    p->at++;
    skip_blanks(p);
    if (take(p, close))
        return KVF_OK;
    p->close[p->depth] = close;
    p->open[p->depth] = v;
    p->last[p->depth++] = 0;
    *ret_inside = true;
    return c == '{' ? take_key(p) : KVF_OK;
}

/* Reads the closing brackets after a value and the comma before the next one.  *ret_done: the text
 * has no further value. */
static int take_ends(struct parser *p, bool *ret_done)
{
    for (; p->depth > 0; p->depth--) {
        const char close = p->close[p->depth - 1];
        skip_blanks(p);
        if (take(p, ','))
            return close == '}' ? take_key(p) : KVF_OK;
        if (!take(p, close))
            return KVF_E_FORMAT;
    }
    *ret_done = true;
    return KVF_OK;
}

static int parse(struct parser *p)
{
    bool done = false, inside;
    put(p, 0); /* entry 0 is not a value */
    while (!done) {
        int err = take_value(p, &inside);
        if (!err && !inside)
            err = take_ends(p, &done);
        if (err)
            return err;
    }
    skip_blanks(p);
    p->done = true;
    return p->at == p->end ? KVF_OK : KVF_E_FORMAT;
}

bool json_check(const char *text, size_t n)
{
    struct json_entry entry[2];
    struct parser p = {.tape = {.text = text, .n_text = n, .entry = entry, .cap = 2},
                       .at = text,
                       .end = text + n,
                       .only_check = true};
    return utf8_valid(text, n) && parse(&p) == KVF_OK;
}

bool json_check_object(const char *text, size_t n)
{
    struct parser p = {.at = text, .end = text + n};
    skip_blanks(&p);
    return take(&p, '{') && json_check(text, n);
}

/* ---- keys that repeat */

struct key {
    uint64_t hash;
    const char *s, *end; /* between the quotes */
};

/* Writes the next character of a text with escapes to utf8, and returns the number of its bytes. */
static size_t take_char(const char **s, const char *end, char utf8[4])
{
    uint32_t cp = 0;
    utf8[0] = **s;
    if (*(*s)++ != '\\')
        return 1;
    *s += unescape(*s, end, &cp);
    return utf8_encode(cp, utf8);
}

/* Returns the FNV-1a hash of a text whose escapes are decoded. */
static uint64_t hash_of(const char *s, const char *end)
{
    const uint64_t prime = 0x100000001b3u;
    uint64_t h = 0xcbf29ce484222325u;
    while (s < end) {
        char utf8[4] = {*s};
        size_t n = 1;
        if (*s == '\\')
            n = take_char(&s, end, utf8);
        else
            s++;
        for (size_t i = 0; i < n; i++)
            h = (h ^ (unsigned char)utf8[i]) * prime;
    }
    return h ^ h >> 32;
}

/* Orders texts by their bytes after escapes are decoded. */
static int compare_texts(const struct key *a, const struct key *b)
{
    const char *s = a->s, *t = b->s;
    char x[4], y[4];
    size_t n = 0, m = 0, i = 0, k = 0;
    for (;;) {
        if (i == n) {
            i = 0;
            n = s < a->end ? take_char(&s, a->end, x) : 0;
        }
        if (k == m) {
            k = 0;
            m = t < b->end ? take_char(&t, b->end, y) : 0;
        }
        if (n == 0 || m == 0)
            return (n > 0) - (m > 0);
        if (x[i] != y[k])
            return (unsigned char)x[i] < (unsigned char)y[k] ? -1 : 1;
        i++;
        k++;
    }
}

/* Orders keys by hash, equal ones by place. */
static int by_hash(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int order = x->hash < y->hash ? -1 : x->hash > y->hash;
    if (!order)
        order = compare_texts(x, y);
    return order ? order : (x->s > y->s) - (x->s < y->s);
}

/* The keys of an object: `from` in their order, `to` sorted into buckets by hash. */
struct keys {
    struct key *from, *to;
    uint32_t *begin; /* [buckets + 1] of `to` */
    size_t cap;      /* keys that fit */
};

static size_t buckets_for(size_t n)
{
    size_t b = 1;
    while (b < n)
        b *= 2;
    return b;
}

static int reserve_keys(struct keys *k, size_t n)
{
    if (n <= k->cap)
        return KVF_OK;
    mem_free_all(k->from, k->to, k->begin);
    *k = (struct keys){MEM_NEW(struct key, n), MEM_NEW(struct key, n),
                       MEM_NEW(uint32_t, buckets_for(n) + 1), n};
    return k->from && k->to && k->begin ? KVF_OK : KVF_E_NOMEM;
}

/* Sets *ret to the first key that repeats an earlier key of the object, if the object has one.  The
 * time grows linearly with the keys: each is compared within the bucket of its hash.  A bucket is
 * sorted, so that hashes chosen to collide cost n log n. */
static int find_repeat(const struct json_tape *t, uint32_t object, struct keys *k, struct key *ret)
{
    size_t n = t->entry[object].n, mask = buckets_for(n) - 1, i = 0;
    int err = reserve_keys(k, n);
    if (err)
        return err;
    memset(k->begin, 0, (mask + 2) * sizeof *k->begin);
    for (uint32_t v = json_tape_first(t, object); v; v = t->entry[v].next) {
        const struct json_entry *e = &t->entry[v - 1];
        const char *s = t->text + e->at + 1;
        k->from[i] = (struct key){hash_of(s, s + e->n), s, s + e->n};
        k->begin[k->from[i++].hash & mask]++;
    }
    for (size_t b = 1; b <= mask + 1; b++)
        k->begin[b] += k->begin[b - 1];
    for (i = 0; i < n; i++)
        k->to[--k->begin[k->from[i].hash & mask]] = k->from[i];
    for (size_t b = 0; b <= mask; b++) {
        struct key *key = &k->to[k->begin[b]];
        size_t m = k->begin[b + 1] - k->begin[b];
        if (m > 1)
            qsort(key, m, sizeof *key, by_hash);
        for (i = 1; i < m; i++)
            if (key[i].hash == key[i - 1].hash && compare_texts(&key[i], &key[i - 1]) == 0
                && (!ret->s || key[i].s < ret->s))
                *ret = key[i];
    }
    return KVF_OK;
}

static int reject_repeats(const struct json_tape *t, struct kvf_diag *d)
{
    struct keys k = {.cap = 0};
    struct key repeat = {.s = NULL};
    int err = KVF_OK;
    for (uint32_t v = 1; v < t->n && !err && !repeat.s; v++)
        if (t->entry[v].kind == '{' && t->entry[v].n > 1)
            err = find_repeat(t, v, &k, &repeat);
    mem_free_all(k.from, k.to, k.begin);
    if (err || !repeat.s)
        return err;
    size_t n = (size_t)(repeat.end - repeat.s);
    return kvf_fail(d, KVF_E_FORMAT, "JSON repeats the key \"%.*s\" at byte %zu",
                    (int)(n < 80 ? n : 80), repeat.s, (size_t)(repeat.s - 1 - t->text));
}

/* ---- the tape */

/* KVF_E_FORMAT with a sentence if the bytes are not UTF-8. */
static int check_utf8(const char *text, size_t n, struct kvf_diag *d)
{
    size_t at = 0, len = 1;
    uint32_t cp;
    if (utf8_valid(text, n))
        return KVF_OK;
    for (; at < n && len; at += len)
        len = utf8_decode(text + at, n - at, &cp);
    return kvf_fail(d, KVF_E_FORMAT, "JSON is not valid UTF-8 text at byte %zu", at);
}

/* Returns `err` of the parser with a sentence, or the error of a check that the grammar does not
 * have: surrogates, the range of numbers, repeated keys. */
static int judge(const struct parser *p, int err, struct kvf_diag *d)
{
    const char *text = p->tape.text;
    size_t at = (size_t)(p->at - text);
    bool whole = err == KVF_E_FORMAT && p->done;
    if (err == KVF_E_LIMIT)
        return kvf_fail(d, err, "JSON is nested deeper than %d at byte %zu", JSON_DEEPEST, at);
    if (err == KVF_E_FORMAT)
        return kvf_fail(
            d, err,
            whole ? "text after the JSON value at byte %zu" : "not valid JSON near byte %zu", at);
    if (!err && p->half)
        return kvf_fail(d, KVF_E_FORMAT, "half of a character (a lone surrogate) at byte %zu",
                        (size_t)(p->half - text));
    if (!err && p->number)
        return kvf_fail(d, KVF_E_FORMAT,
                        "the number at byte %zu is out of range, or longer than %d characters",
                        (size_t)(p->number - text), JSON_NUMBER);
    return err ? err : reject_repeats(&p->tape, d);
}

int json_tape_open(const char *text, size_t n, size_t most, struct json_tape *ret,
                   struct kvf_diag *d)
{
    size_t mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (n > most)
        return kvf_fail(d, KVF_E_LIMIT, "JSON of %zu bytes is over the limit of %zu", n, most);
    struct parser p = {.tape = {.text = text, .n_text = n}, .at = text + mark, .end = text + n};
    int err = check_utf8(text, n, d);
    if (err)
        return err;
    err = judge(&p, parse(&p), d);
    if (err)
        json_tape_finish(&p.tape);
    else
        *ret = p.tape;
    return err;
}

void json_tape_finish(struct json_tape *t)
{
    mem_free(t->entry);
}

int json_tape_reject_nul(const struct json_tape *t, struct kvf_diag *d)
{
    return t->has_nul
               ? kvf_fail(d, KVF_E_FORMAT, "a text contains a NUL character (\\u0000); remove it")
               : KVF_OK;
}

char json_tape_kind(const struct json_tape *t, uint32_t v)
{
    return v ? t->entry[v].kind : '?';
}

static bool holds_values(const struct json_tape *t, uint32_t v)
{
    return v && (t->entry[v].kind == '{' || t->entry[v].kind == '[');
}

uint32_t json_tape_count(const struct json_tape *t, uint32_t v)
{
    return holds_values(t, v) ? t->entry[v].n : 0;
}

uint32_t json_tape_first(const struct json_tape *t, uint32_t v)
{
    if (json_tape_count(t, v) == 0)
        return 0;
    return t->entry[v].kind == '{' ? v + 2 : v + 1;
}

uint32_t json_tape_next(const struct json_tape *t, uint32_t v)
{
    return v ? t->entry[v].next : 0;
}

/* Returns whether a JSON text with escapes equals a C string. */
static bool equals_escaped(const char *s, const char *end, const char *text)
{
    while (s < end) {
        char utf8[4];
        size_t n = take_char(&s, end, utf8);
        if (!utf8[0] || strncmp(text, utf8, n) != 0)
            return false;
        text += n;
    }
    return !*text;
}

static bool equals(const struct json_tape *t, uint32_t v, const char *text)
{
    const struct json_entry *e = &t->entry[v];
    const char *s = t->text + e->at + 1;
    if (e->escaped)
        return equals_escaped(s, s + e->n, text);
    return e->n == strlen(text) && memcmp(s, text, e->n) == 0;
}

uint32_t json_tape_get(const struct json_tape *t, uint32_t object, const char *key)
{
    if (json_tape_kind(t, object) != '{')
        return 0;
    uint32_t v = json_tape_first(t, object);
    while (v && !equals(t, v - 1, key))
        v = t->entry[v].next;
    return v;
}

bool json_tape_is(const struct json_tape *t, uint32_t v, const char *text)
{
    return json_tape_kind(t, v) == '"' && equals(t, v, text);
}

static const char *text_of(const struct json_tape *t, uint32_t v, struct buf *scratch,
                           size_t *ret_n)
{
    const struct json_entry *e = &t->entry[v];
    const char *s = t->text + e->at + 1, *end = s + e->n;
    if (!e->escaped) {
        *ret_n = e->n;
        return s;
    }
    buf_clear(scratch);
    buf_add(scratch, "", 0);
    while (s < end) {
        char utf8[4];
        size_t n = take_char(&s, end, utf8);
        buf_add(scratch, utf8, n);
    }
    *ret_n = scratch->len;
    return scratch->err ? NULL : scratch->data;
}

const char *json_tape_str(const struct json_tape *t, uint32_t v, struct buf *scratch, size_t *ret_n)
{
    return json_tape_kind(t, v) == '"' ? text_of(t, v, scratch, ret_n) : NULL;
}

const char *json_tape_key(const struct json_tape *t, uint32_t v, struct buf *scratch, size_t *ret_n)
{
    return v && t->entry[v].member ? text_of(t, v - 1, scratch, ret_n) : NULL;
}

bool json_tape_bool(const struct json_tape *t, uint32_t v, bool otherwise)
{
    char kind = json_tape_kind(t, v);
    return kind == 't' || (kind != 'f' && otherwise);
}

const char *json_tape_number(const struct json_tape *t, uint32_t v, size_t *ret_n)
{
    const struct json_entry *e = &t->entry[v];
    *ret_n = v && !e->kind ? e->n : 0;
    return t->text + e->at;
}

double json_tape_num(const struct json_tape *t, uint32_t v, double otherwise)
{
    char text[JSON_NUMBER + 1];
    const struct json_entry *e = &t->entry[v];
    if (!v || e->kind || e->n > JSON_NUMBER)
        return otherwise;
    memcpy(text, t->text + e->at, e->n);
    text[e->n] = 0;
    return strtod(text, NULL);
}

int64_t json_tape_int(const struct json_tape *t, uint32_t v, int64_t otherwise)
{
    const struct json_entry *e = &t->entry[v];
    if (v && !e->kind && e->n <= 15) { /* the common case: only digits */
        int64_t x = 0;
        uint32_t i = 0;
        for (; i < e->n && t->text[e->at + i] >= '0' && t->text[e->at + i] <= '9'; i++)
            x = x * 10 + (t->text[e->at + i] - '0');
        if (i == e->n)
            return x;
    }
    double x = json_tape_num(t, v, NAN);
    return x >= -9007199254740992.0 && x <= 9007199254740992.0 && (double)(int64_t)x == x
               ? (int64_t)x
               : otherwise;
}
