/* reader_record.c - the bytes of single records, read and checked. */
#include <errno.h>
#include <string.h>
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

int trace_record(const struct kvf_trace *t, const struct record *r, unsigned char *p,
                 struct kvf_diag *d)
{
    struct record full;
    size_t n = r->stored_len, head = trace_header_size(t); /* the reader has bounded n */
    int err = trace_pread(t->fd, p, head + n, r->offset);
    if (err)
        kvf_fail(d, err, "%s: cannot read at byte %llu", t->path, (unsigned long long)r->offset);
    /* the index is a hint: the record itself decides */
    else if (!record_header_read(p, r->offset, t->header.salt, t->header.chained, &full)
             || !record_same(&full, r) || payload_crc(&full, p + head, n) != full.payload_crc)
        err = kvf_fail(d, KVF_E_CORRUPT, "%s: the record at byte %llu is damaged", t->path,
                       (unsigned long long)r->offset);
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
    const struct kvf_interval *v = (const void *)(raw + 4 * (size_t)r->n_heads * r->n);
    size_t n_lists = (size_t)r->n_heads * r->n, total = (r->raw_len - 4 * n_lists) / sizeof *v;
    uint32_t steps = r->epoch == t->epoch ? t->n_steps : KVF_MAX_STEPS, from = 0;
    for (size_t k = 0; k < n_lists; k++) {
        uint32_t to = (uint32_t)get_le(raw + 4 * k, 4);
        if (to < from || to > total || to - from > KVF_MAX_INTERVALS
            || !trace_list_rises(v + from, to - from, r->t0 + (uint32_t)(k % r->n), steps))
            return false;
        from = to;
    }
    return from == total;
}
