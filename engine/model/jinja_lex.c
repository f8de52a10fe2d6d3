/* jinja_lex.c - splits the text of a chat template into tokens. */
#include "engine/model/jinja_lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

size_t jinja_space(const char *s, size_t n)
{
    uint32_t c;
    size_t len = utf8_decode(s, n, &c);
    if (!len)
        return 0;
    if ((c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0)
        return len;
    bool is = c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029
              || c == 0x202f || c == 0x205f || c == 0x3000;
    return is ? len : 0;
}

size_t jinja_rstrip(const char *s, size_t n)
{
    while (n > 0) {
        size_t k = n - 1;
        while (k > 0 && n - k < 4 && ((unsigned char)s[k] & 0xc0) == 0x80)
            k--;
        if (jinja_space(s + k, n - k) != n - k)
            break;
        n = k;
    }
    return n;
}

/* Converts all line breaks to line feeds, and removes one at the end of the template. */
void jinja_lex_init(struct jinja_lexer *l, struct jinja *j, const char *text, size_t n)
{
    char *s = jinja_alloc(j, n + 1, 1);
    size_t k = 0;
    for (size_t i = 0; s && i < n; i++) {
        s[k] = text[i] == '\r' ? '\n' : text[i];
        k += text[i] != '\r' || i + 1 == n || text[i + 1] != '\n';
    }
    if (k > 0 && s[k - 1] == '\n')
        k--;
    *l = (struct jinja_lexer){.j = j, .s = s, .n = k, .line = 1, .line_begins = true};
    j->line = 1;
}

static void advance(struct jinja_lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->s[l->at + i] == '\n';
    l->at += n;
}

static char sign(const struct jinja_lexer *l, size_t at)
{
    return at < l->n ? l->s[at] : 0;
}

/* Skips the white space after a tag that the tag removes. how: sign before the end of the tag. */
static void after_tag(struct jinja_lexer *l, char how, bool block)
{
    size_t from = l->at, k = l->at;
    if (how == '-')
        for (size_t len = 1; len && k < l->n; k += len)
            len = jinja_space(l->s + k, l->n - k);
    else if (block && how != '+' && sign(l, k) == '\n')
        k++;
    l->line_begins = k > from && l->s[k - 1] == '\n';
    advance(l, k - from);
}

/* Returns the length of the text before a tag, without white space that the tag removes. */
static size_t before_tag(const struct jinja_lexer *l, size_t n, char tag, char how)
{
    const char *s = l->s + l->at;
    if (how == '-')
        return jinja_rstrip(s, n);
    if (how == '+' || tag == '{')
        return n;
    size_t line = n;
    while (line > 0 && s[line - 1] != '\n')
        line--;
    if (line == 0 && !l->line_begins)
        return n;
    size_t kept = jinja_rstrip(s, n);
    return kept > line ? n : line;
}

/* Skips a comment; the position is after its start. */
static void skip_comment(struct jinja_lexer *l)
{
    const char *s = l->s + l->at;
    const char *end = memmem(s, l->n - l->at, "#}", 2);
    if (!end) {
        l->j->line = l->line;
        jinja_error(l->j, KVF_E_FORMAT, "a comment has no end");
        return;
    }
    char how = end > s ? end[-1] : 0;
    advance(l, (size_t)(end - s) + 2);
    after_tag(l, how, true);
}

/* Reads the text up to the next tag, and enters the tag. Returns false if the text is empty. */
static bool lex_data(struct jinja_lexer *l, struct jinja_token *t)
{
    size_t k = l->at;
    while (k < l->n
           && !(l->s[k] == '{' && k + 1 < l->n && strchr("{%#", l->s[k + 1]) && l->s[k + 1]))
        k++;
    char tag = k < l->n ? l->s[k + 1] : 0, how = tag ? sign(l, k + 2) : 0;
    size_t n = k - l->at, kept = tag ? before_tag(l, n, tag, how) : n;
    *t = (struct jinja_token){JINJA_T_DATA, l->line, NULL, 0, 0, 0};
    if (kept)
        t->text = jinja_text(l->j, l->s + l->at, kept);
    advance(l, n);
    if (tag) {
        advance(l, how == '-' || how == '+' ? 3 : 2);
        l->line_begins = false;
    }
    if (tag == '#')
        skip_comment(l);
    else
        l->begins = tag;
    return kept > 0;
}

static void skip_space(struct jinja_lexer *l)
{
    for (size_t len = 1; len && l->at < l->n;) {
        len = jinja_space(l->s + l->at, l->n - l->at);
        advance(l, len);
    }
}

/* Reads the end of the present tag. Returns false if it does not end here. */
static bool lex_tag_end(struct jinja_lexer *l, struct jinja_token *t)
{
    bool block = l->tag == '%';
    char how = sign(l, l->at);
    if (how != '-' && (how != '+' || !block))
        how = 0;
    size_t k = l->at + (how != 0);
    if (l->brackets || k + 1 >= l->n || memcmp(l->s + k, block ? "%}" : "}}", 2) != 0)
        return false;
    t->type = block ? JINJA_T_BLOCK_END : JINJA_T_PRINT_END;
    l->tag = 0;
    advance(l, k + 2 - l->at);
    after_tag(l, how, block);
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void lex_name(struct jinja_lexer *l, struct jinja_token *t)
{
    size_t k = l->at;
    while (k < l->n && (is_letter(l->s[k]) || is_digit(l->s[k])))
        k++;
    t->type = JINJA_T_NAME;
    t->text = jinja_text(l->j, l->s + l->at, k - l->at);
    l->at = k;
}

static void lex_number(struct jinja_lexer *l, struct jinja_token *t)
{
    size_t k = l->at;
    bool behind_dot = k > 0 && l->s[k - 1] == '.';
    t->type = JINJA_T_INT;
    for (; k < l->n && is_digit(l->s[k]); k++)
        if (__builtin_mul_overflow(t->number, 10, &t->number)
            || __builtin_add_overflow(t->number, l->s[k] - '0', &t->number))
            jinja_error(l->j, KVF_E_LIMIT, "a number is too large");
    if (!behind_dot && sign(l, k) == '.' && is_digit(sign(l, k + 1))) {
        char text[40];
        t->type = JINJA_T_FLOAT;
        for (k++; k < l->n && is_digit(l->s[k]);)
            k++;
        size_t n = k - l->at < sizeof text ? k - l->at : sizeof text - 1;
        memcpy(text, l->s + l->at, n);
        text[n] = 0;
        t->real = strtod(text, NULL);
    }
    char c = sign(l, k);
    if (is_letter(c))
        jinja_error(l->j, KVF_E_FORMAT, "a number is written in a way that is not known");
    l->at = k;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Resolves \xHH, \uXXXX or \UXXXXXXXX; s points after the backslash. Returns the bytes consumed. */
static size_t escape_code(struct jinja_lexer *l, const char *s, size_t n, char *out, size_t *len)
{
    size_t digits = s[0] == 'x' ? 2 : 4;
    uint32_t cp = 0;
    if (s[0] == 'U')
        digits = 8;
    bool good = n > digits;
    for (size_t i = 1; good && i <= digits; i++) {
        int v = hex_value(s[i]);
        good = v >= 0 && cp < 1u << 24;
        cp = cp << 4 | (uint32_t)(v & 15);
    }
    if (!good || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) {
        jinja_error(l->j, KVF_E_FORMAT, "an escape in a string names no character");
        return 1;
    }
    *len += utf8_encode(cp, out + *len);
    return digits + 1;
}

/* Resolves an escape; s points after the backslash. Returns the bytes consumed. */
static size_t escape(struct jinja_lexer *l, const char *s, size_t n, char *out, size_t *len)
{
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    char c = s[0];
    const char *at = c ? strchr(from, c) : NULL;
    if (c == '\n')
        return 1;
    if (c == 'x' || c == 'u' || c == 'U')
        return escape_code(l, s, n, out, len);
    if (c == 'N' || is_digit(c)) {
        jinja_error(l->j, KVF_E_FORMAT, "the escape \\%c in a string is not known", c);
        return 1;
    }
    if (!at)
        out[(*len)++] = '\\';
    out[(*len)++] = at ? to[at - from] : c;
    return 1;
}

static void lex_string(struct jinja_lexer *l, struct jinja_token *t)
{
    char quote = l->s[l->at];
    size_t k = l->at + 1, len = 0;
    while (k < l->n && l->s[k] != quote)
        k += l->s[k] == '\\' ? 2 : 1;
    if (k >= l->n) {
        jinja_error(l->j, KVF_E_FORMAT, "a string has no end");
        return;
    }
    /* an escape is at least as long as its result */
    char *out = jinja_alloc(l->j, k - l->at, 1);
    for (size_t i = l->at + 1; out && i < k;) {
        if (l->s[i] == '\\')
            i += 1 + escape(l, l->s + i + 1, k - i - 1, out, &len);
        else
            out[len++] = l->s[i++];
    }
    t->type = JINJA_T_STRING;
    t->text = jinja_text(l->j, out ? out : "", len);
    advance(l, k + 1 - l->at);
}

static void lex_op(struct jinja_lexer *l, struct jinja_token *t)
{
    static const char two[] = "== != >= <= // ** ", one[] = "+-/*%~[](){}><=.:|,";
    char c = sign(l, l->at), next = sign(l, l->at + 1);
    t->type = JINJA_T_OP;
    for (const char *p = two; *p; p += 3)
        if (p[0] == c && p[1] == next)
            t->op = JINJA_OP(c, next);
    if (!t->op && c && strchr(one, c))
        t->op = c;
    if (!t->op) {
        jinja_error(l->j, KVF_E_FORMAT, "a tag has a sign that Jinja does not know");
        return;
    }
    l->at += t->op > 255 ? 2 : 1;
    if (strchr("([{", t->op > 255 ? 'x' : t->op))
        l->brackets++;
    else if (strchr(")]}", t->op > 255 ? 'x' : t->op) && l->brackets > 0)
        l->brackets--;
}

static void lex_in_tag(struct jinja_lexer *l, struct jinja_token *t)
{
    skip_space(l);
    t->line = l->j->line = l->line;
    char c = sign(l, l->at);
    if (l->at == l->n)
        jinja_error(l->j, KVF_E_FORMAT, "a tag has no end");
    else if (lex_tag_end(l, t))
        return;
    else if (is_letter(c))
        lex_name(l, t);
    else if (is_digit(c))
        lex_number(l, t);
    else if (c == '\'' || c == '"')
        lex_string(l, t);
    else
        lex_op(l, t);
}

struct jinja_token jinja_lex(struct jinja_lexer *l)
{
    static const struct jinja_token nothing = {JINJA_T_END, 0, NULL, 0, 0, 0};
    struct jinja_token t = nothing;
    t.line = l->line;
    while (!l->j->err && !l->tag && !l->begins && l->at < l->n)
        if (lex_data(l, &t))
            return t;
    t = nothing;
    t.line = l->line;
    if (!l->j->err && l->begins) {
        t.type = l->begins == '%' ? JINJA_T_BLOCK : JINJA_T_PRINT;
        l->tag = l->begins;
        l->begins = 0;
        l->brackets = 0;
    } else if (!l->j->err && l->tag) {
        lex_in_tag(l, &t);
    }
    return l->j->err ? nothing : t;
}
