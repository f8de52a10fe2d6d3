/* nfc.c - Unicode's normal form C (Unicode Standard Annex 15), made with utf8proc.
 *
 * utf8proc takes characters apart and composes them.  It would order marks by insertion, which
 * takes quadratic time in a long row of marks, so order() does that first. */
#include "engine/model/nfc.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"

enum { PARTS = 8 }; /* a character has at most 4 */

static int class_of(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Orders n marks by their classes.  Marks of one class keep their order. */
static void order(struct nfc *x, int32_t *cp, size_t n)
{
    buf_clear(&x->keys);
    for (size_t i = 0; i < n; i++) {
        uint64_t key = (uint64_t)class_of(cp[i]) << 56 | (uint64_t)i << 21 | (uint64_t)cp[i];
        buf_add(&x->keys, &key, sizeof key);
    }
    if (x->keys.err)
        return;
    uint64_t *key = (uint64_t *)(void *)x->keys.data;
    qsort(key, n, sizeof *key, by_number);
    for (size_t i = 0; i < n; i++)
        cp[i] = (int32_t)(key[i] & 0x1fffff);
}

/* Orders each row of marks. */
static void order_all(struct nfc *x, int32_t *cp, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        bool unsorted = false;
        end = i + 1;
        for (int last = class_of(cp[i]), next; last && end < n; end++, last = next) {
            next = class_of(cp[end]);
            if (!next)
                break;
            unsorted = unsorted || next < last;
        }
        if (unsorted)
            order(x, cp + i, end - i);
    }
}

/* Composes the characters in x->chars, and appends them to out. */
static void put_stretch(struct nfc *x, struct buf *out)
{
    static const int32_t spare = 0; /* utf8proc_reencode() appends a NUL */
    size_t n = x->chars.len / sizeof spare;
    if (n == 0)
        return;
    buf_add(&x->chars, &spare, sizeof spare);
    int32_t *cp = (int32_t *)(void *)x->chars.data;
    int err = x->chars.err;
    if (!err) {
        order_all(x, cp, n);
        err = x->keys.err;
    }
    if (!err)
        buf_add(
            out, cp,
            (size_t)utf8proc_reencode(cp, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    else if (!out->err)
        out->err = err;
    buf_clear(&x->chars);
}

static void decompose(struct nfc *x, uint32_t cp)
{
    int32_t parts[PARTS];
    utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, parts, PARTS,
                                                 UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
    buf_add(&x->chars, parts, (size_t)n * sizeof *parts);
}

/* Returns the number of bytes before the first character from U+0300 (CC 80) on.  No character
 * below it changes, or is composed with one before it. */
static size_t plain(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && (unsigned char)s[at] < 0xcc)
        at++;
    return at;
}

const char *nfc(struct nfc *x, const char *s, size_t n, struct buf *out, size_t *ret_n)
{
    *ret_n = n;
    if (plain(s, n) == n)
        return s;
    buf_clear(out);
    buf_clear(&x->chars);
    for (size_t i = 0; i < n;) {
        size_t run = plain(s + i, n - i);
        uint32_t cp;
        if (run) { /* marks can follow its last character */
            put_stretch(x, out);
            do
                run--;
            while (((unsigned char)s[i + run] & 0xc0) == 0x80);
            buf_add(out, s + i, run);
            i += run;
        }
        i += utf8_decode(s + i, n - i, &cp);
        decompose(x, cp);
    }
    put_stretch(x, out);
    *ret_n = out->len;
    return out->data;
}

size_t nfc_cluster(const char *s, size_t n)
{
    utf8proc_int32_t state = 0;
    uint32_t before, cp;
    size_t len = utf8_decode(s, n, &before), at = 0;
    for (cp = before; len > 0; before = cp) {
        at += len;
        len = at < n ? utf8_decode(s + at, n - at, &cp) : 0;
        if (len && utf8proc_grapheme_break_stateful((int32_t)before, (int32_t)cp, &state))
            len = 0;
    }
    return at ? at : 1;
}

void nfc_finish(struct nfc *x)
{
    buf_finish(&x->chars);
    buf_finish(&x->keys);
}
