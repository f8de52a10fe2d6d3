/* writer_file.c - the file of a trace that is written (writer_file.h). */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "libtrace/reader.h"
#include "libtrace/writer_file.h"

/* Under the lock, so that no other process creates it meanwhile. */
static int check_existing(const struct writer_file *f, enum kvf_existing existing,
                          struct kvf_diag *d)
{
    struct stat s;
    char *unfinished = trace_unfinished(f->r.place);
    int err = unfinished ? KVF_OK : KVF_E_NOMEM;
    if (!err && existing == KVF_RESUME && f->r.existed)
        err = kvf_fail(d, KVF_E_IO,
                       "%s is there already, closed; --resume --overwrite finishes the unfinished "
                       "one and replaces it",
                       f->path);
    else if (!err && existing == KVF_REFUSE && f->r.existed)
        err = kvf_fail(d, KVF_E_IO, "%s is there already; --overwrite replaces it", f->path);
    else if (!err && existing == KVF_REFUSE && !f->only_whole && lstat(unfinished, &s) == 0)
        err = kvf_fail(d, KVF_E_IO,
                       "%s" REPLACE_UNFINISHED " is there: the trace of an unfinished run; "
                       "--resume continues it, --overwrite starts again",
                       f->path);
    mem_free(unfinished);
    return err;
}

/* The bytes of the unfinished trace that must be repeated: header, schema and all that was
 * committed. */
static int measure(struct writer_file *f, struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    int err = trace_open(f->r.part, KVF_OPEN_TAIL, &t, d);
    if (err)
        return err;
    for (size_t i = 0; i < t->n_rec; i++) {
        const struct record *r = &t->rec[i];
        uint64_t end = r->offset + padded(trace_header_size(t) + r->stored_len);
        if (r->type == REC_SCHEMA || (r->type == REC_COMMIT && r->offset == t->commit_at))
            f->committed = end > f->committed ? end : f->committed;
    }
    f->replays = true;
    kvf_close(t);
    return KVF_OK;
}

void writer_file_none(struct writer_file *f)
{
    static const struct replace closed = REPLACE_CLOSED;
    *f = (struct writer_file){.r = closed};
}

int writer_file_open(struct writer_file *f, const char *path, const struct kvf_writer_options *o,
                     struct kvf_diag *d)
{
    struct stat s;
    writer_file_none(f);
    f->path = path;
    f->only_whole = o->only_whole;
    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode))
        return kvf_fail(d, KVF_E_IO, "%s: %s, not a regular file; a trace needs one", path,
                        S_ISDIR(s.st_mode) ? "a directory" : "a device or a pipe");
    bool resume = writer_resumes(o->existing);
    int err = resume ? replace_resume(&f->r, path, d) : replace_open(&f->r, path, d);
    if (err && resume && f->r.error == ENOENT)
        kvf_fail(d, err, "%s" REPLACE_UNFINISHED " is not there: there is no run to continue",
                 path);
    if (err)
        return err;
    if (!f->r.place)
        err = kvf_fail(d, KVF_E_IO, "%s: not a regular file; a trace needs one", path);
    else
        err = check_existing(f, o->existing, d);
    if (!err && resume)
        err = measure(f, d);
    if (err)
        replace_abandon(&f->r);
    return err;
}

int writer_file_begun(struct writer_file *f, struct kvf_diag *d)
{
    return f->only_whole || f->r.shown ? KVF_OK : replace_show(&f->r, d);
}

bool writer_file_same(struct writer_file *f, uint64_t at, const void *p, size_t n)
{
    unsigned char there[4096];
    const unsigned char *want = p;
    for (size_t done = 0; done < n;) {
        size_t k = n - done < sizeof there ? n - done : sizeof there;
        ssize_t got = pread(f->r.fd, there, k, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || memcmp(there, want + done, (size_t)got) != 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

int writer_file_cut(struct writer_file *f, uint64_t at)
{
    f->replays = false;
    return ftruncate(f->r.fd, (off_t)at) != 0 ? errno : 0;
}

int writer_file_close(struct writer_file *f, struct kvf_diag *d)
{
    return replace_finish(&f->r, d);
}

void writer_file_abandon(struct writer_file *f)
{
    replace_abandon(&f->r);
}
