/* jinja_text.c - operations on texts with the results of Python. */
#include "engine/model/jinja_words.h"

#include <string.h>

#include "engine/model/jinja_lex.h"

static const struct jinja_text nothing = {"", 0, NULL, 0};

static bool in_set(const struct jinja_text *set, const char *s, size_t len)
{
    for (size_t i = 0; i < set->n; i += jinja_char(set->s + i, set->n - i))
        if (jinja_char(set->s + i, set->n - i) == len && memcmp(set->s + i, s, len) == 0)
            return true;
    return false;
}

/* Returns the bytes of the character at s if it is to be stripped; otherwise 0. */
static size_t stripped(const char *s, size_t n, const struct jinja_text *chars)
{
    if (!chars)
        return jinja_space(s, n);
    size_t len = jinja_char(s, n);
    return in_set(chars, s, len) ? len : 0;
}

const struct jinja_text *jinja_strip(struct jinja *j, const struct jinja_text *t,
                                     const struct jinja_text *chars, int side)
{
    size_t a = 0, b = t->n;
    if (!jinja_work(j, 1 + t->n / 16 * (chars ? 1 + chars->n : 1)))
        return &nothing;
    while (side <= 0 && a < b) {
        size_t len = stripped(t->s + a, b - a, chars);
        if (!len)
            break;
        a += len;
    }
    while (side >= 0 && b > a) {
        size_t k = b - 1;
        while (k > a && b - k < 4 && ((unsigned char)t->s[k] & 0xc0) == 0x80)
            k--;
        k = jinja_char(t->s + k, b - k) == b - k ? k : b - 1;
        if (stripped(t->s + k, b - k, chars) != b - k)
            break;
        b = k;
    }
    return jinja_cut(j, t, a, b);
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

const struct jinja_text *jinja_case(struct jinja *j, const struct jinja_text *t, char what)
{
    char *s = jinja_alloc(j, t->n, 1);
    bool inside = false; /* inside a word, or after the first character */
    for (size_t i = 0; s && i < t->n; i++) {
        char c = t->s[i];
        if ((unsigned char)c >= 0x80) {
            jinja_error(j, KVF_E_FORMAT,
                        "the case of letters beyond ASCII is changed, which is not done here");
            break;
        }
        bool up = what == 'u' || ((what == 't' || what == 'c') && !inside);
        inside = what == 'c' || is_lower(c) || is_upper(c);
        if (up && is_lower(c))
            c = (char)(c - 32);
        else if (!up && is_upper(c))
            c = (char)(c + 32);
        s[i] = c;
    }
    return j->err || !s ? &nothing : jinja_text(j, s, t->n);
}

int64_t jinja_place(struct jinja *j, const struct jinja_text *t, const struct jinja_text *what,
                    bool last)
{
    int64_t found = -1;
    size_t from = 0;
    jinja_work(j, 1 + t->n / 16);
    do {
        const char *at = what->n <= t->n - from ? memmem(t->s + from, t->n - from, what->s, what->n)
                                                : NULL;
        if (!at || !jinja_work(j, 1))
            break;
        found = at - t->s;
        from = (size_t)found + 1;
    } while (last && from <= t->n);
    return found;
}

const struct jinja_text *jinja_replace(struct jinja *j, const struct jinja_text *t,
                                       const struct jinja_text *from, const struct jinja_text *to,
                                       int64_t most)
{
    struct jinja_out out = {0};
    size_t done = 0;
    if (from->n == 0) {
        jinja_error(j, KVF_E_FORMAT, "an empty text is replaced, which is not done here");
        return &nothing;
    }
    if (!jinja_work(j, 1 + t->n / 16))
        return &nothing;
    for (int64_t k = 0; !j->err && (most < 0 || k < most); k++) {
        const char *at = memmem(t->s + done, t->n - done, from->s, from->n);
        if (!at)
            break;
        jinja_put(j, &out, jinja_cut(j, t, done, (size_t)(at - t->s)));
        jinja_put(j, &out, to);
        done = (size_t)(at - t->s) + from->n;
    }
    if (done == 0)
        return t;
    jinja_put(j, &out, jinja_cut(j, t, done, t->n));
    return jinja_taken(j, &out);
}

/* Finds the piece of t from *at up to the next separator. Returns false if there is none. */
static bool next_piece(const struct jinja_text *t, const struct jinja_text *sep, bool rest,
                       size_t *at, size_t *from, size_t *to)
{
    size_t k = *at;
    if (sep) {
        if (k > t->n)
            return false;
        const char *end = rest ? NULL : memmem(t->s + k, t->n - k, sep->s, sep->n);
        *from = k;
        *to = end ? (size_t)(end - t->s) : t->n;
        *at = end ? *to + sep->n : t->n + 1;
        return true;
    }
    for (size_t len = 1; len && k < t->n; k += len)
        len = jinja_space(t->s + k, t->n - k);
    if (k >= t->n)
        return false;
    *from = k;
    while (k < t->n && (rest || !jinja_space(t->s + k, t->n - k)))
        k += jinja_char(t->s + k, t->n - k);
    *to = k;
    *at = k;
    return true;
}

struct jinja_value jinja_split(struct jinja *j, const struct jinja_text *t,
                               const struct jinja_text *sep, int64_t most)
{
    size_t at = 0, from = 0, to = 0;
    int n = 0;
    if (sep && sep->n == 0)
        return jinja_error(j, KVF_E_FORMAT, "a text is split at an empty one");
    if (!jinja_work(j, 1 + t->n / 8))
        return jinja_none();
    while (n < INT32_MAX && next_piece(t, sep, most >= 0 && n >= most, &at, &from, &to))
        n++;
    struct jinja_value list = jinja_list(j, n);
    at = 0;
    for (int k = 0; !j->err && k < n; k++) {
        next_piece(t, sep, most >= 0 && k >= most, &at, &from, &to);
        list.u.list->item[k] = jinja_of_text(jinja_cut(j, t, from, to));
    }
    return list;
}

struct jinja_value jinja_rsplit(struct jinja *j, const struct jinja_text *t,
                                const struct jinja_text *sep, int64_t most)
{
    if (most < 0)
        return jinja_split(j, t, sep, -1);
    if (!sep || sep->n == 0 || most != 1)
        return jinja_error(j, KVF_E_FORMAT, "rsplit is supported here only with a text and 1");
    int64_t place = jinja_place(j, t, sep, true);
    struct jinja_value list = jinja_list(j, place < 0 ? 1 : 2);
    if (j->err)
        return list;
    if (place < 0) {
        list.u.list->item[0] = jinja_of_text(t);
        return list;
    }
    list.u.list->item[0] = jinja_of_text(jinja_cut(j, t, 0, (size_t)place));
    list.u.list->item[1] = jinja_of_text(jinja_cut(j, t, (size_t)place + sep->n, t->n));
    return list;
}

struct jinja_value jinja_joined(struct jinja *j, const struct jinja_text *between,
                                const struct jinja_list *list)
{
    struct jinja_out out = {0};
    for (int i = 0; !j->err && i < list->n; i++) {
        if (i > 0)
            jinja_put(j, &out, between);
        jinja_put(j, &out, jinja_printed(j, &list->item[i]));
    }
    return jinja_of_text(jinja_taken(j, &out));
}

/* Computes Python's slice.indices: the first index and the step. Returns the number of indices. */
static int64_t slice_range(struct jinja *j, const struct jinja_value part[3], int64_t n,
                           int64_t *ret_first, int64_t *ret_step)
{
    bool given[3];
    int64_t v[3] = {0, 0, 1};
    for (int k = 0; k < 3; k++) {
        given[k] = part[k].type != JINJA_NONE;
        if (given[k] && part[k].type != JINJA_INT && part[k].type != JINJA_BOOL)
            jinja_error(j, KVF_E_FORMAT, "a part of a slice is %s", jinja_type_name(&part[k]));
        else if (given[k])
            v[k] = part[k].type == JINJA_INT ? part[k].u.i : part[k].u.b;
    }
    int64_t step = v[2];
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
        jinja_error(j, KVF_E_FORMAT, "the step of a slice is 0 or too large");
    if (j->err)
        return 0;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t bound[2] = {step < 0 ? high : low, step < 0 ? low : high};
    for (int k = 0; k < 2; k++) {
        if (!given[k])
            continue;
        int64_t x = v[k] < 0 ? v[k] + n : v[k];
        x = x < low ? low : x;
        bound[k] = x > high ? high : x;
    }
    int64_t span = step > 0 ? bound[1] - bound[0] : bound[0] - bound[1];
    int64_t stride = step > 0 ? step : -step;
    *ret_first = bound[0];
    *ret_step = step;
    return span > 0 ? (span + stride - 1) / stride : 0;
}

static struct jinja_value slice_text(struct jinja *j, const struct jinja_text *t, int64_t first,
                                     int64_t step, int64_t count)
{
    if (count == 0)
        return jinja_of_text(&nothing);
    int64_t k = 0, end = first + count;
    size_t at = 0, from = 0;
    if (step != 1) {
        struct jinja_value v = jinja_of_text(t);
        const struct jinja_list *all = jinja_items(j, &v);
        struct jinja_value list = jinja_list(j, (int)count);
        for (int64_t i = 0; !j->err && i < count; i++)
            list.u.list->item[i] = all->item[first + i * step];
        return j->err ? list : jinja_joined(j, &nothing, list.u.list);
    }
    for (; at < t->n && k < end; k++) {
        if (k == first)
            from = at;
        at += jinja_char(t->s + at, t->n - at);
    }
    return jinja_of_text(jinja_cut(j, t, from, at));
}

struct jinja_value jinja_slice(struct jinja *j, const struct jinja_value *of,
                               const struct jinja_value part[3])
{
    int64_t first = 0, step = 1, n;
    if (of->type == JINJA_TEXT) {
        n = slice_range(j, part, jinja_chars(j, of->u.text), &first, &step);
        return j->err ? jinja_none() : slice_text(j, of->u.text, first, step, n);
    }
    if (of->type != JINJA_LIST)
        return jinja_error(j, KVF_E_FORMAT, "a part of %s is asked for", jinja_type_name(of));
    n = slice_range(j, part, of->u.list->n, &first, &step);
    struct jinja_value list = jinja_list(j, (int)n);
    for (int64_t i = 0; !j->err && i < n; i++)
        list.u.list->item[i] = of->u.list->item[first + i * step];
    return list;
}
