/* reader_scan.c - which records a file holds: by its index when it was closed
 * properly, else by walking the record headers; docs/reference/format.md, "Reading". */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/reader.h"

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
static bool plausible(const struct record *r, uint64_t end)
{
    uint64_t limit = META_LIMIT + 1024;
    if (r->type == REC_COLUMN || r->type == REC_TOKENS)
        limit = CHUNK_RAW_LIMIT;
    else if (r->type == REC_INDEX)
        limit = (uint64_t)1 << 32;
    return r->raw_len <= limit && r->stored_len <= limit && r->offset <= end && r->offset % 8 == 0
           && r->stored_len <= end - r->offset
           && RECORD_HEADER + padded(r->stored_len) <= end - r->offset;
}

static bool read_footer(const struct kvf_trace *t, struct footer *f)
{
    unsigned char end[FOOTER];
    return t->size >= FILE_HEADER + RECORD_HEADER + FOOTER
           && trace_pread(t->fd, end, sizeof end, t->size - FOOTER) == KVF_OK
           && footer_read(end, t->salt, f) && f->clean && f->index_offset >= FILE_HEADER
           && f->index_offset <= t->size - FOOTER - RECORD_HEADER;
}

/* A type that this reader does not know may be skipped unless it says otherwise. */
static bool must_refuse(const struct kvf_trace *t, const struct record *r)
{
    unsigned char head[RECORD_HEADER];
    struct record full;
    return r->type > REC_INDEX && trace_pread(t->fd, head, sizeof head, r->offset) == KVF_OK
           && record_header_read(head, r->offset, t->salt, &full) && full.flags & REC_CRITICAL;
}

/* The records that the index lists into t->rec.  KVF_OK, KVF_E_NOMEM, KVF_E_VERSION,
 * or KVF_E_CORRUPT: the caller then walks the file. */
static int load_index(struct kvf_trace *t, const struct footer *f)
{
    struct record r;
    unsigned char head[RECORD_HEADER], *p = NULL;
    if (trace_pread(t->fd, head, sizeof head, f->index_offset) != KVF_OK
        || !record_header_read(head, f->index_offset, t->salt, &r) || r.type != REC_INDEX
        || !plausible(&r, t->size - FOOTER) || r.stored_len % INDEX_ENTRY
        || r.offset + RECORD_HEADER + padded(r.stored_len) != t->size - FOOTER
        || r.stored_len / INDEX_ENTRY != f->n_records || r.seq != f->last_seq)
        return KVF_E_CORRUPT;
    int err = trace_payload(t, &r, &p, NULL);
    uint64_t covered = FILE_HEADER; /* the records tile the file: none is listed twice */
    for (uint64_t i = 0; !err && i < f->n_records; i++) {
        struct record e;
        index_entry_read(p + i * INDEX_ENTRY, &e);
        if (!plausible(&e, f->index_offset) || covered > f->index_offset)
            err = KVF_E_CORRUPT;
        else
            err = must_refuse(t, &e) ? KVF_E_VERSION : add_record(t, &e);
        covered += RECORD_HEADER + padded(e.stored_len);
    }
    if (!err && covered != f->index_offset)
        err = KVF_E_CORRUPT;
    mem_free(p);
    if (err)
        t->n_rec = 0;
    return err == KVF_E_IO ? KVF_E_CORRUPT : err;
}

/* The first record header at or after `from` that ends before `end` into *ret_found;
 * 0: none.  any_salt: of whatever run, with its salt in *salt. */
static int resync(const struct kvf_trace *t, uint64_t from, uint64_t end, bool any_salt,
                  uint32_t *salt, uint64_t *ret_found)
{
    enum { STEP = 1 << 16 };
    unsigned char *buf = mem_alloc(STEP + RECORD_HEADER, 1);
    uint64_t found = 0;
    struct record r;
    if (!buf)
        return KVF_E_NOMEM;
    for (uint64_t at = padded(from); !found && at + RECORD_HEADER <= end; at += STEP) {
        size_t n = end - at < STEP + RECORD_HEADER ? (size_t)(end - at) : STEP + RECORD_HEADER;
        if (trace_pread(t->fd, buf, n, at) != KVF_OK)
            break;
        for (size_t i = 0; i + RECORD_HEADER <= n && i < STEP && !found; i += 8) {
            uint32_t s = any_salt ? (uint32_t)get_le(buf + i + 56, 4) : t->salt;
            if (record_header_read(buf + i, at + i, s, &r)) {
                found = at + i;
                *salt = s;
            }
        }
    }
    mem_free(buf);
    *ret_found = found;
    return KVF_OK;
}

void trace_sort(struct kvf_trace *t)
{
    if (t->n_rec > 1) /* qsort takes no NULL */
        qsort(t->rec, t->n_rec, sizeof *t->rec, record_compare);
}

void trace_note_damage(struct kvf_trace *t, uint64_t at)
{
    if (!t->bad_records++ || at < t->first_bad)
        t->first_bad = at;
}

/* Record after record up to `end`.  Bytes that are no record and have none
 * after them are a torn tail, unless the trace was closed. */
static int walk(struct kvf_trace *t, uint64_t end)
{
    unsigned char head[RECORD_HEADER];
    uint64_t at = FILE_HEADER, next_seq = 0, again;
    uint32_t salt;
    while (at < end) {
        struct record r;
        bool whole = end - at >= RECORD_HEADER;
        if (whole && trace_pread(t->fd, head, sizeof head, at) != KVF_OK)
            return KVF_E_IO;
        if (whole && record_header_read(head, at, t->salt, &r) && plausible(&r, end)
            && r.seq >= next_seq) {
            next_seq = r.seq + 1;
            if (r.type > REC_INDEX && r.flags & REC_CRITICAL)
                return KVF_E_VERSION;
            int err = r.type == REC_INDEX ? KVF_OK : add_record(t, &r);
            if (err)
                return err;
            at += RECORD_HEADER + padded(r.stored_len);
            continue;
        }
        int err = resync(t, at + 8, end, false, &salt, &again);
        if (err)
            return err;
        if (!again && !t->clean) {
            t->torn_bytes = end - at;
            return KVF_OK;
        }
        trace_note_damage(t, at);
        t->lost_bytes += (again ? again : end) - at;
        at = again ? again : end;
    }
    return KVF_OK;
}

/* The header copy in a checkpoint tells features that the records do not. */
static int check_header_copy(struct kvf_trace *t)
{
    for (size_t i = 0; i < t->n_rec; i++) {
        unsigned char *p = NULL;
        uint32_t salt;
        if (t->rec[i].type != REC_CHECKPOINT || t->rec[i].stored_len != FILE_HEADER
            || trace_payload(t, &t->rec[i], &p, NULL) != KVF_OK)
            continue;
        int err = file_header_read(p, &salt);
        mem_free(p);
        return err == KVF_E_VERSION ? err : KVF_OK;
    }
    return KVF_OK;
}

static int walk_and_compare(struct kvf_trace *t, const struct footer *f, bool lost_header)
{
    int err = t->clean ? load_index(t, f) : KVF_OK;
    if (err == KVF_E_NOMEM || err == KVF_E_VERSION)
        return err;
    t->bad_index = err != KVF_OK;
    struct record *listed = t->rec;
    size_t n = t->n_rec;
    t->rec = NULL;
    t->n_rec = t->cap_rec = 0;
    err = walk(t, t->clean ? f->index_offset : t->size);
    if (!err && lost_header)
        err = check_header_copy(t);
    if (!err && t->clean && !t->bad_index) {
        trace_sort(t);
        t->bad_index = n != t->n_rec;
        for (size_t i = 0; i < n && !t->bad_index; i++)
            t->bad_index = !record_same(&listed[i], &t->rec[i]);
    }
    mem_free(listed);
    return err;
}

/* Damage to the file header: the records carry the salt too. */
static int salvage_salt(struct kvf_trace *t, bool *ret_found)
{
    uint64_t found;
    int err = resync(t, 0, t->size, true, &t->salt, &found);
    if (err || !found)
        return err;
    trace_note_damage(t, 0);
    t->lost_bytes += FILE_HEADER;
    *ret_found = true;
    return KVF_OK;
}

static int header_error(const struct kvf_trace *t, int err, struct kvf_diag *d)
{
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err, "%s: not a kvfate trace (%llu bytes)", t->path,
                        (unsigned long long)t->size);
    if (err == KVF_E_CORRUPT)
        return kvf_fail(d, err, "%s: the header of the trace is damaged", t->path);
    if (err == KVF_E_VERSION)
        return kvf_fail(d, err, "%s: written by a newer kvfate; update to read it", t->path);
    return kvf_fail(d, err, "%s: cannot read: %s", t->path, kvf_strerror(err));
}

int trace_scan(struct kvf_trace *t, enum kvf_open_mode mode, bool trust_index, struct kvf_diag *d)
{
    unsigned char head[FILE_HEADER];
    struct footer f = {0};
    int err = t->size < FILE_HEADER ? KVF_E_FORMAT : trace_pread(t->fd, head, sizeof head, 0);
    if (!err)
        err = file_header_read(head, &t->salt);
    bool lost_header = false;
    if ((err == KVF_E_FORMAT || err == KVF_E_CORRUPT) && mode == KVF_OPEN_SALVAGE
        && salvage_salt(t, &lost_header) == KVF_E_NOMEM)
        err = KVF_E_NOMEM;
    if (err && !lost_header)
        return header_error(t, err, d);
    t->clean = read_footer(t, &f);
    err = KVF_E_CORRUPT;
    if (t->clean && trust_index && !lost_header)
        err = load_index(t, &f);
    if (err == KVF_E_CORRUPT)
        err = walk_and_compare(t, &f, lost_header);
    return err ? header_error(t, err, d) : KVF_OK;
}
