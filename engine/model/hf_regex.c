/* hf_regex.c - converts regular expressions of tokenizer.json to PCRE2.
 *
 * They use Oniguruma's syntax. Constructs that PCRE2 interprets differently are rewritten (white
 * space, whose sets differ by U+180E; \u0041; the end of a line) or rejected.
 */
#include <stdbool.h>
#include <string.h>

#include "engine/model/hf_tokens.h"
#include "engine/model/white_space.h"

/* An expression that is being converted. */
struct regex {
    const char *s, *end;
    struct buf *out;
    bool set; /* inside [...] */
    bool bad;
};

static bool is_hex(char c)
{
    return c && strchr("0123456789abcdefABCDEF", c) != NULL;
}

/* Converts \u0041. */
static void four_digits(struct regex *r)
{
    if (r->end - r->s < 5) {
        r->bad = true;
        return;
    }
    for (int i = 1; i < 5; i++)
        r->bad = r->bad || !is_hex(r->s[i]);
    buf_str(r->out, "\\x{");
    buf_add(r->out, r->s + 1, 4);
    buf_char(r->out, '}');
    r->s += 5;
}

/* Copies \p{Lu}, \P{L} or \x{1F600}. */
static void braces(struct regex *r)
{
    const char *close = r->s + 1 < r->end && r->s[1] == '{'
                            ? memchr(r->s, '}', (size_t)(r->end - r->s))
                            : NULL;
    r->bad = !close || close - r->s > 24;
    for (const char *p = r->s + 2; close && p < close; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        bool caret = p == r->s + 2 && *p == '^' && *r->s != 'x';
        r->bad = r->bad || !(*r->s == 'x' ? is_hex(*p) : letter || caret);
    }
    if (r->bad)
        return;
    buf_char(r->out, '\\');
    buf_add(r->out, r->s, (size_t)(close + 1 - r->s));
    r->s = close + 1;
}

/* Converts \s, and \S outside of sets. */
static void white_space(struct regex *r, bool not )
{
    if (!r->set)
        buf_str(r->out, not ? "[^" : "[");
    buf_str(r->out, WHITE_SPACE);
    if (!r->set)
        buf_char(r->out, ']');
    r->s++;
}

/* Converts an escape; r->s points after the backslash. */
static void escape(struct regex *r)
{
    if (r->s == r->end) {
        r->bad = true;
        return;
    }
    char c = *r->s;
    if (c == 'u') {
        four_digits(r);
    } else if (c == 'p' || c == 'P' || c == 'x') {
        braces(r);
    } else if (c == 's' || (c == 'S' && !r->set)) {
        white_space(r, c == 'S');
    } else if (strchr("rntdD", c)
               || ((unsigned char)c < 0x80 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", c))) {
        buf_char(r->out, '\\');
        buf_char(r->out, c);
        r->s++;
    } else {
        r->bad = true;
    }
}

/* Copies the start of a group. Only known starts are accepted, so that no feature of only one
 * library passes. */
static void group(struct regex *r)
{
    static const char *const heads[] = {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if ((size_t)(r->end - r->s) >= n && memcmp(r->s, heads[i], n) == 0) {
            buf_str(r->out, heads[i]);
            r->s += n;
            return;
        }
    }
    r->bad = r->end - r->s >= 2 && (r->s[1] == '?' || r->s[1] == '*');
    if (!r->bad)
        buf_char(r->out, *r->s++);
}

static void sign(struct regex *r)
{
    char c = *r->s;
    bool doubled = r->end - r->s >= 2 && r->s[1] == c;
    if (r->set && (c == '[' || (c == '&' && doubled))) {
        r->bad = true; /* nested sets */
    } else if (c == '$' && !r->set) {
        buf_str(r->out, "(?=\\n|\\z)"); /* at the end of any line */
        r->s++;
    } else if (c == '^' && !r->set) {
        r->bad = true;
    } else if (c == '(' && !r->set) {
        group(r);
    } else {
        if (c == '[' && !r->set) {
            r->set = true;
            r->bad = r->end - r->s >= 2 && r->s[1] == ']';
            if (r->end - r->s >= 2 && r->s[1] == '^') {
                buf_char(r->out, *r->s++);
                r->bad = r->end - r->s >= 2 && r->s[1] == ']';
            }
            c = *r->s;
        } else if (c == ']') {
            r->set = false;
        }
        buf_char(r->out, c);
        r->s++;
    }
}

int hf_regex(const char *s, size_t n, struct buf *out, size_t *ret_at)
{
    struct regex r = {.s = s, .end = s + n, .out = out};
    while (r.s < r.end && !r.bad) {
        *ret_at = (size_t)(r.s - s);
        if (*r.s == '\\') {
            r.s++;
            escape(&r);
        } else {
            sign(&r);
        }
    }
    return r.bad || r.set || n == 0 ? KVF_E_FORMAT : KVF_OK;
}
