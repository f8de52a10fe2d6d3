/* writer_tail.c - the newest state of a trace that is being written, in a file beside it. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "libtrace/writer.h"

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
