#include "base/json_tape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { DEEPEST = 64, LONGEST_NUMBER = 64 };

struct json_entry {
    uint32_t at;   /* of the first byte; of a text: the quote */
    uint32_t n;    /* bytes between the quotes or of the number; values in an array or object */
    uint32_t next; /* value behind this one in the same array or object; 0: it is the last */
    char kind;
    bool escaped; /* the text has a backslash */
    bool member;  /* of an object: the entry before it is its key */
};

struct parser {
    struct json_tape tape;
    const char *at, *end;
    uint32_t open[DEEPEST]; /* arrays and objects around the place */
    uint32_t last[DEEPEST]; /* the value that came last in each; 0: none yet */
    int depth;
    uint32_t key; /* the next value is that of this key; 0: it is none of a key */
};

/* The number of a new entry at the place; 0: memory is out. */
static uint32_t put(struct parser *p, char kind)
{
    struct json_tape *t = &p->tape;
    if (t->n == t->cap) {
        /* Large texts have a value for some 16 bytes. */
        uint32_t cap = t->cap + t->cap / 2
                       + (t->cap ? 0 : 1024 + (uint32_t)((p->end - t->text) / 16));
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

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* What stands behind a backslash. */
static bool take_escape(struct parser *p)
{
    if (p->at == p->end)
        return false;
    char c = *p->at++;
    if (c != 'u')
        return c && strchr("\"\\/bfnrt", c);
    for (int i = 0; i < 4; i++)
        if (p->at == p->end || !is_hex(*p->at++))
            return false;
    return true;
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

/* The key of a member, up to its value. */
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

/* Puts a new value into the array or object around it. */
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

/* Takes a value, or the beginning of one that is not empty.  *ret_inside: it is such a beginning,
 * and a value of it comes next. */
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
    if (p->depth == DEEPEST)
        return KVF_E_LIMIT;
    p->at++;
    skip_blanks(p);
    if (take(p, c == '{' ? '}' : ']'))
        return KVF_OK;
    p->open[p->depth] = v;
    p->last[p->depth++] = 0;
    *ret_inside = true;
    return c == '{' ? take_key(p) : KVF_OK;
}

/* Takes what follows a value: the ends of those around it, and a comma before the next one.
 * *ret_done: there is none. */
static int take_ends(struct parser *p, bool *ret_done)
{
    for (; p->depth > 0; p->depth--) {
        bool object = p->tape.entry[p->open[p->depth - 1]].kind == '{';
        skip_blanks(p);
        if (take(p, ','))
            return object ? take_key(p) : KVF_OK;
        if (!take(p, object ? '}' : ']'))
            return KVF_E_FORMAT;
    }
    *ret_done = true;
    return KVF_OK;
}

static int parse(struct parser *p)
{
    bool done = false, inside;
    put(p, 0); /* entry 0 is none */
    while (!done) {
        int err = take_value(p, &inside);
        if (!err && !inside)
            err = take_ends(p, &done);
        if (err)
            return err;
    }
    skip_blanks(p);
    return p->at == p->end ? KVF_OK : KVF_E_FORMAT;
}

int json_tape_open(const char *text, size_t n, struct json_tape *ret, struct kvf_diag *d)
{
    if (n > JSON_TAPE_MOST)
        return kvf_fail(d, KVF_E_LIMIT, "JSON of %zu bytes is over the limit of %d", n,
                        JSON_TAPE_MOST);
    if (!utf8_valid(text, n))
        return kvf_fail(d, KVF_E_FORMAT, "JSON is not valid UTF-8 text");
    struct parser p = {.tape = {.text = text, .n_text = n}, .at = text, .end = text + n};
    int err = parse(&p);
    if (err == KVF_E_FORMAT)
        kvf_fail(d, err, "not valid JSON near byte %zu", (size_t)(p.at - text));
    else if (err == KVF_E_LIMIT)
        kvf_fail(d, err, "JSON is nested deeper than %d at byte %zu", DEEPEST,
                 (size_t)(p.at - text));
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

static uint32_t hex4(const char *s)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)s[i];
        v = v * 16 + (c <= '9' ? c - 48u : (c | 32u) - 87u);
    }
    return v;
}

/* The character of the escape at s, behind its backslash; its length, or 0 for a half of one. */
static size_t unescape(const char *s, const char *end, uint32_t *ret)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (*s != 'u') {
        *ret = (unsigned char)to[strchr(from, *s) - from];
        return 1;
    }
    *ret = hex4(s + 1);
    if (*ret < 0xd800 || *ret > 0xdfff)
        return 5;
    if (*ret > 0xdbff || end - s < 11 || s[5] != '\\' || s[6] != 'u')
        return 0;
    uint32_t low = hex4(s + 7);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    return 11;
}

/* Compares a text with escapes. */
static bool equals_escaped(const char *s, const char *end, const char *text)
{
    while (s < end) {
        char utf8[4] = {*s};
        size_t taken = 1, n = 1;
        if (*s == '\\') {
            uint32_t cp = 0;
            taken = unescape(s + 1, end, &cp);
            n = taken ? utf8_encode(cp, utf8) : 0;
            taken++;
        }
        if (n == 0 || !utf8[0] || strncmp(text, utf8, n) != 0)
            return false;
        text += n;
        s += taken;
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
        const char *stop = memchr(s, '\\', (size_t)(end - s));
        buf_add(scratch, s, (size_t)((stop ? stop : end) - s));
        s = stop ? stop + 1 : end;
        uint32_t cp;
        char utf8[4];
        size_t n = stop ? unescape(s, end, &cp) : 0;
        if (stop && !n)
            return NULL;
        if (stop)
            buf_add(scratch, utf8, utf8_encode(cp, utf8));
        s += n;
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
    char text[LONGEST_NUMBER + 1];
    const struct json_entry *e = &t->entry[v];
    if (!v || e->kind || e->n > LONGEST_NUMBER)
        return otherwise;
    memcpy(text, t->text + e->at, e->n);
    text[e->n] = 0;
    return strtod(text, NULL);
}

int64_t json_tape_int(const struct json_tape *t, uint32_t v, int64_t otherwise)
{
    const struct json_entry *e = &t->entry[v];
    if (v && !e->kind && e->n <= 15) { /* most of them: digits alone */
        int64_t x = 0;
        uint32_t i = 0;
        for (; i < e->n && t->text[e->at + i] >= '0' && t->text[e->at + i] <= '9'; i++)
            x = x * 10 + (t->text[e->at + i] - '0');
        if (i == e->n)
            return x;
    }
    double x = json_tape_num(t, v, NAN);
    return x >= -9007199254740992.0 && x <= 9007199254740992.0 && x == floor(x) ? (int64_t)x
                                                                                : otherwise;
}
