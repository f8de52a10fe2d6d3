#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "libtrace/crc32c.h"
#include "libtrace/reader.h"
#include "libtrace/writer.h"

/* Compares what comes next with the unfinished trace that is gone on with.  It is passed over where
 * it is the same; where it is not, what lies there is of no use and cut off, unless it was
 * committed. */
static int go_over(struct kvf_writer *w, const struct iovec v[3])
{
    uint64_t at = w->end;
    bool same = true;
    for (int i = 0; same && i < 3; at += v[i++].iov_len)
        same = writer_file_same(&w->file, at, v[i].iov_base, v[i].iov_len);
    if (same) {
        w->end = at;
        return KVF_OK;
    }
    if (w->end < w->file.committed)
        return w->err = KVF_E_FORMAT;
    w->saved_errno = writer_file_cut(&w->file, w->end);
    return w->saved_errno ? (w->err = KVF_E_IO) : KVF_OK;
}

/* All of it at the end of the file, or nothing: a torn record is cut off again. */
static int write_all(struct kvf_writer *w, const void *a, size_t na, const void *b, size_t nb)
{
    static const unsigned char zero[8];
    size_t pad = (size_t)(padded(na + nb) - na - nb), total = na + nb + pad, done = 0;
    struct iovec v[3] = {
        {(void *)(uintptr_t)a, na}, {(void *)(uintptr_t)b, nb}, {(void *)(uintptr_t)zero, pad}};
    int i = 0;
    if (w->file.replays) {
        int err = go_over(w, v);
        if (err || w->file.replays)
            return err;
    }
    while (done < total) {
        while (v[i].iov_len == 0)
            i++;
        ssize_t got = pwritev(w->fd, v + i, 3 - i, (off_t)(w->end + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            w->saved_errno = got < 0 ? errno : ENOSPC;
            w->err = KVF_E_IO;
            while (ftruncate(w->fd, (off_t)w->end) != 0 && errno == EINTR)
                ;
            return w->err;
        }
        done += (size_t)got;
        for (int k = i; k < 3 && got > 0; k++) {
            size_t used = (size_t)got < v[k].iov_len ? (size_t)got : v[k].iov_len;
            v[k].iov_base = (char *)v[k].iov_base + used;
            v[k].iov_len -= used;
            got -= (ssize_t)used;
        }
    }
    w->end += total;
    return KVF_OK;
}

static int remember(struct kvf_writer *w, const struct record *r)
{
    if (w->n_index == w->cap_index) {
        size_t cap = w->cap_index ? 2 * w->cap_index : 1024;
        struct record *p = mem_grow(w->index, w->n_index, cap, sizeof *p);
        if (!p)
            return w->err = KVF_E_NOMEM;
        w->index = p;
        w->cap_index = cap;
    }
    w->index[w->n_index++] = *r;
    return KVF_OK;
}

int writer_append(struct kvf_writer *w, struct record *r, const void *first, size_t n_first,
                  const void *rest, size_t n)
{
    unsigned char head[RECORD_HEADER + BLOB_HEADER];
    if (w->err)
        return w->err;
    if (w->seq >= KVF_MAX_RECORDS && r->type != REC_INDEX)
        return KVF_E_LIMIT;
    r->seq = w->seq;
    r->salt = (uint32_t)w->id.low;
    r->link = w->link;
    r->offset = w->end;
    r->stored_len = n_first + n;
    r->payload_crc = crc32c(payload_crc(r, first, n_first), rest, n);
    r->hash = record_header_write(head, r);
    if (n_first)
        memcpy(head + RECORD_HEADER, first, n_first);
    int err = write_all(w, head, RECORD_HEADER + n_first, rest, n);
    if (err)
        return err;
    w->seq++;
    w->link = r->hash;
    return remember(w, r);
}

static int append(struct kvf_writer *w, struct record *r, const void *payload, size_t n)
{
    return writer_append(w, r, NULL, 0, payload, n);
}

/* The same, from a buffer, which is freed.  Out of memory stays the writer's error. */
static int append_buf(struct kvf_writer *w, struct record *r, struct buf *b)
{
    r->raw_len = b->len;
    int err = w->err ? w->err : b->err;
    if (!err)
        err = append(w, r, b->data, b->len);
    if (err == KVF_E_NOMEM)
        w->err = err;
    buf_finish(b);
    return err;
}

static int write_schema(struct kvf_writer *w)
{
    struct buf b = {0};
    buf_le32(&b, (uint32_t)w->n_layers);
    for (int l = 0; l < w->n_layers; l++) {
        buf_le16(&b, w->n_kv[l]);
        buf_le16(&b, w->n_query[l]);
    }
    buf_le32(&b, (uint32_t)w->n_columns);
    for (int c = 0; c < w->n_columns; c++) {
        const struct kvf_column *k = &w->column[c];
        char name[KVF_NAME_MAX] = {0}, unit[16] = {0};
        snprintf(name, sizeof name, "%s", k->name);
        snprintf(unit, sizeof unit, "%s", k->unit);
        buf_add(&b, name, sizeof name);
        const unsigned char kind[4] = {k->dtype, k->space, k->axis, k->flags};
        buf_add(&b, kind, 4);
        buf_add(&b, unit, sizeof unit);
    }
    struct record r = {.type = REC_SCHEMA, .flags = REC_CRITICAL};
    if (!b.err)
        digest_schema(&w->content.kept, (const unsigned char *)b.data, b.len);
    return append_buf(w, &r, &b);
}

static bool is_unsigned(int dtype)
{
    return dtype == KVF_U8 || dtype == KVF_U16 || dtype == KVF_U32 || dtype == KVF_U64;
}

/* What the flags ask of a column. */
static bool flags_fit(const struct kvf_column *c)
{
    if (c->flags & KVF_COL_INTERVALS)
        return trace_interval_column(c);
    return !(c->flags & KVF_COL_AGE) || is_unsigned(c->dtype);
}

static int check_columns(const struct kvf_column *c, int n, struct kvf_diag *d)
{
    if (n < 0 || n > KVF_MAX_COLUMNS)
        return kvf_fail(d, KVF_E_LIMIT, "%d columns are over the limit of %d", n, KVF_MAX_COLUMNS);
    for (int i = 0; i < n; i++)
        if (!memchr(c[i].name, 0, KVF_NAME_MAX) || !c[i].name[0] || !memchr(c[i].unit, 0, 16)
            || !kvf_dtype_size(c[i].dtype) || c[i].dtype > KVF_U64 || c[i].space > KVF_SPACE_QUERY
            || c[i].axis > KVF_AXIS_STEP || !flags_fit(&c[i]))
            return kvf_fail(d, KVF_E_ARG, "column %d is not well formed", i);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(c[i].name, c[k].name) == 0)
                return kvf_fail(d, KVF_E_ARG, "column %s is named twice", c[i].name);
    return KVF_OK;
}

static int copy_shape(struct kvf_writer *w, const struct kvf_shape *s)
{
    if (s->n_layers < 0 || s->n_layers > KVF_MAX_LAYERS)
        return KVF_E_LIMIT;
    w->n_layers = s->n_layers;
    w->n_kv = MEM_NEW(uint16_t, (size_t)s->n_layers);
    w->n_query = MEM_NEW(uint16_t, (size_t)s->n_layers);
    if (!w->n_kv || !w->n_query)
        return KVF_E_NOMEM;
    for (int l = 0; l < s->n_layers; l++) {
        w->n_kv[l] = s->n_kv_heads[l];
        w->n_query[l] = s->n_query_heads[l];
        if (w->n_kv[l] > KVF_MAX_HEADS || w->n_query[l] > KVF_MAX_HEADS)
            return KVF_E_LIMIT;
    }
    return KVF_OK;
}

static int write_start(struct kvf_writer *w, const char *meta, size_t n)
{
    unsigned char header[FILE_HEADER];
    struct record r = {.type = REC_META, .flags = REC_CRITICAL, .raw_len = n};
    file_header_write(header, &w->id);
    w->link = hash64(header, sizeof header);
    int err = write_all(w, header, sizeof header, NULL, 0);
    digest_meta(&w->content.kept, meta, n);
    if (!err)
        err = append(w, &r, meta, n);
    return err ? err : write_schema(w);
}

/* docs/reference/format.md, section 2. */
static int run_id(const char *meta, size_t n, const struct kvf_writer_options *o,
                  struct hash128 *ret)
{
    struct buf b = {0};
    buf_le64(&b, n);
    buf_add(&b, meta, n);
    for (size_t i = 0; i < o->n_prompt; i++)
        buf_le32(&b, (uint32_t)o->prompt[i]);
    int err = b.err;
    if (!err)
        *ret = hash128_seeded(b.data, b.len, 0);
    buf_finish(&b);
    return err;
}

static void free_writer(struct kvf_writer *w)
{
    writer_file_abandon(&w->file);
    mem_free(w->path);
    mem_free(w->meta);
    mem_free(w->prompt);
    mem_free(w->column);
    mem_free(w->n_kv);
    mem_free(w->n_query);
    mem_free(w->index);
    mem_free(w->content.note);
    mem_free(w->raw);
    mem_free(w->packed);
    mem_free(w->scratch);
    codec_destroy(w->codec);
    mem_free(w);
}

static int prepare(struct kvf_writer *w, const char *path, const char *meta,
                   const struct kvf_shape *shape, const struct kvf_column *columns, int n_columns,
                   const struct kvf_writer_options *o)
{
    int err = copy_shape(w, shape);
    w->path = mem_strdup(path);
    w->meta = mem_strdup(meta);
    w->prompt = MEM_NEW(int32_t, o->n_prompt);
    w->n_prompt = o->n_prompt;
    w->level = o->smallest ? ZSTD_SMALLEST : ZSTD_LEVEL;
    w->column = MEM_NEW(struct kvf_column, (size_t)n_columns);
    w->packed = mem_alloc(codec_bound(CHUNK_RAW), 1);
    w->scratch = mem_alloc(CHUNK_RAW, 1);
    w->raw = mem_alloc(CHUNK_RAW, 1);
    w->codec = codec_create();
    if (!err
        && (!w->path || !w->meta || !w->prompt || !w->column || !w->packed || !w->scratch || !w->raw
            || !w->codec))
        err = KVF_E_NOMEM;
    if (!err && n_columns)
        memcpy(w->column, columns, (size_t)n_columns * sizeof *columns);
    if (!err && w->n_prompt)
        memcpy(w->prompt, o->prompt, w->n_prompt * sizeof *w->prompt);
    w->n_columns = n_columns;
    return err;
}

/* The file with its header and schema. */
static int begin(struct kvf_writer *w, const char *meta, size_t n,
                 const struct kvf_writer_options *options, struct kvf_diag *d)
{
    int err = writer_file_open(&w->file, w->path, options, d);
    if (err)
        return err;
    w->fd = w->file.r.fd;
    char id[33];
    if (options->run && kvf_run_id(options->run, id) == KVF_OK)
        w->id = options->run->header.id;
    else
        err = run_id(meta, n, options, &w->id);
    if (!err)
        err = write_start(w, meta, n);
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err, "%s" REPLACE_UNFINISHED " is of another run, as its header says",
                        w->path);
    if (err)
        return kvf_fail(d, err, "%s: cannot write the trace: %s", w->path,
                        err == KVF_E_IO ? strerror(w->saved_errno) : kvf_strerror(err));
    err = writer_file_begun(&w->file, d);
    if (!err)
        writer_tail_begin(w, options->existing == KVF_RESUME);
    return err;
}

int writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                const struct kvf_column *columns, int n_columns,
                const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                struct kvf_diag *d)
{
    static const struct kvf_writer_options none = {0};
    size_t n = strlen(meta_json);
    options = options ? options : &none;
    int err = check_columns(columns, n_columns, d);
    if (err)
        return err;
    if (n > KVF_MAX_META)
        return kvf_fail(d, KVF_E_LIMIT, "the run header has %zu bytes, over the limit", n);
    struct kvf_writer *w = MEM_NEW(struct kvf_writer, 1);
    if (!w)
        return KVF_E_NOMEM;
    writer_file_none(&w->file);
    err = prepare(w, path, meta_json, shape, columns, n_columns, options);
    if (err) {
        kvf_fail(d, err, "%s: cannot create the trace: %s", path,
                 err == KVF_E_LIMIT ? "too many layers or heads" : kvf_strerror(err));
        goto fail;
    }
    err = begin(w, meta_json, n, options, d);
    if (err)
        goto fail;
    *ret_writer = w;
    return KVF_OK;
fail:
    free_writer(w);
    return err;
}

int kvf_writer_open_tail(const struct kvf_writer *w, struct kvf_writer **ret_tail,
                         struct kvf_diag *d)
{
    const struct kvf_shape shape = {w->n_layers, w->n_kv, w->n_query};
    const struct kvf_writer_options o = {.existing = KVF_OVERWRITE,
                                         .only_whole = true,
                                         .prompt = w->prompt,
                                         .n_prompt = w->n_prompt};
    struct buf name = {0};
    if (w->file.only_whole)
        return KVF_E_ARG;
    if (w->file.replays) {
        *ret_tail = NULL;
        return KVF_OK;
    }
    int err = writer_tail_name(w, &name);
    if (!err)
        err = writer_open(name.data, w->meta, &shape, w->column, w->n_columns, &o, ret_tail, d);
    buf_finish(&name);
    return err;
}

static int n_heads_of(const struct kvf_writer *w, int layer, int space)
{
    if (space == KVF_SPACE_RUN)
        return layer == 0 ? 1 : 0;
    if (layer < 0 || layer >= w->n_layers)
        return 0;
    return space == KVF_SPACE_KV ? w->n_kv[layer] : w->n_query[layer];
}

int writer_append_chunk(struct kvf_writer *w, struct record *r, int width)
{
    size_t n = codec_encode_at(w->level, w->codec, w->raw, r->raw_len, width, w->packed, w->scratch,
                               &r->codec);
    return append(w, r, w->packed, n);
}

/* One chunk of at most CHUNK_RAW bytes: columns [t0, t0 + n) of a wider array. */
static int write_part(struct kvf_writer *w, struct record *r, const char *data, size_t row,
                      size_t first, int width)
{
    size_t part = (size_t)r->n * (size_t)width;
    for (size_t h = 0; h < r->n_heads; h++)
        memcpy(w->raw + h * part, data + h * row + first * (size_t)width, part);
    const struct kvf_column *c = &w->column[r->column];
    bool snapshot = c->flags & KVF_COL_SNAPSHOT;
    uint64_t name = hash64(c->name, strlen(c->name));
    for (int h = 0; h < r->n_heads; h++)
        digest_values(snapshot ? &w->content.pending : &w->content.kept, name, r->layer,
                      r->head0 + h, r->t0, r->n, width, w->raw + (size_t)h * part);
    r->raw_len = r->n_heads * part;
    return writer_append_chunk(w, r, width);
}

bool writer_has_place(const struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                      uint32_t t0, uint32_t n, uint32_t epoch, bool intervals)
{
    if (column < 0 || column >= w->n_columns)
        return false;
    const struct kvf_column *c = &w->column[column];
    int all = n_heads_of(w, layer, c->space);
    return head0 >= 0 && n_heads >= 1 && n_heads <= all - head0 && t0 <= KVF_MAX_STEPS
           && n <= KVF_MAX_STEPS - t0 && epoch == (c->flags & KVF_COL_SNAPSHOT ? w->epoch + 1 : 0)
           && !(c->flags & KVF_COL_INTERVALS) == !intervals;
}

int kvf_write_chunk(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                    uint32_t t0, uint32_t n, uint32_t epoch, const void *data)
{
    if (w->err)
        return w->err;
    if (!writer_has_place(w, column, layer, head0, n_heads, t0, n, epoch, false))
        return KVF_E_ARG;
    int width = (int)kvf_dtype_size(w->column[column].dtype);
    uint32_t most = (uint32_t)(CHUNK_RAW / (width * n_heads)), at = 0;
    if (most == 0)
        return KVF_E_LIMIT; /* more heads than fit: write them in several calls */
    while (at < n) {
        struct record r = {.type = REC_COLUMN,
                           .column = (uint32_t)column,
                           .layer = (uint16_t)layer,
                           .head0 = (uint16_t)head0,
                           .n_heads = (uint16_t)n_heads,
                           .t0 = t0 + at,
                           .n = n - at < most ? n - at : most,
                           .epoch = epoch};
        int err = write_part(w, &r, data, (size_t)n * (size_t)width, at, width);
        if (err)
            return err;
        at += r.n;
    }
    return KVF_OK;
}

int kvf_write_token_bytes(struct kvf_writer *w, uint32_t t0, uint32_t n, const uint32_t *end,
                          const char *bytes)
{
    enum { PER_RECORD = 16384 };
    uint32_t first = 0;
    if (t0 > KVF_MAX_STEPS || n > KVF_MAX_STEPS - t0)
        return KVF_E_ARG;
    for (uint32_t i = 1; i < n; i++)
        if (end[i] < end[i - 1])
            return KVF_E_ARG;
    for (uint32_t at = 0; at < n && !w->err; at += PER_RECORD) {
        uint32_t k = n - at < PER_RECORD ? n - at : PER_RECORD;
        struct buf b = {.max = CHUNK_RAW_LIMIT};
        for (uint32_t i = 0; i < k; i++)
            buf_le32(&b, end[at + i] - first);
        buf_add(&b, bytes + first, end[at + k - 1] - first);
        first = end[at + k - 1];
        struct record r = {.type = REC_TOKENS, .t0 = t0 + at, .n = k};
        if (!b.err)
            digest_tokens(&w->content.kept, (const unsigned char *)b.data, r.t0, k);
        int err = append_buf(w, &r, &b);
        if (err)
            return err;
    }
    return w->err;
}

int kvf_writer_sync(struct kvf_writer *w)
{
    if (!w->err && fdatasync(w->fd) != 0) { /* after a failed sync nothing is sure */
        w->saved_errno = errno;
        w->err = KVF_E_IO;
    }
    return w->err;
}

int kvf_writer_commit(struct kvf_writer *w, uint32_t epoch, uint32_t n_steps)
{
    unsigned char payload[8 + FILE_HEADER];
    if (epoch != w->epoch + 1 || n_steps > KVF_MAX_STEPS || n_steps < w->needs)
        return KVF_E_ARG;
    struct record r = {.type = REC_COMMIT, .flags = REC_CRITICAL, .epoch = epoch, .raw_len = 8};
    put_le(payload, epoch, 4);
    put_le(payload + 4, n_steps, 4);
    int err = append(w, &r, payload, 8);
    if (err)
        return err;
    w->epoch = epoch;
    w->needs = 0;
    w->content.snapshot = w->content.pending;
    w->content.pending = (struct hash128){0, 0};
    w->content.n_steps = n_steps;
    struct record copy = {.type = REC_CHECKPOINT, .raw_len = FILE_HEADER};
    file_header_write(payload, &w->id);
    err = append(w, &copy, payload, FILE_HEADER);
    return err ? err : kvf_writer_sync(w);
}

/* Of the notes of one key the last counts. */
static int remember_note(struct kvf_writer *w, const char *key, const struct buf *b)
{
    struct content *c = &w->content;
    const struct noted now = {hash64(key, strlen(key)), digest_note(b->data, b->len)};
    size_t i = 0;
    while (i < c->n_notes && c->note[i].key != now.key)
        i++;
    if (i == c->n_notes) {
        struct noted *more = mem_grow(c->note, i, i + 1, sizeof *more);
        if (!more)
            return KVF_E_NOMEM;
        c->note = more;
        c->n_notes++;
    }
    c->note[i] = now;
    return KVF_OK;
}

int kvf_writer_note(struct kvf_writer *w, const char *key, const char *json)
{
    struct buf b = {.max = strlen(key) + 1 + KVF_MAX_META};
    struct record r = {.type = REC_NOTE};
    if (!key[0] || strlen(key) > KVF_MAX_KEY)
        return w->err ? w->err : KVF_E_ARG;
    buf_add(&b, key, strlen(key) + 1);
    buf_str(&b, json);
    if (!b.err)
        b.err = remember_note(w, key, &b);
    return append_buf(w, &r, &b);
}

uint64_t kvf_writer_bytes(const struct kvf_writer *w)
{
    return w->end;
}

struct hash128 writer_digest(const struct kvf_writer *w)
{
    const struct content *c = &w->content;
    struct hash128 sum = c->kept;
    digest_add(&sum, c->snapshot);
    digest_add(&sum, digest_steps(c->n_steps));
    for (size_t i = 0; i < c->n_notes; i++)
        digest_add(&sum, c->note[i].part);
    return sum;
}

static int write_index(struct kvf_writer *w)
{
    size_t n = w->n_index;
    unsigned char *out = mem_alloc(n, INDEX_ENTRY);
    if (!out)
        return w->err = KVF_E_NOMEM;
    qsort(w->index, n, sizeof *w->index, record_compare);
    for (size_t i = 0; i < n; i++)
        index_entry_write(out + i * INDEX_ENTRY, &w->index[i]);
    struct record r = {.type = REC_INDEX, .raw_len = n * INDEX_ENTRY};
    struct footer f = {.index_offset = w->end, .n_records = n, .clean = true};
    int err = append(w, &r, out, n * INDEX_ENTRY);
    f.last = r.hash;
    f.salt = r.salt;
    f.digest = writer_digest(w);
    mem_free(out);
    unsigned char end[FOOTER];
    footer_write(end, &f);
    return err ? err : write_all(w, end, sizeof end, NULL, 0);
}

/* All is on the disk, and nothing behind it; the tail counts no more. */
static int finish_file(struct kvf_writer *w)
{
    if (w->file.replays) {
        w->saved_errno = writer_file_cut(&w->file, w->end);
        if (w->saved_errno)
            return KVF_E_IO;
    }
    int err = kvf_writer_sync(w);
    if (!err)
        writer_tail_remove(w);
    return err;
}

int kvf_writer_close(struct kvf_writer *w, struct kvf_diag *d)
{
    if (!w)
        return KVF_OK;
    bool shown = w->file.r.shown;
    int err = w->err ? w->err : write_index(w);
    if (!err)
        err = finish_file(w);
    if (err == KVF_E_FORMAT)
        kvf_fail(d, err, "%s" REPLACE_UNFINISHED " is of another run; it is kept as it is",
                 w->path);
    else if (err)
        kvf_fail(d, err, "%s: writing failed: %s%s%s%s", w->path,
                 err == KVF_E_IO ? strerror(w->saved_errno) : kvf_strerror(err),
                 shown ? "; what was written before stays readable in " : "", shown ? w->path : "",
                 shown ? REPLACE_UNFINISHED : "");
    else
        err = writer_file_close(&w->file, d);
    free_writer(w);
    return err;
}

void kvf_writer_abandon(struct kvf_writer *w)
{
    if (w)
        free_writer(w);
}
