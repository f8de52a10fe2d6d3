/* writer.c - opens, fills and closes a trace that is written (writer.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "libtrace/crc32c.h"
#include "libtrace/reader.h"
#include "libtrace/sparse.h"
#include "libtrace/writer.h"

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
    struct record r = {.type = REC_SCHEMA, .flags = REC_CRITICAL, .raw_len = b.len};
    struct hash128 holds = {0, 0};
    int err = b.err;
    if (!err) {
        digest_schema(&holds, (const unsigned char *)b.data, b.len);
        err = writer_put(w, &r, (struct payload){.data = b.data, .n = b.len}, holds);
    }
    buf_finish(&b);
    return err;
}

static bool is_unsigned(int dtype)
{
    return dtype == KVF_U8 || dtype == KVF_U16 || dtype == KVF_U32 || dtype == KVF_U64;
}

/* The requirements of the flags of a column. */
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
    struct hash128 holds = {0, 0};
    digest_meta(&holds, meta, n);
    int err = writer_write(w, header, sizeof header, NULL, 0);
    if (!err)
        err = writer_put(w, &r, (struct payload){.data = meta, .n = n}, holds);
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
    mem_free_all(w->path, w->meta, w->prompt, w->column, w->n_kv, w->n_query, w->index,
                 w->content.note);
    writer_free_encoders(w);
    pthread_mutex_destroy(&w->lock);
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
    w->plain = o->plain;
    w->column = MEM_NEW(struct kvf_column, (size_t)n_columns);
    struct encoder *first = NULL; /* for a single writing thread */
    if (!err && (!w->path || !w->meta || !w->prompt || !w->column))
        err = KVF_E_NOMEM;
    if (!err)
        err = writer_take(w, 0, &first);
    if (first)
        writer_give(w, first);
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
        return kvf_fail(d, err, "%s" REPLACE_UNFINISHED " is of another run, by its header",
                        w->path);
    if (err)
        return kvf_fail(d, err, "%s: cannot write the trace: %s", w->path,
                        err == KVF_E_IO ? strerror(w->saved_errno) : kvf_strerror(err));
    err = writer_file_begun(&w->file, d);
    if (!err)
        writer_tail_begin(w, writer_resumes(options->existing));
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
    if (pthread_mutex_init(&w->lock, NULL) != 0) {
        mem_free(w);
        return KVF_E_NOMEM;
    }
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
    if (writer_replays(w)) {
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

/* One chunk of at most CHUNK_RAW bytes: columns [t0, t0 + n) of a wider array. */
static int write_part(struct kvf_writer *w, struct encoder *e, struct record *r, const char *data,
                      size_t row, size_t first, int width)
{
    size_t part = (size_t)r->n * (size_t)width;
    struct hash128 holds = {0, 0};
    const char *column = w->column[r->column].name;
    uint64_t name = hash64(column, strlen(column));
    for (int h = 0; h < r->n_heads; h++) {
        unsigned char *to = e->raw + (size_t)h * part;
        copy_le(to, data + (size_t)h * row + first * (size_t)width, r->n, (size_t)width);
        digest_values(&holds, name, r->layer, r->head0 + h, r->t0, r->n, width, to);
    }
    r->raw_len = r->n_heads * part;
    const struct payload p = {.data = e->raw, .n = r->raw_len};
    return w->plain ? writer_put(w, r, p, holds) : writer_put_coded(w, e, r, width, p, holds);
}

bool writer_has_place(const struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                      uint32_t t0, uint32_t n, uint32_t epoch, bool intervals)
{
    if (column < 0 || column >= w->n_columns)
        return false;
    const struct kvf_column *c = &w->column[column];
    int all = n_heads_of(w, layer, c->space);
    return head0 >= 0 && n_heads >= 1 && n_heads <= all - head0 && t0 <= KVF_MAX_STEPS
           && n <= KVF_MAX_STEPS - t0 && !(c->flags & KVF_COL_SNAPSHOT) == (epoch == 0)
           && !(c->flags & KVF_COL_INTERVALS) == !intervals;
}

/* All n values of the heads of r, cut along the index where even one head has too many. */
static int write_heads(struct kvf_writer *w, struct encoder *e, struct record r, uint32_t n,
                       int width, const char *data)
{
    uint32_t t0 = r.t0, most = (uint32_t)(CHUNK_RAW / (width * r.n_heads));
    int err = KVF_OK;
    for (uint32_t at = 0; !err && at < n; at += r.n) {
        r.t0 = t0 + at;
        r.n = n - at < most ? n - at : most;
        err = write_part(w, e, &r, data, (size_t)n * (size_t)width, at, width);
    }
    return err;
}

int kvf_write_chunk(struct kvf_writer *w, int column, int layer, int head0, int n_heads,
                    uint32_t t0, uint32_t n, uint32_t epoch, const void *data)
{
    struct encoder *e;
    if (!writer_has_place(w, column, layer, head0, n_heads, t0, n, epoch, false))
        return writer_refuse(w, KVF_E_ARG);
    int width = (int)kvf_dtype_size(w->column[column].dtype);
    size_t row = (size_t)n * (size_t)width;
    int most = row && row <= CHUNK_RAW ? (int)(CHUNK_RAW / row) : 1;
    int err = writer_take(w, epoch, &e);
    if (err)
        return err;
    for (int h = 0; !err && h < n_heads && n; h += most) {
        struct record r = {.type = REC_COLUMN,
                           .column = (uint32_t)column,
                           .layer = (uint16_t)layer,
                           .head0 = (uint16_t)(head0 + h),
                           .n_heads = (uint16_t)(n_heads - h < most ? n_heads - h : most),
                           .t0 = t0,
                           .epoch = epoch};
        err = write_heads(w, e, r, n, width, (const char *)data + (size_t)h * row);
    }
    writer_give(w, e);
    return err;
}

/* One record of n texts; first: where the first of them begins. */
static int write_texts(struct kvf_writer *w, struct encoder *e, uint32_t t0, uint32_t n,
                       uint32_t first, const uint32_t *end, const char *bytes)
{
    size_t length = end[n - 1] - first, ends = 4 * (size_t)n;
    struct record r = {.type = REC_TOKENS, .t0 = t0, .n = n, .raw_len = ends + length};
    struct hash128 holds = {0, 0};
    if (r.raw_len > CHUNK_RAW_LIMIT)
        return KVF_E_LIMIT;
    int err = writer_room(w, e, r.raw_len, 0);
    if (err)
        return err;
    for (uint32_t i = 0; i < n; i++)
        put_le(e->raw + 4 * (size_t)i, end[i] - first, 4);
    if (length) /* bytes may be NULL where there is none */
        memcpy(e->raw + ends, bytes + first, length);
    digest_tokens(&holds, e->raw, t0, n);
    return writer_put(w, &r, (struct payload){.data = e->raw, .n = r.raw_len}, holds);
}

int kvf_write_token_bytes(struct kvf_writer *w, uint32_t t0, uint32_t n, const uint32_t *end,
                          const char *bytes)
{
    enum { PER_RECORD = 16384 };
    struct encoder *e;
    if (t0 > KVF_MAX_STEPS || n > KVF_MAX_STEPS - t0)
        return writer_refuse(w, KVF_E_ARG);
    for (uint32_t i = 1; i < n; i++)
        if (end[i] < end[i - 1])
            return writer_refuse(w, KVF_E_ARG);
    int err = writer_take(w, 0, &e);
    if (err)
        return err;
    for (uint32_t at = 0; !err && at < n; at += PER_RECORD) {
        uint32_t k = n - at < PER_RECORD ? n - at : PER_RECORD;
        err = write_texts(w, e, t0 + at, k, at ? end[at - 1] : 0, end + at, bytes);
    }
    writer_give(w, e);
    return err;
}

int kvf_writer_note(struct kvf_writer *w, const char *key, const char *json)
{
    static const struct hash128 nothing = {0, 0}; /* notes are summed up when the last is known */
    size_t n_key = strlen(key) + 1, n_json = strlen(json);
    struct encoder *e;
    if (n_key == 1 || n_key > KVF_MAX_KEY + 1)
        return writer_refuse(w, KVF_E_ARG);
    if (n_json > KVF_MAX_META)
        return writer_refuse(w, KVF_E_LIMIT);
    int err = writer_take(w, 0, &e);
    if (err)
        return err;
    struct record r = {.type = REC_NOTE, .raw_len = n_key + n_json};
    err = writer_room(w, e, r.raw_len, 0);
    if (!err) {
        memcpy(e->raw, key, n_key);
        memcpy(e->raw + n_key, json, n_json);
        err = writer_put(w, &r, (struct payload){.data = e->raw, .n = r.raw_len}, nothing);
    }
    writer_give(w, e);
    return err;
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
    int err = writer_put(w, &r, (struct payload){.data = out, .n = n * INDEX_ENTRY},
                         (struct hash128){0, 0});
    f.last = r.hash;
    f.salt = r.salt;
    f.digest = writer_digest(w);
    mem_free(out);
    unsigned char end[FOOTER];
    footer_write(end, &f);
    return err ? err : writer_write(w, end, sizeof end, NULL, 0);
}

/* All data is on the disk, and the file ends there; the tail counts no more. */
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
                 shown ? "; the steps that were written stay readable in " : "",
                 shown ? w->path : "", shown ? REPLACE_UNFINISHED : "");
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

void kvf_writer_drop(struct kvf_writer *w)
{
    if (w && w->file.committed == 0)
        replace_drop(&w->file.r);
    kvf_writer_abandon(w);
}

/* ---- blocks of numbers as they were in the run. */

static int check(const struct kvf_writer *w, const struct kvf_blob *b)
{
    if (!b->name[0] || !memchr(b->name, 0, KVF_NAME_MAX) || b->rank < 1 || b->rank > KVF_MAX_RANK
        || !kvf_dtype_size((enum kvf_dtype)b->dtype) || b->t0 >= KVF_MAX_STEPS
        || !trace_has_head(w->n_layers, w->n_kv, w->n_query, b->layer, b->head))
        return KVF_E_ARG;
    for (int i = 0; i < KVF_MAX_RANK; i++)
        if ((b->shape[i] == 0) != (i >= b->rank))
            return KVF_E_ARG;
    return kvf_blob_size(b) ? KVF_OK : KVF_E_LIMIT;
}

static int append_blob(struct kvf_writer *w, struct encoder *e, const struct kvf_blob *b,
                       bool packed, const void *data)
{
    unsigned char head[BLOB_HEADER];
    struct record r = {.type = REC_BLOB, .layer = b->layer, .head0 = b->head, .t0 = b->t0};
    struct hash128 holds = {0, 0};
    size_t n = kvf_blob_size(b), width = kvf_dtype_size((enum kvf_dtype)b->dtype);
    int err = writer_room(w, e, LITTLE_ENDIAN_HERE ? 0 : n, packed ? n : 0);
    if (err)
        return err;
    if (!LITTLE_ENDIAN_HERE) {
        copy_le(e->raw, data, n / width, width);
        data = e->raw;
    }
    r.raw_len = n;
    blob_header_write(head, b);
    digest_blob(&holds, &r, head, data);
    const struct payload p = {.first = head, .n_first = sizeof head, .data = data, .n = n};
    return packed ? writer_put_coded(w, e, &r, (int)width, p, holds) : writer_put(w, &r, p, holds);
}

int writer_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data)
{
    struct encoder *e;
    int err = check(w, b);
    if (err)
        return writer_refuse(w, err);
    err = writer_take(w, 0, &e);
    if (err)
        return err;
    err = append_blob(w, e, b, packed, data);
    writer_give(w, e);
    return err;
}

/* ---- the newest state of a trace that is being written, in its tail file. */

int writer_tail_name(const struct kvf_writer *w, struct buf *ret)
{
    struct stat s;
    buf_printf(ret, "%s" TAIL_SUFFIX, w->file.r.place);
    if (!ret->err && lstat(ret->data, &s) == 0 && !S_ISREG(s.st_mode))
        unlink(ret->data);
    return ret->err;
}

void writer_tail_begin(const struct kvf_writer *w, bool keep)
{
    struct replace left = REPLACE_CLOSED;
    struct buf name = {0};
    if (!keep)
        writer_tail_remove(w);
    if (!w->file.only_whole && writer_tail_name(w, &name) == KVF_OK
        && replace_open(&left, name.data, NULL) == KVF_OK) /* it sweeps */
        replace_abandon(&left);
    buf_finish(&name);
}

void writer_tail_remove(const struct kvf_writer *w)
{
    struct buf name = {0};
    if (!w->file.only_whole && writer_tail_name(w, &name) == KVF_OK)
        unlink(name.data);
    buf_finish(&name);
}

void writer_sparse(struct kvf_writer *w, int first, int end)
{
    w->sparse_first = first;
    w->sparse_end = end;
}
