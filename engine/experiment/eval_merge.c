/* eval_merge.c - merges result files of shards or ranks into one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_bytes.h"
#include "base/mem.h"
#include "base/replace.h"
#include "engine/experiment/eval_rows.h"
#include "engine/experiment/eval_state.h"

/* The rows of all files. */
struct states {
    char **text; /* [n] file texts, owned; the keys of the rows point into them */
    int n;
    struct eval_row *row; /* [n_rows] of all files */
    size_t n_rows, cap;
    uint64_t seed; /* seed of the checksums of rows, from the header that all files share */
};

static int read_file(const char *path, unsigned char **ret, size_t *ret_len, struct kvf_diag *d)
{
    size_t n = 0;
    int fd = file_regular(path, &n);
    if (fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot read the results: %s", path,
                        errno ? strerror(errno) : "it is not a regular file");
    int err = file_bytes(fd, n, ret);
    close(fd);
    if (err)
        return kvf_fail(d, err, "%s: cannot read the results", path);
    *ret_len = n;
    return KVF_OK;
}

static int add_row(struct states *s, const struct eval_row *r)
{
    if (s->n_rows == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 256;
        struct eval_row *grown = mem_grow(s->row, s->n_rows, cap, sizeof *grown);
        if (!grown)
            return KVF_E_NOMEM;
        s->row = grown;
        s->cap = cap;
    }
    s->row[s->n_rows++] = *r;
    return KVF_OK;
}

/* Adds the rows after the header of a text of n bytes. A last line without a line feed is
 * incomplete and is ignored. */
static int take_rows(struct states *s, const char *path, char *text, size_t at, size_t n,
                     struct kvf_diag *d)
{
    int err = KVF_OK;
    size_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    for (char *end = memchr(text + at, '\n', n - at); !err && end;
         end = memchr(text + at, '\n', n - at), line++) {
        struct eval_row r;
        *end = 0;
        if (strlen(text + at) != (size_t)(end - text) - at
            || !eval_row_parse(text + at, s->seed, &r))
            return eval_row_damaged(path, line, d);
        err = add_row(s, &r);
        at = (size_t)(end - text) + 1;
    }
    return err;
}

static int take_file(struct states *s, const char *path, const char *first, struct buf *header,
                     struct kvf_diag *d)
{
    unsigned char *bytes = NULL;
    size_t n = 0, at;
    int err = read_file(path, &bytes, &n, d);
    if (err)
        return err;
    char *text = (char *)bytes;
    s->text[s->n++] = text;
    at = eval_head_length(text, n);
    if (at == 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s has no results of an evaluation", path);
    err = eval_head_check(path, text, at, &s->seed, d);
    if (err)
        return err;
    if (!header->len)
        buf_add(header, text, at);
    if (header->err)
        return header->err;
    if (header->len != at || memcmp(header->data, text, at) != 0)
        return kvf_fail(d, KVF_E_FORMAT, "%s and %s have results of different settings", first,
                        path);
    return take_rows(s, path, text, at, n, d);
}

static int by_document(const void *a, const void *b)
{
    const struct eval_row *x = a, *y = b;
    if (x->doc != y->doc)
        return x->doc < y->doc ? -1 : 1;
    return strcmp(x->key, y->key);
}

/* Writes the sorted rows, without duplicates. Rejects two rows with one key and different
 * results. */
static int put_rows(struct states *s, struct buf *out, struct kvf_diag *d)
{
    if (s->n_rows)
        qsort(s->row, s->n_rows, sizeof *s->row, by_document);
    for (size_t i = 0; i < s->n_rows; i++) {
        size_t before = out->len;
        eval_row_put(&s->row[i], s->seed, out);
        if (out->err)
            return out->err;
        if (i == 0 || by_document(&s->row[i - 1], &s->row[i]) != 0)
            continue;
        size_t n = out->len - before;
        if (before < n || memcmp(out->data + before - n, out->data + before, n) != 0)
            return kvf_fail(d, KVF_E_FORMAT,
                            "two of the files have other results for one method on document %d",
                            s->row[i].doc);
        out->len = before;
    }
    return KVF_OK;
}

static int write_file(const char *path, const struct buf *b, struct kvf_diag *d)
{
    struct replace r = REPLACE_CLOSED;
    int err = replace_open(&r, path, d);
    if (err)
        return err;
    replace_write(&r, b->data, b->len);
    return replace_finish(&r, d);
}

int eval_states_merge(char *const *path, int n, const char *out, struct kvf_diag *d)
{
    struct states s = {.text = MEM_NEW(char *, (size_t)n)};
    struct buf b = {0};
    int err = s.text ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < n; i++)
        err = take_file(&s, path[i], path[0], &b, d);
    if (!err)
        err = put_rows(&s, &b, d);
    if (!err)
        err = write_file(out, &b, d);
    for (int i = 0; i < s.n; i++)
        mem_free(s.text[i]);
    mem_free(s.text);
    mem_free(s.row);
    buf_finish(&b);
    return err;
}

bool eval_state_is(const char *path)
{
    char text[sizeof EVAL_BEGINNING] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, strlen(EVAL_BEGINNING)) : 0;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)strlen(EVAL_BEGINNING)
           && memcmp(text, EVAL_BEGINNING, strlen(EVAL_BEGINNING)) == 0;
}
