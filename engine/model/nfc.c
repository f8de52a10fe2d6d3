/* nfc.c - normal form C (Unicode Standard Annex 15): characters are taken apart, marks are put in
 * the order of their classes, and what can be joined is joined. */
#include "engine/model/nfc.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/model/nfc_tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { /* Hangul, which is computed */
       SYLLABLE = 0xac00,
       LEAD = 0x1100,
       VOWEL = 0x1161,
       TAIL = 0x11a7,
       LEADS = 19,
       VOWELS = 21,
       TAILS = 28,
       SYLLABLES = LEADS * VOWELS * TAILS
};
enum { FIRST = 0x300 }; /* no character below changes, or joins with one before it */

struct mark { /* a character with its class */
    uint32_t cp, class;
};

static int by_first(const void *cp, const void *row)
{
    uint32_t a = *(const uint32_t *)cp, b = *(const uint32_t *)row;
    return (a > b) - (a < b);
}

static int by_range(const void *cp, const void *row)
{
    uint32_t a = *(const uint32_t *)cp;
    const uint32_t *r = row;
    return a < r[0] ? -1 : a > r[1];
}

static uint32_t class_of(uint32_t cp)
{
    const uint32_t *r = cp < FIRST ? NULL
                                   : bsearch(&cp, nfc_class, COUNT(nfc_class), sizeof *nfc_class,
                                             by_range);
    return r ? r[2] : 0;
}

static void put(struct buf *b, uint32_t cp)
{
    const struct mark m = {cp, class_of(cp)};
    buf_add(b, &m, sizeof m);
}

/* Appends the parts of a character.  The first part of a pair may have parts itself, the second
 * never has. */
static void take_apart(struct buf *b, uint32_t cp)
{
    uint32_t behind[8];
    int n = 0;
    if (cp >= SYLLABLE && cp < SYLLABLE + SYLLABLES) {
        uint32_t i = cp - SYLLABLE;
        put(b, LEAD + i / (VOWELS * TAILS));
        put(b, VOWEL + i % (VOWELS * TAILS) / TAILS);
        if (i % TAILS)
            put(b, TAIL + i % TAILS);
        return;
    }
    for (;;) {
        const uint32_t *one = bsearch(&cp, nfc_single, COUNT(nfc_single), sizeof *nfc_single,
                                      by_first);
        const uint32_t *two = one ? NULL
                                  : bsearch(&cp, nfc_pair, COUNT(nfc_pair), sizeof *nfc_pair,
                                            by_first);
        if (!one && (!two || n == 8))
            break;
        cp = one ? one[1] : two[1];
        if (two)
            behind[n++] = two[2];
    }
    put(b, cp);
    while (n > 0)
        put(b, behind[--n]);
}

struct two {
    uint32_t a, b;
};

static int by_parts(const void *key, const void *row)
{
    const struct two *k = key;
    const uint32_t *p = nfc_pair[*(const uint16_t *)row];
    if (k->a != p[1])
        return k->a < p[1] ? -1 : 1;
    return (k->b > p[2]) - (k->b < p[2]);
}

/* The character that two make; 0: none. */
static uint32_t joined(uint32_t a, uint32_t b)
{
    if (a >= LEAD && a < LEAD + LEADS && b >= VOWEL && b < VOWEL + VOWELS)
        return SYLLABLE + ((a - LEAD) * VOWELS + (b - VOWEL)) * TAILS;
    if (a >= SYLLABLE && a < SYLLABLE + SYLLABLES && (a - SYLLABLE) % TAILS == 0 && b > TAIL
        && b < TAIL + TAILS)
        return a + (b - TAIL);
    const struct two key = {a, b};
    const uint16_t *i = bsearch(&key, nfc_join, COUNT(nfc_join), sizeof *nfc_join, by_parts);
    return i ? nfc_pair[*i][0] : 0;
}

/* Marks in the order of their classes, equal ones as they stand; counted, as there are 256. */
static void sort_marks(struct mark *m, size_t n, struct mark *scratch)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[m[i].class + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        scratch[start[m[i].class]++] = m[i];
    for (size_t i = 0; i < n; i++)
        m[i] = scratch[i];
}

static void sort_all(struct mark *m, size_t n, struct mark *scratch)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        bool unsorted = false;
        for (; m[i].class && end < n && m[end].class; end++)
            unsorted = unsorted || m[end].class < m[end - 1].class;
        if (unsorted)
            sort_marks(m + i, end - i, scratch);
    }
}

/* Joins each mark to the last character of class 0, unless a mark of its class or a higher one
 * stands between.  Returns how many are left. */
static size_t join_all(struct mark *m, size_t n)
{
    size_t kept = 0, base = n; /* n: there is no such character yet */
    for (size_t i = 0; i < n; i++) {
        bool next_to = base < n && base + 1 == kept;
        bool open = next_to || (base < n && m[kept - 1].class < m[i].class && m[kept - 1].class);
        uint32_t cp = open ? joined(m[base].cp, m[i].cp) : 0;
        if (cp) {
            m[base].cp = cp;
            continue;
        }
        if (m[i].class == 0)
            base = kept;
        m[kept++] = m[i];
    }
    return kept;
}

/* Characters from one below FIRST to the next. */
static void put_stretch(struct nfc *x, struct buf *out)
{
    size_t n = x->chars.len / sizeof(struct mark);
    size_t bytes = x->chars.len;
    for (size_t i = 0; i < n; i++) { /* as much again, for sorting */
        const struct mark none = {0, 0};
        buf_add(&x->chars, &none, sizeof none);
    }
    if (x->chars.err || bytes == 0) {
        out->err = out->err ? out->err : x->chars.err;
        return;
    }
    struct mark *m = (struct mark *)(void *)x->chars.data;
    sort_all(m, n, m + n);
    n = join_all(m, n);
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        buf_add(out, utf8, utf8_encode(m[i].cp, utf8));
    }
    buf_clear(&x->chars);
}

/* Bytes of the text before the first character that may change. */
static size_t plain(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && (unsigned char)s[at] < 0xcc) /* U+0300 is CC 80 */
        at++;
    return at;
}

const char *nfc(struct nfc *x, const char *s, size_t n, struct buf *out, size_t *ret_n)
{
    size_t at = plain(s, n);
    *ret_n = n;
    if (at == n)
        return s;
    buf_clear(out);
    buf_clear(&x->chars);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        len = utf8_decode(s + i, n - i, &cp);
        if (cp < FIRST)
            put_stretch(x, out);
        take_apart(&x->chars, cp);
    }
    put_stretch(x, out);
    *ret_n = out->len;
    return out->data;
}

void nfc_finish(struct nfc *x)
{
    buf_finish(&x->chars);
}
