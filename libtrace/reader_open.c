/* reader_open.c - opening a trace: run header, schema, commits and notes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/replace.h"
#include "libtrace/reader.h"

static const struct record *first_of(const struct kvf_trace *t, enum record_type type)
{
    for (size_t i = 0; i < t->n_rec; i++)
        if (t->rec[i].type == type)
            return &t->rec[i];
    return NULL;
}

static int missing(const struct kvf_trace *t, const char *what, struct kvf_diag *d)
{
    bool cut = !t->clean && !t->bad_records; /* there is only a torn tail */
    return kvf_fail(
        d, KVF_E_CORRUPT, "%s: the %s is %s", t->path, what,
        cut ? "not complete: the writer was interrupted at once, or the file was cut off" : "lost");
}

static int load_meta(struct kvf_trace *t, struct kvf_diag *d)
{
    const struct record *r = first_of(t, REC_META);
    unsigned char *p = NULL;
    if (!r)
        return missing(t, "run header", d);
    if (r->stored_len > KVF_MAX_META)
        return kvf_fail(d, KVF_E_LIMIT, "%s: the run header has %llu bytes, over the limit",
                        t->path, (unsigned long long)r->stored_len);
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
            || !kvf_dtype_size(c->dtype) || c->dtype > KVF_U64 || c->space > KVF_SPACE_QUERY
            || c->axis > KVF_AXIS_STEP
            || (c->flags & KVF_COL_INTERVALS && !trace_interval_column(c)))
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
        if (t->n_kv[l] > KVF_MAX_HEADS || t->n_query[l] > KVF_MAX_HEADS)
            return KVF_E_CORRUPT;
    }
    uint64_t columns = get_le(p + 4 + 4 * layers, 4);
    if (columns > KVF_MAX_COLUMNS)
        return KVF_E_CORRUPT;
    t->n_columns = (int)columns;
    return parse_columns(t, p + 8 + 4 * layers, n - 8 - 4 * layers);
}

static void drop_schema(struct kvf_trace *t)
{
    mem_free_all(t->column, t->n_kv, t->n_query);
    t->column = NULL;
    t->n_kv = t->n_query = NULL;
    t->n_columns = t->n_layers = 0;
}

int trace_load_schema(struct kvf_trace *t, struct kvf_diag *d)
{
    const struct record *r = first_of(t, REC_SCHEMA);
    unsigned char *p = NULL;
    if (t->column)
        return KVF_OK;
    if (!r)
        return missing(t, "schema", d);
    int err = trace_payload(t, r, &p, d);
    if (err)
        return err;
    err = parse_schema(t, p, r->stored_len);
    mem_free(p);
    if (err)
        drop_schema(t);
    return err == KVF_E_CORRUPT ? kvf_fail(d, err, "%s: the schema is malformed", t->path) : err;
}

/* The list has room for a power of two of them. */
static int add_note(struct kvf_trace *t, const unsigned char *p, size_t n)
{
    size_t have = (size_t)t->n_notes;
    char **list = t->note;
    if ((have & (have - 1)) == 0)
        list = mem_grow(t->note, have, have ? 2 * have : 1, sizeof *list);
    if (list)
        t->note = list;
    char *text = mem_alloc(n + 1, 1);
    if (!list || !text) {
        mem_free(text);
        return KVF_E_NOMEM;
    }
    memcpy(text, p, n);
    t->note[t->n_notes++] = text;
    return KVF_OK;
}

/* A key, a zero byte and a text, neither of them longer than the limits. */
static bool note_fits(const unsigned char *p, size_t n)
{
    const unsigned char *zero = memchr(p, 0, n < KVF_MAX_KEY + 1 ? n : KVF_MAX_KEY + 1);
    return zero && zero > p && n - (size_t)(zero - p) - 1 <= KVF_MAX_META;
}

/* Commits and notes.  KVF_E_CORRUPT when this one cannot be used. */
static int load_small(struct kvf_trace *t, const struct record *r)
{
    unsigned char *p = NULL;
    int err = trace_payload(t, r, &p, NULL);
    if (err)
        return err;
    if (r->type == REC_NOTE) {
        err = note_fits(p, r->stored_len) ? add_note(t, p, r->stored_len) : KVF_E_CORRUPT;
    } else if (r->stored_len != 8 || get_le(p, 4) != r->epoch || get_le(p + 4, 4) > KVF_MAX_STEPS) {
        err = KVF_E_CORRUPT;
    } else if (r->epoch > t->epoch) {
        t->epoch = r->epoch;
        t->n_steps = (uint32_t)get_le(p + 4, 4);
        t->commit_at = r->offset;
    }
    mem_free(p);
    return err;
}

/* Whether so many bytes can be the values or the lists of intervals of a chunk. */
static bool length_fits(const struct kvf_column *c, const struct record *r)
{
    uint64_t n = (uint64_t)r->n_heads * r->n;
    if (r->type == REC_COLUMN)
        return r->raw_len == n * kvf_dtype_size(c->dtype);
    return r->raw_len >= 4 * n && (r->raw_len - 4 * n) % sizeof(struct kvf_interval) == 0;
}

static bool blob_fits(const struct kvf_trace *t, const struct record *r)
{
    return trace_has_head(t->n_layers, t->n_kv, t->n_query, r->layer, r->head0)
           && r->t0 < KVF_MAX_STEPS && r->raw_len >= 1 && r->raw_len <= KVF_MAX_BLOB
           && r->stored_len >= BLOB_HEADER;
}

bool trace_fits_schema(const struct kvf_trace *t, const struct record *r)
{
    if (r->type == REC_BLOB)
        return blob_fits(t, r);
    if (!is_chunk(r))
        return true;
    if (r->column >= (uint32_t)t->n_columns)
        return false;
    const struct kvf_column *c = &t->column[r->column];
    int heads = kvf_n_heads(t, r->layer, (enum kvf_space)c->space);
    bool intervals = c->flags & KVF_COL_INTERVALS;
    return intervals == (r->type == REC_INTERVALS) && r->n_heads >= 1
           && r->head0 + r->n_heads <= heads && r->n >= 1 && (uint64_t)r->t0 + r->n <= KVF_MAX_STEPS
           && length_fits(c, r);
}

/* Records that are damaged or contradict the schema are dropped and counted. */
static int load_rest(struct kvf_trace *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        int err = trace_fits_schema(t, r) ? KVF_OK : KVF_E_CORRUPT;
        if (r->type == REC_COMMIT || r->type == REC_NOTE)
            err = load_small(t, r);
        if (err == KVF_E_NOMEM)
            return err;
        if (err)
            trace_note_damage(t, r->offset);
        else
            t->rec[kept++] = *r;
    }
    t->n_rec = kept;
    trace_sort(t);
    return KVF_OK;
}

char *trace_unfinished(const char *path)
{
    struct buf b = {0};
    buf_printf(&b, "%s" REPLACE_UNFINISHED, path);
    if (b.err)
        buf_finish(&b);
    return b.data;
}

/* The file at the name, or its unfinished one; t->path is then the name of that. */
static int open_either(struct kvf_trace *t, const char *path, struct kvf_diag *d)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    t->path = mem_strdup(path);
    if (!t->path)
        return KVF_E_NOMEM;
    t->fd = open(path, flags);
    int error = t->fd < 0 ? errno : 0;
    if (error == ENOENT) {
        char *unfinished = trace_unfinished(path);
        if (!unfinished)
            return KVF_E_NOMEM;
        t->fd = open(unfinished, flags);
        mem_free(t->fd < 0 ? unfinished : t->path);
        t->path = t->fd < 0 ? t->path : unfinished;
    }
    const char *advice = error == ENOENT ? "; 'kvfate trace ls' lists the traces here" : "";
    return t->fd < 0 ? kvf_fail(d, KVF_E_IO, "%s: cannot open the trace: %s%s", path,
                                strerror(error), advice)
                     : KVF_OK;
}

int trace_open_file(const char *path, struct kvf_trace **ret_trace, struct kvf_diag *d)
{
    struct stat st;
    struct kvf_trace *t = MEM_NEW(struct kvf_trace, 1);
    if (!t)
        return KVF_E_NOMEM;
    t->fd = -1;
    trace_no_buffers(t);
    int err = open_either(t, path, d);
    if (err)
        goto fail;
    if (fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        err = kvf_fail(d, KVF_E_IO, "%s: not a regular file", path);
        goto fail;
    }
    t->size = (uint64_t)st.st_size;
    *ret_trace = t;
    return KVF_OK;
fail:
    kvf_close(t);
    return err;
}

int trace_load(struct kvf_trace *t, struct kvf_diag *d)
{
    int err = load_meta(t, d);
    if (!err)
        err = trace_load_schema(t, d);
    return err ? err : load_rest(t);
}

/* Damage after the last complete snapshot of a trace that was not closed is its torn tail.  Damage
 * before it is an error, because the reader would show less than the file once had. */
static int judge(const struct kvf_trace *t, enum kvf_open_mode mode, struct kvf_diag *d)
{
    bool inside = t->clean || t->first_bad < t->commit_at || mode == KVF_OPEN_STRICT;
    if (mode != KVF_OPEN_SALVAGE && t->bad_records && inside)
        return kvf_fail(
            d, KVF_E_CORRUPT,
            "%s: damaged at byte %llu; 'kvfate trace verify --full' lists the lost data", t->path,
            (unsigned long long)t->first_bad);
    if (mode == KVF_OPEN_STRICT && !t->clean)
        return kvf_fail(d, KVF_E_CORRUPT, "%s: the trace was not closed", t->path);
    if (mode == KVF_OPEN_STRICT && t->bad_index)
        return kvf_fail(d, KVF_E_CORRUPT, "%s: the index does not match the records", t->path);
    return KVF_OK;
}

int trace_open(const char *path, enum kvf_open_mode mode, struct kvf_trace **ret_trace,
               struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    int err = trace_open_file(path, &t, d);
    if (err)
        return err;
    err = trace_scan(t, mode, mode == KVF_OPEN_TAIL, d);
    if (!err)
        err = trace_load(t, d);
    if (!err)
        err = judge(t, mode, d);
    if (err)
        goto fail;
    *ret_trace = t;
    return KVF_OK;
fail:
    kvf_close(t);
    return err;
}

int trace_map(struct kvf_trace *t, struct kvf_diag *d)
{
    if (!t->clean)
        return KVF_OK;
    void *p = t->size <= SIZE_MAX ? mmap(NULL, (size_t)t->size, PROT_READ, MAP_SHARED, t->fd, 0)
                                  : MAP_FAILED;
    if (p == MAP_FAILED)
        return kvf_fail(d, KVF_E_IO, "%s: cannot map the file into memory", t->path);
    t->map = p;
    return KVF_OK;
}

const char *kvf_path(const struct kvf_trace *t)
{
    return t->path;
}

void kvf_close(struct kvf_trace *t)
{
    if (!t)
        return;
    trace_free_buffers(t);
    kvf_close(t->tail);
    if (t->shared) {
        mem_free(t);
        return;
    }
    if (t->map)
        munmap((void *)(uintptr_t)t->map, (size_t)t->size);
    if (t->fd >= 0)
        close(t->fd);
    for (int i = 0; i < t->n_notes; i++)
        mem_free(t->note[i]);
    mem_free_all(t->note, t->meta);
    drop_schema(t);
    mem_free_all(t->rec, t->listed, t->tail_aside, t->path, t);
}
