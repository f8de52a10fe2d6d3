#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/experiment/documents.h"

/* A place where a document may start; it reaches up to the next one. */
struct unit {
    size_t at, len;
    int64_t line;
};

/* The text of a file as the model reads it, and its units in order. */
struct text {
    const char *path;
    struct buf bytes;
    struct unit *unit;
    int n, cap;
};

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
    FILE *f = fopen(path, "rb");
    char part[65536];
    size_t n;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the data: %s", path, strerror(errno));
    while (!out->err && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(out, part, n);
    int bad = ferror(f) ? errno : 0;
    fclose(f);
    if (bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read the data: %s", path, strerror(bad));
    return out->err ? kvf_fail(d, out->err, "%s: the data do not fit into memory", path) : KVF_OK;
}

/* " = Title = ", but not " = = Section = = "; or "# Title". */
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

static int split_text(struct text *t)
{
    const char *data = t->bytes.data ? t->bytes.data : "";
    size_t len = t->bytes.len, start = 0;
    int64_t line = 0;
    int err = KVF_OK;
    for (size_t at = 0, next; !err && at < len; at = next) {
        const char *end = memchr(data + at, '\n', len - at);
        next = end ? (size_t)(end - data) + 1 : len;
        line++;
        if (!is_heading(data + at, end ? next - 1 - at : len - at))
            continue;
        if (t->n)
            t->unit[t->n - 1].len = at - start;
        start = at;
        err = add_unit(t, at, len - at, line);
    }
    return !err && t->n == 0 && len ? add_unit(t, 0, len, 1) : err;
}

/* The text of one JSONL object to `out`. */
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
        return kvf_fail(d, KVF_E_FORMAT, "%s, line %lld: expected an object with \"text\", or with "
                        "\"question\" and \"answer\"", t->path, (long long)line);
    }
    return out->err;
}

/* Replaces the lines of JSON by their texts. */
static int split_jsonl(struct text *t, struct kvf_diag *d)
{
    struct buf out = {0};
    int64_t line = 0;
    int err = KVF_OK;
    for (size_t at = 0, next; !err && at < t->bytes.len; at = next) {
        const char *s = t->bytes.data + at, *end = memchr(s, '\n', t->bytes.len - at);
        size_t n = end ? (size_t)(end - s) : t->bytes.len - at, begin = out.len;
        struct json *o = NULL;
        next = at + n + 1;
        line++;
        if (strspn(s, " \t\r") >= n)
            continue;
        err = json_parse(s, n, &o, d);
        if (err)
            kvf_diag_prefix(d, "%s, line %lld", t->path, (long long)line);
        else
            err = append_object(t, o, line, &out, d);
        json_free(o);
        if (!err)
            err = add_unit(t, begin, out.len - begin, line);
        buf_str(&out, "\n\n"); /* a blank line before what may follow */
    }
    if (!err)
        err = out.err;
    buf_finish(&t->bytes);
    t->bytes = out;
    return err;
}

/* FNV-1a over the ids as little-endian bytes. */
static uint64_t hash_ids(const int32_t *ids, int n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        for (int b = 0; b < 32; b += 8)
            h = (h ^ ((uint32_t)ids[i] >> b & 255)) * 0x100000001b3u;
    return h;
}

static int add_document(struct documents *docs, int32_t *ids, const struct text *t, int64_t line)
{
    if (docs->n == docs->cap) {
        int cap = docs->cap ? 2 * docs->cap : 64;
        struct document *doc = mem_grow(docs->doc, (size_t)docs->n, (size_t)cap, sizeof *doc);
        if (!doc)
            return KVF_E_NOMEM;
        docs->doc = doc;
        docs->cap = cap;
    }
    docs->doc[docs->n++] = (struct document){ids, hash_ids(ids, docs->length), t->path, line};
    return KVF_OK;
}

static int encode(const struct tokenizer *tok, const struct text *t, int first, int last,
                  int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    size_t at = t->unit[first].at, end = t->unit[last].at + t->unit[last].len;
    return tokenizer_encode(tok, t->bytes.data + at, end - at, false, ret_ids, ret_n, d);
}

/* One document from unit *first on, or none at the end of the file.  Units are counted
 * one by one, and joined only when they are about long enough (a joint may add a few
 * tokens): joining each time would take quadratic time. */
static int cut_one(const struct tokenizer *tok, const struct text *t, int *first,
                   struct documents *docs, struct kvf_diag *d)
{
    enum { JOINT = 4 };
    int64_t about = 0;
    for (int last = *first; last < t->n; last++) {
        int32_t *ids = NULL;
        int n = 0, err = encode(tok, t, last, last, &ids, &n, d);
        about += n + JOINT;
        if (!err && about >= docs->length && last > *first) {
            mem_free(ids);
            ids = NULL;
            err = encode(tok, t, *first, last, &ids, &n, d);
        }
        if (!err && about >= docs->length && n >= docs->length) {
            int64_t line = t->unit[*first].line;
            *first = last + 1;
            err = add_document(docs, ids, t, line);
            if (!err)
                return KVF_OK;
        }
        mem_free(ids);
        if (err)
            return err;
    }
    *first = t->n;
    return KVF_OK;
}

int documents_read(const struct tokenizer *tok, const char *path, struct documents *ret,
                   struct kvf_diag *d)
{
    struct text t = {.path = path};
    int err = read_whole(path, &t.bytes, d);
    const char *data = t.bytes.data ? t.bytes.data : "";
    if (!err && data[strspn(data, " \t\r\n")] == '{')
        err = split_jsonl(&t, d);
    else if (!err)
        err = split_text(&t);
    for (int at = 0; !err && at < t.n;)
        err = cut_one(tok, &t, &at, ret, d);
    buf_finish(&t.bytes);
    mem_free(t.unit);
    return err;
}

void documents_shuffle(struct documents *docs, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed);
    for (int i = 0; i + 1 < docs->n; i++) {
        int j = i + (int)rng_below(&r, (uint64_t)(docs->n - i));
        struct document tmp = docs->doc[i];
        docs->doc[i] = docs->doc[j];
        docs->doc[j] = tmp;
    }
}

void documents_finish(struct documents *docs)
{
    for (int i = 0; i < docs->n; i++)
        mem_free(docs->doc[i].ids);
    mem_free(docs->doc);
    *docs = (struct documents){0};
}
