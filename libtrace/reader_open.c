/* reader_open.c - opening a trace: by its index when it was closed properly,
 * else by walking the record headers. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "libtrace/reader.h"

int trace_pread(int fd, void *buf, size_t n, uint64_t offset)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)buf + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return KVF_E_IO;
        done += (size_t)got;
    }
    return KVF_OK;
}

int trace_payload(const struct kvf_trace *t, const struct record *r, unsigned char **ret,
                  struct kvf_diag *d)
{
    unsigned char head[RECORD_HEADER];
    struct record full;
    unsigned char *p = mem_alloc(r->stored_len, 1);
    if (!p)
        return KVF_E_NOMEM;
    int err = trace_pread(t->fd, head, sizeof head, r->offset);
    if (!err)
        err = trace_pread(t->fd, p, r->stored_len, r->offset + RECORD_HEADER);
    if (err)
        kvf_fail(d, err, "%s: cannot read at byte %llu", t->path, (unsigned long long)r->offset);
    /* the index is a hint: the record itself decides */
    else if (!record_header_read(head, r->offset, t->salt, &full) || record_compare(&full, r) != 0
             || full.stored_len != r->stored_len || full.raw_len != r->raw_len || full.n != r->n
             || full.n_heads != r->n_heads
             || payload_crc(&full, p, full.stored_len) != full.payload_crc)
        err = kvf_fail(d, KVF_E_CORRUPT, "%s: the record at byte %llu is damaged", t->path,
                       (unsigned long long)r->offset);
    if (err) {
        mem_free(p);
        return err;
    }
    *ret = p;
    return KVF_OK;
}

static int add_record(struct kvf_trace *t, const struct record *r)
{
    if (t->n_rec == t->cap_rec) {
        size_t cap = t->cap_rec ? 2 * t->cap_rec : 256;
        struct record *p = mem_grow(t->rec, t->n_rec, cap, sizeof *p);
        if (!p)
            return KVF_E_NOMEM;
        t->rec = p;
        t->cap_rec = cap;
    }
    t->rec[t->n_rec++] = *r;
    return KVF_OK;
}

/* Lengths that the type of the record allows. */
static bool plausible(const struct record *r, uint64_t size)
{
    uint64_t limit = r->type == REC_COLUMN || r->type == REC_TOKENS ? CHUNK_RAW_LIMIT
                   : r->type == REC_INDEX ? (uint64_t)1 << 32 : META_LIMIT + 1024;
    return r->raw_len <= limit && r->stored_len <= limit && r->offset <= size
           && r->stored_len <= size - r->offset
           && (uint64_t)RECORD_HEADER + r->stored_len <= size - r->offset;
}

static bool read_footer(struct kvf_trace *t, struct footer *f)
{
    unsigned char end[FOOTER];
    return t->size >= FILE_HEADER + FOOTER
           && trace_pread(t->fd, end, sizeof end, t->size - FOOTER) == KVF_OK
           && footer_read(end, t->salt, f) && f->clean
           && f->index_offset <= t->size - FOOTER - RECORD_HEADER;
}

/* KVF_OK, or any error: the caller then walks the file. */
static int load_index(struct kvf_trace *t)
{
    struct footer f;
    struct record r;
    unsigned char head[RECORD_HEADER], *p = NULL;
    if (t->size < FILE_HEADER + RECORD_HEADER + FOOTER || !read_footer(t, &f)
        || trace_pread(t->fd, head, sizeof head, f.index_offset) != KVF_OK
        || !record_header_read(head, f.index_offset, t->salt, &r) || r.type != REC_INDEX
        || !plausible(&r, t->size) || r.stored_len % INDEX_ENTRY
        || r.offset + RECORD_HEADER + padded(r.stored_len) != t->size - FOOTER)
        return KVF_E_CORRUPT;
    int err = trace_payload(t, &r, &p, NULL);
    for (uint64_t i = 0; !err && i < r.stored_len / INDEX_ENTRY; i++) {
        struct record e;
        index_entry_read(p + i * INDEX_ENTRY, &e);
        err = plausible(&e, t->size) ? add_record(t, &e) : KVF_E_CORRUPT;
    }
    mem_free(p);
    if (err)
        t->n_rec = 0;
    t->clean = !err;
    return err;
}

/* The next place at or after `from` that holds a record header; 0: none. */
static uint64_t resync(const struct kvf_trace *t, uint64_t from)
{
    enum { STEP = 1 << 16 };
    unsigned char *buf = mem_alloc(STEP + RECORD_HEADER, 1);
    uint64_t found = 0;
    struct record r;
    for (uint64_t at = (from + 7) & ~(uint64_t)7; buf && !found && at + RECORD_HEADER <= t->size;
         at += STEP) {
        size_t n = t->size - at < STEP + RECORD_HEADER ? (size_t)(t->size - at)
                                                       : STEP + RECORD_HEADER;
        if (trace_pread(t->fd, buf, n, at) != KVF_OK)
            break;
        for (size_t i = 0; i + RECORD_HEADER <= n && i < STEP && !found; i += 8)
            if (record_header_read(buf + i, at + i, t->salt, &r))
                found = at + i;
    }
    mem_free(buf);
    return found;
}

static bool note_damage(struct kvf_trace *t, uint64_t at)
{
    if (!t->bad_records++)
        t->first_bad = at;
    return true;
}

/* The end of the records: a footer, or the end of the file. */
static uint64_t walk_end(struct kvf_trace *t)
{
    struct footer f;
    t->clean = read_footer(t, &f);
    return t->clean ? t->size - FOOTER : t->size;
}

static int walk(struct kvf_trace *t, enum kvf_open_mode mode)
{
    unsigned char head[RECORD_HEADER];
    uint64_t at = FILE_HEADER, end = walk_end(t), next_seq = 0;
    while (at < end) {
        struct record r;
        bool ok = end - at >= RECORD_HEADER && trace_pread(t->fd, head, sizeof head, at) == KVF_OK
                  && record_header_read(head, at, t->salt, &r) && plausible(&r, end)
                  && r.seq >= next_seq;
        if (!ok) {
            uint64_t again = resync(t, at + 8);
            note_damage(t, at);
            if (mode != KVF_OPEN_SALVAGE || !again || again >= end) {
                t->lost_bytes += end - at;
                return KVF_OK;
            }
            t->lost_bytes += again - at;
            at = again;
            continue;
        }
        next_seq = r.seq + 1;
        int err = r.type == REC_INDEX ? KVF_OK : add_record(t, &r);
        if (err)
            return err;
        at += RECORD_HEADER + padded(r.stored_len);
    }
    return KVF_OK;
}

static const struct record *first_of(const struct kvf_trace *t, enum record_type type)
{
    for (size_t i = 0; i < t->n_rec; i++)
        if (t->rec[i].type == type)
            return &t->rec[i];
    return NULL;
}

static int load_meta(struct kvf_trace *t, struct kvf_diag *d)
{
    const struct record *r = first_of(t, REC_META);
    unsigned char *p = NULL;
    if (!r)
        return kvf_fail(d, KVF_E_CORRUPT, "%s: the run header is lost", t->path);
    int err = trace_payload(t, r, &p, d);
    if (err)
        return err;
    t->meta = mem_alloc(r->stored_len + 1, 1);
    if (t->meta)
        memcpy(t->meta, p, r->stored_len);
    mem_free(p);
    return t->meta ? KVF_OK : KVF_E_NOMEM;
}

static int parse_columns(struct kvf_trace *t, const unsigned char *p, size_t n)
{
    t->column = MEM_NEW(struct kvf_column, (size_t)t->n_columns);
    if (!t->column)
        return KVF_E_NOMEM;
    if (n != (size_t)t->n_columns * COLUMN_ENTRY)
        return KVF_E_CORRUPT;
    for (int i = 0; i < t->n_columns; i++, p += COLUMN_ENTRY) {
        struct kvf_column *c = &t->column[i];
        memcpy(c->name, p, KVF_NAME_MAX);
        c->dtype = p[48], c->space = p[49], c->axis = p[50], c->flags = p[51];
        memcpy(c->unit, p + 52, 16);
        if (!memchr(c->name, 0, KVF_NAME_MAX) || !memchr(c->unit, 0, 16)
            || !kvf_dtype_size(c->dtype) || c->space > KVF_SPACE_QUERY || c->axis > KVF_AXIS_STEP)
            return KVF_E_CORRUPT;
    }
    return KVF_OK;
}

static int parse_schema(struct kvf_trace *t, const unsigned char *p, size_t n)
{
    uint64_t layers = n >= 8 ? get_le(p, 4) : KVF_MAX_LAYERS + 1;
    if (layers > KVF_MAX_LAYERS || n < 8 + 4 * layers)
        return KVF_E_CORRUPT;
    t->n_layers = (int)layers;
    t->n_kv = MEM_NEW(uint16_t, layers);
    t->n_query = MEM_NEW(uint16_t, layers);
    if (!t->n_kv || !t->n_query)
        return KVF_E_NOMEM;
    for (uint64_t l = 0; l < layers; l++) {
        t->n_kv[l] = (uint16_t)get_le(p + 4 + 4 * l, 2);
        t->n_query[l] = (uint16_t)get_le(p + 6 + 4 * l, 2);
    }
    uint64_t columns = get_le(p + 4 + 4 * layers, 4);
    if (columns > MAX_COLUMNS)
        return KVF_E_CORRUPT;
    t->n_columns = (int)columns;
    return parse_columns(t, p + 8 + 4 * layers, n - 8 - 4 * layers);
}

static int load_schema(struct kvf_trace *t, struct kvf_diag *d)
{
    const struct record *r = first_of(t, REC_SCHEMA);
    unsigned char *p = NULL;
    if (!r)
        return kvf_fail(d, KVF_E_CORRUPT, "%s: the schema is lost", t->path);
    int err = trace_payload(t, r, &p, d);
    if (err)
        return err;
    err = parse_schema(t, p, r->stored_len);
    mem_free(p);
    return err == KVF_E_CORRUPT ? kvf_fail(d, err, "%s: the schema is malformed", t->path) : err;
}

static int load_small(struct kvf_trace *t, const struct record *r)
{
    unsigned char *p = NULL;
    int err = trace_payload(t, r, &p, NULL);
    if (err == KVF_E_NOMEM)
        return err;
    if (err)
        return note_damage(t, r->offset), KVF_OK;
    uint32_t epoch = r->stored_len == 8 ? (uint32_t)get_le(p, 4) : 0;
    if (r->type == REC_COMMIT && epoch > t->epoch && get_le(p + 4, 4) <= KVF_MAX_STEPS) {
        t->epoch = epoch;
        t->n_steps = (uint32_t)get_le(p + 4, 4);
    } else if (r->type == REC_NOTE && memchr(p, 0, r->stored_len)) {
        char **list = mem_grow(t->note, (size_t)t->n_notes, (size_t)t->n_notes + 1, sizeof *list);
        char *text = mem_alloc(r->stored_len + 1, 1);
        if (list)
            t->note = list;
        if (!list || !text) {
            mem_free(text);
            mem_free(p);
            return KVF_E_NOMEM;
        }
        memcpy(text, p, r->stored_len);
        t->note[t->n_notes++] = text;
    }
    mem_free(p);
    return KVF_OK;
}

/* Chunks whose header contradicts the schema are dropped as damage. */
static bool fits_schema(const struct kvf_trace *t, const struct record *r)
{
    if (r->type != REC_COLUMN)
        return true;
    if (r->column >= (uint32_t)t->n_columns)
        return false;
    const struct kvf_column *c = &t->column[r->column];
    int heads = kvf_n_heads(t, r->layer, (enum kvf_space)c->space);
    uint64_t raw = (uint64_t)r->n_heads * r->n * kvf_dtype_size(c->dtype);
    return r->n_heads >= 1 && r->head0 + r->n_heads <= heads && r->n >= 1
           && (uint64_t)r->t0 + r->n <= KVF_MAX_STEPS && raw == r->raw_len;
}

static int load_rest(struct kvf_trace *t)
{
    size_t kept = 0;
    int err = KVF_OK;
    for (size_t i = 0; !err && i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        if (r->type == REC_COMMIT || r->type == REC_NOTE)
            err = load_small(t, r);
        if (fits_schema(t, r))
            t->rec[kept++] = *r;
        else
            note_damage(t, r->offset);
    }
    t->n_rec = kept;
    qsort(t->rec, t->n_rec, sizeof *t->rec, record_compare);
    return err;
}

static int open_file(struct kvf_trace *t, struct kvf_diag *d)
{
    struct stat st;
    unsigned char head[FILE_HEADER];
    t->fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (t->fd < 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the trace: %s", t->path, strerror(errno));
    if (fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return kvf_fail(d, KVF_E_IO, "%s: not a regular file", t->path);
    t->size = (uint64_t)st.st_size;
    if (t->size < FILE_HEADER || trace_pread(t->fd, head, sizeof head, 0) != KVF_OK)
        return kvf_fail(d, KVF_E_FORMAT, "%s: not a kvfate trace (%llu bytes)", t->path,
                        (unsigned long long)t->size);
    int err = file_header_read(head, &t->salt);
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err, "%s: not a kvfate trace", t->path);
    if (err == KVF_E_CORRUPT)
        return kvf_fail(d, err, "%s: the header of the trace is damaged", t->path);
    if (err)
        return kvf_fail(d, err, "%s: written by a newer kvfate; update to read it", t->path);
    return KVF_OK;
}

int kvf_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
             struct kvf_diag *d)
{
    struct kvf_trace *t = MEM_NEW(struct kvf_trace, 1);
    if (!t)
        return KVF_E_NOMEM;
    t->fd = -1;
    for (int i = 0; i < CACHED_CHUNKS; i++)
        t->cache[i].entry = SIZE_MAX;
    t->path = mem_strdup(path);
    int err = t->path ? open_file(t, d) : KVF_E_NOMEM;
    if (!err && load_index(t) != KVF_OK)
        err = walk(t, mode);
    if (!err)
        err = load_meta(t, d);
    if (!err)
        err = load_schema(t, d);
    if (!err)
        err = load_rest(t);
    if (!err && mode == KVF_OPEN_STRICT && (t->bad_records || !t->clean))
        err = kvf_fail(d, KVF_E_CORRUPT, "%s: %s", path,
                       t->bad_records ? "some records are damaged" : "the trace was not closed");
    if (err) {
        kvf_close(t);
        return err;
    }
    *ret_trace = t;
    return KVF_OK;
}

void kvf_close(struct kvf_trace *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    for (int i = 0; i < CACHED_CHUNKS; i++)
        mem_free(t->cache[i].data);
    for (int i = 0; i < t->n_notes; i++)
        mem_free(t->note[i]);
    mem_free(t->note);
    mem_free(t->text);
    mem_free(t->text_end);
    mem_free(t->meta);
    mem_free(t->column);
    mem_free(t->n_kv);
    mem_free(t->n_query);
    mem_free(t->rec);
    mem_free(t->path);
    mem_free(t);
}
