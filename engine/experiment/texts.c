/* texts.c - reads a file of text or JSONL. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file_bytes.h"
#include "base/json.h"
#include "base/json_tape.h"
#include "base/mem.h"
#include "base/text_kind.h"
#include "base/utf8.h"
#include "engine/experiment/texts.h"

static int add_unit(struct text *t, size_t at, size_t len, int64_t line)
{
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        struct unit *u = t->n < 1 << 29 ? mem_grow(t->unit, (size_t)t->n, (size_t)cap, sizeof *u)
                                        : NULL;
        if (!u)
            return KVF_E_NOMEM;
        t->unit = u;
        t->cap = cap;
    }
    t->unit[t->n++] = (struct unit){at, len, line};
    return KVF_OK;
}

static int read_whole(const char *path, struct buf *out, struct kvf_diag *d)
{
    FILE *f = file_with_end(path);
    char part[65536];
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the data: %s", path,
                        errno == ENODEV ? "it is a device, which may have no end"
                                        : strerror(errno));
    for (size_t n = 1; !out->err && n > 0;) {
        n = fread(part, 1, sizeof part, f);
        buf_add(out, part, n);
    }
    int bad = ferror(f) ? errno : 0;
    fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read the data: %s", path, strerror(bad));
    return out->err ? kvf_fail(d, out->err, "%s: the data do not fit into memory", path) : KVF_OK;
}

/* Returns true for " = Title = " and "# Title", but not for " = = Section = = ". */
static bool is_heading(const char *s, size_t n)
{
    while (n && *s == ' ')
        s++, n--;
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\r'))
        n--;
    if (n > 2 && memcmp(s, "# ", 2) == 0)
        return true;
    return n > 4 && memcmp(s, "= ", 2) == 0 && memcmp(s + n - 2, " =", 2) == 0 && s[2] != '=';
}

/* Splits plain text into units at headings. `line` lines precede the text. */
static int split_text(struct text *t, int64_t line)
{
    const char *data = t->bytes.data ? t->bytes.data : "";
    size_t len = t->bytes.len, start = 0;
    int64_t first = line + 1;
    for (size_t at = 0, next; at < len; at = next) {
        const char *end = memchr(data + at, '\n', len - at);
        next = end ? (size_t)(end - data) + 1 : len;
        line++;
        if (!is_heading(data + at, end ? next - 1 - at : len - at))
            continue;
        if (t->n)
            t->unit[t->n - 1].len = at - start;
        start = at;
        int err = add_unit(t, at, len - at, line);
        if (err)
            return err;
    }
    return t->n == 0 && len ? add_unit(t, 0, len, first) : KVF_OK;
}

/* Appends the text of one JSONL object to `out`. */
static int append_object(const struct text *t, const struct json *o, int64_t line, struct buf *out,
                         struct kvf_diag *d)
{
    const char *text = json_str(json_get(o, "text"), NULL);
    const char *question = json_str(json_get(o, "question"), NULL);
    const char *answer = json_str(json_get(o, "answer"), NULL);
    if (text) {
        buf_str(out, text);
    } else if (question && answer) {
        buf_str(out, question);
        buf_char(out, '\n');
        buf_str(out, answer);
    } else {
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s, line %lld: expected an object with \"text\", or with "
                        "\"question\" and \"answer\"",
                        t->path, (long long)line);
    }
    return out->err;
}

/* Replaces the lines of JSON by their texts, one unit each. `line` lines precede them. */
static int split_jsonl(struct text *t, int64_t line, struct kvf_diag *d)
{
    struct buf out = {0};
    int err = KVF_OK;
    for (size_t at = 0, next; at < t->bytes.len; at = next) {
        const char *s = t->bytes.data + at, *end = memchr(s, '\n', t->bytes.len - at);
        size_t n = end ? (size_t)(end - s) : t->bytes.len - at, begin = out.len;
        struct json *o = NULL;
        next = at + n + 1;
        line++;
        if (strspn(s, " \t\r") >= n)
            continue;
        err = json_parse(s, n, &o, d);
        if (err) {
            kvf_diag_prefix(d, "%s, line %lld", t->path, (long long)line);
            goto done;
        }
        err = append_object(t, o, line, &out, d);
        json_free(o);
        if (err)
            goto done;
        err = add_unit(t, begin, out.len - begin, line);
        if (err)
            goto done;
        buf_str(&out, "\n\n"); /* a blank line separates texts */
    }
    err = out.err;

done:
    buf_finish(&t->bytes);
    t->bytes = out;
    return err;
}

/* Returns the start of the first line that begins at or after this fraction of the bytes. */
static size_t place(const struct buf *b, double share)
{
    size_t at = share < 1 ? (size_t)(share * (double)b->len) : b->len;
    if (at == 0)
        return 0;
    const char *end = memchr(b->data + at - 1, '\n', b->len - at + 1);
    return end ? (size_t)(end - b->data) + 1 : b->len;
}

static int64_t count_lines(const char *s, size_t n)
{
    int64_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += s[i] == '\n';
    return lines;
}

/* Reduces t->bytes to the given part; *ret_line is the number of preceding lines. */
static int take_share(struct text *t, const struct text_share *share, int64_t *ret_line)
{
    size_t begin = place(&t->bytes, share->from), end = place(&t->bytes, share->to);
    end = end > begin ? end : begin;
    *ret_line = begin ? count_lines(t->bytes.data, begin) : 0;
    if (begin) {
        struct buf part = {0};
        buf_add(&part, t->bytes.data + begin, end - begin);
        buf_finish(&t->bytes);
        t->bytes = part;
        return part.err;
    }
    t->bytes.len = end;
    return KVF_OK;
}

static int check_text(const struct text *t, int64_t line, struct kvf_diag *d)
{
    const char *data = t->bytes.data;
    for (size_t at = 0, k; at < t->bytes.len; at += k) {
        uint32_t cp;
        k = utf8_decode(data + at, t->bytes.len - at, &cp);
        if (k && cp)
            continue;
        return kvf_fail(d, KVF_E_FORMAT, "%s, line %lld: %s; convert the file to UTF-8 text",
                        t->path, (long long)(line + count_lines(data, at) + 1),
                        k ? "there is a NUL byte" : "the text is not valid UTF-8");
    }
    return KVF_OK;
}

/* Returns true if a line is one JSON value that begins with `kind`. */
static bool is_value(const char *s, size_t n, char kind)
{
    while (n && strchr(" \t\r", *s))
        s++, n--;
    while (n && strchr(" \t\r", s[n - 1]))
        n--;
    return n > 1 && *s == kind && json_check(s, n);
}

/* Returns true if the text is a JSON array, or if its first line is one. */
static bool is_json_arrays(const char *s, size_t n)
{
    const char *first = s + strspn(s, " \t\r\n");
    size_t rest = n - (size_t)(first - s);
    return *first == '[' && (json_check(first, rest) || is_value(first, strcspn(first, "\n"), '['));
}

/* Returns true if the field [s, end) of the first line is the name of a text column. */
static bool is_text_name(const char *s, const char *end)
{
    static const char *const names[] = {"text",     "question", "answer",  "prompt",
                                        "document", "content",  "messages"};
    size_t n = (size_t)(end - s);
    if (n > 2 && *s == '"' && end[-1] == '"')
        s++, n -= 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && strncasecmp(s, names[i], n) == 0)
            return true;
    return false;
}

/* Returns true if the first line is the header of a CSV or TSV table: column names, one of which
 * is a text column. */
static bool is_table(const char *s, size_t n)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"";
    const char *stop = memchr(s, '\n', n), *end = stop;
    bool known = false;
    int fields = 0;
    if (!stop)
        return false;
    if (end > s && end[-1] == '\r')
        end--;
    for (const char *at = s, *to; at <= end; at = to + 1, fields++) {
        to = at + strspn(at, letters);
        if (to < end && !strchr(",;\t", *to))
            return false;
        known |= is_text_name(at, to);
    }
    return known && fields > 1;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), k = strlen(ending);
    return n > k && strcasecmp(path + n - k, ending) == 0;
}

/* Sets *ret_jsonl if the text is JSONL. Returns KVF_E_FORMAT with a sentence if it is neither
 * JSONL nor plain text. */
static int find_form(const struct text *t, bool *ret_jsonl, struct kvf_diag *d)
{
    const char *s = t->bytes.data ? t->bytes.data : "", *wrong = NULL;
    const char *first = s + strspn(s, " \t\r\n");
    size_t rest = t->bytes.len - (size_t)(first - s), line = strcspn(first, "\n");
    *ret_jsonl = *first == '{';
    if (*ret_jsonl && (is_value(first, line, '{') || !json_check(first, rest)))
        return KVF_OK;
    if (*ret_jsonl || is_json_arrays(s, t->bytes.len))
        wrong = "JSON, but not one object a line";
    else if (ends_in(t->path, ".csv") || ends_in(t->path, ".tsv") || is_table(s, t->bytes.len))
        wrong = "a table in CSV or TSV";
    else if (t->bytes.len && (ends_in(t->path, ".jsonl") || ends_in(t->path, ".json")))
        wrong = "not JSONL, although its name ends in .jsonl";
    return wrong ? kvf_fail(d, KVF_E_FORMAT,
                            "%s: the file is %s; expected plain text, or JSONL: one object with "
                            "\"text\", or with \"question\" and \"answer\", a line",
                            t->path, wrong)
                 : KVF_OK;
}

int text_read(const char *path, const struct text_share *share, struct text *ret,
              struct kvf_diag *d)
{
    int64_t line = 0;
    size_t mark = 0;
    bool jsonl = false;
    *ret = (struct text){.path = path};
    int err = read_whole(path, &ret->bytes, d);
    if (!err && ret->bytes.len)
        err = text_kind_check(path, ret->bytes.data, ret->bytes.len, &mark, d);
    if (!err && mark) {
        ret->bytes.len -= mark;
        memmove(ret->bytes.data, ret->bytes.data + mark, ret->bytes.len + 1);
    }
    if (!err)
        err = find_form(ret, &jsonl, d);
    if (!err)
        err = take_share(ret, share, &line);
    if (err)
        return err;
    if (jsonl)
        return split_jsonl(ret, line, d);
    err = check_text(ret, line, d);
    return err ? err : split_text(ret, line);
}

void text_finish(struct text *t)
{
    buf_finish(&t->bytes);
    mem_free(t->unit);
    *t = (struct text){.path = NULL};
}
