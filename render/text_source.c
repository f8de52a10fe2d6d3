/* text_source.c - reads the text of a table of tokens as paragraphs of units. */
#include "render/text_source.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/room.h"
#include "base/utf8.h"

enum { ENOUGH = 4096, LINE_BREAK = 0x21b5 };

void text_source_init(struct text_source *s, const struct table *t, int64_t row0, int64_t row1)
{
    *s = (struct text_source){
        .t = t,
        .joined = table_find(t, table_find(t, "joined") < 0 ? "text" : "joined"),
        .text = table_find(t, "text"),
        .row = row0,
        .last = row1};
}

void text_source_finish(struct text_source *s)
{
    buf_finish(&s->bytes);
    mem_free(s->unit);
}

/* Returns true for characters without a glyph or with an effect on others: controls, line
 * separators, direction marks and overrides, fillers.  Joiners and variation selectors are kept,
 * because they shape text. */
static bool is_hidden(uint32_t c)
{
    static const uint32_t range[][2] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x115f, 0x1160},
        {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
        {0x3164, 0x3164}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xe0000, 0xe001f}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return (c & 0xfffe) == 0xfffe;
}

static bool is_space(uint32_t c)
{
    return c == ' ' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f
           || c == 0x205f || c == 0x3000;
}

static bool all_space(const char *s, size_t n)
{
    uint32_t code = 0;
    for (size_t at = 0, len; at < n; at += len) {
        len = utf8_decode(s + at, n - at, &code);
        if (!len || !is_space(code))
            return false;
    }
    return n > 0;
}

static void add_unit(struct text_source *s, int64_t row0, int64_t row1, bool space)
{
    if (!mem_room(&s->unit, s->n, &s->room, 256, sizeof *s->unit)) {
        s->err = KVF_E_NOMEM;
        return;
    }
    s->unit[s->n++] = (struct text_unit){s->bytes.len, row0, row1, space};
}

/* Returns the end of the rows that share the character of the current row: rows with bytes but
 * without text of their own. */
static int64_t shared_until(const struct text_source *s)
{
    int64_t r = s->row + 1;
    while (r < s->last && !*table_str(s->t, s->joined, r) && *table_str(s->t, s->text, r))
        r++;
    return r;
}

/* Appends the mark of bytes or of a character, isolated so that it reads from left to right
 * anywhere. */
static void add_mark(struct buf *b, const char *mark, size_t n)
{
    buf_str(b, TEXT_ISOLATE);
    buf_add(b, mark, n);
    buf_str(b, TEXT_ISOLATE_END);
}

/* Returns the bytes at s that are marks \xNN of utf8_show, at most 256. */
static size_t marks_at(const char *s, size_t n)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t k = 0;
    while (k + 4 <= n && k < 256 && s[k] == '\\' && s[k + 1] == 'x' && strchr(hex, s[k + 2])
           && strchr(hex, s[k + 3]))
        k += 4;
    return k;
}

static void add_character(struct text_source *s, const char *c, size_t n, uint32_t code, bool space)
{
    char mark[16];
    if (space && code == ' ')
        buf_str(&s->bytes, "\xc2\xa0\xe2\x80\x8b"); /* has width at line ends too */
    else if (is_hidden(code))
        add_mark(&s->bytes, mark, (size_t)snprintf(mark, sizeof mark, "\\u%04X", (unsigned)code));
    else
        buf_add(&s->bytes, c, n);
}

/* Finds the bytes [*a, *b) that several tokens share.  Text before the shared character belongs to
 * the first token only, text after it to the last. */
static void shared_bytes(const struct text_source *s, int64_t next, const char *joined, size_t n,
                         size_t *a, size_t *b)
{
    const char *first = table_str(s->t, s->text, s->row);
    const char *last = table_str(s->t, s->text, next - 1);
    size_t k = strlen(last);
    *a = 0;
    *b = n;
    while (*a < n && joined[*a] == first[*a])
        (*a)++;
    while (*b > *a && k > 0 && joined[*b - 1] == last[k - 1])
        (*b)--, k--;
    while (*b < n && ((unsigned char)joined[*b] & 0xc0) == 0x80)
        (*b)++;
}

/* Reads the next part of the row: the bytes that several rows share, or those before or after
 * them. */
static void read_part(struct text_source *s, const char *text, size_t n, int64_t next)
{
    size_t a = n, b = n, at = s->skip;
    uint32_t code = 0;
    if (next > s->row + 1)
        shared_bytes(s, next, text, n, &a, &b);
    size_t end = at < b ? b : n;
    end = at < a ? a : end;
    bool space = all_space(text, n);
    while (at < end && !s->ended && s->bytes.len < ENOUGH) {
        size_t marks = marks_at(text + at, end - at), len = utf8_decode(text + at, n - at, &code);
        if (marks) {
            add_mark(&s->bytes, text + at, marks);
            at += marks;
            continue;
        }
        add_character(s, text + at, len ? len : 1, len ? code : 0xfffe, space);
        at += len ? len : 1;
        s->ended = len && code == LINE_BREAK;
    }
    int64_t row0 = end <= b ? s->row : next - 1;
    int64_t row1 = end <= a && a < n ? s->row + 1 : next;
    add_unit(s, row0, row1, space);
    s->skip = at;
}

static void take_row(struct text_source *s)
{
    const char *text = table_str(s->t, s->joined, s->row);
    size_t n = strlen(text);
    int64_t next = shared_until(s);
    if (n > 0) {
        read_part(s, text, n, next);
    } else { /* a token without bytes */
        buf_str(&s->bytes, "\xe2\x88\x85");
        add_unit(s, s->row, next, false);
    }
    if (s->skip == n) {
        s->skip = 0;
        s->row = next;
    }
}

bool text_source_fill(struct text_source *s)
{
    while (!s->ended && s->row < s->last && s->bytes.len < ENOUGH && !s->err)
        take_row(s);
    if (s->row == s->last)
        s->ended = true;
    s->err = s->err ? s->err : s->bytes.err;
    if (s->dir == TEXT_NEUTRAL && s->bytes.len)
        s->dir = text_direction_of(s->bytes.data, s->bytes.len);
    return !s->err && s->bytes.len > 0;
}

void text_source_drop(struct text_source *s, size_t n)
{
    size_t k = 0, left = s->bytes.len - n;
    while (k < s->n && s->unit[k].end <= n)
        k++;
    memmove(s->bytes.data, s->bytes.data + n, left + 1);
    s->bytes.len = left;
    memmove(s->unit, s->unit + k, (s->n - k) * sizeof *s->unit);
    s->n -= k;
    for (size_t i = 0; i < s->n; i++)
        s->unit[i].end -= n;
    if (left == 0 && s->ended) { /* start the next paragraph */
        s->dir = TEXT_NEUTRAL;
        s->ended = false;
    }
}

const struct text_unit *text_source_at(const struct text_source *s, size_t at)
{
    size_t lo = 0, hi = s->n - 1;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->unit[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return &s->unit[lo];
}
