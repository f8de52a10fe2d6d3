/* writer_append.c - records on their way into the file, one thread at a time. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/room.h"
#include "libtrace/crc32c.h"
#include "libtrace/writer.h"

/* Compares the next bytes with the unfinished trace that is continued.  It is passed over where
 * it is the same; if they differ, the rest of the file is cut off, unless it was committed. */
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

int writer_write(struct kvf_writer *w, const void *a, size_t na, const void *b, size_t nb)
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
    if (!mem_room(&w->index, w->n_index, &w->cap_index, 1024, sizeof *w->index))
        return w->err = KVF_E_NOMEM;
    w->index[w->n_index++] = *r;
    return KVF_OK;
}

/* Of the notes of one key the last counts. */
static int remember_note(struct kvf_writer *w, const char *p, size_t n)
{
    struct content *c = &w->content;
    const struct noted now = {hash64(p, strlen(p)), digest_note(p, n)};
    size_t i = 0;
    while (i < c->n_notes && c->note[i].key != now.key)
        i++;
    if (i == c->n_notes) {
        struct noted *more = mem_grow(c->note, i, i + 1, sizeof *more);
        if (!more)
            return w->err = KVF_E_NOMEM;
        c->note = more;
        c->n_notes++;
    }
    c->note[i] = now;
    return KVF_OK;
}

/* Under the lock, as all above. */
static int append(struct kvf_writer *w, struct record *r, struct payload p)
{
    unsigned char head[RECORD_HEADER + BLOB_HEADER];
    if (w->err)
        return w->err;
    if (r->epoch && is_chunk(r) && r->epoch != w->epoch + 1)
        return KVF_E_ARG; /* it was committed meanwhile */
    if (w->seq >= KVF_MAX_RECORDS && r->type != REC_INDEX)
        return KVF_E_LIMIT;
    r->seq = w->seq;
    r->salt = (uint32_t)w->id.low;
    r->link = w->link;
    r->offset = w->end;
    r->stored_len = p.n_first + p.n;
    r->payload_crc = crc32c(payload_crc(r, p.first, p.n_first), p.data, p.n);
    r->hash = record_header_write(head, r);
    if (p.n_first)
        memcpy(head + RECORD_HEADER, p.first, p.n_first);
    int err = writer_write(w, head, RECORD_HEADER + p.n_first, p.data, p.n);
    if (err)
        return err;
    w->seq++;
    w->link = r->hash;
    return remember(w, r);
}

int writer_put(struct kvf_writer *w, struct record *r, struct payload p, struct hash128 holds)
{
    pthread_mutex_lock(&w->lock);
    int err = append(w, r, p);
    if (!err)
        digest_add(r->epoch ? &w->content.pending : &w->content.kept, holds);
    if (!err && r->type == REC_NOTE)
        err = remember_note(w, p.data, p.n);
    pthread_mutex_unlock(&w->lock);
    return err;
}

int writer_put_coded(struct kvf_writer *w, const struct encoder *e, struct record *r, int width,
                     struct payload p, struct hash128 holds)
{
    bool sparse = (int)r->column >= w->sparse_first && (int)r->column < w->sparse_end;
    int level = sparse && w->level < ZSTD_SPARSE ? ZSTD_SPARSE : w->level;
    p.n = codec_encode_at(level, e->codec, p.data, p.n, width, e->packed, e->scratch, &r->codec);
    p.data = e->packed;
    return p.n ? writer_put(w, r, p, holds) : writer_refuse(w, KVF_E_NOMEM);
}

int kvf_writer_sync(struct kvf_writer *w)
{
    int err = writer_refuse(w, KVF_OK);
    if (err || fdatasync(w->fd) == 0)
        return err;
    const int error = errno; /* after a failed sync the state is unknown */
    pthread_mutex_lock(&w->lock);
    if (!w->err) {
        w->saved_errno = error;
        w->err = KVF_E_IO;
    }
    err = w->err;
    pthread_mutex_unlock(&w->lock);
    return err;
}

/* The two records, and from now on the next epoch. */
static int commit(struct kvf_writer *w, uint32_t epoch, uint32_t n_steps)
{
    unsigned char payload[8], header[FILE_HEADER];
    if (w->err)
        return w->err;
    if (epoch != w->epoch + 1 || n_steps > KVF_MAX_STEPS || n_steps < w->needs)
        return KVF_E_ARG;
    struct record r = {.type = REC_COMMIT, .flags = REC_CRITICAL, .epoch = epoch, .raw_len = 8};
    put_le(payload, epoch, 4);
    put_le(payload + 4, n_steps, 4);
    int err = append(w, &r, (struct payload){.data = payload, .n = sizeof payload});
    if (err)
        return err;
    w->epoch = epoch;
    w->needs = 0;
    w->content.snapshot = w->content.pending;
    w->content.pending = (struct hash128){0, 0};
    w->content.n_steps = n_steps;
    struct record copy = {.type = REC_CHECKPOINT, .raw_len = FILE_HEADER};
    file_header_write(header, &w->id);
    return append(w, &copy, (struct payload){.data = header, .n = sizeof header});
}

int kvf_writer_commit(struct kvf_writer *w, uint32_t epoch, uint32_t n_steps)
{
    /* A disk may take writes in any order.  If the commit reached the disk before its data, a loss
     * of power could replace the previous snapshot by an incomplete one. */
    int err = w->file.only_whole ? KVF_OK : kvf_writer_sync(w);
    if (err)
        return err;
    pthread_mutex_lock(&w->lock);
    err = commit(w, epoch, n_steps);
    pthread_mutex_unlock(&w->lock);
    return err ? err : kvf_writer_sync(w);
}

/* Reading a writer changes only its lock. */
static pthread_mutex_t *lock_of(const struct kvf_writer *w)
{
    return (pthread_mutex_t *)&w->lock;
}

uint64_t kvf_writer_bytes(const struct kvf_writer *w)
{
    pthread_mutex_lock(lock_of(w));
    uint64_t n = w->end;
    pthread_mutex_unlock(lock_of(w));
    return n;
}

bool writer_replays(const struct kvf_writer *w)
{
    pthread_mutex_lock(lock_of(w));
    bool replays = w->file.replays;
    pthread_mutex_unlock(lock_of(w));
    return replays;
}

void writer_need(struct kvf_writer *w, uint32_t n_steps)
{
    pthread_mutex_lock(&w->lock);
    w->needs = n_steps > w->needs ? n_steps : w->needs;
    pthread_mutex_unlock(&w->lock);
}

int writer_refuse(struct kvf_writer *w, int err)
{
    pthread_mutex_lock(&w->lock);
    err = w->err ? w->err : err;
    pthread_mutex_unlock(&w->lock);
    return err;
}
