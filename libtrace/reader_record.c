/* reader_record.c - the bytes of single records, read and checked. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "libtrace/reader.h"

int trace_room_for(size_t n, unsigned char **p, size_t *cap)
{
    if (*p && n <= *cap)
        return KVF_OK;
    unsigned char *more = mem_alloc(n, 1);
    if (!more)
        return KVF_E_NOMEM;
    mem_free(*p);
    *p = more;
    *cap = n;
    return KVF_OK;
}

int trace_room(size_t n, struct scratch *s)
{
    return trace_room_for(n, &s->data, &s->cap);
}

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

/* The index is a hint: the record p itself decides. */
static int check_record(const struct kvf_trace *t, const struct record *r, const unsigned char *p,
                        struct kvf_diag *d)
{
    struct record full;
    size_t n = r->stored_len, head = trace_header_size(t);
    if (record_header_read(p, r->offset, t->header.salt, t->header.chained, &full)
        && record_same(&full, r) && payload_crc(&full, p + head, n) == full.payload_crc)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT, "%s: the record at byte %llu is damaged", t->path,
                    (unsigned long long)r->offset);
}

int trace_record(const struct kvf_trace *t, const struct record *r, unsigned char *p,
                 struct kvf_diag *d)
{
    size_t n = trace_header_size(t) + r->stored_len; /* the reader has bounded it */
    int err = trace_pread(t->fd, p, n, r->offset);
    if (err)
        return kvf_fail(d, err, "%s: cannot read at byte %llu", t->path,
                        (unsigned long long)r->offset);
    return check_record(t, r, p, d);
}

bool trace_checked(struct kvf_trace *t, const struct record *r, bool now)
{
    unsigned char *seen = &t->seen[r - t->rec];
    bool before = *seen & SEEN_CHECKED;
    if (now)
        *seen |= SEEN_CHECKED;
    return before;
}

int trace_bytes(struct kvf_trace *t, const struct record *r, const unsigned char **ret,
                struct kvf_diag *d)
{
    int err = KVF_OK;
    if (!t->seen)
        t->seen = MEM_NEW(unsigned char, t->n_rec);
    if (!t->seen)
        return KVF_E_NOMEM;
    if (t->map) { /* the bounds of the record were checked at opening */
        const unsigned char *p = t->map + r->offset;
        if (!trace_checked(t, r, false))
            err = check_record(t, r, p, d);
        if (!err)
            *ret = p;
        return err;
    }
    err = trace_room(trace_header_size(t) + r->stored_len, &t->stored);
    if (!err)
        err = trace_record(t, r, t->stored.data, d);
    if (!err)
        *ret = t->stored.data;
    return err;
}

int trace_payload(const struct kvf_trace *t, const struct record *r, unsigned char **ret,
                  struct kvf_diag *d)
{
    size_t n = r->stored_len, head = trace_header_size(t);
    unsigned char *p = mem_alloc(head + n, 1);
    int err = p ? trace_record(t, r, p, d) : KVF_E_NOMEM;
    if (err) {
        mem_free(p);
        return err;
    }
    memmove(p, p + head, n);
    *ret = p;
    return KVF_OK;
}

bool trace_lists_fit(const struct kvf_trace *t, const struct record *r, const unsigned char *raw)
{
    enum { SIZE = sizeof(struct kvf_interval) };
    const unsigned char *v = raw + 4 * (size_t)r->n_heads * r->n;
    size_t n_lists = (size_t)r->n_heads * r->n, total = (r->raw_len - 4 * n_lists) / SIZE;
    uint32_t steps = r->epoch == t->epoch ? t->n_steps : KVF_MAX_STEPS, from = 0;
    for (size_t k = 0; k < n_lists; k++) {
        uint32_t to = (uint32_t)get_le(raw + 4 * k, 4);
        if (to < from || to > total || to - from > KVF_MAX_INTERVALS
            || !trace_stored_list_rises(v + (size_t)from * SIZE, to - from,
                                        r->t0 + (uint32_t)(k % r->n), steps))
            return false;
        from = to;
    }
    return from == total;
}

void trace_decoded(struct kvf_trace *t, uint64_t bytes)
{
    struct watch *w = &t->watch;
    if (!w->fn)
        return;
    w->done += bytes;
    w->of = w->of > w->done ? w->of : w->done;
    w->fn(w->ctx, w->done, w->of);
}
