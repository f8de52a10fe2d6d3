#include <string.h>

#include "base/json_check.h"
#include "base/utf8.h"

enum { DEEPEST = 64 };

struct text {
    const char *at, *end;
};

static bool one_of(char c, const char *list)
{
    return c && strchr(list, c) != NULL;
}

static void skip_blanks(struct text *x)
{
    while (x->at < x->end && one_of(*x->at, " \t\r\n"))
        x->at++;
}

static bool take(struct text *x, char c)
{
    bool there = x->at < x->end && *x->at == c;
    x->at += there;
    return there;
}

static bool take_any(struct text *x, const char *list)
{
    bool there = x->at < x->end && one_of(*x->at, list);
    x->at += there;
    return there;
}

/* What stands behind a backslash. */
static bool take_escape(struct text *x)
{
    if (!take(x, 'u'))
        return take_any(x, "\"\\/bfnrt");
    for (int i = 0; i < 4; i++)
        if (!take_any(x, "0123456789abcdefABCDEF"))
            return false;
    return true;
}

static bool take_string(struct text *x)
{
    if (!take(x, '"'))
        return false;
    while (x->at < x->end) {
        unsigned char c = (unsigned char)*x->at++;
        if (c == '"')
            return true;
        if (c < 0x20 || (c == '\\' && !take_escape(x)))
            return false;
    }
    return false;
}

static bool take_digits(struct text *x)
{
    const char *from = x->at;
    while (take_any(x, "0123456789"))
        continue;
    return x->at > from;
}

static bool take_number(struct text *x)
{
    take(x, '-');
    if (!take(x, '0') && !take_digits(x))
        return false;
    if (take(x, '.') && !take_digits(x))
        return false;
    if (!take_any(x, "eE"))
        return true;
    take_any(x, "+-");
    return take_digits(x);
}

static bool take_word(struct text *x, const char *word)
{
    size_t n = strlen(word);
    bool there = (size_t)(x->end - x->at) >= n && memcmp(x->at, word, n) == 0;
    x->at += there ? n : 0;
    return there;
}

static bool take_scalar(struct text *x)
{
    if (x->at < x->end && *x->at == '"')
        return take_string(x);
    return take_word(x, "true") || take_word(x, "false") || take_word(x, "null") || take_number(x);
}

/* The key of a member, up to its value. */
static bool take_key(struct text *x)
{
    skip_blanks(x);
    if (!take_string(x))
        return false;
    skip_blanks(x);
    return take(x, ':');
}

/* Objects and arrays around the place that was reached, from outside in: their closing brackets. */
struct around {
    char close[DEEPEST];
    int n;
};

/* Takes a value, or the beginning of one that is not empty.  *ret_inside: it is such a beginning,
 * and a value of it comes next. */
static bool take_value(struct text *x, struct around *a, bool *ret_inside)
{
    *ret_inside = false;
    skip_blanks(x);
    bool object = take(x, '{');
    if (!object && !take(x, '['))
        return take_scalar(x);
    const char close = object ? '}' : ']';
    skip_blanks(x);
    if (a->n == DEEPEST)
        return false;
    if (take(x, close))
        return true;
    a->close[a->n++] = close;
    *ret_inside = true;
    return !object || take_key(x);
}

/* Takes what follows a value: the ends of those around it, and a comma before the next one.
 * *ret_done: there is none. */
static bool take_ends(struct text *x, struct around *a, bool *ret_done)
{
    for (*ret_done = false; a->n > 0; a->n--) {
        const char close = a->close[a->n - 1];
        skip_blanks(x);
        if (take(x, ','))
            return close == ']' || take_key(x);
        if (!take(x, close))
            return false;
    }
    *ret_done = true;
    return true;
}

bool json_check(const char *text, size_t n)
{
    struct text x = {text, text + n};
    struct around a = {.n = 0};
    bool good = utf8_valid(text, n), inside, done = false;
    while (good && !done) {
        good = take_value(&x, &a, &inside);
        if (good && !inside)
            good = take_ends(&x, &a, &done);
    }
    skip_blanks(&x);
    return good && x.at == x.end;
}

bool json_check_object(const char *text, size_t n)
{
    struct text x = {text, text + n};
    skip_blanks(&x);
    return x.at < x.end && *x.at == '{' && json_check(text, n);
}
