/* reader_scan.c - finds the records of a file: by its index when it was closed
 * properly, else by walking the record headers; docs/reference/format.md, "Reading". */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "libtrace/reader.h"

static int hold_records(struct kvf_trace *t, size_t cap)
{
    struct record *p = mem_grow(t->rec, t->n_rec, cap, sizeof *p);
    if (!p)
        return KVF_E_NOMEM;
    t->rec = p;
    t->cap_rec = cap;
    return KVF_OK;
}

static int add_record(struct kvf_trace *t, const struct record *r)
{
    if (t->n_rec == t->cap_rec && hold_records(t, t->cap_rec ? 2 * t->cap_rec : 256) != KVF_OK)
        return KVF_E_NOMEM;
    t->rec[t->n_rec++] = *r;
    return KVF_OK;
}

/* Lengths that the type of the record allows. */
static bool plausible(const struct kvf_trace *t, const struct record *r, uint64_t end)
{
    uint64_t limit = KVF_MAX_META + 1024;
    if (is_chunk(r) || r->type == REC_TOKENS)
        limit = CHUNK_RAW_LIMIT;
    else if (r->type == REC_INDEX)
        limit = (uint64_t)KVF_MAX_RECORDS * INDEX_ENTRY;
    return r->seq <= KVF_MAX_RECORDS - (r->type != REC_INDEX) && r->raw_len <= limit
           && r->stored_len <= limit && r->offset <= end && r->offset % 8 == 0
           && r->stored_len <= end - r->offset
           && trace_header_size(t) + padded(r->stored_len) <= end - r->offset;
}

static bool read_footer(const struct kvf_trace *t, struct footer *f)
{
    unsigned char end[FOOTER];
    return t->size >= FILE_HEADER + trace_header_size(t) + FOOTER
           && trace_pread(t->fd, end, sizeof end, t->size - FOOTER) == KVF_OK
           && footer_read(end, t->header.salt, f) && f->clean && f->index_offset >= FILE_HEADER
           && f->index_offset <= t->size - FOOTER - trace_header_size(t);
}

/* The record at this place.  KVF_OK, KVF_E_IO or KVF_E_CORRUPT: there is none. */
static int read_header(const struct kvf_trace *t, uint64_t at, unsigned char head[RECORD_HEADER],
                       struct record *ret)
{
    bool chained = t->header.chained;
    if (trace_pread(t->fd, head, header_size(chained), at) != KVF_OK)
        return KVF_E_IO;
    return record_header_read(head, at, t->header.salt, chained, ret) ? KVF_OK : KVF_E_CORRUPT;
}

/* A record of a type that this reader does not know may be skipped unless its flags forbid it. */
static bool must_refuse(const struct kvf_trace *t, const struct record *r)
{
    unsigned char head[RECORD_HEADER];
    struct record full;
    return read_header(t, r->offset, head, &full) == KVF_OK && full.flags & REC_CRITICAL;
}

/* The payload of the index, at the end of memory for as many records: the decoded entry is larger,
 * so each is read before it is overwritten, and only pages of records are touched.  New pages are
 * most of the time in which a trace of many records opens. */
static int read_index(struct kvf_trace *t, const struct record *r, uint64_t n,
                      const unsigned char **ret)
{
    struct record *p = mem_alloc_huge(n, sizeof *p);
    if (!p)
        return KVF_E_NOMEM;
    mem_free(t->rec);
    t->rec = p;
    t->n_rec = 0;
    t->cap_rec = n;
    unsigned char *at = (unsigned char *)(p + n) - r->stored_len;
    int err = trace_pread(t->fd, at, r->stored_len, r->offset + trace_header_size(t));
    if (err || payload_crc(r, at, r->stored_len) != r->payload_crc)
        return KVF_E_CORRUPT;
    *ret = at;
    return KVF_OK;
}

/* The records that the index lists into t->rec.  KVF_OK, KVF_E_NOMEM, KVF_E_VERSION,
 * or KVF_E_CORRUPT: the caller then walks the file. */
static int load_index(struct kvf_trace *t, const struct footer *f, uint64_t *ret_link)
{
    struct record r;
    bool chained = t->header.chained;
    size_t header = header_size(chained), entry = entry_size(chained);
    unsigned char head[RECORD_HEADER];
    const unsigned char *p = NULL;
    if (read_header(t, f->index_offset, head, &r) != KVF_OK || r.type != REC_INDEX
        || !plausible(t, &r, t->size - FOOTER) || r.stored_len % entry
        || r.offset + header + padded(r.stored_len) != t->size - FOOTER
        || r.stored_len / entry != f->n_records || (chained ? r.hash : r.seq) != f->last)
        return KVF_E_CORRUPT;
    *ret_link = r.link;
    int err = read_index(t, &r, f->n_records, &p);
    uint64_t covered = FILE_HEADER; /* the records tile the file: none is listed twice */
    for (uint64_t i = 0; !err && i < f->n_records; i++) {
        struct record *e = &t->rec[t->n_rec++];
        index_entry_read(p + i * entry, chained, e);
        if (!plausible(t, e, f->index_offset) || covered > f->index_offset)
            err = KVF_E_CORRUPT;
        else if (trace_unknown(e) && must_refuse(t, e))
            err = KVF_E_VERSION;
        covered += header + padded(e->stored_len);
    }
    if (!err && covered != f->index_offset)
        err = KVF_E_CORRUPT;
    if (err)
        t->n_rec = 0;
    return err;
}

/* The first record header at or after `from` that ends before `end`; 0: none.  guess: of any run
 * and format, which are returned in it; NULL: of this trace. */
static uint64_t resync(const struct kvf_trace *t, uint64_t from, uint64_t end,
                       struct file_header *guess)
{
    enum { STEP = 1 << 12 }; /* not much: a file may have only headers, and no header can be next */
    unsigned char buf[STEP + RECORD_HEADER];
    uint64_t size = guess ? RECORD_HEADER_0 : trace_header_size(t);
    struct record r;
    for (uint64_t at = padded(from); at + size <= end; at += STEP) {
        size_t n = end - at < sizeof buf ? (size_t)(end - at) : sizeof buf;
        if (trace_pread(t->fd, buf, n, at) != KVF_OK)
            break;
        for (size_t i = 0; i + size <= n && i < STEP; i += 8) {
            struct file_header h = t->header;
            if (guess && !record_header_guess(buf + i, &h.salt, &h.chained))
                continue;
            if (i + header_size(h.chained) > n
                || !record_header_read(buf + i, at + i, h.salt, h.chained, &r))
                continue;
            if (guess)
                *guess = h;
            return at + i;
        }
    }
    return 0;
}

/* Records of an index are sorted already, which qsort would not notice. */
static bool sorted(const struct kvf_trace *t)
{
    for (size_t i = 1; i < t->n_rec; i++)
        if (record_compare(&t->rec[i - 1], &t->rec[i]) > 0)
            return false;
    return true;
}

void trace_sort(struct kvf_trace *t)
{
    if (!sorted(t))
        qsort(t->rec, t->n_rec, sizeof *t->rec, record_compare);
}

void trace_note_damage(struct kvf_trace *t, uint64_t at)
{
    if (!t->bad_records++ || at < t->first_bad)
        t->first_bad = at;
}

static void note_break(struct kvf_trace *t, uint64_t at)
{
    if (!t->breaks++)
        t->first_break = at;
}

/* The state of a walk over the records. */
struct walk {
    uint64_t at, next_seq;
    uint64_t link; /* of the record that follows */
    bool linked;   /* link is known: no damage is between */
};

/* Takes the record: it is kept even where the chain is broken. */
static int step(struct kvf_trace *t, struct walk *w, const struct record *r)
{
    if (trace_unknown(r) && r->flags & REC_CRITICAL)
        return KVF_E_VERSION;
    if (t->header.chained && w->linked && r->link != w->link) {
        trace_note_damage(t, r->offset);
        note_break(t, r->offset);
    }
    w->next_seq = r->seq + 1;
    w->at = r->offset + trace_header_size(t) + padded(r->stored_len);
    w->link = r->hash;
    w->linked = true;
    return r->type == REC_INDEX ? KVF_OK : add_record(t, r);
}

/* Continues after bytes that are no record.  If no record follows, they are a torn tail, unless the
 * trace was closed. */
static void step_over(struct kvf_trace *t, struct walk *w, uint64_t end)
{
    uint64_t again = resync(t, w->at + 8, end, NULL);
    if (!again && !t->clean) {
        t->torn_bytes = end - w->at;
        w->at = end;
        return;
    }
    trace_note_damage(t, w->at);
    if (t->header.chained)
        note_break(t, w->at);
    t->lost_bytes += (again ? again : end) - w->at;
    w->at = again ? again : end;
    w->linked = false;
}

/* Record after record up to `end`. */
static int walk(struct kvf_trace *t, uint64_t end, struct walk *w)
{
    unsigned char head[RECORD_HEADER];
    *w = (struct walk){.at = FILE_HEADER, .link = t->header.hash, .linked = !t->header_lost};
    while (w->at < end) {
        struct record r;
        int err = KVF_E_CORRUPT;
        if (end - w->at >= trace_header_size(t))
            err = read_header(t, w->at, head, &r);
        if (err == KVF_E_IO)
            return err;
        bool good = !err && plausible(t, &r, end) && r.seq >= w->next_seq;
        err = good ? step(t, w, &r) : KVF_OK;
        if (err)
            return err;
        if (!good)
            step_over(t, w, end);
    }
    return KVF_OK;
}

/* The header copy in a checkpoint has features that the records lack. */
static int check_header_copy(struct kvf_trace *t)
{
    for (size_t i = 0; i < t->n_rec; i++) {
        unsigned char *p = NULL;
        struct file_header h;
        if (t->rec[i].type != REC_CHECKPOINT || t->rec[i].stored_len != FILE_HEADER
            || trace_payload(t, &t->rec[i], &p, NULL) != KVF_OK)
            continue;
        int err = file_header_read(p, &h);
        mem_free(p);
        if (!err && h.chained == t->header.chained && h.salt == t->header.salt)
            t->header = h;
        return err == KVF_E_VERSION ? err : KVF_OK;
    }
    return KVF_OK;
}

static int walk_and_compare(struct kvf_trace *t, const struct footer *f)
{
    uint64_t index_link = 0;
    struct walk w;
    int err = t->clean ? load_index(t, f, &index_link) : KVF_OK;
    if (err == KVF_E_NOMEM || err == KVF_E_VERSION)
        return err;
    t->bad_index = err != KVF_OK;
    struct record *listed = t->rec;
    size_t n = t->n_rec;
    t->rec = NULL;
    t->n_rec = t->cap_rec = 0;
    err = walk(t, t->clean ? f->index_offset : t->size, &w);
    if (!err && t->header_lost)
        err = check_header_copy(t);
    if (!err && t->clean && !t->bad_index && t->header.chained && w.linked
        && w.link != index_link) {
        trace_note_damage(t, f->index_offset);
        note_break(t, f->index_offset);
    }
    if (!err && t->clean && !t->bad_index) {
        trace_sort(t);
        t->bad_index = n != t->n_rec;
        for (size_t i = 0; i < n && !t->bad_index; i++)
            t->bad_index = !record_same(&listed[i], &t->rec[i]);
    }
    t->listed = listed;
    t->n_listed = n;
    return err;
}

/* Damage to the file header: the records have salt and format too. */
static void salvage_header(struct kvf_trace *t)
{
    if (!resync(t, 0, t->size, &t->header))
        return;
    trace_note_damage(t, 0);
    t->lost_bytes += FILE_HEADER;
    t->header_lost = true;
}

static int header_error(const struct kvf_trace *t, int err, struct kvf_diag *d)
{
    if (err == KVF_E_FORMAT)
        return kvf_fail(d, err,
                        "%s: not a kvfate trace (%llu bytes); 'kvfate run -o X.kvf' records one",
                        t->path, (unsigned long long)t->size);
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
        err = file_header_read(head, &t->header);
    if ((err == KVF_E_FORMAT || err == KVF_E_CORRUPT) && mode == KVF_OPEN_SALVAGE)
        salvage_header(t);
    if (err && !t->header_lost)
        return header_error(t, err, d);
    t->clean = read_footer(t, &f);
    t->digest = f.digest;
    err = KVF_E_CORRUPT;
    uint64_t link;
    if (t->clean && trust_index && !t->header_lost)
        err = load_index(t, &f, &link);
    if (err == KVF_E_CORRUPT)
        err = walk_and_compare(t, &f);
    return err ? header_error(t, err, d) : KVF_OK;
}
