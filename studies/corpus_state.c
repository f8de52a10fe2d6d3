/* corpus_state.c - state files: all sums of a corpus, in one file (docs/reference/corpus.md).
 *
 *   magic[8] | version u32 | replicates u32 | seed u64 | intervals u32 | arguments
 *   types[16] | T least, most i64 | plan u64 x 4 | tables, undefined u64
 *   n u64, metadata: key, differ u8, value, n u64        by key
 *   n u64, documents: id u64, traces u32, missed u32     ids rising
 *   n u64, rows: key, interval u8, sums, replicates i64  by key,
 *       for each value of 1 to 9 documents: id, A, B, C  ids rising
 *   checksum u64
 *
 * Little endian; texts and keys are a u32 length and their bytes.  Checksum:
 * that of base/checksum.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file_bytes.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/replace.h"
#include "studies/corpus_rows.h"

enum { VERSION = 2, CHECKSUM = 8, MOST_TEXT = 1 << 20 };
static const char magic[8] = "\x89KVFsum\n";

/* ---- writing */

struct sink {
    struct replace file;
    struct buf block; /* less than CHECKSUM_BLOCK bytes between calls */
    uint64_t hash;
};

static void flush(struct sink *s, bool end)
{
    size_t at = 0;
    for (; s->block.len - at >= CHECKSUM_BLOCK || (end && at < s->block.len);) {
        size_t n = s->block.len - at < CHECKSUM_BLOCK ? s->block.len - at : CHECKSUM_BLOCK;
        s->hash = checksum(s->hash, s->block.data + at, n);
        replace_write(&s->file, s->block.data + at, n);
        at += n;
    }
    if (at) {
        memmove(s->block.data, s->block.data + at, s->block.len - at);
        s->block.len -= at;
    }
}

static void put_text(struct buf *b, const char *s, size_t n)
{
    buf_le32(b, (uint32_t)n);
    buf_add(b, s, n);
}

static void put_head(struct corpus *c, struct buf *b)
{
    const uint64_t words[] = {
        (uint64_t)c->least_T, (uint64_t)c->most_T, c->plan.documents, c->plan.traces,
        c->plan.hash,         c->plan.unreadable,  c->tables,         c->undefined};
    buf_add(b, magic, sizeof magic);
    buf_le32(b, VERSION);
    buf_le32(b, (uint32_t)c->set.replicates);
    buf_le64(b, c->set.seed);
    buf_le32(b, (uint32_t)c->set.intervals);
    put_text(b, c->arguments.data, c->arguments.len);
    buf_add(b, c->type, sizeof c->type);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        buf_le64(b, words[i]);
    if (c->n_meta)
        qsort(c->meta, (size_t)c->n_meta, sizeof *c->meta, order_text);
    buf_le64(b, (uint64_t)c->n_meta);
    for (int i = 0; i < c->n_meta; i++) {
        const struct corpus_meta *m = &c->meta[i];
        put_text(b, m->key, strlen(m->key));
        buf_char(b, m->value == NULL);
        put_text(b, m->value ? m->value : "", m->value ? strlen(m->value) : 0);
        buf_le64(b, m->n);
    }
}

static void put_words(struct sink *s, const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_le64(&s->block, (uint64_t)v[i]);
    flush(s, false);
}

/* The number of documents in the list of a measure. */
static size_t n_few(const struct corpus *c, size_t row, int m)
{
    int64_t n = rows_sum(&c->rows, row)[m * N_WORDS + WORD_N];
    return n > 0 && n < STATS_FEW ? (size_t)n : 0;
}

static void put_body(struct corpus *c, const uint32_t *order, struct sink *s)
{
    size_t n_replicates = (size_t)c->n_replicated * (size_t)c->set.replicates;
    put_head(c, &s->block);
    corpus_sort(c);
    buf_le64(&s->block, c->n_entries);
    for (size_t i = 0; i < c->n_entries; i++) {
        buf_le64(&s->block, c->entry[i].id);
        buf_le32(&s->block, c->entry[i].traces);
        buf_le32(&s->block, c->entry[i].missed);
        flush(s, false);
    }
    buf_le64(&s->block, c->rows.n);
    for (size_t i = 0; i < c->rows.n; i++) {
        const struct row *r = &c->rows.row[order[i]];
        put_text(&s->block, c->rows.key.data + r->key_at, r->key_len);
        buf_char(&s->block, r->interval);
        put_words(s, rows_sum(&c->rows, order[i]), c->rows.stride);
        if (r->replicate)
            put_words(s, r->replicate, n_replicates);
        for (int m = 0; r->few && m < c->n_measures; m++)
            put_words(s, r->few + m * FEW_WORDS, N_WORDS * n_few(c, order[i], m));
    }
}

int corpus_write(struct corpus *c, const char *path, struct kvf_diag *d)
{
    struct sink s = {.hash = 0};
    uint32_t *order = corpus_order(c);
    if (!order)
        return KVF_E_NOMEM;
    int err = replace_open(&s.file, path, d);
    if (err)
        goto done;
    put_body(c, order, &s);
    flush(&s, true);
    buf_le64(&s.block, s.hash);
    err = s.block.err;
    if (err) {
        replace_abandon(&s.file);
        goto done;
    }
    replace_write(&s.file, s.block.data, s.block.len);
    err = replace_finish(&s.file, d);

done:
    buf_finish(&s.block);
    mem_free(order);
    return err;
}

/* ---- reading: no value of a file is trusted */

struct source {
    const unsigned char *p;
    size_t left;
    bool bad; /* sticky: the rest is 0 */
};

static const unsigned char *take(struct source *s, size_t n)
{
    if (s->bad || n > s->left) {
        s->bad = true;
        return NULL;
    }
    s->p += n;
    s->left -= n;
    return s->p - n;
}

static uint64_t take_int(struct source *s, int width)
{
    const unsigned char *p = take(s, (size_t)width);
    uint64_t v = 0;
    for (int i = 0; p && i < width; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* A text without NUL inside, as a C string in *b. */
static const char *take_text(struct source *s, struct buf *b)
{
    size_t n = (size_t)take_int(s, 4);
    const unsigned char *p = n <= MOST_TEXT ? take(s, n) : NULL;
    s->bad |= !p || (n && memchr(p, 0, n));
    buf_clear(b);
    if (!s->bad)
        buf_add(b, p, n);
    buf_add(b, "", 1);
    return b->err ? NULL : b->data;
}

/* A count of things that take at least `least` bytes each. */
static size_t take_count(struct source *s, size_t least)
{
    uint64_t n = take_int(s, 8);
    if (n > s->left / least)
        s->bad = true;
    return s->bad ? 0 : (size_t)n;
}

static int malformed(const char *what, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_FORMAT, "malformed %s", what);
}

/* From the lines on the pool to the end the arguments depend on the program and the settings. */
static bool same_tail(const char *own, const char *given)
{
    const char *tail = strstr(own, "\nkey=");
    size_t n = tail ? strlen(tail) : 0, m = strlen(given);
    return tail && m >= n && strcmp(given + m - n, tail) == 0;
}

/* The analysis that the arguments name, with settings within their bounds. */
static int begin(struct source *s, struct corpus **ret, struct kvf_diag *d)
{
    const struct analyzer_args none = {.token1 = -1};
    struct corpus_settings set = {0};
    struct corpus *c = NULL;
    struct buf text = {0};
    char name[64] = "";
    uint64_t replicates = take_int(s, 4);
    set.seed = take_int(s, 8);
    uint64_t intervals = take_int(s, 4);
    const char *arguments = take_text(s, &text);
    size_t n = arguments ? strcspn(arguments, "\n") : 0;
    int err = text.err;
    if (err)
        goto done;
    if (s->bad || replicates > CORPUS_MOST_REPLICATES || intervals > CORPUS_NONE
        || strncmp(arguments, "analysis=\"", 10) != 0 || n < 12 || n >= sizeof name) {
        err = malformed("settings", d);
        goto done;
    }
    memcpy(name, arguments + 10, n - 11);
    const struct analyzer *a = analyzer_find(name);
    set.replicates = (int)replicates;
    set.intervals = (enum corpus_intervals)intervals;
    err = a && a->pool ? corpus_create(a, &none, &set, &c)
                       : kvf_fail(d, KVF_E_FORMAT,
                                  "of an analysis '%s' that this program does not pool", name);
    if (err)
        goto done;
    if (!same_tail(c->arguments.data, arguments)) {
        err = kvf_fail(d, KVF_E_FORMAT, "of another kvfate, which pools other columns of %s", name);
        goto done;
    }
    buf_clear(&c->arguments); /* the value given to the run, not the value of `none` */
    buf_str(&c->arguments, arguments);
    err = c->arguments.err;
    if (err)
        goto done;
    *ret = c;
    c = NULL;

done:
    corpus_destroy(c);
    buf_finish(&text);
    return err;
}

static int read_meta(struct source *s, struct corpus *c, struct kvf_diag *d)
{
    struct buf key = {0}, value = {0}, before = {0};
    size_t n = take_count(s, 17);
    int err = KVF_OK;
    for (size_t i = 0; i < n; i++) {
        const char *k = take_text(s, &key);
        bool differ = take_int(s, 1) != 0;
        const char *v = take_text(s, &value);
        uint64_t tables = take_int(s, 8);
        if (!k || !v)
            err = KVF_E_NOMEM;
        else if (s->bad || !*k || n > 4096 || (before.len && strcmp(before.data, k) >= 0))
            err = malformed("metadata", d);
        else
            err = corpus_meta_put(&c->meta, &c->n_meta, k, differ ? NULL : v, tables);
        if (err)
            goto done;
        buf_clear(&before);
        buf_add(&before, k, strlen(k) + 1);
        err = before.err;
        if (err)
            goto done;
    }

done:
    buf_finish(&key);
    buf_finish(&value);
    buf_finish(&before);
    return err;
}

static int read_entries(struct source *s, struct corpus *c, struct kvf_diag *d)
{
    size_t n = take_count(s, 16);
    if (s->bad || n > CORPUS_MOST_DOCUMENTS)
        return malformed("list of documents", d);
    c->entry = MEM_NEW(struct corpus_entry, n);
    if (!c->entry)
        return KVF_E_NOMEM;
    c->cap_entries = n;
    for (size_t i = 0; i < n; i++) {
        struct corpus_entry *e = &c->entry[i];
        e->id = take_int(s, 8);
        e->traces = (uint32_t)take_int(s, 4);
        e->missed = (uint32_t)take_int(s, 4);
        if (i && e->id <= e[-1].id)
            return malformed("list of documents", d);
        c->n_entries++;
    }
    c->sorted = true;
    return KVF_OK;
}

/* A NUL after each of n_keys texts; numbers where numbers are to be. */
static bool is_key(const struct corpus *c, const char *key, size_t len)
{
    size_t at = 0;
    for (int k = 0; k < c->n_keys; k++) {
        const char *s = key + at, *nul = memchr(s, 0, len - at);
        char *end = NULL;
        if (!nul)
            return false;
        if (c->type[k] == 'i')
            strtoll(s, &end, 10);
        else if (c->type[k] == 'r')
            strtod(s, &end);
        if (c->type[k] != 's' && (end == s || end != nul))
            return false;
        at += strlen(s) + 1;
    }
    return at == len;
}

static int read_words(struct source *s, int64_t *to, size_t n)
{
    const unsigned char *p = n <= s->left / 8 ? take(s, 8 * n) : NULL;
    if (!p) {
        s->bad = true;
        return KVF_E_FORMAT;
    }
    for (size_t i = 0; i < n; i++, p += 8) {
        uint64_t v = 0;
        for (int k = 0; k < 8; k++)
            v |= (uint64_t)p[k] << (8 * k);
        to[i] = (int64_t)v;
    }
    return KVF_OK;
}

/* The lists of documents of a row. Their words must add up to its sums. */
static int read_few(struct source *s, struct corpus *c, size_t row)
{
    for (int m = 0; c->rows.row[row].few && m < c->n_measures; m++) {
        const int64_t *sum = rows_sum(&c->rows, row) + m * N_WORDS;
        int64_t *few = c->rows.row[row].few + m * FEW_WORDS;
        uint64_t rest[N_WORDS] = {0};
        size_t n = n_few(c, row, m);
        if (n && read_words(s, few, n * N_WORDS))
            return KVF_E_FORMAT;
        for (size_t i = 0; i < n; i++, few += N_WORDS) {
            for (int w = WORD_A; w < N_WORDS; w++)
                rest[w] += (uint64_t)few[w];
            if (i && (uint64_t)few[WORD_N] <= (uint64_t)few[WORD_N - N_WORDS])
                return KVF_E_FORMAT;
        }
        for (int w = WORD_A; n && w < N_WORDS; w++)
            if (rest[w] != (uint64_t)sum[w])
                return KVF_E_FORMAT;
    }
    return KVF_OK;
}

static int read_rows(struct source *s, struct corpus *c, struct kvf_diag *d)
{
    size_t n_replicates = (size_t)c->n_replicated * (size_t)c->set.replicates;
    size_t n = take_count(s, 5 + 8 * c->rows.stride);
    for (size_t i = 0; i < n; i++) {
        size_t len = (size_t)take_int(s, 4), row;
        const unsigned char *key = len <= MOST_TEXT ? take(s, len) : NULL;
        bool interval = take_int(s, 1) != 0;
        size_t more = interval ? n_replicates : 0;
        if (s->bad || !key || !is_key(c, (const char *)key, len)
            || more > s->left / 8) /* before memory is taken for it */
            return malformed("row", d);
        int err = corpus_row(c, (const char *)key, len, interval, &row, d);
        if (err)
            return err;
        if (row != i || read_words(s, rows_sum(&c->rows, row), c->rows.stride)
            || (more && read_words(s, c->rows.row[row].replicate, more)) || read_few(s, c, row))
            return malformed("row", d);
    }
    return s->bad || s->left ? malformed("rows", d) : KVF_OK;
}

static int read_types(struct source *s, struct corpus *c, struct kvf_diag *d)
{
    const unsigned char *p = take(s, sizeof c->type);
    for (int k = 0; p && k < CORPUS_MOST_KEYS; k++) {
        bool none = p[k] == 0, fits = p[k] == 's' || p[k] == 'i' || p[k] == 'r';
        if (k < c->n_keys ? !(fits || none) || none != (p[0] == 0) : !none)
            return malformed("types", d);
        c->type[k] = (char)p[k];
    }
    return p ? KVF_OK : malformed("types", d);
}

static int read_body(struct source *s, struct corpus *c, struct kvf_diag *d)
{
    int err = read_types(s, c, d);
    if (err)
        return err;
    c->least_T = (int64_t)take_int(s, 8);
    c->most_T = (int64_t)take_int(s, 8);
    c->plan.documents = take_int(s, 8);
    c->plan.traces = take_int(s, 8);
    c->plan.hash = take_int(s, 8);
    c->plan.unreadable = take_int(s, 8);
    c->tables = take_int(s, 8);
    c->undefined = take_int(s, 8);
    err = read_meta(s, c, d);
    if (!err)
        err = read_entries(s, c, d);
    if (err)
        return err;
    return read_rows(s, c, d);
}

int corpus_parse(const void *bytes, size_t n, struct corpus **ret, struct kvf_diag *d)
{
    const unsigned char *p = bytes;
    struct source s = {p, n, false};
    struct corpus *c = NULL;
    const unsigned char *start = take(&s, sizeof magic);
    if (!start || memcmp(start, magic, sizeof magic) != 0)
        return kvf_fail(d, KVF_E_FORMAT, "not the state of a corpus");
    if (take_int(&s, 4) != VERSION)
        return s.bad ? malformed("header", d)
                     : kvf_fail(d, KVF_E_VERSION, "the state of a corpus of another kvfate");
    if (s.left < CHECKSUM)
        return malformed("header", d);
    struct source sum = {p + n - CHECKSUM, CHECKSUM, false};
    if (checksum(0, p, n - CHECKSUM) != take_int(&sum, 8))
        return kvf_fail(d, KVF_E_CORRUPT,
                        "damaged (its checksum differs); remove it, and make it again");
    s.left -= CHECKSUM;
    int err = begin(&s, &c, d);
    if (err)
        return err;
    err = read_body(&s, c, d);
    if (err) {
        corpus_destroy(c);
        return err;
    }
    *ret = c;
    return KVF_OK;
}

int corpus_read(const char *path, struct corpus **ret, struct kvf_diag *d)
{
    size_t n = 0;
    unsigned char *p = NULL;
    int fd = file_regular(path, &n);
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read: %s", path,
                        errno ? strerror(errno) : "it is not a regular file");
    int err = file_bytes(fd, n, &p);
    close(fd);
    if (err == KVF_E_IO)
        return kvf_fail(d, err, "%s: cannot read", path);
    if (!err)
        err = corpus_parse(p, n, ret, d);
    if (err)
        kvf_diag_prefix(d, "%s", path);
    mem_free(p);
    return err;
}
